"""What each pass does: rules, dead code, regions, epilogues, and what none of them may lose."""

import numpy as np
import pytest

import futurex as fx
import futurex.ops as ops
from futurex.autodiff import value_and_grad
from futurex.ops.control import Failure
from futurex.passes import fuse as fuse_module
from futurex.passes.dead import prune
from futurex.passes.epilogue import join_epilogues
from futurex.passes.expand import by_elements
from futurex.passes.fold import LARGEST
from futurex.passes.fuse import fuse
from futurex.passes.pipeline import PASSES, optimise
from futurex.passes.rewrite import is_effect
from futurex.passes.simplify import simplify
from futurex.tree import Aval, Graph, apply, const, item, param
from futurex.tree.aval import aval_of
from futurex.tree.verify import MalformedGraph, verify

F4, F8, I8 = np.dtype("f4"), np.dtype("f8"), np.dtype("i8")
assert ops  # importing it registers the records


def p(*shape, dtype=F4, name="x"):
    return param(Aval(shape, np.dtype(dtype)), name)


def ops_of(graph):
    return [node.op for node in graph.nodes if node.op not in ("param", "const", "item")]


def total(x, **attrs):
    return apply("sum", x, **{"axis": None, "keepdims": False, "dtype": None, **attrs})


def whole(ndim):
    return (("index", (("s", None, None, None),) * ndim),)


IDENTITIES = {
    "transpose twice": lambda x: apply("transpose", apply("transpose", x, axes=(1, 0)), axes=(1, 0)),
    "reshape there and back": lambda x: apply("reshape", apply("reshape", x, shape=(12,)), shape=(3, 4)),
    "negative twice": lambda x: apply("negative", apply("negative", x)),
    "times one": lambda x: 1.0 * (x * np.float32(1)),
    "by one": lambda x: x / 1.0,
    "minus zero": lambda x: x - 0.0,
    "plus minus zero": lambda x: x + -0.0,
    "cast to its own dtype": lambda x: apply("cast", x, dtype=F4),
    "cast to a wider dtype and back": lambda x: apply("cast", apply("cast", x, dtype=F8), dtype=F4),
    "both branches": lambda x: apply("where", x > 0.5, x, x),
    "known condition": lambda x: apply("where", np.True_, x, -x),
    "whole view": lambda x: apply("load", x, chain=whole(2)),
    "whole write": lambda x: apply("store", -x, x, chain=whole(2), mode="set"),
    "broadcast to its own shape": lambda x: apply("broadcast_to", x, shape=(3, 4)),
    "gradient stop": lambda x: apply("stop_gradient", x),
    "times ones": lambda x: x * apply("full", 1.0, shape=(3, 4), dtype=F4),
}


@pytest.mark.parametrize("build", IDENTITIES.values(), ids=IDENTITIES.keys())
def test_what_changes_nothing_vanishes(build):
    x = p(3, 4)
    assert optimise(Graph([x], [build(x)]), check=True).outs == (x,)


LOOKALIKES = {
    "plus zero": lambda x: x + 0.0,
    "zero minus": lambda x: 0.0 - x,
    "times zero": lambda x: x * 0.0,
    "minus minus zero": lambda x: x - (-0.0),
    "sum over an axis of extent one": lambda x: total(apply("reshape", x, shape=(1, 3, 4)), axis=(0,)),
    "to a narrower dtype and back": lambda x: apply("cast", apply("cast", x, dtype=np.dtype("f2")), dtype=F4),
    "to integers and back": lambda x: apply("cast", apply("cast", x, dtype=I8), dtype=F4),
    "times a one that widens": lambda x: x * np.float64(1.0),
}


@pytest.mark.parametrize("build", LOOKALIKES.values(), ids=LOOKALIKES.keys())
def test_what_looks_as_if_it_changed_nothing_stays(build):
    x = p(3, 4)
    graph = Graph([x], [build(x)])
    value = np.full((3, 4), -0.0, F4)
    after = optimise(graph, check=True)
    assert after.outs != (x,)
    assert after(value)[0].tobytes() == graph(value)[0].tobytes()


def test_an_operand_is_taken_before_it_was_broadcast():
    x, b = p(3, 4), p(4)
    row = apply("broadcast_to", apply("reshape", b, shape=(1, 4)), shape=(3, 4))
    assert ops_of(simplify(Graph([x, b], [x + row]))) == ["add"]
    assert simplify(Graph([x, b], [x + row])).outs[0].inputs == (x, b)


