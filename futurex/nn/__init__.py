"""Layers, activations and losses: functions of plain arrays, channels-last, without state of their own."""

from futurex.nn.activation import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    one_hot,
    relu,
    sigmoid,
    silu,
    softmax,
    softmax_cross_entropy,
    softplus,
    tanh,
)
from futurex.nn.layers import conv, conv_transpose, dense, dropout
from futurex.nn.normalization import (
    batch_norm,
    batch_norm_inference,
    group_norm,
    instance_norm,
    layer_norm,
    running_statistics,
)
from futurex.nn.pooling import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    global_average_pool,
    global_max_pool,
    max_pool,
)

__all__ = [
    "adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "batch_norm", "batch_norm_inference", "conv",
    "conv_transpose", "dense", "dropout", "elu", "gelu", "global_average_pool", "global_max_pool", "group_norm",
    "instance_norm", "layer_norm", "leaky_relu", "log_softmax", "max_pool", "one_hot", "relu", "running_statistics",
    "sigmoid", "silu", "softmax", "softmax_cross_entropy", "softplus", "tanh",
]  # fmt: skip
