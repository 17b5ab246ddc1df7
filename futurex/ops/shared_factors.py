"""One factorization of a matrix for all who ask: ``lu``, and solutions, inverses and determinants by it.

A pass makes such nodes of several systems with one matrix or its transpose. What ``lu`` gives is read by the others
alone: the factors as LAPACK's ``getrf`` leaves them, columns one behind the other, and its exchanges of rows with what
it says of the matrix behind them. Where no kernel has that function, the matrix itself stands in their place
(:data:`HELD`), and NumPy factorises it for each who asks, as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from futurex.ops.matrices import matrix, real_of
from futurex.tree.aval import Aval
from futurex.tree.record import Attrs, Sample, op

HELD = -1
"""What stands behind the exchanges of rows where there are none; LAPACK puts 0 or the row of a zero there."""
_PLACE = np.dtype(np.int64)
_DOUBLE, _COMPLEX, _SINGLE = np.dtype(np.float64), np.dtype(np.complex128), np.dtype(np.float32)


def factor_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The one in which NumPy factorises a matrix: single precision in double, too."""
    return _COMPLEX if dtype.kind == "c" else _DOUBLE


def _held(x: Any) -> tuple[Any, Any]:
    pivots = np.zeros(len(x) + 1, _PLACE)
    pivots[-1] = HELD
    return np.array(x, factor_dtype(x.dtype), order="C"), pivots


def _lu_aval(x: Aval) -> tuple[Aval, Aval]:
    return Aval(x.shape, factor_dtype(x.dtype)), Aval((x.shape[0] + 1,), _PLACE)


op("lu", _held, aval=_lu_aval)


def solution_by_held(factors: Any, pivots: Any, b: Any, turned: bool, dtype: np.dtype[Any]) -> Any:
    """The solution by a matrix that nobody has factorised, or by its transpose."""
    return np.linalg.solve(factors.T if turned else factors, b).astype(dtype, copy=False)


def inverse_of_held(factors: Any, pivots: Any, turned: bool, dtype: np.dtype[Any]) -> Any:
    """The inverse of a matrix that nobody has factorised, or of its transpose."""
    return np.linalg.inv(factors.T if turned else factors).astype(dtype, copy=False)


def slogdet_of_held(factors: Any, pivots: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The sign of the determinant of a matrix that nobody has factorised, and its logarithm."""
    sign, logarithm = np.linalg.slogdet(factors)
    return dtype.type(sign), real_of(dtype).type(logarithm)


def _samples(several: Iterable[Attrs], *sides: tuple[int, ...]) -> Callable[[np.random.Generator], Iterable[Sample]]:
    """Of matrices that nobody has factorised: factors are nobody's but the kernel's that made them."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for attrs in several:
            held = _held(matrix(rng, 3, 3, dtype=factor_dtype(attrs["dtype"])))
            for shape in sides:
                yield Sample((*held, rng.normal(size=shape).astype(attrs["dtype"])), attrs, order=0)
            if not sides:
                yield Sample(held, attrs, order=0)

    return samples


_WAYS = [{"turned": turned, "dtype": dtype} for turned in (False, True) for dtype in (_SINGLE, _DOUBLE, _COMPLEX)]
op(
    "lu_solve", solution_by_held, aval=lambda factors, pivots, b, turned, dtype: Aval(b.shape, dtype), fails=True,
    samples=_samples(_WAYS, (3,), (3, 2)),
    room=lambda factors, pivots, b, **_: factors.dtype.itemsize * math.prod(b.shape),
)  # fmt: skip
op(
    "lu_inv", inverse_of_held, aval=lambda factors, pivots, turned, dtype: Aval(factors.shape, dtype), fails=True,
    samples=_samples(_WAYS), room=lambda factors, pivots, **_: factors.nbytes,
)  # fmt: skip
op(
    "lu_slogdet", slogdet_of_held, samples=_samples([{"dtype": dtype} for dtype in (_SINGLE, _DOUBLE, _COMPLEX)]),
    aval=lambda factors, pivots, dtype: (Aval((), dtype), Aval((), real_of(dtype))),
)  # fmt: skip
