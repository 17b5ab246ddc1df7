"""Both products with a matrix in one trip through it: found in trees of any form, right in every block of rows."""

import re

import numpy as np
import pytest
from blockwise import planned, precisely
from guarded import before_a_guard

import futurex as fx
from futurex.kernels.numba_ import compiler, nearest
from futurex.kernels.numba_.rows import RowProducts
from futurex.passes import rows
from futurex.passes.pipeline import optimise
from futurex.runtime.plan import compile_plan


@pytest.fixture(autouse=True)
def _however_small(monkeypatch):
    """Matrices of some megabytes do for what the kernel computes."""
    monkeypatch.setattr(rows, "LEAST_BYTES", 1 << 20)


def logistic(x, w, b, y):
    z = x @ w + b
    p = 1 / (1 + np.exp(-z))
    return x.T @ (p - y), (np.logaddexp(0, z) - z * y).mean(), z


def from_the_left(x, w, b, y):
    residual = np.tanh(x @ w) - y
    return residual @ x, residual.sum(), residual


def columns(x, w, b, y):
    z = x @ w.reshape(-1, 1)
    residual = z * np.float32(0.1) - y.reshape(-1, 1)
    return x.T @ residual, z.max(), residual


def gradient(x, w, b, y):
    def loss(w, b):
        z = x @ w + b
        return (np.logaddexp(0, z) - z * y).mean()

    return fx.value_and_grad(loss, argnums=(0, 1))(w, b)


def power_step(x, w, b, y):
    return x.T @ (x @ w * 1.0)


CACHES = [
    {"small": False, "wide": False, "lines": False},
    {"small": True, "wide": False, "lines": False},
    {"small": True, "wide": False, "lines": True},
    {"small": False, "wide": True, "lines": True},
]
"""The kinds of nearest caches, and whether a vector is a whole line."""
SMALL, WIDE = CACHES[2:]


def pretend(monkeypatch, *, small, wide, lines):
    """Have kernels made for a nearest cache of this kind."""
    if lines and not compiler.has_scale():
        pytest.skip("lines are put together by AVX-512")
    monkeypatch.setattr(nearest, "small", lambda: small)
    monkeypatch.setattr(nearest, "wide", lambda: wide)
    if small and not lines:
        monkeypatch.setattr(compiler, "has_scale", lambda: False)


def data(rows, width):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    w = (rng.normal(size=width) / width**0.5).astype(np.float32)
    return x, w, np.float32(0.3), (rng.random(rows) < 0.5).astype(np.float32)


