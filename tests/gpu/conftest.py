"""The device that the tests of this folder run on: a GPU where there is one, else its emulation."""

import os

import pytest

from futurex.kernels.cupy_ import devices


@pytest.fixture(autouse=True)
def _emulated_without_gpu(monkeypatch):
    if devices._missing() is not None:
        monkeypatch.setenv("FUTUREX_GPU", "emulated")


@pytest.fixture(autouse=True)
def _a_process_with_a_gpu():
    """After some errors no call of the driver succeeds: pytest-xdist lets another process go on with the next test."""
    yield
    if devices._missing() is None and "PYTEST_XDIST_WORKER" in os.environ:
        try:
            devices._cuda().xp.cuda.Device().synchronize()
        except RuntimeError:
            os._exit(1)


@pytest.fixture
def device():
    return devices.device()
