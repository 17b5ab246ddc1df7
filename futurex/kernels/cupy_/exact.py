"""Kernels for a GPU that are written out, because CuPy lacks the function or answers other than NumPy.

Every kernel is ``kernel(xp, *inputs, **attributes)`` on arrays of the module ``xp``. :class:`OnHost` hands the call to
NumPy: it decides what only NumPy decides, and raises what NumPy raises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.ops.index import Pattern, fancy_index
from futurex.ops.views import Chain, index_of, sized


class OnHost(Exception):
    """This call is NumPy's; the text says why."""


# -- views and writes --------------------------------------------------------------------------------------------------


def _view(xp: Any, base: Any, chain: Chain, dynamic: Sequence[Any]) -> Any:
    for step in chain:
        kind = step[0]
        if kind == "index":
            base = base[index_of(step[1], dynamic)]
        elif kind == "transpose":
            base = xp.transpose(base, step[1])
        elif kind == "reshape":
            base = base.reshape(step[1])
        elif kind == "broadcast_to":
            base = xp.broadcast_to(base, step[1])
        elif kind == "flip":
            base = xp.flip(base, step[1])
        elif kind == "diagonal":
            base = base.diagonal(*step[1:])
        elif kind in ("real", "imag"):
            base = getattr(base, kind)
        elif kind == "sized":
            sized(base, step[1])
        else:
            raise OnHost("an array of the GPU has no views of its bytes, nor of windows")
    return base


def load(xp: Any, base: Any, *dynamic: Any, chain: Chain) -> Any:
    return _view(xp, xp.asarray(base), chain, dynamic)


def store(xp: Any, base: Any, value: Any, *dynamic: Any, chain: Chain, mode: str) -> Any:
    out = xp.array(base, order="C")
    target = _view(xp, out, chain, dynamic)
    _same_kind(value, target.dtype)
    if mode == "set":
        target[...] = value
    else:
        target += value
    return out


def _same_kind(value: Any, target: Any) -> None:
    """Floats that go into integers do so in ways of the processor's own."""
    if getattr(value, "dtype", np.dtype(bool)).kind in "fc" and target.kind in "biu":
        raise OnHost("floats become integers, which GPUs do in another way")


