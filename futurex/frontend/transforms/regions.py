"""``checkpoint`` and ``custom_vjp``: functions that reverse mode treats in a way of their own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.autodiff.reverse import fitted
from futurex.autodiff.segment import segmented
from futurex.errors import whole_number
from futurex.frontend import calls
from futurex.frontend.errors import Escape
from futurex.frontend.layout import c_strides
from futurex.frontend.lists import need_entries
from futurex.frontend.staging import is_futurized
from futurex.frontend.trace import current, emit_many, tracing
from futurex.frontend.tracer import Tracer, entered, fresh, node_of
from futurex.frontend.transforms.inner import VALUE, Inner, StandIn, Transform, trace_inner
from futurex.ops.elementwise import zeros_like
from futurex.ops.tapes import plain
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, param
from futurex.tree.pytree import Structure, flatten, leaf_paths, unflatten


def checkpoint(function: Callable[..., Any], every: int | None = None) -> Callable[..., Any]:
    """``function``, so that reverse mode computes it again instead of keeping what it went through.

    Values and derivatives are those of ``function``, bit for bit; the backward pass takes one more run of it, and holds
    its intermediate values only then. Use it for the blocks of a deep network. It may be nested.

    ``every`` is for functions with long loops, and recomputes nothing else: the derivative of a loop keeps the state of
    every ``every``-th round and of the rounds of one segment, not of all. With ``n`` rounds about ``sqrt(n)`` keeps
    least. Sums over rounds are then added segment by segment, and may differ in the last digits.

    Outside of staged code it is ``function`` itself. Raises ValueError if ``every`` is not positive, and
    TypeError if it is no integer.

    >>> import numpy as np, futurex as fx
    >>> block = fx.checkpoint(lambda x: np.tanh(x) * x)
    >>> float(fx.grad(lambda x: block(block(x)))(np.float64(0.0)))
    0.0
    """
    return _Checkpointed(function, None if every is None else whole_number("every", every, 1))


class _Region(Transform):
    """A function that is itself when it is called from plain code."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return self.__fx_stage__(args, kwargs)
        plain_function = self.function.plain if is_futurized(self.function) else self.function
        return plain_function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method."""
        return self if instance is None else functools.partial(self, instance)


class _Checkpointed(_Region):
    kind = "checkpoint"

    def __init__(self, function: Callable[..., Any], every: int | None) -> None:
        super().__init__(function)
        self.every = every

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = flatten((args, kwargs))[0]
        if any(isinstance(leaf, Tracer) and not leaf.aval.static for leaf in leaves):
            if current().many_sizes:
                raise Escape("a checkpoint for many sizes at once", "memory is planned for one size")
            return calls.call(self.function, args, kwargs)  # what its parts are may differ from run to run
        inner, outer = _traced(self.function, args, kwargs, delivers=True)
        if inner.written or inner.shared:
            current().notes.append(f"{self.__name__} keeps what it computes: it writes into arguments or returns them")
            return calls.call(self.function, args, kwargs)
        inputs = [*outer, *inner.free]
        if self.every is not None:
            nodes = segmented(inner.graph, self.every).inline(inputs)
        elif all(node.aval.static for node in (*inputs, *inner.graph.outs)):
            nodes = emit_many("checkpoint", *inputs, graph=inner.graph)
        else:
            nodes = inner.graph.inline(inputs)
        return inner.value(nodes)


def _traced(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], delivers: bool = False
) -> tuple[Inner, list[Node]]:
    """A function traced on stand-ins for all arrays and numbers that are traced; and these."""
    leaves, structure = flatten((args, kwargs))
    need_entries(leaves, "a function that is traced by itself")
    leaves = [entered(leaf) for leaf in leaves]
    outer = [node_of(leaf) for leaf in leaves if isinstance(leaf, Tracer)]
    stand_ins = [StandIn.of(leaf) if isinstance(leaf, Tracer) else None for leaf in leaves]
    args, kwargs = unflatten(structure, leaves)
    return trace_inner(function, args, kwargs, stand_ins, exact=True, delivers=delivers), outer


def custom_vjp(function: Callable[..., Any]) -> CustomVjp:
    """``function`` with a derivative that you give by its method ``defvjp``. A decorator.

    ``forward(*args)`` returns the result of ``function(*args)`` and a nest of residuals; ``backward(residuals, g)``
    takes the cotangent ``g`` of the result, a nest like it, and returns one entry for every argument: its cotangent, or
    None where there is none. All three are plain NumPy. Forward mode is made from ``backward``, which is linear in
    ``g``; :func:`vmap` maps all three.

    >>> import numpy as np, futurex as fx
    >>> @fx.custom_vjp
    ... def clipped(x):
    ...     return np.clip(x, 0.0, 1.0)
    >>> clipped.defvjp(lambda x: (clipped(x), None), lambda residuals, g: (g,))  # straight through
    >>> float(fx.grad(clipped)(np.float64(7.0)))
    1.0
    """
    return CustomVjp(function)


class _Making(threading.local):
    """The functions whose nodes this thread is making: forward may call the function itself."""

    def __init__(self) -> None:
        self.functions: list[CustomVjp] = []


_making = _Making()


class CustomVjp(_Region):
    """A function with a derivative of its own; see :func:`custom_vjp`."""

    kind = "custom_vjp"

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.__name__ = self.__qualname__ = getattr(function, "__name__", "function")
        self.__doc__ = function.__doc__
        self._rule: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Set the derivative: ``forward(*args) -> (result, residuals)``, ``backward(residuals, g) -> cotangents``."""
        self._rule = forward, backward

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._rule is None:
            raise TypeError(f"custom_vjp: {self.__name__} has no derivative yet; give it by {self.__name__}.defvjp")
        if kwargs:
            raise TypeError(f"custom_vjp: {self.__name__} takes positional arguments only")
        if self in _making.functions:
            return calls.call(self.function, args, kwargs)  # by its own rule: the node that is being made
        value, outer = _traced(self.function, args, {})
        if value.written:
            raise Escape(f"a write of {self.__name__} into its argument", "a function with its own derivative is pure")
        _making.functions.append(self)
        try:
            # numbers known while tracing, integers and flags have no derivative to ask the rule for
            nodes = self._node(value, args, outer) if value.floats else value.graph.inline([*outer, *value.free])
        finally:
            _making.functions.pop()
        result = value.value(nodes)
        leaves = flatten(result)[0]
        for other, position in value.shared:
            for cell in (leaves[position]._cell, *([] if other is None else [other])):
                cell.entangle(f"may be the same as a result of {self.__name__}")
        return result

    def _node(self, value: Inner, args: tuple[Any, ...], outer: list[Node]) -> list[Node]:
        assert self._rule is not None
        forward, _ = _traced(self._rule[0], args, {})
        kept = self._residuals(value, forward)
        backward = self._traced_backward(value, kept)
        for inner in (forward, backward):
            if len(inner.graph.outs) > inner.n_outs:
                raise Escape(
                    f"a print, check or random number in the derivative of {self.__name__}",
                    "how often the derivative runs is not said",
                )
        cots, wrt = self._cotangents(backward, args, outer)
        free = list(dict.fromkeys([*value.free, *forward.free, *backward.free]))
        n_seeds = len(value.floats)
        n_kept = len(backward.graph.params) - len(backward.free) - n_seeds
        residuals, seeds = backward.graph.params[:n_kept], backward.graph.params[n_kept : n_kept + n_seeds]
        from_outside = backward.graph.params[n_kept + n_seeds :]
        return emit_many(
            "custom_vjp", *outer, *free, wrt=wrt,
            graph=_closed(value, value.graph.outs, outer, free, []),
            forward=_closed(forward, forward.outs, outer, free, backward.free),
            backward=Graph([*residuals, *from_outside, *seeds], cots, f"{self.__name__}_backward"),
        )  # fmt: skip

    def _residuals(self, value: Inner, forward: Inner) -> _Residuals:
        """What ``forward`` keeps. Raises TypeError where it does not return ``(result, residuals)``."""
        pair = forward.structure.children if forward.structure.kind is tuple else ()
        n = value.structure.n_leaves
        result = forward.leaves[:n]
        same = len(pair) == 2 and pair[0] == value.structure
        if not same or [leaf is VALUE for leaf in result] != [leaf is VALUE for leaf in value.leaves]:
            raise TypeError(f"forward of {self.__name__} must return (what {self.__name__} returns, residuals)")
        for mine, theirs in zip(value.outs, forward.outs, strict=False):
            if mine.aval != theirs.aval:
                raise TypeError(f"forward of {self.__name__} returns {theirs.aval!r}, {self.__name__} {mine.aval!r}")
        return _Residuals(pair[1], forward.leaves[n:], [node.aval for node in forward.outs[value.n_outs :]])

    def _traced_backward(self, value: Inner, kept: _Residuals) -> Inner:
        assert self._rule is not None
        avals = iter(kept.avals)
        types = [next(avals) if leaf is VALUE else None for leaf in kept.leaves]
        types += [None if aval is None else plain(aval) for aval in value.moving]
        residuals = unflatten(kept.structure, kept.leaves)
        g = unflatten(value.structure, [_constant_cotangent(leaf) for leaf in value.leaves])
        stand_ins = [  # how what was kept lies in memory is not known
            None if aval is None else StandIn(aval, aval.ndim > 0, c_strides(aval) if aval.ndim < 2 else None)
            for aval in types
        ]
        return trace_inner(self._rule[1], (residuals, g), {}, stand_ins)

    def _cotangents(
        self, backward: Inner, args: tuple[Any, ...], outer: list[Node]
    ) -> tuple[list[Node], tuple[int, ...]]:
        """One cotangent for every floating input, zeros where ``backward`` gives None; and which inputs these are."""
        entries = backward.structure.children if backward.structure.kind in (tuple, list) else ()
        if len(entries) != len(args):
            raise TypeError(f"backward of {self.__name__} must return a tuple of {len(args)}, one entry an argument")
        nodes, leaves = iter(backward.outs), iter(backward.leaves)
        given: list[Node | None] = []
        for number, (entry, arg) in enumerate(zip(entries, args, strict=True)):
            own, structure = flatten(arg)
            found = [next(nodes) if next(leaves) is VALUE else None for _ in range(entry.n_leaves)]
            if entry == structure:
                pairs = zip(own, found, strict=True)
            elif entry.kind is None and found == [None]:
                pairs = zip(own, [None] * len(own), strict=True)
            else:
                raise TypeError(
                    f"backward of {self.__name__} gives a cotangent of another structure than argument {number}: "
                    f"{', '.join(leaf_paths(structure))}"
                )
            given += [cot for leaf, cot in pairs if isinstance(entered(leaf), Tracer)]
        wrt = tuple(k for k, node in enumerate(outer) if node.aval.inexact)
        cots = [self._fitted(given[k], outer[k].aval) for k in wrt]
        return cots, wrt

    def _fitted(self, cotangent: Node | None, aval: Aval) -> Node:
        if cotangent is None:
            return zeros_like(plain(aval))
        if cotangent.shape != aval.shape:
            raise ValueError(
                f"backward of {self.__name__} gives a cotangent of shape {cotangent.shape} for an argument of shape "
                f"{aval.shape}"
            )
        return fitted(cotangent, aval)


def _constant_cotangent(leaf: Any) -> Any:
    """What stands in the cotangent for a leaf of the result that is known while tracing: zero of a float, else None."""
    if isinstance(leaf, Tracer):
        return fresh(zeros_like(plain(leaf.aval))) if leaf.aval.inexact else None
    return type(leaf)(0) if isinstance(leaf, float | complex | np.inexact) else None


@dataclass(frozen=True)
class _Residuals:
    """A nest of residuals: its leaves with VALUE where a value stands, and the types of the values."""

    structure: Structure
    leaves: list[Any]
    avals: list[Aval]


def _closed(
    inner: Inner, outs: Sequence[Node], outer: Sequence[Node], free: Sequence[Node], also: Sequence[Node]
) -> Graph:
    """A traced function as a graph of all inputs of the node, the values ``also`` among its outputs."""
    params = [param(node.aval, "x") for node in (*outer, *free)]
    outside = dict(zip(free, params[len(outer) :], strict=True))
    given = [*params[: len(outer)], *(outside[node] for node in inner.free)]
    results = Graph(inner.graph.params, outs).inline(given)
    return Graph(params, [*results, *(outside[node] for node in also)], inner.graph.name)
