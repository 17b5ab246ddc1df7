"""Compiled random numbers are those of the reference kernels, whatever the key, the start and how many there are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, channels
from futurex.tree import Aval, apply, param, record

KEY = np.dtype("u8")
KINDS = [
    ("random_bits", "u4"), ("random_bits", "u8"), ("random_uniform", "f4"), ("random_uniform", "f8"),
    ("random_normal", "f4"), ("random_normal", "f8"),
]  # fmt: skip


def check(name, dtype, shape, key, start, threads=1):
    """The compiled numbers are those of the reference; normal ones to units in the last place of two functions."""
    inputs = [param(Aval((), KEY)), param(Aval((), np.dtype("i8")))]
    node = apply(name, *inputs, shape=shape, dtype=np.dtype(dtype))
    kernel, out = NumbaBackend().claim(node, threads), np.zeros(shape, dtype)
    assert kernel.call(out, np.uint64(key), np.int64(start)) is out
    expected = record(name).kernel(np.uint64(key), np.int64(start), shape=shape, dtype=np.dtype(dtype))
    if name == "random_normal":
        np.testing.assert_allclose(out, expected, rtol=8 * np.finfo(dtype).eps, atol=1e-15)
    else:
        np.testing.assert_array_equal(out, expected)
    return kernel


@pytest.mark.parametrize(("name", "dtype"), KINDS)
@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 20), max_size=3).map(tuple), key=st.integers(0, 2**64 - 1),
    start=st.one_of(st.integers(0, 5), st.sampled_from([2**32 - 4, 2**33])),
)  # fmt: skip
def test_numbers_of_the_reference(name, dtype, shape, key, start):
    check(name, dtype, shape, key, start if shape else 0)


@pytest.mark.parametrize(("name", "dtype"), KINDS)
def test_threads_share_the_blocks(name, dtype, monkeypatch):
    monkeypatch.setattr(channels, "PARALLEL_BYTES", 0)
    kernel = check(name, dtype, (301, 37), 2**63 + 11, 8, 2)
    assert kernel.call.threads == 2


def test_halves_stay_with_numpy():
    node = apply("random_normal", param(Aval((), KEY)), 0, shape=(64,), dtype=np.dtype("f2"))
    assert NumbaBackend().claim(node, 1) is None


def test_noise_in_a_step_is_compiled():
    def noisy(x, key):
        return (x + fx.random.normal(key, x.shape, dtype=x.dtype)).sum()

    x, key = np.zeros((40, 7), np.float32), fx.random.key(3)
    plan = fx.futurize(noisy).trace(x, key).plan
    plan.prepare(wait=True)
    assert {each.node.op: each.kernel.backend for each in plan.instructions}["random_normal"] == "numba"
    np.testing.assert_allclose(plan.run([x, key])[0], noisy(x, key), rtol=1e-5)
