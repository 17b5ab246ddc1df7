"""Training steps of the larger networks in JAX: one jitted function per step, channels-last, its buffers donated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.workloads import networks
from benchmarks.workloads.jax_side import cross_entropy

Params = Any


def _conv(x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
    pads = ((padding, padding),) * 2
    return lax.conv_general_dilated(x, w, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _pool(x: Any, window: int, stride: int, pads: tuple[int, int] = (0, 0)) -> Any:
    padding = ((0, 0), pads, pads, (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, window, window, 1), (1, stride, stride, 1), padding)


def _dense(layer: Params, x: Any) -> Any:
    return x @ layer["w"] + layer["b"]


def _dropout(x: Any, rate: float, key: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 1.0 - rate, x.shape), x / (1.0 - rate), 0.0) if rate else x


class _Units:
    """Convolutions with batch normalisation; ``moments`` are those of the batch, in the order in which they are met."""

    def __init__(self, eps: float) -> None:
        self.eps, self.moments = eps, []

    def __call__(self, layer: Params, x: Any, stride: int = 1, padding: int = 0) -> Any:
        y = _conv(x, layer["w"], stride, padding)
        mean = y.mean(axis=(0, 1, 2))
        var = jnp.mean(y * y, axis=(0, 1, 2)) - mean * mean
        size = y.size // y.shape[-1]
        self.moments.append((mean, var * (size / (size - 1))))
        return (y - mean) * (layer["scale"] * lax.rsqrt(var + self.eps)) + layer["shift"]


def _alexnet(params: Params, x: Any, rate: float, key: Any) -> tuple[Any, Any]:
    for number, (stride, padding) in enumerate(networks.CONVOLUTIONS, 1):
        layer = params[f"conv{number}"]
        x = jax.nn.relu(_conv(x, layer["w"], stride, padding) + layer["b"])
        if number in (1, 2, 5):
            x = _pool(x, 3, 2)
    x = x.reshape(len(x), -1)
    for number, own in zip((1, 2), jax.random.split(key), strict=True):
        x = jax.nn.relu(_dense(params[f"dense{number}"], _dropout(x, rate, own)))
    return _dense(params["dense3"], x), ()


def _resnet50(params: Params, x: Any, rate: float, key: Any) -> tuple[Any, Any]:
    unit = _Units(1e-5)
    x = _pool(jax.nn.relu(unit(params["stem"], x, 2, 3)), 3, 2, (1, 1))
    for number, stage in enumerate(params["stages"]):
        for position, block in enumerate(stage):
            stride = 2 if number and position == 0 else 1
            y = jax.nn.relu(unit(block["conv1"], x))
            y = unit(block["conv3"], jax.nn.relu(unit(block["conv2"], y, stride, 1)))
            x = jax.nn.relu(y + (unit(block["shortcut"], x, stride) if "shortcut" in block else x))
    return _dense(params["dense"], x.mean(axis=(1, 2))), unit.moments


def _googlenet(params: Params, x: Any, rate: float, key: Any) -> tuple[Any, Any]:
    norm = _Units(1e-3)

    def unit(layer: Params, x: Any, stride: int = 1, padding: int = 0) -> Any:
        return jax.nn.relu(norm(layer, x, stride, padding))

    def pool(x: Any, window: int) -> Any:
        return _pool(x, window, 2, (0, (x.shape[1] - window) % 2))

    x = unit(params["stem2"], pool(unit(params["stem1"], x, 2, 3), 3))
    x = pool(unit(params["stem3"], x, 1, 1), 3)
    for name in networks.INCEPTIONS:
        block = params[name]
        second = unit(block["second2"], unit(block["second1"], x), 1, 1)
        third = unit(block["third2"], unit(block["third1"], x), 1, 1)
        pooled = unit(block["pooled"], _pool(x, 3, 1, (1, 1)))
        x = jnp.concatenate([unit(block["alone"], x), second, third, pooled], axis=-1)
        if name in networks.POOLED_AFTER:
            x = pool(x, networks.POOLED_AFTER[name])
    return _dense(params["dense"], _dropout(x.mean(axis=(1, 2)), rate, key)), norm.moments


def _lstm(params: Params, x: Any, rate: float, key: Any) -> tuple[Any, Any]:
    x = x.swapaxes(0, 1)
    for layer in params["layers"]:
        given = x @ layer["w"] + layer["b"]

        def cell(carry: Any, z: Any, u: Any = layer["u"]) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(z + h @ u, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[1], layer["u"].shape[0]), x.dtype)
        x = lax.scan(cell, (zeros, zeros), given)[1]
    return _dense(params["dense"], x[-1]), ()


def _norm(layer: Params, x: Any) -> Any:
    mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * layer["scale"] + layer["shift"]


def _transformer(params: Params, x: Any, rate: float, key: Any) -> tuple[Any, Any]:
    weights = params["attention"]["w"]
    y = jnp.einsum("ntw,wphs->pnths", _norm(params["norm1"], x), weights) + params["attention"]["b"][:, None, None]
    mixed = jax.nn.dot_product_attention(*y)
    x = x + _dense(params["mix"], mixed.reshape(x.shape))
    y = jax.nn.gelu(_dense(params["dense1"], _norm(params["norm2"], x)))
    return x + _dense(params["dense2"], y), ()


_APPLY = {
    "alexnet": _alexnet, "googlenet": _googlenet, "resnet50": _resnet50, "lstm": _lstm, "transformer": _transformer,
}  # fmt: skip


class TrainingStep:
    """One jitted step."""

    def __init__(self, name: str, weights: str) -> None:
        self.name, self.weights = name, weights
        self.step = self._build(networks.NETWORKS[name].dropout)

    def check(self, steps: int) -> list[float]:
        """Return the first losses without dropout."""
        step = self._build(0.0)
        return [float(step()) for _ in range(steps)]

    def forget_peak(self) -> None:
        """Begin to measure peak memory."""
        networks.forget_peak()

    def peak(self) -> int:
        """Return peak memory in bytes."""
        return networks.peak()

    def _build(self, dropout: float) -> Callable[[], Any]:
        name, network = self.name, networks.NETWORKS[self.name]

        def loss(params: Params, running: Any, x: Any, y: Any, key: Any) -> Any:
            out, moments = _APPLY[name](params, x, dropout, key)
            running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, running, moments) if moments else running
            return jnp.mean((out - y) ** 2) if name == "transformer" else cross_entropy(out, y), running

        gradient = jax.value_and_grad(loss, has_aux=True)

        def momentum(params: Params, grads: Params, state: Any) -> Any:
            state = jax.tree.map(lambda v, g: networks.MOMENTUM * v + g, state, grads)
            return jax.tree.map(lambda p, v: p - network.rate * v, params, state), state

        def adam(params: Params, grads: Params, state: Any) -> Any:
            t, m, v = state
            t = t + 1.0
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
            first, second = 1.0 - 0.9**t, 1.0 - 0.999**t
            moved = jax.tree.map(
                lambda p, m, v: p - network.rate * (m / first) / (jnp.sqrt(v / second) + 1e-8), params, m, v
            )
            return moved, (t, m, v)

        update = adam if network.optimizer == "adam" else momentum

        def train(params: Params, running: Any, state: Any, key: Any, x: Any, y: Any) -> tuple:
            key, now = jax.random.split(key)
            (value, running), grads = gradient(params, running, x, y, now)
            params, state = update(params, grads, state)
            return params, running, state, key, value

        jitted = jax.jit(train, donate_argnums=(0, 1, 2, 3))
        params = jax.tree.map(jnp.array, networks.read_weights(self.weights))
        x, y = map(jnp.array, networks.batch(name))
        moments = jax.eval_shape(lambda: _APPLY[name](params, x, 0.0, jax.random.key(0))[1])
        running = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), moments)
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = (jnp.zeros(()), zeros, jax.tree.map(jnp.copy, zeros)) if network.optimizer == "adam" else zeros
        held = [params, running, state, jax.random.key(0)]

        def step() -> Any:
            *held[:], value = jitted(*held, x, y)
            return jax.block_until_ready((held, value))[1]

        return step
