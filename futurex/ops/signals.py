"""Discrete convolution and correlation of one-dimensional arrays, and piecewise linear interpolation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
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
    last = xp.shape[0] - 1
    place = apply("native", xp, x, call="np.searchsorted(_0, _1, side='right')")
    low = apply("maximum", apply("minimum", place - 1, last - 1), 0)
    x0, x1, f0, f1 = (_rows(table, k) for table in (xp, fp) for k in (low, apply("minimum", low + 1, last)))
    step = where(apply("equal", x1, x0), 1.0, x1 - x0)
    inside = f0 + (f1 - f0) * ((x - x0) / step)
    left, right = outside or (_edge(fp, 0), _edge(fp, last))
    return where(apply("less", x, _edge(xp, 0)), left, where(apply("greater", x, _edge(xp, last)), right, inside))


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
