"""Results that go past the caches: the same bits, wherever they lie and whatever a row's length is."""

import re

import numpy as np
import pytest
from compare import bits

import futurex as fx
from futurex.kernels.addresses import address_of
from futurex.kernels.numba_ import NumbaBackend, nearest, past
from futurex.kernels.numba_.emit import PIECE
from futurex.kernels.numba_.pairwise import AHEAD, LINE
from futurex.tree import Aval, Graph, apply, param

F4, F8 = np.dtype("f4"), np.dtype("f8")

pytestmark = pytest.mark.usefixtures("compiled_at_once")


def p(shape, dtype, name):
    return param(Aval(shape, np.dtype(dtype)), name)


def _line(shape, dtype):
    x, y = p(shape, dtype, "x"), p(shape[-1:], dtype, "y")
    return Graph([x, y], [x * y + 1.5, apply("greater", x, y)])


def _column(shape, dtype):
    x, y = p(shape, dtype, "x"), p((shape[0], 1), dtype, "y")
    return Graph([x, y], [apply("exp", x) - y])


def _softmax(shape, dtype):
    x = p(shape, dtype, "x")
    h = apply("exp", x - apply("max", x, axis=(1,), keepdims=True))
    total = apply("sum", h, axis=(1,), keepdims=True, dtype=None)
    return Graph([x], [h / total, total])


def _halves(shape, dtype):
    x = p(shape, "f2", "x")
    return Graph([x], [x + x * x])


def placed(shape, dtype, offset):
    """Room for an array so many bytes behind the beginning of a line."""
    nbytes = int(np.prod(shape)) * dtype.itemsize
    whole = np.full(nbytes + 128, 77, np.uint8)
    first = -address_of(whole) % 64 + offset
    return whole[first : first + nbytes].view(dtype).reshape(shape), whole, first


def run(graph, inputs, threads, offset):
    op = "fused_reduction" if any(node.op == "sum" for node in graph.nodes) else "fused"
    kernel = NumbaBackend().claim(apply(op, *(param(each.aval) for each in graph.params), graph=graph), threads)
    room = [placed(out.shape, out.dtype, offset) for out in graph.outs]
    outs = [array for array, _, _ in room]
    kernel.call(tuple(outs) if len(outs) > 1 else outs[0], *inputs)
    assert kernel.late.interpreted == 0
    for array, whole, first in room:  # nothing before, nothing behind
        assert (whole[:first] == 77).all()
        assert (whole[first + array.nbytes :] == 77).all()
    return outs


@pytest.mark.parametrize("make", [_line, _column, _softmax, _halves], ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("shape", [(40, 1024), (9, 5000), (64, 1027)], ids=str)
@pytest.mark.parametrize(("dtype", "threads", "offset"), [("f4", 1, 0), ("f4", 2, 16), ("f8", 3, 0), ("f8", 2, 8)])
def test_the_same_bits_past_the_caches(make, shape, dtype, threads, offset, monkeypatch):
    graph = make(shape, dtype)
    rng = np.random.default_rng(3)
    inputs = [rng.normal(size=node.shape).astype(node.dtype) for node in graph.params]
    monkeypatch.setattr(past, "last_cache", lambda: 1 << 62)
    kept = run(graph, inputs, threads, offset)
    monkeypatch.setattr(past, "last_cache", lambda: 1)
    sent = run(graph, inputs, threads, offset)
    for one, other in zip(kept, sent, strict=True):
        assert bits(one) == bits(other)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize(("columns", "offset"), [(3, 0), (17, 8), (63, 40)])
def test_blocks_of_short_rows(columns, offset, dtype, monkeypatch):
    graph = _line((20000 // columns, columns), dtype)
    inputs = [(np.random.default_rng(5).normal(size=node.shape) * 50).astype(dtype) for node in graph.params]
    monkeypatch.setattr(past, "last_cache", lambda: 1 << 62)
    kept = run(graph, inputs, 2, offset)
    monkeypatch.setattr(past, "last_cache", lambda: 1)
    assert "!nontemporal" in NumbaBackend().claim(apply("fused", *graph.params, graph=graph), 2).call.text
    for one, other in zip(kept, run(graph, inputs, 2, offset), strict=True):
        assert bits(one) == bits(other)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize(("columns", "offset"), [(1300, 0), (1299, 8), (1026, 16), (1155, 40)])
def test_rows_that_begin_within_a_line(columns, offset, dtype, monkeypatch):
    """Of a stencil's result none begins where another one does; what lies beside the whole lines is stored once."""
    u = p((37, columns), dtype, "u")
    cuts = [((0, -2), (1, -1)), ((2, None), (1, -1)), ((1, -1), (0, -2)), ((1, -1), (2, None))]
    views = [apply("load", u, chain=(("index", tuple(("s", *cut, None) for cut in each)),)) for each in cuts]
    above, below, left, right = inner = [p(view.shape, dtype, f"a{k}") for k, view in enumerate(views)]
    graph = Graph(inner, [(above + below) * (left - right), left - below])
    x = (np.random.default_rng(4).normal(size=u.shape) * 50).astype(dtype)
    given = [x[tuple(slice(*cut) for cut in each)] for each in cuts]
    monkeypatch.setattr(past, "last_cache", lambda: 1)
    kernel = NumbaBackend().claim(apply("fused", *views, graph=graph), 2)
    room = [placed(out.shape, np.dtype(dtype), offset) for out in graph.outs]
    kernel.call(tuple(array for array, _, _ in room), *given)
    assert kernel.late.interpreted == 0
    wanted = (given[0] + given[1]) * (given[2] - given[3]), given[2] - given[1]
    for (array, whole, first), want in zip(room, wanted, strict=True):
        assert bits(array) == bits(want)
        assert (whole[:first] == 77).all()
        assert (whole[first + array.nbytes :] == 77).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [65536 + 37, 70000])
def test_threads_share_whole_pieces_of_one_long_row(size, threads, monkeypatch):
    monkeypatch.setattr(past, "last_cache", lambda: 1)
    x = p((size,), "f8", "x")
    graph = Graph([x], [x * 3.0 - 1.0])
    values = np.random.default_rng(0).normal(size=size)
    (found,) = run(graph, [values], threads, 0)
    assert bits(found) == bits(values * 3.0 - 1.0)


def test_a_result_in_the_memory_of_an_operand(monkeypatch):
    monkeypatch.setattr(past, "last_cache", lambda: 1)
    x, y = p((100, 1024), "f4", "x"), p((100, 1024), "f4", "y")
    graph = Graph([x, y], [x - y * 0.5])
    node = apply("fused", param(x.aval), param(y.aval), graph=graph)
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(100, 1024)).astype("f4") for _ in range(2))
    want = a - b * np.float32(0.5)
    NumbaBackend().claim(node, 2).call(a, a, b)
    assert bits(a) == bits(want)


