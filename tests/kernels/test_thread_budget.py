"""One budget of threads: no library works on more of them than the process may use."""

import contextlib
import os
import select
import statistics
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from futurex.kernels import blas_threads as of_blas
from futurex.kernels.blas_threads import blas_threads
from futurex.kernels.numpy_ import NumpyBackend
from futurex.tree import apply, param
from futurex.tree.aval import aval_of

pytestmark = pytest.mark.onednn

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


def wanting(pid):
    """How many threads of a process run or wait for a processor."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            count += (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    return count


def measure(budget):
    """What the side says of each kind, and how many of its threads wanted a processor at once, half of the time."""
    environment = {**os.environ, "FUTUREX_THREADS": str(budget), "FUTUREX_COMPILE": "wait"}
    environment.pop("OPENBLAS_NUM_THREADS", None)
    rows, seen = [], []
    command = [sys.executable, "-u", "-c", SIDE]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as side:
        while True:
            if not select.select([side.stdout], [], [], 0.003)[0]:
                seen.append(wanting(side.pid))
                continue
            line = side.stdout.readline()
            if not line:
                break
            rows.append([*line.split("|"), statistics.median(seen or [0])])
            seen = []
    assert not side.returncode
    return rows


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="threads are counted as Linux shows them")
@pytest.mark.parametrize("budget", [1, 2])
def test_no_more_threads_are_at_work_than_the_budget_has(budget):
    """With one it is the caller's or the one worker's, which take turns; no thread of a library beside them."""
    rows = measure(budget)
    assert len(rows) == 5
    for name, busy, blas, at_once in rows:
        assert budget > 1 or int(busy) <= 2, name
        assert int(blas) <= budget, name
        assert at_once <= budget, name


def test_a_smaller_number_of_threads_stays():
    """What a user has asked of OpenBLAS is not raised."""
    text = "from futurex.kernels.blas_threads import *; keep_blas_within(64); print(max(blas_threads(), default=1))"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", f"import numpy; {text}"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert found.stdout.strip() == "1"
    assert all(each >= 1 for each in blas_threads())


def test_openblas_works_alone_until_the_last_call_ends(monkeypatch):
    calls, threads, first, second = [], [4], threading.Event(), threading.Event()

    def change(count):
        calls.append(count)
        threads[0] = count

    def waiting():
        first.set()
        assert second.wait(60)

    monkeypatch.setattr(of_blas, "_first", lambda: (lambda: threads[0], change))
    other = threading.Thread(target=of_blas.alone(waiting))
    other.start()
    assert first.wait(60)
    assert of_blas.alone(lambda: threads[0])() == 1
    assert calls == [1]
    second.set()
    other.join(60)
    assert calls == [1, 4]
    with pytest.raises(KeyError):
        of_blas.alone({}.__getitem__)(0)
    assert calls == [1, 4, 1, 4]


def test_what_an_interrupt_left_is_done_by_the_next_call(monkeypatch):
    threads = [4]
    monkeypatch.setattr(of_blas, "_first", lambda: (lambda: threads[0], lambda count: threads.__setitem__(0, count)))
    of_blas._enter()
    assert threads == [1]
    of_blas.alone(lambda: None)()
    assert threads == [4]


@pytest.mark.parametrize(("rows", "columns", "one"), [(31, 4, 0), (32, 4, 1), (5, 256, 1), (257, 8, 0)])
def test_matrices_that_one_thread_factorises(rows, columns, one, monkeypatch):
    """On which several gain nothing, but for their turning behind it."""
    entered = []
    monkeypatch.setattr(of_blas, "_enter", lambda: entered.append(1))
    x = np.random.default_rng(0).normal(size=(rows, columns))
    for name, attrs in (("qr", {"mode": "reduced"}), ("svdvals", {"hermitian": False})):
        node = apply(name, param(aval_of(x)), **attrs)
        kernel = NumpyBackend().claim(node, 4)
        results = kernel.call(None, x), node.record.kernel(x, **attrs)
        found, wanted = results if name == "qr" else ([each] for each in results)
        assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))
        assert kernel.threads == (1 if one else 4)
    assert len(entered) == 2 * one


def test_a_child_has_the_threads_of_its_parent():
    """Which forked while another thread was in such a block."""
    text = """
import os
import numpy
import threading
from futurex.kernels.blas_threads import *
before, end, begun = blas_threads(), threading.Event(), threading.Event()
other = threading.Thread(target=alone(lambda: begun.set() or end.wait(60)))
other.start()
begun.wait(60)
assert min(blas_threads(), default=1) == 1
child = os.fork()
if not child:
    os._exit(blas_threads() != before)
end.set()
other.join(60)
assert os.waitpid(child, 0)[1] == 0 and blas_threads() == before
"""
    subprocess.run([sys.executable, "-c", text], timeout=300, check=True)


@pytest.mark.parametrize(
    ("shapes", "dtype", "one"),
    [
        (((100, 30), (30, 20)), "d", 0), (((100, 50), (50, 40)), "d", 1), (((200, 200), (200, 200)), "d", 1),
        (((300, 300), (300, 300)), "d", 0), (((26, 26), (26, 26)), "D", 1), (((150, 150), (150, 150)), "D", 0),
        (((5, 40, 40), (40, 40)), "d", 0), (((100, 50), (50,)), "d", 0),
    ],
)  # fmt: skip
def test_short_products_are_made_by_one_thread(shapes, dtype, one, monkeypatch):
    entered = []
    monkeypatch.setattr(of_blas, "_enter", lambda: entered.append(1))
    x, y = (np.ones(shape, dtype) for shape in shapes)
    node = apply("matmul", param(aval_of(x)), param(aval_of(y)))
    kernel, out = NumpyBackend().claim(node, 4), np.empty(node.shape, dtype)
    assert np.array_equal(kernel.call(out, x, y), x @ y)
    assert len(entered) == one
    assert kernel.threads == (1 if one else 4)


@pytest.mark.parametrize(("name", "shape", "one"), [("inv", (64, 64), 1), ("inv", (65, 65), 0), ("inv", (2, 65, 65), 1),
                                                    ("det", (256, 256), 1), ("det", (257, 257), 0)])  # fmt: skip
def test_single_matrices_that_several_threads_invert(name, shape, one):
    kernel = NumpyBackend().claim(apply(name, param(aval_of(np.ones(shape)))), 4)
    assert (kernel.threads == 1 or kernel.parts > 1) == bool(one)
