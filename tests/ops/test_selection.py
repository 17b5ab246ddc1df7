"""Medians and quantiles whose places are looked for alone have NumPy's bits, or are NumPy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.ops import selection
from futurex.ops.selection import by_selection, selects

POINTS = st.one_of(
    st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]), st.lists(st.floats(0, 1), min_size=1, max_size=4).map(tuple)
)


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["f8", "f4", "i4", "i8"]),
    function=st.sampled_from(["median", "quantile", "percentile"]), q=POINTS, keepdims=st.booleans(),
    special=st.sampled_from(["", "whole", "nan", "inf", "zeros"]), axes=st.integers(1, 7), seed=st.integers(0, 999),
)  # fmt: skip
def test_bits_are_numpys(shape, dtype, function, q, keepdims, special, axes, seed):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 30).astype(dtype)
    axis = tuple(k for k in range(x.ndim) if axes >> k & 1) or (0,)
    if special == "whole":
        x = np.round(x / 10)
    elif special == "zeros":
        x = np.where(rng.random(shape) < 0.7, x * 0, x)
    elif special and x.dtype.kind == "f":
        x.flat[rng.integers(x.size)] = float(special)
    if function == "percentile":
        q = tuple(100 * each for each in q) if isinstance(q, tuple) else 100 * q

    def f(x):
        if function == "median":
            return np.median(x, axis=axis, keepdims=keepdims)
        points = list(q) if isinstance(q, tuple) else q
        return getattr(np, function)(x, points, axis=axis, keepdims=keepdims)

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(selection, "LEAST", 3)
        patch.setattr(selection, "FEWEST", 3)
        found, expected = np.asarray(fx.futurize(f)(x)), np.asarray(f(x))
    np.testing.assert_array_equal(found, expected, strict=True)
    numbers = ~np.isnan(expected) if expected.dtype.kind == "f" else ...
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def test_which_are_selected():
    x = np.zeros((100, 200))
    assert selects(x, "median", (0,), "linear")
    assert selects(x.astype("f4"), "median", (1,), "linear")
    assert not selects(x.astype("f4"), "quantile", (1,), "linear")  # lies where single precision puts it
    assert not selects(x, "quantile", (1,), "nearest")
    assert not selects(x, "nanmedian", (1,), "linear")
    assert not selects(x[:2], "median", (0,), "linear")
    assert by_selection(np.arange(100.0), "quantile", 1.5, (0,)) is None


def test_a_quantile_that_is_none_raises_what_numpy_raises():
    x = np.arange(10_000.0)
    with pytest.raises(ValueError, match="Quantiles must be in the range"):
        fx.futurize(lambda x: np.quantile(x, 1.5))(x).result()
