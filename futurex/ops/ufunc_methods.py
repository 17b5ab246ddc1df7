"""The methods of ufuncs with all their options: reduce, accumulate, reduceat and at, of any ufunc.

The plain sums, products, extremes and tests have records of their own in :mod:`futurex.ops.reduce`; what is here runs
NumPy's method as it is called. ``ufunc`` is the ufunc's name as :func:`ufunc_named` reads it; ``out`` is the dtype of
the array that a result is written to, which NumPy then computes in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.elementwise import flat_at_zero, unbroadcast, where, zeros_like
from futurex.ops.index import Pattern, fancy_index, gather_aval
from futurex.ops.recurrences import backwards, shifted
from futurex.ops.reduce import Axis, along, axes_of, reduced_shape, restore
from futurex.ops.special import ufunc_named
from futurex.tree.aval import Aval
from futurex.tree.dims import broadcast_shapes, is_static, may_fill
from futurex.tree.node import Node, apply, item
from futurex.tree.record import Sample, op, record


def target(shape: tuple[int, ...], out: Any) -> dict[str, Any]:
    return {} if out is None else {"out": np.empty(shape, out)}


def _plain(value: Any) -> Any:
    """A 0-dimensional array that NumPy wrote a result into, as the scalar that it would have returned."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _options(rest: tuple[Any, ...], initial: str, masked: bool) -> dict[str, Any]:
    """``initial=`` and ``where=`` of a reduction from the inputs that follow the array."""
    options: dict[str, Any] = {"initial": None} if initial == "none" else {}
    if initial == "given":
        options["initial"], *rest = rest  # type: ignore[assignment]
    if masked:
        options["where"] = rest[0]
    return options


def _reduce(
    x: Any, *rest: Any, ufunc: str, axis: Axis, keepdims: bool, dtype: Any, out: Any, initial: str, masked: bool
) -> Any:
    x = np.asarray(x)
    into = target(reduced_shape(x.shape, axis, keepdims), out)
    options = _options(rest, initial, masked)
    return _plain(ufunc_named(ufunc).reduce(x, axis=axis, dtype=dtype, keepdims=keepdims, **options, **into))


def _reduce_aval(x: Aval, *rest: Aval, axis: Axis, keepdims: bool, **attrs: Any) -> Aval:
    """NumPy's own answer on one element, and on none where it may refuse an empty array."""
    shape = reduced_shape(x.shape, axis, keepdims)
    one = np.ones((1,) * x.ndim, x.dtype)
    spare = [aval.dtype.type(1).item() if aval.weak else np.ones((), aval.dtype)[()] for aval in rest]
    dtype = _reduce(one, *spare, axis=axis, keepdims=keepdims, **attrs).dtype
    if x.size == 0 and math.prod(shape) != 0:
        _reduce(np.empty(0, x.dtype), *spare, axis=(0,), keepdims=False, **attrs)
    if attrs["masked"] and not may_fill(rest[-1].shape, x.shape):
        raise ValueError(f"where= of shape {rest[-1].shape} does not fit an array of shape {x.shape}")
    return Aval(shape, dtype)


def _reduce_factors(x: Aval, *rest: Aval, axis: Axis, keepdims: bool, **_: Any) -> str:
    axes = axes_of(x.ndim, axis)
    names = [f"!d{k}" if k in axes else f"d{k}" for k in range(x.ndim)]
    outs = [("1" if keepdims else None) if k in axes else name for k, name in enumerate(names)]

    def operand(aval: Aval) -> str:
        own = names[len(names) - aval.ndim :]
        shape = x.shape[x.ndim - aval.ndim :]
        return " ".join(
            name if extent == whole else "1" for name, extent, whole in zip(own, aval.shape, shape, strict=True)
        )

    return f"{', '.join([' '.join(names), *map(operand, rest)])} -> {' '.join(name for name in outs if name)}"


