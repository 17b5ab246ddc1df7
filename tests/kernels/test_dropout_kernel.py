"""Compiled dropout drops what the reference kernel drops, whatever the key, the start and the number of elements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex.ops  # noqa: F401  (registers the records)
from futurex.kernels.numba_ import NumbaBackend, channels
from futurex.kernels.steps import Row, Workspace
from futurex.tree import Aval, apply, const, param, record

KEY = np.dtype("u8")


def both(x, key, start, rate, threads=1):
    """The results of the compiled kernel and of the reference."""
    inputs = [param(Aval(x.shape, x.dtype)), param(Aval((), KEY)), param(Aval((), np.dtype("i8")))]
    node = apply("dropout", *inputs, rate=rate)
    out = np.full(x.shape, np.nan, x.dtype)
    kernel = NumbaBackend().claim(node, threads)
    assert kernel.call(out, x, np.uint64(key), np.int64(start)) is out
    return out, record("dropout").kernel(x, np.uint64(key), np.int64(start), rate=rate)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3).filter(lambda shape: np.prod(shape) >= 32),
    st.integers(0, 2**64 - 1), st.one_of(st.integers(0, 5), st.sampled_from([2**32 - 4, 2**33])),
    st.sampled_from([0.0, 0.3, 0.5, 0.999]), st.sampled_from(["f4", "f8"]),
)  # fmt: skip
def test_bits_of_the_reference(shape, key, start, rate, dtype):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    np.testing.assert_array_equal(*both(x, key, start, rate))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_groups(threads, monkeypatch):
    monkeypatch.setattr(channels, "PARALLEL_BYTES", 0)
    x = np.random.default_rng(1).normal(size=(50, 21)).astype("f4")
    np.testing.assert_array_equal(*both(x, 11, 8, 0.5, threads))


def test_steps_take_another_key_and_other_arrays():
    start = const(np.int64(4))
    node = apply("dropout", param(Aval((8, 20), np.dtype("f4"))), param(Aval((), KEY)), start, rate=0.5)
    kernel = NumbaBackend().claim(node, 1)
    kernel.late.prepare([-1, -1, -1], wait=True)
    bound = kernel.bind(Workspace())
    rng = np.random.default_rng(2)
    steps = None
    for key in (1, 2, 2**63):
        x, out = rng.normal(size=(8, 20)).astype("f4"), np.empty((8, 20), "f4")
        steps = bound.aim(out, x, np.uint64(key), np.int64(4))
        Row(steps).run()
        np.testing.assert_array_equal(out, record("dropout").kernel(x, np.uint64(key), np.int64(4), rate=0.5))
    assert bound.aim(out, x, np.array(3, KEY), np.int64(4)) is None  # a key that a run computes
    assert bound.aim(out, x[:, ::-1], np.uint64(3), np.int64(4)) is None
    rest = apply("dropout", param(Aval((33,), np.dtype("f4"))), param(Aval((), KEY)), start, rate=0.5)
    assert NumbaBackend().claim(rest, 1).bind is None


def test_few_elements_and_other_dtypes_stay_with_numpy():
    for shape, dtype in (((31,), "f4"), ((), "f8"), ((64,), "f2")):
        node = apply("dropout", param(Aval(shape, np.dtype(dtype))), param(Aval((), KEY)), 0, rate=0.5)
        assert NumbaBackend().claim(node, 1) is None


def test_a_wrong_array_is_refused():
    node = apply("dropout", param(Aval((64,), np.dtype("f4"))), param(Aval((), KEY)), 0, rate=0.5)
    with pytest.raises(ValueError, match="built for"):
        NumbaBackend().claim(node, 1).call(np.empty(64, "f4"), np.empty(65, "f4"), np.uint64(1), 0)
