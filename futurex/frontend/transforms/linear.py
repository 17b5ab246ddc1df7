"""``jvp``, ``vjp`` and ``linearize``: derivatives as linear maps, applied at once or kept as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from futurex.autodiff import jvp as push
from futurex.autodiff import pullback as pull
from futurex.autodiff.partial import split
from futurex.frontend.errors import Escape
from futurex.frontend.lists import need_entries
from futurex.frontend.trace import tracing
from futurex.frontend.tracer import Tracer, fresh, node_of
from futurex.frontend.transforms.inner import (
    StandIn,
    Transform,
    float_leaves,
    made,
    matching,
    placed,
    staged,
    trace_inner,
)
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.pytree import Structure, flatten


def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of ``function(*primals)`` and how it moves when its arguments move by ``tangents``.

    Forward mode: about the cost of two calls, whatever the number of arguments; nothing is kept on the way, and loops
    have no tape. ``primals`` and ``tangents`` are sequences of arguments (nests of floating arrays) of equal structure
    and shapes. The tangent has the structure of the value, with None for what is not floating.

    Raises TypeError or ValueError naming the argument or tangent that does not fit.

    >>> import numpy as np, futurex as fx
    >>> value, moved = fx.jvp(np.sin, (np.float64(0.0),), (np.float64(2.0),))
    >>> float(value), float(moved)
    (0.0, 2.0)
    """
    for name, values in (("primals", primals), ("tangents", tangents)):
        if not isinstance(values, tuple | list):
            raise TypeError(f"jvp: {name} must be a tuple or list, one entry an argument, not {type(values).__name__}")
    return made(_Forward, function)(tuple(primals), tuple(tangents))


