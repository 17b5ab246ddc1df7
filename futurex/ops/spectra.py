"""The linear maps around the products of a fast convolution over one axis: Fourier transforms along the first axis.

A convolution with ``taps`` weights to ``outputs`` positions is bilinear: ``y = C' ((A w) * (B x))`` for constant
matrices, in the notation of Winograd (Arithmetic Complexity of Computations, 1980). ``A``, ``B`` and ``C`` are discrete
Fourier transforms here, and each complex product is three real ones (Gauss). ``spectral_map`` multiplies by one of
them, or by its transpose; kernels need not multiply by a matrix for that. ``spectral_region`` is some of these maps
with what is done before, between and behind them, for one kernel; a pass makes it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.ops.fusion import op_of_graph
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param
from futurex.tree.record import Cost, Sample, op

_MORE = 1.02
"""Times as many products as a period needs that one with smaller factors, whose transforms are shorter, may take."""


@dataclass(frozen=True)
class Algorithm:
    """The matrices of ``y = results' ((weights w) * (positions x))``, float32, all with one row for each product."""

    weights: np.ndarray[Any, Any]
    positions: np.ndarray[Any, Any]
    results: np.ndarray[Any, Any]


def rank_of(period: int) -> int:
    """Real products of a cyclic convolution of this period: one for a real coefficient, three for a complex one.

    >>> rank_of(11), rank_of(20)
    (16, 29)
    """
    return 3 * ((period - 1) // 2) + 1 + (period % 2 == 0)


@functools.lru_cache(maxsize=1024)
def period_of(outputs: int, taps: int) -> int:
    """The period of the transforms: as long as positions are, or a little longer if its factors are smaller.

    >>> period_of(62, 10), period_of(2, 10)
    (72, 11)
    """
    least = outputs + taps - 1
    most = next(n for n in range(least, 2 * least + 2) if rank_of(n + 1) > _MORE * rank_of(least))
    return min(range(least, most + 1), key=lambda n: (factors(n)[-1], n))


@functools.lru_cache(maxsize=1024)
def factors(n: int) -> tuple[int, ...]:
    """The prime factors of a number, in order, each as often as it is one; (1,) for 1.

    >>> factors(72)
    (2, 2, 2, 3, 3)
    """
    found: list[int] = []
    for prime in range(2, n + 1):
        while n % prime == 0:
            found.append(prime)
            n //= prime
    return tuple(found) or (1,)


@functools.lru_cache(maxsize=256)
def algorithm(outputs: int, taps: int, length: int, low: int) -> Algorithm:
    """The Fourier transforms that correlate ``length`` positions, behind ``low`` zeros, with ``taps`` weights.

    With ``a - ib`` the transform of the positions and ``c + id`` that of the weights, the products are ``c (a - b)``,
    ``a (d - c)`` and ``b (c + d)``.

    >>> found = algorithm(outputs=2, taps=2, length=3, low=0)
    >>> x, w = np.float32([1, 2, 4]), np.float32([3, 1])
    >>> (found.results.T @ ((found.weights @ w) * (found.positions @ x))).round(4)
    array([ 5., 10.], dtype=float32)
    """
    period = period_of(outputs, taps)
    inside = np.arange(low, low + length)
    weights, positions, results = [], [], []
    for k in range(period // 2 + 1):
        at = [2 * np.pi / period * (k * each % period) for each in (np.arange(taps), inside, np.arange(outputs))]
        (c, d), (a, b), (real, imaginary) = ((np.cos(angle), np.sin(angle)) for angle in at)
        share = (1 if 2 * k in (0, period) else 2) / period
        if 2 * k in (0, period):
            weights.append(c)
            positions.append(a)
            results.append(share * real)
        else:
            weights += [c, d - c, c + d]
            positions += [a - b, a, b]
            results += [share * (real - imaginary), -share * imaginary, share * real]
    return Algorithm(*(np.array(each, np.float32) for each in (weights, positions, results)))


def matrix_of(which: str, back: bool, outputs: int, taps: int, length: int, low: int) -> np.ndarray[Any, Any]:
    """The matrix of a map: ``which`` is a field of :class:`Algorithm`, ``back`` asks for its transpose."""
    matrix: np.ndarray[Any, Any] = getattr(algorithm(outputs, taps, length, low), which)
    return matrix.T if back else matrix


def _run(x: Any, **attrs: Any) -> Any:
    matrix = matrix_of(**attrs).astype(x.dtype, copy=False)
    return (matrix @ x.reshape(len(x), math.prod(x.shape[1:]))).reshape(len(matrix), *x.shape[1:])


def _aval(x: Aval, **attrs: Any) -> Aval:
    rows, window = matrix_of(**attrs).shape
    if not x.ndim or x.shape[0] != window:
        raise ValueError(f"spectral_map: the map is one of {window} positions along the first axis, not of {x!r}")
    return Aval((rows, *x.shape[1:]), x.dtype)


def _rule(g: Node, out: Node, x: Node, **attrs: Any) -> tuple[Node]:
    return (apply("spectral_map", g, **{**attrs, "back": not attrs["back"]}),)


def work_of(outputs: int, taps: int) -> float:
    """Operations of a map for each column, at most: two to three times as many as its program has steps."""
    period = period_of(outputs, taps)
    return 2.5 * period * sum(factors(period))


def _cost(x: Aval, **attrs: Any) -> Cost:
    made = Aval((len(matrix_of(**attrs)), *x.shape[1:]), x.dtype)
    return Cost(work_of(attrs["outputs"], attrs["taps"]) * math.prod(x.shape[1:]), float(x.nbytes + made.nbytes))


def _factors(x: Aval, **_: Any) -> str:
    others = " ".join(f"c{axis}" for axis in range(1, x.ndim))
    return f"!p {others} -> !r {others}"


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for which, back in (("weights", False), ("positions", False), ("results", False), ("positions", True)):
        sizes = {"outputs": 4, "taps": 3, "length": 5, "low": 1}
        window = matrix_of(which, back, **sizes).shape[1]
        yield Sample((rng.normal(size=(window, 2, 3)),), {"which": which, "back": back, **sizes})


op("spectral_map", _run, aval=_aval, vjp=_rule, cost=_cost, factors=_factors, samples=_samples)


def _regions(rng: np.random.Generator) -> Iterable[Sample]:
    sizes = {"outputs": 4, "taps": 3, "length": 5, "low": 1}
    x, bias = param(Aval((5, 2, 3), np.dtype(float)), "x"), param(Aval((3,), np.dtype(float)), "b")
    y = apply("maximum", x + bias, 0.0)
    made = apply("spectral_map", y, which="positions", back=False, **sizes)
    graph = Graph([x, bias], [made, apply("equal", y, 0.0)], "region")
    yield Sample((rng.normal(size=(5, 2, 3)), rng.normal(size=3)), {"graph": graph})


op_of_graph("spectral_region", samples=_regions)
