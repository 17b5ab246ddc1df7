"""The scheduler core: any graph, any order of completions, failures and cancellations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futurex.runtime.scheduler import Scheduler, State, Turns, invert


@st.composite
def dags(draw):
    size = draw(st.integers(1, 12))
    after = [tuple(draw(st.sets(st.integers(0, k - 1), max_size=3))) if k else () for k in range(size)]
    return after, draw(st.permutations(range(size)))


def ancestors(after, index):
    found = set()
    stack = [index]
    while stack:
        for source in after[stack.pop()]:
            if source not in found:
                found.add(source)
                stack.append(source)
    return found


@given(dags(), st.data())
def test_every_instruction_runs_once_after_its_dependencies(dag, data):
    after, rank = dag
    run = Scheduler(after, rank)
    ready, seen, finished = run.start(), [], set()
    seen += ready
    while ready:
        index = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        assert set(after[index]) <= finished
        finished.add(index)
        released = run.finished(index)
        assert released == sorted(released, key=lambda k: rank[k])
        seen += released
        ready += released
    assert sorted(seen) == list(range(len(after)))
    assert run.done
    assert run.first_error() is None


@given(dags(), st.data())
def test_a_failure_stops_its_dependents_and_nothing_else(dag, data):
    after, rank = dag
    bad = data.draw(st.sets(st.integers(0, len(after) - 1), min_size=1))
    run = Scheduler(after, rank)
    ready = run.start()
    while ready:
        index = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        ready += run.failed(index, ValueError(index)) if index in bad else run.finished(index)
    assert run.done
    for index, state in enumerate(run.state):
        if ancestors(after, index) & bad:
            assert state is State.SKIPPED
        else:
            assert state is (State.FAILED if index in bad else State.FINISHED)
    failed = [index for index, state in enumerate(run.state) if state is State.FAILED]
    assert run.first_error().args == (min(failed, key=lambda index: rank[index]),)


@given(dags(), st.data())
def test_a_cancelled_run_drains(dag, data):
    after, rank = dag
    run = Scheduler(after, rank)
    ready = run.start()
    for _ in range(data.draw(st.integers(0, len(after)))):
        if ready:
            ready += run.finished(ready.pop())
    assert run.cancel() == []
    assert run.done is not bool(ready)
    for index in ready:
        assert run.finished(index) == []
    assert run.done


def test_an_instruction_cannot_finish_twice_or_before_it_was_released():
    run = Scheduler([(), (0,)], [0, 1])
    run.start()
    with pytest.raises(ValueError, match="instruction 1 is waiting"):
        run.finished(1)
    run.finished(0)
    with pytest.raises(ValueError, match="instruction 0 is finished"):
        run.failed(0, ValueError())


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_turns_keep_their_order_whatever_arrives_first(order, arrivals):
    turns = Turns(order)
    gone = []
    for place, index in enumerate(arrivals):
        gone += turns.arrive(index)
        assert set(gone) <= set(arrivals[: place + 1])
    assert gone == list(order)


def test_invert_lists_dependents():
    assert invert([(), (0,), (0, 1)]) == [[1, 2], [2], []]
