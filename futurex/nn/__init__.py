"""Layers, activations and losses: functions of plain arrays, channels-last, without state of their own."""

from futurex.nn.activation import gelu, log_softmax, one_hot, relu, sigmoid, softmax, softmax_cross_entropy, tanh
from futurex.nn.layers import (
    avg_pool,
    batch_norm,
    conv,
    dense,
    dropout,
    global_average_pool,
    layer_norm,
    max_pool,
)

__all__ = [
    "avg_pool", "batch_norm", "conv", "dense", "dropout", "gelu", "global_average_pool", "layer_norm", "log_softmax",
    "max_pool", "one_hot", "relu", "sigmoid", "softmax", "softmax_cross_entropy", "tanh",
]  # fmt: skip
