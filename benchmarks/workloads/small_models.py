"""Small models, each written once over a :class:`~benchmarks.workloads.small_stacks.Stack`, and their cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workloads.small_stacks import Arrays, Stack


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


def mlp(s: Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Three layers."""
    h = s.relu(s.dense(x, p["w1"], p["b1"]))
    h = s.relu(s.dense(h, p["w2"], p["b2"]))
    return s.cross_entropy(s.dense(h, p["w3"], p["b3"]), y)


def pinn(s: Stack, p: Arrays, t: Any) -> Any:
    """How far a network is from a solution of u'' + u = 0."""

    def u(t: Any) -> Any:
        h = s.np.tanh(s.dense(t, p["w1"], p["b1"]))
        return (s.np.tanh(s.dense(h, p["w2"], p["b2"])) @ p["w3"])[..., 0]

    first = s.slope(lambda t: u(t).sum())
    second = s.slope(lambda t: first(t).sum())(t)
    return ((second[:, 0] + u(t)) ** 2).mean()


def rnn(s: Stack, p: Arrays, xs: Any, y: Any) -> Any:
    """A recurrent layer, of whose last state a class is read."""
    start = s.zeros(xs.shape[1], p["wh"].shape[0])
    h = s.scan(lambda h, x: s.np.tanh(x @ p["wx"] + s.dense(h, p["wh"], p["b"])), start, xs)
    return s.cross_entropy(h @ p["wo"], y)


def lstm(s: Stack, p: Arrays, xs: Any, y: Any) -> Any:
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


def attention(s: Stack, p: Arrays, x: Any, y: Any) -> Any:
    """One block: attention, layer norm, two layers, and a class of the mean."""
    q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
    x = x + s.softmax(q @ s.np.swapaxes(k, -1, -2) * 0.25) @ v @ p["o"]
    x = s.layer_norm(x, p["scale"])
    x = s.relu(x @ p["w1"]) @ p["w2"] + x
    return s.cross_entropy(x.mean(1) @ p["c"], y)


def embedding(s: Stack, p: Arrays, words: Any, y: Any) -> Any:
    """The next word of four."""
    h = s.rows(p["table"], words).reshape(words.shape[0], -1)
    return s.cross_entropy(s.relu(s.dense(h, p["w"], p["b"])) @ p["o"], y)


def batch_norm(s: Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Two layers with batch norm between them."""
    return s.cross_entropy(s.relu(s.batch_norm(x @ p["w1"], p["scale"], p["b"])) @ p["w2"], y)


def actor_critic(s: Stack, p: Arrays, state: Any, action: Any, reward: Any) -> Any:
    """A policy, its entropy and a value, over one hidden layer."""
    h = s.np.tanh(s.dense(state, p["w1"], p["b1"]))
    logs, value = s.log_softmax(h @ p["policy"]), (h @ p["value"])[:, 0]
    ahead = reward - value
    entropy = -(s.np.exp(logs) * logs).sum(-1).mean()
    # The batch never changes: by probabilities, and with what is ahead held, the loss has a bound; by logarithms not.
    gain = s.np.exp(s.chosen(logs, action)) * s.constant(ahead)
    return -gain.mean() + 0.5 * (ahead**2).mean() - 0.01 * entropy


def neural_ode(s: Stack, p: Arrays, start: Any, target: Any) -> Any:
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


def factorization(s: Stack, p: Arrays, row: Any, column: Any, rating: Any) -> Any:
    """Elements of a matrix as products of two thin ones."""
    return (((s.rows(p["u"], row) * s.rows(p["v"], column)).sum(-1) - rating) ** 2).mean()


def kalman(s: Stack, p: Arrays, z: Any) -> Any:
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


def gaussian_process(s: Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Minus the logarithm of the likelihood of 30 points."""
    apart = (x[:, None] - x[None, :]) ** 2
    near = s.np.exp(-apart / s.np.exp(p["length"])) * s.np.exp(p["size"])
    cov = near + s.eye(x.shape[0]) * s.np.exp(p["noise"])
    root = s.np.linalg.cholesky(cov)
    return 0.5 * (y @ s.np.linalg.solve(cov, y)) + s.np.log(s.np.diag(root)).sum()


def conv_1d(s: Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Two convolutions and the mean over the places."""
    h = s.relu(s.conv(x, p["w1"], p["b1"]))
    h = s.relu(s.conv(h, p["w2"], p["b2"]))
    return s.cross_entropy(s.mean_places(h) @ p["c"], y)


def digits(s: Stack, p: Arrays, x: Any, y: Any) -> Any:
    """Two convolutions, each with a pooling."""
    h = s.pool(s.relu(s.conv(x, p["w1"], p["b1"])))
    h = s.pool(s.relu(s.conv(h, p["w2"], p["b2"])))
    return s.cross_entropy(s.dense_places(h, p["w3"]), y)


def logistic(s: Stack, p: Arrays, x: Any, y: Any) -> Any:
    """The logistic regression."""
    return s.binary_cross_entropy(x @ p["w"] + p["b"], y)


def autoencoder(s: Stack, p: Arrays, x: Any) -> Any:
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
    "pictures": Case(
        "2-D conv net on pictures of 28 x 28, batch 16",
        _weights(w1=(5, 5, 1, 16), b1=(16,), w2=(5, 5, 16, 32), b2=(32,), w3=(7, 7, 32, 10)),
        _classes(10, 16, 28, 28, 1), digits, images=True,
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
