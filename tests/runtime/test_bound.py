"""Instructions that run as machine code together, and the one team of threads that they run on."""

import ctypes
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from futurex.kernels import gemm, steps
from futurex.kernels.backends import default_backends
from futurex.kernels.numba_.backend import _BoundLoop
from futurex.kernels.numba_.labels import BoundLabels
from futurex.kernels.registry import Kernel
from futurex.kernels.steps import Row, StepFailed, Workspace, clearing, copying
from futurex.kernels.watch import Watch
from futurex.runtime.bound import Operand, Part, Together
from futurex.runtime.plan import compile_plan
from futurex.runtime.straight import SHORT
from futurex.tree import Aval, Graph, apply, param

F4 = np.dtype("float32")
pytestmark = pytest.mark.skipif(not steps.ready(), reason="there is no compiler")


def array(shape, name):
    return param(Aval(shape, F4), name)


@pytest.fixture(autouse=True)
def hot(monkeypatch):
    monkeypatch.setattr("futurex.runtime.plan.HOT", 1)
    monkeypatch.setattr("futurex.runtime.straight.SHORT", float("inf"))  # however slow the machine is


def network():
    """Products, bias and relu, a softmax, sums: instructions that are steps, with one that is not in between."""
    x, w, b, v = array((64, 96), "x"), array((96, 80), "w"), array((80,), "b"), array((80, 64), "v")
    hidden = apply("maximum", x @ w + b, 0.0)
    logits = hidden @ v
    weights = apply("exp", logits - apply("max", logits, axis=(1,), keepdims=True))
    share = weights / apply("sum", weights, axis=(1,), keepdims=True)
    order = apply("argmax", share, axis=1, keepdims=False)
    back = share @ apply("transpose", v, axes=(1, 0))
    return Graph([x, w, b, v], [w - 0.1 * (apply("transpose", x, axes=(1, 0)) @ back), back * hidden, order])


def drawn(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(each.shape).astype(F4) for each in network().params]


def same(got, want):
    for left, right in zip(got, want, strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-4, atol=2e-4)


def rows_of(plan):
    return [value for value in plan._instances[-1].program.__globals__.values() if hasattr(value, "_rows")]


