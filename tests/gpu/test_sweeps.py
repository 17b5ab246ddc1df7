"""Regions with reductions among them: every one is generated kernels, and gives what NumPy gives."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.cuda_ import emulation
from futurex.runtime.device import DevicePlan

pytestmark = pytest.mark.skipif(emulation.compiler() is None, reason="no C++ compiler is on the path")


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
    "loss": lambda x: fx.nn.softmax_cross_entropy(x, np.arange(64) % 300).mean(),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_region_with_reductions(name, dtype):
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
