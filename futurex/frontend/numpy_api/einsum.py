"""``numpy.einsum`` on traced arrays: subscripts made explicit, then contracted two operands at a time."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.ufuncs import into
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, entered, fresh, new_array
from futurex.ops.contract import multiplies_matrices
from futurex.tree.dims import UnknownDimension, is_static, nominal, same
from futurex.tree.node import Node

_LETTERS = string.ascii_uppercase + string.ascii_lowercase  # the order in which NumPy numbers them

_FEW_OPERANDS = 5  # of which every order of contraction is looked at, in about a millisecond


class _Malformed(Exception):
    """Subscripts that NumPy refuses."""


def _text_form(operands: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """``einsum(x, [0, 1], y, [1], [0])`` as ``einsum("AB,B->A", x, y)``."""
    if isinstance(operands[0], str):
        return operands[0].replace(" ", ""), list(operands[1:])

    def text(labels: Any) -> str:
        return "".join("..." if label is Ellipsis else _LETTERS[label] for label in labels)

    pairs, rest = len(operands) // 2, operands[2 * (len(operands) // 2) :]
    try:
        terms = ",".join(text(labels) for labels in operands[1 : 2 * pairs : 2])
        return terms + "".join(f"->{text(labels)}" for labels in rest), list(operands[0 : 2 * pairs : 2])
    except (TypeError, IndexError) as error:
        raise _Malformed from error


def _explicit(text: str, shapes: list[tuple[int, ...]], lenient: bool) -> tuple[list[str], str]:
    """One letter for each dimension of each operand, and those of the result.

    ``lenient``: dimensions of an ellipsis that the result does not name are summed, as NumPy does with ``optimize=``.
    """
    inputs, arrow, out = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        raise _Malformed
    depth = 0
    for term, shape in zip(terms, shapes, strict=True):
        if "..." in term:
            depth = max(depth, len(shape) - len(term) + 3)
    spare = [letter for letter in _LETTERS if letter not in text]
    if len(spare) < depth:
        raise Escape("numpy.einsum with so many dimensions", "no letters are left for those of the ellipsis")
    hidden = "".join(spare[:depth])
    names = []
    for term, shape in zip(terms, shapes, strict=True):
        extra = len(shape) - len(term.replace("...", ""))
        if extra < 0 or (extra and "..." not in term):
            raise _Malformed
        names.append(term.replace("...", hidden[depth - extra :], 1))
    if arrow:
        if depth and "..." not in out and not lenient:
            raise _Malformed
        out = out.replace("...", hidden, 1)
    else:
        every = inputs.replace(",", "").replace("...", "")
        out = hidden + "".join(sorted(letter for letter in set(every) if every.count(letter) == 1))
    known = set("".join(names))
    if not set(out) <= known or len(set(out)) != len(out) or not known <= set(_LETTERS):
        raise _Malformed
    return names, out


def _extents(names: list[str], shapes: list[tuple[Any, ...]]) -> dict[str, Any]:
    """How far each letter runs; what is not known before the run is checked by it."""
    extents: dict[str, Any] = {}
    for term, shape in zip(names, shapes, strict=True):
        own: dict[str, Any] = {}
        for letter, extent in zip(term, shape, strict=True):
            if not same(own.setdefault(letter, extent), extent) and own[letter] != extent:
                raise _Malformed
        for letter, extent in own.items():
            extents[letter] = _wider(extents.get(letter, 1), extent)
    return extents


def _wider(first: Any, second: Any) -> Any:
    """The extent that two operands have together, of which one may be broadcast."""
    if same(first, second) or same(second, 1):
        return first
    if same(first, 1):
        return second
    if is_static((first, second)):
        raise _Malformed
    if is_static((first,)) or is_static((second,)):
        return first if is_static((first,)) else second
    raise UnknownDimension(f"whether {first} == {second} is not known before the run")


def _diagonals(x: Tracer, names: str) -> tuple[Tracer, str]:
    """A view with each letter once."""
    for letter in dict.fromkeys(names):
        while names.count(letter) > 1:
            first = names.index(letter)
            second = names.index(letter, first + 1)
            x = x._extended(("diagonal", 0, first, second))
            names = names[:first] + names[first + 1 : second] + names[second + 1 :] + letter
    return x, names


def _without_ones(x: Tracer, names: str, extents: dict[str, Any]) -> tuple[Tracer, str]:
    """A view without dimensions of extent one that are, or may be, broadcast against another operand's."""
    drop = [k for k, letter in enumerate(names) if same(x.shape[k], 1) and not same(extents[letter], 1)]
    kept = "".join(letter for k, letter in enumerate(names) if k not in drop)
    return (x.squeeze(tuple(drop)) if drop else x), kept


