"""Contractions with a bias over the last axis. Passes make them, users do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Op, Sample, op, record


def _record(name: str) -> Op:
    """The op ``<name>_epilogue(x, w, b; **attributes of <name>)``."""
    plain = record(name)

    def kernel(x: Any, w: Any, b: Any, **attrs: Any) -> Any:
        return plain.kernel(x, w, **attrs) + b

    def decompose(x: Node, w: Node, b: Node, **attrs: Any) -> Node:
        return apply(name, x, w, **attrs) + b

    def aval(x: Aval, w: Aval, b: Aval, **attrs: Any) -> Aval:
        out = plain.infer((x, w), (None, None), attrs)
        assert isinstance(out, Aval)
        if b.shape != out.shape[-1:] or out.dtype.kind != "f":
            raise ValueError(
                f"{name}_epilogue needs floats and a bias of shape {out.shape[-1:]}, got {b!r} for {out!r}"
            )
        return Aval(out.shape, np.result_type(out.dtype, b.dtype))

    def cost(x: Aval, w: Aval, b: Aval, **attrs: Any) -> Cost:
        out = aval(x, w, b, **attrs)
        product = plain.work((x, w), out, attrs)
        return Cost(product.flops + out.size, product.bytes + b.nbytes)

    def factors(x: Aval, w: Aval, b: Aval, **attrs: Any) -> str:
        """As the contraction, but what it sums over is whole: a partial sum has no bias."""
        assert callable(plain.factors)
        inputs, out = plain.factors(x, w, **attrs).split(" -> ")
        kept = set(out.split())
        whole = [
            " ".join(each if each in kept or each[0] in "!1" else f"!{each}" for each in part.split())
            for part in inputs.split(", ")
        ]
        return f"{', '.join(whole)}, {out.split()[-1]} -> {out}"

    return op(
        f"{name}_epilogue", kernel, aval=aval, decompose=decompose, factors=factors, cost=cost, samples=_samples(plain)
    )


def _samples(plain: Op) -> Callable[[np.random.Generator], Iterable[Sample]]:
    """Those of the contraction that are floating matrices or larger, with a bias."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for sample in plain.samples(rng) if plain.samples else ():
            x, w = sample.inputs
            if x.dtype.kind == "f" and x.size and w.ndim > 1 and x.ndim > 1:
                bias = rng.normal(size=w.shape[-1]).astype(w.dtype)
                yield Sample((x, w, bias), sample.attrs, order=min(sample.order, 1))

    return samples


for _name in ("matmul", "conv"):
    _record(_name)
