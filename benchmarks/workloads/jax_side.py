"""The training steps in JAX: one jitted function per step, its buffers donated."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workloads.cases import CASES, DROPOUT, HAR_POOL, batch, weights

Parameters = dict[str, jax.Array]


def har(params: Parameters, x: jax.Array, key: jax.Array, rate: float, layout: str) -> jax.Array:
    """Return logits (N, 7); ``layout`` is "NWC" or "NCW", which the input and the kernels then have."""
    kernel = {"NWC": "WIO", "NCW": "OIW"}[layout]
    axis = layout.index("W")
    for i in range(1, 5):
        x = jax.lax.conv_general_dilated(x, params[f"w{i}"], (1,), "VALID", dimension_numbers=(layout, kernel, layout))
        bias = params[f"b{i}"]
        x = jax.nn.relu(x + (bias if layout == "NWC" else bias[:, None]))
        if i == 2:
            x = pool(x, axis)
    x = x.mean(axis=axis)
    if rate:
        kept = jax.random.bernoulli(key, 1.0 - rate, x.shape)
        x = jnp.where(kept, x / (1.0 - rate), 0.0)
    return x @ params["w5"] + params["b5"]


def pool(x: jax.Array, axis: int) -> jax.Array:
    """Return the maxima of disjoint windows; as a reshape, whose gradient needs no select-and-scatter."""
    windows = x.shape[axis] // HAR_POOL
    x = jax.lax.slice_in_dim(x, 0, windows * HAR_POOL, axis=axis)
    return x.reshape(*x.shape[:axis], windows, HAR_POOL, *x.shape[axis + 1 :]).max(axis=axis + 1)


def mlp(params: Parameters, x: jax.Array) -> jax.Array:
    """Return logits (N, 10)."""
    x = jax.nn.relu(x @ params["w1"] + params["b1"])
    x = jax.nn.relu(x @ params["w2"] + params["b2"])
    return x @ params["w3"] + params["b3"]


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean loss."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()


def loss_of(model: str, rate: float, layout: str) -> Callable[..., jax.Array]:
    """Return ``loss(params, x, y, key)`` of a case."""

    def loss(params: Parameters, x: jax.Array, y: jax.Array, key: jax.Array) -> jax.Array:
        if model == "har":
            return cross_entropy(har(params, x, key, rate, layout), y)
        if model == "mlp":
            return cross_entropy(mlp(params, x), y)
        z = x @ params["w1"] + params["b1"]
        return (jnp.logaddexp(0.0, z) - z * y).mean()

    return loss


def updater(name: str, rate: float) -> Callable[..., tuple[Parameters, tuple]]:
    """Return ``update(params, grads, state)``; the state of Adam is (step, first moments, second moments)."""

    def sgd(params: Parameters, grads: Parameters, state: tuple) -> tuple[Parameters, tuple]:
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), state

    def adam(params: Parameters, grads: Parameters, state: tuple) -> tuple[Parameters, tuple]:
        t, m, v = state
        t = t + 1.0
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        first, second = 1.0 - 0.9**t, 1.0 - 0.999**t
        params = jax.tree.map(lambda p, m, v: p - rate * (m / first) / (jnp.sqrt(v / second) + 1e-8), params, m, v)
        return params, (t, m, v)

    return adam if name == "adam" else sgd


class TrainingStep:
    """One jitted step; ``layout`` ("NWC" or "NCW") is that of the convolutions."""

    def __init__(self, case: str, layout: str = "NWC") -> None:
        self.case, self.layout = CASES[case], layout
        self.step = self._build(DROPOUT[self.case.model])

    def check(self, steps: int) -> list[float]:
        """Return the first losses without dropout, from the common initial weights."""
        step = self._build(0.0)
        return [float(step()) for _ in range(steps)]

    def _build(self, dropout: float) -> Callable[[], jax.Array]:
        case, model = self.case, self.case.model
        gradient = jax.value_and_grad(loss_of(model, dropout, self.layout))
        update = updater(case.optimizer, case.rate)

        def train(params: Parameters, state: tuple, key: jax.Array, x: jax.Array, y: jax.Array) -> tuple:
            key, now = jax.random.split(key)
            loss, grads = gradient(params, x, y, now)
            params, state = update(params, grads, state)
            return params, state, key, loss

        jitted = jax.jit(train, donate_argnums=(0, 1, 2))
        x, y = batch(model)
        initial = weights(model)
        if model == "har" and self.layout == "NCW":
            x = np.ascontiguousarray(x.transpose(0, 2, 1))
            initial = {k: np.ascontiguousarray(w.transpose(2, 1, 0)) if w.ndim == 3 else w for k, w in initial.items()}
        params = {k: jnp.array(w) for k, w in initial.items()}
        zeros = {k: jnp.zeros_like(w) for k, w in params.items()}
        state = (jnp.zeros(()), zeros, jax.tree.map(jnp.copy, zeros)) if case.optimizer == "adam" else ()
        held = [params, state, jax.random.key(0)]
        inputs = jnp.array(x), jnp.array(y)

        def step() -> jax.Array:
            *held[:], loss = jitted(*held, *inputs)
            return jax.block_until_ready((held, loss))[1]

        return step
