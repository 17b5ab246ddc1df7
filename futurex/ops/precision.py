"""Products of numbers with fewer bits: operands and results are stored narrow, sums are taken in single precision.

Formats: ``float16`` (IEEE binary16), ``bfloat16`` (the upper half of a single, stored as uint16), ``tfloat32`` (a
single whose last 13 bits are zero). All round to the nearest, ties to even. A pass makes these nodes after everything
was differentiated; they have no derivative.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op, record

STORAGE: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16), "bfloat16": np.dtype(np.uint16), "tfloat32": np.dtype(np.float32),
}  # fmt: skip
"""The dtype in which each format lies in memory."""

PRODUCTS = frozenset(("matmul", "dot", "inner", "einsum", "vecdot", "matvec", "vecmat", "conv", "conv_input_grad",
                      "conv_weight_grad"))  # fmt: skip
"""What is computed narrow: the operations that matrix units do."""

_SINGLE = np.dtype(np.float32)


def _rounded_bits(x: Any, dropped: int) -> Any:
    """The bits of singles, rounded so that the last ``dropped`` are free; NaN stays NaN."""
    bits = x.view(np.uint32)
    half, one = np.uint32((1 << (dropped - 1)) - 1), np.uint32(1)
    rounded = bits + (half + ((bits >> np.uint32(dropped)) & one))
    return np.where(np.isnan(x), bits | np.uint32(1 << 22), rounded)


def _narrow(x: Any, to: str) -> Any:
    x = np.asarray(x)
    if to == "float16":
        with np.errstate(over="ignore", under="ignore"):
            return x.astype(np.float16)
    if to == "bfloat16":
        return (_rounded_bits(x, 16) >> np.uint32(16)).astype(np.uint16)
    return (_rounded_bits(x, 13) & np.uint32(0xFFFFE000)).view(np.float32)


def _widen(x: Any, to: str) -> Any:
    x = np.asarray(x)
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32) if to == "bfloat16" else x.astype(np.float32)


def _checked(to: str) -> np.dtype[Any]:
    if to not in STORAGE:
        raise ValueError(f"{to!r} is no format; there are {', '.join(STORAGE)}")
    return STORAGE[to]


def _narrow_aval(x: Aval, to: str) -> Aval:
    if x.dtype != _SINGLE:
        raise TypeError(f"only single precision is stored narrow, not {x.dtype}")
    return Aval(x.shape, _checked(to))


def _widen_aval(x: Aval, to: str) -> Aval:
    if x.dtype != _checked(to):
        raise TypeError(f"{to} is stored as {STORAGE[to]}, not as {x.dtype}")
    return Aval(x.shape, _SINGLE)


def _special(rng: np.random.Generator) -> Any:
    x = (rng.normal(size=(3, 6)) * 10.0 ** rng.integers(-9, 9, (3, 6))).astype(np.float32)
    x[0] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0 + 2.0**-8]
    return x


op(
    "narrow", _narrow, aval=_narrow_aval, factors="elementwise",
    samples=lambda rng: [Sample((_special(rng),), {"to": to}, order=0) for to in STORAGE],
)  # fmt: skip
op(
    "widen", _widen, aval=_widen_aval, factors="elementwise",
    samples=lambda rng: [Sample((_narrow(_special(rng), to),), {"to": to}, order=0) for to in STORAGE],
)  # fmt: skip


def _wide(avals: Iterable[Aval]) -> list[Aval]:
    return [Aval(aval.shape, _SINGLE) for aval in avals]


def _product(*inputs: Any, product: str, to: str, **attrs: Any) -> Any:
    return _narrow(record(product).kernel(*(_widen(x, to) for x in inputs), **attrs), to)


def _product_aval(*avals: Aval, product: str, to: str, **attrs: Any) -> Aval:
    for aval in avals:
        _widen_aval(aval, to)
    out = record(product).infer(tuple(_wide(avals)), (None,) * len(avals), attrs)
    assert isinstance(out, Aval)
    return Aval(out.shape, STORAGE[to])


def _product_factors(*avals: Aval, product: str, to: str, **attrs: Any) -> str:
    """As the product, but what it sums over is whole: partial sums would be rounded too early."""
    plain, wide = record(product), _wide(avals)
    if plain.shape_attr is not None or not callable(plain.factors):
        ndim = _product_aval(*avals, product=product, to=to, **attrs).ndim
        parts = [" ".join(f"!i{n}_{k}" for k in range(aval.ndim)) for n, aval in enumerate(avals)]
        return f"{', '.join(parts)} -> {' '.join(f'!o{k}' for k in range(ndim))}"
    inputs, out = plain.factors(*wide, **attrs).split("->")
    kept = set(out.split())
    whole = [
        " ".join(each if each in kept or each[0] in "!1" else f"!{each}" for each in part.split())
        for part in inputs.split(",")
    ]
    return f"{', '.join(whole)} -> {out.strip()}"


def product_parts(*inputs: Node, product: str, to: str, **attrs: Any) -> Node:
    """The op in terms of the product in single precision."""
    return apply("narrow", apply(product, *(apply("widen", x, to=to) for x in inputs), **attrs), to=to)


def _product_cost(*avals: Aval, product: str, to: str, **attrs: Any) -> Cost:
    plain, wide = record(product), _wide(avals)
    work = plain.work(tuple(wide), plain.infer(tuple(wide), (None,) * len(wide), attrs), attrs)
    return Cost(work.flops, work.bytes * STORAGE[to].itemsize / _SINGLE.itemsize)


def _product_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 5), (5, 4)))
    for to in STORAGE:
        yield Sample((_narrow(x, to), _narrow(y, to)), {"product": "matmul", "to": to}, order=0)


op(
    "narrow_product", _product, aval=_product_aval, factors=_product_factors, cost=_product_cost,
    samples=_product_samples,
)  # fmt: skip
