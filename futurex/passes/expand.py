"""Operations that have kernels of their own in other backends, taken apart where one region does all of their work.

Softmax, layer normalisation, cross-entropy and their gradients read a row, reduce it and write it: together with the
elementwise operations around them that is one kernel, which reads memory once. Before that, batch normalisation by a
locality's own statistics becomes batch normalisation: what there is of the batch here is the locality's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.ops.elementwise import where, zeros_like
from futurex.ops.fusion import APPROXIMATED, COMPLEX, loop_of
from futurex.ops.joined import stored
from futurex.ops.normalize import normalised
from futurex.ops.random import COUNTER_OPS
from futurex.ops.reduce import axes_of
from futurex.ops.special import exponentials_in_parts
from futurex.ops.sweeps import FEWEST_ROWS
from futurex.passes import drawn, windows
from futurex.passes.fuse import FEWEST_ELEMENTS
from futurex.passes.rewrite import Rule, rewrite
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, apply, const, item
from futurex.tree.record import record


def expand(graph: Graph, *, free: bool = True) -> Graph:
    """The graph with operations on rows or columns in terms of simpler ones, where kernels are generated for these.

    ``free``: their sums, which are none of the program's own, may be added up in any order.
    """
    if any(node.op in _LOCAL for node in graph.nodes):
        graph = rewrite(graph, _rule_of(_of_all))
    if not any(node.op in _ROWWISE or node.op in _ALONE or node.op == "ufunc_reduce" for node in graph.nodes):
        return graph
    return rewrite(graph, _rule_of(functools.partial(_expanded, free=free)))


def without_sweeps(graph: Graph, kept: Callable[[Node], bool] = lambda node: False) -> Graph:
    """The graph with the operations of ``fused_reduction`` nodes, but for those ``kept``, and of regions of complex
    numbers, on their own."""
    apart = {node for node in graph.nodes if _is_swept(node) and not kept(node)}
    if not apart:
        return graph
    return rewrite(graph, _rule_of(lambda node: _results(node) if _is_swept(node) and not kept(node) else None))


def by_elements(graph: Graph) -> Graph:
    """The graph with operations on small rows and windows in terms of simpler ones, for code that is one function."""
    if not any(node.op in _BY_ELEMENTS for node in graph.nodes):
        return graph
    return rewrite(graph, _rule_of(_simpler))


def _simpler(node: Node) -> Node | tuple[Node, ...] | None:
    if not node.is_static or not all(isinstance(each.aval, Aval) and each.is_static for each in node.inputs):
        return None
    if node.op not in _BY_ELEMENTS:
        return None
    if node.op == "fused_join":
        return _stored(node)
    if node.op == "round":
        x, decimals = node.inputs[0], node.attrs["decimals"]
        known = x.dtype in APPROXIMATED and not x.aval.weak and 0 < abs(decimals) <= _MOST_DECIMALS
        return _to_decimals(x, decimals) if known else None
    if node.op in windows.OPERATIONS:
        return windows.in_slices(node)
    if node.op in COUNTER_OPS:
        return drawn.from_words(node)
    if node.op == "one_hot":
        (labels,) = node.inputs
        rows = apply("reshape", labels, shape=(*labels.shape, 1))
        return apply("cast", apply("equal", rows, const(np.arange(node.attrs["classes"]))), dtype=node.dtype)
    if node.op in ("take_along_axis", "add_along_axis"):
        x, indices = node.inputs
        return _along(x, indices, **node.attrs)
    floats = [each.dtype.char for each in node.inputs if each.dtype.kind not in "iu"]
    if not all(each.size for each in node.inputs) or any(char not in "fd" for char in floats):
        return None
    if node.op == "softmax_cross_entropy":
        return _cross_entropy(*node.inputs)
    if node.op == "special_exponentials":
        return None if _is_scipys(node) else exponentials_in_parts(node.inputs[0], **node.attrs)
    if node.op == "softmax_cross_entropy_grad":
        g, logits, labels = node.inputs
        return _less_the_hit(g, _in_parts("softmax", logits, axis=logits.ndim - 1), labels)
    return _in_parts(node.op, *node.inputs, **node.attrs)


def _is_scipys(node: Node) -> bool:
    """Is it left to SciPy: with weights, or ``log_softmax``, where the order of a sum that is nearly one decides most
    digits of a result near zero?"""
    return node.op == "special_exponentials" and (len(node.inputs) > 1 or node.attrs["function"] == "log_softmax")


def _stored(join: Node) -> Node:
    """Blocks that are written one after the other into an array: one of zeros, whose bytes are counted as the
    function's, as those of room are not."""
    zeros = zeros_like(Aval(join.shape, join.dtype))
    return stored(zeros, join.attrs["blocks"], join.attrs["graph"].inline(join.inputs))


