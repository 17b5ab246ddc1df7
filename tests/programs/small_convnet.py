"""A small convolutional network by shifted slices, forward and backward by hand, one step of gradient descent."""

import numpy as np


def conv(x, w, b):
    n, h, wd, _ = x.shape
    kh, kw, _, out = w.shape
    y = np.zeros((n, h - kh + 1, wd - kw + 1, out)) + b
    for i in range(kh):
        for j in range(kw):
            y += x[:, i : i + y.shape[1], j : j + y.shape[2]] @ w[i, j]
    return y


def conv_backward(x, w, dy):
    dw, dx = np.zeros_like(w), np.zeros_like(x)
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            window = np.s_[:, i : i + dy.shape[1], j : j + dy.shape[2]]
            dw[i, j] = np.tensordot(x[window], dy, axes=([0, 1, 2], [0, 1, 2]))
            dx[window] += dy @ w[i, j].T
    return dx, dw, dy.sum((0, 1, 2))


def pool(x):
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


def small_convnet(x, labels, w1, b1, w2, b2, rate=0.1):
    a = conv(x, w1, b1)
    r = np.maximum(a, 0)
    p = pool(r)
    logits = p.reshape(len(x), -1) @ w2 + b2
    logits -= logits.max(1, keepdims=True)
    prob = np.exp(logits)
    prob /= prob.sum(1, keepdims=True)
    loss = -np.log(prob[np.arange(len(x)), labels]).mean()
    d = prob.copy()
    d[np.arange(len(x)), labels] -= 1
    d /= len(x)
    dp = (d @ w2.T).reshape(p.shape)
    up = dp.repeat(2, axis=1).repeat(2, axis=2)
    da = up * (r == p.repeat(2, axis=1).repeat(2, axis=2)) * (a > 0)
    _, dw1, db1 = conv_backward(x, w1, da)
    dw2, db2 = p.reshape(len(x), -1).T @ d, d.sum(0)
    for param, grad in ((w1, dw1), (b1, db1), (w2, dw2), (b2, db2)):
        param -= rate * grad
    return loss, prob.argmax(1)


def example(rng):
    x = rng.normal(size=(6, 10, 10, 1))
    w1, w2 = 0.3 * rng.normal(size=(3, 3, 1, 4)), 0.1 * rng.normal(size=(64, 3))
    return x, rng.integers(0, 3, 6), w1, np.zeros(4), w2, np.zeros(3)
