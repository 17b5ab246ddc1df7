"""Local rewrite rules, as data. None of them changes a bit of a result.

That forbids some that look harmless: ``x + 0.0`` is not ``x`` where x is -0.0, ``x * 0`` is not zero where x is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.ops.views import Step
from futurex.passes.exact import exact
from futurex.passes.fold import constant, fold
from futurex.passes.rewrite import Rule, until_stable
from futurex.tree.aval import Aval
from futurex.tree.dims import UnknownDimension, broadcast_shapes, is_static
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const


def simplify(graph: Graph) -> Graph:
    """Fold constants and apply :data:`RULES` until nothing changes."""
    return until_stable(graph, simplified)


def simplified(node: Node) -> Node | None:
    """The node after the first rule that applies to it; None if none does."""
    if "dims" in node.attrs:
        return None
    rules = (fold, *RULES.get(node.op, ()))
    for rule in (*rules, *ELEMENTWISE) if node.record.elementwise else rules:
        try:
            other = rule(node)
        except UnknownDimension:  # what the rule asks only the run can tell
            continue
        if other is not None and other is not node and other.aval == node.aval:
            return other
    return None


def scalar_of(node: Node) -> Any:
    """The one value that a scalar constant or a filled array holds everywhere, or None."""
    if node.op == "full" and node.inputs[0].op == "const" and node.inputs[0].shape == ():
        with np.errstate(all="ignore"):
            return np.asarray(node.inputs[0].value).astype(node.dtype)[()]
    if node.op != "const" or node.size != 1:
        return None
    return node.value.reshape(())[()] if isinstance(node.value, np.ndarray) else node.value


_FEW = 256
"""Elements of a constant that are looked at one by one."""


def _is(node: Node, *values: Any) -> bool:
    """True if the node is everywhere one of ``values``; zeros of different sign differ."""
    held = scalar_of(node)
    if held is None and node.op == "const" and 0 < node.size <= _FEW and isinstance(node.value, np.ndarray):
        first = node.value.flat[0]
        if node.dtype.kind in "biufc" and node.value.tobytes() == first.tobytes() * node.size:
            held = first
    return held is not None and any(
        held == value and (value != 0 or np.signbit(held) == np.signbit(value)) for value in values
    )


def _neutral_first(kinds: str, *values: Any) -> Rule:
    """op(value, x) is x for dtypes of these kinds."""
    return lambda node: node.inputs[1] if node.dtype.kind in kinds and _is(node.inputs[0], *values) else None


def _neutral_second(kinds: str, *values: Any) -> Rule:
    """op(x, value) is x for dtypes of these kinds."""
    return lambda node: node.inputs[0] if node.dtype.kind in kinds and _is(node.inputs[1], *values) else None


def _undoes(op: str, kinds: str = "biufc") -> Rule:
    """op(op(x)) is x."""
    return lambda node: node.inputs[0].inputs[0] if node.inputs[0].op == op and node.dtype.kind in kinds else None


def _same_input(node: Node) -> Node | None:
    """The input itself; the caller takes it only if its abstract value is the node's."""
    return node.inputs[0]


def _reshape_chain(node: Node) -> Node | None:
    source = node.inputs[0]
    return apply("reshape", source.inputs[0], shape=node.attrs["shape"]) if source.op == "reshape" else None


def _between_reshapes(node: Node) -> Node | None:
    """What is computed element by element in another shape, and comes back to the first, is computed in that."""
    source = node.inputs[0]
    return _in_shape(source, node.shape, _MOST_BETWEEN) if source.record.elementwise and node.is_static else None


_MOST_BETWEEN = 6
"""Operations one behind the other."""


def _in_shape(node: Node, shape: tuple[int, ...], most: int) -> Node | None:
    """A node's elements in this shape, where all that it is made of was in it before."""
    if node.op == "reshape" and node.inputs[0].shape == shape:
        return node.inputs[0]
    if not most or not node.record.elementwise or not node.is_static or not isinstance(node.aval, Aval):
        return None
    found = []
    for each in node.inputs:
        inside = each if not each.shape else _in_shape(each, shape, most - 1) if each.shape == node.shape else None
        if inside is None:
            return None
        found.append(inside)
    made = apply(node.op, *found, **node.attrs)
    return made if made.shape == shape else None


def _transpose(node: Node) -> Node | None:
    source, axes = node.inputs[0], node.attrs["axes"]
    if axes == tuple(range(source.ndim)):
        return source
    if source.op != "transpose":
        return None
    inner = source.attrs["axes"]
    return apply("transpose", source.inputs[0], axes=tuple(inner[axis] for axis in axes))


def _broadcast_chain(node: Node) -> Node | None:
    source = node.inputs[0]
    return apply("broadcast_to", source.inputs[0], shape=node.shape) if source.op == "broadcast_to" else None


def _through_full(node: Node) -> Node | None:
    """A view of a filled array is a filled array."""
    source = node.inputs[0]
    return (
        apply("full", source.inputs[0], shape=node.shape, dtype=node.dtype)
        if source.op == "full" and source.inputs[0].shape == ()
        else None
    )