def _along(x: Node, indices: Node, axis: int, input_shape: tuple[int, ...] | None = None) -> Node:
    """What is looked up, or added up, where ``indices`` say along one axis, and where it is along the others."""
    places = [indices if k == axis else _counted(extent, k, x.ndim) for k, extent in enumerate(x.shape)]
    how = {"pattern": tuple(("d", k) for k in range(x.ndim))}
    if input_shape is None:
        return apply("gather", x, *places, **how)
    return apply("scatter", zeros_like(Aval(input_shape, x.dtype)), x, *places, **how, mode="add")


def _counted(extent: int, axis: int, ndim: int) -> Node:
    return const(np.arange(extent).reshape([-1 if k == axis else 1 for k in range(ndim)]))


def _in_parts(name: str, *inputs: Node, **attrs: Any) -> Any:
    """As the record says, which has the bits of the reference kernel."""
    decompose = record(name).decompose
    assert decompose is not None
    found = decompose(*inputs, **attrs)
    return found if isinstance(found, Node) else tuple(found)


def _is_swept(node: Node) -> bool:
    if node.op != "fused":
        return node.op == "fused_reduction"
    return any(isinstance(each.aval, Aval) and each.dtype in COMPLEX for each in node.attrs["graph"].nodes)


def _results(node: Node) -> Node | tuple[Node, ...]:
    found = node.attrs["graph"].inline(node.inputs)
    return found[0] if len(found) == 1 else tuple(found)


def _of_all(node: Node) -> Node | tuple[Node, ...] | None:
    """Batch normalisation by the statistics of all that is here, for that by those of a locality's own part."""
    if node.op not in _LOCAL or not node.is_static or not math.prod(node.inputs[0].shape):
        return None
    *g, x, scale, shift = node.inputs
    whole = apply("batch_norm", x, scale, shift, **node.attrs)
    if not g:
        return item(whole, 0)
    back = apply("batch_norm_grad", *g, x, scale, item(whole, 1), item(whole, 2), **node.attrs)
    return tuple(item(back, k) for k in range(3))


def _by_moments(x: Node, scale: Node, shift: Node, eps: float) -> tuple[Node, Node, Node]:
    """Batch normalisation whose statistics are found in one trip."""
    found = apply("moments", x)
    mean, var = item(found, 0), item(found, 1)
    return normalised(x, scale, shift, mean, var, eps), mean, var


def _in_three_trips(x: Node, scale: Node, shift: Node, eps: float) -> tuple[Node, Node, Node]:
    """The same with a trip for each sum, as ``x`` is computed where it is read. Differences for the variance are those
    of the result turned round: one that both read would be written for itself."""
    axes, count = tuple(range(x.ndim - 1)), float(math.prod(x.shape[:-1]))
    mean = apply("sum", x, axis=axes, keepdims=False, dtype=None) / count
    var = apply("sum", apply("square", mean - x), axis=axes, keepdims=False, dtype=None) / count
    return normalised(x, scale, shift, mean, var, eps), mean, var


def _rule_of(expanded: Callable[[Node], Node | tuple[Node, ...] | None]) -> Rule:
    """Nodes give way to their one result, items to one of several."""

    def rule(node: Node) -> Node | None:
        if node.op == "item":
            parts = expanded(node.inputs[0])
            return parts[node.attrs["index"]] if isinstance(parts, tuple) else None
        found = expanded(node)
        return found if isinstance(found, Node) else None

    return rule


def _expanded(node: Node, free: bool) -> Node | tuple[Node, ...] | None:
    if node.op == "ufunc_reduce":
        return _added_in_logs(node, free)
    if node.op in _ALONE:
        return _ALONE[node.op](node)
    if node.op not in _ROWWISE or _is_scipys(node):
        return None
    x = max((source for source in node.inputs if isinstance(source.aval, Aval)), key=lambda source: source.ndim)
    if not node.is_static or not x.size or x.dtype not in APPROXIMATED:
        return None
    if any(source.dtype != x.dtype for source in node.inputs if source.dtype.kind == "f"):
        return None
    if not (_by_columns(x) if node.op in _COLUMNWISE else _along_one_axis(node, x)):
        return None
    made = _ROWWISE[node.op] or record(node.op).decompose
    if node.op == "batch_norm":
        made = made if free else _in_three_trips
        if (free or x.op != "widen") and math.prod(x.shape[:-1]) >= _SAMPLES:
            made = _by_moments
    assert made is not None
    found = made(*node.inputs, **node.attrs)
    results = (found,) if isinstance(found, Node) else tuple(found)
    if free:
        results = _freed(results, node.inputs)
    return results[0] if isinstance(found, Node) else results


