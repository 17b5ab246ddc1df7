"""A transformer block with causal multi-head attention in plain NumPy (Vaswani et al. 2017, normalised before)."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def layer_norm(x, gain, bias, eps=1e-5):
    return gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) + bias


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attend(x, wqkv, wo, heads):
    t, d = x.shape
    q, k, v = np.split(x @ wqkv, 3, axis=-1)
    q, k, v = (m.reshape(t, heads, d // heads).transpose(1, 0, 2) for m in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(d // heads)
    scores = np.where(np.tril(np.ones((t, t), dtype=bool)), scores, -1e10)
    mixed = softmax(scores) @ v
    return mixed.transpose(1, 0, 2).reshape(t, d) @ wo


def attention(x, p, heads=4):
    x = x + attend(layer_norm(x, p["g1"], p["b1"]), p["wqkv"], p["wo"], heads)
    return x + gelu(layer_norm(x, p["g2"], p["b2"]) @ p["w1"]) @ p["w2"]


def example(rng):
    t, d = 16, 32
    shapes = {"wqkv": (d, 3 * d), "wo": (d, d), "w1": (d, 4 * d), "w2": (4 * d, d)}
    p = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    p |= {"g1": np.ones(d), "g2": np.ones(d), "b1": np.zeros(d), "b2": np.zeros(d)}
    return rng.normal(size=(t, d)), p
