"""Settings shared by every test."""

import gc
import os
import time

import pytest
from hypothesis import HealthCheck, settings

# What is tested are the compiled kernels, from the first call on; tests of what happens until then say so themselves.
os.environ.setdefault("FUTUREX_COMPILE", "wait")

# How long an example takes depends on who else uses the machine: it is no evidence of a fault.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples at every run, so that a change is judged by what it changes; look for new ones with
# `pytest --hypothesis-profile=explore`.
settings.register_profile("futurex", settings.get_profile("explore"), derandomize=True)
settings.load_profile("futurex")


def pytest_collection_finish():
    """Forty thousand tests stay to the end: no collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def at_once(monkeypatch):
    """Plans of small arrays are compiled as one function after their first run, and that function is taken."""
    for name, value in {"WORTH": 0.0, "FEWEST": 1, "TRIALS": 1, "_BETTER": 1e9}.items():
        monkeypatch.setattr(f"futurex.runtime.whole.{name}", value)
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")


@pytest.fixture
def nothing_is_compiled(monkeypatch, tmp_path):
    """No kernel has code, in memory or on disk, and calls do not wait for any."""
    from futurex.kernels import compiling

    end = time.monotonic() + 60.0
    while compiling.background._thread is not None:  # what it still makes for others would be found on this disk
        assert time.monotonic() < end, "the compiler does not come to an end"
        time.sleep(0.005)
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    monkeypatch.setenv("FUTUREX_COMPILE", "background")
    monkeypatch.setattr("futurex.kernels.numba_.compiler._entries", {})


@pytest.fixture(params=[True, False], ids=["waits", "meanwhile"])
def either_way(request, monkeypatch):
    """Do calls wait for their plan? Otherwise the first ones go as plain NumPy."""
    if request.param:
        monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    else:
        monkeypatch.setenv("FUTUREX_COMPILE", "background")
