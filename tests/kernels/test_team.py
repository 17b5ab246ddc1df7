"""Kernels on a team of threads: every ticket is done once, whoever does it, however many come to do it."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_ import NumbaBackend
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.team import MOST_TICKETS, TICKET_BYTES, Share, team
from futurex.kernels.numba_.tickets import LONE
from futurex.kernels.steps import Row
from futurex.kernels.threads import may_share
from futurex.tree import Aval, Graph, apply, param

pytestmark = pytest.mark.skipif(not may_share(), reason="one thread, but on Linux")


def counting():
    """A kernel that adds one to each of its numbers, and to the number of its ticket in a second array."""
    code = Code()
    for array, first, last in (("x", "%low", "%high"), ("seen", "%ticket", code.add("%ticket", "1"))):
        with code.loop(first, last) as (k, _):
            place = code.at("i64", f"%{array}", k)
            code.run(f"store i64 {code.add(code.do(f'load i64, ptr {place}'), '1')}, ptr {place}")
    return compiled(module([("i64", "count"), ("ptr", "x"), ("ptr", "seen")], code, threaded=True))


def counted(share, times, count=1000):
    x, seen = np.zeros(count, np.int64), np.zeros(share.tickets, np.int64)
    block = np.array([count, address_of(x), address_of(seen)], np.int64)
    held, entry = block.tobytes(), counting()
    row = Row([entry.step(address_of(block), share)])
    for k in range(times):
        if k % 2:
            row.run()
        else:
            entry.on_threads(held, share)
    np.testing.assert_array_equal(x, times)
    np.testing.assert_array_equal(seen, times)


@pytest.mark.parametrize("threads, tickets", [(2, 2), (2, 8), (3, 3), (4, 64), (3, 1), (2, 1000)])
@pytest.mark.parametrize("brief", [False, True])
def test_every_ticket_is_done_once(threads, tickets, brief):
    counted(Share(threads, tickets, brief), 40)


def test_threads_that_find_the_team_at_work_do_all_tickets_themselves():
    failures = []

    def work(threads):
        try:
            counted(Share(threads, 4 * threads), 300)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=work, args=(2 + k % 2,)) for k in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert not any(each.is_alive() for each in callers)
    assert not failures


def until(seen, seconds=60):
    """Let others run until something is seen."""
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        os.sched_yield()


def test_brief_calls_let_a_helper_sleep_until_they_are_many():
    counted(Share(2, 2), 1)  # there is one
    for _ in range(2 * LONE + 2):
        until(lambda: team().asleep(0))
        before = team().passed
        counted(Share(2, 2, brief=True), 1)
        assert team().passed == (before + 1 if before < LONE else 0)
    until(lambda: team().asleep(0))
    counted(Share(2, 2), 1)
    assert team().passed == 0


def test_a_helper_that_slept_for_nothing_looks_longer_until_it_sleeps_long():
    deadline = time.monotonic() + 60
    counted(Share(2, 2), 1)  # there is one

    def call_when_asleep(after):
        until(lambda: team().asleep(0))
        time.sleep(after)
        counted(Share(2, 2), 1)

    while not team().looks_longer(0):
        assert time.monotonic() < deadline
        call_when_asleep(0)
    call_when_asleep(0.01)
    until(lambda: not team().looks_longer(0))


BITS = """
import sys, threading
import numpy as np
import futurex as fx

@fx.futurize
def region(x, w):
    h = np.maximum(x @ w, 0)
    return np.tanh(h).sum(axis=0), h * 2 - x[:, :400], (h ** 2).sum()

rng = np.random.default_rng(0)
x, w = rng.normal(size=(600, 500)).astype("f4"), rng.normal(size=(500, 400)).astype("f4")
print(len(set(tuple(np.asarray(each).tobytes() for each in region(x, w)) for _ in range(30))))
"""


def test_the_bits_do_not_depend_on_who_comes():
    """Results of thirty calls, in a process that ends while helpers look for work."""
    environment = {**os.environ, "FUTUREX_THREADS": "2", "FUTUREX_COMPILE": "wait"}
    found = subprocess.run([sys.executable, "-c", BITS], env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.split()) == (0, ["1"]), found.stderr




IN_TURN = """
define void @region(ptr %block, i64 %t, i64 %c) {
entry:
  %seen.at = getelementptr i64, ptr %block, i64 1
  %caller = icmp eq i64 %t, 0
  %others = sub i64 %c, 1
  br i1 %caller, label %wait, label %note
wait:
  %n = phi i64 [ 0, %entry ], [ %n.next, %wait ]
  %n.next = add i64 %n, 1
  %done = load atomic i64, ptr %block seq_cst, align 8
  %all = icmp uge i64 %done, %others
  %late = icmp ugt i64 %n, 20000000000
  %over = or i1 %all, %late
  br i1 %over, label %leave, label %wait
note:
  %k = atomicrmw add ptr %block, i64 1 seq_cst
  %place = getelementptr i64, ptr %seen.at, i64 %k
  store i64 %t, ptr %place, align 8
  br label %leave
leave:
  ret void
}
"""


def test_a_helper_begins_at_the_end():
    """Who calls is at work on the first ticket until all others are done."""
    block = np.zeros(10, np.int64)
    Row([compiled(IN_TURN).step(address_of(block), Share(2, 9))]).run()
    assert block.tolist() == [8, 8, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("moved", [1000, 600_000, 3_000_000, 10**9])
@pytest.mark.parametrize("pieces", [1, 2, 3, 20, 10**6])
def test_a_ticket_is_worth_taking(threads, moved, pieces):
    share = Share.of(threads, moved, pieces)
    assert share.tickets <= max(threads, pieces)
    assert share.tickets == 1 if threads == 1 else threads <= share.tickets <= MOST_TICKETS * threads
    assert share.tickets <= threads or moved // share.tickets >= TICKET_BYTES


def _functions(x):
    return [apply("tanh", x) * x + apply("exp", -x)]


def _rows(x):
    return [x / apply("sum", x * x, axis=(1,), keepdims=True, dtype=None)]


def _columns(x):
    return [apply("sum", x * x, axis=(0,), keepdims=False, dtype=None)]


@pytest.mark.parametrize("made", [_functions, _rows, _columns])
@pytest.mark.parametrize("shape", [(401, 1024), (3001, 333)])
def test_parts_of_a_call_make_the_same_bits(made, shape):
    values = np.random.default_rng(0).normal(size=shape).astype("f4")
    x = param(Aval(shape, values.dtype), "x")
    graph = Graph([x], made(x), "part")
    op = "fused" if made is _functions else "fused_reduction"
    found = []
    for threads in (1, 2, 3, 7):
        kernel = NumbaBackend().claim(apply(op, param(x.aval), graph=graph), threads)
        out = np.empty(graph.outs[0].shape, values.dtype)
        kernel.call.prepare([-1], wait=True)
        kernel.call(out, values)
        assert kernel.call.interpreted == 0
        found.append(out.tobytes())
        tickets = kernel.call.share.tickets
        assert tickets > threads or made is _columns or threads == 1 or values.nbytes < 2 * threads * TICKET_BYTES
    assert len(set(found)) == 1