def test_no_more_of_the_last_cache_is_counted_on_than_one_program_gets(monkeypatch, tmp_path):
    size = tmp_path / "size"
    monkeypatch.setattr(past, "_LAST_CACHE", size)
    monkeypatch.setattr(past, "told_cache", past.told_cache.__wrapped__)
    assert past.last_cache.__wrapped__() > 1 << 50  # the system does not say
    for said, processors, counted in (
        ("8192K\n", 1, 8), ("32768K\n", 2, 32), ("266240K\n", 2, 8), ("266240K\n", 5, 20), ("266240K\n", 64, 32)
    ):  # fmt: skip
        size.write_text(said)
        monkeypatch.setattr(past, "_processors", lambda count=processors: count)
        assert past.last_cache.__wrapped__() == counted << 20


def test_only_what_outgrows_the_last_cache(monkeypatch):
    monkeypatch.setattr(past, "last_cache", lambda: 4096)
    assert past.spills([p((1024,), "f4", "x")])
    assert not past.spills([p((1023,), "f4", "x")])


def test_narrow_rows_go_past_the_caches_if_they_are_whole_pieces(monkeypatch):
    monkeypatch.setattr(past, "last_cache", lambda: 1)
    for columns, sent in ((PIECE, True), (2 * PIECE, True), (PIECE + 16, False), (1024 + 16, True)):
        x, scale = p((300, columns), "f4", "x"), p((columns,), "f4", "scale")
        graph = Graph([x, scale], [x * scale])
        node = apply("fused", param(x.aval), param(scale.aval), graph=graph)
        assert ("!nontemporal" in NumbaBackend().claim(node, 1).call.text) is sent
        given = [np.random.default_rng(6).normal(size=node.shape).astype("f4") for node in (x, scale)]
        for threads, offset in ((1, 0), (3, 16)):
            (found,) = run(graph, given, threads, offset)
            assert bits(found) == bits(given[0] * given[1])


def asked_by(kernel):
    """How many bytes ahead each line is that a kernel asks for."""
    lines = kernel.call.text.splitlines()
    asked = [lines[k - 1] for k, line in enumerate(lines) if "call void @llvm.prefetch" in line]
    return [int(re.search(r"i64 (\d+)$", line).group(1)) for line in asked]


def test_of_views_with_gaps_one_is_asked_for(monkeypatch):
    monkeypatch.setattr(past, "last_cache", lambda: 1)
    made = []

    def claimed(self, node, threads, claim=NumbaBackend.claim):
        made.append(claim(self, node, threads))
        return made[-1]

    monkeypatch.setattr(NumbaBackend, "claim", claimed)
    u = np.random.default_rng(0).normal(size=(300, 2000)).astype("f4")

    def stencil(u):
        return 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])

    assert bits(np.asarray(fx.futurize(stencil)(u))) == bits(stencil(u))
    (kernel,) = (each for each in made if each is not None and hasattr(each.call, "program"))
    assert len(asked_by(kernel)) == PIECE * F4.itemsize // LINE


@pytest.mark.parametrize("operands", [1, 2, 4])
def test_what_is_asked_for_ahead_stays_in_the_nearest_cache(operands, monkeypatch):
    """However many operands there are, it is as much together."""
    monkeypatch.setattr(past, "last_cache", lambda: 1)
    params = [p((1 << 16,), F4, f"x{k}") for k in range(operands)]
    graph = Graph(params, [sum(params[1:], params[0] * 2.0)])
    kernel = NumbaBackend().claim(apply("fused", *(param(each.aval) for each in params), graph=graph), 1)
    distances = asked_by(kernel)
    assert len(distances) == operands * PIECE * F4.itemsize // LINE
    most = AHEAD // (1 + nearest.small())
    assert operands * min(distances) <= most < operands * (min(distances) + LINE)



@pytest.mark.parametrize(("shape", "axis"), [
    ((520, 1024), (0,)), ((9, 61, 1030), (1,)), ((20001, 33), (0,)), ((5003, 125), (0,)), ((7, 301, 48), (1,)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_columns_of_memory_that_streams_by(shape, axis, dtype, monkeypatch):
    x = p(shape, dtype, "x")
    graph = Graph([x], [apply("sum", x, axis=axis, keepdims=False, dtype=None)])
    values = (np.random.default_rng(2).normal(size=shape) * 9).astype(dtype)
    for threads, last_cache in ((1, 1 << 62), (3, 1 << 62), (3, 1)):
        monkeypatch.setattr(past, "last_cache", lambda size=last_cache: size)
        (found,) = run(graph, [values], threads, 0)
        assert bits(found) == bits(values.sum(axis=axis))