def _sum_of_nothing(node: Node) -> Node | None:
    """A sum of integers over no axis, or over axes of extent one (NumPy's sum of -0.0 alone is 0.0)."""
    axis, source = node.attrs["axis"], node.inputs[0]
    axes = range(source.ndim) if axis is None else axis
    if source.dtype != node.dtype or any(source.shape[k] != 1 for k in axes) or source.dtype.kind not in "iu":
        return None
    return source if source.shape == node.shape else apply("reshape", source, shape=node.shape)


def _cast_back(node: Node) -> Node | None:
    """To a wider type and back."""
    source = node.inputs[0]
    if source.op != "cast" or source.inputs[0].dtype != node.dtype:
        return None
    narrow, wide = node.dtype, source.dtype
    exact_widening = narrow.kind == wide.kind and narrow.kind in "iuf" and narrow.itemsize <= wide.itemsize
    return source.inputs[0] if exact_widening else None


def _same_branches(node: Node) -> Node | None:
    _, x, y = node.inputs
    return x if x is y else None


def _known_condition(node: Node) -> Node | None:
    held = scalar_of(node.inputs[0])
    return None if held is None else node.inputs[1 if held else 2]


def takes_all(step: tuple[Any, ...]) -> bool:
    """Is a step of a chain of views slices of everything?"""
    return step[0] == "index" and all(entry == ("s", None, None, None) for entry in step[1])


def _load(node: Node) -> Node | None:
    """A view through nothing, through one plain step that is an op of its own, or of another view."""
    source, chain = node.inputs[0], node.attrs["chain"]
    kept = tuple(step for step in chain if not takes_all(step))
    if len(node.inputs) > 1:
        return None
    if not kept:
        return source
    if len(kept) == 1 and kept[0][0] in _STEP_ATTRIBUTES:
        return apply(kept[0][0], source, **{_STEP_ATTRIBUTES[kept[0][0]]: kept[0][1]})
    if source.op == "load" and len(source.inputs) == 1:
        return apply("load", source.inputs[0], chain=source.attrs["chain"] + kept)
    return None if len(kept) == len(chain) else apply("load", source, chain=kept)


_STEP_ATTRIBUTES = {"reshape": "shape", "transpose": "axes", "broadcast_to": "shape", "flip": "axis"}


def _store(node: Node) -> Node | None:
    """A write over everything is the value, and what is added to everything a sum; a write of what stands there
    already, as ``x[k] += y`` ends, is nothing."""
    (base, value, *dynamic), chain, adds = node.inputs, node.attrs["chain"], node.attrs["mode"] == "add"
    if not adds and value.op == "load" and value.inputs == (base,) and not dynamic and value.attrs["chain"] == chain:
        return base
    if all(map(takes_all, chain)):
        return base + value if adds else value
    back = None if dynamic or len(chain) > 1 else _back_to(base, value, chain[0])
    return None if back is None else base + back if adds else back


def _back_to(base: Node, value: Node, step: Step) -> Node | None:
    """A value that is written over everything, some axes the other way round or new ones between them, as an array
    like the one that it is written into."""
    if step[0] != "index" or value.ndim != base.ndim + sum(entry == ("n",) for entry in step[1]):
        return None
    if not all(entry == ("n",) or (entry[0] == "s" and entry[1:3] == (None, None)) for entry in step[1]):
        return None
    if any(entry[0] == "s" and entry[3] not in (None, 1, -1) for entry in step[1]):
        return None
    back = apply("load", value, chain=(("index", tuple(("i", 0) if e == ("n",) else e for e in step[1])),))
    return back if back.shape == base.shape else None


def _filled(node: Node) -> Node | None:
    """One constant broadcast is a filled array."""
    value = scalar_of(node.inputs[0]) if node.inputs[0].op == "const" else None
    return None if value is None else apply("full", value, shape=node.shape, dtype=node.dtype)


def _narrower(source: Node) -> Node | None:
    """What broadcasting alone makes ``source`` of."""
    if source.op == "const" and source.size == 1 and source.ndim:
        return const(scalar_of(source))
    if source.op == "broadcast_to" and not source.inputs[0].aval.weak:
        return source.inputs[0]
    if source.op == "load" and source.attrs["chain"][-1][0] == "broadcast_to":
        return apply("load", *source.inputs, chain=source.attrs["chain"][:-1])
    if (
        source.op == "reshape"
        and source.shape[: source.ndim - source.inputs[0].ndim] + source.inputs[0].shape == source.shape
    ):
        return source.inputs[0] if not source.inputs[0].aval.weak else None  # leading ones only
    if source.op == "reshape" and source.size == 1 and source.ndim and not source.inputs[0].aval.weak:
        return apply("reshape", source.inputs[0], shape=())
    return None


