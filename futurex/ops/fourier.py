"""Discrete Fourier transforms along one axis. Each is linear, so its derivative is its transpose: another transform.

``n`` is the length of the transform: its input is cut or filled with zeros to fit. The kernels are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import conj
from futurex.tree.aval import Aval
from futurex.tree.dims import is_static, same
from futurex.tree.node import Node, apply, const
from futurex.tree.record import Cost, Sample, op

SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def fitted(x: Node, length: int, axis: int) -> Node:
    """Cut along an axis, or filled with zeros at its end."""
    if same(x.shape[axis], length):
        return x
    if x.shape[axis] > length:
        entries: list[Any] = [("s", None, None, None)] * x.ndim
        entries[axis] = ("s", 0, length, None)
        return apply("load", x, chain=(("index", tuple(entries)),))
    widths = tuple((0, length - x.shape[axis] if k == axis else 0) for k in range(x.ndim))
    return apply("pad", x, const(np.zeros((), x.dtype)[()]), widths=widths)


def _symmetric(name: str) -> Callable[..., tuple[Node]]:
    """The matrix of the complex transforms is symmetric."""

    def rule(g: Node, out: Node, x: Node, n: int, axis: int, norm: str | None) -> tuple[Node]:
        return (fitted(apply(name, g, n=n, axis=axis, norm=norm), x.shape[axis], axis),)

    return rule


def _rfft_rule(g: Node, out: Node, x: Node, n: int, axis: int, norm: str | None) -> tuple[Node]:
    """The matrix of ``rfft`` is the upper part of that of ``fft``."""
    back = apply("real", apply("fft", fitted(g, n, axis), n=n, axis=axis, norm=norm))
    return (fitted(back, x.shape[axis], axis),)


def _irfft_rule(g: Node, out: Node, x: Node, n: int, axis: int, norm: str | None) -> tuple[Node]:
    """``irfft`` counts every frequency twice, for the conjugate that is left out, but the first and the middle one."""
    back = conj(apply("rfft", g, n=n, axis=axis, norm=SWAPPED[norm]))
    count = np.full(n // 2 + 1, 2.0)
    count[0] = 1.0
    if n % 2 == 0:
        count[-1] = 1.0
    weight = count.astype(g.dtype).reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    return (fitted(back * const(weight), x.shape[axis], axis),)


def _aval(function: Callable[..., Any], length: Callable[[int], int]) -> Callable[..., Aval]:
    def aval(x: Aval, n: int, axis: int, norm: str | None) -> Aval:
        small = max(n, 0) and 1 if is_static((n,)) else 1
        dtype = function(np.ones(1, x.dtype), small, norm=norm).dtype  # raises for unknown norms and n < 1
        return Aval((*x.shape[:axis], length(n), *x.shape[axis + 1 :]), dtype)

    return aval


def _factors(x: Aval, n: int, axis: int, norm: str | None) -> str:
    names = [f"d{k}" for k in range(x.ndim)]
    ins, outs = ([f"!{which}" if k == axis else name for k, name in enumerate(names)] for which in ("n", "m"))
    return f"{' '.join(ins)} -> {' '.join(outs)}"


def _cost(x: Aval, n: int, axis: int, norm: str | None) -> Cost:
    rows = x.size / max(x.shape[axis], 1)
    return Cost(5.0 * n * math.log2(max(n, 2)) * rows, 2.0 * x.nbytes)


def _samples(kinds: str) -> Callable[..., Iterable[Sample]]:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for kind in kinds:
            x = rng.normal(size=(3, 5)) + (1j * rng.normal(size=(3, 5)) if kind == "c" else 0.0)
            for n, axis, norm in ((5, 1, None), (4, 1, "ortho"), (7, 1, "forward"), (4, 0, None), (1, 0, "backward")):
                yield Sample((x,), {"n": n, "axis": axis, "norm": norm})
            yield Sample((x.astype(x.real.astype(np.float32).dtype if kind == "f" else np.complex64),),
                         {"n": 5, "axis": 1, "norm": None}, order=0)  # fmt: skip
        yield Sample((np.arange(6),), {"n": 6, "axis": 0, "norm": None}, order=0)
        yield Sample((np.zeros((0, 4)),), {"n": 4, "axis": 1, "norm": None}, order=0)

    return samples


def _room(x: Aval, n: int, axis: int, norm: str | None) -> int:
    """NumPy transforms a complex copy of real numbers."""
    return 0 if x.dtype.kind == "c" else np.result_type(x.dtype, np.complex64).itemsize * x.size


for _function, _rule, _length, _kinds in (
    (np.fft.fft, _symmetric("fft"), lambda n: n, "fc"),
    (np.fft.ifft, _symmetric("ifft"), lambda n: n, "fc"),
    (np.fft.rfft, _rfft_rule, lambda n: n // 2 + 1, "f"),
    (np.fft.irfft, _irfft_rule, lambda n: n, "fc"),
):
    op(
        _function.__name__, _function, aval=_aval(_function, _length), vjp=_rule, factors=_factors, cost=_cost,
        room=None if _function is np.fft.rfft else _room, samples=_samples(_kinds),
    )  # fmt: skip