@handles(np.einsum)
def einsum(
    *operands: Any, out: Any = None, optimize: Any = False, dtype: Any = None, order: str = "K", casting: str = "safe"
) -> Any:
    if order not in ("K", "C", "A"):
        raise Escape(f"numpy.einsum with order={order!r}", "only C order is traced")
    first = optimize[0] if isinstance(optimize, tuple | list) and optimize else optimize
    if not isinstance(first, bool | str):
        raise Escape(f"numpy.einsum with optimize={optimize!r}", "NumPy refuses it, as a rule")
    try:
        text, values = _text_form(operands)
        arrays = [as_tracer(value) for value in values]
        shapes = [each.shape for each in arrays]
        names, target = _explicit(text, shapes, optimize is not False)
        extents = _extents(names, shapes)
    except _Malformed:
        _refuse(operands, optimize)
    views = [_diagonals(each, term) for each, term in zip(arrays, names, strict=True)]
    if len(views) == 1 and out is None and set(views[0][1]) == set(target):
        view, term = views[0]
        if not view.ndim:
            return fresh(array_node(view))
        if dtype is not None and np.dtype(dtype) != view.dtype:
            raise Escape("numpy.einsum of one operand with dtype=", "NumPy returns a view of the operand's own type")
        return view.transpose(*(term.index(letter) for letter in target))
    path = _path([each.aval.dtype for each in arrays], shapes, names, target, optimize)
    views = [_without_ones(each, term, extents) for each, term in views]
    nodes = _typed([array_node(each) for each, _ in views], dtype, casting, optimize)
    result = _contract(nodes, [term for _, term in views], target, extents, path, optimize)
    if out is None:
        is_array = not target and optimize is not False and _ends_in_an_array(names, shapes, path)
        return new_array(result) if is_array else fresh(result)
    if not isinstance(entered(out), Tracer) or entered(out).aval != result.aval:
        raise Escape("numpy.einsum with out= of another shape or type", "what NumPy casts then is not traced")
    return into(out, result, True, "safe")


def _refuse(operands: tuple[Any, ...], optimize: Any) -> Any:
    """Raise NumPy's own error for subscripts that do not fit."""
    np.einsum(*(_stand_in(value) for value in operands), optimize=optimize)
    raise Escape("numpy.einsum with these subscripts", "what they mean is not known to the tracer")


def _stand_in(value: Any) -> Any:
    value = entered(value)
    return np.broadcast_to(np.zeros((), value.dtype), value.shape) if isinstance(value, Tracer) else value


def _typed(nodes: list[Node], dtype: Any, casting: Any, optimize: Any) -> list[Node]:
    """Without ``optimize=`` NumPy computes in the type of the result from the start."""
    common = np.dtype(dtype) if dtype is not None else np.result_type(*(node.dtype for node in nodes))
    if dtype is not None and not all(np.can_cast(node.dtype, common, casting) for node in nodes):
        raise TypeError(f"Cannot cast the operands of einsum to {common} according to the rule {casting!r}")
    if dtype is None and optimize is not False:
        return nodes
    return _in_one_type(nodes, common)


def _in_one_type(nodes: list[Node], common: Any = None) -> list[Node]:
    """All in a type that can hold any of them, or in ``common``."""
    common = np.result_type(*(node.dtype for node in nodes)) if common is None else common
    return [emit("cast", node, dtype=common) if node.dtype != common else node for node in nodes]


def _contract(
    nodes: list[Node], names: list[str], target: str, extents: dict[str, Any], path: list[tuple[int, ...]],
    optimize: Any,
) -> Node:  # fmt: skip
    if len(nodes) == 1:
        return emit("einsum", nodes[0], subscripts=f"{names[0]}->{target}", optimize=False)
    nodes, names = list(nodes), list(names)
    for step in path:
        taken = [(nodes.pop(k), names.pop(k)) for k in sorted(step, reverse=True)]
        if len(taken) > 2:  # NumPy takes them at once, in a type that holds them all
            wide = _in_one_type([node for node, _ in taken])
            taken = [(node, term) for node, (_, term) in zip(wide, taken, strict=True)]
        while len(taken) > 1:
            (x, a), (y, b), *others = taken
            needed = set(target).union(*names, *(term for _, term in others))
            kept = "".join(sorted(set(a + b) & needed, key=lambda letter: (nominal(extents[letter]), letter)))
            made = kept if nodes or others else target
            text = f"{a},{b}->{made}"
            by_matmul = optimize is not False or multiplies_matrices(text)
            taken = [(emit("einsum", x, y, subscripts=text, optimize=by_matmul), made), *others]
        node, term = taken[0]
        if not nodes and term != target:
            node = emit("einsum", node, subscripts=f"{term}->{target}", optimize=False)
        nodes.append(node)
        names.append(term)
    return nodes[0]


def _ends_in_an_array(names: list[str], shapes: list[tuple[Any, ...]], path: list[tuple[int, ...]]) -> bool:
    """Is a result without dimensions an array? NumPy's is where it comes out of a product of matrices.

    NumPy is asked, with few elements: what it does depends on which extents are one.
    """
    small = [np.zeros([min(extent, 2) for extent in nominal(shape)]) for shape in shapes]
    return isinstance(np.einsum(f"{','.join(names)}->", *small, optimize=["einsum_path", *path]), np.ndarray)


def _path(
    dtypes: list[Any], shapes: list[tuple[Any, ...]], names: list[str], target: str, optimize: Any
) -> list[tuple[int, ...]]:  # fmt: skip
    """The order in which NumPy contracts; without ``optimize=`` the best of all where there are few."""
    if len(names) <= 2:
        return [(0, 1)]
    stand_ins = [np.broadcast_to(np.zeros((), d), nominal(shape)) for d, shape in zip(dtypes, shapes, strict=True)]
    search = "optimal" if len(names) <= _FEW_OPERANDS else "greedy"
    path, _ = np.einsum_path(f"{','.join(names)}->{target}", *stand_ins, optimize=optimize or search)
    return path[1:]


@handles(np.einsum_path)
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """The path follows from shapes alone."""
    if einsum_call:
        raise Escape("numpy.einsum_path with einsum_call=", "this option is NumPy's own")
    path, text = np.einsum_path(*map(_stand_in, operands), optimize=optimize)
    return current().remember(path), text
