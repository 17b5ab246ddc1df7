"""Forward mode, made from the op records alone: equal to reverse mode, and to differences, for every op."""

import numpy as np
import pytest
from op_cases import cases, copies, generator

from futurex.autodiff import jvp, pullback
from futurex.tree.verify import verify

CASES = [case for case in cases() if case.sample.order]


def random_like(rng, value):
    array = np.asarray(value)
    noise = rng.normal(size=array.shape)
    if array.dtype.kind == "c":
        noise = noise + 1j * rng.normal(size=array.shape)
    return noise.astype(array.dtype)[()]


def pairing(cotangents, tangents):
    """Re(sum(cotangent * tangent)), the pairing by which cotangents are defined."""
    return sum(float(np.real(np.sum(g * t))) for g, t in zip(cotangents, tangents, strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_mode_is_the_transpose_of_reverse_mode(case):
    rng, graph, inputs = generator(str(case)), case.graph, list(case.inputs)
    wrt = [k for k, node in enumerate(graph.params) if node.aval.inexact]
    live = [k for k, node in enumerate(graph.outs) if node.aval.inexact]
    directions = [random_like(rng, inputs[k]) for k in wrt]
    outs = verify(jvp(graph, wrt))(*copies(inputs), *directions)
    values, tangents = outs[: len(graph.outs)], outs[len(graph.outs) :]
    for value, reference in zip(values, graph(*copies(inputs)), strict=True):
        np.testing.assert_array_equal(value, reference)
    for k, tangent in zip(live, tangents, strict=True):
        assert np.shape(tangent) == np.shape(values[k])
        assert tangent.dtype == graph.outs[k].dtype
    seeds = [random_like(rng, values[k]) for k in live]
    cotangents = pullback(graph, wrt)(*copies(inputs), *seeds)
    np.testing.assert_allclose(pairing(seeds, tangents), pairing(cotangents, directions), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_mode_is_the_numerical_derivative(case):
    rng, graph, inputs, step = generator(str(case)), case.graph, list(case.inputs), 1e-6
    wrt = [k for k, node in enumerate(graph.params) if node.aval.inexact]
    live = [k for k, node in enumerate(graph.outs) if node.aval.inexact]
    directions = dict(zip(wrt, [random_like(rng, inputs[k]) for k in wrt], strict=True))
    tangents = jvp(graph, wrt)(*copies(inputs), *directions.values())[len(graph.outs) :]

    def moved(by):
        return graph(*(x + by * directions[k] if k in directions else x for k, x in enumerate(copies(inputs))))

    ahead, behind = moved(step), moved(-step)
    for k, tangent in zip(live, tangents, strict=True):
        expected = (np.asarray(ahead[k]) - behind[k]) / (2 * step)
        np.testing.assert_allclose(tangent, expected, rtol=2e-5, atol=2e-6)
