"""Training steps of small models: each model is written once, over the few functions in which the stacks differ."""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, Any]
_STEADY_SECONDS = 1.0  # after which every stack has compiled what it compiles
_SMALL = 1e-5  # what is added to a variance


class _Stack(ABC):
    """What a model is written with. ``np`` is the stack's own module of NumPy's functions; arrays are float32.

    Images and sequences are channels-last, (N, *places, C), and filters (*kernel, in, out), unless a stack arranges
    them otherwise before the clock starts.
    """

    np: Any

    @abstractmethod
    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, Arrays]]:
        """A function that returns the loss and its gradient in the first argument, a dict."""

    @abstractmethod
    def slope(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The derivative of a scalar function of one array, which can be differentiated again."""

    @abstractmethod
    def constant(self, x: Any) -> Any:
        """``x``, which no gradient passes."""

    @abstractmethod
    def softmax(self, x: Any) -> Any:
        """Over the last axis."""

    @abstractmethod
    def log_softmax(self, x: Any) -> Any:
        """Its logarithm."""

    @abstractmethod
    def sigmoid(self, x: Any) -> Any:
        """Of each element."""

    @abstractmethod
    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        """The mean over a batch with labels of integers."""

    @abstractmethod
    def conv(self, x: Any, w: Any, b: Any) -> Any:
        """Convolution with as many places as before, and the bias."""

    @abstractmethod
    def pool(self, x: Any) -> Any:
        """The largest of each 2 x 2 places."""

    def relu(self, x: Any) -> Any:
        """Nothing below zero."""
        return self.np.maximum(x, 0)

    def dense(self, x: Any, w: Any, b: Any) -> Any:
        """A linear layer."""
        return x @ w + b

    def dense_places(self, x: Any, w: Any) -> Any:
        """A linear layer that reads all places; ``w`` is (*places, in, out)."""
        return x.reshape(x.shape[0], -1) @ w.reshape(-1, w.shape[-1])

    def mean_places(self, x: Any) -> Any:
        """The mean over the places of a sequence."""
        return x.mean(1)

    def rows(self, table: Any, places: Any) -> Any:
        """The rows of a table by their places."""
        return table[places]

    def chosen(self, x: Any, columns: Any) -> Any:
        """One element of each row."""
        return self.np.take_along_axis(x, columns[:, None], 1)[:, 0]

    def layer_norm(self, x: Any, scale: Any) -> Any:
        """Mean zero and variance one along the last axis, times a scale."""
        away = x - x.mean(-1, keepdims=True)
        return away / self.np.sqrt((away * away).mean(-1, keepdims=True) + np.float32(_SMALL)) * scale

    def batch_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        """Mean zero and variance one over the batch, times a scale and shifted."""
        away = x - x.mean(0)
        return away / self.np.sqrt((away * away).mean(0) + np.float32(_SMALL)) * scale + shift

    def binary_cross_entropy(self, z: Any, y: Any) -> Any:
        """The mean over a batch of logits with labels 0 and 1."""
        return (self.np.logaddexp(np.float32(0), z) - z * y).mean()

    def zeros(self, *shape: int) -> Any:
        """An array of zeros."""
        return self.np.zeros(shape, np.float32)

    def eye(self, size: int) -> Any:
        """The identity matrix."""
        return self.np.eye(size, dtype=np.float32)

    def scan(self, cell: Callable[[Any, Any], Any], carry: Any, xs: Any) -> Any:
        """The last carry of ``carry = cell(carry, x)`` along the first axis of ``xs``."""
        for k in range(xs.shape[0]):
            carry = cell(carry, xs[k])
        return carry

    def repeat(self, function: Callable[[Any], Any], x: Any, count: int) -> Any:
        """``function`` applied ``count`` times."""
        for _ in range(count):
            x = function(x)
        return x


class FuturexStack(_Stack):
    """Plain NumPy with futurex's layers."""

    np = np

    def __init__(self) -> None:
        import futurex as fx

        self.fx = fx

    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, Arrays]]:
        return self.fx.value_and_grad(loss)

    def slope(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self.fx.grad(function)

    def constant(self, x: Any) -> Any:
        return self.fx.stop_gradient(x)

    def softmax(self, x: Any) -> Any:
        return self.fx.nn.softmax(x)

    def log_softmax(self, x: Any) -> Any:
        return self.fx.nn.log_softmax(x)

    def sigmoid(self, x: Any) -> Any:
        return self.fx.nn.sigmoid(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.fx.nn.softmax_cross_entropy(logits, labels).mean()

    def conv(self, x: Any, w: Any, b: Any) -> Any:
        return self.fx.nn.conv(x, w, padding="same") + b

    def pool(self, x: Any) -> Any:
        return self.fx.nn.max_pool(x, (2, 2))


class JaxStack(_Stack):
    """``jax.numpy``; a loop is ``lax.scan``, or ``unrolled`` into one long function."""

    def __init__(self, unrolled: bool = False) -> None:
        import jax

        self.jax, self.np, self.unrolled = jax, jax.numpy, unrolled

    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, Arrays]]:
        return self.jax.value_and_grad(loss)

    def slope(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self.jax.grad(function)

    def constant(self, x: Any) -> Any:
        return self.jax.lax.stop_gradient(x)

    def softmax(self, x: Any) -> Any:
        return self.jax.nn.softmax(x)

    def log_softmax(self, x: Any) -> Any:
        return self.jax.nn.log_softmax(x)

    def sigmoid(self, x: Any) -> Any:
        return self.jax.nn.sigmoid(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return -self.chosen(self.log_softmax(logits), labels).mean()

    def conv(self, x: Any, w: Any, b: Any) -> Any:
        layout = ("NWC", "WIO", "NWC") if x.ndim == 3 else ("NHWC", "HWIO", "NHWC")
        ones = (1,) * (x.ndim - 2)
        return self.jax.lax.conv_general_dilated(x, w, ones, "SAME", dimension_numbers=layout) + b

    def pool(self, x: Any) -> Any:
        """As a reshape, whose gradient needs no select-and-scatter."""
        n, rows, columns, channels = x.shape
        return x.reshape(n, rows // 2, 2, columns // 2, 2, channels).max(axis=(2, 4))

    def scan(self, cell: Callable[[Any, Any], Any], carry: Any, xs: Any) -> Any:
        if self.unrolled:
            return super().scan(cell, carry, xs)
        return self.jax.lax.scan(lambda carry, x: (cell(carry, x), None), carry, xs)[0]

    def repeat(self, function: Callable[[Any], Any], x: Any, count: int) -> Any:
        if self.unrolled:
            return super().repeat(function, x, count)
        return self.jax.lax.scan(lambda x, _: (function(x), None), x, length=count)[0]


class TorchStack(_Stack):
    """PyTorch, channels first; ``compiled`` differentiates by ``torch.func``, which a compiled step can hold."""

    def __init__(self, compiled: bool = False) -> None:
        import torch

        self.torch = self.np = torch
        self.functional, self.compiled = torch.nn.functional, compiled

    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, Arrays]]:
        if self.compiled:
            both = self.torch.func.grad_and_value(loss)
            return lambda params, *batch: both(params, *batch)[::-1]

        def value_and_grad(params: Arrays, *batch: Any) -> tuple[Any, Arrays]:
            value = loss(params, *batch)
            grads = self.torch.autograd.grad(value, list(params.values()))
            return value.detach(), dict(zip(params, grads, strict=True))

        return value_and_grad

    def slope(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if self.compiled:
            return self.torch.func.grad(function)

        def slope(x: Any) -> Any:
            x = x if x.requires_grad else x.detach().requires_grad_()
            return self.torch.autograd.grad(function(x), x, create_graph=True)[0]

        return slope

    def constant(self, x: Any) -> Any:
        return x.detach()

    def softmax(self, x: Any) -> Any:
        return self.torch.softmax(x, -1)

    def log_softmax(self, x: Any) -> Any:
        return self.torch.log_softmax(x, -1)

    def sigmoid(self, x: Any) -> Any:
        return self.torch.sigmoid(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.functional.cross_entropy(logits, labels)

    def conv(self, x: Any, w: Any, b: Any) -> Any:
        return (self.functional.conv1d if x.ndim == 3 else self.functional.conv2d)(x, w, b, padding="same")

    def pool(self, x: Any) -> Any:
        return self.functional.max_pool2d(x, 2)

    def relu(self, x: Any) -> Any:
        return self.torch.relu(x)

    def dense(self, x: Any, w: Any, b: Any) -> Any:
        return self.torch.addmm(b, x, w) if x.ndim == 2 and w.ndim == 2 else x @ w + b

    def dense_places(self, x: Any, w: Any) -> Any:
        return x.flatten(1) @ w.flatten(1).T

    def mean_places(self, x: Any) -> Any:
        return x.mean(2)

    def rows(self, table: Any, places: Any) -> Any:
        return self.functional.embedding(places, table)

    def chosen(self, x: Any, columns: Any) -> Any:
        return x.gather(1, columns[:, None])[:, 0]

    def layer_norm(self, x: Any, scale: Any) -> Any:
        return self.functional.layer_norm(x, scale.shape, scale, eps=_SMALL)

    def batch_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return self.functional.batch_norm(x, None, None, scale, shift, training=True, eps=_SMALL)

    def binary_cross_entropy(self, z: Any, y: Any) -> Any:
        return self.functional.binary_cross_entropy_with_logits(z, y)

    def zeros(self, *shape: int) -> Any:
        return self.torch.zeros(shape)

    def eye(self, size: int) -> Any:
        return self.torch.eye(size)

    def scan(self, cell: Callable[[Any, Any], Any], carry: Any, xs: Any) -> Any:
        for x in xs.unbind():
            carry = cell(carry, x)
        return carry


@dataclass(frozen=True)
class Case:
    """One model: ``weights(rng)``, ``batch(rng)`` and ``loss(stack, weights, *batch)``, trained by ``optimizer``.

    ``images``: the first array of the batch and the weights of three and four axes have channels, which a stack may
    want in another place. ``loop``: its steps are equal, and a compiler may keep them or unroll them.
    """

    title: str
    weights: Callable[[np.random.Generator], Arrays]
    batch: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    loss: Callable[..., Any]
    optimizer: str = "sgd"
    rate: float = 1e-2
    images: bool = False
    loop: bool = False


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[:-1])))).astype(np.float32)


