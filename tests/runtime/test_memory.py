"""The memory plan: what is alive at once never overlaps, and the prediction is what a run uses."""

import gc
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_graphs import F8, ROWS, graphs, inputs, matrix

import futurex as fx
from futurex.kernels.numpy_ import NumpyBackend
from futurex.runtime.arenas import ALIGNMENT, HUGE_PAGE, allocate
from futurex.runtime.memory import packed
from futurex.runtime.plan import compile_plan
from futurex.runtime.shadows import shadow
from futurex.tree import Aval, Graph, apply, param

NUMPY = (NumpyBackend(),)
lives = st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(st.tuples(st.integers(1, 9), lives), max_size=20))
def test_values_alive_at_once_do_not_overlap(values):
    sizes = [64 * size for size, _ in values]
    spans = [span for _, span in values]
    offsets = packed(sizes, spans)
    for j in range(len(values)):
        for k in range(j):
            alive_together = spans[j][0] <= spans[k][1] and spans[k][0] <= spans[j][1]
            apart = offsets[j] + sizes[j] <= offsets[k] or offsets[k] + sizes[k] <= offsets[j]
            assert apart or not alive_together
    at_once = [sum(s for s, (a, b) in zip(sizes, spans, strict=True) if a <= t <= b) for t in range(30)]
    total = max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)
    assert max(at_once) <= total <= sum(sizes)


def test_the_tightest_gap_is_taken():
    always, before, after = (0, 9), (0, 4), (5, 9)
    sizes = [512, 256, 192, 128, 64, 64]
    offsets = packed(sizes, [always, before, always, before, always, after])
    assert offsets == [0, 512, 768, 960, 1088, 960]  # the gap of 128 at 960, not that of 256 at 512


def test_what_is_kept_for_the_way_back_lies_in_layers():
    """Four arrays wait for their turn backwards while others come and go; the largest first, they would take 2816."""
    kept, passing = [512, 320, 320, 512], [384, 384, 320, 320, 512, 192, 448]
    spans = [(k, 7 - k) for k in range(4)] + [(k, k + 1) for k in range(7)]
    offsets = packed(kept + passing, spans)
    at_once = [sum(s for s, (a, b) in zip(kept + passing, spans, strict=True) if a <= t <= b) for t in range(8)]
    assert max(o + s for o, s in zip(offsets, kept + passing, strict=True)) == max(at_once) == 2496


@given(graphs())
def test_the_prediction_is_the_size_of_the_arena(graph):
    plan = compile_plan(graph, backends=NUMPY)
    instance, _ = plan.begin(inputs(), None)
    assert plan.memory.arena == (0 if instance.arena is None else instance.arena.nbytes)
    assert plan.memory.peak == sum(
        (plan.memory.arena, plan.memory.outputs, plan.memory.constants, plan.memory.unplanned, plan.memory.kernels)
    )


def test_a_chain_of_elementwise_operations_needs_no_arena():
    x = matrix("x")
    node = x
    for _ in range(10):
        node = apply("tanh", node + 1.0)
    plan = compile_plan(Graph([x], [node]), backends=NUMPY)
    assert plan.memory.arena == 0
    assert plan.memory.outputs == 72


def test_a_chain_of_products_takes_turns_in_two_buffers():
    x = matrix("x")
    node = x
    for _ in range(10):
        node = node @ x
    plan = compile_plan(Graph([x], [node + 1.0]), backends=NUMPY, optimised=True)
    assert plan.memory.arena == 2 * 128  # 72 bytes each, rounded up
    args = inputs(n_params=1)
    np.testing.assert_allclose(plan.run(args)[0], plan.graph(*args)[0])


def test_memory_is_filled_when_somebody_writes_to_it():
    x = matrix("x")
    filled = apply("full", 0.0, shape=(3, 3), dtype=F8)
    node = x
    for _ in range(4):
        node = node @ x
    written = apply("store", filled, apply("load", node, chain=ROWS), chain=ROWS, mode="add")
    plan = compile_plan(Graph([x], [written @ x]), backends=NUMPY, optimised=True)
    assert plan.memory.arena == 2 * 128
    args = inputs(n_params=1)
    np.testing.assert_allclose(plan.run(args)[0], plan.graph(*args)[0])


def test_large_arenas_start_on_huge_pages_and_small_ones_on_cache_lines():
    small, large = allocate(1000), allocate(HUGE_PAGE + 5)
    assert (small.nbytes, large.nbytes) == (1000, HUGE_PAGE + 5)
    assert small.ctypes.data % ALIGNMENT == 0
    assert large.ctypes.data % HUGE_PAGE == 0
    around = large.base
    assert around.ctypes.data + around.nbytes >= large.ctypes.data + 2 * HUGE_PAGE  # the second page is whole
    large[:] = 3
    assert large[-1] == 3