def vjp(function: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The value of ``function(*args)`` and its pullback, from cotangents of the value to those of the arguments.

    Reverse mode: ``pullback(cotangent)`` takes a nest like the value (what stands for parts that are not floating does
    not matter) and returns a tuple, one entry an argument, with None for leaves that are not floating. It may be called
    any number of times. What the forward pass computed is kept for it; loops are run again.

    Complex cotangents pair with tangents as the real part of ``sum(cotangent * tangent)``, without conjugation.

    >>> import numpy as np, futurex as fx
    >>> value, pullback = fx.vjp(np.multiply, np.float64(3.0), np.float64(4.0))
    >>> float(value), [float(c) for c in pullback(1.0)]
    (12.0, [4.0, 3.0])
    """
    return _mapped(_Backward, function, args)


def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of ``function(*primals)`` and its derivative there, a linear function of tangents.

    ``moved = linear(*tangents)`` equals the second result of :func:`jvp` and does not compute the value again.

    >>> import numpy as np, futurex as fx
    >>> value, linear = fx.linearize(np.square, np.float64(3.0))
    >>> float(value), float(linear(1.0)), float(linear(0.5))
    (9.0, 6.0, 3.0)
    """
    return _mapped(_Linear, function, primals)


def _mapped(kind: type[_Linear], function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    value, residuals, late = made(kind if tracing() else kind.alone, function)(*args)
    return value, _Applied(late, residuals)


class _Forward(Transform):
    kind = "jvp"

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        primals, tangents = args
        leaves = [leaf for k, arg in enumerate(primals) for leaf in float_leaves(arg, f"argument {k}")]
        outer = list(map(node_of, leaves))
        structure = flatten(primals)[1]
        moved = matching(tangents, structure, [node.aval for node in outer], "tangents", "the arguments")
        inner = trace_inner(self.function, primals, {}, list(map(StandIn.of, leaves)), delivers=True)
        derived = push(inner.graph, range(len(outer)), inner.floats)
        nodes = derived.inline([*outer, *inner.free, *moved])
        return inner.value(nodes), placed(inner.structure, inner.moving, nodes[len(inner.graph.outs) :])


@dataclass(frozen=True)
class _Nest:
    """The structure of an argument or result of a linear map; leaves that are not floating have no type."""

    structure: Structure
    avals: tuple[Aval | None, ...]
    name: str


class _Late(Transform):
    """The part of a linear map that waits for its argument; in staged code it makes nodes."""

    def __init__(self, kind: str, graph: Graph, source: _Nest, target: _Nest, what: str) -> None:
        super().__init__(lambda: None)
        self.kind = self.__name__ = self.__qualname__ = kind
        self.graph, self.source, self.target, self.what = graph, source, target, what
        self.compiled = staged(self)

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        residuals, argument = args
        nodes = matching(argument, self.source.structure, self.source.avals, self.what, self.source.name)
        outs = self.graph.inline([*map(node_of, residuals), *nodes])
        return placed(self.target.structure, self.target.avals, outs)


class _Applied:
    """A linear map with its residuals: a function of tangents or of a cotangent."""

    def __init__(self, late: _Late, residuals: list[Any]) -> None:
        self._late, self._residuals = late, residuals
        self.__name__ = late.kind

    def __call__(self, *args: Any) -> Any:
        if self._late.kind == "pullback" and len(args) != 1:
            raise TypeError(f"a pullback takes one argument, the cotangent of the value; it was given {len(args)}")
        return self._late.compiled(self._residuals, args[0] if self._late.kind == "pullback" else args)

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self(*args, **kwargs)


class _Linear(Transform):
    """Value, residuals and tangent map at a point."""

    kind = "linearize"
    alone: type[_Linear]
    sized = False  # is the map applied outside of this trace, so that all sizes must be known in it

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = [leaf for k, arg in enumerate(args) for leaf in float_leaves(arg, f"argument {k}")]
        return self._split(args, leaves, list(map(StandIn.of, leaves)))

    def _split(self, args: tuple[Any, ...], leaves: list[Tracer], stand_ins: list[StandIn | None]) -> Any:
        outer = list(map(node_of, leaves))
        if self.sized and not all(node.aval.static for node in outer):
            raise Escape(f"{self.kind} for many sizes at once", "the map that it gives is for one size")
        inner = trace_inner(self.function, args, {}, stand_ins, copies=True, delivers=True)
        derived = self._derived(inner.graph, range(len(outer)), inner.floats)
        n_outs, n_before = len(inner.graph.outs), len(outer) + len(inner.free)
        whole = Graph(derived.params, [*inner.graph.outs, *derived.outs], derived.name)
        halves = split(whole, range(n_before, len(whole.params)), n_outs)
        nodes = halves.early.inline([*outer, *inner.free])
        avals = iter([node.aval for node in outer])
        of_args = _Nest(
            flatten(args)[1], tuple(None if each is None else next(avals) for each in stand_ins), "the arguments"
        )
        late = self._late(halves.late, of_args, _Nest(inner.structure, tuple(inner.moving), "the value"))
        return inner.value(nodes), [fresh(node) for node in nodes[n_outs:]], late

    @staticmethod
    def _derived(graph: Graph, wrt: Sequence[int], of: Sequence[int]) -> Graph:
        moved = push(graph, wrt, of)
        return Graph(moved.params, moved.outs[len(graph.outs) :], moved.name)

    @staticmethod
    def _late(graph: Graph, of_args: _Nest, of_value: _Nest) -> _Late:
        return _Late("linear", graph, of_args, of_value, "tangents")


class _Backward(_Linear):
    """Value, residuals and pullback at a point."""

    kind = "vjp"

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = flatten(args)[0]
        need_entries(leaves, "vjp")
        floats = [leaf if isinstance(leaf, Tracer) and leaf.dtype.kind in "fc" else None for leaf in leaves]
        stand_ins = [None if leaf is None else StandIn.of(leaf) for leaf in floats]
        return self._split(args, [leaf for leaf in floats if leaf is not None], stand_ins)

    @staticmethod
    def _derived(graph: Graph, wrt: Sequence[int], of: Sequence[int]) -> Graph:
        return pull(graph, wrt, of)

    @staticmethod
    def _late(graph: Graph, of_args: _Nest, of_value: _Nest) -> _Late:
        return _Late("pullback", graph, of_value, of_args, "cotangent")


class _LinearAlone(_Linear):
    sized = True


class _BackwardAlone(_Backward):
    sized = True


_Linear.alone, _Backward.alone = _LinearAlone, _BackwardAlone
