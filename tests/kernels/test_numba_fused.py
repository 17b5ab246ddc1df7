"""Compiled regions give NumPy's bits: over dtypes, special values, broadcasting, sharing of buffers and threads."""

import math
import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels import store
from futurex.kernels.numba_ import NumbaBackend, compiler
from futurex.kernels.numba_.layout import collapse
from futurex.kernels.numba_.program import PARALLEL_BYTES
from futurex.ops import casts
from futurex.ops.fusion import CORRECTLY_ROUNDED, function_of, loop_of
from futurex.tree import Aval, Graph, apply, param, record
from futurex.tree.aval import aval_of

DTYPES = [np.dtype(code) for code in ("?", "i1", "u1", "i2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16")]
BACKEND = NumbaBackend()

pytestmark = pytest.mark.usefixtures("own_cache")


def special(dtype):
    """Values at which definitions differ."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = [0, 1, 2, 3, 5, 7, limits.max, limits.max - 1, limits.min, limits.min + 1]
        return np.array(values + ([-1, -2, -3, -7] if dtype.kind == "i" else []), dtype)
    tiny = np.finfo(dtype).smallest_subnormal
    if dtype.kind == "c":
        parts = np.array([0.0, -0.0, 1.0, -2.5, 1e30, np.inf, -np.inf, np.nan, tiny])
        real, imag = np.meshgrid(parts, parts)
        values = np.empty(real.size, dtype)
        values.real, values.imag = real.ravel(), imag.ravel()
        return values
    values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        np.inf,
        -np.inf,
        np.nan,
        tiny,
        -tiny,
        3e38,
        1e-30,
        0.1,
        1e7 + 0.5,
    ]
    return np.array(values, dtype)


def bits(array):
    """The bytes of an array, every NaN alike."""
    array = np.asarray(array)
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    if array.dtype.kind == "c":
        return bits(array.real) + bits(array.imag)
    return array.tobytes()


def region(params, outs):
    return Graph(params, outs, "region")


def run(graph, inputs, threads=1, outs=None):
    node = apply("fused", *(param(each.aval) for each in graph.params), graph=graph)
    kernel = BACKEND.claim(node, threads)
    assert kernel is not None
    assert kernel.into
    assert kernel.contiguous
    outs = outs or [np.full(out.shape, 77).astype(out.dtype) for out in graph.outs]
    kernel.call(tuple(outs) if len(outs) > 1 else outs[0], *inputs)
    return outs


def check(graph, inputs, threads=1):
    with np.errstate(all="ignore"):
        expected = graph(*inputs)
        actual = run(graph, inputs, threads)
    for each, other in zip(actual, expected, strict=True):
        assert each.dtype == np.asarray(other).dtype
        assert bits(each) == bits(np.broadcast_to(other, each.shape)), (str(graph), inputs, each, other)


UNARY = sorted(name for name in CORRECTLY_ROUNDED - {"cast", "where"} if record(name).kernel.nin == 1)
BINARY = sorted(name for name in CORRECTLY_ROUNDED - {"cast", "where"} if record(name).kernel.nin == 2)


def node_or_none(name, *inputs, **attrs):
    """The node, or None where NumPy has no such loop or a compiled one would differ from it."""
    try:
        node = apply(name, *inputs, **attrs)
    except (TypeError, OverflowError):
        return None
    return node if loop_of(node) is not None and function_of(node) in CORRECTLY_ROUNDED else None


@pytest.mark.parametrize("name", UNARY)
def test_unary_ops_on_special_values(name):
    tested = 0
    for dtype in DTYPES:
        x = param(Aval(special(dtype).shape, dtype))
        node = node_or_none(name, x)
        if node is not None:
            check(region([x], [node]), [special(dtype)])
            tested += 1
    assert tested


@pytest.mark.parametrize("name", BINARY)
def test_binary_ops_on_all_pairs_of_special_values(name):
    tested = 0
    for first in DTYPES:
        for second in {first, np.dtype("f4")}:
            a, b = special(first)[:, None], special(second)[None, :]
            x, y = param(aval_of(a)), param(aval_of(b))
            node = node_or_none(name, x, y)
            if node is not None:
                check(region([x, y], [node]), [np.ascontiguousarray(a), np.ascontiguousarray(b)])
                tested += 1
    assert tested


def test_casts_between_all_dtypes():
    for source in DTYPES:
        for target in DTYPES:
            x = param(Aval(special(source).shape, source))
            node = node_or_none("cast", x, dtype=target)
            unknown = source.kind == "f" and target.kind in "iu" and not casts.known(source, target)
            assert (node is None) == (unknown or source.kind + target.kind in ("ci", "cu", "cf"))
            if node is not None:
                check(region([x], [node]), [special(source)])


def test_where_takes_any_condition():
    for dtype in DTYPES:
        condition = special(dtype)
        c, x = param(aval_of(condition)), param(Aval(condition.shape, np.dtype("f4")))
        values = np.arange(condition.size, dtype="f4")
        check(region([c, x], [apply("where", c, x, -0.0)]), [condition, values])


@pytest.mark.parametrize("scalar", [2, -3, 0, 2.5, -0.0, 1e300, math.nan, True])
@pytest.mark.parametrize("known", [True, False])
def test_python_scalars_are_weak(scalar, known):
    for dtype in DTYPES:
        x, s = param(Aval(special(dtype).shape, dtype)), param(aval_of(scalar))
        for name in ("add", "multiply", "maximum", "divide", "less"):
            operand = scalar if known else s
            node = node_or_none(name, x, operand)
            if node is not None and not (dtype.kind == "u" and scalar == -3):
                params = [x] if known else [x, s]
                check(region(params, [node]), [special(dtype), scalar][: len(params)])


def test_an_int_that_does_not_fit_is_left_to_numpy():
    x = param(Aval((300,), np.dtype("u1")))
    assert loop_of(apply("less", x, 300)) is None
    assert loop_of(apply("less", x, 200)) is not None
    assert loop_of(apply("less", x, param(aval_of(5)))) is None


@st.composite
def regions(draw):
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    shape = shape if math.prod(shape) > 1 else (5,)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pool, params, values = [], [], []
    for number in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(DTYPES))
        keep = (
            [True] * len(shape)
            if number == 0
            else draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        )
        operand = tuple(extent if kept else 1 for extent, kept in zip(shape, keep, strict=True))
        operand = operand[draw(st.integers(0, len(operand))) if number and not any(keep) else 0 :]
        value = rng.choice(special(dtype), operand)
        node = param(aval_of(value))
        params.append(node)
        values.append(value)
        pool.append(node)
    if draw(st.booleans()):
        scalar = draw(st.sampled_from([2.5, 3, True, -0.0]))
        params.append(param(aval_of(scalar)))
        values.append(scalar)
        pool.append(params[-1])
    full = [params[0]]
    for _ in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from([*UNARY, *BINARY, *BINARY, "where", "cast"]))
        first = draw(st.sampled_from(full))
        if name == "cast":
            node = node_or_none(name, first, dtype=draw(st.sampled_from(DTYPES)))
        elif name == "where":
            node = node_or_none(name, first, draw(st.sampled_from(pool)), draw(st.sampled_from(pool)))
        elif name in UNARY:
            node = node_or_none(name, first)
        else:
            pair = [first, draw(st.sampled_from([*pool, 1, 0.1, 2]))]
            node = node_or_none(name, *(pair if draw(st.booleans()) else pair[::-1]))
        if node is not None and node.shape == shape and node not in full:
            full.append(node)
            pool.append(node)
    made = [node for node in full if node.inputs]
    if not made:
        made = [apply("equal", params[0], params[0])]
    outs = list(dict.fromkeys([made[-1], *draw(st.lists(st.sampled_from(made), max_size=2))]))
    graph = Graph(params, outs, "region")
    return graph, values


@settings(max_examples=150)
@given(regions())
def test_random_regions_give_numpys_bits(case):
    graph, values = case
    with np.errstate(all="ignore"):
        try:
            graph(*values)
        except OverflowError:
            return  # a Python int that does not fit: NumPy raises, and so does the kernel when it packs it
    check(graph, values)


def adam():
    shape = (40, 30)
    p, m, v, g = (param(Aval(shape, np.dtype("f4")), name) for name in "pmvg")
    lr = param(Aval((), np.dtype("f4")), "lr")
    m2 = 0.9 * m + 0.1 * g
    v2 = 0.999 * v + 0.001 * (g * g)
    graph = Graph([p, m, v, g, lr], [p - lr * m2 / (apply("sqrt", v2) + 1e-8), m2, v2], "adam")
    rng = np.random.default_rng(0)
    return graph, [*(np.abs(rng.normal(size=shape)).astype("f4") for _ in range(4)), np.float32(0.01)]


def test_an_optimizer_update_writes_in_place():
    graph, values = adam()
    expected = graph(*values)
    node = apply("fused", *(param(each.aval) for each in graph.params), graph=graph)
    assert BACKEND.claim(node, 1).inplace == (0, 1, 2, 3)
    for order in ((0, 1, 2), (2, 3, 0), (3, 3 - 2, 2)):  # any result over any operand of its type
        arrays = [value.copy() for value in values]
        run(graph, arrays, outs=[arrays[k] for k in order])
        for k, other in zip(order, expected, strict=True):
            assert bits(arrays[k]) == bits(other)


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(1)
    n = PARALLEL_BYTES // 8 + 13
    for shapes in ([(n,), (n,)], [(n // 50, 50), (50,)], [(n // 50, 50), (n // 50, 1)], [(3, n // 3), (3, 1)]):
        x, y = (param(Aval(shape, np.dtype("f8"))) for shape in shapes)
        graph = region([x, y], [apply("maximum", x * y + 0.1, y), x > y])
        values = [rng.normal(size=shape) for shape in shapes]
        for threads in (1, 2, 5):
            check(graph, values, threads)


def test_arrays_that_do_not_fit_are_refused():
    graph, values = adam()
    outs = [np.empty(out.shape, out.dtype) for out in graph.outs]
    for broken in (values[0].T.copy(), values[0].astype("f8"), np.asfortranarray(values[0])):
        with pytest.raises(
            ValueError, match=r"fused kernel: built for a C-contiguous float32 array of shape \(40, 30\)"
        ):
            run(graph, [broken, *values[1:]], outs=outs)
    outs[0].flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        run(graph, values, outs=outs)


def test_one_compilation_serves_all_shapes_and_constants(monkeypatch):
    monkeypatch.setattr(compiler, "_entries", {})  # another test may have had the same kernel
    before = compiler.Counts.compiled + compiler.Counts.loaded
    for rows in (3, 5, 6, 7):
        x, b = param(Aval((rows, 70), np.dtype("f4"))), param(Aval((70,), np.dtype("f4")))
        graph = region([x, b], [apply("square", x - b) * (1.0 / rows) - 0.125])
        check(graph, [np.ones((rows, 70), "f4"), np.arange(70, dtype="f4")])
    assert compiler.Counts.compiled + compiler.Counts.loaded == before + 1


def test_a_kernel_on_disk_is_loaded_and_a_damaged_one_replaced(monkeypatch, tmp_path):
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    graph, values = adam()

    def counts_of_a_fresh_start():
        monkeypatch.setattr(compiler, "_entries", {})
        before = compiler.Counts.compiled, compiler.Counts.loaded
        check(graph, values)
        return compiler.Counts.compiled - before[0], compiler.Counts.loaded - before[1]

    assert counts_of_a_fresh_start() == (1, 0)
    (stored,) = store.folder().glob("*.o")
    stored.write_bytes(stored.read_bytes()[:-7])
    assert counts_of_a_fresh_start() == (1, 0)
    assert [path.name for path in store.folder().iterdir()] == [stored.name]


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(compiler, "_entries", {})
    check(*adam())


WORKER = """
import sys
sys.path.insert(0, {here!r})
import test_numba_fused as t
from futurex.kernels.numba_ import compiler
t.check(*t.adam())
print(compiler.Counts.compiled, compiler.Counts.loaded)
"""


def test_workers_share_the_cache(tmp_path):
    env = {**os.environ, "FUTUREX_CACHE": str(tmp_path)}
    code = WORKER.format(here=os.path.dirname(__file__))
    command = [sys.executable, "-c", code]
    together = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in together:
        out, _ = process.communicate(timeout=100)
        assert process.returncode == 0
        assert sum(map(int, out.split())) == 1
    after = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=True)
    assert after.stdout.split() == ["0", "1"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_collapsed_loops_visit_every_element_once(shape, data):
    shape = tuple(shape)
    masks = data.draw(
        st.lists(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)), min_size=1, max_size=3)
    )
    operands = [tuple(n if kept else 1 for n, kept in zip(shape, mask, strict=True)) for mask in masks]
    layout = collapse(shape, operands)
    assert math.prod(layout.extents) == math.prod(shape)
    for operand, mask in zip(operands, layout.masks, strict=True):
        values = np.arange(math.prod(operand)).reshape(operand)
        loops = tuple(n if moves else 1 for n, moves in zip(layout.extents, mask, strict=True)) if mask else ()
        seen = np.broadcast_to(values.reshape(loops), layout.extents)
        assert np.array_equal(seen.reshape(-1), np.broadcast_to(values, shape).reshape(-1))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=3, max_size=7), st.lists(st.integers(0, 127), min_size=1, max_size=2),
    st.sampled_from(["f4", "f8", "i4"]), st.integers(0, 2**32 - 1), st.sampled_from([1, 2]),
)
def test_operands_may_move_along_every_other_axis(shape, masks, dtype, seed, threads):
    rng, shape = np.random.default_rng(seed), (*shape, 17)
    operands = [tuple(n if mask >> k & 1 else 1 for k, n in enumerate(shape)) for mask in masks]
    arrays = [(rng.normal(size=each) * 9).astype(dtype) for each in (shape, *operands)]
    whole, *others = params = [param(aval_of(each), f"x{k}") for k, each in enumerate(arrays)]
    made = whole
    for other in others:
        made = apply("where", apply("equal", whole, other), made, other + made)
    check(Graph(params, [made], "alternating"), arrays, threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("still, loops", [((2, 4), 5), ((1, 3, 5), 6)])
def test_windows_of_pooling_are_one_region(still, loops, threads):
    """What ``x.reshape(n, h, 2, w, 2, c)`` is compared with does not move along every other axis."""
    shape = (50, 12, 2, 12, 2, 16)
    small = tuple(1 if axis in still else extent for axis, extent in enumerate(shape))
    x, y = (param(Aval(each, np.dtype("f4")), name) for each, name in ((shape, "x"), (small, "y")))
    graph = region([x, y], [apply("where", apply("equal", x, y), y, x * y)])
    assert len(collapse(shape, [shape, small]).extents) == loops
    rng = np.random.default_rng(0)
    check(graph, [rng.integers(0, 3, each).astype(np.float32) for each in (shape, small)], threads)


@pytest.mark.parametrize("code", "bBhHiIqQ")
def test_integers_are_divided_by_numbers_that_the_text_says(code):
    dtype = np.dtype(code)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    numbers = [n for n in (1, 2, 3, 7, 100, high // 3, high, -1, -2, -7, low) if low <= n <= high and n]

    def f(x):
        return *(x // n for n in numbers), *(x % n for n in numbers), (x // 7).max(), (x % 7).sum()

    x = np.random.default_rng(3).integers(low, high, 70_000, dtype=dtype, endpoint=True)
    x[:4] = low, high, 0, 1
    with np.errstate(over="ignore"):
        expected = f(x)
    for found, each in zip(fx.futurize(f)(x), expected, strict=True):
        assert np.asarray(found).dtype == each.dtype
        assert np.array_equal(found, each)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="looks for that processor's instructions")
def test_what_registers_do_not_hold_lies_in_whole_lines():
    """A vector that crosses a line of the cache takes two trips: a loop of several functions has sixty such loads."""
    x = param(Aval((100_000,), np.dtype("f4")), "x")
    made = apply("sqrt", apply("exp", apply("tanh", x)) + apply("log1p", x * x)) + apply("arctan", x) / apply("exp", x)
    graph = Graph([x], [made], "functions")
    text = BACKEND.claim(apply("fused", param(x.aval), graph=graph), 1).call.text
    machine, module = compiler.optimised(text)
    code = machine.emit_assembly(module)
    assert "%zmm" in code or "+avx512vbmi2," not in compiler.features(), "vectors are half as wide as they could be"
    found = re.findall(r"^.*?(-?\d*)\(%rsp\).*%([yz])mm|%([yz])mm\d+, (-?\d*)\(%rsp\)", code, re.MULTILINE)
    assert found or "%zmm" not in code
    assert all(int(first or last or 0) % (64 if "z" in (one, other) else 32) == 0 for first, one, other, last in found)
