"""Factors and solutions by ``scipy.linalg``: SciPy's own bits and errors, with derivatives.

SciPy is imported when such an op runs, which only a program that brought SciPy itself can ask for.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import conj
from futurex.ops.factor_grad import cholesky_gradient
from futurex.ops.matrices import adjoint, column, matrix, part, positive, room, swap_last, vector
from futurex.ops.triangular import solve_triangular
from futurex.tree.aval import Aval
from futurex.tree.node import Node
from futurex.tree.record import Sample, op


def _scipy() -> Any:
    return importlib.import_module("scipy.linalg")


def _solution_aval(a: Aval, b: Aval, **_: Any) -> Aval:
    return Aval(b.shape, np.result_type(a.dtype, b.dtype))


def _columns(*values: Node) -> list[Node]:
    """Vectors as matrices of one column."""
    return [column(value) if value.ndim == 1 else value for value in values]


# -- triangular systems ------------------------------------------------------------------------------------------------


def _solved(a: Any, b: Any, lower: bool, trans: int, check_finite: bool) -> Any:
    return _scipy().solve_triangular(a, b, lower=lower, trans=trans, check_finite=check_finite)


def _solved_rule(g: Node, out: Node, a: Node, b: Node, lower: bool, trans: int, **_: Any) -> tuple[Node, Node]:
    """``trans``: 0 for the matrix itself, 1 for its transpose, 2 for the conjugate of that."""
    gradient, x = _columns(g, out)
    if trans == 0:
        db = solve_triangular(swap_last(a), gradient, lower=not lower)
        da = -(db @ swap_last(x))
    else:
        db = solve_triangular(conj(a) if trans == 2 else a, gradient, lower=lower)
        da = -(x @ swap_last(db))
        da = conj(da) if trans == 2 else da
    return part(da, lower), vector(db) if b.ndim == 1 else db


def _triangle(rng: np.random.Generator, extent: int, dtype: Any = np.float64) -> Any:
    """A matrix whose triangles are far from singular."""
    return matrix(rng, extent, extent, dtype=dtype) + 2 * np.eye(extent, dtype=dtype)


def _systems(rng: np.random.Generator, attrs: dict[str, Any]) -> Iterable[Sample]:
    """Triangles with right sides of each kind."""
    yield Sample((_triangle(rng, 3), rng.normal(size=(3, 2))), attrs)
    yield Sample((_triangle(rng, 3), rng.normal(size=3)), attrs)
    complexes = _triangle(rng, 2, np.complex128), matrix(rng, 2, 3, dtype=np.complex128)
    yield Sample(complexes, attrs, order=1)
    yield Sample((_triangle(rng, 2, np.float32), matrix(rng, 2, 2, dtype=np.float32)), attrs, order=0)


def _solved_samples(rng: np.random.Generator) -> Iterable[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return
    for lower in (True, False):
        for trans in (0, 1, 2):
            attrs = {"lower": lower, "trans": trans, "check_finite": lower}
            yield from _systems(rng, attrs)


op(
    "scipy_solve_triangular", _solved, aval=_solution_aval, vjp=_solved_rule, fails=True, samples=_solved_samples,
)  # fmt: skip


# -- Cholesky factors, and solutions by them ---------------------------------------------------------------------------


def _factor(x: Any, lower: bool, clean: bool, check_finite: bool) -> Any:
    """``clean``: zeros in the other half, where ``cho_factor`` leaves what stands in the matrix."""
    if clean:
        return _scipy().cholesky(x, lower=lower, check_finite=check_finite)
    return _scipy().cho_factor(x, lower=lower, check_finite=check_finite)[0]


def _factor_rule(g: Node, out: Node, x: Node, lower: bool, clean: bool, **_: Any) -> tuple[Node]:
    dx = cholesky_gradient(g, part(out, lower), upper=not lower)
    return (dx if clean else dx + (g - part(g, lower)),)


def _factor_samples(rng: np.random.Generator) -> Iterable[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return
    for lower in (True, False):
        for clean in (True, False):
            attrs = {"lower": lower, "clean": clean, "check_finite": clean}
            yield Sample((positive(rng, 3, 3),), attrs)
            yield Sample((positive(rng, 3, 3, dtype=np.complex128),), attrs, order=1)
            yield Sample((positive(rng, 2, 2, dtype=np.float32),), attrs, order=0)


op(
    "scipy_cholesky", _factor, aval=lambda x, **_: x, vjp=_factor_rule, fails=True, samples=_factor_samples,
    room=room(1),
)  # fmt: skip


def _by_factor(c: Any, b: Any, lower: bool, check_finite: bool) -> Any:
    return _scipy().cho_solve((c, lower), b, check_finite=check_finite)


def _by_factor_rule(g: Node, out: Node, c: Node, b: Node, lower: bool, **_: Any) -> tuple[Node, Node]:
    """Of ``M x = b`` where M is the factor times its adjoint: by the cotangent of M."""
    gradient, x = _columns(g, out)
    factor = part(c, True) if lower else adjoint(part(c, False))
    db = solve_triangular(conj(factor), gradient, lower=True)
    db = solve_triangular(swap_last(factor), db, lower=False)
    of_product = -(db @ swap_last(x))
    dc = part((of_product + adjoint(of_product)) @ conj(factor), True)
    return dc if lower else adjoint(dc), vector(db) if b.ndim == 1 else db


def _by_factor_samples(rng: np.random.Generator) -> Iterable[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return
    for lower in (True, False):
        attrs = {"lower": lower, "check_finite": lower}
        yield from _systems(rng, attrs)


op(
    "scipy_cho_solve", _by_factor, aval=_solution_aval, vjp=_by_factor_rule, fails=True, samples=_by_factor_samples,
)  # fmt: skip
