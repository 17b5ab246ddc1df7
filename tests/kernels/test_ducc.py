"""Fourier transforms by DUCC: NumPy's values within a few units of the largest, whatever lies how."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import ducc
from futurex.kernels.ducc import LEAST, LONG, DuccBackend
from futurex.kernels.numpy_ import NumpyBackend
from futurex.tree import Aval, apply, param

pytest.importorskip("ducc0", reason="DUCC is not installed")
NORMS = [None, "backward", "ortho", "forward"]
OPS = {"fft": "fdFD", "ifft": "fdFD", "rfft": "fd", "irfft": "FD"}


def node_of(op, x, n=None, axis=1, norm=None):
    given = x.shape[axis]
    n = n or (2 * given - 2 if op == "irfft" else given)
    return apply(op, param(Aval(x.shape, x.dtype)), n=n, axis=axis, norm=norm)


def array(kind, shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if kind in "FD" else x).astype(kind)


def close(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    most = np.abs(expected).max() * np.finfo(expected.dtype).eps
    assert np.abs(found - expected).max() <= 8 * most


@pytest.fixture
def _of_any_size(monkeypatch):
    monkeypatch.setattr(ducc, "LEAST", 1)


def run(node, x, threads=1):
    kernel = DuccBackend().claim(node, threads)
    assert kernel is not None
    out = np.full(node.shape, 77, node.dtype)
    assert kernel.call(out, x) is out
    return out


@pytest.mark.usefixtures("_of_any_size")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_it_has_numpys_values(op, axis):
    for kind in OPS[op]:
        x = array(kind, (6, 35, 8))
        for norm in NORMS:
            node = node_of(op, x, axis=axis, norm=norm)
            close(run(node, x), getattr(np.fft, op)(x, node.attrs["n"], axis, norm))
    if op == "irfft":  # of an odd length
        node = node_of(op, x, 2 * x.shape[axis] - 1, axis)
        close(run(node, x), np.fft.irfft(x, node.attrs["n"], axis))


@pytest.mark.usefixtures("_of_any_size")
def test_operands_may_lie_in_any_way():
    whole = array("D", (20, 30, 4))
    bytes_ = np.zeros(8 * 16 * 16 + 4, np.uint8)
    odd = np.ndarray((8, 16), np.complex128, bytes_, 4)
    odd[...] = array("D", (8, 16))
    fixed = array("d", (8, 16))
    fixed.flags.writeable = False
    for x in (whole[::-2, 3:, 1], whole[..., 0].T, np.broadcast_to(whole[0, :, 0], (5, 30)), odd, fixed):
        close(run(node_of("fft", x), x), np.fft.fft(x))
    x = array("D", (8, 16))
    expected = np.fft.ifft(x)
    kernel = DuccBackend().claim(node_of("ifft", x), 1)
    assert kernel.inplace == (0,)
    close(kernel.call(x, x), expected)


@pytest.mark.usefixtures("_of_any_size")
def test_infinities_and_nan_stay_in_their_rows():
    x = array("d", (40, 16))
    x[3, 5], x[20, 0] = np.nan, np.inf
    found = run(node_of("fft", x), x)
    clean = np.isfinite(x).all(axis=1)
    assert np.isfinite(found[clean]).all()
    assert not np.isfinite(found[~clean]).any()


@pytest.mark.usefixtures("_of_any_size")
def test_what_it_does_not_know_is_numpys():
    x = array("D", (4, 9))
    assert DuccBackend().claim(node_of("fft", x, 8), 1) is None
    assert DuccBackend().claim(node_of("irfft", x, 14), 1) is None
    for dtype in ("i8", "g", "G", ">f8", "e", "?"):
        x = np.ones((4, 9), dtype)
        assert DuccBackend().claim(node_of("fft", x), 1) is None
    x = array("D", (0, 9))
    assert DuccBackend().claim(node_of("fft", x), 1) is None
    x = array("d", (4, 9))
    assert DuccBackend().claim(node_of("fft", x), 1) is not None
    assert DuccBackend().claim(apply("sqrt", param(Aval(x.shape, x.dtype))), 1) is None


def test_few_numbers_have_numpys_bits():
    for size, claimed in ((LEAST - 1, False), (LEAST, True)):
        x = array("d", (1, size))
        assert (DuccBackend().claim(node_of("rfft", x), 1) is not None) == claimed


@pytest.mark.parametrize("kind", "FD")
def test_parts_hold_the_bits_of_the_whole(kind):
    for shape, axis in (((101, 512), 1), ((512, 101), 0), ((40, 64, 33), 2)):
        x = array(kind, shape)
        node = node_of("fft", x, axis=axis)
        kernel = DuccBackend().claim(node, 2)
        assert kernel.parts == 2
        for _ in range(8):  # either way, in turns
            assert kernel.call(np.empty_like(x), x).tobytes() == run(node, x).tobytes()


def test_threads_share_a_long_single_transform():
    long, short = array("D", (LONG,)), array("D", (LONG // 2,))
    assert DuccBackend().claim(node_of("fft", long, axis=0), 2).threads == 2
    assert DuccBackend().claim(node_of("fft", short, axis=0), 2).threads == 1
    close(run(node_of("fft", long, axis=0), long, threads=2), np.fft.fft(long))


def test_a_futurized_function_transforms_by_it():
    def filtered(x, h):
        return np.fft.irfft2(np.fft.rfft2(x) * h)

    x, h = array("d", (96, 128)), np.linspace(0, 1, 65)
    futurized = fx.futurize(filtered, escape="error")
    close(np.asarray(futurized(x, h)), filtered(x, h))
    assert "ducc" in {row.backend for row in futurized.profile()}


@pytest.mark.usefixtures("_of_any_size")
def test_without_it_numpy_transforms(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert DuccBackend.if_available() is None
    x = array("D", (4, 9))
    kernel = NumpyBackend().claim(node_of("fft", x), 1)
    np.testing.assert_array_equal(kernel.call(np.empty_like(x), x), np.fft.fft(x))