def test_so_is_a_view_that_ends_in_a_broadcast():
    """As ``np.meshgrid`` gives."""
    x, y = p(4), p(3)
    row = apply("load", x, chain=(("reshape", (1, 4)), ("broadcast_to", (3, 4))))
    column = apply("load", y, chain=(("reshape", (3, 1)), ("broadcast_to", (3, 4))))
    after = simplify(Graph([x, y], [row * column + row]))
    assert ops_of(after) == ["reshape", "multiply", "add"]
    values = [np.arange(4, dtype=F4), np.arange(3, dtype=F4) - 1]
    np.testing.assert_array_equal(after(*values)[0], values[0] * values[1][:, None] + values[0])


def test_an_op_on_broadcast_operands_alone_is_computed_before():
    b = p(4)
    rows = apply("broadcast_to", b, shape=(300, 4))
    after = simplify(Graph([b], [apply("sqrt", rows) * 2.0]))
    assert ops_of(after) == ["sqrt", "multiply", "broadcast_to"]
    assert [node.shape for node in after.nodes if node.op == "multiply"] == [(4,)]


def test_scalar_factors_of_a_mean_fold_into_one():
    x = p(4, 5)
    after = optimise(value_and_grad(Graph([x], [total(x) / 20]), [0]), check=True)
    assert ops_of(after) == ["sum", "divide", "full"]
    assert after(np.ones((4, 5), F4))[1].tobytes() == np.full((4, 5), np.float32(1) / 20, F4).tobytes()


