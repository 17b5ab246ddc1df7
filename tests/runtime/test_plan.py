"""Plans compute what their graphs mean, in memory that nobody else sees."""

import functools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_graphs import F8, Tracking, graphs, inputs, matrix

from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import Kernel
from futurex.runtime.inline import Readers
from futurex.runtime.plan import compile_plan
from futurex.runtime.scheduler import Scheduler
from futurex.tree import Aval, Graph, apply, const, param

NUMPY = (NumpyBackend(),)


@pytest.fixture(autouse=True, scope="module", params=["instruction by instruction", "as one function"])
def hot(request):
    """Plans become one function after the first run, or not in a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("futurex.runtime.plan.HOT", 1 if request.param == "as one function" else 10**9)
        yield


def same(got, want):
    for left, right in zip(got, want, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


def overlap(first, second):
    return any(np.may_share_memory(x, y) for x in first for y in second)


def in_threads(functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def written_now(seed):
    """Arguments, and copies that stay as they were."""
    args = inputs(seed)
    return args, [arg.copy() for arg in args]


@given(graphs(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_plan_equals_its_graph_run_after_run(graph, optimised):
    plan = compile_plan(graph, backends=NUMPY, optimised=optimised)
    kept = []
    for seed in range(3):
        args, before = written_now(seed)
        results = plan.run(args)
        same(results, graph(*before))
        same(args, before)
        assert not overlap(results, args)
        assert not any(overlap([x], [y]) for k, x in enumerate(results) for y in results[:k])
        kept.append((results, graph(*before)))
    for results, want in kept:  # later runs wrote into nothing that was handed out
        same(results, want)


@given(graphs(), st.data())
@settings(max_examples=100, deadline=None)
def test_dependencies_make_any_order_right(graph, data):
    """What the pool relies on: reuse of memory and in-place writes are ordered by dependencies alone."""
    plan = compile_plan(graph, backends=NUMPY, optimised=True)
    args = inputs(1)
    instance, values = plan.begin(args, None)
    run = Scheduler([each.after for each in plan.instructions], plan.rank)
    readers, ready = Readers(plan, values), run.start()
    while ready:
        index = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        instance.calls[index](values)
        readers.read(index)
        ready += run.finished(index)
    same(plan.end(instance, values, args), graph(*args))


@given(graphs(), st.data())
@settings(max_examples=150, deadline=None)
def test_donated_results_are_the_arguments(graph, data):
    params = data.draw(st.permutations(range(2)))
    count = min(len(graph.outs), data.draw(st.integers(1, 2)))
    donate = dict(enumerate(params[:count]))
    plan = compile_plan(graph, donate=donate, backends=NUMPY, optimised=data.draw(st.booleans()))
    for seed in range(2):
        args, before = written_now(seed)
        results = plan.run(args)
        same(results, graph(*before))
        assert all(results[out] is args[place] for out, place in donate.items())
        rest = [value for out, value in enumerate(results) if out not in donate]
        assert not overlap(rest, args)


def test_updates_may_be_many():
    x = total = matrix("x")
    for _ in range(1500):
        total = apply("add", total, x)
    plan = compile_plan(Graph((x,), (total,)), backends=NUMPY, optimised=False)
    for _ in range(3):
        same(plan.run([np.full((3, 3), 0.5)]), [np.full((3, 3), 750.5)])


def test_an_update_writes_straight_into_the_donated_array():
    weights, gradient = matrix("weights"), matrix("gradient")
    plan = compile_plan(Graph([weights, gradient], [weights - 0.1 * gradient]), donate={0: 0}, backends=NUMPY)
    assert plan.memory.outputs == 0
    assert plan.memory.arena == 128  # the step alone, 72 bytes rounded up
    w, g = inputs()
    want = w - 0.1 * g
    assert plan.run([w, g])[0] is w
    np.testing.assert_array_equal(w, want)


@given(st.floats(), st.floats())
def test_numbers_of_python_have_the_bits_that_numpy_gives_them(x, y):
    a, b = (param(Aval((), np.dtype(float), weak=True), name) for name in "ab")
    results = [a + b, a - b, apply("multiply", a, b), apply("negative", a), apply("absolute", a - b)]
    plan = compile_plan(Graph([a, b], results), backends=NUMPY)
    assert {each.kernel.backend for each in plan.instructions if each.kernel.written} == {"numpy"}
    with np.errstate(all="ignore"):
        want = [x + y, x - y, np.multiply(x, y).item(), -x, np.abs(x - y).item()]
    for _ in range(3):
        found = plan.run([x, y])
        assert [type(each) for each in found] == [float] * 5
        np.testing.assert_array_equal(np.array(found).view(np.int64), np.array(want).view(np.int64))


def test_readers_of_a_donated_argument_run_before_it_is_overwritten():
    x, y = matrix("x"), matrix("y")
    graph = Graph([x, y], [x + 1.0, apply("tanh", apply("transpose", x, axes=(1, 0)) @ y)])
    plan = compile_plan(graph, donate={0: 0}, backends=NUMPY)
    [add] = [each for each in plan.instructions if each.node.op == "add"]
    [product] = [each for each in plan.instructions if each.node.op == "matmul"]
    assert product.index in add.after
    args, before = written_now(0)
    same(plan.run(args), graph(*before))


@pytest.mark.parametrize("change", ["transposed", "strided", "repeated"])
def test_donation_to_an_array_that_cannot_be_written_directly(change):
    x, y = matrix("x"), matrix("y")
    product = y @ y
    graph = Graph([x, y], [product, y @ product])
    backend = Picky()
    plan = compile_plan(graph, donate={0: 0}, backends=(backend, *NUMPY), optimised=True)
    for seed in range(2):
        first, second = inputs(seed)
        args = {
            "transposed": [first.T, second],
            "strided": [np.repeat(first, 2, axis=0)[::2], second],
            "repeated": [first, first],
        }[change]
        want = graph(*[arg.copy() for arg in args])
        results = plan.run(args)
        assert results[0] is args[0]
        same(results, want)
    assert all(backend.flags)


def test_donation_that_does_not_fit_is_refused():
    x, y = matrix("x"), param(Aval((2,), F8), "y")
    with pytest.raises(ValueError, match=r"output 0 is float64\[3,3\] but input 1 is float64\[2\]"):
        compile_plan(Graph([x, y], [x + 1.0]), donate={0: 1})
    with pytest.raises(ValueError, match="one output"):
        compile_plan(Graph([x], [x + 1.0, x * 2.0]), donate={0: 0, 1: 0})
    with pytest.raises(ValueError, match="2 outputs"):
        compile_plan(Graph([x], [x + 1.0, x * 2.0]), donate={2: 0})
    frozen = np.zeros((3, 3))
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match=r"argument 0 \(x\) was donated"):
        compile_plan(Graph([x], [x + 1.0]), donate={0: 0}).run([frozen])


def test_runs_of_one_plan_in_threads_do_not_share_memory():
    x, y = matrix("x", 64), matrix("y", 64)
    node = x
    for _ in range(20):
        node = apply("tanh", node @ y) + x
    plan = compile_plan(Graph([x, y], [node]), backends=NUMPY)
    wrong, together = [], threading.Barrier(4)

    def work(seed):
        args = inputs(seed, n=64)
        want = plan.graph(*args)[0]
        together.wait(60)
        for _ in range(10):
            if not np.array_equal(plan.run(args)[0], want):
                wrong.append(seed)

    in_threads([functools.partial(work, seed) for seed in range(4)])
    assert not wrong


def test_the_user_line_and_the_operands_are_added_to_an_exception():
    x = matrix("x")
    bad = apply("check", apply("less", apply("sum", x, axis=None, keepdims=False, dtype=None), 0.0), failure=_failure())
    plan = compile_plan(Graph([x], [x + 1.0, bad]), backends=NUMPY)
    with pytest.raises(ZeroDivisionError, match="sum is not negative") as caught:
        plan.run([np.ones((3, 3))])
    [note] = caught.value.__notes__
    assert f"{__file__}:{bad.src.line}: bad = apply(" in note
    assert "in check(bool[])" in note
    same(plan.run([-np.ones((3, 3))])[:1], [np.zeros((3, 3))])


def _failure():
    from futurex.ops.control import Failure

    return Failure(ZeroDivisionError, ("sum is not negative",))


def test_arguments_that_do_not_fit_are_refused():
    x, scale = matrix("x"), param(Aval((), np.dtype(np.int64), weak=True), "scale")
    plan = compile_plan(Graph([x, scale], [x * scale]))
    x_value = np.ones((3, 3))
    for args, message in [
        ([x_value], "takes 2 arguments, got 1"),
        ([np.ones((3, 2)), 2], r"argument 0 \(x\) must be float64\[3,3\], got float64\[3,2\]"),
        ([x_value.astype("f4"), 2], r"got float32\[3,3\]"),
        ([x_value, 2.0], r"argument 1 \(scale\) must be ~int64\[\], got ~float64\[\]"),
        ([x_value, np.int64(2)], r"must be ~int64\[\], got int64\[\]"),
        ([x_value.tolist(), 2], "got a list"),
    ]:
        with pytest.raises(TypeError, match=message):
            plan.run(args)
    same(plan.run([x_value, 2]), [2 * x_value])


def test_weak_scalars_stay_python_scalars():
    a = param(Aval((), np.dtype(float), weak=True), "a")
    x = param(Aval((2,), np.dtype("f4")), "x")
    plan = compile_plan(Graph([x, a], [x * (a + 1), a + 1]))
    array, scalar = plan.run([np.ones(2, "f4"), 1.5])
    assert array.dtype == np.float32
    assert type(scalar) is float


class Picky:
    """Runs products, on contiguous arrays only, one call at a time."""

    name = "picky"

    def __init__(self):
        self.flags = []
        self.inside = 0
        self.most = 0
        self.kernel = Kernel(self.call, self.name, into=True, contiguous=True, exclusive=True)

    def claim(self, node, threads):
        return self.kernel if node.op == "matmul" else None

    def call(self, out, x, y):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.flags += [each.flags.c_contiguous and each.flags.aligned for each in (out, x, y)]
        np.matmul(x, y, out=out)
        self.inside -= 1
        return out


def test_kernels_that_want_contiguous_arrays_get_them_one_call_at_a_time():
    x, y = matrix("x", 64), matrix("y", 64)
    turned = apply("transpose", x + y, axes=(1, 0))
    backend = Picky()
    graph = Graph([x, y], [x @ apply("transpose", y, axes=(1, 0)), turned @ y])
    plan = compile_plan(graph, backends=(backend, *NUMPY))
    first, second = inputs(n=64)
    args = [first[:, ::-1], second.T]

    def work():
        for _ in range(5):
            same(plan.run(args), graph(*args))

    in_threads([work] * 3)
    assert len(backend.flags) == 3 * 2 * 3 * 5
    assert all(backend.flags)
    assert backend.most == 1


def test_fixed_views_and_items_are_no_instructions():
    x = matrix("x")
    turned = apply("transpose", apply("tanh", x), axes=(1, 0))
    table = apply("reshape", const(np.arange(9.0)), shape=(3, 3))
    plan = compile_plan(Graph([x], [turned @ x + table]), backends=NUMPY)
    assert [each.node.op for each in plan.instructions] == ["tanh", "matmul", "add"]


def test_effects_run_in_program_order(capsys):
    x = matrix("x")
    first = apply("print", parts=("first",), sep="", end="\n")
    second = apply("print", parts=("second",), sep="", end="\n")
    compile_plan(Graph([x], [second, x + 1.0, first]), backends=NUMPY).run(inputs(n_params=1))
    assert capsys.readouterr().out == "first\nsecond\n"


def test_a_graph_that_is_not_closed_is_refused():
    x, other = matrix("x"), matrix("other")
    with pytest.raises(TypeError, match="not one of its inputs"):
        compile_plan(Graph([x], [x + other]), optimised=True)


def test_arrays_that_kernels_made_are_let_go_after_their_last_reader():
    x = matrix("x")
    node = x
    for _ in range(8):
        node = apply("cumsum", node, axis=0, dtype=None)
    backend = Tracking()
    plan = compile_plan(Graph([x], [node]), backends=(backend, *NUMPY), optimised=True)
    for _ in range(6):  # timed runs and others
        plan.run(inputs(n_params=1))
    assert len(backend.made) == 48
    assert backend.most == 2  # the one that is read and the one that is made


def test_a_region_is_estimated_as_one_trip_and_no_loop():
    """Else the first calls of a long region would be handed over, with copies of their arguments."""
    x = param(Aval((1000, 1000), F8), "x")
    plan = compile_plan(Graph([x], [apply("sum", x * x + 1.0, axis=(0,), keepdims=False, dtype=None)]))
    moved = x.aval.nbytes + 8000
    assert [each.node.op for each in plan.instructions] == ["fused_reduction"]
    assert 0.5 * moved / 8e9 < plan.cost < 2 * moved / 8e9
