"""``numpy.linalg`` on traced arrays: systems of equations and factorizations, one operation each."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.layout import is_c_sorted
from futurex.frontend.numpy_api.registry import NO_VALUE, handles
from futurex.frontend.trace import current, emit, emit_many
from futurex.frontend.tracer import Tracer, array_node, as_tracer, entered, fresh, new_array
from futurex.tree.node import Node


def _result_type(function: Any) -> Any:
    """The named tuple that a function returns."""
    return type(function(np.ones((1, 1))))


def known(value: Any, what: str) -> Any:
    """An option that decides what is computed: a number, not an array that is not known yet."""
    value = entered(value)
    if isinstance(value, Tracer):
        value = value._known(what)
    return value.item() if isinstance(value, np.generic) else value


def result_array(node: Node) -> Tracer:
    """A new array in C order, or a number."""
    return new_array(node) if node.ndim else fresh(node)


def factorized(name: str, *inputs: Node, **options: Any) -> Node:
    """A node of a factorization; in an attempt one that does not raise. Not in a function that is called there, which
    would go on, and might write or print."""
    trace = current()
    if trace.attempt is None or trace.attempt[:2] != (trace.regions[-1], len(trace.calls)):
        return emit(name, *inputs, **options)
    value, failed = emit_many("attempted", *inputs, call=name, options=tuple(options.items()))
    trace.attempt[2].append(failed)
    return value


@handles(np.linalg.inv)
def inv(a: Any) -> Any:
    return result_array(factorized("inv", array_node(a)))


@handles(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    return result_array(factorized("solve", array_node(a), array_node(b)))


@handles(np.linalg.det)
def det(a: Any) -> Any:
    return result_array(emit("det", array_node(a)))


@handles(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    return _result_type(np.linalg.slogdet)(*map(result_array, emit_many("slogdet", array_node(a))))


@handles(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    return result_array(factorized("cholesky", array_node(a), upper=bool(known(upper, "upper="))))


@handles(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = NO_VALUE) -> Any:
    x = array_node(a)
    if rcond is not None and rtol is not NO_VALUE:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if rcond is None:
        rcond = 1e-15 if rtol is NO_VALUE else rtol
    if rcond is None:
        rcond = builtins.max(x.shape[-2:]) * np.finfo(x.dtype).eps
    tolerance = array_node(rcond)
    if tolerance.ndim and tolerance.shape != x.shape[:-2]:
        raise Escape("numpy.linalg.pinv with a tolerance of another shape than the stack", "NumPy may refuse it")
    return result_array(emit("pinv", x, tolerance, hermitian=bool(known(hermitian, "hermitian="))))


@handles(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    x, residuals, rank, s = emit_many("lstsq", array_node(a), array_node(b), rcond=known(rcond, "rcond="))
    return result_array(x), result_array(residuals), fresh(rank), result_array(s)


# -- factorizations ----------------------------------------------------------------------------------------------------


def _triangle_of(UPLO: Any) -> str:
    which = known(UPLO, "UPLO=").upper()
    if which not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return which


@handles(np.linalg.eigh)
def eigh(a: Any, UPLO: Any = "L") -> Any:
    return _result_type(np.linalg.eigh)(*map(result_array, emit_many("eigh", array_node(a), UPLO=_triangle_of(UPLO))))


@handles(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> Any:
    return result_array(emit("eigvalsh", array_node(a), UPLO=_triangle_of(UPLO)))


def _complex_matrix(a: Any, name: str) -> Node:
    x = array_node(a)
    if x.dtype.kind != "c":
        raise Escape(
            f"numpy.linalg.{name} of a real matrix", "whether the result is real or complex depends on data",
            "use eigh for symmetric matrices, or a.astype(complex)",
        )  # fmt: skip
    return x


@handles(np.linalg.eig)
def eig(a: Any) -> Any:
    return _result_type(np.linalg.eig)(*map(result_array, emit_many("eig", _complex_matrix(a, "eig"))))


@handles(np.linalg.eigvals)
def eigvals(a: Any) -> Any:
    return result_array(emit("eigvals", _complex_matrix(a, "eigvals")))


@handles(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = array_node(a)
    hermitian = bool(known(hermitian, "hermitian="))
    if not known(compute_uv, "compute_uv="):
        values = emit("svdvals", x, hermitian=hermitian)
        return fresh(values) if hermitian else result_array(values)
    full = bool(known(full_matrices, "full_matrices="))
    parts = emit_many("svd", x, full_matrices=full, hermitian=hermitian)
    return _result_type(np.linalg.svd)(*map(fresh if hermitian else result_array, parts))


@handles(np.linalg.svdvals)
def svdvals(x: Any, /) -> Any:
    return svd(x, compute_uv=False)


@handles(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    mode = {"f": "reduced", "full": "reduced"}.get(mode, mode)
    if mode in ("e", "economic"):
        raise Escape("numpy.linalg.qr(mode='economic')", "this mode is deprecated and not traced")
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(f"Unrecognized mode '{mode}'")
    value = as_tracer(a)
    x = array_node(value)
    first, second = emit_many("qr", x, mode="reduced" if mode == "r" else mode)
    if mode == "raw":
        return fresh(first), result_array(second)
    r = new_array(second) if x.ndim == 2 or is_c_sorted(x.shape, value.strides_in_memory) else fresh(second)
    return r if mode == "r" else _result_type(np.linalg.qr)(result_array(first), r)
