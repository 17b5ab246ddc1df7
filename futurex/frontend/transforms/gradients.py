"""``grad`` and ``value_and_grad`` of functions: trace, transform the graph, run it as any other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.autodiff import reverse
from futurex.frontend.calls import SPECIAL
from futurex.frontend.staging import Futurized
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, entered, fresh, new_array, node_of
from futurex.frontend.transforms.inner import VALUE, Inner, StandIn, Transform, float_leaves, made, trace_inner
from futurex.tree.node import Node
from futurex.tree.pytree import flatten, unflatten


class Selected:
    """The arguments that a function is differentiated by, and how its derivatives are put together."""

    def __init__(self, argnums: int | Sequence[int]) -> None:
        self.numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self.single = isinstance(argnums, int)

    def stand_ins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Node], list[StandIn | None]]:
        """The selected leaves, and for each leaf of the call what stands for it while the function is traced."""
        for number in self.numbers:
            if not 0 <= number < len(args):
                raise TypeError(
                    f"argnums={number}, but the function was called with {len(args)} positional arguments, which are "
                    "counted from 0"
                )
        outer: list[Node] = []
        stand_ins: list[StandIn | None] = []
        for number, arg in enumerate(args):
            if number not in self.numbers:
                stand_ins += [None] * len(flatten(arg)[0])
                continue
            leaves = float_leaves(arg, f"argument {number}")
            outer += map(node_of, leaves)
            stand_ins += map(StandIn.of, leaves)
        return outer, [*stand_ins, *(None for _ in flatten(kwargs)[0])]

    def assembled(self, args: tuple[Any, ...], values: Sequence[Any]) -> Any:
        """Values, one for each selected leaf, in the structure of the arguments."""
        remaining = iter(values)
        parts = {}
        for number in sorted(set(self.numbers)):
            leaves, structure = flatten(args[number])
            parts[number] = current().remember_all(unflatten(structure, [next(remaining) for _ in leaves]))
        return parts[self.numbers[0]] if self.single else tuple(parts[number] for number in self.numbers)


class _Gradient(Transform):
    """A function's value and gradients as a staged function."""

    def __init__(
        self, function: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool, with_value: bool,
        holomorphic: bool,
    ) -> None:  # fmt: skip
        self.kind = "value_and_grad" if with_value else "grad"
        super().__init__(function)
        self.selected = Selected(argnums)
        self.has_aux = has_aux
        self.with_value = with_value
        self.holomorphic = holomorphic

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer, stand_ins = self.selected.stand_ins(args, kwargs)
        if self.holomorphic and not all(node.dtype.kind == "c" for node in outer):
            raise TypeError("grad of a holomorphic function is taken with respect to complex arguments")
        inner = trace_inner(self.function, args, kwargs, stand_ins, copies=True, delivers=True)
        self._check_result(inner)
        derived = reverse.value_and_grad(inner.graph, range(len(outer)), holomorphic=self.holomorphic)
        nodes = derived.inline([*outer, *inner.free])
        n = len(inner.graph.outs)
        value = inner.value(nodes)
        gradient = self.selected.assembled(args, [fresh(node) for node in nodes[n:]])
        if not self.with_value:
            return (gradient, value[1]) if self.has_aux else gradient
        return value, gradient

    def _check_result(self, inner: Inner) -> None:
        """Raises TypeError where the function does not return one value, or a pair of it and something else."""
        result = inner.structure
        if self.has_aux:
            if result.kind is None or not issubclass(result.kind, tuple) or len(result.children) != 2:
                raise TypeError("has_aux=True needs a function that returns (value, aux)")
            result = result.children[0]
        if result.kind is None and inner.leaves[0] is VALUE:
            return
        scalar, name = "complex scalar" if self.holomorphic else "real scalar", inner.graph.name
        if result.kind is None and inner.leaves[0] is None:
            returned, remedy = "None", "Does a `return` lack?"
        else:
            returned = f"a {(result.kind or type(inner.leaves[0])).__name__}"
            remedy = "Return one number; with has_aux=True something else may stand beside it"
        raise TypeError(f"grad needs a function that returns a {scalar}; {name} returns {returned}. {remedy}")


def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Futurized[Any, Any]:
    """The gradient function: same arguments, returns d function / d argument(s) with the argument's structure.

    ``function`` returns a real scalar (with ``has_aux``: the pair of it and anything else, which is returned beside the
    gradient). Works through control flow, views and writes; may be nested. The function works on copies of its
    arguments; its prints and checks run once, in order.

    For a complex argument ``z = x + iy`` the gradient is ``df/dx - i df/dy``, so that the change of ``f`` is the real
    part of ``sum(gradient * dz)``; the direction of steepest ascent is its conjugate. With ``holomorphic`` the function
    returns a complex scalar that is an analytic function of complex arguments, and the result is its complex
    derivative.

    Raises TypeError for arguments that are not floating or complex, and for results that are not real scalars.

    >>> import numpy as np, futurex as fx
    >>> fx.grad(lambda x: (x ** 3).sum())(np.array([1.0, 2.0])).result()
    array([ 3., 12.])
    """
    return made(_Gradient, function, hashable(argnums), has_aux, False, holomorphic)


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Futurized[Any, Any]:
    """Like :func:`grad`, and returns ``(value, gradient)`` from one tree.

    >>> import numpy as np, futurex as fx
    >>> value, g = fx.value_and_grad(lambda x: (x * x).sum())(np.array([3.0]))
    >>> float(value), float(g[0])
    (9.0, 6.0)
    """
    return made(_Gradient, function, hashable(argnums), has_aux, True, holomorphic)


def hashable(argnums: int | Sequence[int]) -> int | tuple[int, ...]:
    """``argnums`` as Python's ints. Raises TypeError for what is neither an integer nor some."""
    try:
        return tuple(map(operator.index, argnums)) if isinstance(argnums, Iterable) else operator.index(argnums)
    except TypeError:
        raise TypeError(f"argnums={argnums!r} is neither the number of an argument nor a tuple of numbers") from None


def stop_gradient(x: Any) -> Any:
    """``x`` as a constant to every derivative: a copy of an array, or a nest with copies of the arrays in it.

    >>> import numpy as np, futurex as fx
    >>> float(fx.grad(lambda x: x * fx.stop_gradient(x))(np.float64(3.0)))
    3.0
    """
    leaves, structure = flatten(x)
    return unflatten(structure, [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def _stopped(x: Any) -> Any:
    leaves, structure = flatten(x)
    return current().remember_all(unflatten(structure, [_constant(entered(leaf)) for leaf in leaves]))


def _constant(leaf: Any) -> Any:
    if not isinstance(leaf, Tracer):
        return leaf
    node = emit("stop_gradient", leaf._node)
    return fresh(node) if leaf.is_scalar else new_array(node)


SPECIAL[stop_gradient] = _stopped
