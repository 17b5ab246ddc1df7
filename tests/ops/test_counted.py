"""Integers in order by counting: NumPy's distinct numbers and stable orders, of every type and range."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.ops import counted
from futurex.ops.counted import stable_order, unique_of_few, unique_of_rows

RNG = np.random.default_rng(4)
DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"]


def integers(dtype, size, span, start, seed):
    """Numbers of a span that begins at a part of the type's range."""
    rng = np.random.default_rng(seed)
    if dtype == "?":
        return rng.random(size) < start
    limits = np.iinfo(dtype)
    low = min(limits.min + int((int(limits.max) - limits.min) * start), limits.max)
    return rng.integers(low, min(low + span, limits.max), size, dtype, endpoint=True)


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES), shape=st.sampled_from([(40,), (5, 8), (0,), (3, 0), (2, 3, 4)]),
    span=st.sampled_from([0, 3, 30, 70_000, 2**33]), start=st.floats(0, 1), seed=st.integers(0, 99),
    extras=st.lists(st.sampled_from(["index", "inverse", "counts"]), unique=True),
)  # fmt: skip
def test_distinct_numbers_are_numpys(dtype, shape, span, start, seed, extras):
    x = integers(dtype, shape, span, start, seed)
    extras = [name for name in ("index", "inverse", "counts") if name in extras]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "LEAST", 1)
        found = unique_of_few(x, extras)
    if found is None:
        assert not x.size or int(x.max()) - int(x.min()) >= x.size
        return
    expected = np.unique(x, **{f"return_{name}": True for name in extras})
    for each, wanted in zip(found, expected if extras else (expected,), strict=True):
        np.testing.assert_array_equal(each, wanted, strict=True)


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES), shape=st.sampled_from([(40, 1), (40, 2), (9, 3), (30, 5), (1, 4), (0, 2)]),
    span=st.sampled_from([0, 1, 3, 70_000, 2**40]), start=st.floats(0, 1), seed=st.integers(0, 99),
    extras=st.lists(st.sampled_from(["index", "inverse", "counts"]), unique=True),
)  # fmt: skip
def test_distinct_rows_are_numpys(dtype, shape, span, start, seed, extras):
    x = integers(dtype, shape, span, start, seed)
    extras = [name for name in ("index", "inverse", "counts") if name in extras]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "LEAST", 1)
        found = unique_of_rows(x, extras)
    if found is None:
        assert not x.size or span == 2**40 or shape[1] > 3
        return
    expected = np.unique(x, axis=0, **{f"return_{name}": True for name in extras})
    for each, wanted in zip(found, expected if extras else (expected,), strict=True):
        np.testing.assert_array_equal(each, wanted, strict=True)


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES), shape=st.sampled_from([(60,), (5, 8), (0,), (2, 3, 4)]), axis=st.integers(-1, 0),
    span=st.sampled_from([0, 3, 30, 70_000, 2**33]), start=st.floats(0, 1), seed=st.integers(0, 99),
)  # fmt: skip
def test_stable_orders_are_numpys(dtype, shape, axis, span, start, seed):
    x = integers(dtype, shape, span, start, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "LEAST", 1)
        found = stable_order(x, axis)
    if found is None:
        far = x.size > 0 and int(x.max()) - int(x.min()) >= 2**16
        assert not x.size or x.dtype.itemsize <= 2 or far
        return
    np.testing.assert_array_equal(found, np.argsort(x, axis, "stable"), strict=True)


def test_ranges_beyond_64_bits():
    x = np.repeat(np.array([-(2**63), 2**63 - 1]), 2000)
    assert unique_of_few(x, []) is None
    assert stable_order(x, 0) is None
    x = x.view(np.uint64)
    np.testing.assert_array_equal(unique_of_few(x, [])[0], np.unique(x), strict=True)


