"""A process that has used the package forks: the child computes on, and what the parent computes fails in it."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

PREAMBLE = """
import faulthandler, multiprocessing, os, sys, threading, time
import numpy as np
import futurex as fx
from futurex.runtime.futures import Future
from futurex.runtime.local import executor

@fx.futurize
def energy(x):
    return (np.tanh(x @ x) ** 2).sum() + np.exp(x[0]).sum()

ARRAYS = [np.full((n, n), 1 / n, dtype) for n in (8, 300) for dtype in (np.float32, np.float64)]

def energies():
    return [float(energy(x)) for x in ARRAYS] + [float(fx.grad(energy)(x).sum()) for x in ARRAYS]
"""

POOL = """
if __name__ == "__main__":
    here = energies()
    elsewhere = threading.Thread(target=energies)  # a thread with helpers of its own
    elsewhere.start()
    elsewhere.join()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        there = [each.get(100) for each in [pool.apply_async(energies) for _ in range(2)]]
    np.testing.assert_allclose(there, [here, here], rtol=1e-5)
    np.testing.assert_allclose(energies(), here, rtol=1e-5)
    print("equal")
"""

PENDING = """
argument = Future()
[waiting] = executor().submit(energy.trace(ARRAYS[0]).plan, [argument])
child = os.fork()
if not child:
    if not waiting.done():  # nobody in this process will ever complete it
        os._exit(3)
    try:
        waiting.result(timeout=100)
    except RuntimeError as error:
        print(error, flush=True)
        os._exit(0 if float(energy(ARRAYS[0])) > 0 else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
argument.set_result(ARRAYS[0])
np.testing.assert_allclose(waiting.result(timeout=100), energy.plain(ARRAYS[0]), rtol=1e-5)  # the parent goes on
"""

FORKED = """
elsewhere = threading.Thread(target=energies)
elsewhere.start()
begun.wait(100)
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(60, exit=True)  # it would wait for ever
    print("computed" if all(map(np.isfinite, energies())) else "", flush=True)
    os._exit(0)
go_on.set()
elsewhere.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""

TRACED = """
from futurex.frontend import staging
begun, go_on, parent, trace_call = threading.Event(), threading.Event(), os.getpid(), staging.trace_call

def slowly(*args):
    begun.set()
    return trace_call(*args) if os.getpid() != parent or go_on.wait(100) else None

staging.trace_call = slowly
"""
LOADED = """
begun, go_on, parent = threading.Event(), threading.Event(), os.getpid()

class Slow:
    def find_spec(self, name, path, target=None):
        if name == MODULE and os.getpid() == parent:
            begun.set()
            time.sleep(0.5)

sys.meta_path.insert(0, Slow())
"""
CASES = [
    (POOL, "equal"), (PENDING, "under way when the process forked"), (TRACED + FORKED, "computed"),
    (LOADED.replace("MODULE", "'futurex.kernels.blas'") + FORKED, "computed"),
    (LOADED.replace("MODULE", "'llvmlite.binding'") + FORKED, "computed"),
]  # fmt: skip


@pytest.mark.parametrize("rest, said", CASES, ids=["pool", "pending", "traced", "backends", "compiler"])
def test_a_child_computes_on(tmp_path, rest, said):
    script = tmp_path / "script.py"
    script.write_text(PREAMBLE + rest)
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    assert said in run.stdout
