"""``scipy.linalg`` in staged code: Cholesky factors and triangular systems, of which a program that knows them has the
most; of single matrices in floating-point types of NumPy's LAPACK. All else is called as a whole.

As of ``scipy.special``, a function of it that is called proves that the program imported SciPy.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.linalg import factorized, known
from futurex.frontend.trace import emit
from futurex.frontend.tracer import array_node, entered, fresh
from futurex.tree.node import Node

_STAGED = ("solve_triangular", "cholesky", "cho_factor", "cho_solve")
_OPTIONS = ("lower", "trans", "unit_diagonal", "overwrite_a", "overwrite_b", "check_finite")
_TRANSPOSED = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}


def linalg_name(function: Any) -> str:
    """The name of a function of ``scipy.linalg`` that has an op, or an empty text."""
    module = sys.modules.get("scipy.linalg")
    name = getattr(function, "__name__", "")
    return name if name in _STAGED and module is not None and getattr(module, name, None) is function else ""


def call_linalg(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Such a function on traced arrays. Raises Escape for what is left to SciPy as a whole."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    options = {key: known(given[key], f"{key}=") for key in _OPTIONS if key in given}
    trans = _TRANSPOSED.get(options.pop("trans", 0))
    options = {key: bool(value) for key, value in options.items()}
    if any(options.pop(key, False) for key in ("overwrite_a", "overwrite_b", "unit_diagonal")) or trans is None:
        raise Escape(f"scipy.linalg.{name} of this", "these options are not traced")
    if name == "solve_triangular":
        return fresh(emit("scipy_solve_triangular", *_system(given["a"], given["b"]), trans=trans, **options))
    if name == "cho_solve":
        factor, lower = given["c_and_lower"]
        lower = bool(known(lower, "lower"))
        return fresh(emit("scipy_cho_solve", *_system(factor, given["b"]), lower=lower, **options))
    factor = fresh(factorized("scipy_cholesky", _matrix(given["a"]), clean=name == "cholesky", **options))
    return factor if name == "cholesky" else (factor, given["lower"])


def _system(a: Any, b: Any) -> tuple[Node, Node]:
    matrix, side = _matrix(a), array_node(entered(b))
    if not side.aval.static or side.ndim not in (1, 2) or side.shape[0] != matrix.shape[0] or not _is_lapacks(side):
        raise Escape("a solution by scipy.linalg", "right sides like this are not traced")
    return matrix, side


def _matrix(a: Any) -> Node:
    """A single square matrix."""
    x = array_node(entered(a))
    if x.ndim != 2 or not x.aval.static or x.shape[0] != x.shape[1] or not x.size or not _is_lapacks(x):
        raise Escape("a factor by scipy.linalg", "matrices like this are not traced")
    return x


def _is_lapacks(x: Node) -> bool:
    """Does LAPACK compute with its elements as they are?"""
    return x.dtype.char in "fdFD" and x.dtype.isnative
