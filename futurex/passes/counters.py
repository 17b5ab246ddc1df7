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
    return frozenset(k for k, rows in written_rows(loop).items() if len(rows) == loop.inputs[k].shape[0])


def written_rows(loop: Node) -> dict[int, range]:
    """The rows that the rounds write, of the carried arrays whose rows they write whole and none of which they read."""
    found = counter(loop)
    if found is None:
        return {}
    (number, values), body, test = found, loop.attrs["body"], loop.attrs["test"]
    read = [source for node in body.nodes for source in node.inputs]
    tested = {source for node in test.nodes for source in node.inputs}

    def rows(k: int, out: Node) -> range | None:
        base = body.params[k]
        if out.op != "store" or out.inputs[0] is not base or read.count(base) > 1 or test.params[k] in tested:
            return None
        if base in body.outs or not out.is_static or len(out.inputs) != 3 or out.attrs["mode"] != "set":
            return None
        (steps, *others), moved = out.attrs["chain"], shift(out.inputs[2], body.params[number])
        if others or steps[0] != "index" or steps[1][0] != ("d", 0) or moved is None:
            return None
        if any(entry != ("s", None, None, None) for entry in steps[1][1:]):
            return None
        found = sorted(value + moved for value in values)
        written = range(found[0], found[0] + len(found)) if found else range(0)
        return written if found == list(written) and written.start >= 0 and written.stop <= out.shape[0] else None

    found_rows = {k: rows(k, out) for k, out in enumerate(body.outs)}
    return {k: each for k, each in found_rows.items() if each is not None}
