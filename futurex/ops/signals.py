"""Discrete convolution and correlation of one-dimensional arrays, differences, and linear interpolation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, size_node
from futurex.tree.record import Cost, Sample, op


def _length(n: int, m: int, mode: str) -> int:
    if n == 0 or m == 0:
        raise ValueError(f"{'a' if n == 0 else 'v'} cannot be empty")
    n, m = max(n, m), min(n, m)
    return {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]


def _aval(a: Aval, v: Aval, mode: str) -> Aval:
    dtype = np.convolve(np.zeros(1, a.dtype), np.zeros(1, v.dtype)).dtype
    return Aval((_length(a.shape[0], v.shape[0], mode),), dtype)


def _cost(a: Aval, v: Aval, mode: str) -> Cost:
    return Cost(2.0 * a.size * v.size, a.nbytes + v.nbytes + _aval(a, v, mode).nbytes)


def _flip(x: Node) -> Node:
    return apply("flip", x, axis=(0,))


def _convolve_rule(g: Node, out: Node, a: Node, v: Node, mode: str) -> tuple[Node, Node]:
    """``full`` convolution is transposed by ``valid`` correlation; the other modes are slices of it."""
    n, m = a.shape[0], v.shape[0]
    missing = n + m - 1 - g.shape[0]
    before = {"full": 0, "same": (min(n, m) - 1) // 2, "valid": min(n, m) - 1}[mode]
    if missing:
        zero = np.zeros((), g.dtype)[()]
        g = apply("pad", g, zero, widths=((before, missing - before),))
    return tuple(apply("convolve", g, _flip(other), mode="valid") for other in (v, a))  # type: ignore[return-value]


def _correlate_as_convolution(a: Node, v: Node, mode: str) -> Node:
    other = apply("conjugate", v) if v.dtype.kind == "c" else v
    if mode != "same" or a.shape[0] >= v.shape[0]:
        return apply("convolve", a, _flip(other), mode=mode)
    n, m = a.shape[0], v.shape[0]  # NumPy exchanges the operands, and reverses what it found
    start = n + m - 1 - (n - 1) // 2 - m
    full = apply("convolve", a, _flip(other), mode="full")
    return apply("load", full, chain=(("index", (("s", start, start + m, None),)),))


def _pairs(rng: np.random.Generator) -> Iterable[Sample]:
    for mode in ("full", "same", "valid"):
        for n, m in ((6, 3), (6, 4), (3, 5), (2, 5)):
            yield Sample((rng.normal(size=n), rng.normal(size=m)), {"mode": mode})


def _whole(a: Aval, v: Aval, mode: str) -> str:
    return "!n, !m -> !k"


op(
    "convolve", np.convolve, aval=_aval, vjp=_convolve_rule, factors=_whole, cost=_cost, samples=_pairs,
)  # fmt: skip
op(
    "correlate", np.correlate, aval=_aval, decompose=_correlate_as_convolution, factors=_whole, cost=_cost,
    samples=_pairs,
)  # fmt: skip


def _interp(x: Any, xp: Any, fp: Any, *outside: Any) -> Any:
    return np.interp(x, xp, fp, *(np.asarray(value).item() for value in outside))


def _interp_aval(x: Aval, xp: Aval, fp: Aval, *outside: Aval) -> Aval:
    _interp(np.zeros(1), np.zeros(xp.shape), np.zeros(fp.shape))  # raises for tables that do not fit
    return Aval(x.shape, np.dtype(complex if fp.dtype.kind == "c" else float))


def _interp_decomposed(x: Node, xp: Node, fp: Node, *outside: Node) -> Node:
    """Linear between the two points around ``x``; constant outside of the table."""
    last = size_node(xp.shape[0] - 1)
    place = apply("native", xp, x, call="np.searchsorted(_0, _1, side='right')")
    low = apply("maximum", apply("minimum", place - 1, last - 1), 0)
    x0, x1, f0, f1 = (_rows(table, k) for table in (xp, fp) for k in (low, apply("minimum", low + 1, last)))
    step = where(apply("equal", x1, x0), 1.0, x1 - x0)
    inside = f0 + (f1 - f0) * ((x - x0) / step)
    left, right = outside or (_edge(fp, 0), _rows(fp, last))
    return where(apply("less", x, _edge(xp, 0)), left, where(apply("greater", x, _rows(xp, last)), right, inside))


def _rows(table: Node, index: Node) -> Node:
    return apply("gather", table, index, pattern=(("d", 0),))


def _edge(table: Node, index: int) -> Node:
    return apply("load", table, chain=(("index", (("i", index),)),))


def _interp_factors(x: Aval, xp: Aval, fp: Aval, *outside: Aval) -> str:
    names = " ".join(f"d{k}" for k in range(x.ndim))
    return f"{', '.join([names, '!p', '!p', *('' for _ in outside)])} -> {names}"


def _tables(rng: np.random.Generator) -> Iterable[Sample]:
    xp, fp = np.sort(rng.normal(size=5)), rng.normal(size=5)
    x = rng.uniform(xp[0] - 0.5, xp[-1] + 0.5, size=(3, 4))
    yield Sample((x, xp, fp))
    yield Sample((x, xp, fp, np.float64(-1.5), np.float64(2.5)))
    yield Sample((x[0], xp, np.arange(5)), order=0)


op(
    "interp", _interp, aval=_interp_aval, decompose=_interp_decomposed, factors=_interp_factors, samples=_tables,
)  # fmt: skip


def _part(x: Node, axis: int, start: int | None, stop: int | None) -> Node:
    whole: list[tuple[Any, ...]] = [("s", None, None, None)] * x.ndim
    whole[axis] = ("s", start, stop, None)
    return apply("load", x, chain=(("index", tuple(whole)),))


def _gradient_decomposed(f: Node, x: Node, axis: int) -> Node:
    """Second-order differences inside, one-sided ones at both ends.

    Source: Quarteroni, Sacco & Saleri, *Numerical Mathematics*, section 10.10.
    """
    gaps = _part(x, 0, 1, None) - _part(x, 0, None, -1)
    gaps = apply("reshape", gaps, shape=tuple(gaps.shape[0] if k == axis else 1 for k in range(f.ndim)))
    left, right = _part(gaps, axis, None, -1), _part(gaps, axis, 1, None)
    before, here, after = (_part(f, axis, k, stop) for k, stop in ((0, -2), (1, -1), (2, None)))
    inner = (
        before * (-right / (left * (left + right)))
        + here * ((right - left) / (left * right))
        + after * (left / (right * (left + right)))
    )
    first = (_part(f, axis, 1, 2) - _part(f, axis, 0, 1)) / _part(gaps, axis, 0, 1)
    last = (_part(f, axis, -1, None) - _part(f, axis, -2, -1)) / _part(gaps, axis, -1, None)
    return apply("concatenate", first, inner, last, axis=axis)


def _gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.normal(size=6), np.cumsum(rng.uniform(0.5, 1.5, 6))), {"axis": 0})
    yield Sample((rng.normal(size=(3, 5)), np.cumsum(rng.uniform(0.5, 1.5, 5))), {"axis": 1})
    yield Sample((rng.normal(size=(2, 3)), np.arange(2.0)), {"axis": 0})


op(
    "gradient", lambda f, x, axis: np.gradient(f, x, axis=axis), aval=lambda f, x, axis: f,
    decompose=_gradient_decomposed, samples=_gradient_samples,
)  # fmt: skip
