"""Activations and losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from futurex.errors import whole_number
from futurex.frontend import custom_vjp
from futurex.nn.operation import operation, shape_of


def relu(x: Any) -> Any:
    """``max(x, 0)``, element by element; any shape, the dtype of ``x``. Its derivative at zero is zero.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return _relu(x)


@custom_vjp
def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


_relu.defvjp(lambda x: (np.maximum(x, 0), np.greater(x, 0)), lambda on, g: (np.where(on, g, 0),))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent, element by element.

    >>> import futurex as fx
    >>> float(fx.nn.tanh(0.0))
    0.0
    """
    return np.tanh(x)


def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``, within three units in the last place: small results keep their digits.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.sigmoid(np.array([-1e4, 0.0]))
    array([0. , 0.5])
    """
    return 0.5 * (1.0 + np.tanh(0.5 * x)) if np.iscomplexobj(x) else _logistic(x)


@custom_vjp
def _logistic(x: Any) -> Any:
    opposite = -1.0 * x
    small = np.exp(-np.abs(opposite))
    return np.where(opposite > 0, small, 1.0) / (1.0 + small)


def _logistic_and_itself(x: Any) -> Any:
    y = _logistic(x)
    return y, y


_logistic.defvjp(_logistic_and_itself, lambda y, g: (g * y * (1.0 - y),))


def gelu(x: Any) -> Any:
    """The Gaussian error linear unit in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415).

    >>> import numpy as np, futurex as fx
    >>> fx.nn.gelu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.8412])
    """
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))))


def silu(x: Any) -> Any:
    """``x * sigmoid(x)``, also known as swish (Elfwing et al., arXiv 1702.03118).

    >>> import numpy as np, futurex as fx
    >>> fx.nn.silu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7311])
    """
    return x * sigmoid(x)


def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """``x`` where it is positive, ``slope * x`` elsewhere.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.leaky_relu(np.array([-1.0, 2.0]), 0.1)
    array([-0.1,  2. ])
    """
    return np.where(x > 0, x, slope * x)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere (Clevert et al., arXiv 1511.07289).

    >>> import numpy as np, futurex as fx
    >>> fx.nn.elu(np.array([-1.0, 2.0])).round(4)
    array([-0.6321,  2.    ])
    """
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x)))  # of a minimum half the slope would come at 0


def softplus(x: Any) -> Any:
    """``log(1 + exp(x))``, without overflow.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.softplus(np.array([-1000.0, 0.0, 1000.0])).round(1)
    array([0.e+00, 7.e-01, 1.e+03])
    """
    return np.logaddexp(x, 0)


def softmax(x: Any, axis: int = -1) -> Any:
    """``exp(x)`` divided by its sum along ``axis``. Raises ValueError for an axis that ``x`` has not.

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.softmax(np.zeros((1, 4))))
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    return operation("softmax", x, axis=_axis(x, axis, "softmax"))


def log_softmax(x: Any, axis: int = -1) -> Any:
    """The logarithm of :func:`softmax`, computed without losing small probabilities.

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.log_softmax(np.array([0.0, 1000.0])))
    array([-1000.,     0.])
    """
    return operation("log_softmax", x, axis=_axis(x, axis, "log_softmax"))


def softmax_cross_entropy(logits: Any, labels: Any) -> Any:
    """The loss of each row: minus the log-probability that ``softmax(logits)`` gives to the row's label.

    ``logits`` is (..., classes), ``labels`` (...) of integers from 0; the result (...). Take its ``.mean()`` for the
    loss of a batch. Raises TypeError for labels that are no integers and ValueError where the shapes do not fit.

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.softmax_cross_entropy(np.zeros((2, 4)), np.array([0, 3]))).round(4)
    array([1.3863, 1.3863])
    """
    shapes = shape_of(logits, "logits", "softmax_cross_entropy"), shape_of(labels, "labels", "softmax_cross_entropy")
    if not shapes[0] or shapes[1] != shapes[0][:-1]:
        raise ValueError(
            "softmax_cross_entropy needs logits (..., classes) and labels (...); "
            f"got logits {shapes[0]} and labels {shapes[1]}"
        )
    if labels.dtype.kind not in "iu":
        raise TypeError(
            f"labels {shapes[1]} must be integers that name classes, not {labels.dtype}; use argmax of one-hot rows"
        )
    return operation("softmax_cross_entropy", logits, labels)


def one_hot(labels: Any, classes: int, dtype: npt.DTypeLike = np.float32) -> Any:
    """Rows of 0 with a 1 where the label says, (..., classes), for integer ``labels`` (...).

    A label outside the classes has a row of 0.

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.one_hot(np.array([1]), 3))
    array([[0., 1., 0.]], dtype=float32)
    """
    shape = shape_of(labels, "labels", "one_hot")
    if labels.dtype.kind not in "iu":
        raise TypeError(f"one_hot needs integer labels, got {labels.dtype} of shape {shape}")
    return operation("one_hot", labels, classes=whole_number("one_hot: classes", classes, 1), dtype=np.dtype(dtype))


def _axis(x: Any, axis: int, name: str) -> int:
    shape, place = shape_of(x, "x", name), whole_number(f"{name}: axis", axis)
    if not -len(shape) <= place < len(shape):
        raise ValueError(f"{name}: axis {place} is none of the {len(shape)} axes of x {shape}")
    return place % len(shape)
