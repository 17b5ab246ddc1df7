"""Advanced indexing: ``gather`` and ``scatter`` with integer arrays, ``take_along_axis`` and its adjoint.

``pattern`` is a tuple of entries as in :mod:`futurex.ops.views`; ``("d", n)`` stands for the n-th index array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.elementwise import unbroadcast, where, zeros_like
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, Fresh, UnknownDimension, broadcast_shapes, nominal, slice_length
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op

Pattern = tuple[tuple[Any, ...], ...]


def fancy_index(pattern: Pattern, indices: Sequence[Any]) -> tuple[Any, ...]:
    """The NumPy index of an encoded pattern."""
    def bound(value: Any) -> Any:
        return int(indices[value[1]]) if isinstance(value, tuple) else value

    decode = {
        "s": lambda e: slice(*map(bound, e[1:])), "n": lambda e: None, "i": lambda e: e[1],
        "d": lambda e: indices[e[1]],
    }  # fmt: skip
    return tuple(decode[entry[0]](entry) for entry in pattern)


def _gather(x: Any, *indices: Any, pattern: Pattern) -> Any:
    return np.asarray(x)[fancy_index(pattern, indices)]


def _dummy_indices(indices: Sequence[Aval]) -> list[Any]:
    for index in indices:
        if index.dtype.kind not in "iu":
            raise IndexError(f"arrays used as indices must be of integer (or boolean) type, not {index.dtype}")
    return [np.broadcast_to(np.zeros((), index.dtype), nominal(index.shape, 1)) for index in indices]


def gather_aval(x: Aval, *indices: Aval, pattern: Pattern) -> Aval:
    """Shape and dtype of an indexing result. Raises IndexError as NumPy does."""
    if not x.static or not all(index.static for index in indices) or _slices_dynamically(pattern):
        return _open_gather_aval(x, indices, pattern)
    # An extent of zero cannot be indexed by the stand-in zeros; the shape of the result does not depend on it.
    advanced = _advanced_dims(pattern)
    shape = tuple(max(extent, 1) if k in advanced else extent for k, extent in enumerate(x.shape))
    result = np.broadcast_to(np.zeros((), x.dtype), shape)[fancy_index(pattern, _dummy_indices(indices))]
    return Aval(result.shape, x.dtype)


def _open_gather_aval(x: Aval, indices: Sequence[Aval], pattern: Pattern) -> Aval:
    """Where extents are unknown: indices broadcast with each other, and stand where NumPy puts them."""
    _dummy_indices(indices)
    chosen = broadcast_shapes(*(indices[entry[1]].shape for entry in pattern if entry[0] == "d"))
    places = [k for k, entry in enumerate(pattern) if entry[0] in "di"]
    together = places == list(range(places[0], places[-1] + 1))
    out: list[Any] = []
    at, position = 0, 0
    for k, entry in enumerate(pattern):
        if k == places[0]:
            at = len(out)
        if entry[0] == "n":
            out.append(1)
            continue
        if entry[0] == "s":
            extent = x.shape[position]
            known = all(isinstance(part, int | None) for part in (extent, *entry[1:]))
            length = None
            if known:
                length = len(range(*slice(*entry[1:]).indices(extent)))
            elif not any(isinstance(part, tuple) for part in entry[1:]):
                length = slice_length(extent, *entry[1:])
            out.append(Fresh(64 + k) if length is None else length)
        position += 1
    out += x.shape[position:]
    at = at if together else 0
    return Aval((*out[:at], *chosen, *out[at:]), x.dtype)


def _slices_dynamically(pattern: Pattern) -> bool:
    return any(isinstance(part, tuple | Dim) for entry in pattern if entry[0] == "s" for part in entry[1:])


def _advanced_dims(pattern: Pattern) -> set[int]:
    dims, position = set(), 0
    for entry in pattern:
        if entry[0] == "n":
            continue
        if entry[0] in "di":
            dims.add(position)
        position += 1
    return dims


def _gather_rule(g: Node, out: Node, x: Node, *indices: Node, pattern: Pattern) -> tuple[Any, ...]:
    into = apply("scatter", zeros_like(x.aval), g, *indices, pattern=pattern, mode="add")
    return (into, *(None for _ in indices))


def _gather_factors(x: Aval, *indices: Aval, pattern: Pattern) -> str:
    """One index array on axis 0 with full slices behind: rows are replicated, columns and the index pass through."""
    index_names = [f"p{k}" for k in range(indices[0].ndim)] if indices else []
    rest = pattern[1:]
    if len(indices) == 1 and pattern[0] == ("d", 0) and all(entry == ("s", None, None, None) for entry in rest):
        tail = [f"d{k}" for k in range(1, x.ndim)]
        return f"{' '.join(['!d0', *tail])}, {' '.join(index_names)} -> {' '.join(index_names + tail)}"
    parts = [" ".join(f"!x{n}_{k}" for k in range(aval.ndim)) for n, aval in enumerate((x, *indices))]
    out = gather_aval(x, *indices, pattern=pattern)
    return f"{', '.join(parts)} -> {' '.join(f'!o{k}' for k in range(out.ndim))}"


def _gather_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, rows = rng.normal(size=(4, 5)), np.array([0, 2, 2, -1])
    yield Sample((x, rows), {"pattern": (("d", 0), ("s", None, None, None))})
    yield Sample((x, rows, np.array([1, 1, 4, 0])), {"pattern": (("d", 0), ("d", 1))})
    yield Sample((x, rows.reshape(2, 2)), {"pattern": (("s", 1, None, None), ("d", 0))})
    yield Sample((x, np.zeros((0,), int)), {"pattern": (("d", 0),)})


op(
    "gather", _gather, aval=gather_aval, vjp=_gather_rule, batch=batching.gather, factors=_gather_factors, fails=True,
    samples=_gather_samples,
)  # fmt: skip


def _scatter(x: Any, value: Any, *indices: Any, pattern: Pattern, mode: str) -> Any:
    out = np.array(x)
    index = fancy_index(pattern, indices)
    if mode == "set":
        out[index] = value
    else:
        np.add.at(out, index, value)
    return out


def _scatter_aval(x: Aval, value: Aval, *indices: Aval, pattern: Pattern, mode: str) -> Aval:
    target = gather_aval(x, *indices, pattern=pattern)
    extra = max(0, value.ndim - target.ndim) if mode == "set" else 0
    own = value.shape[extra:] if all(n == 1 for n in value.shape[:extra]) else value.shape
    try:
        fits = broadcast_shapes(target.shape, own) == target.shape
    except UnknownDimension:
        return x  # the run tells
    if not fits and target.static and value.static:
        raise ValueError(
            f"shape mismatch: value array of shape {value.shape} could not be broadcast to indexing result "
            f"of shape {target.shape}"
        )
    return x


def _winners(g: Node, value_shape: tuple[int, ...], indices: Sequence[Node], pattern: Pattern) -> Node:
    """True where a written element survived: with repeated indices the last writer wins."""
    slots = apply("iota", shape=(_size(value_shape),), axis=0, dtype=np.dtype(np.int64))
    slots = apply("reshape", slots, shape=value_shape)
    board = apply("full", -1, shape=g.shape, dtype=np.dtype(np.int64))
    board = apply("scatter", board, slots, *indices, pattern=pattern, mode="set")
    return apply("equal", apply("gather", board, *indices, pattern=pattern), slots)


def _size(shape: tuple[Any, ...]) -> Any:
    return math.prod(shape)


def _scatter_rule(
    g: Node, out: Node, x: Node, value: Node, *indices: Node, pattern: Pattern, mode: str
) -> tuple[Any, ...]:
    read = apply("gather", g, *indices, pattern=pattern)
    if mode == "add":
        return (g, unbroadcast(read, value.aval), *(None for _ in indices))
    rest = apply("scatter", g, 0, *indices, pattern=pattern, mode="set")
    won = where(_winners(g, read.shape, indices, pattern), read, 0.0)
    return (rest, unbroadcast(won, value.aval), *(None for _ in indices))


def _scatter_factors(x: Aval, value: Aval, *indices: Aval, pattern: Pattern, mode: str) -> str:
    parts = [" ".join(f"!x{n}_{k}" for k in range(aval.ndim)) for n, aval in enumerate((x, value, *indices))]
    return f"{', '.join(parts)} -> {' '.join(f'!x0_{k}' for k in range(x.ndim))}"


def _scatter_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, rows = rng.normal(size=(4, 5)), np.array([0, 2, 2])
    for mode in ("set", "add"):
        yield Sample((x, rng.normal(size=(3, 5)), rows), {"pattern": (("d", 0),), "mode": mode})
        columns = np.array([1, 3, 3])
        yield Sample((x, rng.normal(size=(3,)), rows, columns), {"pattern": (("d", 0), ("d", 1)), "mode": mode})
        yield Sample((x, 2.0, rows), {"pattern": (("d", 0), ("s", 1, 3, None)), "mode": mode})
    yield Sample((x, rng.normal(size=(1, 1, 3, 1)), rows), {"pattern": (("d", 0),), "mode": "set"})


op(
    "scatter", _scatter, aval=_scatter_aval, vjp=_scatter_rule, factors=_scatter_factors, inplace=(0,), fails=True,
    batch=batching.scatter,
    samples=_scatter_samples,
)  # fmt: skip


def _take_along_aval(x: Aval, indices: Aval, axis: int) -> Aval:
    shape = tuple(max(extent, 1) if k == axis else extent for k, extent in enumerate(x.shape))
    (stand_in,) = _dummy_indices([indices])
    return Aval(np.take_along_axis(np.broadcast_to(np.zeros((), x.dtype), shape), stand_in, axis).shape, x.dtype)


def _take_along_rule(g: Node, out: Node, x: Node, indices: Node, axis: int) -> tuple[Node, None]:
    wide = (*g.shape[:axis], x.shape[axis], *g.shape[axis + 1 :])
    return unbroadcast(apply("add_along_axis", g, indices, input_shape=wide, axis=axis), x.aval), None


def _add_along(g: Any, indices: Any, input_shape: tuple[int, ...], axis: int) -> Any:
    out = np.zeros(input_shape, g.dtype)
    index = list(np.ogrid[tuple(slice(extent) for extent in g.shape)])
    index[axis] = indices
    np.add.at(out, tuple(index), g)
    return out


def _along_factors(first: Aval, indices: Aval, axis: int, into: str = "") -> str:
    """All dimensions but ``axis`` pass through; ``into`` names the axis of the result, ``!i`` where indices lead."""

    def names(aval: Aval, own: str) -> str:
        across = [(*a.shape[:axis], 1, *a.shape[axis + 1 :]) for a in (first, indices)]
        wide = broadcast_shapes(*across)
        return " ".join(own if k == axis else ("1" if aval.shape[k] != wide[k] else f"d{k}") for k in range(aval.ndim))

    every = " ".join((into or "!i") if k == axis else f"d{k}" for k in range(first.ndim))
    return f"{names(first, '!i' if into else '!x')}, {names(indices, '!i')} -> {every}"


def _along_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.normal(size=(3, 4)), rng.integers(0, 4, (3, 2))), {"axis": 1})
    yield Sample((rng.normal(size=(3, 4)), rng.integers(-3, 3, (5, 1))), {"axis": 0})


def _add_along_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.normal(size=(3, 2)), rng.integers(0, 4, (3, 2))), {"input_shape": (3, 4), "axis": 1})
    yield Sample((rng.normal(size=(5, 4)), rng.integers(-3, 3, (5, 1))), {"input_shape": (3, 4), "axis": 0})


op(
    "take_along_axis", lambda x, indices, axis: np.take_along_axis(x, indices, axis), aval=_take_along_aval, fails=True,
    vjp=_take_along_rule, factors=_along_factors, samples=_along_samples,
)  # fmt: skip
op(
    "add_along_axis", _add_along, aval=lambda g, indices, input_shape, axis: Aval(input_shape, g.dtype),
    vjp=lambda ct, out, g, indices, input_shape, axis: (apply("take_along_axis", ct, indices, axis=axis), None),
    factors=lambda g, indices, input_shape, axis: _along_factors(g, indices, axis, "!x"), shape_attr="input_shape",
    samples=_add_along_samples,
)  # fmt: skip