def broadcast_to(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """CuPy spreads arrays only, and no numbers of the host."""
    return xp.broadcast_to(x, shape) if isinstance(x, xp.ndarray) else xp.full(shape, x)


def cast(xp: Any, x: Any, dtype: Any) -> Any:
    """Floats become integers as on the host where they fit, which is looked at."""
    target = np.dtype(dtype)
    if x.dtype.kind == "c" and target.kind not in "cb":
        x = xp.ascontiguousarray(x.real)
    if x.dtype.kind == "f" and target.kind in "iu":
        limits = np.iinfo(target)
        low, high = (x.dtype.type(math.ldexp(sign, limits.bits - (target.kind == "i"))) for sign in (-1.0, 1.0))
        least = low if target.kind == "i" else x.dtype.type(-1.0)
        if not np.isfinite(high) or not bool(xp.all((x >= least) & (x < high) & (x != -1 if least == -1 else x == x))):
            raise OnHost(f"some values do not fit {target}")
    return x.astype(target)


def where(xp: Any, condition: Any, x: Any, y: Any) -> Any:
    return xp.where(xp.asarray(condition).astype(bool), x, y)


def round_(xp: Any, x: Any, decimals: int) -> Any:
    """By NumPy's own steps: scale, round to even, scale back."""
    if x.dtype.kind != "f":
        raise OnHost("only real floats are rounded on the GPU")
    if decimals == 0:
        return xp.rint(x)
    factor = x.dtype.type(10.0 ** abs(decimals))
    return xp.rint(x * factor) / factor if decimals > 0 else xp.rint(x / factor) * factor


# -- indices -----------------------------------------------------------------------------------------------------------


def _checked(xp: Any, shape: tuple[int, ...], pattern: Pattern, indices: Sequence[Any]) -> None:
    """CuPy wraps what is out of bounds around; NumPy raises."""
    axis = 0
    for entry in pattern:
        if entry[0] == "n":
            continue
        if entry[0] == "d":
            _in_bounds(xp, indices[entry[1]], shape[axis])
        axis += 1


def _in_bounds(xp: Any, index: Any, extent: int) -> None:
    if index.size and not bool(xp.all((index >= -extent) & (index < extent))):
        raise OnHost("an index is out of bounds")


def _on_device(xp: Any, indices: Sequence[Any]) -> list[Any]:
    return [index if isinstance(index, xp.ndarray) else xp.asarray(index) for index in indices]


def gather(xp: Any, x: Any, *indices: Any, pattern: Pattern) -> Any:
    indices = tuple(_on_device(xp, indices))
    _checked(xp, x.shape, pattern, indices)
    return xp.asarray(x)[fancy_index(pattern, indices)]


def scatter(xp: Any, x: Any, value: Any, *indices: Any, pattern: Pattern, mode: str) -> Any:
    """Added by atomic operations; of several values set in one place the last one stays, as in NumPy."""
    indices = tuple(_on_device(xp, indices))
    _checked(xp, x.shape, pattern, indices)
    _same_kind(value, x.dtype)
    index = fancy_index(pattern, indices)
    if mode == "set":
        return _set_last(xp, x, value, index)
    out = xp.array(x, order="C")
    _add_at(xp, out, index, xp.asarray(value))
    return out


def _add_at(xp: Any, out: Any, index: Any, value: Any) -> None:
    """Atomic sums of 64-bit integers are those of unsigned ones, which CUDA has."""
    if out.dtype == np.int64:
        out, value = out.view(np.uint64), value.astype(np.int64).view(np.uint64)
    xp.add.at(out, index, value)


def _set_last(xp: Any, x: Any, value: Any, index: Any) -> Any:
    """Every place takes the greatest number among its writers, so it does not matter which comes last."""
    places = xp.arange(x.size, dtype=np.int64).reshape(x.shape)[index]
    value = xp.asarray(value)
    while value.ndim > places.ndim:
        value = value[0]
    source = xp.ascontiguousarray(xp.broadcast_to(value, places.shape)).reshape(-1).astype(x.dtype)
    if not places.size:
        return xp.array(x, order="C")
    writer = xp.zeros(x.size, np.uint64)
    xp.maximum.at(writer, places.reshape(-1), xp.arange(1, places.size + 1, dtype=np.uint64))
    taken = source[xp.maximum(writer, np.uint64(1)).astype(np.int64) - 1]
    return xp.where(writer > 0, taken, xp.ascontiguousarray(x).reshape(-1)).reshape(x.shape)


def take_along_axis(xp: Any, x: Any, indices: Any, axis: int) -> Any:
    _in_bounds(xp, indices, x.shape[axis])
    return xp.take_along_axis(x, indices, axis)


def add_along_axis(xp: Any, g: Any, indices: Any, input_shape: tuple[int, ...], axis: int) -> Any:
    _in_bounds(xp, indices, input_shape[axis])
    out = xp.zeros(input_shape, g.dtype)
    index = [
        xp.arange(extent).reshape([-1 if k == d else 1 for k in range(g.ndim)]) for d, extent in enumerate(g.shape)
    ]
    index[axis] = indices
    _add_at(xp, out, tuple(index), g)
    return out


def masked_store(xp: Any, x: Any, mask: Any, value: Any) -> Any:
    if mask.shape != x.shape or getattr(value, "ndim", 0):
        raise OnHost("CuPy writes no rows through a mask")
    _same_kind(value, x.dtype)
    return xp.where(mask, value, x).astype(x.dtype)


# -- reductions and products -------------------------------------------------------------------------------------------


def arg_extreme(name: str) -> Any:
    """``argmax`` and ``argmin``; the first NaN wins, where CuPy takes any."""

    def kernel(xp: Any, x: Any, axis: Any, **options: Any) -> Any:
        found = getattr(xp, name)(x, axis=axis, **options)
        if x.dtype.kind not in "fc":
            return found
        nans = xp.isnan(x)
        return xp.where(xp.any(nans, axis=axis, **options), xp.argmax(nans, axis=axis, **options), found)

    return kernel


def matvec(xp: Any, x: Any, y: Any) -> Any:
    return xp.matmul(x, y[..., None])[..., 0]


def vecmat(xp: Any, x: Any, y: Any) -> Any:
    return xp.matmul(xp.conjugate(x)[..., None, :], y)[..., 0, :]


def vecdot(xp: Any, x: Any, y: Any) -> Any:
    return xp.matmul(xp.conjugate(x)[..., None, :], y[..., None])[..., 0, 0]


def narrow_product(xp: Any, x: Any, y: Any, product: str, to: str) -> Any:
    """A product of halves: cuBLAS adds up in single precision, and rounds once."""
    return xp.matmul(x, y)


TRANSFORMS = "CuPy goes by way of transforms, where one NaN is in every element"


def convolve(xp: Any, a: Any, v: Any, mode: str) -> Any:
    if "f" in a.dtype.kind + v.dtype.kind:
        raise OnHost(TRANSFORMS)
    return xp.convolve(a, v, mode)


def power(xp: Any, x: Any, y: Any) -> Any:
    """Integers to negative powers are an error in NumPy and zero in CuPy."""
    kinds = {np.asarray(v).dtype.kind if not isinstance(v, xp.ndarray) else v.dtype.kind for v in (x, y)}
    if kinds <= set("biu") and not (type(y) is int and y >= 0):
        raise OnHost("NumPy looks at the signs of integer exponents")
    return xp.power(x, y)


# -- division of floats ------------------------------------------------------------------------------------------------


def divided(xp: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder by NumPy's steps, from the exact remainder of ``fmod``; CuPy rounds the quotient down."""
    dtype = xp.result_type(x, y)
    if dtype.kind != "f":
        raise OnHost("integers are divided by NumPy's rule for zero")
    x, y = xp.asarray(x, dtype), xp.asarray(y, dtype)
    rest = xp.fmod(x, y)
    quotient = (x - rest) / y
    off = (rest != 0) & ((y < 0) != (rest < 0))
    quotient = xp.where(off, quotient - 1, quotient)
    whole = xp.floor(quotient)
    whole = xp.where(quotient - whole > 0.5, whole + 1, whole)
    whole = xp.where(quotient != 0, whole, xp.copysign(xp.zeros_like(whole), x / y))
    turned = xp.where(rest != 0, xp.where(off, rest + y, rest), xp.copysign(xp.zeros_like(rest), y))
    return xp.where(y == 0, x / y, whole).astype(dtype), xp.where(y == 0, rest, turned).astype(dtype)


def floor_divide(xp: Any, x: Any, y: Any) -> Any:
    kinds = {value.dtype.kind for value in (x, y) if hasattr(value, "dtype")}
    return divided(xp, x, y)[0] if "f" in kinds or float in map(type, (x, y)) else xp.floor_divide(x, y)


def remainder(xp: Any, x: Any, y: Any) -> Any:
    kinds = {value.dtype.kind for value in (x, y) if hasattr(value, "dtype")}
    return divided(xp, x, y)[1] if "f" in kinds or float in map(type, (x, y)) else xp.remainder(x, y)


# -- matrices: CuPy's functions have fewer options ---------------------------------------------------------------------


def _plain(asked: bool) -> None:
    if asked:
        raise OnHost("CuPy has no such option")


def svd(xp: Any, x: Any, full_matrices: bool, hermitian: bool) -> Any:
    _plain(hermitian)
    return tuple(xp.linalg.svd(x, full_matrices))


def svdvals(xp: Any, x: Any, hermitian: bool) -> Any:
    _plain(hermitian)
    return xp.linalg.svd(x, compute_uv=False)


def cholesky(xp: Any, x: Any, upper: bool) -> Any:
    _plain(upper)
    return xp.linalg.cholesky(x)


def pinv(xp: Any, x: Any, rcond: Any, hermitian: bool) -> Any:
    _plain(hermitian or rcond is None or bool(getattr(rcond, "ndim", 0)))
    return xp.linalg.pinv(x, rcond)
