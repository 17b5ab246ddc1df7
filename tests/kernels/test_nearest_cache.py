"""Where the nearest cache is small, or wide, kernels read memory in another way: the same bits, other requests."""

import itertools
import re

import numpy as np
import pytest
from compare import bits

from futurex.kernels.numba_ import NumbaBackend, compiler, moments, nearest, past, program, running
from futurex.kernels.numba_.columns import in_registers
from futurex.kernels.numba_.pairwise import AHEAD
from futurex.kernels.numba_.sweep import Sweep
from futurex.tree import Aval, Graph, apply, param

SHAPES = [(7, 512), (5, 1024), (3, 1027), (9, 300), (4, 4096), (130, 40)]

pytestmark = pytest.mark.usefixtures("compiled_at_once")


@pytest.fixture
def caches(monkeypatch):
    """Sets whether the nearest cache is small, how many bytes the last one has, and whether the nearest is wide."""

    def set_to(small, last, wide=False):
        running._text.cache_clear()  # a processor's caches are always the same
        program._reducing.cache_clear()
        monkeypatch.setattr(nearest, "small", lambda: small)
        monkeypatch.setattr(nearest, "wide", lambda: wide)
        monkeypatch.setattr(past, "last_cache", lambda: last)

    yield set_to
    running._text.cache_clear()


def p(shape, dtype, name="x"):
    return param(Aval(shape, np.dtype(dtype)), name)


def of_rows(shape, dtype):
    x = p(shape, dtype)
    total = apply("sum", x, axis=(1,), keepdims=True, dtype=None)
    return Graph([x], [total, apply("max", x, axis=(1,), keepdims=True)])


def variance(shape, dtype):
    x = p(shape, dtype)
    mean = apply("sum", x, axis=(1,), keepdims=True, dtype=None) / shape[1]
    apart = x - mean
    return Graph([x], [apply("sum", apart * apart, axis=(1,), keepdims=True, dtype=None), mean])


def of_columns(shape, dtype):
    x = p(shape, dtype)
    return Graph([x], [apply("sum", x, axis=(0,), keepdims=False, dtype=None), x * 2])


def normalised(shape, dtype):
    x = p(shape, dtype)
    apart = x - apply("free_sum", x, axis=(1,), keepdims=True) / shape[1]
    return Graph([x], [apart * apply("free_sum", apart * apart, axis=(1,), keepdims=True)])


def of_squares(shape, dtype):
    x = p(shape, dtype)
    return Graph([x], [apply("sum", x * x, axis=None, keepdims=False, dtype=None)])


def of_squares_of_rows(shape, dtype):
    x = p(shape, dtype)
    return Graph([x], [apply("sum", x * x, axis=(1,), keepdims=False, dtype=None)])


GRAPHS = [of_rows, variance, of_columns, normalised, of_squares, of_squares_of_rows]


def claimed(graph, threads):
    node = apply("fused_reduction", *(param(each.aval) for each in graph.params), graph=graph)
    return NumbaBackend().claim(node, threads)


def run(graph, inputs, threads):
    kernel = claimed(graph, threads)
    outs = [np.full(out.shape, 77, out.dtype) for out in graph.outs]
    kernel.call(tuple(outs) if len(outs) > 1 else outs[0], *inputs)
    assert kernel.late.interpreted == 0
    return outs


def requests(kernel):
    """How far the lines that a kernel asks for lie ahead, for each cache that they are asked into."""
    lines = kernel.call.text.splitlines()
    found = {3: set(), 2: set()}
    for before, line in itertools.pairwise(lines):
        asked = re.search(r"call void @llvm.prefetch.p0\(ptr \S+, i32 \d, i32 (\d), i32 1\)", line)
        if asked:
            found[int(asked[1])].add(re.search(r"i64 (\S+)$", before)[1])
    return found[3], found[2]