def _labels(rng: np.random.Generator, classes: int, *shape: int) -> np.ndarray:
    return rng.integers(0, classes, shape).astype(np.int32)


def _weights(**shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    """Return weights of these shapes: zeros along one axis or none, ones for a ``scale``, otherwise normal."""

    def make(rng: np.random.Generator) -> Arrays:
        return {
            name: np.ones(shape, np.float32) if name == "scale"
            else np.zeros(shape, np.float32) if len(shape) < 2
            else _normal(rng, *shape)
            for name, shape in shapes.items()
        }  # fmt: skip

    return make


def mlp(s: _Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Three layers."""
    h = s.relu(s.dense(x, p["w1"], p["b1"]))
    h = s.relu(s.dense(h, p["w2"], p["b2"]))
    return s.cross_entropy(s.dense(h, p["w3"], p["b3"]), y)


def pinn(s: _Stack, p: Arrays, t: Any) -> Any:
    """How far a network is from a solution of u'' + u = 0."""

    def u(t: Any) -> Any:
        h = s.np.tanh(s.dense(t, p["w1"], p["b1"]))
        return (s.np.tanh(s.dense(h, p["w2"], p["b2"])) @ p["w3"])[..., 0]

    first = s.slope(lambda t: u(t).sum())
    second = s.slope(lambda t: first(t).sum())(t)
    return ((second[:, 0] + u(t)) ** 2).mean()


def rnn(s: _Stack, p: Arrays, xs: Any, y: Any) -> Any:
    """A recurrent layer, of whose last state a class is read."""
    start = s.zeros(xs.shape[1], p["wh"].shape[0])
    h = s.scan(lambda h, x: s.np.tanh(x @ p["wx"] + s.dense(h, p["wh"], p["b"])), start, xs)
    return s.cross_entropy(h @ p["wo"], y)


def lstm(s: _Stack, p: Arrays, xs: Any, y: Any) -> Any:
    """The same with an LSTM."""
    width = p["wh"].shape[0]

    def cell(carry: tuple[Any, Any], x: Any) -> tuple[Any, Any]:
        h, c = carry
        z = x @ p["wx"] + s.dense(h, p["wh"], p["b"])
        i, f, g, o = (z[:, k * width : (k + 1) * width] for k in range(4))
        c = s.sigmoid(f) * c + s.sigmoid(i) * s.np.tanh(g)
        return s.sigmoid(o) * s.np.tanh(c), c

    start = s.zeros(xs.shape[1], width)
    h, _ = s.scan(cell, (start, start), xs)
    return s.cross_entropy(h @ p["wo"], y)


def attention(s: _Stack, p: Arrays, x: Any, y: Any) -> Any:
    """One block: attention, layer norm, two layers, and a class of the mean."""
    q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
    x = x + s.softmax(q @ s.np.swapaxes(k, -1, -2) * 0.25) @ v @ p["o"]
    x = s.layer_norm(x, p["scale"])
    x = s.relu(x @ p["w1"]) @ p["w2"] + x
    return s.cross_entropy(x.mean(1) @ p["c"], y)


def embedding(s: _Stack, p: Arrays, words: Any, y: Any) -> Any:
    """The next word of four."""
    h = s.rows(p["table"], words).reshape(words.shape[0], -1)
    return s.cross_entropy(s.relu(s.dense(h, p["w"], p["b"])) @ p["o"], y)


def batch_norm(s: _Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Two layers with batch norm between them."""
    return s.cross_entropy(s.relu(s.batch_norm(x @ p["w1"], p["scale"], p["b"])) @ p["w2"], y)


def actor_critic(s: _Stack, p: Arrays, state: Any, action: Any, reward: Any) -> Any:
    """A policy, its entropy and a value, over one hidden layer."""
    h = s.np.tanh(s.dense(state, p["w1"], p["b1"]))
    logs, value = s.log_softmax(h @ p["policy"]), (h @ p["value"])[:, 0]
    ahead = reward - value
    entropy = -(s.np.exp(logs) * logs).sum(-1).mean()
    # The batch never changes: by probabilities, and with what is ahead held, the loss has a bound; by logarithms not.
    gain = s.np.exp(s.chosen(logs, action)) * s.constant(ahead)
    return -gain.mean() + 0.5 * (ahead**2).mean() - 0.01 * entropy


def neural_ode(s: _Stack, p: Arrays, start: Any, target: Any) -> Any:
    """Ten steps of Runge and Kutta along a network's field."""

    def field(y: Any) -> Any:
        return s.np.tanh(s.dense(y, p["w1"], p["b1"])) @ p["w2"]

    def step(y: Any) -> Any:
        k1 = field(y)
        k2 = field(y + 0.05 * k1)
        k3 = field(y + 0.05 * k2)
        k4 = field(y + 0.1 * k3)
        return y + (0.1 / 6) * (k1 + 2 * k2 + 2 * k3 + k4)

    return ((s.repeat(step, start, 10) - target) ** 2).mean()


def factorization(s: _Stack, p: Arrays, row: Any, column: Any, rating: Any) -> Any:
    """Elements of a matrix as products of two thin ones."""
    return (((s.rows(p["u"], row) * s.rows(p["v"], column)).sum(-1) - rating) ** 2).mean()


def kalman(s: _Stack, p: Arrays, z: Any) -> Any:
    """Minus the logarithm of the likelihood of a filter of four states and two measurements."""
    inner, outer = s.eye(4), s.eye(2)
    f, h = inner + p["a"], p["h"]
    q, r = inner * s.np.exp(p["q"]), outer * s.np.exp(p["r"])

    def step(carry: tuple[Any, Any, Any], z: Any) -> tuple[Any, Any, Any]:
        x, cov, loss = carry
        x = f @ x
        cov = f @ cov @ f.T + q
        spread = h @ cov @ h.T + r
        gain = cov @ h.T @ s.np.linalg.inv(spread)
        error = z - h @ x
        loss = loss + 0.5 * (error @ s.np.linalg.solve(spread, error)) + 0.5 * s.np.log(s.np.linalg.det(spread))
        return x + gain @ error, cov - gain @ h @ cov, loss

    return s.scan(step, (s.zeros(4), inner, s.zeros()), z)[2]


def gaussian_process(s: _Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Minus the logarithm of the likelihood of 30 points."""
    apart = (x[:, None] - x[None, :]) ** 2
    near = s.np.exp(-apart / s.np.exp(p["length"])) * s.np.exp(p["size"])
    cov = near + s.eye(x.shape[0]) * s.np.exp(p["noise"])
    root = s.np.linalg.cholesky(cov)
    return 0.5 * (y @ s.np.linalg.solve(cov, y)) + s.np.log(s.np.diag(root)).sum()


def conv_1d(s: _Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Two convolutions and the mean over the places."""
    h = s.relu(s.conv(x, p["w1"], p["b1"]))
    h = s.relu(s.conv(h, p["w2"], p["b2"]))
    return s.cross_entropy(s.mean_places(h) @ p["c"], y)


def digits(s: _Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Two convolutions, each with a pooling."""
    h = s.pool(s.relu(s.conv(x, p["w1"], p["b1"])))
    h = s.pool(s.relu(s.conv(h, p["w2"], p["b2"])))
    return s.cross_entropy(s.dense_places(h, p["w3"]), y)


def logistic(s: _Stack, p: Arrays, x: Any, y: Any) -> Any:
    """The logistic regression."""
    return s.binary_cross_entropy(x @ p["w"] + p["b"], y)


def autoencoder(s: _Stack, p: Arrays, x: Any) -> Any:
    """Two layers there, two layers back."""
    code = s.np.tanh(x @ p["e1"]) @ p["e2"]
    return ((s.np.tanh(code @ p["d1"]) @ p["d2"] - x) ** 2).mean()


def _classes(classes: int, *shape: int, rows: int | None = None) -> Callable[..., tuple[np.ndarray, ...]]:
    """Return a batch of normal inputs with labels for ``rows`` of them, all unless given."""
    count = shape[0] if rows is None else rows
    return lambda rng: (rng.standard_normal(shape).astype(np.float32), _labels(rng, classes, count))


_MLP = (
    _weights(w1=(32, 32), b1=(32,), w2=(32, 32), b2=(32,), w3=(32, 10), b3=(10,)),
    _classes(10, 32, 32),
    mlp,
)
CASES = {
    "mlp": Case("MLP 32-32-32-10, batch 32, SGD", *_MLP),
    "mlp-adam": Case("MLP 32-32-32-10, batch 32, Adam", *_MLP, "adam", 1e-3),
    "pinn": Case(
        "physics-informed network 1-16-16-1, 32 points",
        _weights(w1=(1, 16), b1=(16,), w2=(16, 16), b2=(16,), w3=(16, 1)),
        lambda rng: (rng.random((32, 1)).astype(np.float32),),
        pinn, rate=1e-3,
    ),
    "rnn": Case(
        "RNN of 16, 20 steps, batch 8",
        _weights(wx=(8, 16), wh=(16, 16), b=(16,), wo=(16, 4)), _classes(4, 20, 8, 8, rows=8), rnn, loop=True,
    ),
    "lstm": Case(
        "LSTM of 16, 20 steps, batch 8",
        _weights(wx=(8, 64), wh=(16, 64), b=(64,), wo=(16, 4)), _classes(4, 20, 8, 8, rows=8), lstm, loop=True,
    ),
    "attention": Case(
        "attention block, 4 x 8 x 16",
        _weights(q=(16, 16), k=(16, 16), v=(16, 16), o=(16, 16), scale=(16,), w1=(16, 32), w2=(32, 16), c=(16, 4)),
        _classes(4, 4, 8, 16), attention,
    ),
    "embedding": Case(
        "embedding of 50 words, batch 16",
        _weights(table=(50, 8), w=(32, 16), b=(16,), o=(16, 50)),
        lambda rng: (_labels(rng, 50, 16, 4), _labels(rng, 50, 16)), embedding,
    ),
    "batch-norm": Case(
        "batch norm, 16-32-4, batch 16",
        _weights(w1=(16, 32), scale=(32,), b=(32,), w2=(32, 4)), _classes(4, 16, 16), batch_norm,
    ),
    "actor-critic": Case(
        "actor-critic 4-32-2, 20 steps",
        _weights(w1=(4, 32), b1=(32,), policy=(32, 2), value=(32, 1)),
        lambda rng: (*_classes(2, 20, 4)(rng), rng.standard_normal(20).astype(np.float32)), actor_critic, rate=1e-3,
    ),
    "neural-ode": Case(
        "neural ODE 2-16-2, 10 steps of RK4, batch 16",
        _weights(w1=(2, 16), b1=(16,), w2=(16, 2)),
        lambda rng: (_normal(rng, 16, 2), _normal(rng, 16, 2)), neural_ode, loop=True,
    ),
    "factorization": Case(
        "matrix factorization 100 x 80, 64 ratings",
        _weights(u=(100, 8), v=(80, 8)),
        lambda rng: (_labels(rng, 100, 64), _labels(rng, 80, 64), rng.standard_normal(64).astype(np.float32)),
        factorization,
    ),
    "kalman": Case(
        "Kalman filter's likelihood, 12 steps",
        lambda rng: {"a": _normal(rng, 4, 4) * np.float32(0.1), "h": _normal(rng, 2, 4)} | _weights(q=(), r=())(rng),
        lambda rng: (_normal(rng, 12, 2),), kalman, rate=1e-3, loop=True,
    ),
    "gaussian-process": Case(
        "Gaussian process, 30 points",
        _weights(length=(), size=(), noise=()),
        lambda rng: (np.sort(rng.random(30)).astype(np.float32), rng.standard_normal(30).astype(np.float32)),
        gaussian_process, rate=1e-3,
    ),
    "conv-1d": Case(
        "1-D conv net, 4 x 32 x 4",
        _weights(w1=(3, 4, 8), b1=(8,), w2=(3, 8, 8), b2=(8,), c=(8, 4)), _classes(4, 4, 32, 4), conv_1d, images=True,
    ),
    "digits": Case(
        "2-D conv net on digits of 8 x 8, batch 16",
        _weights(w1=(3, 3, 1, 8), b1=(8,), w2=(3, 3, 8, 16), b2=(16,), w3=(2, 2, 16, 10)),
        _classes(10, 16, 8, 8, 1), digits, images=True,
    ),
    "logistic": Case(
        "logistic regression 100 x 10",
        _weights(w=(10,), b=()),
        lambda rng: (rng.standard_normal((100, 10)).astype(np.float32), _labels(rng, 2, 100).astype(np.float32)),
        logistic,
    ),
    "autoencoder": Case(
        "autoencoder 32-16-4-16-32, batch 16, Adam",
        _weights(e1=(32, 16), e2=(16, 4), d1=(4, 16), d2=(16, 32)),
        lambda rng: (rng.standard_normal((16, 32)).astype(np.float32),), autoencoder, "adam", 1e-3,
    ),
}  # fmt: skip


def initial(case: str) -> tuple[Arrays, tuple[np.ndarray, ...]]:
    """Return weights and the batch, the same in every process."""
    rng = np.random.default_rng(0)
    return CASES[case].weights(rng), CASES[case].batch(rng)


def train_step(s: _Stack, case: Case, update: Callable[..., tuple[Arrays, Any]]) -> Callable[..., Any]:
    """Return ``train(params, state, *batch)``, the step that is compiled: new weights, new state and the loss."""
    loss = case.loss
    value_and_grad = s.value_and_grad(lambda params, *batch: loss(s, params, *batch))

    def train(params: Arrays, state: Any, *batch: Any) -> tuple[Arrays, Any, Any]:
        value, grads = value_and_grad(params, *batch)
        params, state = update(params, grads, state)
        return params, state, value

    return train


def updater(s: _Stack, case: Case) -> Callable[..., tuple[Arrays, Any]]:
    """Return ``update(params, grads, state)`` of a stack that brings none; the state of Adam is (count, m, v)."""
    root, rate = s.np.sqrt, case.rate

    def sgd(params: Arrays, grads: Arrays, state: Any) -> tuple[Arrays, Any]:
        return {k: params[k] - rate * grads[k] for k in params}, state

    def adam(params: Arrays, grads: Arrays, state: Any) -> tuple[Arrays, Any]:
        t, m, v = state
        t = t + 1
        m = {k: 0.9 * m[k] + 0.1 * grads[k] for k in params}
        v = {k: 0.999 * v[k] + 0.001 * grads[k] * grads[k] for k in params}
        first, second = 1 - 0.9**t, 1 - 0.999**t
        params = {k: params[k] - rate * (m[k] / first) / (root(v[k] / second) + 1e-8) for k in params}
        return params, (t, m, v)

    return adam if case.optimizer == "adam" else sgd


def initial_state(s: _Stack, case: Case, params: Arrays) -> Any:
    """Return what :func:`updater`'s function holds before the first step."""
    if case.optimizer != "adam":
        return ()
    zeros = s.np.zeros_like
    return s.zeros(), {k: zeros(w) for k, w in params.items()}, {k: zeros(w) for k, w in params.items()}


class _TrainingStep(ABC):
    """One forward, backward and update; ``begin`` returns a step from the common weights, which waits for all of it."""

    def __init__(self, case: str) -> None:
        self.case = CASES[case]
        self.weights, self.batch = initial(case)

    @abstractmethod
    def begin(self) -> Callable[[], Any]:
        """Return the step of a training that begins."""

    def check(self, steps: int) -> list[float]:
        """Return the first losses, then step until the stack is in its steady state."""
        step = self.begin()
        losses = [float(step()) for _ in range(steps)]
        end = time.perf_counter() + _STEADY_SECONDS
        while time.perf_counter() < end:
            step()
        self.step = step
        return losses

    def step(self) -> Any:
        """Run one step of the training that goes on."""
        self.step = self.begin()
        return self.step()


class FuturexStep(_TrainingStep):
    """One futurized function with futurex's own optimizer, its arguments given away."""

    def __init__(self, case: str) -> None:
        import futurex as fx

        super().__init__(case)
        self.optimizer = (fx.optim.adam if self.case.optimizer == "adam" else fx.optim.sgd)(self.case.rate)
        step = train_step(FuturexStack(), self.case, self.optimizer.update)
        self.train = fx.futurize(donate=("params", "state"))(step)

    def begin(self) -> Callable[[], Any]:
        train, batch = self.train, self.batch
        params = {k: w.copy() for k, w in self.weights.items()}
        held = [params, self.optimizer.init(params)]

        def step() -> Any:
            *held[:], loss = train(*held, *batch)
            settle(held)
            return loss.result()

        return step


def settle(value: Any) -> None:
    """Wait for every array of dicts, lists and tuples; without a call for each array, which would be part of a step."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list, tuple)):
            settle(each)
        else:
            each.result()


class JaxStep(_TrainingStep):
    """One jitted function, its buffers donated."""

    def __init__(self, case: str, unrolled: bool = False) -> None:
        import jax

        super().__init__(case)
        self.jax, self.stack = jax, JaxStack(unrolled)
        step = train_step(self.stack, self.case, updater(self.stack, self.case))
        self.train = jax.jit(step, donate_argnums=(0, 1))

    def begin(self) -> Callable[[], Any]:
        train, wait, jnp = self.train, self.jax.block_until_ready, self.jax.numpy
        batch = tuple(jnp.array(one) for one in self.batch)
        params = {k: jnp.array(w) for k, w in self.weights.items()}
        held = [params, initial_state(self.stack, self.case, params)]

        def step() -> Any:
            *held[:], loss = train(*held, *batch)
            return wait((held, loss))[1]

        return step


class _TorchStep(_TrainingStep):
    """What both ways of PyTorch begin with."""

    def __init__(self, case: str, compiled: bool) -> None:
        import torch

        super().__init__(case)
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.torch, self.stack = torch, TorchStack(compiled)

    def _tensor(self, array: np.ndarray, channels: bool) -> Any:
        """Return a copy, integers as PyTorch's own; ``channels``: of an input, whose last axis moves to the second."""
        found = np.moveaxis(array, -1, 1) if channels else array
        return self.torch.from_numpy(np.array(found, np.int64 if array.dtype == np.int32 else None, order="C"))

    def _begin(self) -> tuple[Arrays, tuple[Any, ...]]:
        """Return weights and batch, channels first."""
        first, *others = self.batch
        batch = self._tensor(first, self.case.images), *(self._tensor(one, False) for one in others)
        params = {}
        for name, w in self.weights.items():
            if self.case.images and w.ndim > 2:  # (*kernel, in, out) becomes (out, in, *kernel)
                w = np.moveaxis(w, (-1, -2), (0, 1))
            params[name] = self._tensor(w, False)
        return params, batch


class TorchStep(_TorchStep):
    """PyTorch as it is, with updates in place by its own functions over all weights at once."""

    def __init__(self, case: str) -> None:
        super().__init__(case, compiled=False)

    def begin(self) -> Callable[[], Any]:
        torch, stack, loss, rate = self.torch, self.stack, self.case.loss, self.case.rate
        params, batch = self._begin()
        held = [each.requires_grad_() for each in params.values()]
        value_and_grad = stack.value_and_grad(lambda params, *batch: loss(stack, params, *batch))
        adam = torch.optim.Adam(held, lr=rate, fused=True) if self.case.optimizer == "adam" else None

        def step() -> Any:
            value, grads = value_and_grad(params, *batch)
            if adam is None:
                with torch.no_grad():
                    torch._foreach_add_(held, list(grads.values()), alpha=-rate)
            else:
                for each, grad in zip(held, grads.values(), strict=True):
                    each.grad = grad
                adam.step()
            return value

        return step


class CompiledTorchStep(_TorchStep):
    """The whole step as one function of ``torch.compile``, which writes the weights in place."""

    def __init__(self, case: str) -> None:
        super().__init__(case, compiled=True)
        train = train_step(self.stack, self.case, updater(self.stack, self.case))

        def whole(params: Arrays, state: Any, *batch: Any) -> Any:
            updated, after, value = train(params, state, *batch)
            for name, each in params.items():
                each.copy_(updated[name])
            if state:
                state[0].copy_(after[0])
                for old, new in zip(state[1:], after[1:], strict=True):
                    for name, each in old.items():
                        each.copy_(new[name])
            return value

        self.train = self.torch.compile(whole, fullgraph=True)

    def begin(self) -> Callable[[], Any]:
        params, batch = self._begin()
        state = initial_state(self.stack, self.case, params)
        return lambda: self.train(params, state, *batch)