def _unbroadcast(node: Node) -> Node | None:
    """The op broadcasts anyway: take an operand before it was broadcast."""
    for position, source in enumerate(node.inputs):
        narrow = _narrower(source)
        if narrow is None:
            continue
        inputs = [*node.inputs[:position], narrow, *node.inputs[position + 1 :]]
        if broadcast_shapes(*(each.shape for each in inputs)) == node.shape:
            return apply(node.op, *inputs, **node.attrs)
    return None


def _filled_operand(node: Node) -> Node | None:
    """A filled operand beside one of full shape is a scalar."""
    if not exact(node):
        return None
    for position, source in enumerate(node.inputs):
        if source.op != "full" or scalar_of(source) is None:
            continue
        inputs = [*node.inputs[:position], const(scalar_of(source)), *node.inputs[position + 1 :]]
        if broadcast_shapes(*(each.shape for each in inputs)) == node.shape:
            return apply(node.op, *inputs, **node.attrs)
    return None


def _on_filled(node: Node) -> Node | None:
    """An op on filled arrays and scalars is a filled array."""
    if not exact(node) or node.aval.weak or not any(source.op == "full" for source in node.inputs):
        return None
    values = [scalar_of(source) for source in node.inputs]
    if any(value is None for value in values):
        return None
    value = constant(apply(node.op, *values, **node.attrs), values)
    return None if value is None else apply("full", value, shape=node.shape, dtype=node.dtype)


def _before_broadcast(node: Node) -> Node | None:
    """An op on operands that were all broadcast is computed before they are."""
    if not exact(node) or not any(source.op == "broadcast_to" for source in node.inputs):
        return None
    found = [_narrower(source) if source.op == "broadcast_to" else source for source in node.inputs]
    inputs = [source for source in found if source is not None]
    if len(inputs) < len(found):
        return None
    shape = broadcast_shapes(*(each.shape for each in inputs))
    # extents that may or may not be the same leave open what is broadcast
    if not is_static(shape) or int(np.prod(shape, dtype=np.int64)) >= node.size:
        return None
    return apply("broadcast_to", apply(node.op, *inputs, **node.attrs), shape=node.shape)


def _added_as_it_is(node: Node) -> Node | None:
    """What is added at places, or kept of extremes there, in the type of what is there, where that gives the same; what
    is subtracted is added with the other sign."""
    base, value, *places = node.inputs
    how = node.attrs["mode"] if node.op == "scatter" else node.attrs["ufunc"]
    if how not in ("add", "subtract", "maximum", "minimum") or not isinstance(base.aval, Aval):
        return None
    own = _in_type(value, base.dtype)
    if own is None or (own is value and how != "subtract"):
        return None
    if how == "subtract":
        return apply("scatter", base, apply("negative", own), *places, pattern=node.attrs["pattern"], mode="add")
    return apply(node.op, base, own, *places, **node.attrs)


def _in_type(value: Node, dtype: np.dtype[Any]) -> Node | None:
    """A value in a type; None where NumPy's ``at`` computes in a wider one, and the bits differ. Python's numbers are
    doubles and integers of 64 bits there."""
    kind = value.dtype.kind
    if dtype.kind not in "iuf" or kind not in "biuf" or (dtype.kind == "f" and dtype.itemsize < 4):
        return None
    if not value.aval.weak:
        same = np.result_type(value.dtype, dtype) == dtype
        return None if not same else value if value.dtype == dtype else apply("cast", value, dtype=dtype)
    held = scalar_of(value)
    if held is None or (dtype.kind != "f" and (kind == "f" or dtype == np.uint64)):
        return None
    try:
        with np.errstate(over="ignore"):
            one = np.asarray(held, dtype)
    except OverflowError:
        return None
    return const(one[()]) if one.item() == held else None


RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (_same_input, _reshape_chain, _between_reshapes, _through_full),
    "transpose": (_transpose, _through_full),
    "broadcast_to": (_same_input, _broadcast_chain, _filled, _through_full),
    "flip": (_through_full,),
    "cast": (_same_input, _cast_back),
    "stop_gradient": (_same_input,),
    "positive": (_same_input,),
    "real": (_same_input,),
    "conjugate": (lambda node: node.inputs[0] if node.dtype.kind in "iuf" else None,),
    "negative": (_undoes("negative"),),
    "invert": (_undoes("invert"),),
    "logical_not": (_undoes("logical_not"),),
    "add": (_neutral_second("f", -0.0), _neutral_first("f", -0.0), _neutral_second("iu", 0), _neutral_first("iu", 0)),
    "subtract": (_neutral_second("fiu", 0.0),),
    "multiply": (_neutral_second("fiu", 1), _neutral_first("fiu", 1)),
    "divide": (_neutral_second("f", 1),),
    "where": (_same_branches, _known_condition),
    "sum": (_sum_of_nothing,),
    "load": (_load,),
    "store": (_store,),
    "scatter": (_added_as_it_is,),
    "ufunc_at": (_added_as_it_is,),
}
"""Rules by op name; the first whose result has the node's abstract value is taken."""

ELEMENTWISE: tuple[Rule, ...] = (_unbroadcast, _on_filled, _filled_operand, _before_broadcast)
"""Rules for every elementwise op, tried after its own."""