@pytest.mark.parametrize("make", GRAPHS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_same_bits_whatever_the_caches_are(make, dtype, caches, monkeypatch):
    monkeypatch.setattr("futurex.kernels.numba_.program.PARALLEL_BYTES", 0)
    for shape in SHAPES:
        graph = make(shape, dtype)
        inputs = [np.random.default_rng(5).normal(size=shape).astype(dtype)]
        caches(False, 1 << 62)
        usual = [bits(each) for each in run(graph, inputs, 1)]
        for small, last, threads in ((True, 1 << 62, 2), (True, 1, 1), (True, 1, 2), (True, 1, 3), (False, 1, 2)):
            caches(small, last)
            assert [bits(each) for each in run(graph, inputs, threads)] == usual, (shape, small, last, threads)
        for last in (1 << 62, 1):
            caches(False, last, wide=True)
            assert [bits(each) for each in run(graph, inputs, 2)] == usual, (shape, last)
        if make is not normalised:  # whose sums have an order of their own
            assert usual == [bits(np.asarray(each)) for each in graph(*inputs)]


@pytest.mark.parametrize("make", [variance, normalised, of_columns], ids=lambda each: each.__name__)
def test_memory_is_asked_for_into_the_second_cache(make, caches, monkeypatch):
    monkeypatch.setattr("futurex.kernels.numba_.program.PARALLEL_BYTES", 0)
    graph = make((64, 1024), "f4")
    caches(True, 1)
    near, far = requests(claimed(graph, 2))
    assert far
    if make is normalised:
        assert max(map(int, near)) < min(map(int, far))
    if make is of_columns:  # whole rows are foreseen
        assert not requests(claimed(graph, 1))[1]
    for small, last in ((False, 1), (True, 1 << 62)):
        caches(small, last)
        assert not requests(claimed(graph, 2))[1]


@pytest.mark.parametrize("make", [of_squares, of_squares_of_rows], ids=lambda each: each.__name__)
def test_sums_of_what_is_computed_ask_for_nothing_of_what_they_read_in_order(make, caches):
    graph = make((1024, 1024), "f4")
    for small, last in ((False, 1), (True, 1 << 62), (True, 1)):
        caches(small, last)
        of_leaves = re.search(r"@leaves0\(i64.*?\n}", claimed(graph, 1).call.text, re.DOTALL)[0]
        assert ("@llvm.prefetch" in of_leaves) is not (small and last == 1)


@pytest.mark.parametrize(("make", "distances"), [(of_rows, (8192, 12288)), (normalised, (2048, 5120))])
def test_a_wide_cache_is_asked_into_from_farther_away(make, distances, caches):
    graph = make((64, 1024), "f4")
    found = []
    for wide in (False, True):
        caches(False, 1 << 62, wide)
        found.append(requests(claimed(graph, 1)))
    assert not any(far for _, far in found)
    for distance, (near, _) in zip(distances, found, strict=True):
        assert distance in {int(each) for each in near if each.isdigit()}


def test_places_of_extremes_ask_for_nothing_where_the_cache_is_small(caches):
    node = apply("argmax", p((64, 1024), "f4"), axis=1, keepdims=False)
    for small in (False, True):
        caches(small, 1 << 62)
        assert ("@llvm.prefetch" in NumbaBackend().claim(node, 1).call.text) is not small


def test_running_sums_ask_into_the_second_cache_where_the_first_is_small(caches):
    node = apply("cumsum", p((64, 1024), "f4"), axis=1, dtype=None)
    for small in (False, True):
        caches(small, 1 << 62)
        text = NumbaBackend().claim(node, 1).call.text
        assert set(re.findall(r"prefetch.p0\(ptr \S+, i32 0, i32 (\d)", text)) == {"2" if small else "3"}
        assert ("<8 x float>" in text) >= small


def test_columns_ask_for_later_rows_into_a_wide_cache(caches):
    graph = of_columns((64, 1024), "f4")
    for wide in (False, True):
        caches(False, 1 << 62, wide)
        near, far = requests(claimed(graph, 1))
        assert (bool(near), bool(far)) == (wide, False)


def test_lines_to_be_written_are_asked_for_into_the_second_cache(caches):
    graph = normalised((64, 1024), "f4")
    for small, written in ((True, False), (False, True)):
        caches(small, 1 << 20)  # room for the result, and a little more than half of it used
        text = claimed(graph, 1).call.text
        assert "!nontemporal" not in text
        assert bool(re.search(r"prefetch.p0\(ptr \S+, i32 1,", text)) is written


@pytest.mark.parametrize(("columns", "sent"), [(16384, True), (16390, False)])
def test_long_rows_go_past_the_caches_line_by_line(columns, sent, caches):
    caches(True, 1)
    graph = normalised((3, columns), "f4")
    assert ("!nontemporal" in claimed(graph, 1).call.text) is sent


def test_short_rows_are_not_asked_for_into_the_second_cache(caches):
    caches(True, 1)
    assert requests(claimed(normalised((64, 256), "f4"), 1))[1]
    assert not requests(claimed(normalised((64, 128), "f4"), 1))[1]


def test_what_is_read_in_order_is_not_asked_for(caches):
    graph = of_rows((64, 1024), "f4")
    caches(True, 1 << 62)
    assert requests(claimed(graph, 1)) == (set(), set())
    caches(False, 1 << 62)
    assert requests(claimed(graph, 1))[0]


def test_elements_are_asked_for_half_as_far_ahead(caches):
    x, y, scale = p((4096, 128), "f4"), p((4096, 128), "f4", "y"), p((128,), "f4", "scale")
    for other, small, ahead in ((y, True, AHEAD // 4), (y, False, AHEAD // 2), (scale, False, AHEAD)):
        caches(small, 1)
        node = apply("fused", param(x.aval), param(other.aval), graph=Graph([x, other], [x * other]))
        near, far = requests(NumbaBackend().claim(node, 1))  # not for a row that all others share
        assert min(map(int, near)) == ahead
        assert not far


def test_more_totals_are_kept_in_registers(caches):
    x, y = p((4096, 256), "f4"), p((4096, 256), "f4", "y")
    graph = Graph([x, y], [apply("free_sum", each, axis=(0,), keepdims=False) for each in (x, x * y)])
    for small in (True, False):
        caches(small, 1 << 62)
        assert in_registers(Sweep(graph), 256) is small


def test_moments_of_columns_ask_for_later_rows(caches):
    for small in (True, False):
        caches(small, 1)
        moments._text.cache_clear()
        near, far = requests(NumbaBackend().claim(apply("moments", p((4096, 64), "f4")), 1))
        assert (bool(near), bool(far)) == (not small, small)
    moments._text.cache_clear()


def test_two_threads_do_not_share_narrow_rows_of_memory(caches):
    graph = of_columns((4096, 64), "f4")
    for small, last, tasks in ((True, 1, 1), (True, 1 << 62, 2), (False, 1, 2)):
        caches(small, last)
        assert claimed(graph, 2).call.program.numbers[0] == tasks
    caches(True, 1)
    assert claimed(graph, 4).call.program.numbers[0] == 4
    assert claimed(of_columns((4096, 1024), "f4"), 2).call.program.numbers[0] == 2


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(("name", "amd"), [("znver5", True), ("sapphirerapids", False), ("neoverse-v2", False)])
def test_a_wide_cache_is_one_of_amds_that_is_not_small(name, amd, small, monkeypatch):
    monkeypatch.setattr(nearest, "small", lambda: small)
    monkeypatch.setattr(compiler, "has_scale", lambda: True)
    monkeypatch.setattr(compiler, "_host", lambda: (name, ""))
    assert nearest.wide() is (amd and not small)


@pytest.mark.parametrize(("said", "small"), [("32K\n", True), ("48K\n", False), ("64K\n", False), ("?", False)])
def test_the_system_says_how_large_it_is(said, small, monkeypatch, tmp_path):
    monkeypatch.setattr(nearest, "_CACHE", tmp_path / "size")
    assert not nearest.small.__wrapped__()  # it does not
    (tmp_path / "size").write_text(said)
    assert nearest.small.__wrapped__() is small


def test_results_that_find_no_room_beside_what_is_read(monkeypatch):
    monkeypatch.setattr(past, "told_cache", lambda: 4096)
    monkeypatch.setattr(past, "last_cache", lambda: 4096)
    result = p((512,), "f4", "y")
    assert past.outgrows([result], [p((1024,), "f4")])
    assert not past.outgrows([result], [p((1023,), "f4")])