def _length(node: Node) -> Node | None:
    """The length of vectors along one axis, or of matrices along two (Frobenius), as NumPy has it."""
    x, ord, axis = node.inputs[0], node.attrs["ord"], node.attrs["axis"]
    axes = (axis,) if isinstance(axis, int) else axis
    known: tuple[Any, ...] = (None, 2) if axes is not None and len(axes) == 1 else (None, "fro", "f")
    if ord not in known or axes is None or not node.is_static or x.dtype not in APPROXIMATED:
        return None
    if x.size < FEWEST_ELEMENTS:
        return None
    along = tuple(sorted(axis % x.ndim for axis in axes))
    return apply("sqrt", apply("sum", x * x, axis=along, keepdims=node.attrs["keepdims"], dtype=None))


def _added_in_logs(node: Node, free: bool) -> Node | None:
    """``np.logaddexp.reduce``: the largest element, and the logarithm of the sum of how many are as large and of what
    the others add to it. One after the other has an exponential and a logarithm for each element."""
    (x, *rest), attrs = node.inputs, node.attrs
    name = _OF_SUMS.get(attrs["ufunc"])
    if name is None or rest or attrs["out"] is not None or attrs["dtype"] not in (None, x.dtype):
        return None
    if not node.is_static or not isinstance(x.aval, Aval) or x.aval.weak or x.dtype not in APPROXIMATED:
        return None
    axes = axes_of(x.ndim, attrs["axis"])
    count = math.prod(x.shape[axis] for axis in axes)
    if count < 2 or x.size < _LEAST_IN_LOGS:  # of one element, it is that
        return None
    exponential, scale = name
    top = apply("max", x, axis=axes, keepdims=True)
    largest = apply("equal", x, top)
    below = apply(exponential, x - where(apply("isfinite", top), top, 0.0))
    most = apply("sum", apply("cast", largest, dtype=x.dtype), axis=axes, keepdims=True, dtype=None)
    added = apply("sum", where(largest, 0.0, below), axis=axes, keepdims=True, dtype=None) / most
    found = top + (apply("log", most) + apply("log1p", added)) * scale
    found = _freed([found], [x])[0] if free else found
    return found if attrs["keepdims"] else apply("reshape", found, shape=node.shape)


def _divided(node: Node) -> tuple[Node, Node] | None:
    """Quotient and remainder of floats, of which a region computes what is read."""
    found = apply("floor_divide", *node.inputs), apply("remainder", *node.inputs)
    return found if _is_large(found[0]) and found[0].dtype.kind == "f" and all(map(loop_of, found)) else None


def _parted(node: Node) -> tuple[Node, Node] | None:
    """What lies behind the point, and before it, each with the sign of the number."""
    x = node.inputs[0]
    if not _is_large(x) or x.dtype not in APPROXIMATED:
        return None
    whole = apply("trunc", x)
    return apply("copysign", where(apply("isinf", x), 0.0, x - whole), x), whole


def _rounded(node: Node) -> Node | None:
    """To so many decimals, by NumPy's steps; integers by way of double precision."""
    x, decimals = node.inputs[0], node.attrs["decimals"]
    if not _is_large(x) or x.aval.weak or abs(decimals) > _MOST_DECIMALS:
        return None
    if x.dtype in APPROXIMATED:
        return _to_decimals(x, decimals)
    if x.dtype.kind not in "iu" or decimals >= 0:
        return None
    found = apply("cast", _to_decimals(apply("cast", x, dtype=np.dtype(float)), decimals), dtype=x.dtype)
    return None if loop_of(found) is None else found


def _to_decimals(x: Node, decimals: int) -> Node:
    if not decimals:
        return apply("rint", x)
    there, back = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    power = 10.0 ** abs(decimals)
    return apply(back, apply("rint", apply(there, x, power)), power)


def _is_large(x: Node) -> bool:
    return isinstance(x.aval, Aval) and x.is_static and x.size >= FEWEST_ELEMENTS


def _freed(results: Sequence[Node], inputs: Sequence[Node]) -> tuple[Node, ...]:
    """The same values of the same inputs by reductions whose order is free."""
    known = {source: source for source in inputs}

    def made(node: Node) -> Node:
        if node not in known:
            sources = [made(source) for source in node.inputs]
            attrs = {name: value for name, value in node.attrs.items() if name != "dtype"}
            free = _FREE.get(node.op)
            known[node] = rebuilt(node, sources) if free is None else apply(free, *sources, **attrs)
        return known[node]

    return tuple(map(made, results))