@pytest.mark.parametrize("donate", [{}, {0: 1}], ids=["fresh", "donated"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_computes_what_its_instructions_do(donate, threads):
    plan = compile_plan(network(), threads=threads, donate=donate)
    for seed in range(2):
        plan.run(drawn(seed))
    assert any(isinstance(each, tuple) for row in rows_of(plan) for each in row._rows)
    held = drawn(7)
    for seed in range(6):
        args = held if seed in (2, 3) else drawn(seed)  # arrays that move, and arrays that stay
        copies = [each.copy() for each in args]
        truth = network()(*copies)
        instance, values = plan.begin(copies, None)
        for index in plan.order:
            instance.calls[index](values)
        want = plan.end(instance, values, copies)
        got = plan.run(args)
        same(got, truth)
        for left, right in zip(got, want, strict=True):
            np.testing.assert_array_equal(left, right)


def test_a_plan_of_half_a_second_has_rows(monkeypatch):
    monkeypatch.setattr("futurex.runtime.straight.SHORT", SHORT)
    plan = compile_plan(network(), threads=1)
    plan.grain.changed(0.5)
    for seed in range(2):
        plan.run(drawn(seed))
    assert rows_of(plan)


def test_numbers_from_run_to_run():
    x, w = array((64, 96), "x"), array((96, 80), "w")
    rate, share = (param(Aval((), np.dtype(float), weak=True), name) for name in ("rate", "share"))
    graph = Graph([x, w, rate, share], [(x @ w) * rate + share, w * share - rate])
    plan = compile_plan(graph, threads=1)
    rng = np.random.default_rng(5)
    args = [rng.standard_normal((64, 96), dtype=F4), rng.standard_normal((96, 80), dtype=F4)]
    aimed = []
    numbers = [2.0, 2.0, 0.5, -0.0, 0.0, 0.0, float("nan"), float("inf"), 1e-3, 0.25]
    for rate_now in numbers:
        for share_now in (1.5, rate_now):
            got = plan.run([*args, rate_now, share_now])
            product = args[0] @ args[1]
            with np.errstate(all="ignore"):
                want = [product * rate_now + share_now, args[1] * share_now - rate_now]
            same(got, want)
            assert (np.signbit(got[1]) == np.signbit(want[1]))[~np.isnan(want[1])].all()
            if plan._instances[-1].program is not None:
                aimed.append([id(found) for row in rows_of(plan) for found in row._steps])
    assert all(each == aimed[-1] for each in aimed[2:])


@pytest.mark.parametrize("change", ["transposed", "strided", "read-only"])
def test_operands_that_lie_otherwise_from_run_to_run(change):
    graph = network()
    plan = compile_plan(graph, threads=1)
    for seed in range(8):
        args = drawn(seed)
        if seed % 2:
            first = args[0]
            args[0] = {
                "transposed": np.asfortranarray(first),
                "strided": np.repeat(first, 2, axis=1)[:, ::2],
                "read-only": first,
            }[change]
            args[0].flags.writeable = change != "read-only"
        want = graph(*args)
        same(plan.run(args), want)


def test_instances_of_one_plan_run_in_threads():
    graph = network()
    plan = compile_plan(graph, threads=1)
    wrong, together = [], threading.Barrier(3)

    def work(seed):
        args = drawn(seed)
        want = graph(*args)
        together.wait(60)
        for _ in range(20):
            got = plan.run(args)
            if not all(np.allclose(left, right, rtol=2e-4, atol=2e-4) for left, right in zip(got, want, strict=True)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def regression():
    """A step of gradient descent: two products with one matrix, sums, numbers that come and go as arrays."""
    x, w, y = array((4100, 400), "x"), array((400,), "w"), array((4100,), "y")
    b, rate = array((), "b"), param(Aval((), np.dtype(float), weak=True), "rate")
    wrong = apply("tanh", x @ w + b) - y
    slope = apply("transpose", x, axes=(1, 0)) @ wrong
    total = apply("sum", wrong, axis=None, keepdims=False, dtype=None)
    return Graph([x, w, y, b, rate], [w - rate * slope, b - rate * total, total])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_of_gradient_descent_is_one_row(threads):
    plan = compile_plan(regression(), threads=threads, donate={0: 1})
    assert any(each.node.op == "row_products" for each in plan.instructions)
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((4100, 400), dtype=F4), rng.standard_normal(4100, dtype=F4)
    w, b = np.zeros(400, F4), np.zeros((), F4)
    true_w, true_b = w.astype(float), 0.0
    for run in range(12):
        rate = 1e-4 * (1 + run % 3)
        if run == 6:
            x, y = x.copy(), y.copy()  # arrays that move
        wrong = np.tanh(x @ true_w + true_b) - y
        true_w, true_b = true_w - rate * (x.T @ wrong), true_b - rate * wrong.sum()
        w, b, total = plan.run([x, w, y, b, rate])
        np.testing.assert_allclose(total, wrong.sum(), rtol=1e-3, atol=1e-2)
        np.testing.assert_allclose(w, true_w, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(b, true_b, rtol=1e-3, atol=1e-5)
        assert (b.shape, b.dtype) == ((), F4)
        assert not np.shares_memory(b, total)
    [row] = rows_of(plan)
    assert not row._called
    assert len(row._rows) == 1


def seen_otherwise():
    """Views of an argument that only steps read, one of which is a copy where the argument does not lie in order."""
    x, w = array((24, 64), "x"), array((48, 80), "w")
    pairs = apply("transpose", apply("reshape", x, shape=(24, 32, 2)), axes=(0, 2, 1))
    turned = apply("reshape", pairs, shape=(48, 32))
    rows = apply("reshape", x, shape=(48, 32))
    return Graph([x, w], [apply("transpose", rows, axes=(1, 0)) @ w, apply("transpose", turned, axes=(1, 0)) @ w])


@pytest.mark.parametrize("change", ["none", "moved", "strided"])
def test_views_of_arguments_are_seen_to_when_a_row_is_aimed(change):
    graph = seen_otherwise()
    plan = compile_plan(graph, threads=1)
    rng = np.random.default_rng(11)
    x, w = rng.standard_normal((24, 64), dtype=F4), rng.standard_normal((48, 80), dtype=F4)
    for run in range(8):
        if change != "none" and run % 3 == 2:
            x = np.asfortranarray(x) if change == "strided" and run == 2 else np.array(x, order="C")
        x[...] = rng.standard_normal(x.shape)  # other elements in the same place
        same(plan.run([x, w]), graph(x, w))


def test_what_is_copied_of_an_argument_anyway_is_copied_once_and_rows_are_played():
    """A turned argument in another shape is memory of the plan: steps read it where it always lies."""
    graph = seen_otherwise()
    plan = compile_plan(graph, threads=1)
    rng = np.random.default_rng(12)
    x, w = rng.standard_normal((24, 64), dtype=F4), rng.standard_normal((48, 80), dtype=F4)
    for _ in range(4):
        x[...] = rng.standard_normal(x.shape)
        same(plan.run([x, w]), graph(x, w))
    assert not any(row._called for row in rows_of(plan))
    [copy] = [each for each in plan.instructions if each.node.op == "reshape" and each.kernel.into]
    assert copy.node.shape == (48, 32)


def five_points():
    """Views of an argument and a result of the run's own, in one region."""
    u = array((40, 50), "u")
    places = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
    views = [(("index", (("s", i, i + 38, None), ("s", j, j + 48, None))),) for i, j in places]
    middle, *around = (apply("load", u, chain=chain) for chain in views)
    return Graph([u], [middle + 0.25 * (around[0] + around[1] + around[2] + around[3] - 4.0 * middle)])


def in_two_ways():
    """Regions that write into a result of their own, and one that is written over the first argument, if it may."""
    x, y = array((64, 80), "x"), array((64, 80), "y")
    return Graph([x, y], [x * 2.0 + y * y, x - y * 0.5])


def part_of(node, low, high, axis):
    entries = (*(("s", None, None, None),) * axis, ("s", low, high, None))
    return apply("load", node, chain=(("index", entries),))


def in_blocks():
    """An array of four blocks, each of views of both arguments."""
    x, y = array((300, 260), "x"), array((300, 260), "y")
    down = apply("concatenate", part_of(x, 299, None, 0), part_of(x, 0, 299, 0), axis=0)
    left = apply("concatenate", part_of(y, 3, None, 1), part_of(y, 0, 3, 1), axis=1)
    return Graph([x, y], [down * left + x])


@pytest.fixture
def aimed(monkeypatch):
    """How often regions were aimed."""
    found, aim = [], _BoundLoop.aim
    monkeypatch.setattr(_BoundLoop, "aim", lambda *args: found.append(1) or aim(*args))
    return found


@pytest.mark.parametrize(
    ("graph", "donate"), [(five_points, {}), (in_two_ways, {}), (in_two_ways, {1: 0}), (in_blocks, {})]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_arrays_may_move(graph, donate, threads):
    """Regions follow arguments and fresh results; what is written over an argument is aimed, or copied there."""
    graph = graph()
    plan = compile_plan(graph, threads=threads, donate=donate)
    rng = np.random.default_rng(17)
    shape = graph.params[0].shape
    ways = {
        "dense": np.array, "transposed": np.asfortranarray, "rows with gaps": lambda a: np.pad(a, 3)[3:-3, 3:-3],
        "columns with gaps": lambda a: np.repeat(a, 2, axis=1)[:, ::2], "upside down": lambda a: a[::-1].copy()[::-1],
        "between lines": lambda a: np.concatenate([[0], a.ravel()]).astype(F4)[1:].reshape(a.shape),
        "misaligned": misaligned,
    }  # fmt: skip
    held = []
    for name in [*["dense"] * 6, "one twice", *ways, "dense", "one twice", *["dense"] * 3]:
        args = [ways.get(name, np.array)(rng.standard_normal(shape).astype(F4)) for _ in graph.params]
        args = args[:1] * len(args) if name == "one twice" else args  # which nothing is written over
        want = graph(*(each.copy() for each in args))
        got = plan.run(args)
        for left, right in zip(got, want, strict=True):
            np.testing.assert_array_equal(left, right)
        held += zip(got, [each.copy() for each in got], strict=True)
    assert all((left == right).all() for left, right in held)  # nothing was written there later


def test_products_follow_their_operands(monkeypatch):
    """As in a step of training, whose parameters are other arrays each time."""
    x, w, b = array((64, 96), "x"), array((96, 96), "w"), array((96,), "b")
    graph = Graph([x, w, b], [apply("maximum", x @ w + b, 0.0) @ w])
    plan = compile_plan(graph, threads=1)
    rng = np.random.default_rng(5)
    made, aim, held = [], gemm.BoundProduct.aim, []
    monkeypatch.setattr(gemm.BoundProduct, "aim", lambda *args: made.append(1) or aim(*args))
    for run in range(10):
        args = [rng.standard_normal(each.shape).astype(F4) for each in graph.params]
        held.append((args, plan.run(args)[0]))
        if run == 4:
            assert made
            made.clear()
    assert not made
    columns = [held[0][0][0], np.asfortranarray(held[0][0][1]), held[0][0][2]]
    held.append((columns, plan.run(columns)[0]))
    for (x, w, b), got in held:
        np.testing.assert_allclose(got, np.maximum(x @ w + b, 0) @ w, rtol=1e-3, atol=1e-3)


def test_what_is_followed_is_not_aimed_again(aimed):
    for graph in (five_points(), in_two_ways(), in_blocks()):
        plan = compile_plan(graph, threads=1)
        rng = np.random.default_rng(2)
        held = []
        for run in range(12):
            args = [rng.standard_normal(each.shape).astype(F4) for each in graph.params]
            held.append((args, plan.run(args)))
            if run == 5:
                assert aimed
                aimed.clear()
        assert not aimed
        names = plan._instances[-1].program.__code__.co_names
        assert not [name for name in names if name[0] == "k" and name[1:].isdigit()]  # no views are made in Python
        for args, got in held:
            for left, right in zip(got, graph(*args), strict=True):
                np.testing.assert_array_equal(left, right)


def misaligned(values):
    """The same numbers, one byte behind where they should begin."""
    room = np.zeros(values.nbytes + 1, np.uint8)
    out = np.ndarray(values.shape, values.dtype, room.data, 1)
    out[...] = values
    return out


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_a_label_that_names_no_class_raises_what_numpy_does(dtype):
    x, y, w = array((128, 256), "x"), param(Aval((128,), np.dtype(dtype)), "y"), array((256, 10), "w")
    plan = compile_plan(Graph([x, y, w], [apply("softmax_cross_entropy", x @ w, y)]), threads=1)
    rng = np.random.default_rng(1)
    inputs, labels = rng.standard_normal((128, 256), dtype=F4), rng.integers(0, 10, 128).astype(dtype)
    weights = np.zeros((256, 10), F4)
    for _ in range(4):
        plan.run([inputs, labels, weights])
    assert any(isinstance(part.bound, BoundLabels) for row in rows_of(plan) for part in row._parts)
    for wrong in (10, -1, np.iinfo(dtype).max, np.iinfo(dtype).min):
        bad = labels.copy()
        bad[77] = wrong
        with pytest.raises(IndexError, match="do not name the 10 classes") as caught:
            plan.run([inputs, bad, weights])
        assert any("in checked_labels(" in note for note in caught.value.__notes__)
        [got] = plan.run([inputs, labels, weights])
        np.testing.assert_allclose(got, np.log(10), rtol=1e-5)


class Failing:
    """Claims an op with a kernel whose only step gives a status, or whose call raises."""

    name = "failing"

    def __init__(self, op, bound):
        self.op, self.bound = op, bound

    def claim(self, node, threads):
        if node.op != self.op:
            return None

        def call(out, *args):
            if self.bound is None:
                raise ArithmeticError("no")
            return np.copyto(out, node.record.run(args, node.attrs))

        return Kernel(call, self.name, into=True, bind=lambda _: self)

    def aim(self, out, *inputs):
        return self.bound


def test_the_instruction_that_fails_is_named():
    from futurex.kernels.backends import default_backends

    x = array((64, 96), "x")
    graph = Graph([x], [apply("tanh", apply("tanh", apply("exp", x)))])
    copy = steps._libc()[0]  # its result, an address, is not zero
    word = np.zeros(2, np.int64)
    failing = (copy, word.ctypes.data, word.ctypes.data + 8, 8, 0, 1)
    for bound, error in (([failing], StepFailed), (None, ArithmeticError)):
        backend = Failing("tanh", None)
        plan = compile_plan(graph, backends=(backend, *default_backends()), optimised=True)
        backend.bound = []
        plan.run([np.ones((64, 96), F4)])
        backend.bound = bound
        with pytest.raises(error) as caught:
            plan.run([np.ones((64, 96), F4)])
        assert any("in tanh(float32[64,96])" in note for note in caught.value.__notes__)


def test_steps_are_made_in_order():
    words = np.arange(4, dtype=np.int64)
    at = words.ctypes.data
    Row([copying(at, at + 24, 8), clearing(at + 24, 8), copying(at + 8, at, 8)]).run()
    assert words.tolist() == [3, 3, 2, 0]


def test_a_row_that_is_not_armed_looks_and_does_nothing():
    words = np.arange(2, dtype=np.int64)
    at, value = words.ctypes.data, np.ones(3)
    watch = Watch(1)
    row = Row([copying(at, at + 8, 8)], watch)
    watch.note(0, value, number=False, copied=False)
    row.arm(False)
    assert row.play(value) is False
    assert (words[0], watch.moved()) == (0, [])
    row.arm(True)
    assert row.play(np.ones(3)) is False
    assert (words[0], watch.moved()) == (0, [0])
    assert row.play(value) is True
    assert words[0] == 1


def test_a_step_that_failed_is_told_by_the_next_look():
    copy, words = steps._libc()[0], np.zeros(2, np.int64)
    row = Row([(copy, words.ctypes.data, words.ctypes.data + 8, 8, 0, 1)])
    assert row.play() is False
    with pytest.raises(StepFailed):
        row.run()


def test_other_threads_run_while_a_row_does():
    """A step that waits for another thread of Python ends, and does not fail after its deadline."""
    library, word = ctypes.CDLL(None), (ctypes.c_int64 * 8)()
    library.sem_init(word, 0, 0)
    until = (ctypes.c_int64 * 2)(int(time.time()) + 60, 0)
    wait = ctypes.cast(library.sem_timedwait, ctypes.c_void_p).value
    row = Row([(wait, ctypes.addressof(word), ctypes.addressof(until), 0, 0, 1)])
    other = threading.Timer(0.05, lambda: library.sem_post(word))
    other.start()
    row.run()
    other.join(60)


class Refusing:
    """Aims at what it has seen before."""

    def aim(self, out, source):
        if source[0] < 0:
            raise ArithmeticError("no")
        return [copying(out.ctypes.data, source.ctypes.data, 8)]


def test_after_an_aim_that_failed_all_are_aimed_anew():
    """Arrays that lie where they lay before are no reason to go on with what was aimed halfway."""
    out, ones, minus = np.zeros(1), np.ones(1), -np.ones(1)
    parts = [Part(Refusing(), None, (Operand(None, out),), (Operand(0),), several=False)]
    row = Together(parts, 1, [])
    assert row.play(ones) is False
    row(ones)
    assert (row.play(ones), out[0]) == (True, 1.0)
    with pytest.raises(ArithmeticError):
        row(minus)
    assert row.play(ones) is False
    out[0] = 0.0
    row(ones)
    assert (row.play(ones), out[0]) == (True, 1.0)


def test_workspaces_are_as_large_as_the_neediest_wants():
    workspace = Workspace()
    assert workspace.take(100) == workspace.take(10)
    assert workspace.take(1000) % 64 == 0


NO_OPENMP = """
import os, threading
import numpy as np, futurex as fx
def loss(w, x):
    h = fx.nn.relu(fx.nn.conv(x, w["a"], padding="same"))
    return (fx.nn.avg_pool(h, 2).reshape(len(x), -1) @ w["b"]).sum()
slopes = fx.futurize(fx.grad(loss))
x, w = np.ones((32, 28, 28, 16), np.float32), {"a": np.ones((3, 3, 16, 32), np.float32)}
w["b"] = np.ones((14 * 14 * 32, 128), np.float32)
plan = slopes.trace(w, x).plan
assert plan.threads == 2 and {"conv", "conv_weight_grad", "matmul"} <= {
    each.node.op for each in plan.instructions if each.kernel.backend == "onednn"}
for _ in range(3):
    slopes(w, x)["a"].result()
print(len(os.listdir("/proc/self/task")) - threading.active_count())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts the threads in /proc")
@pytest.mark.skipif("onednn" not in {each.name for each in default_backends()}, reason="nothing else brings threads")
def test_primitives_bring_no_threads_of_their_own():
    """Those of the team, which Python knows, are all that run kernels."""
    environment = {
        **os.environ, "FUTUREX_THREADS": "2", "OPENBLAS_NUM_THREADS": "1", "FUTUREX_COMPILE": "wait",
        "FUTUREX_BACKENDS": "onednn,blas,numba,loops,numpy",
    }  # fmt: skip
    command = [sys.executable, "-c", NO_OPENMP]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "0\n", done.stderr


def test_a_number_that_goes_around_is_where_it_was():
    """A result of one element that is the next run's argument is followed: nothing is aimed anew."""
    import futurex as fx

    def loss(w, b, x, y):
        z = x @ w + b
        return (np.logaddexp(np.float32(0), z) - z * y).mean()

    @fx.futurize(donate="w")
    def step(w, b, x, y):
        dw, db = fx.grad(loss, argnums=(0, 1))(w, b, x, y)
        return w - np.float32(0.1) * dw, b - np.float32(0.1) * db

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((1000, 200)).astype(F4), rng.integers(0, 2, 1000).astype(F4)
    w, b = np.zeros(200, F4), np.zeros((), F4)
    for _ in range(8):
        w, b = step(w, b, x, y)
        w.result(), b.result()
    rows = rows_of(step._lane.variant.plan)
    assert rows
    for row in rows:
        row._aim = None
    for _ in range(3):
        w, b = step(w, b, x, y)
        w.result(), b.result()
