"""``reduceat`` of any ufunc: parts of an axis, which may overlap, each reduced by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.ops.special import ufunc_named
from futurex.ops.ufunc_methods import EXPONENTS, EXTREMES, SMOOTH, exponent_slope, target
from futurex.tree.aval import Aval
from futurex.tree.dims import is_static
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, dimensions_of, item, param, size_node
from futurex.tree.record import Sample, op


def _reduceat(x: Any, indices: Any, ufunc: str, axis: int, dtype: Any, out: Any) -> Any:
    shape = (*x.shape[:axis], *np.shape(indices), *x.shape[axis + 1 :])
    return ufunc_named(ufunc).reduceat(x, indices, axis=axis, dtype=dtype, **target(shape, out))


def _reduceat_aval(x: Aval, indices: Aval, ufunc: str, axis: int, dtype: Any, out: Any) -> Aval:
    stand_in = np.zeros((1,) * indices.ndim, indices.dtype)
    one = _reduceat(np.ones((1,) * x.ndim, x.dtype), stand_in, ufunc, axis, dtype, out)
    return Aval((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), one.dtype)


def _reduceat_rule(
    g: Node, result: Node, x: Node, indices: Node, ufunc: str, axis: int, dtype: Any, out: Any
) -> Any:  # fmt: skip
    if ufunc not in _OF_PARTS:
        return NotImplemented
    if indices.shape[0] == 0:
        return (apply("full", 0, shape=x.shape, dtype=x.dtype), None)
    if ufunc == "multiply":
        def back(h: Node) -> Node:
            return _by_parts((_masked_back, _owned_back), h, result, x, indices, axis, "add")

        zero, alone, two, others, zeros = _zeros_of_parts(x, indices, axis)
        of_zeros = back(where(alone, g * others, 0.0)) + back(where(two, g * others * zeros, 0.0))
        of_zeros = of_zeros - x * back(where(two, g * others, 0.0))
        return (where(zero, of_zeros, back(g * result) / where(zero, 1.0, x)), None)
    return (_by_parts((_masked_back, _owned_back), g, result, x, indices, axis, ufunc), None)


def _zeros_of_parts(x: Node, indices: Node, axis: int) -> tuple[Node, ...]:
    """Which elements are zero; which parts have one zero, and which two; the products of their other elements, and the
    sums of their zeros, which are no constants: a second derivative goes through them."""
    def parts(values: Node, ufunc: str) -> Node:
        return apply("reduceat", values, indices, ufunc=ufunc, axis=axis, dtype=None, out=None)

    zero = apply("equal", x, 0)
    count = parts(apply("cast", zero, dtype=np.dtype(np.int64)), "add")
    alone, two = (apply("equal", count, number) for number in (1, 2))
    return zero, alone, two, parts(where(zero, 1.0, x), "multiply"), parts(where(zero, x, 0.0), "add")


def _reduceat_push(
    tangents: Sequence[Node | None], result: Node, x: Node, indices: Node, ufunc: str, axis: int, dtype: Any, out: Any
) -> Any:  # fmt: skip
    t = tangents[0]
    if t is None or ufunc not in _OF_PARTS:
        return NotImplemented
    if ufunc == "add" or indices.shape[0] == 0:
        return _sums(t, indices, axis)
    if ufunc == "multiply":
        zero, alone, two, others, zeros = _zeros_of_parts(x, indices, axis)
        of_zeros, moved = where(zero, t, 0.0), where(zero, 0.0, t / where(zero, 1.0, x))
        once = _sums(of_zeros, indices, axis)
        twice = once * zeros - _sums(of_zeros * x, indices, axis)
        return result * _sums(moved, indices, axis) + others * where(alone, once, where(two, twice, 0.0))
    return _by_parts((_masked_forth, _owned_forth), t, result, x, indices, axis, ufunc)


_OF_PARTS = ("add", "multiply", "logaddexp", "logaddexp2", "hypot", *EXTREMES)
_FEW = 4096


def _by_parts(
    rules: Sequence[Callable[..., Node]], g: Node, result: Node, x: Node, indices: Node, axis: int, ufunc: str
) -> Node:
    """By masks, of extent times count, where that is little or parts overlap; where the indices increase, which the
    run knows, every element has one owner."""
    begin = apply("cast", indices, dtype=np.dtype(np.int64))
    x = apply("cast", x, dtype=result.dtype) if ufunc != "add" else x
    sizes = x.shape[axis], begin.shape[0]
    if is_static(sizes) and math.prod(sizes) <= _FEW:
        return rules[0](g, result, x, begin, axis, ufunc)
    ends = (("s", None, -1, None), ("s", 1, None, None))
    before, behind = (apply("load", begin, chain=(("index", (end,)),)) for end in ends)
    rising = apply("all", apply("less", before, behind), axis=None, keepdims=False)
    inputs = (g, result, x, begin)
    masked, owned = (_branch(rule, inputs, axis, ufunc) for rule in rules)
    return item(apply("cond", rising, *inputs, then=owned, orelse=masked), 0)


def _branch(rule: Callable[..., Node], inputs: Sequence[Node], axis: int, ufunc: str) -> Graph:
    params = [param(node.aval, f"x{k}") for k, node in enumerate(inputs)]
    with dimensions_of(params):
        return Graph(params, [rule(*params, axis, ufunc)], rule.__name__.strip("_"))


def _inside(result: Node, x: Node, begin: Node, axis: int, ufunc: str) -> Node:
    """Which elements count for which part, which lies along an axis of its own behind theirs. A part begins at its
    index and ends before the next one; where that is not greater, the part is one element."""
    extent, count = x.shape[axis], begin.shape[0]
    behind = apply("load", begin, chain=(("index", (("s", 1, None, None),)),))
    behind = apply("concatenate", behind, apply("full", size_node(extent), shape=(1,), dtype=behind.dtype), axis=0)
    end = where(apply("less", begin, behind), behind, begin + 1)
    places = apply("iota", shape=(extent, 1), axis=0, dtype=np.dtype(np.int64))
    inside = apply("logical_and", apply("less_equal", begin, places), apply("less", places, end))
    inside = apply("reshape", inside, shape=(extent, count, *(1 for _ in range(x.ndim - 1 - axis))))
    if ufunc not in EXTREMES:
        return inside
    return apply("logical_and", inside, apply("equal", _along(x, axis + 1), _along(result, axis)))


def _along(x: Node, axis: int) -> Node:
    return apply("reshape", x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def _hits(inside: Node, axis: int, dtype: Any) -> Node:
    return apply("sum", inside, axis=(axis,), keepdims=False, dtype=dtype)


def _weighed(moved: Node, counts: Node, x: Node, result: Node, ufunc: str) -> Node:
    """What moves with the elements that count, times what a result changes by with each of them."""
    if ufunc in EXPONENTS:
        moved = moved * exponent_slope(ufunc, where(counts, x, 0.0), where(counts, result, 0.0))
    elif ufunc in SMOOTH:
        moved = moved * SMOOTH[ufunc](where(counts, x, 1.0), where(counts, result, 1.0))
    return where(counts, moved, 0.0)


def _masked_back(g: Node, result: Node, x: Node, begin: Node, axis: int, ufunc: str) -> Node:
    inside = _inside(result, x, begin, axis, ufunc)
    g = g / _hits(inside, axis, g.dtype) if ufunc in EXTREMES else g
    shares = _weighed(_along(g, axis), inside, _along(x, axis + 1), _along(result, axis), ufunc)
    return apply("sum", shares, axis=(axis + 1,), keepdims=False, dtype=None)


def _masked_forth(t: Node, result: Node, x: Node, begin: Node, axis: int, ufunc: str) -> Node:
    inside = _inside(result, x, begin, axis, ufunc)
    shares = _weighed(_along(t, axis + 1), inside, _along(x, axis + 1), _along(result, axis), ufunc)
    moved = apply("sum", shares, axis=(axis,), keepdims=False, dtype=None)
    return moved / _hits(inside, axis, t.dtype) if ufunc in EXTREMES else moved


def _owners(result: Node, x: Node, begin: Node, axis: int, ufunc: str) -> tuple[Node, Callable[[Node], Node]]:
    """Which elements count, and how to read for each of them what its part has."""
    extent = x.shape[axis]
    starts = apply("full", 0, shape=(extent,), dtype=begin.dtype)
    starts = apply("scatter", starts, 1, begin, pattern=(("d", 0),), mode="add")
    owner = apply("cumsum", starts, axis=0, dtype=None) - 1
    pattern = (*(("s", None, None, None) for _ in range(axis)), ("d", 0))
    places = apply("maximum", owner, 0)
    owned = apply("reshape", apply("less_equal", 0, owner), shape=(extent, *(1 for _ in range(x.ndim - 1 - axis))))

    def of_owner(parts: Node) -> Node:
        return apply("gather", parts, places, pattern=pattern)

    if ufunc in EXTREMES:
        owned = apply("logical_and", owned, apply("equal", x, of_owner(result)))
    return owned, of_owner


def _sums(x: Node, begin: Node, axis: int) -> Node:
    return apply("reduceat", x, begin, ufunc="add", axis=axis, dtype=None, out=None)


def _owned_back(g: Node, result: Node, x: Node, begin: Node, axis: int, ufunc: str) -> Node:
    owned, of_owner = _owners(result, x, begin, axis, ufunc)
    g = g / _sums(apply("cast", owned, dtype=g.dtype), begin, axis) if ufunc in EXTREMES else g
    return _weighed(of_owner(g), owned, x, of_owner(result), ufunc)


def _owned_forth(t: Node, result: Node, x: Node, begin: Node, axis: int, ufunc: str) -> Node:
    owned, of_owner = _owners(result, x, begin, axis, ufunc)
    moved = _sums(_weighed(t, owned, x, of_owner(result), ufunc), begin, axis)
    return moved / _sums(apply("cast", owned, dtype=t.dtype), begin, axis) if ufunc in EXTREMES else moved


def _reduceat_factors(x: Aval, indices: Aval, axis: int, **_: Any) -> str:
    names = [f"!d{k}" if k == axis else f"d{k}" for k in range(x.ndim)]
    outs = [*names[:axis], "!n", *names[axis + 1 :]]
    return f"{' '.join(names)}, !n -> {' '.join(outs)}"


def _reduceat_samples(rng: np.random.Generator) -> Iterable[Sample]:
    base = {"ufunc": "add", "axis": 1, "dtype": None, "out": None}
    yield Sample((rng.normal(size=(3, 4)), np.array([0, 2])), base)
    yield Sample((rng.normal(size=(4, 2)), np.array([3, 1, 1, 2])), {**base, "axis": 0})
    for ufunc in ("maximum", "minimum", "fmin"):
        yield Sample((rng.normal(size=(4, 2)), np.array([3, 1, 1, 2])), {**base, "axis": 0, "ufunc": ufunc}, order=1)
    many = rng.normal(size=(90, 1))
    for places in (np.arange(2, 80), rng.permutation(80)):
        yield Sample((many, places), {**base, "axis": 0})
        yield Sample((many, places), {**base, "axis": 0, "ufunc": "maximum"}, order=1)
    for ufunc in ("multiply", "logaddexp", "logaddexp2", "hypot"):
        for places in (np.array([3, 1, 1, 2]), np.array([1, 3])):
            yield Sample((rng.normal(size=(4, 2)), places), {**base, "axis": 0, "ufunc": ufunc})
        yield Sample((many, np.arange(2, 80)), {**base, "axis": 0, "ufunc": ufunc})
    zeros = np.array([2.0, 0.0, 3.0, 0.0, 0.0, 4.0, 5.0])
    yield Sample((zeros, np.array([0, 3, 4, 2])), {**base, "axis": 0, "ufunc": "multiply"})
    yield Sample((rng.normal(size=(4,)), np.array([1, 3])), {**base, "axis": 0, "ufunc": "divide"}, order=0)


op(
    "reduceat", _reduceat, aval=_reduceat_aval, vjp=_reduceat_rule, jvp=_reduceat_push, factors=_reduceat_factors,
    fails=True, samples=_reduceat_samples,
)  # fmt: skip
