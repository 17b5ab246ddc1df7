"""Factors of general matrices by LAPACK's ``getrf``, and what they tell by ``getrs``: the parts of NumPy's ``solve``.

The same functions of the same library on the same numbers give NumPy's bits, where as many threads work on them: here
it is one up to :data:`MOST_ALONE` rows, and right sides are shared by ours.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.blas_threads import alone
from futurex.kernels.helpers import together
from futurex.kernels.openblas import function
from futurex.kernels.recycling import maker
from futurex.kernels.registry import Kernel
from futurex.ops.matrices import real_of
from futurex.ops.shared_factors import HELD, factor_dtype, inverse_of_held, slogdet_of_held, solution_by_held
from futurex.tree.node import Node

OPS = frozenset(("lu", "lu_solve", "lu_inv", "lu_slogdet"))
MOST_ALONE = 1000
"""Rows up to which one thread factorises: two take 0.8 of its time with as many, and longer with fewer."""
LEAST_PRODUCTS = 1 << 21
"""Multiply-adds of each thread from which right sides are shared among them: some 100 µs, what waking one costs."""
_INT, _PLACE = ctypes.c_int64, ctypes.c_void_p
_LETTERS = {"d": "d", "D": "z"}
_BY_ADDRESS = 9
"""Arguments of ``getrs``, all by their address; behind them the compilers of Fortran pass the length of the text."""


def kernel_for(node: Node, threads: int) -> Kernel | None:
    """A kernel for a factorization or for what is read from one; None where no LAPACK with 64 bit numbers is found."""
    found = _functions(factor_dtype(node.inputs[0].dtype).char)
    if found is None:
        return None
    factorise, solve = found
    if node.op == "lu_slogdet":
        return Kernel(functools.partial(_slogdet, **node.attrs), "blas", threads=1)
    if node.op == "lu":
        few = node.inputs[0].shape[0] <= MOST_ALONE
        call = functools.partial(_factors, alone(factorise) if few else factorise)
        return Kernel(call, "blas", into=True, threads=1 if few else None)
    products = node.inputs[0].size * (node.shape[-1] if node.ndim > 1 else 0)
    parts = max(1, min(threads, products // LEAST_PRODUCTS))
    call = functools.partial(
        _solution if node.op == "lu_solve" else _inverse, functools.partial(_solve, alone(solve), parts), **node.attrs
    )
    return Kernel(call, "blas", into=True, threads=parts)


@functools.cache
def _functions(char: str) -> tuple[Callable[..., None], Callable[..., None]] | None:
    """``getrf`` in place, and ``getrs`` in place of the right sides, of matrices in columns."""
    letter = _LETTERS[char]
    found = [function(f"{letter}get{name}_64_") for name in ("rf", "rs")]
    if None in found:
        return None
    getrf, getrs = (
        ctypes.CFUNCTYPE(None, *[_PLACE] * count, *more)(ctypes.cast(each, _PLACE).value or 0)
        for each, count, more in zip(found, (6, _BY_ADDRESS), ((), (ctypes.c_size_t,)), strict=True)
    )

    def factorise(columns: Any, pivots: Any) -> None:
        extent = _INT(len(columns))
        n, exchanges = ctypes.byref(extent), pivots.ctypes.data
        getrf(n, n, columns.ctypes.data, n, exchanges, exchanges + pivots.itemsize * len(columns))

    def solve(columns: Any, pivots: Any, turned: bool, sides: Any) -> None:
        extent, count, failed = _INT(len(columns)), _INT(len(sides) if sides.ndim > 1 else 1), _INT()
        n, right, place = ctypes.byref(extent), ctypes.byref(count), ctypes.byref(failed)
        a, exchanges, b = (each.ctypes.data for each in (columns, pivots, sides))
        getrs(b"T" if turned else b"N", n, right, a, n, exchanges, b, n, place, 1)

    return factorise, solve


def _factors(factorise: Callable[..., None], out: Any, a: Any) -> Any:
    columns, pivots = out
    np.copyto(columns.T, a)
    factorise(columns, pivots)
    return out


def _solve(solve: Callable[..., None], parts: int, columns: Any, pivots: Any, turned: bool, sides: Any) -> None:
    """``sides``: each a row, which becomes its solution, in so many parts, each by a thread."""
    bounds = [len(sides) * k // parts for k in range(parts + 1)]
    tasks = [
        functools.partial(solve, columns, pivots, turned, sides[start:stop])
        for start, stop in itertools.pairwise(bounds)
    ]
    if parts > 1:
        together(tasks)
    else:
        tasks[0]()


def _solution(solve: Callable[..., None], out: Any, columns: Any, pivots: Any, b: Any, **attrs: Any) -> Any:
    if pivots[-1] == HELD:
        np.copyto(out, solution_by_held(columns, pivots, b, **attrs))
        return out
    _check(pivots)
    alone = b.ndim == 1 and out.dtype == columns.dtype
    sides = out if alone else maker(b.size * columns.itemsize)(b.shape[::-1], columns.dtype)
    np.copyto(sides.T, b)
    solve(columns, pivots, attrs["turned"], sides)
    if not alone:
        np.copyto(out, sides.T, casting="same_kind")
    return out


def _inverse(solve: Callable[..., None], out: Any, columns: Any, pivots: Any, **attrs: Any) -> Any:
    """The solution for an identity, as NumPy's."""
    if pivots[-1] == HELD:
        np.copyto(out, inverse_of_held(columns, pivots, **attrs))
        return out
    _check(pivots)
    sides = maker(columns.nbytes)(columns.shape, columns.dtype)
    sides.fill(0)
    np.fill_diagonal(sides, 1)
    solve(columns, pivots, attrs["turned"], sides)
    np.copyto(out, sides.T, casting="same_kind")
    return out


def _check(pivots: Any) -> None:
    if pivots[-1] > 0:
        raise np.linalg.LinAlgError("Singular matrix")


def _slogdet(out: Any, columns: Any, pivots: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """As NumPy goes down the diagonal, in Python's numbers: with the logarithm of the C library and plain products."""
    if pivots[-1] == HELD:
        return slogdet_of_held(columns, pivots, dtype)
    real = real_of(dtype)
    if pivots[-1] > 0:
        return dtype.type(0), real.type(-math.inf)
    turns = np.count_nonzero(pivots[:-1] != np.arange(1, len(pivots)))
    sign: Any = -1.0 if turns % 2 else 1.0
    logarithm = 0.0
    for value in columns.diagonal().tolist():
        size = abs(value)
        logarithm += math.log(size) if size else -math.inf
        if isinstance(value, complex):
            sign *= complex(value.real / size, value.imag / size) if size else math.nan
        elif value < 0:
            sign = -sign
    return dtype.type(sign), real.type(logarithm)
