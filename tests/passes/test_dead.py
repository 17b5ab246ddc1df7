"""What nobody reads is dropped from branches and loops, but for what may raise or acts; tapes keep their places."""

import numpy as np
import pytest

from futurex.ops.control import Failure
from futurex.passes.dead import prune
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import apply, item, param

ARRAY, INT, BOOL = Aval((3,), np.dtype(float)), Aval((), np.dtype(np.int64)), Aval((), np.dtype(bool))
PICKED = (("index", (("d", 0),)),)


def params():
    return param(ARRAY, "x"), param(INT, "i")


def branches(of_then, of_orelse):
    """A branch whose first result is read, and its second is not."""
    x, i = params()
    p = param(BOOL, "p")
    graphs = []
    for second in (of_then, of_orelse):
        a, b = params()
        graphs.append(Graph([a, b], [a * 2.0, second(a, b)], "branch"))
    made = apply("cond", p, x, i, then=graphs[0], orelse=graphs[1])
    return Graph([p, x, i], [item(made, 0)], "f")


def rounds(second, tape=()):
    """A loop of which the first thing that it carries is read, and the second is not."""
    x, i = params()
    a, b, n = param(ARRAY, "a"), param(ARRAY, "b"), param(INT, "n")
    k = param(INT, "k")
    a2, b2, n2, k2 = param(ARRAY, "a"), param(ARRAY, "b"), param(INT, "n"), param(INT, "k")
    test = Graph([a2, b2, n2, k2], [apply("less", n2, np.int64(4))], "test")
    body = Graph([a, b, n, k], [a * 1.5, second(b, k), n + np.int64(1)], "body")
    made = apply("loop", x, x, np.int64(0), i, test=test, body=body, tape=tape)
    return made, Graph([x, i], [item(made, 0)], "f")


def results_of(graph, op):
    return next(len(node.aval) for node in graph.nodes if node.op == op)


def picked(a, b):
    return apply("load", a, b, chain=PICKED)


def doubled_first(a, b):
    return apply("load", a, chain=(("index", (("i", 0),)),)) * 2.0


@pytest.mark.parametrize(
    ("sides", "left"),
    [((picked, doubled_first), 2), ((doubled_first, picked), 2), ((doubled_first, doubled_first), 1)],
)
def test_what_may_raise_stays_in_branches(sides, left):
    assert results_of(prune(branches(*sides)), "cond") == left


def filled(b, k):
    return b + picked(b, k)


def checked(b, k):
    ok = apply("check", apply("less", k, np.int64(9)), failure=Failure(ValueError, ("much",)))
    return apply("where", ok, b, b * 2.0)


@pytest.mark.parametrize(("second", "left"), [(filled, 3), (checked, 3), (lambda b, k: b * 2.0, 2)])
def test_what_may_raise_or_acts_stays_in_loops(second, left):
    assert results_of(prune(rounds(second)[1]), "loop") == left


@pytest.mark.parametrize("tapes", [((1,), (0,)), ((0,), (1,)), ((0, 2), (1,))])
def test_loops_with_different_tapes_are_one_with_all_of_them(tapes):
    made, graph = rounds(lambda b, k: b * 2.0)
    loops = [apply("loop", *made.inputs, **{**made.attrs, "tape": tape}) for tape in tapes]
    outs = [item(loop, 3 + place) for loop in loops for place in range(len(loop.attrs["tape"]))]
    after = prune(Graph(graph.params, outs, "f"))
    (whole,) = {out.inputs[0] for out in after.outs}
    first = len(whole.aval) - len(whole.attrs["tape"])
    assert whole.attrs["tape"] == tuple(range(len(outs)))
    places = [out.attrs["index"] - first for out in after.outs]
    assert [whole.attrs["tape"][place] for place in places] == [k for tape in tapes for k in tape]