def _reduce_rule(
    g: Node, result: Node, x: Node, *rest: Node, ufunc: str, axis: Axis, keepdims: bool, dtype: Any, out: Any,
    initial: str, masked: bool,
) -> Any:  # fmt: skip
    """Also of a part of the elements, and with a start value."""
    start = rest[0] if initial == "given" else None
    mask = rest[-1] if masked else None
    if ufunc == "add":
        dx, dstart = restore(g, x, axis), g
    elif ufunc == "multiply":
        inner = where(mask, x, 1) if mask is not None else x
        attrs = {"axis": axis, "keepdims": keepdims, "dtype": dtype}
        product = apply("prod", inner, **attrs)
        rule: Any = record("prod").vjp
        (dx,), dstart = rule(g if start is None else g * start, product, inner, **attrs), g * product
    elif ufunc in ("maximum", "minimum", "fmax", "fmin"):
        dx, dstart = _extreme_shares(g, result, x, start, mask, axis, keepdims)
    elif ufunc in SMOOTH:
        slope = SMOOTH[ufunc]
        dx = restore(g, x, axis) * slope(x, restore(result, x, axis))
        dstart = g if start is None else g * slope(start, result)
    elif ufunc in ("subtract", "divide") and initial == "default" and mask is None:
        return _last_rule(g, x, ufunc, axes_of(x.ndim, axis)[0], dtype, out)
    else:
        return NotImplemented
    dx = dx if mask is None else where(mask, dx, 0.0)
    given = [] if start is None else [unbroadcast(dstart, start.aval)]
    return (dx, *given, *([] if mask is None else [None]))


EXTREMES = ("maximum", "minimum", "fmax", "fmin")
SMOOTH = {
    "logaddexp": lambda x, out: apply("exp", x - out),
    "logaddexp2": lambda x, out: apply("exp2", x - out),
    "hypot": lambda x, out: x / flat_at_zero(out),
}
"""What the result of such a reduction changes by with one of its elements."""


def _extreme_shares(
    g: Node, result: Node, x: Node, start: Node | None, mask: Node | None, axis: Axis, keepdims: bool
) -> tuple[Node, Node]:
    """The gradient is shared equally by all that attain the extreme."""
    hit = apply("equal", x, restore(result, x, axis))
    hit = hit if mask is None else apply("logical_and", hit, mask)
    count = apply("sum", hit, axis=axis, keepdims=keepdims, dtype=g.dtype)
    if start is None:
        return where(hit, restore(g / count, x, axis), 0.0), g
    here = apply("equal", result, start)
    share = g / (count + apply("cast", here, dtype=g.dtype))
    return where(hit, restore(share, x, axis), 0.0), where(here, share, 0.0)


def _reduce_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, mask = rng.permutation(12).reshape(3, 4) / 7.0 + 0.3, rng.random((3, 4)) < 0.6
    base = {"axis": (1,), "keepdims": False, "dtype": None, "out": None, "initial": "default", "masked": False}
    for ufunc in ("add", "multiply", "maximum", "minimum"):
        attrs = {**base, "ufunc": ufunc, "initial": "given"}
        order = 2 if ufunc in ("add", "multiply") else 1
        yield Sample((x, 0.8), attrs, order=order)
        yield Sample((x, 0.7, mask), {**attrs, "masked": True}, order=order)
        yield Sample((x, 0.9, mask), {**attrs, "masked": True, "axis": None, "keepdims": True}, order=order)
    yield Sample((x, mask[0]), {**base, "ufunc": "add", "masked": True})
    yield Sample((x.astype(np.int8),), {**base, "ufunc": "add", "out": np.dtype("i2")}, order=0)
    for ufunc in ("logaddexp", "logaddexp2", "hypot"):
        yield Sample((x,), {**base, "ufunc": ufunc})
    for ufunc in ("subtract", "divide"):
        yield Sample((x,), {**base, "ufunc": ufunc})
    yield Sample((x,), {**base, "ufunc": "fmax", "axis": (0, 1)}, order=1)
    yield Sample((x.astype(int),), {**base, "ufunc": "bitwise_xor", "axis": None}, order=0)
    yield Sample((x.astype(np.float32),), {**base, "ufunc": "subtract", "dtype": np.dtype(float)}, order=0)


