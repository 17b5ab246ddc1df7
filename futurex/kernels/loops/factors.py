"""Eigenvalues, QR, least squares, polynomials and pseudoinverses in compiled loops, by LAPACK's loops behind NumPy's
functions. What they cannot factorise is a failure, as in :mod:`linear`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import elementwise
from futurex.kernels.loops.arrays import Array, Extent
from futurex.kernels.loops.linear import DOUBLE, checked, double, lapack, product
from futurex.kernels.loops.reductions import reduced
from futurex.kernels.loops.searching import element
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import InnerLoop, inner_loop
from futurex.kernels.loops.values import Scalar, constant, converted
from futurex.kernels.numba_.scalar import register_type
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_RANK = np.dtype(np.int32)


def eigen(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``eigh``."""
    a = double(e, inputs[0])
    outs = [e.fresh(a.shape[:-1], DOUBLE), e.fresh(a.shape, DOUBLE)]
    _factorized(e, lapack(f"eigh_{_half(node)}", 1, 2), [(a, 2), (outs[0], 1), (outs[1], 2)], [a.capacity[-1]])
    return _as_wanted(e, node, outs)


def eigenvalues(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``eigvalsh``."""
    a = double(e, inputs[0])
    out = e.fresh(a.shape[:-1], DOUBLE)
    _factorized(e, lapack(f"eigvalsh_{_half(node)}", 1, 1), [(a, 2), (out, 1)], [a.capacity[-1]])
    return elementwise.operand(e, out, node.dtype)


def singular_values(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``svdvals``."""
    a = double(e, inputs[0])
    m, n = a.capacity[-2:]
    if node.attrs["hermitian"] or not m or not n:
        raise Unsupported("singular values of a matrix of its own kind")
    out = e.fresh((*a.shape[:-2], min(m, n)), DOUBLE)
    _factorized(e, lapack("svd", 1, 1), [(a, 2), (out, 1)], [m, n, min(m, n)])
    return elementwise.operand(e, out, node.dtype)


def condition(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``cond`` of one matrix, by its largest and smallest singular value; where both are zero, NumPy looks for NaN."""
    p, f = node.attrs["p"], e.function
    if p not in (None, 2, -2):
        raise Unsupported("a condition number of another kind")
    a = _matrix(e, inputs[0])
    m, n = a.capacity
    values = e.fresh((min(m, n),), DOUBLE)
    _factorized(e, lapack("svd", 1, 1), [(a, 2), (values, 1)], [m, n, min(m, n)])
    start = values.pointer(f)
    one, two = (f.load(DOUBLE, element(f, start, str(k))) for k in (0, min(m, n) - 1))
    one, two = (f.cast(each, DOUBLE, node.dtype) for each in (one, two))
    first, last = (two, one) if p == -2 else (one, two)
    kind = register_type(node.dtype)
    found = f.emit(f"fdiv {kind} {first}, {last}")
    f.fail_if(f.emit(f"fcmp uno {kind} {found}, {found}"))
    return Scalar(found, node.dtype, False)


def orthogonal(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``qr`` of one matrix: LAPACK's own form of both factors, from which they are taken."""
    a, mode = e.copied(_matrix(e, inputs[0])), node.attrs["mode"]
    (m, n), f = a.capacity, e.function
    least = min(m, n)
    if mode not in ("reduced", "complete", "r"):
        raise Unsupported("factors in a form of their own")
    beside = e.fresh((least,), DOUBLE)
    _factorized(e, lapack("qr_r_raw", 1, 1), [(a, 2), (beside, 1)], [m, n, least])
    whole = mode == "complete" and m > n
    columns = m if whole else least
    outs = []
    if mode != "r":
        q = e.fresh((m, columns), DOUBLE)
        core = [m, n, m] if whole else [m, n, least]
        loop = lapack("qr_complete" if whole else "qr_reduced", 2, 1)
        _factorized(e, loop, [(a, 2), (beside, 1), (q, 2)], core)
        outs.append(q)
    upper = e.fresh((columns, n), DOUBLE)
    given, told = a.pointer(f), upper.pointer(f)
    with f.counted(columns * n) as k:
        row, column = f.emit(f"udiv i64 {k}, {n}"), f.emit(f"urem i64 {k}, {n}")
        value = f.load(DOUBLE, element(f, given, k))
        kept = f.emit(f"icmp ule i64 {row}, {column}")
        f.store(DOUBLE, f.select(kept, "double", value, "0.0"), element(f, told, k))
    found = _as_wanted(e, node, [*outs, upper])
    return found if isinstance(node.aval, tuple) else found[0]


def least_squares(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``lstsq``: the run tells whether there are residuals, which are those of matrices of full rank."""
    a, b = _matrix(e, inputs[0]), double(e, inputs[1])
    (m, n), f, rcond = a.capacity, e.function, node.attrs["rcond"]
    x, rest, rank, values = _least_squares(e, a, b, np.finfo(float).eps * max(n, m) if rcond is None else float(rcond))
    avals: Any = node.aval
    if m <= n:
        rest = replace(rest, shape=(0,), owned=False)
    else:
        many = rest.capacity[0]
        full = f.emit(f"icmp eq i32 {f.load(_RANK, rank.pointer(f))}, {n}")
        rest = replace(rest, shape=(Extent(f.select(full, "i64", str(many), "0"), many),), owned=False)
    found = [elementwise.operand(e, each, aval.dtype) for each, aval in zip((x, rest), avals[:2], strict=True)]
    number = e.unboxed(elementwise.operand(e, rank, avals[2].dtype))
    return [*found, number, elementwise.operand(e, values, avals[3].dtype)]


def polynomial(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``polyfit`` in double precision: powers, scaled by columns, and their least squares; where these are not of full
    rank NumPy has something to warn of."""
    if any(not isinstance(each, Array) or each.dtype.kind not in "biuf" or each.dtype.itemsize < 8 for each in inputs):
        raise Unsupported("a polynomial in another precision")
    x, y, *weights = (elementwise.operand(e, each, DOUBLE) for each in inputs)
    f, rcond, order = e.function, node.attrs["rcond"], node.attrs["deg"] + 1
    (m,) = e.known(x.shape)
    if not m or not y.static or y.shape[0] != m:
        raise Unsupported("a polynomial through nothing")
    powers, squares = e.fresh((m, order), DOUBLE), e.fresh((m, order), DOUBLE)
    given, told, power = x.pointer(f), powers.pointer(f), f.variable("double")
    with f.counted(m) as row:
        value = f.load(DOUBLE, element(f, given, row, x.strides[0]))
        f.store(DOUBLE, "1.0", power)
        last = f.emit(f"add i64 {f.emit(f'mul i64 {row}, {order}')}, {order - 1}")
        f.store(DOUBLE, "1.0", element(f, told, last))
        for k in range(1, order):
            following = value if k == 1 else f.emit(f"fmul double {f.load(DOUBLE, power)}, {value}")
            f.store(DOUBLE, following, power)
            f.store(DOUBLE, following, element(f, told, f.emit(f"sub i64 {last}, {k}")))
    for each in weights:
        column = replace(each, shape=(m, 1), strides=(each.strides[0], 0), owned=False)
        elementwise.by_loop(e, np.multiply, [powers, column], powers)
        weighted = e.fresh(y.shape, DOUBLE)
        elementwise.by_loop(e, np.multiply, [y, each if len(y.shape) == 1 else column], weighted)
        y = weighted
    elementwise.by_loop(e, np.multiply, [powers, powers], squares)
    scale = reduced(e, "sum", squares, (0,), DOUBLE, keepdims=False)
    elementwise.by_loop(e, np.sqrt, [scale], scale)
    elementwise.by_loop(e, np.divide, [powers, scale], powers)
    cutoff = float(m * np.finfo(float).eps) if rcond is None else float(rcond)
    found, _, rank, _ = _least_squares(e, powers, y, cutoff)
    f.fail_if(f.emit(f"icmp ne i32 {f.load(_RANK, rank.pointer(f))}, {order}"))
    if len(found.shape) == 2:
        scale = replace(scale, shape=(order, 1), strides=(8, 0), owned=False)
    elementwise.by_loop(e, np.divide, [found, scale], found)
    return found


def _least_squares(e: Emitter, a: Array, b: Array, cutoff: float) -> tuple[Array, Array, Array, Array]:
    """Solutions, residuals, rank and singular values."""
    (m, n), vector = a.capacity, len(b.shape) == 1
    if vector:
        b = replace(b, shape=(*b.shape, 1), strides=(*b.strides, 8), owned=False)
    if len(b.shape) != 2 or not b.capacity[1] or b.capacity[0] != m:
        raise Unsupported("least squares of their own kind")
    many = b.capacity[1]
    limit = e.cell(constant(cutoff, DOUBLE, False))
    x, rest, values = e.fresh((n, many), DOUBLE), e.fresh((many,), DOUBLE), e.fresh((min(m, n),), DOUBLE)
    rank = e.fresh((), _RANK)
    ufunc = getattr(getattr(np.linalg, "_umath_linalg", None), "lstsq", None)
    loop = inner_loop(ufunc, (DOUBLE,) * 3, DOUBLE, DOUBLE, _RANK, DOUBLE) if isinstance(ufunc, np.ufunc) else None
    if loop is None:
        raise Unsupported("least squares")
    operands = [(a, 2), (b, 2), (limit, 0), (x, 2), (rest, 1), (rank, 0), (values, 1)]
    _factorized(e, loop, operands, [m, n, many, min(m, n)])
    return (replace(x, shape=(n,), strides=(8,)) if vector else x), rest, rank, values


def pseudoinverse(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``pinv`` of one matrix: of its singular values those that are large enough are inverted."""
    x, rcond = inputs
    if node.attrs["hermitian"] or node.dtype != DOUBLE or x.dtype != DOUBLE or not isinstance(rcond, Scalar):
        raise Unsupported("a pseudoinverse of its own kind")
    a, f = _matrix(e, x), e.function
    m, n = a.capacity
    least = min(m, n)
    u, s, v = (e.fresh(shape, DOUBLE) for shape in ((m, least), (least,), (least, n)))
    _factorized(e, lapack("svd_s", 1, 3), [(a, 2), (u, 2), (s, 1), (v, 2)], [m, n, least])
    start = s.pointer(f)
    cutoff = f.emit(f"fmul double {converted(f, rcond, DOUBLE)}, {f.load(DOUBLE, start)}")
    with f.counted(least) as k:
        place = element(f, start, k)
        value = f.load(DOUBLE, place)
        large = f.emit(f"fcmp ogt double {value}, {cutoff}")
        f.store(DOUBLE, f.select(large, "double", f.emit(f"fdiv double 1.0, {value}"), "0.0"), place)
    scaled = e.fresh(u.shape, DOUBLE)
    elementwise.by_loop(e, np.multiply, [replace(s, shape=(1, least), strides=(0, 8), owned=False), u], scaled)
    turned = [replace(each, shape=each.shape[::-1], strides=each.strides[::-1], owned=False) for each in (v, scaled)]
    return product(e, turned[0], turned[1], DOUBLE)


def _half(node: Node) -> str:
    return "lo" if node.attrs["UPLO"].upper() == "L" else "up"


def _matrix(e: Emitter, value: Any) -> Array:
    a = double(e, value)
    if len(a.shape) != 2 or 0 in a.capacity:
        raise Unsupported("a stack of matrices, or an empty one")
    return a


def _factorized(e: Emitter, loop: InnerLoop, operands: Sequence[tuple[Array, int]], core: Sequence[int]) -> None:
    """Run a loop over matrices, vectors and numbers: with each operand how many dimensions these have."""
    first, wide = operands[0]
    steps = [step for each, own in operands if own for step in each.strides[-own:]]
    stack = first.shape[: len(first.shape) - wide]
    checked(e, loop, [each for each, _ in operands], stack, [own for _, own in operands], core, steps)


def _as_wanted(e: Emitter, node: Node, outs: Sequence[Array]) -> list[Array]:
    """Results in the precision that they have."""
    avals: Any = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    return [elementwise.operand(e, out, aval.dtype) for out, aval in zip(outs, avals, strict=True)]