def test_folding_leaves_large_warning_and_impure_nodes():
    large = const(np.zeros(LARGEST // 8 + 1))
    assert ops_of(simplify(Graph([], [large + 1.0]))) == ["add"]
    assert ops_of(simplify(Graph([], [const(np.zeros(3)) + 1.0]))) == []
    assert ops_of(simplify(Graph([], [1.0 / const(np.zeros(3))]))) == ["divide"]  # NumPy warns when it runs
    checked = apply("check", const(np.bool_(True)), failure=Failure(ValueError, ("no",)))
    assert ops_of(simplify(Graph([], [checked]))) == ["check"]


def failing(value, text):
    return apply("check", value, failure=Failure(ValueError, (text,)))


def test_an_effect_is_kept_by_rules_that_drop_an_operand():
    x, c = p(3), p(dtype="?")
    kept = apply("where", failing(c, "no"), x, x)
    after = optimise(Graph([x, c], [kept]), check=True)
    assert "check" in ops_of(after)
    with pytest.raises(ValueError, match="no"):
        after(np.ones(3, F4), np.bool_(False))


def test_effects_keep_their_order_when_their_operands_change():
    x = p(dtype="?")
    twice = apply("logical_not", apply("logical_not", x))
    first, second, third = failing(twice, "first"), failing(x, "second"), failing(twice, "third")
    after = optimise(Graph([x], [third, first, second]), check=True)
    effects = sorted((node for node in after.nodes if is_effect(node)), key=lambda node: node.id)
    assert [node.attrs["failure"].args[0] for node in effects] == ["first", "second", "third"]


def test_a_branch_loses_results_and_inputs_that_nobody_reads():
    x, y, c = p(3), p(3, name="y"), p(dtype="?")
    inner = [p(3), p(3, name="y")]
    then = Graph(inner, [inner[0] + 1.0, inner[1] * 2.0], "then")
    orelse = Graph(inner, [inner[0] - 1.0, apply("exp", inner[1])], "orelse")
    node = apply("cond", c, x, y, then=then, orelse=orelse)
    graph = Graph([x, y, c], [item(node, 0)])
    (slim,) = [each for each in optimise(graph, check=True).nodes if each.op == "cond"]
    assert slim.inputs == (c, x)
    assert len(slim.aval) == 1
    values = np.ones(3, F4), np.ones(3, F4), np.bool_(False)
    assert np.array_equal(optimise(graph)(*values)[0], graph(*values)[0])


def test_what_a_pruned_branch_read_is_pruned_in_turn():
    params = [p(dtype="?"), p(), p()]
    c, x, y = params
    for _ in range(3):
        inner = [p(), p()]
        then = Graph(inner, [inner[0] + 1.0, inner[1] * 2.0], "then")
        orelse = Graph(inner, [inner[0] - 1.0, apply("exp", inner[1])], "orelse")
        node = apply("cond", c, x, y, then=then, orelse=orelse)
        x, y = item(node, 0), item(node, 1)
    graph = Graph(params, [x])
    slim = prune(graph)
    conds = [each for each in slim.nodes if each.op == "cond"]
    assert [len(each.aval) for each in conds] == [1, 1, 1]
    assert [len(each.inputs) for each in conds] == [2, 2, 2]
    assert prune(slim) is slim
    values = np.bool_(True), np.ones(3, F4), np.ones(3, F4)
    assert np.array_equal(slim(*values)[0], graph(*values)[0])


def test_a_branch_keeps_a_result_with_an_effect():
    x, c = p(dtype="?"), p(dtype="?")
    inner = p(dtype="?")
    then = Graph([inner], [failing(inner, "no"), apply("logical_not", inner)], "then")
    orelse = Graph([inner], [inner, inner], "orelse")
    node = apply("cond", c, x, then=then, orelse=orelse)
    after = prune(Graph([x, c], [item(node, 1)]))
    with pytest.raises(ValueError, match="no"):
        after(np.bool_(False), np.bool_(True))


def test_a_loop_does_not_keep_a_list_that_nobody_reads():
    """It grows by arrays of one shape until data says so, which never fails."""

    def root(a, log):
        x, steps = a, []
        while np.abs(x * x - a).max() > 1e-9:
            x = (x + a / x) / 2
            steps.append(x)
        return (x, np.array(steps)) if log else x

    a, staged = np.arange(1.0, 5.0), fx.futurize(root)
    graphs = [optimise(staged.graph(a, log), check=True) for log in (False, True)]
    loops = [node for graph in graphs for node in graph.nodes if node.op == "loop"]
    assert [[aval.static for aval in node.aval].count(False) for node in loops] == [0, 1]
    assert np.array_equal(staged(a, False), root(a, False))
    assert np.array_equal(staged(a, True)[1], root(a, True)[1])


def test_a_loop_and_its_taped_twin_run_once():
    x = p(dtype=F8)
    carry = [p(dtype=F8), p(dtype=I8)]
    body = Graph(carry, [apply("sin", carry[0]), carry[1] + 1], "body")
    test = Graph(carry, [carry[1] < 3], "test")
    node = apply("loop", x, np.int64(0), test=test, body=body, tape=())
    graph = value_and_grad(Graph([x], [item(node, 0)]), [0])
    assert ops_of(graph).count("loop") == 2
    after = prune(graph)
    assert ops_of(after).count("loop") == 1
    assert after(np.float64(0.7)) == graph(np.float64(0.7))


def test_sub_graphs_are_optimised_too():
    x, c = p(3), p(dtype="?")
    inner = p(3)
    branch = Graph([inner], [inner * 1.0 + 1.0], "branch")
    node = apply("cond", c, x, then=branch, orelse=Graph([inner], [inner], "same"))
    (after,) = [each for each in optimise(Graph([x, c], [item(node, 0)]), check=True).nodes if each.op == "cond"]
    assert ops_of(after.attrs["then"]) == ["add"]


def test_a_region_holds_a_chain_and_gives_what_others_read():
    x, b = p(64, 32), p(32)
    pre = x + b
    h = apply("maximum", pre, 0)
    graph = Graph([x, b], [apply("ldexp", h, 1), apply("where", pre > 0, 1.0, 0.5)])
    after = fuse(graph)
    assert ops_of(after) == ["fused", "ldexp"]
    (region,) = [node for node in after.nodes if node.op == "fused"]
    assert ops_of(region.attrs["graph"]) == ["add", "maximum", "greater", "where"]
    assert len(region.aval) == 2


def test_a_region_never_encloses_a_path_through_another_node():
    x = p(64, 64)
    a = x + 1.0
    b = apply("ldexp", a, 1) * a  # ldexp lies between: one region of both would wait for itself
    after = verify(fuse(Graph([x], [b, a * 2.0])))
    assert ops_of(after) == ["fused", "ldexp", "fused"]
    values = [np.full((64, 64), 0.25, F4)]
    assert [each.tobytes() for each in after(*values)] == [each.tobytes() for each in Graph([x], [b, a * 2.0])(*values)]


def test_small_arrays_and_inexact_ops_stay_with_numpy():
    x, y = p(4, 4), p(40, 40)
    assert ops_of(fuse(Graph([x], [(x + 1.0) * 2.0]))) == ["add", "multiply"]
    assert ops_of(fuse(Graph([y], [apply("ldexp", apply("ldexp", y, 1), 2)]))) == ["ldexp", "ldexp"]
    assert ops_of(fuse(Graph([y], [y + 1.0]))) == ["add"]
    z = p(300, 300)
    assert ops_of(fuse(Graph([z], [z + 1.0]))) == ["fused"]


def test_small_arrays_beside_a_large_one_are_regions_of_several_operations():
    """As the update of a bias beside that of a matrix; functions that hold to a bound only stay NumPy's."""
    large, small = p(300, 300, name="large"), p(10, name="small")
    update = adam_step((10,))
    assert ops_of(fuse(Graph([large, *update[0]], [large * 2.0, *update[1]]))) == ["fused", "fused"]
    assert "fused" not in ops_of(fuse(Graph(*update)))
    losses, columns = p(128, name="losses"), p(20, 7, name="columns")
    first = {"axis": (0,), "keepdims": False, "dtype": None}
    sums = [apply("sum", losses * 2.0 - 1.0, **first) / 128.0, apply("sum", columns, **first)]
    assert ops_of(fuse(Graph([large, losses, columns], [large * 2.0, *sums]))).count("fused_reduction") == 2
    assert "fused_reduction" not in ops_of(fuse(Graph([losses, columns], sums)))
    assert ops_of(fuse(Graph([large, small], [large * 2.0, (small + 1.0) * 2.0]))) == ["fused", "fused"]
    for short in ([small + 1.0], [apply("exp", small + 1.0) + small]):
        assert ops_of(fuse(Graph([large, small], [large * 2.0, *short]))).count("fused") == 1
    rng = np.random.default_rng(0)
    graph = Graph([large, *update[0]], [large * 2.0, *update[1]])
    values = [rng.random(each.shape).astype(F4) for each in graph.params]
    assert [each.tobytes() for each in fuse(graph)(*values)] == [each.tobytes() for each in graph(*values)]


def test_regions_stay_within_their_limits():
    x = p(40, 40)
    value = x
    for k in range(3 * fuse_module.MOST_NODES):
        value = value * (1.0 + k)
    regions = [node.attrs["graph"] for node in fuse(Graph([x], [value])).nodes if node.op == "fused"]
    assert len(regions) > 2
    assert max(len(ops_of(region)) for region in regions) <= fuse_module.MOST_NODES


def test_numbers_are_no_arrays_of_a_region():
    x, y = p(40, 40), p(40, 40)
    value = x
    for k in range(2 * fuse_module.MOST_ARRAYS):
        value = (value + 0.5 * k) * y
    assert ops_of(fuse(Graph([x, y], [value]))).count("fused") == 1


def adam_step(shape):
    names = "pmvg"
    inputs = [p(*shape, name=name) for name in names]
    weight, m, v, g = inputs
    m2, v2 = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
    return inputs, [weight - 0.01 * m2 / (apply("sqrt", v2) + 1e-8), m2, v2]


def test_an_optimizer_update_is_one_region_per_parameter():
    first, second = adam_step((40, 30)), adam_step((300,))
    after = optimise(Graph([*first[0], *second[0]], [*first[1], *second[1]]), check=True)
    assert ops_of(after) == ["fused", "fused"]


def test_the_fused_node_differentiates_as_what_it_stands_for():
    x, b = p(20, 20, dtype=F8), p(20, dtype=F8)
    plain = Graph([x, b], [apply("square", x * b + 1.0)])
    regions = fuse(plain)
    assert ops_of(regions) == ["fused"]
    values = np.linspace(-1, 1, 400).reshape(20, 20), np.linspace(1, 2, 20)
    for graph in (plain, regions):
        graph = Graph(graph.params, [total(graph.outs[0])])
        got = value_and_grad(graph, [0, 1])(*values)
        np.testing.assert_allclose(got[1], 2 * (values[0] * values[1] + 1) * values[1], rtol=1e-12)


def test_a_bias_joins_the_product():
    x, w, b = p(80, 90), p(90, 70), p(70)
    graph = Graph([x, w, b], [x @ w + b])
    after = verify(join_epilogues(graph))
    assert ops_of(after) == ["matmul_epilogue"]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=each.shape).astype(F4) for each in graph.params]
    np.testing.assert_allclose(after(*values)[0], graph(*values)[0], rtol=1e-5, atol=1e-5)