op(
    "ufunc_reduce", _reduce, aval=_reduce_aval, vjp=_reduce_rule, factors=_reduce_factors, samples=_reduce_samples,
)  # fmt: skip


def _accumulate(x: Any, ufunc: str, axis: int, dtype: Any, out: Any) -> Any:
    return ufunc_named(ufunc).accumulate(x, axis=axis, dtype=dtype, **target(np.shape(x), out))


def _accumulate_aval(x: Aval, ufunc: str, axis: int, dtype: Any, out: Any) -> Aval:
    return Aval(x.shape, _accumulate(np.ones((1,) * x.ndim, x.dtype), ufunc, axis, dtype, out).dtype)


def _backwards(g: Node, axis: int) -> Node:
    """Sums from each element to the end."""
    flipped = apply("flip", g, axis=(axis,))
    return apply("flip", apply("cumsum", flipped, axis=axis, dtype=None), axis=(axis,))


def _accumulate_rule(g: Node, result: Node, x: Node, ufunc: str, axis: int, dtype: Any, out: Any) -> Any:
    if ufunc == "add":
        return (_backwards(g, axis),)
    if ufunc == "multiply":
        return (_product_slopes(g, result, x, axis),)
    if ufunc in ("maximum", "minimum"):
        return (_extreme_slopes(g, result, x, axis),)
    return _running_rule(g, result, x, ufunc, axis)


def _running_rule(g: Node, result: Node, x: Node, ufunc: str, axis: int) -> Any:
    """Of any ufunc of two operands, as far as it has a derivative: each result is made of the one before."""
    if not is_static(x.shape) or result.dtype.kind != "f" or "." in ufunc:
        return NotImplemented
    if x.shape[axis] == 0:
        return (g,)
    same = apply("cast", x, dtype=result.dtype) if x.dtype != result.dtype else x
    start = apply("load", same, chain=(("index", (*(("s", None, None, None),) * axis, ("s", 0, 1, None))),))
    before = shifted(result, axis, 1, start)
    found = _slopes(ufunc, before, same, result)
    if found is None:
        return NotImplemented
    first = apply("equal", apply("iota", shape=x.shape, axis=axis, dtype=np.dtype(np.int64)), 0)
    kept, added = where(first, 0.0, found[0]), where(first, 1.0, found[1])
    return (added * backwards(kept, g, axis),)


def _slopes(ufunc: str, x: Node, y: Node, out: Node) -> tuple[Node, Node] | None:
    """What a result changes by with each of two operands; None where it has no derivative."""
    if ufunc in EXPONENTS:
        return exponent_slope(ufunc, x, out), exponent_slope(ufunc, y, out)
    rule = record(ufunc).vjp
    found = NotImplemented if rule is None else rule(apply("full", 1.0, shape=out.shape, dtype=out.dtype), out, x, y)
    if found is NotImplemented or len(found) != 2 or any(each is NotImplemented for each in found):
        return None
    first, second = (each if isinstance(each, Node) else zeros_like(out.aval) for each in found)
    return first, second


