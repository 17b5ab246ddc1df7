"""What is collected as garbage may have finalizers that use futurex, in the middle of what it does: none waits for a
lock that its own thread holds."""

import subprocess
import sys

import pytest

_COLLECTED = """
import faulthandler, gc
import numpy as np
from futurex.runtime.transport.message import Completion
from futurex.tree import Aval, param
faulthandler.dump_traceback_later(60, exit=True)

class Garbage:
    def __init__(self, act):
        self.act, self.itself = act, self
    def __del__(self):
        global collected
        collected += 1
        self.act()

collected, x = 0, param(Aval((3,), np.dtype("f8")), "x")

def sweep(body, act):  # a collection begins after so many new objects: somewhere in the body, for some of the numbers
    before = gc.get_threshold()
    for objects in range(1, 150):
        Garbage(act)
        gc.set_threshold(gc.get_count()[0] + objects, 1000, 1000)
        body(objects)
        gc.set_threshold(*before)
    assert collected

def waits(number):
    waited = Completion()
    try:
        waited.wait(1e-4)
    except TimeoutError:
        pass
"""


@pytest.mark.parametrize(
    ("body", "act"),
    [("lambda number: x + float(number)", "lambda: x * (2.5 + collected)"), ("waits", "lambda: Completion().finish()")],
    ids=["nodes", "completions"],
)
def test_a_finalizer_in_the_middle_of_what_it_does_itself_waits_for_nothing(body, act):
    """In a process of its own: one that hangs holds the lock for good."""
    program = f"{_COLLECTED}\nsweep({body}, {act})\n"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
