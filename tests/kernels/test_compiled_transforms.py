"""Fourier transforms, frames, windows and singular values inside compiled functions have NumPy's bits."""

import numpy as np
import pytest
from compare import compiled

import futurex as fx

RNG = np.random.default_rng(0)
REAL, SINGLE = RNG.normal(size=(3, 5, 12)), RNG.normal(size=(4, 9)).astype(np.float32)
WAVE, SPECTRUM = RNG.normal(size=40), RNG.normal(size=(5, 7)) + 1j * RNG.normal(size=(5, 7))
INTEGERS = RNG.integers(-9, 9, (6, 8))


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("x", "n", "axis", "norm"),
    [(REAL, None, -1, None), (REAL, 7, 1, "ortho"), (SINGLE, None, 0, "forward"), (SINGLE, 5, 1, None),
     (WAVE, 41, 0, "forward"), (SPECTRUM, 9, 0, None), (SPECTRUM.astype(np.complex64), None, 1, "ortho"),
     (INTEGERS, None, -1, None)],
)  # fmt: skip
def test_transforms(name, x, n, axis, norm, at_once):
    if name == "rfft" and x.dtype.kind == "c":
        pytest.skip("NumPy refuses complex numbers")
    transform = getattr(np.fft, name)
    compiled(lambda x: transform(x[::-1] * 2, n, axis, norm)[..., ::2] + 1, x)


FRAMES = 4 + np.arange(8)[None, :] + 5 * np.arange(6)[:, None]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[FRAMES] * 2 + x[:8],
        lambda x: x[FRAMES.T[::-1].copy()].sum() + x,
        lambda x: x[np.array([-1, -3, -5])] + x[:3],
        lambda x: x.reshape(8, 5)[np.array([1, 3, 5])] - x[:5],
        lambda x: x[np.array([7])] * x + x[np.array([3, 3, 3])].sum(),
        lambda x: x[np.array([1, 2, 4, 8])] + x[:4],
        lambda x: np.lib.stride_tricks.sliding_window_view(x * 2, 7)[::3].sum(axis=1) + x[:12],
        lambda x: np.lib.stride_tricks.sliding_window_view((x + 1).reshape(5, 8), (2, 3)).sum(axis=(2, 3)) * 3,
    ],
)
def test_frames(function, at_once):
    compiled(function, WAVE)


def test_an_index_out_of_bounds(at_once):
    f = fx.futurize(lambda x, k: (x * 2)[np.array([0, 41]) - k] + 1)
    for _ in range(4):
        assert np.asarray(f(WAVE, 2)).tolist() == (WAVE[[-2, 39]] * 2 + 1).tolist()
    with pytest.raises(IndexError, match="index 41 is out of bounds"):
        np.asarray(fx.futurize(lambda x: (x * 2)[np.array([0, 41])] + 1)(WAVE))


MATRIX = RNG.normal(size=(7, 4))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    "x",
    [MATRIX, MATRIX.T.copy(), MATRIX.astype(np.float32), RNG.normal(size=(3, 2, 5, 5)), np.outer(WAVE[:6], WAVE[:3])],
)
def test_singular_values(x, full, at_once):
    def product(x):
        u, s, v = np.linalg.svd(x[..., ::-1] * 2, full_matrices=full)
        return np.concatenate([u.ravel() + 1, s.ravel(), abs(v).ravel()])

    compiled(product, x)


def test_a_singular_value_decomposition_that_does_not_converge(at_once):
    f = fx.futurize(lambda x: np.linalg.svd(x * 2, full_matrices=False)[1] + 1)
    for _ in range(4):
        assert np.asarray(f(MATRIX)).tobytes() == (np.linalg.svd(MATRIX * 2, full_matrices=False)[1] + 1).tobytes()
    with pytest.raises(np.linalg.LinAlgError, match="SVD did not converge"):
        np.asarray(f(np.full_like(MATRIX, np.nan)))