def test_groups_of_rows_by_label():
    rng = np.random.default_rng(0)
    labels, x = rng.integers(-40, 40, 5000), rng.standard_normal(5000)

    def means(labels, x):
        keys, first, place, count = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(labels, kind="stable")
        return keys, first, np.bincount(place, x) / count, x[order]

    for found, expected in zip(fx.futurize(means)(labels, x), means(labels, x), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def floats(dtype, size, decimals, seed):
    """Numbers of which some are equal, none, infinite, or zeros of both signs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=size).round(decimals).astype(dtype)
    for value in (np.nan, np.inf, -0.0, 0.0):
        x[rng.random(size) < 0.02] = value
    return x


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(["f4", "f8"]), size=st.sampled_from([1, 2, 40, 3000]), seed=st.integers(0, 999),
    decimals=st.sampled_from([0, 1, 3, 12]),
)  # fmt: skip
def test_orders_of_floats_are_numpys(dtype, size, decimals, seed):
    x = floats(dtype, size, decimals, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "LEAST", 1)
        patch.setattr(counted, "_RUN", 10**9)
        found = stable_order(x, 0)
    if found is None:
        assert np.count_nonzero(x[1:] < x[:-1]) in (0, size)
        return
    np.testing.assert_array_equal(found, np.argsort(x, kind="stable"), strict=True)


@pytest.mark.parametrize("case", ["equal", "none is a number", "no two are equal"])
def test_orders_of_rows_of_one_kind(case, monkeypatch):
    monkeypatch.setattr(counted, "_RUN", 10**9)
    x = {"equal": np.zeros(2000), "none is a number": np.full(2000, np.nan), "no two are equal": RNG.random(2000)}[case]
    x[:2] = 1, 0  # what is in order NumPy merges
    np.testing.assert_array_equal(stable_order(x, 0), np.argsort(x, kind="stable"), strict=True)


def test_wide_integers_far_apart_are_ordered(monkeypatch):
    x = RNG.integers(-(2**62), 2**62, 4000)
    x[100:200] = x[:100]
    np.testing.assert_array_equal(stable_order(x, 0), np.argsort(x, kind="stable"), strict=True)
    wide = x.view(np.uint64)
    np.testing.assert_array_equal(stable_order(wide, 0), np.argsort(wide, kind="stable"), strict=True)


@pytest.mark.parametrize(
    "x", [np.arange(5000.0), -np.arange(5000.0), np.tile(np.arange(100.0), 50), RNG.random((50, 60)), RNG.random(9),
          RNG.random(5000).astype(complex), RNG.random(5000).astype("f2"), RNG.random(5000).astype(">f8")],
)  # fmt: skip
def test_what_numpy_merges_is_its_own(x):
    assert stable_order(x, x.ndim - 1) is None


@pytest.mark.parametrize("keys", [2, 3])
def test_orders_by_several_keys(keys):
    given = [RNG.integers(0, 5, 6000), RNG.normal(size=6000).round(1), RNG.random(6000) < 0.5][:keys]
    f = fx.futurize(lambda *keys: np.lexsort(keys))
    expected = np.lexsort(given)
    for _ in range(3):
        np.testing.assert_array_equal(f(*given), expected, strict=True)
    assert {node.op for node in fx.lower(f, *given).graph.nodes} == {"param", "argsort", "gather"}


@pytest.mark.parametrize(
    ("function", "error"),
    [(lambda x: np.lexsort((x, x[:-1])), ValueError), (lambda x: np.lexsort((x, x), axis=1), Exception)],
)
def test_keys_that_do_not_fit_are_numpys_errors(function, error):
    x = RNG.random(6000)
    with pytest.raises(error) as found:
        function(x)
    with pytest.raises(type(found.value)):
        fx.futurize(function)(x).result()


def test_one_array_of_keys():
    x = RNG.integers(0, 3, (3, 5000))
    np.testing.assert_array_equal(fx.futurize(np.lexsort)(x), np.lexsort(x))
