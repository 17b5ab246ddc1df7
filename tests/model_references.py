"""The networks of :mod:`futurex.models` written down once more, in NumPy alone and layer by layer."""

import numpy as np


def conv(x, w, stride=1, padding=0):
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], axis=(1, 2))[:, ::stride, ::stride]
    return np.tensordot(windows, w, axes=((4, 5, 3), (0, 1, 2)))


def max_pool(x, window, stride, low=0, high=0):
    x = np.pad(x, ((0, 0), (low, high), (low, high), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (window, window), axis=(1, 2))
    return windows[:, ::stride, ::stride].max(axis=(4, 5))


def relu(x):
    return np.where(x > 0, x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def dense(layer, x):
    return x @ layer["w"] + layer["b"]


def alexnet(p, x):
    x = max_pool(relu(conv(x, p["conv1"]["w"], 4, 2) + p["conv1"]["b"]), 3, 2)
    x = max_pool(relu(conv(x, p["conv2"]["w"], 1, 2) + p["conv2"]["b"]), 3, 2)
    x = relu(conv(x, p["conv3"]["w"], 1, 1) + p["conv3"]["b"])
    x = relu(conv(x, p["conv4"]["w"], 1, 1) + p["conv4"]["b"])
    x = max_pool(relu(conv(x, p["conv5"]["w"], 1, 1) + p["conv5"]["b"]), 3, 2)
    x = relu(dense(p["dense1"], x.reshape(len(x), -1)))
    return dense(p["dense3"], relu(dense(p["dense2"], x)))


def vgg16(p, x):
    for block in p["blocks"]:
        for layer in block:
            x = relu(conv(x, layer["w"], 1, 1) + layer["b"])
        x = max_pool(x, 2, 2)
    x = relu(dense(p["dense1"], x.reshape(len(x), -1)))
    return dense(p["dense3"], relu(dense(p["dense2"], x)))


class Norm:
    """Batch normalisation that notes the statistics of each layer, or takes those it is given."""

    def __init__(self, eps, given=None):
        self.eps, self.given, self.seen = eps, given, []

    def __call__(self, layer, x, stride=1, padding=0):
        y = conv(x, layer["w"], stride, padding)
        rows = y.reshape(-1, y.shape[-1])
        if self.given is None:
            mean, var = rows.mean(axis=0), rows.var(axis=0)
        else:
            mean, var = self.given(layer)
        self.seen.append((mean, rows.var(axis=0, ddof=1)))
        return (y - mean) / np.sqrt(var + self.eps) * layer["scale"] + layer["shift"]


def resnet(p, x, norm):
    x = max_pool(relu(norm(p["stem"], x, 2, 3)), 3, 2, 1, 1)
    for number, stage in enumerate(p["stages"]):
        for position, block in enumerate(stage):
            stride = 2 if number > 0 and position == 0 else 1
            if "conv3" in block:
                y = relu(norm(block["conv1"], x))
                y = norm(block["conv3"], relu(norm(block["conv2"], y, stride, 1)))
            else:
                y = norm(block["conv2"], relu(norm(block["conv1"], x, stride, 1)), 1, 1)
            x = relu(y + (norm(block["shortcut"], x, stride) if "shortcut" in block else x))
    return dense(p["dense"], x.mean(axis=(1, 2)))


def googlenet(p, x, norm):
    def pool(x, window):
        return max_pool(x, window, 2, 0, (x.shape[1] - window) % 2)

    x = pool(relu(norm(p["stem1"], x, 2, 3)), 3)
    x = pool(relu(norm(p["stem3"], relu(norm(p["stem2"], x)), 1, 1)), 3)
    for name in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        q = p[name]
        x = np.concatenate([
            relu(norm(q["alone"], x)),
            relu(norm(q["second2"], relu(norm(q["second1"], x)), 1, 1)),
            relu(norm(q["third2"], relu(norm(q["third1"], x)), 1, 1)),
            relu(norm(q["pooled"], max_pool(x, 3, 1, 1, 1))),
        ], axis=-1)  # fmt: skip
        x = pool(x, {"3b": 3, "4e": 2}[name]) if name in ("3b", "4e") else x
    return dense(p["dense"], x.mean(axis=(1, 2)))


def lstm(p, x):
    for layer in p["layers"]:
        width = len(layer["u"])
        h, c = np.zeros((len(x), width)), np.zeros((len(x), width))
        outputs = []
        for step in range(x.shape[1]):
            i, f, g, o = np.split(x[:, step] @ layer["w"] + h @ layer["u"] + layer["b"], 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        x = np.stack(outputs, axis=1)
    return dense(p["dense"], x[:, -1])


def layer_norm(p, x):
    mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * p["scale"] + p["shift"]


def transformer(p, x, causal):
    y, heads = layer_norm(p["norm1"], x), p["attention"]["b"].shape[1]
    q, k, v = (
        np.einsum("ntw,whs->nths", y, p["attention"]["w"][:, part]) + p["attention"]["b"][part] for part in range(3)
    )
    mixed = []
    for head in range(heads):
        scores = np.einsum("nts,nus->ntu", q[:, :, head], k[:, :, head]) / np.sqrt(q.shape[-1])
        if causal:
            scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
        mixed.append(softmax(scores) @ v[:, :, head])
    x = x + dense(p["mix"], np.concatenate(mixed, axis=-1))
    h = dense(p["dense1"], layer_norm(p["norm2"], x))
    h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    return x + dense(p["dense2"], h)
