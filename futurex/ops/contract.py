"""Contractions: matmul, its relatives for vectors, and einsum; everything else of the kind is made of these."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.elementwise import conj, unbroadcast
from futurex.ops.matrices import column, row, swap_last, vector
from futurex.tree.aval import Aval
from futurex.tree.dims import Fresh, broadcast_shapes, is_static
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op

SHORT_SUM = 16
"""Elements of an inner axis up to which a stack of products of a matrix and a vector each is best written out: longer
sums are worth a loop each."""


def _matmul_rule(g: Node, out: Node, x: Node, y: Node) -> tuple[Node, Node]:
    if x.ndim == 1 and y.ndim == 1:
        return g * y, g * x
    x2 = x if x.ndim > 1 else apply("reshape", x, shape=(1, x.shape[0]))
    y2 = y if y.ndim > 1 else apply("reshape", y, shape=(y.shape[0], 1))
    batch = broadcast_shapes(x2.shape[:-2], y2.shape[:-2])
    g2 = apply("reshape", g, shape=(*batch, x2.shape[-2], y2.shape[-1])) if x.ndim == 1 or y.ndim == 1 else g
    dx = unbroadcast(_lying_as(x2, g2, swap_last(y2)), x2.aval)
    dy = _of_shared(x2, g2) if y.ndim == 2 < x.ndim else unbroadcast(_lying_as(y2, swap_last(x2), g2), y2.aval)
    return apply("reshape", dx, shape=x.shape), apply("reshape", dy, shape=y.shape)


def _lying_as(operand: Node, a: Node, b: Node) -> Node:
    """``a @ b``, whose elements lie in memory as those of the operand do that it belongs to: of a transposed one in the
    order of what was transposed."""
    steps = {"load": operand.attrs.get("chain", ()), "transpose": (("transpose", operand.attrs.get("axes")),)}
    last = steps.get(operand.op, ())[-1:]
    swaps = bool(last) and last[0][0] == "transpose" and last[0][1][-2:] == (operand.ndim - 1, operand.ndim - 2)
    return swap_last(apply("matmul", swap_last(b), swap_last(a))) if swaps else apply("matmul", a, b)


def _of_shared(x: Node, g: Node) -> Node:
    """The gradient of one matrix that a stack was multiplied with: a single product over all rows of the stack, not a
    stack of products that are added up."""
    stack = string.ascii_letters[: x.ndim - 1]
    return apply("einsum", x, g, subscripts=f"{stack}Y,{stack}Z->YZ", optimize=True)


def _matmul_aval(x: Aval, y: Aval) -> Aval:
    inner = (x.shape[-1], y.shape[-2 if y.ndim > 1 else -1]) if x.ndim and y.ndim else (0, 1)
    if is_static(inner) and inner[0] != inner[1]:
        np.matmul(np.broadcast_to(np.zeros((), x.dtype), x.shape), np.broadcast_to(np.zeros((), y.dtype), y.shape))
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    dtype = np.matmul(np.zeros((0, 0), x.dtype), np.zeros((0, 0), y.dtype)).dtype
    return Aval(batch + x.shape[-2:-1] + (y.shape[-1:] if y.ndim > 1 else ()), dtype)


def _matmul_factors(x: Aval, y: Aval) -> str:
    n_batch = max(x.ndim, y.ndim) - 2
    batch = [f"b{k}" for k in range(max(n_batch, 0))]

    def names(aval: Aval, own: tuple[str, str]) -> list[str]:
        mine = batch[len(batch) - (aval.ndim - 2) :] if aval.ndim > 2 else []
        return [name if extent != 1 else "1" for name, extent in zip(mine, aval.shape, strict=False)] + list(own)

    first = names(x, ("i", "k")) if x.ndim > 1 else ["k"]
    second = names(y, ("k", "j")) if y.ndim > 1 else ["k"]
    out = batch + (["i"] if x.ndim > 1 else []) + (["j"] if y.ndim > 1 else [])
    return f"{' '.join(first)}, {' '.join(second)} -> {' '.join(out)}"


def _matmul_cost(x: Aval, y: Aval) -> Cost:
    out = _matmul_aval(x, y)
    return Cost(2.0 * out.size * x.shape[-1], x.nbytes + y.nbytes + out.nbytes)


def _matmul_samples(rng: np.random.Generator) -> Iterable[Sample]:
    plain = (((3, 4), (4, 2)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)))
    for a, b in (*plain, ((5, 3, 4), (4, 2)), ((2, 1, 3, 4), (5, 4, 2))):
        yield Sample((rng.normal(size=a), rng.normal(size=b)))
    yield Sample((rng.integers(0, 9, (2, 3)), rng.integers(0, 9, (3, 2))), order=0)
    yield Sample((rng.normal(size=(0, 3)), rng.normal(size=(3, 2))), order=0)


op(
    "matmul", np.matmul, aval=_matmul_aval, vjp=_matmul_rule, factors=_matmul_factors, cost=_matmul_cost,
    batch=batching.matmul,
    numpy=(np.matmul,), samples=_matmul_samples,
)  # fmt: skip


def split_subscripts(subscripts: str) -> tuple[list[str], str]:
    """An explicit einsum without ellipsis, taken apart: the letters of each operand and those of the result."""
    inputs, out = subscripts.split("->")
    return inputs.split(","), out


def multiplies_matrices(subscripts: str) -> bool:
    """Does a contraction of two operands have rows, columns and a sum? Then a product of matrices is worth its copies.

    >>> multiplies_matrices("ij,jk->ik"), multiplies_matrices("ij,j->i")
    (True, False)
    """
    names, out = split_subscripts(subscripts)
    if len(names) != 2:
        return False
    first, second = map(set, names)
    return bool(first & second - set(out)) and bool((first - second) & set(out)) and bool((second - first) & set(out))


def _einsum_of_one(g: Node, others: list[tuple[Node, str]], g_names: str, target: Node, names: str) -> Node:
    """The cotangent of one operand: sum over names it lacks, broadcast over names that only it has."""
    factors = [(g, g_names), *others]
    available = "".join(name for name in names if any(name in own for _, own in factors))
    text = ",".join(own for _, own in factors)
    text = f"{text}->{available}"
    attrs = {"subscripts": text, "optimize": multiplies_matrices(text)}
    result = g if g_names == available and not others else apply("einsum", *(x for x, _ in factors), **attrs)
    if len(available) == len(names):
        return result
    shape = tuple(extent if name in available else 1 for name, extent in zip(names, target.shape, strict=True))
    return apply("broadcast_to", apply("reshape", result, shape=shape), shape=target.shape)


def _einsum_rule(g: Node, out: Node, *operands: Node, subscripts: str, optimize: bool) -> tuple[Node, ...]:
    names, g_names = split_subscripts(subscripts)
    pairs = list(zip(operands, names, strict=True))
    return tuple(_einsum_of_one(g, pairs[:k] + pairs[k + 1 :], g_names, *pair) for k, pair in enumerate(pairs))


def _einsum_extents(operands: tuple[Aval, ...], subscripts: str) -> dict[str, Any]:
    names, _ = split_subscripts(subscripts)
    shapes = [x.shape for x in operands]
    extents: dict[str, Any] = {}
    if [len(each) for each in names] != [len(shape) for shape in shapes]:
        raise ValueError(f"einsum {subscripts!r} does not fit operands of shapes {shapes}")
    for own, shape in zip(names, shapes, strict=True):
        for name, extent in zip(own, shape, strict=True):
            before = extents.setdefault(name, extent)
            if not is_static((before, extent)):  # NumPy stretches extents of one here, too
                (wide,) = broadcast_shapes((before,), (extent,))
                extents[name] = Fresh(len(extents)) if isinstance(wide, Fresh) else wide
            elif before != extent:
                raise ValueError(
                    f"einsum {subscripts!r}: index {name!r} has sizes {extents[name]} and {extent} in shapes {shapes}"
                )
    return extents


def _einsum_aval(*operands: Aval, subscripts: str, optimize: bool = False) -> Aval:
    extents = _einsum_extents(operands, subscripts)
    _, out = split_subscripts(subscripts)
    return Aval(tuple(extents[name] for name in out), np.result_type(*(x.dtype for x in operands)))


def _einsum_cost(*operands: Aval, subscripts: str, optimize: bool) -> Cost:
    extents, out = _einsum_extents(operands, subscripts), _einsum_aval(*operands, subscripts=subscripts)
    moved = sum(x.nbytes for x in operands) + out.nbytes
    return Cost(float(len(operands)) * math.prod(extents.values()), moved)


def _einsum_factors(*operands: Aval, subscripts: str, optimize: bool) -> str:
    names, out = split_subscripts(subscripts)
    return f"{', '.join(' '.join(own) for own in names)} -> {' '.join(out)}"


def _einsum(*operands: Any, subscripts: str, optimize: bool) -> Any:
    """``optimize``: by a product of matrices, as NumPy does where it is asked to."""
    result = np.einsum(subscripts, *operands, optimize=optimize)
    return result.copy() if len(operands) == 1 else result  # without a sum it is a view


def _einsum_samples(rng: np.random.Generator) -> Iterable[Sample]:
    cases: tuple[tuple[Any, ...], ...] = (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
        ("i,j->ij", (3,), (2,)),
        ("ij,k->j", (2, 3), (4,)),
        (",i->i", (), (3,)),
        ("ijk->kj", (2, 3, 4)),
        ("ij->", (2, 3)),
        ("ij->ji", (2, 3)),
    )
    for text, *shapes in cases:
        operands = tuple(np.asarray(rng.normal(size=shape)) for shape in shapes)
        yield Sample(operands, {"subscripts": text, "optimize": multiplies_matrices(text)})
    pair = tuple(rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3)) for _ in range(2))
    yield Sample(pair, {"subscripts": "ij,kj->ik", "optimize": True})
    attrs = {"subscripts": "ij,j->i", "optimize": False}
    yield Sample((rng.integers(0, 9, (2, 3)), rng.integers(0, 9, 3)), attrs, order=0)


op(
    "einsum", _einsum, aval=_einsum_aval, vjp=_einsum_rule, factors=_einsum_factors, cost=_einsum_cost,
    batch=batching.einsum,
    samples=_einsum_samples,
)  # fmt: skip


def _vecdot(x: Node, y: Node) -> Node:
    return apply("sum", conj(x) * y, axis=(max(x.ndim, y.ndim) - 1,), keepdims=False, dtype=None)


def _matvec(x: Node, y: Node) -> Node:
    if x.ndim == 2 < y.ndim + 1:  # one matrix, which all vectors share: they are the rows of another
        return apply("matmul", y, apply("transpose", x, axes=(1, 0)))
    return vector(apply("matmul", x, column(y)))


def _vecmat(x: Node, y: Node) -> Node:
    if y.ndim == 2 < x.ndim + 1:
        return apply("matmul", conj(x), y)
    product = apply("matmul", row(conj(x)), y)
    return apply("reshape", product, shape=(*product.shape[:-2], product.shape[-1]))


def _vector_product(ufunc: Any, decompose: Any, first: str, second: str, out: str) -> None:
    """A product of stacks of vectors and matrices; ``first``, ``second`` and ``out`` name the core dimensions."""

    def aval(x: Aval, y: Aval) -> Aval:
        if x.ndim < len(first) or y.ndim < len(second):
            ufunc(*(np.broadcast_to(np.zeros((), each.dtype), each.shape) for each in (x, y)))
        stacks = x.shape[: x.ndim - len(first)], y.shape[: y.ndim - len(second)]
        cores = x.shape[x.ndim - len(first) :], y.shape[y.ndim - len(second) :]
        small = ufunc(*(np.zeros(core, each.dtype) for core, each in zip(cores, (x, y), strict=True)))
        return Aval(broadcast_shapes(*stacks) + small.shape, small.dtype)

    def factors(x: Aval, y: Aval) -> str:
        depth = max(x.ndim - len(first), y.ndim - len(second))
        shape = broadcast_shapes(x.shape[: x.ndim - len(first)], y.shape[: y.ndim - len(second)])
        stack = [f"b{k}" for k in range(depth)]

        def names(each: Aval, core: str) -> str:
            count = each.ndim - len(core)
            mine = zip(stack[depth - count :], each.shape, shape[depth - count :], strict=False)
            return " ".join([*(name if extent == whole else "1" for name, extent, whole in mine), *core])

        return f"{names(x, first)}, {names(y, second)} -> {' '.join([*stack, *out])}"

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        extents = {"m": 2, "n": 3}
        a, b = (tuple(extents[name] for name in core) for core in (first, second))
        for x, y in (((), ()), ((4,), ()), ((), (4,)), ((1, 2), (4, 1))):
            yield Sample((rng.normal(size=x + a), rng.normal(size=y + b)))
        yield Sample((rng.normal(size=a) + 1j * rng.normal(size=a), rng.normal(size=b) + 1j), order=1)
        yield Sample((rng.integers(0, 9, a), rng.integers(0, 9, b)), order=0)

    op(
        ufunc.__name__, ufunc, aval=aval, decompose=decompose, factors=factors, numpy=(ufunc,), samples=samples,
    )  # fmt: skip


_vector_product(np.vecdot, _vecdot, "n", "n", "")
_vector_product(np.matvec, _matvec, "mn", "n", "m")
_vector_product(np.vecmat, _vecmat, "n", "nm", "m")
