"""``jacobian`` and ``hessian``: all partial derivatives, by mapping a derivative over the unit directions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.autodiff import jvp as push
from futurex.autodiff import pullback as pull
from futurex.autodiff.batch import vmap as batch
from futurex.autodiff.silence import silent
from futurex.frontend.errors import Escape
from futurex.frontend.staging import Futurized
from futurex.frontend.trace import current
from futurex.frontend.tracer import fresh
from futurex.frontend.transforms.gradients import Selected, hashable
from futurex.frontend.transforms.inner import Inner, Transform, made, trace_inner
from futurex.ops.batching import WHOLE, NotBatchable
from futurex.ops.tapes import plain
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply
from futurex.tree.pytree import unflatten

MOST_DIRECTIONS = 256
MODES = ("forward", "reverse")


def jacobian(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, mode: str | None = None, holomorphic: bool = False
) -> Futurized[Any, Any]:
    """The function that gives all partial derivatives: arrays of shape ``result.shape + argument.shape``.

    They come in the structure of the result, and within that in the structure of the argument(s); None stands for what
    is not floating. ``mode="forward"`` costs one run per element of the arguments (``jacfwd`` elsewhere),
    ``mode="reverse"`` one per element of the result (``jacrev``); by default the smaller number is taken. The runs are
    one run with one more axis, as in :func:`vmap`.

    ``holomorphic`` is for complex arguments of analytic functions, and gives complex derivatives. Raises TypeError for
    complex arguments without it, and for arguments that are not floating.

    >>> import numpy as np, futurex as fx
    >>> fx.jacobian(lambda x: x ** 2)(np.array([1.0, 2.0])).result()
    array([[2., 0.],
           [0., 4.]])
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode={mode!r} is not one of {', '.join(map(repr, MODES))}")
    return made(_Jacobian, function, hashable(argnums), mode, holomorphic)


