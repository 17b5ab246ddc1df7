"""The device that the tests of this folder run on: a GPU where there is one, else its emulation."""

import pytest

from futurex.kernels.cupy_ import devices


@pytest.fixture(autouse=True)
def _emulated_without_gpu(monkeypatch):
    if devices._missing() is not None:
        monkeypatch.setenv("FUTUREX_GPU", "emulated")


@pytest.fixture
def device():
    return devices.device()
