"""``autocast``: products in half precision, everything else as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from futurex.frontend.decorator import futurize
from futurex.frontend.staging import Futurized
from futurex.ops.precision import STORAGE


def autocast(function: Callable[..., Any], /, dtype: str = "bfloat16") -> Any:
    """The function with every product of single-precision arrays taken in a narrow format.

    Matrix products, einsum and convolutions, those of derivatives included, round their operands to ``dtype``, keep
    them in memory in that format, add up in single precision and store the result narrow; all other operations stay in
    single precision. Arrays of double precision, which are NumPy's default, are not touched. It changes values by the
    rounding of the format: ``"bfloat16"`` (8 bits, the range of singles), ``"float16"`` (11 bits, up to 65504: scale
    the loss) or ``"tfloat32"`` (11 bits, the range and the memory of singles).

    On a GPU (``device="gpu"``) such products use its matrix units. On processors the same rounding is computed step by
    step, which takes longer: use it there to see what a format does to a model.

    Give it the outermost function, with its derivatives. A call inside another futurized function makes that one run as
    plain NumPy; under a derivative it raises a TypeError. ``fx.fit`` takes one as its loss: products of its steps are
    narrow then, those of the derivative and the optimizer too; sums over localities, validation and metrics are not.

    Raises ValueError for an unknown ``dtype``. After Micikevicius et al., *Mixed precision training* (2018).

    >>> import numpy as np, futurex as fx
    >>> product = fx.autocast(lambda x, y: x @ y, "bfloat16")
    >>> x = np.full((1, 1), 1.01, np.float32)
    >>> float(product(x, x)[0, 0])
    1.015625
    """
    if dtype not in STORAGE:
        raise ValueError(f"autocast: dtype={dtype!r} is not one of {', '.join(map(repr, STORAGE))}")
    if not callable(function):
        raise TypeError(f"autocast takes a function, not {type(function).__name__}")
    futurized: Futurized[Any, Any] = futurize(function)
    return futurized.lowered(dtype)
