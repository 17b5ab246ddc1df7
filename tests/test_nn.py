"""Layers against their definitions, keyed random numbers, and errors that name shapes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, special, stats

import futurex as fx

pytestmark = pytest.mark.onednn


def test_convolution_is_the_correlation_of_every_channel():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 9, 8, 3)), rng.normal(size=(3, 2, 3, 4))
    expected = np.stack(
        [
            np.stack(
                [sum(signal.correlate2d(image[..., c], w[..., c, k], "valid") for c in range(3)) for k in range(4)],
                axis=-1,
            )
            for image in x
        ]
    )
    np.testing.assert_allclose(fx.nn.conv(x, w), expected, rtol=1e-12, atol=1e-14)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(5, 9), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3),
    st.integers(1, 2),
)
def test_same_padding_keeps_every_strided_position(axes, gap):
    """Keras's rule: ceil(size / stride) results along every axis."""
    sizes, kernel, stride = zip(*axes, strict=True)
    kernel = tuple(min(k, (s - 1) // gap + 1) for k, s in zip(kernel, sizes, strict=True))
    result = fx.nn.conv(np.ones((1, *sizes, 2)), np.ones((*kernel, 2, 3)), stride, "same", gap)
    assert result.shape == (1, *(-(-s // step) for s, step in zip(sizes, stride, strict=True)), 3)
    valid = fx.nn.conv(np.ones((1, *sizes, 2)), np.ones((*kernel, 2, 3)), padding="valid", dilation=gap)
    np.testing.assert_allclose(valid, 2 * np.prod(kernel))


def test_groups_are_convolutions_side_by_side():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(2, 7, 4)), rng.normal(size=(3, 2, 6))
    halves = [fx.nn.conv(x[..., 2 * g : 2 * g + 2], w[..., 3 * g : 3 * g + 3]) for g in range(2)]
    np.testing.assert_allclose(fx.nn.conv(x, w, groups=2), np.concatenate([*map(np.asarray, halves)], -1))


def test_pooling_takes_maximum_and_mean_of_windows():
    x = np.random.default_rng(2).normal(size=(2, 6, 4, 3))
    windows = x.reshape(2, 3, 2, 2, 2, 3)
    np.testing.assert_array_equal(fx.nn.max_pool(x, 2), windows.max(axis=(2, 4)))
    np.testing.assert_allclose(fx.nn.avg_pool(x, (2, 2)), windows.mean(axis=(2, 4)), rtol=1e-12)
    np.testing.assert_allclose(fx.nn.global_average_pool(x), x.mean(axis=(1, 2)), rtol=1e-12)
    padded = fx.nn.max_pool(-np.ones((1, 4, 1)), 3, 1, padding=1)
    np.testing.assert_array_equal(padded, -np.ones((1, 4, 1)))


def test_normalisation_has_mean_zero_and_variance_one():
    x = np.random.default_rng(3).normal(2.0, 3.0, size=(8, 5, 4))
    scale, shift = np.arange(1.0, 5.0), np.arange(4.0)
    y, mean, variance = fx.nn.batch_norm(x, scale, shift, eps=0.0)
    np.testing.assert_allclose(mean, x.mean(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(variance, x.var(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(y).mean(axis=(0, 1)), shift, atol=1e-12)
    np.testing.assert_allclose(np.asarray(y).std(axis=(0, 1)), scale, rtol=1e-12)
    rows = np.asarray(fx.nn.layer_norm(x, np.ones(4), np.zeros(4), eps=0.0))
    np.testing.assert_allclose(rows.std(axis=-1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    "name, definition",
    [
        ("relu", lambda x: x * (x > 0)),
        ("tanh", np.tanh),
        ("sigmoid", special.expit),
        ("gelu", lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
        ("softmax", lambda x: special.softmax(x, axis=-1)),
        ("log_softmax", lambda x: special.log_softmax(x, axis=-1)),
    ],
)
def test_activations_follow_their_definitions(name, definition):
    x = np.random.default_rng(4).normal(0, 3, size=(5, 7))
    function = getattr(fx.nn, name)
    np.testing.assert_allclose(function(x), definition(x), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(fx.futurize(function)(x), definition(x), rtol=1e-12, atol=1e-15)
    assert np.asarray(function(x.astype(np.float32))).dtype == np.float32


@pytest.mark.parametrize("dtype, ends", [(np.float32, 80.0), (np.float64, 700.0)])
@pytest.mark.parametrize("count", [99, 4999])
def test_small_probabilities_of_a_sigmoid_keep_their_digits(dtype, ends, count):
    """Compiled (from 256 elements on) and not, and so do its derivatives and silu."""
    x = np.linspace(-ends, ends, count).astype(dtype)
    wide, eps = x.astype(np.longdouble), np.finfo(dtype).eps
    small = np.exp(-abs(wide))
    expected = np.where(wide > 0, 1, small) / (1 + small)
    for function, values in ((fx.nn.sigmoid, expected), (fx.nn.silu, wide * expected)):
        for each in (function, fx.futurize(function)):
            np.testing.assert_allclose(np.asarray(each(x), np.longdouble), values, rtol=4 * eps)
    slope = np.asarray(fx.grad(lambda x: fx.nn.sigmoid(x).sum())(x), np.longdouble)
    np.testing.assert_allclose(slope, expected * (1 - expected), rtol=8 * eps, atol=eps)
    np.testing.assert_allclose(slope[x < 0], (small / (1 + small) ** 2)[x < 0], rtol=8 * eps)
    assert fx.nn.sigmoid(np.array([-np.inf, np.inf, np.nan], dtype)).tolist()[:2] == [0.0, 1.0]


def test_a_sigmoid_takes_numbers_integers_and_complex_arrays():
    for x in (0.3, 3, True, np.arange(3, dtype=np.uint8), np.array([True, False]), np.array([1j, 2.0])):
        expected = 1 / (1 + np.exp(-1.0 * x))
        for found in (fx.nn.sigmoid(x), fx.futurize(fx.nn.sigmoid)(x)):
            np.testing.assert_allclose(found, expected, rtol=1e-15)
            assert np.asarray(found).dtype == np.asarray(expected).dtype


def test_cross_entropy_is_minus_the_log_probability_of_the_label():
    logits, labels = np.random.default_rng(5).normal(size=(6, 4)), np.array([0, 3, 1, 1, 2, 0])
    expected = -special.log_softmax(logits, axis=-1)[np.arange(6), labels]
    np.testing.assert_allclose(fx.nn.softmax_cross_entropy(logits, labels), expected, rtol=1e-12)
    gradient = fx.grad(lambda z: fx.nn.softmax_cross_entropy(z, labels).sum())(logits)
    expected = special.softmax(logits, axis=-1) - np.asarray(fx.nn.one_hot(labels, 4, np.float64))
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-15)


def test_dropout_keeps_the_mean_and_repeats_with_its_key():
    x, key = np.ones((400, 50)), fx.random.key(6)
    kept = np.asarray(fx.nn.dropout(x, 0.25, key))
    assert set(np.unique(kept)) == {0.0, 1 / 0.75}
    assert abs(kept.mean() - 1.0) < 5 * np.sqrt(0.25 / 0.75 / x.size)
    np.testing.assert_array_equal(fx.futurize(lambda x, key: fx.nn.dropout(x, 0.25, key))(x, key), kept)
    assert (np.asarray(fx.nn.dropout(x, 0.25, fx.random.fold(key, 1))) != kept).any()
    np.testing.assert_array_equal(fx.nn.dropout(x, 0.0, key), x)


def test_a_rate_of_an_argument_still_means_what_it_says():
    drop = fx.futurize(lambda x, rate, key: fx.nn.dropout(x, rate, key))
    key = fx.random.key(0)
    np.testing.assert_array_equal(drop(np.ones(50), 0.5, key), fx.nn.dropout(np.ones(50), 0.5, key))


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: fx.nn.conv(np.ones((2, 8, 3)), np.ones((3, 3))), "(2, 8, 3) and w (3, 3)"),
        (lambda: fx.nn.conv(np.ones((2, 8, 3)), np.ones((3, 4, 5))), "(2, 8, 3) and weights of shape (3, 4, 5)"),
        (lambda: fx.nn.conv(np.ones((2, 8, 3)), np.ones((3, 3, 5)), padding="full"), "'full'"),
        (lambda: fx.nn.conv(np.ones((2, 8, 3)), np.ones((3, 3, 5)), stride=(1, 2)), "stride=(1, 2)"),
        (lambda: fx.nn.conv(np.ones((2, 8, 3)), np.ones((3, 3, 5)), padding=-1), "padding=-1"),
        (lambda: fx.nn.max_pool(np.ones((2, 8)), 2), "(2, 8)"),
        (lambda: fx.nn.max_pool(np.ones((2, 8, 1)), 9), "(9,)"),
        (lambda: fx.nn.dense(np.ones((2, 8)), np.ones((7, 3))), "x (2, 8) and w (7, 3)"),
        (lambda: fx.nn.dense(np.ones((2, 8)), np.ones((8, 3)), np.ones(2)), "(2,)"),
        (lambda: fx.nn.layer_norm(np.ones((2, 8)), np.ones(7), np.ones(8)), "(7,)"),
        (lambda: fx.nn.global_average_pool(np.ones((2, 8))), "(2, 8)"),
        (lambda: fx.nn.softmax(np.ones((2, 8)), axis=2), "(2, 8)"),
        (lambda: fx.nn.softmax_cross_entropy(np.ones((2, 8)), np.ones(3, int)), "(2, 8) and labels (3,)"),
        (lambda: fx.nn.dropout(np.ones(3), 1.0, fx.random.key(0)), "(3,)"),
        (lambda: fx.nn.one_hot(np.array([1]), 0), "one_hot: classes must be at least 1, not 0"),
        (lambda: fx.nn.conv(np.ones((2, 8, 3)), np.ones((3, 3, 5)), groups=0), "conv: groups must be at least 1"),
        (lambda: fx.nn.max_pool(np.ones((2, 8, 3)), 2, padding=((1, 1, 1),)), "no pair"),
        (lambda: fx.random.bernoulli(fx.random.key(0), 1.5, (3,)), "1.5"),
        (lambda: fx.random.uniform(fx.random.key(0), (-1,)), "(-1,)"),
        (lambda: fx.random.key(-1), "-1"),
    ],
)
def test_bad_values_raise_value_errors_that_name_them(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: fx.nn.conv([[1.0]], np.ones((1, 1, 1))), "x must be an array, got list"),
        (lambda: fx.nn.softmax_cross_entropy(np.ones((2, 8)), np.ones(2)), "float64"),
        (lambda: fx.nn.one_hot(np.ones(2), 3), "float64"),
        (lambda: fx.random.uniform(3), "fx.random.key"),
        (lambda: fx.random.uniform(np.zeros(2, np.uint64)), "shape (2,)"),
        (lambda: fx.random.fold(fx.random.key(0), 0.5), "float"),
        (lambda: fx.random.key(0.5), "seed must be a whole number, not 0.5"),
        (lambda: fx.random.normal(fx.random.key(0), 2.5), "shape must be a whole number, not 2.5"),
        (lambda: fx.nn.dropout(np.ones(3), 0.5, 7), "dropout: a key is a uint64 scalar, got int"),
        (lambda: fx.nn.dropout(np.ones(3), 0.5, np.random.default_rng(0)), "got Generator; fx.random.key(seed)"),
        (lambda: fx.nn.softmax(np.ones((2, 8)), axis=(0, 1)), "softmax: axis must be a whole number, not (0, 1)"),
        (lambda: fx.nn.conv(np.ones((2, 8, 3)), np.ones((3, 3, 5)), stride="2"), "stride must be a whole number"),
        (lambda: fx.nn.conv(np.ones((2, 8, 3)), np.ones((3, 3, 5)), padding=0.5), "padding must be a whole number"),
        (lambda: fx.nn.max_pool(np.ones((2, 8, 3)), "2"), "max_pool: window must be a whole number, not '2'"),
        (lambda: fx.nn.group_norm(np.ones((2, 8)), 1.5, np.ones(8), np.ones(8)), "groups must be a whole number"),
        (lambda: fx.nn.one_hot(np.array([1]), "3"), "one_hot: classes must be a whole number, not '3'"),
        (lambda: fx.nn.global_max_pool(None), "global_max_pool: x must be an array"),
    ],
)
def test_bad_kinds_raise_type_errors_that_name_them(call, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        call()


def test_keys_are_those_of_splitmix64():
    """The first outputs of the reference implementation (Vigna, prng.di.unimi.it/splitmix64.c) with seed 1234567."""
    reference = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(fx.random.fold(np.uint64(1234567), number)) for number in range(3)] == reference
    assert fx.random.key(1234567) == reference[0]


@settings(max_examples=30)
@given(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1))
def test_folding_is_the_same_staged_or_not(seed, number):
    key = fx.random.key(seed)
    expected = fx.random.fold(key, number)
    assert fx.futurize(fx.random.fold)(key, np.int64(number)).result() == expected
    assert expected.dtype == np.uint64


def test_distributions():
    key = fx.random.key(7)
    u = np.asarray(fx.random.uniform(key, (20_000,), -1.0, 3.0))
    assert stats.kstest(u, stats.uniform(-1, 4).cdf).pvalue > 1e-3
    assert stats.kstest(np.asarray(fx.random.normal(key, 20_000)), stats.norm.cdf).pvalue > 1e-3
    coins = np.asarray(fx.random.bernoulli(key, 0.3, (20_000,)))
    assert coins.dtype == bool
    assert abs(coins.mean() - 0.3) < 5 * np.sqrt(0.21 / 20_000)
    assert fx.random.normal(key, (2,), np.float32).dtype == np.float32
    assert fx.random.bits(key, 3, np.uint64).dtype == np.uint64


def test_a_bias_in_the_place_of_the_stride_is_told_apart():
    x, w, b = np.ones((2, 5, 5, 1)), np.ones((3, 3, 1, 4)), np.zeros(4)
    for layer in (lambda x, w, b: fx.nn.conv(x, w, b), fx.futurize(lambda x, w, b: fx.nn.conv(x, w, b))):
        with pytest.raises(TypeError, match=r"stride must be a number .* array of shape \(4,\); a bias is added"):
            layer(x, w, b)