def test_a_convolution_takes_its_bias():
    x, w, b = p(2, 8, 3), p(3, 3, 5), p(5)
    y = apply("conv", x, w, stride=(1,), padding=((1, 1),), dilation=(1,), groups=1)
    assert ops_of(join_epilogues(Graph([x, w, b], [b + y]))) == ["conv_epilogue"]


def test_no_epilogue_where_it_would_change_or_repeat_something():
    x, w, b = p(80, 90), p(90, 70), p(70)
    y = x @ w
    relu = Graph([x, w, b], [apply("maximum", y + b, 0)])  # a region makes both
    tanh = Graph([x, w, b], [apply("tanh", y + b)])
    read_twice = Graph([x, w, b], [y + b, y * 2.0])
    double = [p(80, 90, dtype=F8), p(90, 70, dtype=F8), p(70, dtype=F8)]
    wide = Graph(double, [double[0] @ double[1] + double[2]])
    for graph in (relu, tanh, read_twice, wide):
        assert join_epilogues(graph) is graph


def test_a_relu_keeps_nan():
    x, w, b = p(80, 90), p(90, 70), p(70)
    after = optimise(Graph([x, w, b], [apply("maximum", x @ w + b, 0)]))
    values = [np.ones(each.shape, F4) for each in (x, w, b)]
    values[0][3, 3] = np.nan
    assert np.isnan(after(*values)[0][3]).all()


