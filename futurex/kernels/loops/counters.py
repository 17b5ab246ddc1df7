"""What is known of a loop's counter before it runs, and what follows from it."""

from __future__ import annotations

from futurex.tree.node import Node


def counter(loop: Node) -> tuple[int, range] | None:
    """The carried number that a loop counts with from a constant to a constant, by a constant, and all its values."""
    test, body = loop.attrs["test"], loop.attrs["body"]
    truth = test.outs[0]
    if truth.op not in ("less", "greater") or truth.inputs[0] not in test.params:
        return None
    k = test.params.index(truth.inputs[0])
    if k >= len(body.outs):
        return None
    step = shift(body.outs[k], body.params[k])
    ends = loop.inputs[k], truth.inputs[1]
    if not step or not all(end.op == "const" and type(end.value) is int for end in ends):
        return None
    return (k, range(ends[0].value, ends[1].value, step)) if (truth.op == "less") == (step > 0) else None


def shift(node: Node, base: Node) -> int | None:
    """The constant that a node adds to a number; None where it does something else."""
    if node is base:
        return 0
    if node.op != "add" or node.inputs[0] is not base or node.inputs[1].op != "const":
        return None
    value = node.inputs[1].value
    return value if type(value) is int else None


def refilled(loop: Node) -> frozenset[int]:
    """The carried arrays of which the rounds write every row and read none: it does not matter what they hold first."""
    found = counter(loop)
    if found is None:
        return frozenset()
    (number, values), body, test = found, loop.attrs["body"], loop.attrs["test"]
    read = [source for node in body.nodes for source in node.inputs]
    tested = {source for node in test.nodes for source in node.inputs}

    def is_refilled(k: int, out: Node) -> bool:
        base = body.params[k]
        if out.op != "store" or out.inputs[0] is not base or read.count(base) > 1 or test.params[k] in tested:
            return False
        if base in body.outs or not out.is_static or len(out.inputs) != 3 or out.attrs["mode"] != "set":
            return False
        (steps, *others), moved = out.attrs["chain"], shift(out.inputs[2], body.params[number])
        if others or steps[0] != "index" or steps[1][0] != ("d", 0) or moved is None:
            return False
        if any(entry != ("s", None, None, None) for entry in steps[1][1:]):
            return False
        return len(values) == out.shape[0] and sorted(value + moved for value in values) == list(range(len(values)))

    return frozenset(k for k, out in enumerate(body.outs) if is_refilled(k, out))
