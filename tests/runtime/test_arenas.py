"""Large arenas are lent to plans in turns: what a process keeps is what the largest of them needs."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import futurex as fx
from futurex.runtime import arenas
from futurex.runtime.arenas import LEAST_LENT, lent
from futurex.runtime.plan import compile_plan


def model(x, w):
    return (np.tanh(x @ w) @ w).sum()


def wider(x, w):
    return np.tanh(np.tanh(x @ w) @ w.T @ w).mean()


def operands(rows):
    rng = np.random.default_rng(rows)
    return rng.standard_normal((rows, 400)), rng.standard_normal((400, 400)) / 20


def planned(function, rows):
    """A plan with intermediate arrays of 3200 bytes a row, for a library that writes products into what it is given."""
    return compile_plan(fx.lower(function, *operands(rows)).graph)


def check(plan, function, rows):
    x, w = operands(rows)
    [result] = plan.run([x, w])
    assert float(result) == pytest.approx(function(x, w), rel=1e-9)


def arena(plan):
    [instance] = plan._instances
    return instance.lent


def test_plans_that_run_in_turns_work_in_one_arena():
    train, evaluate, last = planned(model, 900), planned(wider, 800), planned(model, 500)
    for _ in range(3):
        check(train, model, 900)
        check(evaluate, wider, 800)
        check(last, model, 500)
    assert arena(train) is not None
    assert arena(train) is arena(last)
    largest = max(train.layout.arena, evaluate.layout.arena)
    assert arena(train if largest == train.layout.arena else evaluate) is arena(last)


def test_a_larger_arena_takes_the_place_of_smaller_ones():
    small, large = planned(model, 600), planned(model, 5000)
    check(small, model, 600)
    before = arena(small)
    check(large, model, 5000)
    assert before.left
    check(small, model, 600)
    assert arena(small) is arena(large)
    assert not arena(large).left


def test_runs_of_several_threads_have_arenas_of_their_own():
    plans = [(planned(each, rows), each, rows) for each in (model, wider) for rows in (500, 600, 800)]
    begin = threading.Barrier(4)

    def work(number):
        begin.wait(60)
        for k in range(24):
            check(*plans[(number * 5 + k) % 6])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result(timeout=120)


def test_a_run_that_failed_leaves_its_arena_to_others():
    def fails(x, w):
        return np.linalg.cholesky(np.tanh(x @ w) @ w)

    plan, other = planned(fails, 400), planned(model, 400)
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            plan.run(list(operands(400)))
        check(other, model, 400)
    before = arena(other)
    with pytest.raises(np.linalg.LinAlgError):
        plan.run(list(operands(400)))
    check(other, model, 400)
    assert arena(other) is before


def test_who_is_lost_works_no_more():
    class Run:
        pass

    run, other = Run(), Run()
    arena = lent(LEAST_LENT, run)
    assert not arena.take(other)
    del run
    assert arena.take(other)
    assert not arena.take(other)
    arena.give()
    assert arena.take(other)
    arena.give()


def test_a_finalizer_may_run_a_plan_while_an_arena_is_taken():
    """Whoever takes one makes objects, which may have garbage collected, in the same thread."""
    with arenas._guard:
        check(planned(model, 400), model, 400)


def test_arenas_are_taken_by_what_they_hold():
    class Run:
        pass

    one, two = Run(), Run()
    large = lent(9 * LEAST_LENT, one)
    assert large.memory.nbytes >= 9 * LEAST_LENT
    assert lent(LEAST_LENT, two) is not large
    large.give()
    assert lent(8 * LEAST_LENT, one) is large
    large.give()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_the_parents_runs():
    class Run:
        pass

    run = Run()
    arena = lent(5 * LEAST_LENT, run)
    child = os.fork()
    if child == 0:
        try:
            other = lent(5 * LEAST_LENT, Run())
            os._exit(0 if arena.left and other is not arena else 1)
        except BaseException:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not arena.left
    arena.give()
