"""One budget of threads: no library works on more of them than the process may use."""

import os
import subprocess
import sys

import pytest

from futurex.kernels.blas_threads import blas_threads

SIDE = """
import os, time
import numpy as np
import futurex as fx
from futurex.kernels.blas_threads import blas_threads

def work():
    found = {}
    for task in os.listdir("/proc/self/task"):
        fields = open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()
        found[task] = int(fields[11]) + int(fields[12])
    return found

rng = np.random.default_rng(0)
wide, single, flat = rng.normal(size=(400, 400)), rng.normal(size=(400, 400)).astype("f4"), rng.normal(size=1 << 20)
kinds = {
    "BLAS": (lambda x: x @ x, wide), "LAPACK": (lambda x: np.linalg.solve(x, x), wide),
    "products in single precision": (lambda x: np.tanh(x @ x), single),
    "a region and a sum": (lambda x: np.sum(np.exp(x) * 2.0 - x), flat),
    "branches": (lambda x: np.tanh(x @ x) + np.tanh((x * 2.0) @ x) + np.tanh((x * 3.0) @ x), single),
}
for name, (function, x) in kinds.items():
    call = fx.futurize(function)
    call(x).result()
    before, first = work(), time.process_time()
    while time.process_time() - first < 0.4:
        call(x).result()
    grown = {task: ticks - before.get(task, 0) for task, ticks in work().items()}
    busy = sum(ticks > 0.1 * sum(grown.values()) for ticks in grown.values())
    print(name, busy, max(blas_threads(), default=1), sep="|")
"""


def measure(budget):
    environment = {**os.environ, "FUTUREX_THREADS": str(budget), "FUTUREX_COMPILE": "wait"}
    environment.pop("OPENBLAS_NUM_THREADS", None)
    command = [sys.executable, "-c", SIDE]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert not found.returncode, found.stderr
    return [line.split("|") for line in found.stdout.splitlines()]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="threads are counted as Linux shows them")
def test_a_budget_of_one_thread_is_one_thread_at_work():
    """The caller or the one worker, which take turns; no thread of a library beside them."""
    rows = measure(1)
    assert len(rows) == 5
    for name, busy, blas in rows:
        assert int(busy) <= 2, name
        assert int(blas) == 1, name


def test_a_smaller_number_of_threads_stays():
    """What a user has asked of OpenBLAS is not raised."""
    text = "from futurex.kernels.blas_threads import *; keep_blas_within(64); print(max(blas_threads(), default=1))"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", f"import numpy; {text}"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert found.stdout.strip() == "1"
    assert all(each >= 1 for each in blas_threads())
