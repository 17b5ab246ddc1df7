"""``numpy.fft`` on traced arrays: transforms over several axes are composed of those over one, in NumPy's order."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.linalg import known
from futurex.frontend.numpy_api.registry import HANDLERS, handles
from futurex.frontend.numpy_api.shapes import roll
from futurex.frontend.numpy_api.ufuncs import call_ufunc, into, layout_of, normal_axes
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, entered, fresh, new_array
from futurex.ops.fourier import SWAPPED
from futurex.tree.dims import Dim
from futurex.tree.node import const

Lengths = list[int]


def _transform(name: str, a: Any, n: Any, axis: Any, norm: Any, out: Any = None) -> Any:
    x = as_tracer(a)
    node = array_node(x)
    given: Any = axis if isinstance(axis, np.bool_) else known(axis, "axis=")
    axis = operator.index(given)
    if n is None:
        n = node.shape[axis] if name != "irfft" else (node.shape[axis] - 1) * 2
    if node.dtype.kind == "c" and name == "rfft":
        raise TypeError("ufunc 'rfft_n_even' did not contain a loop with signature matching types")
    axes = normal_axes(axis, node.ndim)
    assert axes is not None
    length = n if isinstance(n, Dim) else _length(known(n, "n="))
    result = fresh(emit(name, node, n=length, axis=axes[0], norm=norm))
    result._cell.strides = layout_of(result.aval, [x], [node])
    return result if out is None else _written(out, result)


def _length(n: Any) -> int:
    """A number of points. A boolean is one only where NumPy makes no shape of it, and a wide int one of its objects."""
    if isinstance(n, bool) or not -(2**63) <= operator.index(n) < 2**63:
        raise Escape("a Fourier transform of such a length", "NumPy refuses it, as a rule")
    return operator.index(n)


def _written(out: Any, result: Tracer) -> Any:
    target = entered(out)
    if not isinstance(target, Tracer):
        raise TypeError("return arrays must be of ArrayType")
    if target.aval != result.aval:
        raise Escape("a Fourier transform with out= of another shape or type", "what NumPy casts then is not traced")
    return into(target, result._node, True, "same_kind")


def _swapped(norm: Any) -> Any:
    if norm not in SWAPPED:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return SWAPPED[norm]


def _along_one(name: str) -> Callable[..., Any]:
    def handler(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        return _transform(name, a, n, axis, norm, out)

    return handler


for _name in ("fft", "ifft", "rfft", "irfft"):
    HANDLERS[getattr(np.fft, _name)] = _along_one(_name)


@handles(np.fft.hfft)
def hfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    if out is not None:
        raise Escape("numpy.fft.hfft with out=", "NumPy does not write into it")
    return _transform("irfft", call_ufunc(np.conjugate, "__call__", (as_tracer(a),), {}), n, axis, _swapped(norm))


@handles(np.fft.ihfft)
def ihfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
    result = _transform("rfft", a, n, axis, _swapped(norm))
    conjugate = call_ufunc(np.conjugate, "__call__", (result,), {})
    return conjugate if out is None else _written(out, conjugate)


def _lengths(x: Tracer, s: Any, axes: Any, inverse_real: bool = False) -> tuple[Lengths, Lengths]:
    """Length of the transform along each axis, and the axes."""
    if s is not None and (axes is None or None in s):
        raise Escape("a Fourier transform with s= and no axes, or with None in s", "this use is deprecated")
    axes = range(-len(x.shape), 0) if axes is None else axes
    places = [operator.index(known(axis, "axes=")) for axis in axes]
    if s is None:
        lengths = [x.shape[axis] for axis in places]
        if inverse_real:
            lengths[-1] = (x.shape[places[-1]] - 1) * 2
        return lengths, places
    lengths = [_length(known(length, "s=")) for length in s]
    if len(lengths) != len(places):
        raise ValueError("Shape and axes have different lengths.")
    return [x.shape[k] if length == -1 else length for length, k in zip(lengths, places, strict=True)], places


def _over_several(name: str) -> Callable[..., Any]:
    real, inverse = "r" in name, name.startswith("i")

    def handler(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None) -> Any:
        if out is not None and s is not None:
            raise Escape(f"numpy.fft.{name}n with s= and out=", "NumPy writes every step into it")
        x = as_tracer(a)
        x = new_array(x._node) if x.is_scalar else x
        lengths, places = _lengths(x, s, axes, real and inverse)
        steps = list(zip(lengths, places, strict=True))
        if real and not inverse:
            x = _transform("rfft", x, *steps.pop(), norm)
        last = steps.pop() if real and inverse else None
        for length, axis in steps if last else reversed(steps):
            x = _transform("ifft" if inverse else "fft", x, length, axis, norm)
        if last:
            x = _transform("irfft", x, *last, norm)
        return x if out is None else _written(out, x)

    return handler


def _over_two(name: str) -> Callable[..., Any]:
    several = _over_several(name)

    def handler(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
        if out is not None and name in ("ifft", "irfft"):
            raise Escape(f"numpy.fft.{name}2 with out=", "NumPy does not write into it")
        return several(a, s, axes, norm, out)

    return handler


for _name in ("fft", "ifft", "rfft", "irfft"):
    HANDLERS[getattr(np.fft, f"{_name}n")] = _over_several(_name)
    HANDLERS[getattr(np.fft, f"{_name}2")] = _over_two(_name)


def _shifted(x: Any, axes: Any, sign: int) -> Any:
    a = as_tracer(x)
    if isinstance(axes, Tracer | np.ndarray) and not axes.ndim and not getattr(axes, "is_scalar", False):
        raise Escape("a shift along an axis that is an array without dimensions", "NumPy refuses it")
    places = range(a.ndim) if axes is None else axes if np.iterable(axes) else (axes,)
    by = [sign * (a.shape[axis] // 2) for axis in places]
    return roll(a, tuple(by), tuple(places))


@handles(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Any:
    return _shifted(x, axes, 1)


@handles(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Any:
    return _shifted(x, axes, -1)


def _frequencies(function: Any, n: Any, d: Any, device: Any) -> Any:
    """Whole numbers times the step between frequencies."""
    n = known(n, "n")
    if not isinstance(entered(d), Tracer):
        return new_array(const(function(n, d, device=device)))
    whole = function(n, 1.0 / n, device=device)
    step = call_ufunc(np.divide, "__call__", (1.0, call_ufunc(np.multiply, "__call__", (n, d), {})), {})
    return call_ufunc(np.multiply, "__call__", (new_array(const(np.rint(whole).astype(int))), step), {})


@handles(np.fft.fftfreq)
def fftfreq(n: Any, d: Any = 1.0, device: Any = None) -> Any:
    return _frequencies(np.fft.fftfreq, n, d, device)


@handles(np.fft.rfftfreq)
def rfftfreq(n: Any, d: Any = 1.0, device: Any = None) -> Any:
    return _frequencies(np.fft.rfftfreq, n, d, device)
