"""Contractions with what follows them, a bias over the last axis and an activation. Passes make them, users do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Op, Sample, op, record

ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Node], Node]]] = {
    "none": (lambda y: y, lambda y: y),
    "relu": (lambda y: np.maximum(y, 0), lambda y: apply("maximum", y, 0)),
    "tanh": (np.tanh, lambda y: apply("tanh", y)),
    "sigmoid": (lambda y: 1.0 / (1.0 + np.exp(-y)), lambda y: 1.0 / (1.0 + apply("exp", -y))),
}
"""What each activation computes, and its meaning in simpler ops."""


def _record(name: str) -> Op:
    """The op ``<name>_epilogue(x, w, b; activation, **attributes of <name>)``."""
    plain = record(name)

    def kernel(x: Any, w: Any, b: Any, activation: str, **attrs: Any) -> Any:
        return ACTIVATIONS[activation][0](plain.kernel(x, w, **attrs) + b)

    def decompose(x: Node, w: Node, b: Node, activation: str, **attrs: Any) -> Node:
        return ACTIVATIONS[activation][1](apply(name, x, w, **attrs) + b)

    def aval(x: Aval, w: Aval, b: Aval, activation: str, **attrs: Any) -> Aval:
        out = plain.infer((x, w), (None, None), attrs)
        assert isinstance(out, Aval)
        if activation not in ACTIVATIONS:
            raise ValueError(f"no activation is named {activation!r}; there are {', '.join(ACTIVATIONS)}")
        if b.shape != out.shape[-1:] or out.dtype.kind != "f":
            raise ValueError(
                f"{name}_epilogue needs floats and a bias of shape {out.shape[-1:]}, got {b!r} for {out!r}"
            )
        return Aval(out.shape, np.result_type(out.dtype, b.dtype))

    def cost(x: Aval, w: Aval, b: Aval, activation: str, **attrs: Any) -> Cost:
        out = aval(x, w, b, activation, **attrs)
        product = plain.work((x, w), out, attrs)
        return Cost(product.flops + 10.0 * out.size, product.bytes + b.nbytes)

    def factors(x: Aval, w: Aval, b: Aval, activation: str, **attrs: Any) -> str:
        """As the contraction, but what it sums over is whole: a partial sum has neither bias nor activation."""
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
    """Those of the contraction that are floating matrices or larger, with a bias and each activation."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for sample in plain.samples(rng) if plain.samples else ():
            x, w = sample.inputs
            if x.dtype.kind == "f" and x.size and w.ndim > 1 and x.ndim > 1:
                bias = rng.normal(size=w.shape[-1]).astype(w.dtype)
                for activation in ("none", "tanh", "sigmoid"):
                    yield Sample((x, w, bias), {**sample.attrs, "activation": activation}, order=min(sample.order, 1))

    return samples


for _name in ("matmul", "conv"):
    _record(_name)
