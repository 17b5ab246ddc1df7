"""Networks as pairs of plain functions: ``init(rng, ...)`` makes parameters, ``apply(params, x)`` uses them."""

from futurex.models import har_cnn, mlp
from futurex.models.initial import count, glorot_uniform, he_normal

__all__ = ["count", "glorot_uniform", "har_cnn", "he_normal", "mlp"]
