"""Programs to be traced, not run: the same in futurex and in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads.cases import batch, weights

CASES = {
    "har": "value and gradient of the loss of the HAR network",
    "chain": "300 times tanh(a x + 0.1), unrolled",
    "stencil": "12 rounds of a five-point stencil written into an array",
    "attention": "value and gradient of two attention blocks with four heads",
}
COEFFICIENTS = tuple(float(value) for value in np.linspace(0.9, 1.1, 300))
HEADS, WIDTH = 4, 32


def chain_in(xp: Any) -> Callable[[Any], Any]:
    """A long chain of small operations."""

    def chain(x: Any) -> Any:
        for a in COEFFICIENTS:
            x = xp.tanh(a * x + 0.1)
        return x.sum()

    return chain


def attention_in(xp: Any) -> Callable[..., Any]:
    """A loss on top of two blocks of self-attention."""

    def block(x: Any, w: Any) -> Any:
        n = x.shape[0]
        q, k, v = ((x @ w[i]).reshape(n, HEADS, -1).transpose(1, 0, 2) for i in range(3))
        scores = q @ k.transpose(0, 2, 1) / xp.sqrt(np.float32(WIDTH / HEADS))
        scores = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        x = x + mixed.transpose(1, 0, 2).reshape(n, WIDTH) @ w[3]
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-5))

    def loss(params: Any, x: Any) -> Any:
        for w in params:
            x = block(x, w)
        return (x * x * x).mean()

    return loss


def stencil(u: Any) -> Any:
    """Jacobi's rounds in NumPy's way."""
    u = u.copy()
    for _ in range(12):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def stencil_in_jax(u: Any) -> Any:
    """Jacobi's rounds in JAX's way."""
    for _ in range(12):
        u = u.at[1:-1, 1:-1].set(0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]))
    return u


def arguments(case: str) -> tuple[Any, ...]:
    """Return the arguments of a case, as NumPy arrays."""
    rng = np.random.default_rng(0)
    if case == "har":
        return (weights("har"), *batch("har"))
    if case == "attention":
        params = [[rng.standard_normal((WIDTH, WIDTH), np.float32) for _ in range(4)] for _ in range(2)]
        return params, rng.standard_normal((16, WIDTH), np.float32)
    return (rng.standard_normal((32, 32), np.float32),)


class FuturexTrace:
    """The tree of a call; with ``compiled`` also the passes and the plan."""

    def __init__(self, case: str, compiled: bool = False) -> None:
        from benchmarks.workloads.futurex_side import loss_of

        self._compiled = compiled
        self._arguments = arguments(case)
        if case == "har":
            loss = loss_of("har", 0.0)
            self._function: Any = lambda params, x, y: loss(params, x, y, None)
        else:
            self._function = {"chain": chain_in(np), "stencil": stencil, "attention": attention_in(np)}[case]
        self._differentiated = case in ("har", "attention")

    def check(self) -> int:
        """Return the number of nodes."""
        return len(self.step().nodes)

    def step(self) -> Any:
        """Trace once, from nothing: a new function each time, so that no cache knows it."""
        import futurex as fx
        from futurex.runtime.plan import compile_plan

        def fresh(*args: Any) -> Any:
            return self._function(*args)

        make = fx.value_and_grad if self._differentiated else fx.futurize
        graph = make(fresh).graph(*self._arguments)
        return compile_plan(graph).graph if self._compiled else graph


class JaxTrace:
    """The jaxpr of a call; with ``compiled`` its lowering to StableHLO."""

    def __init__(self, case: str, compiled: bool = False) -> None:
        import jax

        from benchmarks.workloads.jax_side import loss_of

        self._jax, self._compiled = jax, compiled
        self._arguments = jax.tree.map(jax.numpy.asarray, arguments(case))
        if case == "har":
            loss = loss_of("har", 0.0, "NWC")
            function: Any = jax.value_and_grad(lambda params, x, y: loss(params, x, y, None))
        elif case == "attention":
            function = jax.value_and_grad(attention_in(jax.numpy))
        else:
            function = chain_in(jax.numpy) if case == "chain" else stencil_in_jax
        self._function = function

    def check(self) -> int:
        """Return the number of equations, those of inner jaxprs too."""
        return _equations(self._jax.make_jaxpr(self._function)(*self._arguments).jaxpr)

    def step(self) -> Any:
        """Trace once; a new function each time, so that no cache knows it."""

        def fresh(*args: Any) -> Any:
            return self._function(*args)

        if self._compiled:
            return self._jax.jit(fresh).lower(*self._arguments)
        return self._jax.make_jaxpr(fresh)(*self._arguments)


def _equations(jaxpr: Any) -> int:
    inner = [value for each in jaxpr.eqns for value in each.params.values() if hasattr(value, "jaxpr")]
    return len(jaxpr.eqns) + sum(_equations(value.jaxpr) for value in inner)
