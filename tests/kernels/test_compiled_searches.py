"""Sorts, searches, distinct numbers and convolutions inside compiled functions have NumPy's bits."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops, compiled

import futurex as fx
from futurex.kernels.loops.searching import searches_alike

RNG = np.random.default_rng(7)
WAVE, SINGLE = RNG.normal(size=90), RNG.normal(size=70).astype(np.float32)
HOLED = np.where(RNG.random(90) < 0.2, np.nan, np.round(WAVE, 1))
ZEROS = np.where(RNG.random(60) < 0.5, 0.0, -0.0)
TIED = RNG.integers(-4, 5, 80)
NARROW = {dtype: RNG.integers(0, 100, 50).astype(dtype) for dtype in ("i1", "u4", "u8")}
PICTURE = RNG.integers(0, 6, (9, 8))
VECTORS = {"wave": WAVE, "single": SINGLE, "holed": HOLED, "zeros": ZEROS, "tied": TIED, "mask": WAVE > 0, **NARROW}
KINDS = [None, "stable"]


@pytest.fixture
def nothing_called(at_once, monkeypatch):
    """Plans are compiled whole at once, and nothing in them is left to Python."""

    def refuse(e, node, inputs):
        pytest.fail(f"{node.op} has no machine code")

    monkeypatch.setattr("futurex.kernels.loops.emit.called", refuse)


@pytest.fixture
def searched(request):
    """The same, where this NumPy searches in the order that is known."""
    if searches_alike():
        request.getfixturevalue("nothing_called")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VECTORS)
def test_sorts(name, kind, nothing_called):
    def ordered(x):
        y = x[::-1]
        return np.concatenate([np.sort(y, kind=kind), y[np.argsort(y, kind=kind)], x[x.argsort(kind=kind)[::2]]])

    compiled(ordered, VECTORS[name])


@pytest.mark.parametrize("kind", KINDS)
def test_positions_of_equal_numbers(kind, nothing_called):
    compiled(lambda x: np.argsort(x, kind=kind) * 2, TIED)
    compiled(lambda x: np.argsort(x[1:9], kind=kind) + x[1:9], TIED)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("sorted_", "keys"),
    [
        (np.sort(WAVE), RNG.normal(size=(6, 5))),
        (np.sort(HOLED), HOLED[:40]),
        (np.sort(HOLED)[::3], np.sort(HOLED[:40])[::-1]),
        (WAVE, HOLED),  # not sorted: what is found depends on the key before
        (HOLED, np.concatenate([WAVE, HOLED])),
        (np.sort(TIED), WAVE[:30] * 3),
        (np.sort(NARROW["u8"]), NARROW["i1"]),
        (np.sort(NARROW["u4"]), NARROW["i1"].reshape(10, 5).T),
        (np.sort(SINGLE), WAVE),
        (np.zeros(0), WAVE[:4]),
        (np.sort(ZEROS), ZEROS),
    ],
)  # fmt: skip
def test_searches(sorted_, keys, side, searched, at_once):
    compiled(lambda x, y: np.searchsorted(x, y, side=side) - x.searchsorted(y, side) * 2, sorted_, keys)


def test_bins(at_once):
    def placed(x, bins):
        found = np.zeros((24, *x.shape), int)
        for k in range(24):
            found[k] = np.digitize(x * k, bins) + 100 * np.digitize(x - k, bins[k % 3 :], right=True)
            found[k, 0] += np.digitize(x[k % 9], bins)
        return found

    edges = np.sort(RNG.normal(size=12))
    for x in (RNG.normal(size=9), np.round(RNG.normal(size=9)), np.arange(9) - 4, np.full(9, np.nan)):
        for bins in (edges, np.round(edges), edges.astype("f4"), np.arange(12), edges[::-1].copy(), edges[::-1]):
            f = fx.futurize(placed)
            for _ in range(3):
                np.testing.assert_array_equal(f(x, bins), placed(x, bins))
            if bins is edges:
                assert calls_of_loops(f, (x, bins)) == []
    with pytest.raises(ValueError, match="monotonically"):
        np.asarray(fx.futurize(placed)(x, RNG.permutation(edges)))


def test_searches_for_one_number(searched, at_once):
    def places(x, y, z):
        return np.array([np.searchsorted(x, y), np.searchsorted(x, z, side="right"), np.searchsorted(x, x[3])]) * 2

    compiled(places, np.sort(WAVE), 0.25, np.float32(-0.5))


@pytest.mark.parametrize("name", ["tied", "mask", "i1", "u8"])
def test_distinct_numbers(name, nothing_called):
    def told(x):
        values, index, inverse, counts = np.unique(x[::-1], True, True, True)
        return np.concatenate([values * 2, index, inverse, counts, np.unique(x[3:]) * 2, [len(values)]])

    def counted(x):
        return np.concatenate([np.unique(x, return_counts=True)[1], np.unique(x, return_index=True)[1]]) * 2

    compiled(told, VECTORS[name])
    compiled(counted, VECTORS[name])


@pytest.mark.parametrize("turned", [False, True])
def test_distinct_numbers_of_a_picture(turned, nothing_called):
    def labels(x):
        values, inverse = np.unique(x.T if turned else x, return_inverse=True)
        return inverse * 2 + len(values)

    compiled(labels, PICTURE)


def test_distinct_numbers_of_what_only_the_run_knows(nothing_called):
    compiled(lambda x: np.unique(x[x > 0], return_inverse=True)[1] * 2, TIED)
    compiled(lambda x: np.unique(x[x > 9], return_counts=True)[1] * 2, TIED)


@pytest.mark.parametrize("x", [WAVE, VECTORS["i1"]])
def test_distinct_numbers_of_a_single_one(x, at_once):
    compiled(lambda x: np.hstack(np.unique(x[3] * 2, True, True, True)), x)
    compiled(lambda x: np.unique(np.mean(x)) * 2, x)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("taps", [17, 31, 70])
def test_convolutions(taps, mode, nothing_called):
    compiled(lambda x, y: np.convolve(x * 2, y, mode), WAVE, WAVE[::-1][:taps].copy())
    compiled(lambda x, y: np.convolve(y, x[::-1] + 1, mode), SINGLE, SINGLE[:taps].copy())


def test_norms_of_columns(nothing_called):
    compiled(lambda x: np.linalg.norm(x[:, 1] * 2) + np.linalg.norm(x[::2, 0]), PICTURE / 3)


@pytest.mark.parametrize("seed", range(6))
def test_searches_in_loops(seed):
    """In a loop over growing prefixes of arrays of any order, with gaps."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-5, 6, 40) if seed % 2 else np.where(rng.random(40) < 0.1, np.nan, rng.normal(size=40))
    keys = rng.permutation(x)[:25]

    def placed(x, keys):
        total = np.zeros(25, dtype=np.int64)
        for k in range(30):
            total += np.searchsorted(x[k // 2 :], keys) * (k + 1)
            total[k % 25] += np.searchsorted(x, keys[k % 25], side="right")
        return total

    futurized = fx.futurize(placed)
    for _ in range(4):
        assert np.asarray(futurized(x, keys)).tobytes() == placed(x, keys).tobytes()
