"""Programs over complex arrays: their elementwise parts are compiled regions, with NumPy's bits."""

import os
import subprocess
import sys

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import ducc
from futurex.kernels.numba_ import complexes

pytestmark = pytest.mark.skipif(not complexes.known(), reason="NumPy multiplies without fused multiply-add here")
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(60, 50)) + 1j * RNG.normal(size=(60, 50))
W = RNG.normal(size=(60, 50)) + 1j * RNG.normal(size=(60, 50))
X = RNG.normal(size=(60, 50))


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")


def escape_times(c):
    z, steps = np.zeros_like(c), np.zeros(c.shape, int)
    for _ in range(4):
        inside = np.abs(z) <= 2
        steps = steps + inside
        z = np.where(inside, z * z + c, z)
    return steps, z


def phasors(x, z):
    return np.abs((x + 2j) * z - 1j * z.conj()) ** 2 + z.real * z.imag


def filtered(x):
    spectrum = np.fft.fft(x, axis=1) * np.exp(-np.arange(50) / 9.0)
    return np.fft.ifft(spectrum, axis=1).real * 2.0 + 1.0, np.abs(spectrum) ** 2


def quotients(z, w):
    return (z + 1) / (w - 1j) * 0.5, -z / 3 + w, +z == w


def parts(z):
    w = z * 2 + 1
    return w.real, w.imag * 2 + w.real, w


def broadcast(z):
    return z * z[0] + z[:, :1] / 2, z * z[0, 0] - 1


def single(z, x):
    w = z.astype(np.complex64)
    v = np.conj(w * x.astype(np.float32)) + np.float32(2)
    return v * 1j, np.isfinite(v) & (np.abs(v) > 1), np.square(v) + z, v.astype(bool)


def written(z, w):
    v = z.copy()
    v *= w
    v += 1
    v.real += 3
    v.imag[:] = v.real
    return v * v - w / 2 + v


def sums(z):
    return np.sum(z.real**2 + z.imag**2, axis=1), (z * z + 1).sum()


def bits(array):
    """Of an array without NaN."""
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize(
    ("function", "args"),
    [(escape_times, (Z,)), (phasors, (X, Z)), (filtered, (X,)), (quotients, (Z, W)), (parts, (Z,)), (broadcast, (Z,)),
     (single, (Z, X)), (written, (Z, W)), (sums, (Z,))],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_programs_have_numpys_bits_in_regions(function, args, monkeypatch):
    monkeypatch.setattr(ducc, "LEAST", 1 << 30)  # whose transforms have others
    staged = fx.futurize(function)
    expected = function(*args)
    found = staged(*args)
    several = isinstance(expected, tuple)
    for each, other in zip(found if several else (found,), expected if several else (expected,), strict=True):
        assert each.dtype == other.dtype
        assert each.shape == other.shape
        assert bits(each) == bits(other)
    nodes = [each.node for each in staged.trace(*args).plan.instructions]
    regions = [node for node in nodes if node.op in ("fused", "fused_reduction")]
    assert regions
    alone = {node.op for node in nodes if node.record.elementwise and node.size >= 256}
    assert not alone & {"add", "multiply", "divide", "absolute", "conjugate", "subtract"}


def test_a_cast_that_warns_stays_numpys():
    staged = fx.futurize(lambda z: (z * 2 + 1).astype(float) + 1)
    with pytest.warns(np.exceptions.ComplexWarning):
        found = np.asarray(staged(Z))
    assert bits(found) == bits((Z * 2 + 1).real + 1)


PROGRAM = """
import numpy as np
import futurex as fx
z = np.linspace(1, 2, 7000) * (1 + 0.3j)
f = lambda z: (z * z.conj() - z) / (z + 2) * np.abs(z)
assert np.asarray(fx.futurize(f)(z)).tobytes() == f(z).tobytes()
"""


@pytest.mark.parametrize("without", ["X86_V4 AVX512_ICL", "X86_V3 X86_V4 AVX512_ICL"])
def test_numpys_choice_of_loops_is_followed(without):
    """NumPy may be told to leave out instructions that the processor has."""
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": without, "FUTUREX_COMPILE": "wait"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
