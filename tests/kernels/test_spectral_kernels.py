"""Transforms as sums of few terms: the programs against matrices in float64, and their code on every kind of width."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex.ops  # noqa: F401  (registers the records)
from futurex.kernels.numba_ import NumbaBackend, channels
from futurex.kernels.numba_.linear import Program, negative
from futurex.kernels.numba_.spectra import map_of
from futurex.ops.spectra import factors, matrix_of, period_of, rank_of
from futurex.tree import Aval, apply, param

MAPS = [(which, back) for which in ("weights", "positions", "results") for back in (False, True)]


def values(program, results, inputs):
    """What the terms are, in float64."""
    found = []
    for step in program.steps:
        match step.kind:
            case "input":
                found.append(float(inputs[step.first]))
            case "scale":
                found.append(step.constant * found[step.first])
            case "add":
                found.append(found[step.first] + found[step.second])
            case "sub":
                found.append(found[step.first] - found[step.second])
    return np.array([0.0 if term is None else term[0] * found[term[1]] for term in results])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.booleans(), st.integers(0, 99))
def test_a_program_transforms_as_numpy_does(n, real, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=2 * n)
    program = Program()
    inputs = [(program.input(k), None if real else program.input(n + k)) for k in range(n)]
    terms = [part for pair in program.transform(inputs) for part in pair]
    got = values(program, terms, x).reshape(n, 2) @ [1, 1j]
    expected = np.fft.fft(x[:n] + (0 if real else 1j * x[n:]))
    assert np.abs(got - expected).max() <= 3e-7 * np.linalg.norm(x)  # its constants are in single precision


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 12), st.integers(0, 5), st.integers(0, 5), st.sampled_from(MAPS))
def test_a_map_is_its_matrix_with_less_work(outputs, taps, low, high, kind):
    length = outputs + taps - 1 - low - high
    if length < 1:
        return
    matrix = matrix_of(*kind, outputs, taps, length, low).astype(float)
    found = map_of(*kind, outputs, taps, length, low)
    x = np.random.default_rng(0).normal(size=matrix.shape[1])
    got = values(found.program, found.results, x)
    assert np.abs(got - matrix @ x).max() <= 5e-7 * np.linalg.norm(x)
    if period_of(outputs, taps) == 72 and min(matrix.shape) > 60:
        assert len(found.live()) < matrix.size / 5


def test_periods_have_small_factors_where_that_costs_few_products():
    for outputs in range(1, 150):
        period = period_of(outputs, 10)
        assert outputs + 9 <= period
        assert rank_of(period) <= 1.02 * rank_of(outputs + 9)
        assert factors(period)[-1] <= factors(outputs + 9)[-1]
    assert [period_of(62, 10), period_of(11, 10), period_of(2, 10)] == [72, 20, 11]
    assert [factors(n) for n in (1, 2, 12, 71)] == [(1,), (2,), (2, 2, 3), (71,)]


def test_equal_steps_are_one_and_signs_are_none():
    program = Program()
    x, y = program.input(0), program.input(1)
    assert program.sub(x, y) == negative(program.sub(y, x))
    assert program.add(program.scale(-1.0, x), y) == program.sub(y, x)
    assert program.scale(np.cos(np.pi / 2), x) is None
    assert program.add(None, x) == x
    assert [step.kind for step in program.steps] == ["input", "input", "sub"]


def run(node, array, threads=1):
    kernel = NumbaBackend().claim(node, threads)
    kernel.late.prepare((), wait=True)
    out = np.full(node.shape, np.nan, node.dtype)
    assert kernel.call(out, array) is out
    assert not kernel.late.interpreted
    return out


@pytest.mark.parametrize("rest", [(16,), (3, 7), (2, 100)])
@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("sizes", [(62, 10, 71, 0), (11, 10, 20, 0), (2, 10, 11, 0), (30, 7, 29, 3), (1, 5, 1, 2)])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_code_is_as_exact_as_a_product_in_single_precision(sizes, kind, rest, threads, monkeypatch):
    monkeypatch.setattr(channels, "PARALLEL_BYTES", 0)
    attrs = dict(zip(("which", "back", "outputs", "taps", "length", "low"), (*kind, *sizes), strict=True))
    matrix = matrix_of(**attrs)
    x = np.random.default_rng(1).normal(size=(matrix.shape[1], *rest)).astype("f4")
    node = apply("spectral_map", param(Aval(x.shape, x.dtype)), **attrs)
    got = run(node, x, threads)
    expected = (matrix.astype(float) @ x.reshape(len(x), -1)).reshape(node.shape)
    assert np.abs(got - expected).max() <= 1e-6 * np.abs(matrix).max() * np.linalg.norm(x, axis=0).max()
    if threads > 1:
        np.testing.assert_array_equal(got, run(node, x))  # the bits do not depend on who computes them


@pytest.mark.parametrize(("shape", "dtype"), [((11, 15), "f4"), ((11, 32), "f8"), ((11, 0), "f4")])
def test_what_has_no_vectors_is_left_to_numpy(shape, dtype):
    attrs = {"which": "positions", "back": False, "outputs": 2, "taps": 10, "length": 11, "low": 0}
    node = apply("spectral_map", param(Aval(shape, np.dtype(dtype))), **attrs)
    assert NumbaBackend().claim(node, 1) is None


def test_a_nan_stays_in_its_column():
    attrs = {"which": "positions", "back": False, "outputs": 2, "taps": 10, "length": 11, "low": 0}
    x = np.ones((11, 20), "f4")
    x[3, 17] = np.nan
    got = run(apply("spectral_map", param(Aval(x.shape, x.dtype)), **attrs), x)
    assert np.isnan(got[:, 17]).all()
    assert np.isfinite(np.delete(got, 17, axis=1)).all()
