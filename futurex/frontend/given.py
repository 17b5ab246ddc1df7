"""Results that lie in memory as NumPy's copies do: what a plan gives need not, where it elides the copy."""

from __future__ import annotations

from futurex.frontend.cells import Cell
from futurex.frontend.layout import Strides, order_in_memory
from futurex.ops.strides import undone
from futurex.ops.views import Step
from futurex.passes.orders import LEAST_ELEMENTS
from futurex.tree.node import Node, apply


def given(node: Node, cell: Cell, strides: Strides) -> Node:
    """What a plan is to compute for a result with NumPy's strides. An order that the program has asked for is kept
    whatever it is, others where NumPy's is C order."""
    if strides is None and node.ndim and _is_handed_on(node):
        return apply("contiguous", node)
    axes = order_in_memory(node.aval, strides) if node.ndim else None
    if axes is None or (axes != tuple(range(node.ndim)) and cell.asked is None):
        return node
    if axes == tuple(range(node.ndim)):
        otherwise = _may_lie_otherwise(node) or (cell.asked is not None and _reads_turned(node, given_too=True))
        return apply("contiguous", node) if otherwise else node
    turned = _transposed(node, axes)
    if _base(turned).op in ("param", "const") or _may_lie_otherwise(turned) or _reads_turned(turned, given_too=True):
        turned = apply("contiguous", turned)
    return apply("transpose", turned, axes=undone(axes))


def _transposed(node: Node, axes: tuple[int, ...]) -> Node:
    if node.op == "load" and len(node.inputs) == 1 and len(node.attrs["chain"]) == 1:
        ((kind, *step),) = node.attrs["chain"]
        if kind == "transpose" and tuple(step[0][axis] for axis in axes) == tuple(range(len(axes))):
            return node.inputs[0]
    return apply("transpose", node, axes=axes)


def _may_lie_otherwise(node: Node) -> bool:
    """May what a plan gives for it lie in another order than C? What it copies from an argument does not."""
    base = _base(node)
    if base.op in ("param", "const"):
        return False
    if _is_handed_on(base) or any(_turns(each) for each in _views(node)):
        return True
    return _reads_turned(base)


def _is_handed_on(node: Node) -> bool:
    """Is it what a loop or branch leaves, which may be a view?"""
    return node.op == "item" and node.inputs[0].record.structured


def _base(node: Node) -> Node:
    while _is_view(node):
        node = node.inputs[node.record.view or 0]
    return node


def _is_view(node: Node) -> bool:
    return node.record.view is not None and node.op != "item"


def _views(node: Node) -> list[Node]:
    found = []
    while _is_view(node):
        found.append(node)
        node = node.inputs[node.record.view or 0]
    return found


def _turns(view: Node) -> bool:
    """May a view lie in another order than the array, or with gaps?"""
    if not view.is_static or view.size != view.inputs[view.record.view or 0].size:
        return True
    if view.op == "transpose":
        return _moves(view.inputs[0], view.attrs["axes"])
    if view.op == "load":
        return len(view.attrs["chain"]) > 1 or not _keeps(view.inputs[0], view.attrs["chain"][0])
    return view.op not in ("reshape", "contiguous")


def _moves(source: Node, axes: tuple[int, ...]) -> bool:
    """Do axes change places that are longer than one?"""
    long = [axis for axis in axes if source.shape[axis] != 1]
    return long != sorted(long)


def _keeps(source: Node, step: Step) -> bool:
    if step[0] == "transpose":
        return not _moves(source, step[1])
    if step[0] == "index":
        return all(entry[0] in "ni" or entry[3] in (None, 1) for entry in step[1])
    return step[0] in ("reshape", "sized")


def _reads_turned(node: Node, *, given_too: bool = False) -> bool:
    """Is it large, and made by elementwise operations of what is transposed, or ``given_too``: of arguments, which may
    lie in any order? The passes may do these in its order."""
    node = _base(node)
    if not node.is_static or node.size < LEAST_ELEMENTS:
        return False
    todo, seen = [node], {node}
    while todo:
        each = todo.pop()
        if each.op == "transpose" or any(step[0] == "transpose" for step in each.attrs.get("chain", ())):
            return True
        if given_too and each.op == "param" and each is not node:
            return True
        if each.record.elementwise:
            more = [source for source in each.inputs if source not in seen and source.shape == node.shape]
            seen.update(more)
            todo += more
    return False
