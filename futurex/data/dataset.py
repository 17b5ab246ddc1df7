"""What every data set of this package is: two parts, arrays in memory, classes with names."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Dataset:
    """A classification task: examples along axis 0, integer labels from 0, and the name of each class.

    `x_train` and `x_test` share all axes but the first; `y_train` and `y_test` are int64 vectors.
    """

    name: str
    x_train: npt.NDArray[np.floating]
    y_train: npt.NDArray[np.int64]
    x_test: npt.NDArray[np.floating]
    y_test: npt.NDArray[np.int64]
    classes: tuple[str, ...]

    def head(self, limit: int) -> "Dataset":
        """Return the data set cut to its first `limit` examples of each part.

        >>> import futurex as fx
        >>> fx.data.load_digits().head(100).x_train.shape
        (100, 8, 8, 1)
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1 example, not {limit}")
        train, test = slice(min(limit, len(self.x_train))), slice(min(limit, len(self.x_test)))
        return Dataset(
            self.name, self.x_train[train], self.y_train[train], self.x_test[test], self.y_test[test], self.classes
        )


def floating(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The type of a data set's examples. Raises ValueError for one that holds no fractions."""
    kind = np.dtype(dtype)
    if kind.kind != "f":
        raise ValueError(f"examples are fractions and need a floating dtype, not {kind}")
    return kind
