"""Results of rounds that are written where they are wanted, over what stood there: beside NumPy."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.loops.order import schedule
from futurex.passes.fuse import fuse_small


def body_of(function, *args):
    graph = fx.lower(fx.futurize(function, escape="error"), *args).graph
    return next(node for node in graph.nodes if node.op == "loop").attrs["body"]


def same_elements(a, b, rounds):
    for _ in range(rounds):
        a[1:-1, 1:-1] += 0.1 * (b[2:, 1:-1] - b[:-2, 1:-1])
        b[1:-1, 1:-1] -= 0.1 * (a[1:-1, 2:] - a[1:-1, :-2])
    return a, b


def row_then_rest(a, b, rounds):
    for k in range(rounds):
        a[0, :] = b[k % 5, 0]
        a[1:, :] -= 0.5 * (b[1:, :] - b[:-1, :])
    return a, b


def all_of_it(a, b, rounds):
    for _ in range(rounds):
        a = a * a + b
        b *= 0.9
    return a, b


def neighbours(a, b, rounds):
    for _ in range(rounds):
        a[1:-1, 1:-1] = 0.5 * a[:-2, 1:-1] + 0.4 * a[2:, 1:-1] + b[1:-1, 1:-1]
    return a, b


def turned(a, b, rounds):
    for _ in range(rounds):
        a = 0.5 * a.T + b
    return a, b


def against_the_grain(a, b, rounds):
    for _ in range(rounds):
        a[:] = 0.5 * a[::-1] + b
    return a, b


def one_row_for_all(a, b, rounds):
    for k in range(rounds):
        a[:] = 0.5 * a[k % 5] + b
    return a, b


def change_places(a, b, rounds):
    for _ in range(rounds):
        a, b = b, 0.5 * a + b * 0.3
    return a, b


def old_and_new(a, b, rounds):
    change = 0.0
    for _ in range(rounds):
        new = 0.5 * a + b
        change += np.abs(new - a).max()
        a = new
    return a, change


def kept_beside(a, b, rounds):
    for k in range(rounds):
        new = 0.5 * a[1:] + b[1:]
        a[1:] = new
        a[k % 5] = 0.0
        b = b + new[0] * 0.1
    return a, b


def of_one_region(a, b, rounds):
    for _ in range(rounds):
        inner = a[1:-1] * 0.5
        a[1:-1] = inner + b[1:-1]
        b[1:-1] = inner - b[1:-1] * 0.2
    return a, b


def product(a, b, rounds):
    for _ in range(rounds):
        a = 0.1 * (a @ b)
        a[...] = a @ b
    return a, b


def joined(a, b, rounds):
    for _ in range(rounds):
        a[:] = np.concatenate([a[3:], a[:3] * 0.5 + b[:3]])
    return a, b


def both_ways(a, b, rounds):
    for k in range(rounds):
        if a[0, 0] > 0.5:
            a = a * 0.5
        else:
            a[1:] = a[:-1] + b[1:]
            a[0] += 0.1
        b[k % 5, 1:] = b[k % 5, :-1] * 0.9
    return a, b


def a_row_of_before(a, b, rounds):
    row = b[0]
    for k in range(rounds):
        row = a[k % 5]
        a = a * 0.5 + b
    return a, row


PROGRAMS = [
    same_elements, row_then_rest, all_of_it, neighbours, turned, against_the_grain, one_row_for_all, change_places,
    old_and_new, kept_beside, of_one_region, product, joined, both_ways, a_row_of_before,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i8"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("extent", [5, 40])
@pytest.mark.filterwarnings("error:a kernel was not compiled")
def test_rounds_that_write_over_what_they_read(program, dtype, extent, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    if dtype == "c16" and program is both_ways:
        pytest.skip("complex numbers have no order")
    staged = fx.futurize(lambda a, b, rounds: program(a.copy(), b.copy(), rounds))
    rng = np.random.default_rng(7)
    for _ in range(2):
        a, b = (rng.standard_normal((extent, extent)) for _ in range(2))
        if dtype == "i8":
            a, b = a * 9, b * 9
        if dtype == "c16":
            a = a + 1j * b.T
        a, b = a.astype(dtype), b.astype(dtype)
        try:
            with np.errstate(all="ignore"):
                expected = program(a.copy(), b.copy(), 6)
        except TypeError:  # NumPy casts no float into these
            with pytest.raises(TypeError):
                [np.asarray(each) for each in staged(a, b, 6)]
            return
        for mine, theirs in zip(staged(a, b, 6), expected, strict=True):
            assert np.asarray(mine).dtype == np.asarray(theirs).dtype
            tolerance = 1e-5 if dtype == "f4" else 1e-12
            largest = max(1.0, np.abs(theirs).max(initial=0))  # products of singles add up in an order of their own
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize(
    ("program", "stores"),
    [(same_elements, 2), (row_then_rest, 1), (neighbours, 0), (against_the_grain, 0), (kept_beside, 0)],
)
def test_what_a_round_computes_is_written_once(program, stores):
    """And twice where other elements of the array are read, or where the result outlives what is stored."""
    a, b = np.ones((9, 9)), np.ones((9, 9))
    graph = fuse_small(body_of(lambda a, b: program(a.copy(), b.copy(), 6), a, b))
    assert len({where.node for where in schedule(graph).wanted.values()}) == stores


def test_grids_that_fit_the_cache_are_compiled_with_their_loop(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    staged = fx.futurize(lambda a, b: same_elements(a.copy(), b.copy(), 100))
    for extent, way in ((250, "is compiled whole"), (300, "runs round by round")):
        a, b = np.ones((extent, extent)), np.ones((extent, extent))
        assert np.array_equal(np.asarray(staged(a, b)[0]), same_elements(a.copy(), b.copy(), 100)[0])
        assert staged.explain().count(way) == 1
