"""Lists of numbers come back alike from staged calls and from plain ones, and hold what Python gives."""

import os
import signal
import threading

import numpy as np
import pytest
import returned_lists as lists
from choosing import alike, compare_soon, settle
from hypothesis import given, settings
from hypothesis import strategies as st
from returned_lists import ACT, COMPUTE, KNOWN

import futurex as fx
from futurex.frontend import array, choice, inflight
from futurex.runtime.futures import Done
from futurex.tree.pytree import flatten

X = np.array([0.5, -0.2, 1.5, 2.5, -0.5, 3.0, 0.1])


def as_plain(result, wanted):
    """Does a result hold what Python gives, of its types?"""
    (mine, nest), (other, others) = flatten(result), flatten(wanted)
    assert nest == others
    for one, two in zip(mine, other, strict=True):
        one = one.result() if isinstance(one, fx.Array) else one
        assert type(one) is type(two)
        np.testing.assert_array_equal(one, two)


class Both:
    """A function that has settled on plain calls, and one that stays staged."""

    def __init__(self, monkeypatch, function, *args):
        with monkeypatch.context() as patch:
            compare_soon(patch)
            self.plain, self.staged = fx.futurize(function), fx.futurize(function)
            self.staged(*args)
            settle(self.plain, *args)

    @property
    def is_plain(self):
        taken = self.plain._lane.choice
        return taken.plain and taken.open


@pytest.mark.parametrize("function", COMPUTE)
def test_plain_calls_give_what_staged_ones_give(monkeypatch, function):
    both = Both(monkeypatch, function, X)

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(st.lists(st.floats(-4, 4) | st.just(np.nan), min_size=len(X), max_size=len(X)).map(np.array))
    def compared(x):
        try:
            wanted = function(x)
        except IndexError:  # of a list that is empty
            with pytest.raises(IndexError):
                both.staged(x)
            with pytest.raises(IndexError):
                both.plain(x)
            both.plain._lane.choice.open = both.plain._lane.choice.plain = True
            return
        plain, staged = both.plain(x), both.staged(x)
        assert both.is_plain
        alike(plain, staged)
        as_plain(plain, wanted)

    compared()
    for x in (-np.ones(7), X.astype(np.float32), X[:3], np.arange(12) % 3 - 1.0):
        plain, staged = both.plain(x), both.staged(x)
        alike(plain, staged)
        as_plain(plain, function(x))


@pytest.mark.parametrize("function", ACT)
def test_calls_that_act_do_so_once_either_way(monkeypatch, function, capsys):
    def called(f):
        seen, rng = [], np.random.default_rng(3)
        for k in range(30):
            x = np.cos(np.arange(7.0) * k) + (k % 5 == 0)
            try:
                result = f(x, rng) if function is lists.drawn else f(x)
                seen.append(([(type(each), float(each)) for each in result], x.tolist()))
            except ValueError as error:
                seen.append((str(error), x.tolist()))
        return seen, rng.random(), capsys.readouterr().out

    more = [np.random.default_rng(0)] if function is lists.drawn else []
    both = Both(monkeypatch, function, X.copy(), *more)
    capsys.readouterr()
    plain = called(both.plain)
    assert both.is_plain or function is lists.refused
    assert plain == called(both.staged)
    assert {kind for found, _ in plain[0] if type(found) is list for kind, _ in found} == {fx.Array}


def test_an_error_now_and_then_is_no_reason_to_go_staged(monkeypatch):
    both = Both(monkeypatch, lists.refused, X)

    def fail():
        with pytest.raises(ValueError, match="too many of them"):
            np.asarray(both.plain(np.ones(7)))

    for bad in range(5):
        fail()
        for _ in range(40):
            both.plain(X)
        assert both.is_plain, bad
    for _ in range(20):
        fail()
    assert not both.is_plain


@pytest.mark.parametrize("function", [lists.picked, lists.both_sides, lists.pairs])
def test_what_somebody_else_holds_comes_back_the_long_way(monkeypatch, function):
    """Lists that somebody holds, and those beside an array that is held, are looked at otherwise; nobody sees it."""
    both = Both(monkeypatch, function, X)
    taken, kept = both.plain._lane.choice, function(X)
    for make in (lambda: function(X), lambda: (*map(list, kept),) if function is lists.both_sides else kept):
        alike(taken._looked([make()], (X,), {}), both.staged(X))


def test_an_entry_of_another_type_ends_the_choice(monkeypatch):
    both = Both(monkeypatch, lists.picked, X)
    taken = both.plain._lane.choice
    for other in ([1.5], [np.float32(1)], [np.float64(1), 2], (), None, [[np.float64(1)]], [(np.float64(1),)]):
        with pytest.raises(choice.Misfit):
            taken.call(lambda other=other: other, (), {})


