"""Handwritten digits: 1797 images of 8 by 8 pixels."""

import numpy as np
import numpy.typing as npt

from futurex.data.dataset import Dataset, floating
from futurex.errors import require, whole_number


def load_digits(test_share: float = 0.2, seed: int = 0, dtype: npt.DTypeLike = np.float32) -> Dataset:
    """Return the digits of scikit-learn as `(examples, 8, 8, 1)` in 0 to 1, split at random by `seed`.

    Raises `MissingExtra` without the extra `har`, `ValueError` for a share that leaves a part empty or a type without
    fractions.

    >>> import futurex as fx
    >>> fx.data.load_digits().x_test.shape
    (359, 8, 8, 1)
    """
    if not 0 < test_share < 1:
        raise ValueError(f"test_share is a fraction between 0 and 1, not {test_share}")
    digits = require("sklearn.datasets", "har").load_digits()
    images = (digits.images / 16).astype(floating(dtype))[..., np.newaxis]  # grey levels are 0 to 16
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(whole_number("seed", seed, 0)).permutation(len(labels))
    cut = round(len(labels) * test_share)
    if not 0 < cut < len(labels):
        raise ValueError(f"test_share={test_share} of {len(labels)} digits leaves a part empty")
    test, train = order[:cut], order[cut:]
    return Dataset("digits", images[train], labels[train], images[test], labels[test], tuple(map(str, range(10))))
