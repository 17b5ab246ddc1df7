"""Mean and variance of columns by one kernel, and batch normalisation by it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.cuda_ import emulation
from futurex.kernels.cupy_ import devices, moments, reductions
from futurex.kernels.cupy_.devices import Device
from futurex.runtime.device import DevicePlan
from futurex.tree import Aval, apply, param

pytestmark = pytest.mark.skipif(
    emulation.compiler() is None and devices._missing() is not None, reason="no C++ compiler is on the path, and no GPU"
)


def found(device, x):
    node = apply("moments", param(Aval(x.shape, x.dtype)))
    kernel = moments.kernel_for(device, node)
    return [device.to_host(each) for each in kernel(device.to_device(x))]


def expected(x):
    wide = x.reshape(-1, x.shape[-1]).astype(np.longdouble)
    return wide.mean(axis=0), wide.var(axis=0)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 700), st.integers(16, 80), st.sampled_from(["f4", "f8"]), st.floats(-1e3, 1e3), st.integers(0, 99),
    st.sampled_from([1, 8, 64]),
)  # fmt: skip
def test_moments_are_those_of_the_columns(rows, columns, dtype, apart, seed, processors):
    """Far from zero, too, where squares less the square of the mean would leave nothing."""
    from futurex.kernels.cupy_.devices import device

    here = Device(device().xp, device().kind)
    here.__dict__["processors"] = processors  # of which several blocks share the rows of a column
    x = (np.random.default_rng(seed).normal(size=(rows, columns)) + apart).astype(dtype)
    mean, variance = found(here, x)
    assert mean.dtype == variance.dtype == x.dtype
    exact = 3e-5 if dtype == "f4" else 1e-11
    np.testing.assert_allclose(mean, expected(x)[0].astype(dtype), rtol=exact, atol=exact)
    np.testing.assert_allclose(variance, expected(x)[1].astype(dtype), rtol=30 * exact, atol=exact)


def test_several_blocks_share_a_column(device, monkeypatch):
    monkeypatch.setattr(reductions, "_WORTH_A_PART", 32)
    here = Device(device.xp, device.kind)
    here.__dict__["processors"] = 7
    x = np.random.default_rng(0).normal(size=(40, 50, 33)).astype("f4") * np.arange(33, dtype="f4") + 5
    assert reductions.parts_of(here, 2, 2000 * 32) == 28
    for result, reference in zip(found(here, x), expected(x), strict=True):
        np.testing.assert_allclose(result, reference.astype("f4"), rtol=1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_finite_is_as_numpy_has_it(device):
    x = np.ones((200, 16), "f4") + np.arange(16, dtype="f4")
    x[3, 0], x[7, 1], x[9, 2], x[11, 2], x[:, 3], x[5, 4] = np.inf, np.nan, np.inf, -np.inf, 3e38, -np.inf
    mean, variance = found(device, x)
    reference = x.mean(axis=0)
    np.testing.assert_array_equal(mean[:5], reference[:5])
    np.testing.assert_array_equal(variance[:5], np.square(x - reference).mean(axis=0)[:5])


@pytest.mark.parametrize("dtype", ["", "bfloat16"])
@pytest.mark.parametrize("shape", [(4, 6, 7, 32), (300, 17), (2, 9, 16)], ids=str)
def test_batch_normalisation_trains_as_on_the_host(shape, dtype):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=shape).astype("f4") + 2, rng.normal(size=(shape[-1], shape[-1])).astype("f4")
    scale, shift = rng.normal(size=(2, shape[-1])).astype("f4")

    def loss(x, w, scale, shift):
        h, mean, variance = fx.nn.batch_norm(x @ w, scale, shift)
        return (np.maximum(h, 0) ** 2).mean() + mean.sum() + variance.sum()

    step = fx.value_and_grad(loss, argnums=(0, 1, 2, 3))
    there = fx.futurize(step, device="gpu")
    there = fx.autocast(there, dtype) if dtype else there
    (value, grads), (reference, slopes) = there(x, w, scale, shift), step(x, w, scale, shift)
    near = 4e-2 if dtype else 2e-4
    np.testing.assert_allclose(float(value), float(reference), rtol=near)
    for mine, theirs in zip(grads, slopes, strict=True):
        wanted = np.asarray(theirs)
        np.testing.assert_allclose(np.asarray(mine), wanted, rtol=near, atol=near * np.abs(wanted).max())


def test_training_reads_what_is_normalised_twice():
    def normalised(x, scale):
        return np.maximum(fx.nn.batch_norm(x, scale, scale)[0], 0)

    x = np.random.default_rng(0).normal(size=(8, 6, 7, 32)).astype("f4")
    plan = DevicePlan(fx.futurize(normalised).trace(x, x[0, 0, 0]).graph, resident=False)
    [result] = plan.run([x, x[0, 0, 0]])
    np.testing.assert_allclose(result, normalised(x, x[0, 0, 0]), rtol=1e-3, atol=1e-5)
    large = [step for step in plan.instructions if any(source.shape == x.shape for source in step.node.inputs)]
    assert [(step.node.op, step.kernel.call.backend) for step in large] == [("moments", "cuda"), ("fused", "cuda")]
    written = [step for step in plan.instructions if isinstance(step.node.aval, Aval) and step.node.shape == x.shape]
    assert len(written) == 1
