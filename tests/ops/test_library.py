"""Calls of NumPy's own functions: what they give is asked of NumPy, on stand-ins."""

import os
import threading
import warnings

import numpy as np
import pytest

from futurex.ops import library
from futurex.tree.aval import Aval

AVALS = (Aval((3,), np.dtype(float)),)


def test_threads_that_ask_at_once_leave_warnings_as_they_were(monkeypatch):
    before, function = list(warnings.filters), library.as_function
    inside = {name: threading.Event() for name in ("np.sort(_0)", "np.cumsum(_0)")}
    first_is_over = threading.Event()

    def slow(call, count):
        inside[call].set()
        if call == "np.sort(_0)":
            inside["np.cumsum(_0)"].wait(0.3)  # in vain, where one waits for the other
        else:
            first_is_over.wait(60)
        return function(call, count)

    monkeypatch.setattr(library, "as_function", slow)

    def first():
        library._on_stand_ins("np.sort(_0)", AVALS)
        first_is_over.set()

    second = threading.Thread(target=library._on_stand_ins, args=("np.cumsum(_0)", AVALS))
    threads = [threading.Thread(target=first), second]
    threads[0].start()
    assert inside["np.sort(_0)"].wait(60)
    threads[1].start()
    for each in threads:
        each.join(60)
    assert warnings.filters == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_the_warnings_of_its_parent(monkeypatch):
    """Though another thread asks NumPy while the process forks."""
    before, function, inside = list(warnings.filters), library.as_function, threading.Event()

    def slow(call, count):
        inside.set()
        threading.Event().wait(0.1)
        return function(call, count)

    monkeypatch.setattr(library, "as_function", slow)
    other = threading.Thread(target=library._on_stand_ins, args=("np.sort(_0)", AVALS))
    other.start()
    assert inside.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if warnings.filters == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other.join(60)