def _last_rule(g: Node, x: Node, ufunc: str, axis: int, dtype: Any, out: Any) -> Any:
    """A reduction is the last of the running results."""
    if not is_static(x.shape) or x.shape[axis] == 0:
        return NotImplemented
    running = apply("accumulate", x, ufunc=ufunc, axis=axis, dtype=dtype, out=out)
    g = apply("reshape", g, shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    widths = tuple((x.shape[k] - 1, 0) if k == axis else (0, 0) for k in range(x.ndim))
    return _running_rule(apply("pad", g, 0.0, widths=widths), running, x, ufunc, axis)


def _product_slopes(g: Node, result: Node, x: Node, axis: int) -> Node:
    """Every product counts for its factors; behind the first zero only that zero has a derivative, which itself has
    one by the second zero, as that one's has by the first."""
    zero = apply("equal", x, 0)
    nth = apply("cumsum", apply("cast", zero, dtype=np.dtype(np.int64)), axis=axis, dtype=None)
    slopes = where(zero, 0.0, _backwards(g * result, axis) / where(zero, 1.0, x))
    for count in (1, 2):
        here = apply("logical_and", zero, apply("equal", nth, count))
        others = apply("accumulate", where(here, 1.0, x), ufunc="multiply", axis=axis, dtype=None, out=None)
        slopes = where(here, _backwards(g * others, axis), slopes)
    return slopes


def _extreme_slopes(g: Node, result: Node, x: Node, axis: int) -> Node:
    """The gradient of a running extreme goes to the element that last attained it."""
    places = apply("iota", shape=x.shape, axis=axis, dtype=np.dtype(np.int64))
    attained = where(apply("equal", x, result), places, 0)
    source = apply("accumulate", attained, ufunc="maximum", axis=axis, dtype=None, out=None)
    return apply("add_along_axis", g, source, input_shape=x.shape, axis=axis)


def _accumulate_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x = rng.permutation(12).reshape(3, 4) / 7.0 + 0.3
    base = {"axis": 1, "dtype": None, "out": None}
    for ufunc, order in (("add", 2), ("multiply", 2), ("maximum", 1), ("minimum", 1)):
        yield Sample((x,), {**base, "ufunc": ufunc}, order=order)
    yield Sample((np.array([2.0, 0.0, 3.0, 0.0, 1.0]),), {**base, "axis": 0, "ufunc": "multiply"})
    for ufunc in ("subtract", "divide", "logaddexp", "logaddexp2", "hypot", "power", "arctan2"):
        yield Sample((x,), {**base, "ufunc": ufunc})
    yield Sample((x,), {**base, "axis": 0, "ufunc": "fmax"}, order=1)
    yield Sample((x[:, :1],), {**base, "ufunc": "divide"})
    yield Sample((x.astype(np.uint8),), {**base, "axis": 0, "ufunc": "add"}, order=0)
    yield Sample((x.astype(np.uint8),), {**base, "ufunc": "add", "out": np.dtype("i2")}, order=0)
    yield Sample((x.astype(np.float32),), {**base, "ufunc": "subtract", "dtype": np.dtype(float)}, order=0)


op(
    "accumulate", _accumulate, aval=_accumulate_aval, vjp=_accumulate_rule, factors=lambda x, **a: along(x, a["axis"]),
    samples=_accumulate_samples,
)  # fmt: skip


def _at(x: Any, *rest: Any, ufunc: str, pattern: Pattern) -> Any:
    out = np.array(x)
    function = ufunc_named(ufunc)
    values, indices = rest[: function.nin - 1], rest[function.nin - 1 :]
    function.at(out, fancy_index(pattern, indices), *values)
    return out


def _at_aval(x: Aval, *rest: Aval, ufunc: str, pattern: Pattern) -> Aval:
    function = ufunc_named(ufunc)
    values, indices = rest[: function.nin - 1], rest[function.nin - 1 :]
    one = np.ones(1, x.dtype)
    function.at(one, [0], *(value.dtype.type(1).item() if value.weak else np.ones(1, value.dtype) for value in values))
    target = gather_aval(x, *indices, pattern=pattern)
    for value in values:
        if not may_fill(value.shape, target.shape):
            raise ValueError(f"array of shape {value.shape} is not broadcastable to the indexing result {target.shape}")
    return x


def _at_factors(x: Aval, *rest: Aval, ufunc: str, pattern: Pattern) -> str:
    parts = [" ".join(f"!x{n}_{k}" for k in range(aval.ndim)) for n, aval in enumerate((x, *rest))]
    return f"{', '.join(parts)} -> {' '.join(f'!x0_{k}' for k in range(x.ndim))}"


def _at_rule(g: Node, out: Node, x: Node, *rest: Node, ufunc: str, pattern: Pattern) -> Any:
    """Sums, products, extremes and sums of exponentials; what other ufuncs do to an element that comes twice depends on
    the order."""
    if ufunc not in ("add", "subtract", "multiply", "divide", *EXTREMES, *EXPONENTS):
        return NotImplemented
    value, *indices = rest
    if ufunc in ("multiply", "divide"):
        dx, dvalue = _products_at(g, out, x, value, indices, ufunc, pattern)
        return (dx, dvalue, *(None for _ in indices))
    if ufunc in EXTREMES:
        dx, dvalue = _extreme_shares_at(g, out, x, value, indices, pattern)
        return (dx, dvalue, *(None for _ in indices))
    if ufunc in EXPONENTS:
        gathered, read = (apply("gather", node, *indices, pattern=pattern) for node in (out, g))
        dvalue = unbroadcast(read * exponent_slope(ufunc, value, gathered), value.aval)
        return (g * exponent_slope(ufunc, x, out), dvalue, *(None for _ in indices))
    read = apply("gather", g, *indices, pattern=pattern)
    return (g, unbroadcast(read if ufunc == "add" else -read, value.aval), *(None for _ in indices))


def _products_at(
    g: Node, out: Node, x: Node, value: Node, indices: Sequence[Node], ufunc: str, pattern: Pattern
) -> tuple[Node, Node]:
    """Each factor counts by the others, of which some may be zero."""
    def at(base: Node, values: Node, ufunc: str) -> Node:
        return apply("ufunc_at", base, values, *indices, ufunc=ufunc, pattern=pattern)

    def read(values: Node) -> Node:
        return apply("gather", values, *indices, pattern=pattern)

    ones = apply("full", 1.0, shape=x.shape, dtype=x.dtype)
    dx = g * at(ones, value, ufunc)
    if ufunc == "divide":
        return dx, unbroadcast(-read(g * out) / value, value.aval)
    blank, shape = zeros_like(x.aval), apply("gather", x, *indices, pattern=pattern).shape
    wide = value if value.shape == shape else apply("broadcast_to", value, shape=shape)
    zero = apply("equal", wide, 0)
    count = read(at(blank, apply("cast", zero, dtype=x.dtype), "add"))
    others = read(at(x, where(zero, 1.0, wide), "multiply"))
    rest = read(at(blank, where(zero, wide, 0.0), "add")) - wide
    of_zeros = where(apply("equal", count, 1), others, where(apply("equal", count, 2), others * rest, 0.0))
    slopes = where(zero, of_zeros, read(out) / where(zero, 1.0, wide))
    return dx, unbroadcast(read(g) * slopes, value.aval)


EXPONENTS = ("logaddexp", "logaddexp2")


def exponent_slope(ufunc: str, x: Node, out: Node) -> Node:
    """One where nothing was added: minus infinity, where it stayed, has no difference from itself."""
    same = apply("equal", x, out)
    return SMOOTH[ufunc](where(same, 0.0, x), where(same, 0.0, out))


def _extreme_shares_at(
    g: Node, out: Node, x: Node, value: Node, indices: Sequence[Node], pattern: Pattern
) -> tuple[Node, Node]:
    """As of a reduction: equal shares for the element that was there and all that came to its place."""
    gathered = apply("gather", out, *indices, pattern=pattern)
    came = apply("equal", apply("cast", value, dtype=out.dtype), gathered)
    stayed = apply("equal", x, out)
    count = apply("cast", stayed, dtype=g.dtype)
    count = apply("scatter", count, apply("cast", came, dtype=g.dtype), *indices, pattern=pattern, mode="add")
    share = g / count
    dvalue = where(came, apply("gather", share, *indices, pattern=pattern), 0.0)
    return where(stayed, share, 0.0), unbroadcast(dvalue, value.aval)


def _at_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, rows = rng.normal(size=(4, 5)), np.array([0, 2, 2])
    for ufunc, order in (("add", 2), ("subtract", 2), ("multiply", 2), ("divide", 2), ("power", 0)):
        yield Sample((x, rng.normal(size=(3, 5)), rows), {"ufunc": ufunc, "pattern": (("d", 0),)}, order=order)
    for ufunc in ("maximum", "minimum", "fmax"):
        for value in (rng.normal(size=(3, 5)), rng.normal(size=(3, 1))):
            yield Sample((x, value, rows), {"ufunc": ufunc, "pattern": (("d", 0),)}, order=1)
    for ufunc in EXPONENTS:
        yield Sample((x, rng.normal(size=(3, 5)), rows), {"ufunc": ufunc, "pattern": (("d", 0),)}, order=2)
    zeros = np.array([0.0, 3.0, 0.0, 0.0, 2.0, 0.0])
    places = np.array([0, 1, 1, 2, 2, 2])
    yield Sample((np.array([2.0, 3.0, 4.0]), zeros, places), {"ufunc": "multiply", "pattern": (("d", 0),)})
    yield Sample((x, 1.5, rows), {"ufunc": "multiply", "pattern": (("d", 0),)})
    yield Sample((x, rows, rows), {"ufunc": "negative", "pattern": (("d", 0), ("d", 1))}, order=0)
    part = (("s", 1, 2, None), ("d", 0))
    yield Sample((x.astype(np.int8), 3, rows), {"ufunc": "left_shift", "pattern": part}, order=0)


op(
    "ufunc_at", _at, aval=_at_aval, vjp=_at_rule, factors=_at_factors, fails=True, samples=_at_samples,
)  # fmt: skip


_COMPARISONS = frozenset(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"))
"""NumPy 2.4 ends the process where one of these is given a mask and an int that the array's type does not hold."""


def _split(values: Sequence[Any], ufunc: str) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """The mask, what stands where it is false (one for each result), and the operands."""
    count = ufunc_named(ufunc).nout
    return values[0], values[1 : 1 + count], values[1 + count :]


def _masked(*values: Any, ufunc: str) -> Any:
    mask, olds, xs = _split(values, ufunc)
    shape = np.broadcast_shapes(*map(np.shape, values))
    outs = tuple(np.array(np.broadcast_to(old, shape)) for old in olds)
    if ufunc in _COMPARISONS and any(type(x) is int for x in xs):
        np.copyto(outs[0], ufunc_named(ufunc)(*xs), where=mask, casting="unsafe")
        return _plain(outs[0])
    result = ufunc_named(ufunc)(*xs, out=outs, where=mask, casting="unsafe")
    return tuple(map(_plain, result)) if isinstance(result, tuple) else _plain(result)


def _masked_aval(*avals: Aval, ufunc: str) -> Any:
    shape = broadcast_shapes(*(aval.shape for aval in avals))
    outs = tuple(Aval(shape, old.dtype) for old in _split(avals, ufunc)[1])
    return outs if len(outs) > 1 else outs[0]


def _masked_parts(*values: Node, ufunc: str) -> Any:
    """The op on everything, with no derivative from what was left out."""
    mask, olds, xs = _split(values, ufunc)
    gated = [where(mask, x, apply("stop_gradient", x)) if x.aval.inexact and not x.aval.weak else x for x in xs]
    every = apply(ufunc, *gated) if "." not in ufunc else apply("ufunc_call", *gated, ufunc=ufunc)
    results = [item(every, k) for k in range(len(olds))] if len(olds) > 1 else [every]
    merged = [
        where(mask, result if result.dtype == old.dtype else apply("cast", result, dtype=old.dtype), old)
        for result, old in zip(results, olds, strict=True)
    ]
    return tuple(merged) if len(merged) > 1 else merged[0]


def _masked_samples(rng: np.random.Generator) -> Iterable[Sample]:
    mask, x = rng.random((3, 4)) < 0.6, rng.uniform(0.5, 2.0, (3, 4))
    yield Sample((mask, np.zeros((3, 4)), x), {"ufunc": "log"})
    yield Sample((mask, x, x[0], 2.0), {"ufunc": "divide"})
    yield Sample((mask[0], x, x, x), {"ufunc": "multiply"})
    yield Sample((mask, x, x, x, 0.3), {"ufunc": "divmod"}, order=0)
    yield Sample((mask, np.zeros((3, 4), np.int8), x), {"ufunc": "floor"}, order=0)


op(
    "masked", _masked, aval=_masked_aval, decompose=_masked_parts, factors="elementwise", samples=_masked_samples,
)  # fmt: skip
