"""Networks as plain functions: ``init(rng, ...)`` makes parameters, ``apply(params, x, ...)`` uses them."""

from futurex.models import alexnet, googlenet, har_cnn, lstm, mlp, transformer, vgg16
from futurex.models.initial import count, glorot_uniform, he_normal
from futurex.models.resnet import resnet18, resnet50, resnet101, resnet152

__all__ = [
    "alexnet", "count", "glorot_uniform", "googlenet", "har_cnn", "he_normal", "lstm", "mlp", "resnet18", "resnet50",
    "resnet101", "resnet152", "transformer", "vgg16",
]  # fmt: skip
