"""Operations whose results have shapes that only the run knows: ``nonzero``, ``arange``, ``repeat``, ``unique``.

Reading ``x[mask]`` is ``gather(x, *nonzero(mask))``: everything that depends on the mask has one dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.counted import unique_of_few, unique_of_rows
from futurex.ops.elementwise import unbroadcast
from futurex.tree.aval import Aval
from futurex.tree.dims import Fresh, is_static
from futurex.tree.node import Node, apply, item
from futurex.tree.record import Cost, Sample, op

INT = np.dtype(np.intp)


def check_mask(shape: tuple[Any, ...], extents: tuple[Any, ...], first: int = 0) -> None:
    """Raises NumPy's IndexError where a mask cannot stand for the axes from ``first`` on, which have these extents.

    An axis of nothing fits any other."""
    for axis, (own, extent) in enumerate(zip(shape, extents, strict=True), first):
        if is_static((own, extent)) and own not in (0, extent):
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis}; size of axis is {extent} "
                f"but size of corresponding boolean axis is {own}"
            )


def _nonzero(mask: Any, extents: tuple[int, ...] | None, first: int = 0) -> tuple[Any, ...]:
    """Positions of true elements; ``extents``: what the mask selects from, which it must fit as NumPy wants it."""
    if extents is not None:
        check_mask(np.shape(mask), extents, first)
    return np.nonzero(mask)


def _nonzero_aval(mask: Aval, extents: tuple[Any, ...] | None, first: int = 0) -> tuple[Aval, ...]:
    return tuple(Aval((Fresh(0),), INT) for _ in range(mask.ndim))


op(
    "nonzero", _nonzero, aval=_nonzero_aval,
    cost=lambda mask, **_: Cost(2.0 * mask.size, 2.0 * mask.nbytes),
    samples=lambda rng: [
        Sample((rng.random((3, 4)) < 0.5,), {"extents": None}, order=0),
        Sample((np.zeros(3, bool),), {"extents": (3,)}, order=0),
        Sample((np.zeros(0, bool),), {"extents": (3,), "first": 1}, order=0),
        Sample((rng.integers(0, 2, 5),), {"extents": None}, order=0),
    ],
)  # fmt: skip


def _sum_to(g: Any, shape: tuple[int, ...]) -> Any:
    """The adjoint of broadcasting from ``shape``."""
    extra = g.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        axis + extra for axis, extent in enumerate(shape) if extent == 1 and g.shape[axis + extra] != 1
    )
    result = np.sum(g, axis=axes) if axes else g
    return np.reshape(result, shape)


def _sum_to_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((3, 4), (3, 1), (4,), (1, 1), ()):
        yield Sample((rng.normal(size=(3, 4)),), {"shape": shape})


op(
    "sum_to", _sum_to, aval=lambda g, shape: Aval(shape, np.dtype(np.sum(np.ones(1, g.dtype)).dtype)),
    vjp=lambda ct, out, g, shape: (apply("broadcast_to", ct, shape=g.shape),), samples=_sum_to_samples, view=0,
)  # fmt: skip


def _arange(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    return np.arange(start, stop, step, dtype=dtype)


def _arange_aval(start: Aval, stop: Aval, step: Aval, dtype: Any) -> Aval:
    ones: list[Any] = [np.ones((), aval.dtype)[()] for aval in (start, stop, step)]
    values = [one.item() if aval.weak else one for one, aval in zip(ones, (start, stop, step), strict=True)]
    return Aval((Fresh(0),), _arange(values[0], values[1], values[2], dtype).dtype)


op(
    "arange", _arange, aval=_arange_aval,
    samples=lambda rng: [
        Sample((np.int64(0), np.int64(4), 1), {"dtype": None}, order=0),
        Sample((1, np.float64(2.5), 0.5), {"dtype": None}, order=0),
        Sample((np.int64(3), np.int64(0), 1), {"dtype": np.dtype("float32")}, order=0),
    ],
)  # fmt: skip


def _repeat_aval(x: Aval, counts: Aval, axis: int) -> Aval:
    if counts.dtype.kind not in "biu":
        np.repeat(np.zeros(1), np.zeros(1, counts.dtype))  # raises NumPy's error
    return Aval((*x.shape[:axis], Fresh(axis), *x.shape[axis + 1 :]), x.dtype)


def _repeat_rule(g: Node, out: Node, x: Node, counts: Node, axis: int) -> tuple[Node, None]:
    """Elements are read at the repeated positions; their gradients are added there."""
    places = apply("iota", shape=(x.shape[axis],), axis=0, dtype=INT)
    index = apply("repeat", places, counts, axis=0)
    whole = ("s", None, None, None)
    pattern = (*(whole for _ in range(axis)), ("d", 0), *(whole for _ in range(axis + 1, x.ndim)))
    zeros = apply("full", np.zeros((), x.dtype)[()], shape=x.shape, dtype=x.dtype)
    return apply("scatter", zeros, g, index, pattern=pattern, mode="add"), None


op(
    "repeat", lambda x, counts, axis: np.repeat(x, counts, axis), aval=_repeat_aval, vjp=_repeat_rule,
    samples=lambda rng: [
        Sample((rng.normal(size=(3, 2)), np.array([2, 0, 1])), {"axis": 0}),
        Sample((rng.normal(size=(2, 3)), np.int64(2)), {"axis": 1}),
    ],
)  # fmt: skip


def _unique(x: Any, extras: tuple[str, ...], axis: int | None, equal_nan: bool) -> Any:
    whole = axis is None or x.ndim == 1
    few = unique_of_few(x, extras) if whole else unique_of_rows(x, extras) if axis == 0 else None
    if few is not None:
        return few
    options: dict[str, Any] = {f"return_{name}": True for name in extras}
    found: Any = np.unique(x, axis=axis, equal_nan=equal_nan, **options)
    return found if isinstance(found, tuple) else (found,)


def _unique_aval(x: Aval, extras: tuple[str, ...], axis: int | None, equal_nan: bool) -> tuple[Aval, ...]:
    values = (Fresh(0),) if axis is None else (*x.shape[:axis], Fresh(0), *x.shape[axis + 1 :])
    inverse = x.shape if axis is None else (x.shape[axis],)
    shapes = {"index": (Fresh(0),), "inverse": inverse, "counts": (Fresh(0),)}
    return (Aval(values, x.dtype), *(Aval(shapes[name], INT) for name in extras))


op(
    "unique", _unique, aval=_unique_aval,
    cost=lambda x, **_: Cost(40.0 * x.size, 4.0 * x.nbytes),
    samples=lambda rng: [
        Sample((rng.integers(0, 3, 7),), {"extras": (), "axis": None, "equal_nan": True}, order=0),
        Sample((rng.integers(0, 3, (4, 2)),),
               {"extras": ("index", "inverse", "counts"), "axis": None, "equal_nan": True}, order=0),
        Sample((rng.integers(0, 2, (6, 2)),),
               {"extras": ("inverse",), "axis": 0, "equal_nan": True}, order=0),
    ],
)  # fmt: skip


def _masked_store(x: Any, mask: Any, value: Any) -> Any:
    out = np.array(x)
    out[mask] = value
    return out


def _masked_store_aval(x: Aval, mask: Aval, value: Aval) -> Aval:
    return x


def _masked_store_rule(g: Node, out: Node, x: Node, mask: Node, value: Node) -> tuple[Node, None, Node]:
    rest = g.ndim - mask.ndim
    test = apply("reshape", mask, shape=(*mask.shape, *(1,) * rest)) if rest else mask
    places = apply("nonzero", mask, extents=None)
    pattern = tuple(("d", k) for k in range(mask.ndim)) + (("s", None, None, None),) * rest
    read = apply("gather", g, *(item(places, k) for k in range(mask.ndim)), pattern=pattern)
    into_value = unbroadcast(read, value.aval) if value.ndim <= read.ndim else apply("reshape", read, shape=value.shape)
    return apply("where", test, 0.0, g), None, into_value


op(
    "masked_store", _masked_store, aval=_masked_store_aval, vjp=_masked_store_rule, inplace=(0,), fails=True,
    batch=batching.masked_store,
    samples=lambda rng: [
        Sample((rng.normal(size=(2, 3)), np.array([[True, False, True], [False, True, False]]), rng.normal(size=3))),
        Sample((rng.normal(size=(3, 2)), np.array([True, False, True]), rng.normal(size=(2, 2)))),
        Sample((rng.normal(size=(3, 2)), np.array([True, False, True]), rng.normal(size=2))),
    ],
)  # fmt: skip
