"""First calls take little memory, and how much is known before: NumPy computes regions some rows at a time, in place
where it can; copies of arguments and the room of LAPACK are counted."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import compiling
from futurex.kernels.interpreted import BLOCK, Interpreted, room_of
from futurex.passes.pipeline import optimise
from futurex.runtime.plan import compile_plan
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, evaluate
from futurex.tree.node import apply, param

RNG = np.random.default_rng(0)
LONG = RNG.random(1_000_000), RNG.random(1_000_000)
WIDE = RNG.random((1200, 1000)), RNG.random(1000)


def chain(x, y):
    return np.exp(-x) * np.sin(y) + np.sqrt(x * y)


def softmax(x, y):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def of_rows(x, y):
    return ((x - y) ** 2).sum(axis=1)


def of_columns(x, y):
    return (x * x - y).sum(axis=0)


def several(x, y):
    return np.where(x > 0.5, x * y, -x), x > 0.3


def of_all(x, y):
    return ((x - y) * np.exp(x)).sum()


CUT = {"chain": (chain, LONG), "broadcast": (chain, WIDE), "softmax": (softmax, WIDE), "rows": (of_rows, WIDE)}
CASES = CUT | {"columns": (of_columns, WIDE), "several": (several, WIDE), "all": (of_all, LONG)}


def regions(function, arguments):
    graph = optimise(fx.lower(function, *arguments).graph)
    return [node for node in graph.nodes if node.op in ("fused", "fused_reduction")]


def arrays_for(node):
    inputs = [RNG.random(each.shape).astype(each.dtype) for each in node.inputs]
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    return inputs, [np.empty(each.shape, each.dtype) for each in avals]


def peak_of(function, *args):
    tracemalloc.start()
    try:
        function(*args)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", CASES)
def test_a_region_is_numpys_to_the_bit_in_the_room_that_is_predicted(name):
    found = regions(*CASES[name])
    assert found
    for node in found:
        inputs, outs = arrays_for(node)
        numpy = Interpreted(node)
        assert numpy.room == room_of(node)
        peak = peak_of(numpy.run, outs, inputs, bool)
        whole = node.record.run(inputs, node.attrs)
        for one, other in zip(outs, whole if isinstance(whole, tuple) else (whole,), strict=True):
            assert one.tobytes() == np.asarray(other).tobytes()
        assert peak == pytest.approx(numpy.room, rel=0.05, abs=64_000 if name not in CUT else BLOCK // 4)
        if name in CUT:
            assert numpy.room <= 4 * BLOCK


def region(function, *shapes):
    params = [param(Aval(shape, np.dtype(float)), name) for shape, name in zip(shapes, "xyz", strict=False)]
    return apply("fused", *(param(each.aval) for each in params), graph=Graph(params, [function(*params)]))


@pytest.mark.parametrize("shape", [(), (500,), (1, 500)], ids=str)
def test_what_is_the_same_in_every_row_is_as_many_rows_as_the_others(shape):
    def spread(x, y):
        return apply("broadcast_to", y * 2.0, shape=x.shape) + x

    node = region(spread, (1200, 500), shape)
    x, y, out = RNG.random((1200, 500)), RNG.random(shape), np.empty((1200, 500))
    assert Interpreted(node).run([out], [x, np.asarray(y)], lambda: False)
    np.testing.assert_array_equal(out, y * 2 + x)


def test_first_calls_that_reduce_what_is_broadcast(nothing_is_compiled):
    @fx.futurize
    def f(x):
        wide = np.broadcast_to(x * 2, (90, x.size))
        return wide.max(axis=1), wide.var(axis=1)

    x = RNG.random(5000)
    for _ in range(2):
        for one, other in zip(f(x), f.plain(x), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shift", [0, 1, -1])
def test_results_may_lie_on_operands(shift):
    rows, columns = 1200, 500
    node = region(lambda x, y: apply("exp", x * y) + x, (rows, columns), (rows, columns))
    memory = RNG.random((rows + 2, columns))
    y, x, out = RNG.random((rows, columns)), memory[1 : rows + 1], memory[1 + shift : rows + 1 + shift]
    expected = np.exp(x * y) + x
    assert Interpreted(node).run([out], [x, y], lambda: False)
    np.testing.assert_array_equal(out, expected)


def test_a_region_ends_between_blocks_unless_it_has_written_over_what_it_reads():
    node = region(lambda x: apply("exp", x) + 1.0, (1200, 500))
    x = RNG.random((1200, 500))
    expected = np.exp(x) + 1.0
    asked = []
    assert not Interpreted(node).run([np.empty_like(x)], [x], lambda: asked.append(0) or len(asked) > 4)
    asked.clear()
    assert Interpreted(node).run([x], [x], lambda: asked.append(0) or len(asked) > 4)
    np.testing.assert_array_equal(x, expected)


def test_ufuncs_write_over_nothing_that_is_still_seen():
    """Through a view, as a result, or as the other operand."""
    x = param(Aval((40, 50), np.dtype(float)), "x")
    kept = apply("exp", x)
    seen = apply("reshape", kept, shape=(2000,))
    once = apply("sin", kept)
    twice = once * once
    outs = [apply("cos", seen), apply("negative", once) + kept, apply("sqrt", twice), twice + 1.0, twice, seen * 2.0]
    graph, given = Graph([x], outs), RNG.random((40, 50))
    values = {x: given}
    for node in graph.nodes[1:]:
        values[node] = evaluate(node, [values[source] for source in node.inputs])
    found = graph(given)
    for one, node in zip(found, outs, strict=True):
        np.testing.assert_array_equal(one, values[node])
    assert len({id(each) for each in found}) == len(found)


def test_ufuncs_write_over_what_nobody_reads_any_more(no_code):
    x = param(Aval((1000, 100), np.dtype(float)), "x")
    graph, given = Graph([x], [apply("exp", apply("sin", apply("negative", x)))]), RNG.random((1000, 100))
    assert graph.room() == given.nbytes
    assert peak_of(graph, given) == pytest.approx(given.nbytes, abs=10_000)


@pytest.fixture
def no_code(nothing_is_compiled):
    """LLVM is busy for as long as the test runs."""
    with compiling.working:
        yield


@pytest.mark.usefixtures("no_code")
@pytest.mark.parametrize("name", CASES)
def test_the_first_run_is_predicted(name):
    function, arguments = CASES[name]
    program = fx.lower(function, *arguments)
    plan = compile_plan(program.graph, background=True)
    inputs = program.flatten(*arguments)
    peak = peak_of(plan.run, inputs)
    assert plan.interpreted
    expected = plan.memory.first - plan.memory.constants - plan.layout.arena - plan.memory.kernels
    assert peak == pytest.approx(expected, rel=0.05, abs=BLOCK // 2)


@pytest.mark.usefixtures("no_code")
def test_what_numpy_takes_meanwhile_says_nothing_of_later_runs():
    program = fx.lower(chain, *LONG)
    plan = compile_plan(program.graph, background=True)
    estimate = plan.grain.seconds
    plan.run(program.flatten(*LONG))
    assert plan.interpreted
    assert plan.grain.seconds == estimate


def test_copies_of_arguments_are_counted_where_a_call_returns_before_its_run_is_over():
    x = np.ones((1500, 1500))
    assert fx.futurize(lambda x: x @ x @ x).memory(x).copies == x.nbytes
    assert fx.futurize(lambda x: x @ x @ x).memory(np.ones((10, 10))).copies == 0

    def printing(x):
        print("once")
        return x @ x @ x

    assert fx.futurize(printing).memory(x).copies == 0


def test_a_call_waits_for_a_region_that_takes_no_longer_than_copies():
    """A region is one trip through memory, however many operations it holds."""
    x = np.ones(4_000_000)
    found = fx.futurize(chain).memory(x, x)
    assert found.copies == 0
    assert found.first < found.peak + 4 * BLOCK


def test_what_a_first_call_takes_is_said():
    found = fx.futurize(lambda x: x @ x @ x).memory(np.ones((1500, 1500)))
    assert found.first == found.peak + found.copies + found.interpreted
    assert repr(found).endswith("; first call 54.0 MB = peak + copies 18.0 MB>")


OF_LAPACK = {
    "solve": "np.linalg.solve(x, x[:, :300])", "inv": "np.linalg.inv(x)", "det": "np.linalg.det(x)",
    "cholesky": "np.linalg.cholesky(x)", "eigh": "np.linalg.eigh(x)", "eigvalsh": "np.linalg.eigvalsh(x)",
    "svd": "np.linalg.svd(x[:, :500], full_matrices=False)", "qr": "np.linalg.qr(x)",
}  # fmt: skip
GROWTH = """
import ctypes, gc, sys
import numpy as np, futurex as fx

def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))

x = np.random.default_rng(0).random((1200, 1200))
x = x + x.T + 1200 * np.eye(1200)
function = lambda x: {call}
predicted = fx.futurize(function).memory(x).peak
function(x[:600, :600].copy())  # BLAS has its buffers now
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
function(x)
print(predicted, status("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("name", OF_LAPACK)
def test_what_lapack_works_in_is_counted(name):
    text = GROWTH.replace("{call}", OF_LAPACK[name])
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, check=True)
    predicted, grown = map(int, ended.stdout.split())
    assert predicted == pytest.approx(grown, rel=0.05, abs=4_000_000)
