"""Fourier transforms along one axis, by the loops behind ``numpy.fft``: NumPy's bits without its way to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, elementwise, records
from futurex.kernels.loops.arrays import Array, Extent
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import inner_loop
from futurex.kernels.loops.values import constant
from futurex.ops.fourier import SWAPPED
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]


def transform(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``fft``, ``ifft``, ``rfft`` and ``irfft``."""
    (x,) = inputs
    n, axis, norm = node.attrs["n"], node.attrs["axis"], node.attrs["norm"]
    if not isinstance(x, Array) or type(n) is not int:
        raise Unsupported("a transform of unknown length")
    axis %= len(x.shape)
    if isinstance(x.shape[axis], Extent):
        raise Unsupported("a transform along an axis of unknown extent")
    scale, ufunc = _factor(node, n, norm), _ufunc(node.op, n)
    taken, real, given = ufunc.resolve_dtypes((x.dtype, int if scale == 1 else scale.dtype, node.dtype))
    loop = inner_loop(ufunc, (taken, real), given)
    if loop is None or given != node.dtype:
        raise Unsupported(f"transforms of dtype {x.dtype}")
    factor = e.cell(constant(scale, real, weak=False))
    source = _as_complex(e, x, taken) if taken.kind == "c" else elementwise.operand(e, x, real)
    shape = [n // 2 + 1 if node.op == "rfft" and k == axis else n if k == axis else m for k, m in enumerate(x.shape)]
    out = e.fresh(tuple(shape), node.dtype)
    stack, columns = _without(source, axis), _without(out, axis)
    strides = [stack.strides, (0,) * len(stack.shape), columns.strides]
    core = [source.shape[axis], out.shape[axis]]
    steps = [source.strides[axis], out.strides[axis]]
    records.run_core(e, loop, [source, factor, out], stack.shape, strides, core, steps, along=True)
    return out


def _ufunc(name: str, n: int) -> Any:
    if name == "rfft":
        name = "rfft_n_odd" if n % 2 else "rfft_n_even"
    found = getattr(getattr(getattr(np.fft, "_pocketfft", None), "pfu", None), name, None)
    if not isinstance(found, np.ufunc) or (found.nin, found.nout) != (2, 1):
        raise Unsupported(name)
    return found


def _factor(node: Node, n: int, norm: str | None) -> Any:
    """What every element is multiplied by, rounded as NumPy rounds it."""
    kept = norm if node.op in ("fft", "rfft") else SWAPPED[norm]
    dtype = np.result_type(np.zeros((), node.inputs[0].dtype).real.dtype, 1.0)
    if kept == "ortho":
        return np.reciprocal(np.sqrt(n, dtype=dtype))
    return np.reciprocal(n, dtype=dtype) if kept == "forward" else 1


def _as_complex(e: Emitter, x: Array, dtype: Dtype) -> Array:
    if x.dtype.kind == "c":
        return elementwise.operand(e, x, dtype)
    made = e.fresh(x.shape, dtype)
    real, imag = (arrays.viewed(e.function, made, ((part,),), ()) for part in ("real", "imag"))
    elementwise.assign(e, real, x)
    elementwise.assign(e, imag, constant(0.0, imag.dtype, weak=False))
    return made


def _without(array: Array, axis: int) -> Array:
    """The dimensions of an array but one."""
    rest = [k for k in range(len(array.shape)) if k != axis]
    shape, strides = tuple(array.shape[k] for k in rest), tuple(array.strides[k] for k in rest)
    return replace(array, shape=shape, strides=strides, owned=False)
