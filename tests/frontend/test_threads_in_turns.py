"""Threads whose calls change one list, dict or object lose nothing of what the others have done."""

import contextlib
import sys
import threading
import time

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import turns

X = np.ones(4)


@fx.futurize
def appends(entries, x):
    entries.append(x.sum())
    return len(entries)


@fx.futurize
def appends_in_a_dict(nest, x):
    nest["seen"].append(x[0] * 2)
    return x * 2


@fx.futurize
def counts(model, x):
    model.count = model.count + 1
    return x + model.count


class Model:
    count = 0


@pytest.fixture(autouse=True)
def threads_change_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(work, threads=4):
    errors = []

    def run(number):
        try:
            for k in range(40):
                work(number * 1000 + k)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert errors == []


def test_a_list_that_threads_append_to():
    for _ in range(3):
        entries, staged = [], fx.futurize(appends.plain)
        together(lambda k, entries=entries, staged=staged: staged(entries, X))
        assert [float(each) for each in entries] == [4.0] * 160


def test_a_list_in_a_dict():
    nest = {"seen": []}
    together(lambda k: appends_in_a_dict(nest, np.full(3, float(k))))
    assert {float(each) for each in nest["seen"]} == {2.0 * (1000 * a + b) for a in range(4) for b in range(40)}


def test_a_counter_of_an_object():
    model = Model()
    together(lambda k: counts(model, 1.0))
    assert model.count == 160


def test_two_that_wait_for_each_other_go_on(monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    entries, gate = [], threading.Event()
    for _ in range(5):
        appends(entries, X)
    lock = turns.turn_of(appends, (entries,))

    def hold():
        with lock:
            gate.set()
            threading.Event().wait(0.5)

    other = threading.Thread(target=hold)
    other.start()
    gate.wait()
    assert appends(entries, X) == 6
    other.join()
    assert len(entries) == 6


@fx.futurize
def appends_to_both(first, second, x):
    first.append(x[0])
    return appends(second, x) + len(sorted(x.tolist()))


def test_calls_in_calls_do_not_wait_for_each_other():
    began, a, b = time.perf_counter(), [], []
    for _ in range(5):
        appends_to_both(a, b, X)

    def work(k):
        with contextlib.suppress(IndexError, KeyError, StopIteration, ValueError):  # lists that others change meanwhile
            appends_to_both(a, b, X) if k % 2 else appends_to_both(b, a, X)

    together(work, 2)
    assert time.perf_counter() - began < 20 * turns.PATIENCE


def test_a_list_is_never_seen_empty():
    entries, stop, seen = [X], threading.Event(), []

    def look():
        while not stop.is_set():
            seen.append(len(entries))

    @fx.futurize
    def replaces(entries, x):
        entries[0] = entries[0] * x[0]
        return x

    watching = threading.Thread(target=look)
    watching.start()
    for _ in range(200):
        replaces(entries, X)
    stop.set()
    watching.join()
    assert set(seen) <= {1}


def test_what_runs_as_plain_numpy_does_not_wait():
    """After a few calls, in which nothing was staged."""
    inside, most = [], []

    def waits(x, box):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        return memoryview(x.tobytes())[0]

    f = fx.futurize(waits)
    together(lambda k: f(X, None), 4)
    assert max(most[80:]) > 1
    assert "runs as plain NumPy" in f.explain()
