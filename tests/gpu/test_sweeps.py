"""Regions with reductions among them: every one is generated kernels, and gives what NumPy gives."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.cuda_ import REDUCTIONS, emulation, source
from futurex.kernels.cupy_ import CupyBackend, devices, regions
from futurex.kernels.cupy_.reductions import Reduction
from futurex.runtime.device import DevicePlan

pytestmark = pytest.mark.skipif(
    emulation.compiler() is None and devices._missing() is not None, reason="no C++ compiler is on the path, and no GPU"
)


def standardised(x):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


PROGRAMS = {
    "softmax": fx.nn.softmax,
    "layer norm": lambda x: fx.nn.layer_norm(x, x[0] * 0 + 1, x[0]),
    "mean square of rows": lambda x: (x * x).mean(axis=1),
    "of columns": lambda x: (x * x).sum(axis=0),
    "of columns, twice": lambda x: (np.tanh(x).sum(axis=0), (x * x).max(axis=0)),
    "of all": lambda x: np.sqrt((x * x).sum()),
    "largest of what is shifted": lambda x: (x + 1).max(axis=(0, 1)),
    "any and all": lambda x: ((x > 3).any(axis=1), (x < 9).all()),
    "standardised": standardised,
    "two reductions of one value": lambda x: (np.tanh(x).sum(axis=1), np.tanh(x).max(axis=1), np.tanh(x)),
    "spread along the other axis": lambda x: x[:, :1] - np.tanh(x).sum(axis=1),
    "numbers of rows beside whole values": lambda x: (np.exp(x - x.max(axis=1, keepdims=True)), x.max(axis=1) * 2 + 1),
    "given numbers of rows": lambda x: (x * x[:, :1] + x[0] - (x * x[:, 1:2]).sum(axis=1, keepdims=True)) * 2,
    "several axes": lambda x: standardised(x.reshape(8, 8, 300).transpose(1, 0, 2).reshape(8, 8, 300)),
    "one row": lambda x: x[0] / np.sqrt((x[0] * x[0]).sum()),
    "loss": lambda x: fx.nn.softmax_cross_entropy(x, np.arange(64) % 300).mean(),
}


IN_ONE = {
    "softmax", "layer norm", "standardised", "two reductions of one value", "numbers of rows beside whole values",
    "given numbers of rows", "several axes", "mean square of rows", "one row", "loss",
}  # fmt: skip
"""Those whose rows one kernel takes."""


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_region_with_reductions(name, dtype):
    """Rows take turns in blocks of threads: the emulated device has fewer blocks than rows."""
    x = np.random.default_rng(0).normal(size=(64, 300)).astype(dtype)
    graph = fx.futurize(lambda x: PROGRAMS[name](x)).trace(x).graph
    plan = DevicePlan(graph, resident=False)
    expected = graph(x)
    for result, reference in zip(plan.run([x]), expected, strict=True):
        assert np.asarray(result).dtype == np.asarray(reference).dtype
        np.testing.assert_allclose(result, reference, rtol=2e-4 if dtype == "f4" else 1e-11, atol=1e-5)
    sweeps = [step.kernel.call for step in plan.instructions if step.node.op == "fused_reduction"]
    assert [kernel.backend for kernel in sweeps] == ["cuda"] * len(sweeps)
    assert sweeps or name == "loss"
    assert any(kernel._kernel._whole is not None for kernel in sweeps) == (name in IN_ONE), name


@pytest.mark.parametrize("dtype", ["i4", "u1", "i8"])
def test_rows_of_integers_and_truth_values_have_numpys_bits(dtype):
    def program(x):
        least = x.min(axis=-1, keepdims=True)
        named = (x > 99).any(axis=-1, keepdims=True)
        return x - least, np.where(named, x, least) * 3, (x * x).sum(axis=-1), named & (x == least)

    x = np.random.default_rng(0).integers(0, 200, (3, 5, 70)).astype(dtype)
    plan = DevicePlan(fx.futurize(program).trace(x).graph, resident=False)
    for result, reference in zip(plan.run([x]), program(x), strict=True):
        assert result.dtype == reference.dtype
        np.testing.assert_array_equal(result, reference)
    assert any(step.kernel.call._kernel._whole is not None for step in plan.instructions if "fused" in step.node.op)


def test_reductions_of_the_same_elements_are_one_kernel():
    """Those that wait for the result of another are not; dtypes and what is combined may differ."""

    def program(x, y):
        z = x * y
        first = z.sum(axis=0)
        return first, np.tanh(z).max(axis=0), (z > 2).any(axis=0), ((z - first / 64) * y).sum(axis=0)

    x, y = np.random.default_rng(0).normal(size=(2, 64, 40))
    graph = fx.futurize(program).trace(x, y).graph
    plan = DevicePlan(graph, resident=False)
    for result, reference in zip(plan.run([x, y]), program(x, y), strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-11)
    sweeps = [step.kernel.call._kernel for step in plan.instructions if step.node.op == "fused_reduction"]
    kernels = [kernel for sweep in sweeps for _, _, kernel in sweep._steps if isinstance(kernel, Reduction)]
    assert [len(kernel.outs) for kernel in kernels] == [3, 1]


def test_the_gradient_of_batch_normalisation_sums_in_one_trip():
    def loss(x, w, scale, shift):
        return (fx.nn.batch_norm(x @ w, scale, shift)[0] ** 3).mean()

    rng = np.random.default_rng(0)
    args = rng.normal(size=(200, 32)), rng.normal(size=(32, 32)), rng.normal(size=32), rng.normal(size=32)
    plan = DevicePlan(fx.futurize(fx.grad(loss, argnums=(0, 2, 3))).trace(*args).graph, resident=False)
    for result, reference in zip(plan.run([*args]), fx.grad(loss, argnums=(0, 2, 3))(*args), strict=True):
        np.testing.assert_allclose(result, np.asarray(reference), rtol=1e-9, atol=1e-12)
    calls = [step.kernel.call for step in plan.instructions if step.node.op == "fused_reduction"]
    sums = [kernel for call in calls for _, _, kernel in call._kernel._steps if isinstance(kernel, Reduction)]
    assert [len(kernel.outs) for kernel in sums] == [2]


@pytest.mark.parametrize("axis", [0, 1, (0, 1), 2, None], ids=str)
@pytest.mark.parametrize("dtype", ["?", "i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_a_reduction_alone_is_generated(name, dtype, axis, device):
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(40, 33, 64)) if dtype[0] == "f" else rng.integers(0, 2, (40, 33, 64))
    x = drawn.astype(dtype)
    x[3, 5, 7] = np.nan if dtype[0] == "f" else 0
    graph = fx.futurize(lambda x: getattr(x, name)(axis=axis)).trace(x).graph
    [node] = [each for each in graph.nodes if each.op == name]
    kernel = CupyBackend(device).claim(node, 1)
    result = kernel.call(None, device.to_device(x))
    expected = getattr(x, name)(axis=axis)
    assert kernel.call.backend == "cuda"
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(device.to_host(result), expected, rtol=1e-3 if dtype == "f4" else 1e-9)


@pytest.mark.parametrize("name", ["softmax", "of columns, twice", "largest of what is shifted", "several axes"])
def test_arrays_of_more_than_a_billion_elements_have_numbers_of_64_bits(name, monkeypatch):
    x = np.random.default_rng(0).normal(size=(64, 300)).astype("f4")
    graph = fx.futurize(lambda x: (PROGRAMS[name](x), x[:, ::-1] * x[0])).trace(x).graph
    texts = []
    for few in (source._FEW, 0):
        monkeypatch.setattr(source, "_FEW", few)
        monkeypatch.setattr(regions, "_kernels", {})
        results = DevicePlan(graph, resident=False).run([x])
        texts.append([text for _, text in regions._kernels])
        for result, reference in zip(results, graph(x), strict=True):
            np.testing.assert_allclose(result, reference, rtol=2e-4, atol=1e-5)
    assert all(text.startswith("#define INDEX signed int") for text in texts[0])
    assert not any("#define INDEX signed int\n" in text for text in texts[1])


def test_no_rows_are_no_error():
    x = np.zeros((0, 40), np.float32)
    assert np.asarray(fx.futurize(fx.nn.softmax, device="gpu")(x)).shape == (0, 40)