def flat(values):
    return [leaf for value in values for leaf in (flat(value) if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize("shape", [(5000, 100), (4097, 333), (70001, 17), (3001, 129), (1003, 1000), (61, 5000)])
@pytest.mark.parametrize("function", [logistic, from_the_left, columns, gradient])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cache", CACHES)
def test_values_are_those_of_double_precision(function, shape, threads, cache, monkeypatch):
    pretend(monkeypatch, **cache)
    arguments = data(*shape)
    wide = fx.lower(function, *(np.float64(each) for each in arguments))
    wanted = wide.graph(*wide.flatten(*(np.float64(each) for each in arguments)))
    precisely("row_products", function, arguments, wanted, threads)


@pytest.mark.parametrize("shape", [(5000, 100), (4097, 333), (3001, 65), (1003, 250), (1003, 500), (61, 5000)])
@pytest.mark.parametrize("function", [logistic, from_the_left, columns, gradient])
@pytest.mark.parametrize("cache", CACHES)
def test_double_precision(function, shape, cache, monkeypatch):
    pretend(monkeypatch, **cache)
    arguments = [np.float64(each) for each in data(*shape)]
    wide = fx.lower(function, *(np.longdouble(each) for each in arguments))
    wanted = wide.graph(*wide.flatten(*(np.longdouble(each) for each in arguments)))
    for threads in (1, 2):
        program, plan, made = planned("row_products", function, arguments, threads=threads)
        found = plan.run(program.flatten(*arguments))
        assert made.kernel.backend == "numba"
        assert made.kernel.late.interpreted == 0
        for actual, value in zip(found, wanted, strict=True):
            np.testing.assert_allclose(actual, value, rtol=1e-12, atol=1e-14 * shape[0])


@pytest.mark.parametrize("shape", [(5000, 100), (4097, 333), (61, 5000)])
def test_results_do_not_depend_on_the_number_of_threads(shape):
    arguments = data(*shape)
    program = fx.lower(from_the_left, *arguments)
    found = [compile_plan(program.graph, threads=threads).run(arguments)[0] for threads in (1, 2, 3)]
    assert all((each == found[0]).all() for each in found)


def test_nan_and_infinity_pass_through():
    x, w, b, y = data(5000, 100)
    x[1234, 5], y[77] = np.nan, np.inf
    program = fx.lower(from_the_left, x, w, b, y)
    with np.errstate(invalid="ignore"):
        found = compile_plan(program.graph).run([x, w, b, y])
        for actual, value in zip(found, from_the_left(x, w, b, y), strict=True):
            np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(value))


@pytest.mark.parametrize(
    ("function", "shape", "dtype"),
    [
        (lambda x, w, b, y: x.T @ (x @ w + b).cumsum(), (5000, 100), "f4"),  # not row by row
        (lambda x, w, b, y: x.T @ (x @ w - (x @ w).mean()), (5000, 100), "f4"),  # needs all rows first
        (lambda x, w, b, y: (x + 1).T @ (x @ w + b), (5000, 100), "f4"),  # another matrix
        (logistic, (200, 100), "f4"),  # small
        (power_step, (5000, 100), "c16"),
        (power_step, (5000, 8), "f4"),
    ],
)
def test_what_is_left_alone(function, shape, dtype):
    arguments = [each.astype(dtype) for each in data(*shape)]
    program = fx.lower(function, *arguments)
    assert all(node.op != "row_products" for node in optimise(program.graph).nodes)
    for actual, value in zip(
        compile_plan(program.graph).run(program.flatten(*arguments)), flat([function(*arguments)]), strict=True
    ):
        np.testing.assert_allclose(actual, value, rtol=1e-3, atol=1e-3)


def node_of(width):
    nodes = optimise(fx.lower(logistic, *data(2000, width)).graph).nodes
    (node,) = [node for node in nodes if node.op == "row_products"]
    return node


@pytest.mark.parametrize(("cache", "halves"), [(CACHES[0], False), (CACHES[1], True), (WIDE, False)])
def test_a_small_cache_is_read_in_half_vectors(cache, halves, monkeypatch):
    pretend(monkeypatch, **cache)
    text = RowProducts.text_for(node_of(1000))
    assert ('"prefer-vector-width"="256"' in text) == halves


@pytest.mark.parametrize(
    ("cache", "width", "by_lines"),
    [
        *((WIDE, width, by_lines) for width, by_lines in ((256, False), (257, True), (1024, True), (1025, False))),
        *((SMALL, width, by_lines) for width, by_lines in ((512, False), (513, True), (3000, True))),
    ],
)
def test_rows_that_are_read_by_lines(cache, width, by_lines, monkeypatch):
    pretend(monkeypatch, **cache)
    assert RowProducts.way_of(node_of(width)).by_lines == by_lines
    assert ("vpermi2var" in RowProducts.text_for(node_of(width))) == by_lines


@pytest.mark.parametrize("width", [512, 1000, 3000])
def test_a_small_cache_that_loads_lines_is_asked_past(width, monkeypatch):
    """The rows of two trips fill it: what comes next is asked for into the second cache."""
    pretend(monkeypatch, **SMALL)
    text = RowProducts.text_for(node_of(width))
    assert set(re.findall(r"@llvm\.prefetch\.p0\(ptr %\S+, i32 0, i32 (\d), i32 1\)", text)) == {"2"}


@pytest.mark.parametrize("offset", [0, 4, 16, 60])
@pytest.mark.parametrize("width", [528, 1000, 1009])
@pytest.mark.parametrize("cache", [SMALL, WIDE])
def test_lines_give_the_same_bits_wherever_a_matrix_begins(cache, offset, width, monkeypatch):
    x, w, b, y = data(1003, width)
    memory = np.empty(x.nbytes + 128, np.uint8)
    first = -memory.ctypes.data % 64 + offset
    moved = memory[first : first + x.nbytes].view(np.float32).reshape(x.shape)
    moved[...] = x
    found = []
    for each in (CACHES[0], cache):
        pretend(monkeypatch, **each)
        found.append(compile_plan(fx.lower(from_the_left, moved, w, b, y).graph, threads=2).run([moved, w, b, y]))
    assert all((one == other).all() for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("width", [512, 1008])
@pytest.mark.parametrize("cache", [SMALL, WIDE])
def test_no_line_is_read_that_holds_nothing_of_the_matrix(cache, width, monkeypatch):
    pretend(monkeypatch, **cache)
    x, w, b, y = data(2048, width)
    found = []
    for matrix in (before_a_guard(x), x):
        found.append(compile_plan(fx.lower(from_the_left, matrix, w, b, y).graph).run([matrix, w, b, y]))
    assert all((one == other).all() for one, other in zip(*found, strict=True))