@given(graphs(max_nodes=20), st.booleans())
def test_planned_arrays_begin_on_cache_lines_and_lie_apart(graph, apart):
    """Kernels load whole vectors; with ``apart`` no two arrays share a byte, whenever they are in use."""
    plan = compile_plan(graph, backends=NUMPY, optimised=True, apart=apart)
    instance, _ = plan.begin(inputs(), None)
    offsets = plan.layout.offsets
    assert all(offset % ALIGNMENT == 0 for offset in offsets.values())
    if instance.arena is not None:
        assert instance.arena.ctypes.data % ALIGNMENT == 0
    ends = [offset + plan.low.slots[index].layout.nbytes for index, offset in offsets.items()]
    assert max(ends, default=0) <= plan.memory.arena < max(ends, default=0) + ALIGNMENT
    if apart:
        spans = sorted(zip(offsets.values(), ends, strict=True))
        assert not spans or spans[0][0] == 0
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_small_results_beside_large_ones_make_nobody_wait():
    """Large instructions would have to run after whoever reads a few bytes where they write."""
    x = param(Aval((300, 300), F8), "x")
    total = apply("sum", apply("matmul", x, x), axis=(0,), keepdims=True, dtype=None)
    few = apply("matmul", total, x)
    last = apply("sum", few, axis=None, keepdims=False, dtype=None)
    y = apply("matmul", x, apply("transpose", x, axes=(1, 0)))
    plan = compile_plan(Graph([x], [last, apply("matmul", y, x)]))
    made = {each.index for each in plan.instructions if each.node.op == "matmul" and each.node.shape == few.shape}
    ends = {each.index for each in plan.instructions if each.node.shape == ()}
    large = [each for each in plan.instructions if each.node.shape == x.shape]
    assert all(not (made | ends) & set(each.after) for each in large)
    value = np.random.default_rng(0).random((300, 300)) / 300
    found = plan.run([value])
    np.testing.assert_allclose(found[0], ((value @ value).sum(axis=0) @ value).sum(), rtol=1e-12)
    np.testing.assert_allclose(found[1], value @ value.T @ value, rtol=1e-12)


def test_a_part_of_an_array_is_written_into_the_array_itself():
    """The value is copied, which lies in the same memory; the array is not."""

    def f(a):
        u = a * 2
        u[0] = u[-1]
        u[:, 1:] = u[:, :-1]
        return u

    x = np.random.default_rng(4).standard_normal((40, 50))
    plan = fx.futurize(f).trace(x).plan
    assert plan.memory.arena == 0
    assert np.array_equal(plan.run([x])[0], f(x))


def test_a_plan_that_has_not_run_holds_no_memory():
    """Stand-ins made by an allocator would hold what was used before they came, as long as the plan lives."""
    x = np.ones((500, 1000))

    def chain(x):
        for _ in range(8):
            x = np.sort(np.sin(x) @ np.ones((1000, 1000)), axis=0)
        return x

    program = fx.lower(chain, x)
    gc.collect()
    tracemalloc.start()
    try:
        plan = compile_plan(program.graph)
        arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
        held = sum(each.size for each in tracemalloc.take_snapshot().filter_traces([arrays]).traces)
    finally:
        tracemalloc.stop()
    assert plan.layout.arena > x.nbytes
    assert held < x.nbytes / 10


def test_stand_ins_lie_where_they_lay_when_larger_ones_come():
    first = shadow((3, 4), np.dtype(np.float32))
    place = first.ctypes.data
    second = shadow((2000, 3000), np.dtype(float))
    assert first.ctypes.data == place
    assert (first.strides, first.flags.carray) == ((16, 4), True)
    assert (second.shape, second.strides, second.flags.carray) == ((2000, 3000), (24000, 8), True)
    assert not second.any()
    assert shadow((0, 5), np.dtype(bool)).shape == (0, 5)


def test_what_no_machine_has_room_for_is_numpys_error():
    with pytest.raises(MemoryError, match="Unable to allocate"):
        shadow((1 << 30, 1 << 30), np.dtype(np.int8))


def test_a_graph_run_by_numpy_holds_what_is_still_read():
    x = param(Aval((1 << 17,), F8), "x")
    y = x
    for k in range(10):
        y = apply("add", y, y) if k % 2 else apply("negative", y)
    graph, value = Graph([x], [y]), np.ones(1 << 17)
    tracemalloc.start()
    try:
        graph(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert value.nbytes <= peak < 2 * value.nbytes