def _along_one_axis(node: Node, x: Node) -> bool:
    """Does it work along one axis, the last one or one with columns enough behind it for vectors to hold?"""
    axis = node.attrs.get("axis", x.ndim - 1)
    if not isinstance(axis, int):
        if axis is None or len(axis) != 1:
            return False
        (axis,) = axis
    columns = math.prod(x.shape[axis + 1 :])
    large = x.size >= FEWEST_ELEMENTS or x.size >= FEWEST_ROWS * x.shape[axis] * columns
    return large and x.shape[axis] >= 2


def _by_columns(x: Node) -> bool:
    """Are there rows to add up, of more than one column?"""
    return x.shape[-1] >= 2 and math.prod(x.shape[:-1]) >= FEWEST_ROWS


def _top(x: Node, axis: int) -> Node:
    return apply("max", x, axis=(axis,), keepdims=True)


def _total(x: Node, axis: int) -> Node:
    return apply("sum", x, axis=(axis,), keepdims=True, dtype=None)


def _softmax(x: Node, axis: int) -> Node:
    """A row has one divisor: the product with one over it takes a fraction of a quotient's time."""
    e = apply("exp", x - _top(x, axis))
    return e * (1.0 / _total(e, axis))


def _cross_entropy(logits: Node, labels: Node) -> Node:
    """As the reference kernel has it: the logarithm of the softmax at the label, which need not be made elsewhere."""
    last = logits.ndim - 1
    top = _top(logits, last)
    total = apply("log", _total(apply("exp", logits - top), last))
    named = apply("max", where(_hit(logits, labels), logits, float("-inf")), axis=(last,), keepdims=True)
    named, top, total = (apply("reshape", each, shape=labels.shape) for each in (named, top, total))
    return -((named - top) - total)


def _cross_entropy_grad(g: Node, logits: Node, labels: Node) -> Node:
    return _less_the_hit(g, _softmax(logits, logits.ndim - 1), labels)


def _less_the_hit(g: Node, likely: Node, labels: Node) -> Node:
    return where(_hit(likely, labels), likely - 1.0, likely) * apply("reshape", g, shape=(*labels.shape, 1))


def _hit(logits: Node, labels: Node) -> Node:
    """Which element of every row its label names."""
    classes = logits.shape[-1]
    named = apply("reshape", apply("checked_labels", labels, classes=classes), shape=(*labels.shape, 1))
    return apply("equal", named, const(np.arange(classes, dtype=named.dtype)))


_ALONE: dict[str, Callable[[Node], Node | tuple[Node, ...] | None]] = {
    "norm": _length, "divmod": _divided, "modf": _parted, "round": _rounded
}  # fmt: skip
"""Names of what is taken apart element by element, or by its own rule, and how."""
_OF_SUMS = {"logaddexp": ("exp", 1.0), "logaddexp2": ("exp2", 1.0 / math.log(2.0))}
"""Ufuncs that add in logarithms: the exponential, and the unit of its logarithm in natural ones."""
_LEAST_IN_LOGS = 4
"""Elements from which they are added up at once."""
_MOST_DECIMALS = 22
"""Of powers of ten that are numbers of double precision: NumPy multiplies, this takes the power."""
_FREE = {"sum": "free_sum", "max": "free_max"}
"""Reductions in a free order. Where the largest element is taken off a row's elements, NaN among them stays."""
_SAMPLES = 128
"""Rows from which on the mean and the variance of columns are found at once, by kernels that share the rows."""
_LOCAL = ("local_batch_norm", "local_batch_norm_grad")
_COLUMNWISE = ("batch_norm", "batch_norm_grad")
_ROWWISE: dict[str, Callable[..., Node] | None] = {
    **dict.fromkeys(
        ("softmax_grad", "log_softmax", "log_softmax_grad", "logsumexp", "layer_norm", "layer_norm_grad",
         *_COLUMNWISE)
    ),
    "softmax": _softmax,
    "special_exponentials": exponentials_in_parts,
    "softmax_cross_entropy": _cross_entropy,
    "softmax_cross_entropy_grad": _cross_entropy_grad,
}
"""Names of what is taken apart, and how; None: as its record says."""
_BY_ELEMENTS = frozenset((
    "one_hot", "moments", "take_along_axis", "add_along_axis", "fused_join", "round", *_ROWWISE, *windows.OPERATIONS,
    *COUNTER_OPS,
))  # fmt: skip
"""Names of what is taken apart in small functions."""
