"""The functions that generated loops compute by polynomials, by name."""

from __future__ import annotations

from collections.abc import Callable

from futurex.kernels.numba_ import exponentials, inverses, logarithms, trigonometry
from futurex.kernels.numba_.real import Real

FUNCTIONS: dict[str, Callable[..., Real]] = {
    function.__name__: function
    for function in (
        exponentials.exp, exponentials.exp2, exponentials.expm1, exponentials.tanh, exponentials.sinh,
        exponentials.cosh, exponentials.expit, logarithms.log, logarithms.log2, logarithms.log10, logarithms.log1p,
        logarithms.logaddexp,
        trigonometry.sin, trigonometry.cos, trigonometry.tan, inverses.arctan, inverses.arctan2, inverses.arcsin,
        inverses.arccos, inverses.erf,
    )
}  # fmt: skip

GUARDED = frozenset(("sin", "cos", "tan"))
"""Those that hold up to a bound: where a kernel meets a larger argument, it says so, and NumPy computes the region."""
