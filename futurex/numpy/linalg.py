"""The extension of the array standard for linear algebra."""

from __future__ import annotations

import numpy as np

from futurex.numpy.arrays import staged

_NAMES = (
    "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer "
    "pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm"
)
FUNCTIONS = _NAMES.split()
globals().update({name: staged(getattr(np.linalg, name)) for name in FUNCTIONS})