def hessian(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Futurized[Any, Any]:
    """The function that gives all second derivatives: shape ``result.shape + argument.shape + argument.shape``.

    Forward mode over reverse mode. With several arguments they come in the structure of the arguments twice.

    >>> import numpy as np, futurex as fx
    >>> fx.hessian(lambda x: x[0] ** 2 * x[1])(np.array([3.0, 5.0])).result()
    array([[10.,  6.],
           [ 6.,  0.]])
    """
    return made(_Hessian, function, hashable(argnums))


class _Jacobian(Transform):
    kind = "jacobian"

    def __init__(
        self, function: Callable[..., Any], argnums: int | Sequence[int], mode: str | None, holomorphic: bool
    ) -> None:
        super().__init__(function)
        self.selected, self.mode, self.holomorphic = Selected(argnums), mode, holomorphic

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer, stand_ins = self.selected.stand_ins(args, kwargs)
        if not self.holomorphic and any(node.dtype.kind == "c" for node in outer):
            raise TypeError("the jacobian of complex arguments is defined for analytic functions: holomorphic=True")
        inner = trace_inner(self.function, args, kwargs, stand_ins, copies=True, delivers=True)
        outs = [inner.outs[k] for k in inner.floats]
        if not all(node.aval.static for node in (*outer, *outs)):
            raise Escape("a jacobian of arrays whose size is not known before the run", "its size must be")
        n_in, n_out = (sum(node.size for node in nodes) for nodes in (outer, outs))
        forward = self.mode == "forward" or (self.mode is None and n_in <= n_out)
        if any(node.dtype.kind == "c" for node in outs) and not self.holomorphic:
            if self.mode == "reverse":
                raise TypeError("complex results of real arguments have derivatives in forward mode only")
            forward = True
        blocks = (_forward if forward else _reverse)(inner, outer, outs)
        inner.value(inner.graph.inline([*outer, *inner.free]))
        rows = iter(blocks)
        leaves = [
            None if aval is None else self.selected.assembled(args, list(map(fresh, next(rows))))
            for aval in inner.moving
        ]
        return current().remember_all(unflatten(inner.structure, leaves))


def _units(nodes: Sequence[Node]) -> list[Node]:
    """Unit directions in the space of all elements of some values: for each value its part of every direction."""
    total = sum(node.size for node in nodes)
    starts = itertools.accumulate((node.size for node in nodes), initial=0)
    units = []
    for node, start in zip(nodes, starts, strict=False):
        row, column = (
            apply("iota", shape=(total, node.size), axis=axis, dtype=np.dtype(np.int64)) for axis in (0, 1)
        )
        unit = apply("cast", apply("equal", row, column + start), dtype=plain(node.aval).dtype)
        units.append(apply("reshape", unit, shape=(total, *node.shape)))
    return units


def _mapped(graph: Graph, inner: Inner, outer: Sequence[Node], units: Sequence[Node]) -> list[Node]:
    """A derivative along every unit direction; the directions are the last inputs of the graph."""
    given, graph = [*outer, *inner.free], silent(graph)
    notes: list[str] = []
    flags = [*(False for _ in given), *(True for _ in units)]
    try:
        mapped, _ = batch(graph, units[0].shape[0], flags, range(len(graph.outs)), notes)
    except NotBatchable as error:
        return _one_by_one(graph, given, units, error)
    current().notes.extend(dict.fromkeys(notes))
    return mapped.inline([*given, *units])


def _one_by_one(graph: Graph, given: Sequence[Node], units: Sequence[Node], error: NotBatchable) -> list[Node]:
    """Every direction by itself, where arrays have sizes that only the run knows."""
    count = units[0].shape[0]
    if count > MOST_DIRECTIONS:
        raise Escape(str(error), f"{count} directions, one by one, make too large a tree") from error
    current().notes.append(f"a jacobian takes {count} directions one by one: {error}")
    columns = []
    for k in range(count):
        steps = (("index", (("i", k),)),)
        columns.append(graph.inline([*given, *(apply("load", unit, chain=steps) for unit in units)]))
    rows = [[apply("reshape", out, shape=(1, *out.shape)) for out in outs] for outs in zip(*columns, strict=True)]
    return [apply("concatenate", *parts, axis=0) for parts in rows]


def _parts(x: Node, nodes: Sequence[Node]) -> list[Node]:
    """The rows that belong to each of the values whose directions were taken."""
    starts = list(itertools.accumulate((node.size for node in nodes), initial=0))
    return [
        apply("load", x, chain=(("index", (("s", low, high, None), *(WHOLE,) * (x.ndim - 1))),))
        for low, high in itertools.pairwise(starts)
    ]


def _forward(inner: Inner, outer: Sequence[Node], outs: Sequence[Node]) -> list[list[Node]]:
    if not outer or not outs:
        return [[] for _ in outs]
    pushed = push(inner.graph, range(len(outer)), inner.floats)
    moved = _mapped(Graph(pushed.params, pushed.outs[len(inner.graph.outs) :]), inner, outer, _units(outer))
    return [
        [
            apply("reshape", apply("transpose", part, axes=(*range(1, part.ndim), 0)), shape=(*out.shape, *node.shape))
            for node, part in zip(outer, _parts(whole, outer), strict=True)
        ]
        for out, whole in zip(outs, moved, strict=True)
    ]


def _reverse(inner: Inner, outer: Sequence[Node], outs: Sequence[Node]) -> list[list[Node]]:
    if not outer or not outs:
        return [[] for _ in outs]
    cots = _mapped(pull(inner.graph, range(len(outer)), inner.floats), inner, outer, _units(outs))
    columns = [_parts(cot, outs) for cot in cots]
    pairs = list(zip(outer, columns, strict=True))
    return [
        [apply("reshape", column[k], shape=(*out.shape, *node.shape)) for node, column in pairs]
        for k, out in enumerate(outs)
    ]


class _Hessian(Transform):
    kind = "hessian"

    def __init__(self, function: Callable[..., Any], argnums: int | Sequence[int]) -> None:
        super().__init__(function)
        first = _Jacobian(function, argnums, "reverse", False)
        self._second = _Jacobian(first, argnums, "forward", False)

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._second.__fx_stage__(args, kwargs)
