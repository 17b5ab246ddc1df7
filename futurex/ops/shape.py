"""Making arrays and changing their shape: full, iota, reshape, transpose, broadcast, concatenate, pad."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.elementwise import unbroadcast
from futurex.ops.strides import undone
from futurex.tree.aval import Aval
from futurex.tree.dims import is_static, reshaped
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op


def dims(ndim: int, prefix: str = "d") -> list[str]:
    """Factor names for the dimensions of one array."""
    return [f"{prefix}{k}" for k in range(ndim)]


def _full(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return np.full(shape, value, dtype)


def _full_rule(g: Node, out: Node, value: Node, **_: Any) -> tuple[Node]:
    return (unbroadcast(g, value.aval),)


op(
    "full", _full, vjp=_full_rule, aval=lambda value, shape, dtype: Aval(shape, np.dtype(dtype)), shape_attr="shape",
    batch=batching.full,
    factors=lambda value, shape, dtype: f"{' '.join(['1'] * value.ndim)} -> {' '.join(dims(len(shape)))}",
    samples=lambda rng: [
        Sample((np.float64(2.5),), {"shape": (2, 3), "dtype": np.dtype("float64")}),
        Sample((3,), {"shape": (), "dtype": np.dtype("int8")}, order=0),
    ],
)  # fmt: skip
op(
    "iota", lambda shape, axis, dtype: _iota(shape, axis, dtype),
    aval=lambda shape, axis, dtype: Aval(shape, np.dtype(dtype)),
    samples=lambda rng: [Sample((), {"shape": (3, 4), "axis": 1, "dtype": np.dtype("int64")}, order=0)],
)  # fmt: skip


def _iota(shape: tuple[int, ...], axis: int, dtype: Any) -> Any:
    places = np.empty(shape, dtype)  # which says of a negative extent what NumPy's own functions say
    places[...] = np.arange(shape[axis], dtype=dtype).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return places


def _reshape_aval(x: Aval, shape: tuple[Any, ...]) -> Aval:
    if x.static and is_static(shape) and -1 not in shape:
        if math.prod(x.shape) != math.prod(shape):
            np.reshape(np.broadcast_to(np.zeros(()), x.shape), shape)  # raises NumPy's error
        return Aval(shape, x.dtype)
    if x.static and is_static(shape):
        return Aval(np.reshape(np.broadcast_to(np.zeros(()), x.shape), shape).shape, x.dtype)
    return Aval(reshaped(x.shape, shape), x.dtype)


def _reshape_factors(x: Aval, shape: tuple[int, ...]) -> str:
    """Leading and trailing dimensions that stay as they are pass through; the regrouped middle must be whole."""
    old, new = list(x.shape), list(shape)
    front = 0
    while front < min(len(old), len(new)) and old[front] == new[front]:
        front += 1
    back = 0
    while back < min(len(old), len(new)) - front and old[-1 - back] == new[-1 - back]:
        back += 1

    def names(rank: int, regrouped: str) -> str:
        middle = [f"!{regrouped}{k}" for k in range(front, rank - back)]
        return " ".join([*dims(front), *middle, *(f"e{k}" for k in range(back, 0, -1))])

    return f"{names(len(old), 'i')} -> {names(len(new), 'o')}"


op(
    "reshape", lambda x, shape: np.reshape(x, shape), aval=_reshape_aval, view=0, shape_attr="shape",
    batch=batching.reshape,
    vjp=lambda g, out, x, shape: (apply("reshape", g, shape=x.shape),), factors=_reshape_factors,
    samples=lambda rng: [
        Sample((rng.normal(size=(4, 6)),), {"shape": (4, 2, 3)}),
        Sample((rng.normal(size=(4, 6)),), {"shape": (24,)}),
        Sample((rng.normal(size=(1,)),), {"shape": ()}),
        Sample((rng.normal(size=(0, 3)),), {"shape": (3, 0)}),
    ],
)  # fmt: skip


def _transpose_aval(x: Aval, axes: tuple[int, ...]) -> Aval:
    if sorted(axes) != list(range(x.ndim)):
        raise ValueError("axes don't match array")
    return Aval(tuple(x.shape[axis] for axis in axes), x.dtype)


def _transpose_rule(g: Node, out: Node, x: Node, axes: tuple[int, ...]) -> tuple[Node]:
    return (apply("transpose", g, axes=undone(axes)),)


def _transpose_factors(x: Aval, axes: tuple[int, ...]) -> str:
    names = dims(x.ndim)
    return f"{' '.join(names)} -> {' '.join(names[axis] for axis in axes)}"


op(
    "transpose", lambda x, axes: np.transpose(x, axes), aval=_transpose_aval, view=0,
    vjp=_transpose_rule, factors=_transpose_factors,
    batch=batching.transpose,
    samples=lambda rng: [
        Sample((rng.normal(size=(2, 3, 4)),), {"axes": (2, 0, 1)}),
        Sample((rng.normal(size=(2, 3)),), {"axes": (1, 0)}),
    ],
)  # fmt: skip


def _broadcast_aval(x: Aval, shape: tuple[Any, ...]) -> Aval:
    if x.static and is_static(shape):
        return Aval(np.broadcast_to(np.broadcast_to(np.zeros(()), x.shape), shape).shape, x.dtype)
    return Aval(shape, x.dtype)


def _broadcast_factors(x: Aval, shape: tuple[int, ...]) -> str:
    names = dims(len(shape))
    offset = len(shape) - x.ndim
    ins = [names[k + offset] if x.shape[k] == shape[k + offset] else "1" for k in range(x.ndim)]
    return f"{' '.join(ins)} -> {' '.join(names)}"


op(
    "broadcast_to", lambda x, shape: np.broadcast_to(x, shape), aval=_broadcast_aval, view=0,
    shape_attr="shape", factors=_broadcast_factors,
    batch=batching.broadcast_to,
    vjp=lambda g, out, x, shape: (unbroadcast(g, x.aval),),
    samples=lambda rng: [
        Sample((rng.normal(size=(3, 1)),), {"shape": (2, 3, 4)}),
        Sample((rng.normal(size=()),), {"shape": (2,)}),
    ],
)  # fmt: skip


def _in_c_order(x: Any) -> Any:
    """The array itself where it lies in C order, else a copy that does."""
    return np.ascontiguousarray(x) if x.ndim else x


op(
    "contiguous", _in_c_order, aval=lambda x: x, view=0, factors=lambda x: f"{' '.join(dims(x.ndim))} -> "
    f"{' '.join(dims(x.ndim))}",
    batch=batching.unchanged("contiguous"), vjp=lambda g, out, x: (g,),
    samples=lambda rng: [Sample((rng.normal(size=(3, 2)).T,)), Sample((np.arange(4)[::-1],), order=0)],
)  # fmt: skip


def _concatenate_aval(*parts: Aval, axis: int) -> Aval:
    """Extents along ``axis`` add up; the others are equal, and one that is known stands for all."""
    if all(part.static for part in parts):
        dummies = [np.broadcast_to(np.zeros((), part.dtype), part.shape) for part in parts]
        if len({(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}) > 1:
            np.concatenate([dummy[:0] for dummy in dummies], axis)  # raises NumPy's error
    if len({part.ndim for part in parts}) > 1:
        np.concatenate([np.zeros((0,) * part.ndim) for part in parts], axis)
    if axis >= parts[0].ndim:
        raise np.exceptions.AxisError(axis, parts[0].ndim)
    shape = list(parts[0].shape)
    for part in parts[1:]:
        shape = [b if is_static((b,)) else a for a, b in zip(shape, part.shape, strict=True)]
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Aval(tuple(shape), np.result_type(*(part.dtype for part in parts)))


def _concatenate_rule(g: Node, out: Node, *parts: Node, axis: int) -> tuple[Node, ...]:
    whole: list[tuple[Any, ...]] = [("s", None, None, None)] * g.ndim
    cotangents = []
    start: Any = 0
    for part in parts:
        stop = start + part.shape[axis]
        entries = list(whole)
        entries[axis] = ("s", start, stop, None)
        cotangents.append(apply("load", g, chain=(("index", tuple(entries)),)))
        start = stop
    return tuple(cotangents)


def _concatenate_factors(*parts: Aval, axis: int) -> str:
    ins = [" ".join(f"!c{n}" if k == axis else f"d{k}" for k in range(part.ndim)) for n, part in enumerate(parts)]
    return f"{', '.join(ins)} -> {' '.join('!c' if k == axis else f'd{k}' for k in range(parts[0].ndim))}"


op(
    "concatenate", lambda *parts, axis: np.concatenate(parts, axis), aval=_concatenate_aval, vjp=_concatenate_rule,
    batch=batching.concatenate,
    factors=_concatenate_factors,
    samples=lambda rng: [
        Sample((rng.normal(size=(2, 3)), rng.normal(size=(4, 3))), {"axis": 0}),
        Sample((rng.normal(size=(2, 3)), rng.normal(size=(2, 0)), rng.normal(size=(2, 1))), {"axis": 1}),
        Sample((rng.normal(size=(2,)), np.arange(3)), {"axis": 0}, order=0),
    ],
)  # fmt: skip


def _repeated_shape(x: Any, times: int, axis: int) -> tuple[int, ...]:
    return (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :])


def _repeat_each_parts(x: Node, times: int, axis: int) -> Node:
    """One more axis behind the axis, along which all is the same."""
    before, behind = x.shape[: axis + 1], x.shape[axis + 1 :]
    wide = apply("reshape", x, shape=(*before, 1, *behind))
    wide = apply("broadcast_to", wide, shape=(*before, times, *behind))
    return apply("reshape", wide, shape=_repeated_shape(x, times, axis))


def _repeat_each_factors(x: Aval, times: int, axis: int) -> str:
    names = dims(x.ndim)
    ins, outs = (" ".join(new if k == axis else name for k, name in enumerate(names)) for new in ("!x", "!o"))
    return f"{ins} -> {outs}"


op(
    "repeat_each", lambda x, times, axis: np.repeat(x, times, axis),
    aval=lambda x, times, axis: Aval(_repeated_shape(x, times, axis), x.dtype), decompose=_repeat_each_parts,
    factors=_repeat_each_factors,
    samples=lambda rng: [
        Sample((rng.normal(size=(2, 3)),), {"times": 2, "axis": 0}),
        Sample((rng.normal(size=(2, 3)),), {"times": 3, "axis": 1}),
        Sample((np.arange(4, dtype=np.uint8),), {"times": 5, "axis": 0}, order=0),
    ],
)  # fmt: skip


def _pad_rule(g: Node, out: Node, x: Node, value: Node, widths: tuple[tuple[int, int], ...]) -> tuple[Node, Node]:
    entries = tuple(("s", lo, lo + extent, None) for (lo, _), extent in zip(widths, x.shape, strict=True))
    inner = apply("load", g, chain=(("index", entries),))
    whole, kept = (apply("sum", part, axis=None, keepdims=False, dtype=None) for part in (g, inner))
    return inner, whole - kept


def _pad_factors(x: Aval, value: Aval, widths: tuple[tuple[int, int], ...]) -> str:
    names = [f"d{k}" if pair == (0, 0) else f"!d{k}" for k, pair in enumerate(widths)]
    return f"{' '.join(names)},  -> {' '.join(names)}"


def _pad(x: Any, value: Any, widths: tuple[tuple[int, int], ...]) -> Any:
    return np.pad(x, widths or 0, constant_values=value)


def _pad_aval(x: Aval, value: Aval, widths: tuple[tuple[int, int], ...]) -> Aval:
    return Aval(tuple(n + lo + hi for n, (lo, hi) in zip(x.shape, widths, strict=True)), x.dtype)


op(
    "pad", _pad, aval=_pad_aval, vjp=_pad_rule, batch=batching.pad, factors=_pad_factors,
    samples=lambda rng: [
        Sample((rng.normal(size=(2, 3)), 0.0), {"widths": ((1, 0), (0, 2))}),
        Sample((rng.normal(size=(3,)), np.float64(1.5)), {"widths": ((2, 2),)}),
    ],
)  # fmt: skip


def flip_samples(rng: np.random.Generator) -> Iterable[Sample]:
    """Axes for :data:`flip`."""
    yield Sample((rng.normal(size=(2, 3)),), {"axis": (1,)})
    yield Sample((rng.normal(size=(2, 3)),), {"axis": (0, 1)})


def _flip_aval(x: Aval, axis: tuple[int, ...]) -> Aval:
    np.flip(np.empty((0,) * x.ndim), axis)  # raises NumPy's error
    return Aval(x.shape, x.dtype)


def _flip_factors(x: Aval, axis: tuple[int, ...]) -> str:
    names = " ".join(f"!d{k}" if k in axis else f"d{k}" for k in range(x.ndim))
    return f"{names} -> {names}"


op(
    "flip", lambda x, axis: np.flip(x, axis), aval=_flip_aval, view=0,
    factors=_flip_factors, samples=flip_samples,
    vjp=lambda g, out, x, axis: (apply("flip", g, axis=axis),),
)  # fmt: skip