def test_an_entry_is_a_future_as_any_other():
    f = fx.futurize(lists.comprehended)
    entry, *others = f(X)
    assert repr(entry) == "fx.array(1.)"
    assert entry.done()
    assert not entry.cancel()
    assert not entry.cancelled()
    assert entry.exception() is None
    assert entry.result(timeout=1) is entry.result()
    assert entry.as_future().result() == 1.0
    assert float(fx.futurize(lambda a: a + 1)(entry)) == 2.0
    assert float(entry + others[0]) == 4.0
    seen = []
    entry.add_done_callback(seen.append)
    assert seen == [entry]
    assert entry in {entry}


def test_all_who_ask_for_the_future_of_a_number_get_the_same_one():
    entry, found = fx.futurize(lists.comprehended)(X)[0], set()
    ready = threading.Barrier(8)

    def ask():
        ready.wait()
        found.add(id(entry._future))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 1


LONG = np.cos(np.arange(40.0)) * 3


@pytest.mark.parametrize("function", KNOWN)
def test_lists_of_known_length_are_the_same_each_way(monkeypatch, function):
    both = Both(monkeypatch, function, LONG)
    calls = [both.staged(LONG + 1) for _ in range(5)]  # the long way and the short one
    plain = both.plain(LONG + 1)
    assert both.is_plain
    for each in calls:
        alike(plain, each)
        as_plain(each, function(LONG + 1))
    special = LONG.copy()
    special[[3, 11, 17]] = np.nan, np.inf, -0.0
    others = [] if function is lists.two_loops else [special]  # no int is a NaN
    for x in (*others, LONG.astype(np.float32), LONG[:23]):
        as_plain(both.plain(x), function(x))
        alike(both.plain(x), both.staged(x))


@pytest.mark.parametrize("function", KNOWN)
def test_entries_may_be_still_on_their_way(monkeypatch, function):
    expected = fx.futurize(function)(LONG)
    monkeypatch.setattr(inflight, "SHORT", 0.0)
    monkeypatch.setattr(inflight, "WORTH", 0.0)
    f = fx.futurize(function)
    for _ in range(30):  # by workers, and by whoever waits
        alike(f(LONG), expected)


def test_entries_of_a_run_that_failed_tell_of_it(monkeypatch):
    monkeypatch.setattr(inflight, "SHORT", 0.0)
    monkeypatch.setattr(inflight, "WORTH", 0.0)
    f = fx.futurize(lists.inverses)
    as_plain(f(LONG), lists.inverses(LONG))
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            f(np.arange(40.0))[7].result()


def test_a_list_is_one_result_of_the_run():
    results = {lists.doubled: 1, lists.numbered: 4, lists.with_start: 2, lists.two_loops: 1, lists.running: 1}
    for function, count in results.items():
        assert len(fx.futurize(function).graph(LONG).outs) == count


def test_long_lists_of_known_length_have_the_short_way(monkeypatch):
    both = Both(monkeypatch, lists.doubled, np.arange(1500.0))
    for _ in range(4):
        alike(both.plain(np.arange(1500.0)), both.staged(np.arange(1500.0)))
    assert both.staged._lane.pack is not None


def test_dicts_of_hundreds_of_numbers_have_the_short_way():
    f, x = fx.futurize(lists.by_number), np.arange(450.0)
    for _ in range(5):
        as_plain(f(x), lists.by_number(x))
    assert f._lane.pack is not None
    assert f._lane.choice is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_makes_futures_whatever_its_parent_was_about_to_do():
    entry = fx.futurize(lists.comprehended)(X)[0]
    with array._MAKING:  # as another thread may
        child = os.fork()
        if not child:
            signal.alarm(20)
            os._exit(0 if entry.as_future().result() == 1.0 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_numbers_go_round_the_short_way():
    """A number that a call returned is an argument of the next as it is, without a future."""
    @fx.futurize
    def step(total, k, x):
        return total * 0.5 + x.sum(), k + 1

    x, total, k, theirs = np.arange(8.0), 0.0, 0, 0.0
    for _ in range(200):
        total, k = step(total, k, x)
        theirs = theirs * 0.5 + x.sum()
    assert (float(total), int(k)) == (theirs, 200)
    lane = step._lane
    assert lane.take is not None
    leaves = lane.match((total, k, x), {})
    taken = lane.take(leaves if lane.inputs is None else [leaves[i] for i in lane.inputs])
    assert taken is not None
    assert (float(taken[0][0]), taken[0][1:], taken[1]) == (theirs, [200, x], ())
    assert not isinstance(k._held, Done)