def test_tapes_of_lists_that_grow_hold_arrays_of_any_length():
    def loss(x):
        rows = []
        for _ in range(20):
            k = 0
            while k < 3 and x[0] < 5:
                k += 1
                rows.append(np.sin(x[k % 3]))
        return np.array(rows).sum()

    verify(fx.lower(fx.grad(loss), np.ones(3)).graph)


def test_the_verifier_runs_after_each_pass(monkeypatch):
    x = p(3)
    other = p(3, name="other")
    monkeypatch.setattr(
        "futurex.passes.pipeline.PASSES", (*PASSES, lambda graph: Graph(graph.params, [other], "broken"))
    )
    with pytest.raises(MalformedGraph):
        optimise(Graph([x], [x + 1.0]), check=True)


def test_weak_scalars_stay_weak():
    s, x = param(aval_of(2.0), "s"), p(40, 40)
    graph = Graph([s, x], [x * (s * 2.0 + 1.0)])
    after = optimise(graph, check=True)
    assert after.outs[0].dtype == F4
    assert after(0.1, np.ones((40, 40), F4))[0].tobytes() == graph(0.1, np.ones((40, 40), F4))[0].tobytes()


def test_a_region_pays_beside_small_copies_and_not_beside_large_ones():
    """A column is copied in no time, every tenth one is not, for one addition; what lies turned is not copied."""
    x = param(Aval((500, 400), np.dtype("f4")))
    column = apply("load", x, chain=(("index", (("s", None, None, None), ("i", 3))), ("reshape", (500, 1))))
    row = apply("load", x, chain=(("index", (("i", 3),)),))
    square = param(Aval((500, 500), np.dtype("f4")))
    wide = param(Aval((500, 5000), np.dtype("f4")))
    tenth = apply("load", wide, chain=(("index", (("s", None, None, None), ("s", None, None, 10))),))
    turned = apply("transpose", square, axes=(1, 0))
    for out, fused in ((column * row + 1.0, True), (square + tenth, False), (square + turned, True)):
        graph = fuse(Graph([x, square, wide], [out]))
        assert any(node.op == "fused" for node in graph.nodes) == fused


def test_joins_are_stores_in_loops_and_single_operations_stay():
    """One function is made of a loop and what is around it, which joins arrays and calls NumPy's loops by itself."""
    def rounds(u):
        for _ in range(50):
            u = np.concatenate([u[1:], u[:1] * 0.5]) + np.pad(u, ((2, 0), (0, 0)))[2:]
        return np.sqrt(u)

    (loop,) = [node for node in fx.futurize(rounds).graph(np.ones((100, 50))).nodes if node.op == "loop"]
    plan = fx.futurize(rounds).trace(np.ones((100, 50))).plan
    inside = {node.op for node in loop.attrs["body"].nodes}
    assert "pad" in inside
    optimised = {node.op: node for node in plan.graph.nodes}
    assert {"loop", "sqrt"} <= optimised.keys()
    assert "store" in (ops := {node.op for node in optimised["loop"].attrs["body"].nodes})
    assert not ops & {"fused_join", "pad"}


def test_joins_are_stores_in_code_that_is_one_function():
    def f(x):
        return np.concatenate([x, x * 2, np.pad(x, ((1, 0), (0, 0)))]) * 0.5

    x = np.random.default_rng(0).normal(size=(30, 20))
    x[3] = -0.0
    graph = fx.futurize(f).trace(x).plan.graph
    assert "fused_join" in {node.op for node in graph.nodes}
    written = by_elements(graph)
    assert "store" in {node.op for node in written.nodes}
    assert "fused_join" not in {node.op for node in written.nodes}
    assert written(x)[0].tobytes() == f(x).tobytes()
