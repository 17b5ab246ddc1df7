"""Random numbers: known answers, the right distributions, and no dependence on tiling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from futurex import ops
from futurex.ops.random import COUNTER_OPS, philox, words
from futurex.tree import Aval, apply, param

KEY, ZERO = np.uint64(0x1234_5678_9ABC_DEF0), np.int64(0)
DRAWS = {"random_bits": "uint64", "random_uniform": "float32", "random_normal": "float64"}


@pytest.mark.parametrize(
    "counter, key, expected",
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_answers(counter: str, key: str, expected: str) -> None:
    """The vectors of the authors' Random123 library."""
    c0, c1, c2, c3 = (np.uint64(int(word, 16)) for word in counter.split())
    k0, k1 = (int(word, 16) for word in key.split())
    assert " ".join(f"{int(word):08x}" for word in philox((c0, c1, c2, c3), (k0, k1))) == expected


@given(st.integers(0, 2**64 - 1), st.integers(0, 40), st.integers(0, 40), st.integers(0, 2**40))
def test_words_depend_on_their_position_alone(key: int, low: int, count: int, base: int) -> None:
    whole = words(key, "bits", base, low + count)
    np.testing.assert_array_equal(words(key, "bits", base + low, count), whole[low:])


def test_words_of_a_long_range_continue_where_a_block_ends() -> None:
    whole = words(5, "bits", 0, 70_000)
    np.testing.assert_array_equal(words(5, "bits", 65_530, 20), whole[65_530:65_550])
    assert len(np.unique(whole)) > 69_990  # repeats are rare accidents, not periods


@pytest.mark.parametrize("name", sorted(DRAWS))
@given(shape=st.tuples(st.integers(2, 7), st.integers(1, 4), st.integers(1, 3)), cut=st.integers(1, 6))
def test_rows_of_a_tile_are_rows_of_the_whole(name: str, shape: tuple[int, ...], cut: int) -> None:
    cut = min(cut, shape[0] - 1)
    draw, dtype = getattr(ops, name), np.dtype(DRAWS[name])
    whole = draw(KEY, ZERO, shape=shape, dtype=dtype)
    first = draw(KEY, ZERO, shape=(cut, *shape[1:]), dtype=dtype)
    second = draw(KEY, np.int64(cut), shape=(shape[0] - cut, *shape[1:]), dtype=dtype)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_numbers_are_uniform(dtype: str) -> None:
    x = ops.random_uniform(KEY, ZERO, shape=(100, 1000), dtype=np.dtype(dtype))
    assert x.dtype == dtype
    assert x.min() >= 0
    assert x.max() < 1
    counts = np.bincount((x.astype(float) * 64).astype(int).ravel(), minlength=64)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    pairs = np.bincount(((x[:, :-1:2] * 8).astype(int) * 8 + (x[:, 1::2] * 8).astype(int)).ravel(), minlength=64)
    assert scipy.stats.chisquare(pairs).pvalue > 1e-3  # neighbours are independent


def test_double_uniform_numbers_use_all_53_bits() -> None:
    scaled = ops.random_uniform(KEY, ZERO, shape=(4096,), dtype=np.dtype(float)) * 2.0**53
    assert np.all(scaled == np.floor(scaled))
    assert 0.45 < np.mean(scaled % 2) < 0.55


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers_are_normal(dtype: str) -> None:
    x = ops.random_normal(KEY, ZERO, shape=(20_000,), dtype=np.dtype(dtype))
    assert x.dtype == dtype
    assert np.isfinite(x).all()
    assert scipy.stats.kstest(x, "norm").pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_every_bit_is_fair(dtype: str) -> None:
    x = ops.random_bits(KEY, ZERO, shape=(20_000,), dtype=np.dtype(dtype))
    bits = np.unpackbits(x.view(np.uint8)).reshape(20_000, -1).sum(0, dtype=np.int64)
    assert np.all(np.abs(bits - 10_000) < 5 * np.sqrt(5_000))


def test_keys_and_ops_are_independent() -> None:
    f8 = np.dtype(float)
    first, second = (ops.random_uniform(np.uint64(k), ZERO, shape=(10_000,), dtype=f8) for k in (1, 2))
    other = ops.random_normal(np.uint64(1), ZERO, shape=(10_000,), dtype=f8)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.05


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_and_the_mean(rate: float) -> None:
    y = ops.dropout(np.ones((100, 200), np.float32), KEY, ZERO, rate=rate)
    assert y.dtype == np.float32
    assert set(np.unique(y)) <= {np.float32(0), np.float32(1 / (1 - rate))}
    assert abs(np.mean(y == 0) - rate) < 5 * np.sqrt(rate * (1 - rate) / y.size) + 1e-12


def test_dropout_drops_nan_and_infinity_too() -> None:
    y = ops.dropout(np.full(1000, np.inf), KEY, ZERO, rate=0.5)
    assert set(np.unique(y)) == {0.0, np.inf}


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout_refuses_a_rate_that_is_no_share(rate: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        apply("dropout", param(Aval((3,), np.dtype(float))), KEY, ZERO, rate=rate)


def test_dropout_of_integers_is_refused() -> None:
    with pytest.raises(TypeError, match="floating-point numbers, not int64"):
        apply("dropout", param(Aval((3,), np.dtype(np.int64))), KEY, ZERO, rate=0.5)


@pytest.mark.parametrize(
    "name, dtype", [("random_bits", "float32"), ("random_uniform", "int64"), ("random_normal", "bool")]
)
def test_dtypes_that_cannot_be_drawn_are_refused(name: str, dtype: str) -> None:
    with pytest.raises(TypeError, match="come as"):
        apply(name, KEY, ZERO, shape=(3,), dtype=np.dtype(dtype))


def test_counter_ops_end_in_their_start() -> None:
    """What the partitioner relies on: the last input of each is an integer scalar."""
    for name in COUNTER_OPS:
        samples: Any = getattr(ops, name).samples
        assert all(type(sample.inputs[-1]) is np.int64 for sample in samples(np.random.default_rng(0)))
