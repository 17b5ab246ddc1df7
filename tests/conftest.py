"""Settings shared by every test."""

import gc
import os
import sys
import time

import numpy as np
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


_states = {}
"""Of the random generators that modules of tests have, as they were when the module had been loaded."""


def pytest_collection_finish(session):
    """Forty thousand tests stay to the end: no collection of garbage need look at them again."""
    for module in {item.module for item in session.items if hasattr(item, "module")}:
        found = [value for value in vars(module).values() if isinstance(value, np.random.Generator)]
        _states[module] = [(each, each.bit_generator.state) for each in found]
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def numbers_of_its_own(request):
    """What a test draws does not depend on which tests of its module came before it in this process."""
    for generator, state in _states.get(getattr(request, "module", None), ()):
        generator.bit_generator.state = state


def under_way():
    """Does a thread of futurex still work for somebody: the compiler's, or one that runs plans?"""
    compiling, local = (sys.modules.get(f"futurex.{name}") for name in ("kernels.compiling", "runtime.local"))
    if compiling is not None and compiling.background._thread is not None:
        return True
    if local is None or not local.executor.cache_info().currsize:
        return False
    budget = local.executor()._budget
    return bool(budget.running or budget.waiting)


@pytest.fixture(autouse=True)
def nothing_is_under_way():
    """A test begins when threads have ended what those before it have left to them: they would be in what it counts,
    records and measures, and might warn in its place."""
    end = time.monotonic() + 120.0
    while under_way():
        assert time.monotonic() < end, "what a test before this one began does not come to an end"
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def traces_are_worth_their_time(monkeypatch):
    """Whether traces of objects that are gone took longer than plain calls would have is a matter of the machine."""
    monkeypatch.setattr("futurex.frontend.brake.TRIED", float("inf"))


@pytest.fixture
def at_once(monkeypatch):
    """Plans of small arrays are compiled as one function after their first run, and that function is taken."""
    for name, value in {"WORTH": 0.0, "FEWEST": 1, "TRIALS": 1, "_BETTER": 1e9}.items():
        monkeypatch.setattr(f"futurex.runtime.whole.{name}", value)
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")


@pytest.fixture
def nothing_is_compiled(nothing_is_under_way, monkeypatch, tmp_path):
    """No kernel has code, in memory or on disk, and calls do not wait for any."""
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
