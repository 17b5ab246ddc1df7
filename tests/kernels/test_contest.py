"""Of two ways the faster one is taken, and stays until the other is clearly faster."""

import pytest

from futurex.kernels.contest import AGAIN, BETTER, SELDOM, TRIALS, Contest


def compare(contest, *seconds):
    """The calls until the two ways have been compared once; how many went each way."""
    ways = []
    while contest.open or not ways:
        ways.append(contest.next())
        contest.took(ways[-1], seconds[ways[-1]])
    return ways.count(0), ways.count(1)


def rest(contest):
    """How many calls go one way until both are compared again."""
    calls = 0
    while not contest.open:
        assert contest.next() == contest.way
        contest.took(contest.way, 1e9)  # what nobody compares counts for nothing
        calls += 1
    return calls


@pytest.mark.parametrize("way", [0, 1])
@pytest.mark.parametrize("other, changes", [(0.5, True), (BETTER - 0.01, True), (BETTER + 0.01, False), (2.0, False)])
def test_the_estimate_stands_until_the_other_way_is_clearly_faster(way, other, changes):
    contest = Contest(way)
    assert contest.next() == way
    seconds = (1.0, other) if way == 0 else (other, 1.0)
    assert compare(contest, *seconds) == (TRIALS, TRIALS)
    assert contest.way == (1 - way if changes else way)
    assert contest.seconds == seconds
    assert contest.next() == contest.way


def test_a_few_per_cent_to_and_fro_change_nothing():
    contest = Contest(0)
    for turn in range(6):
        compare(contest, 1.0, 0.9 if turn % 2 else 1.1)
        rest(contest)
        assert contest.way == 0


def test_comparisons_become_rare_while_nothing_changes_and_frequent_after_a_change():
    contest, pauses = Contest(0), []
    for other in (2.0, 2.0, 0.5, 2.0):
        compare(contest, 1.0, other)
        pauses.append(rest(contest))
    assert pauses == [2 * AGAIN, 4 * AGAIN, AGAIN, AGAIN]
    assert contest.way == 0
    for _ in range(8):
        compare(contest, 1.0, 2.0)
        pauses.append(rest(contest))
    assert pauses[-1] == SELDOM


def test_one_call_that_was_held_up_does_not_decide():
    contest = Contest(1)
    contest.took(1, 100.0)
    compare(contest, 2.0, 1.0)
    assert contest.way == 1


def test_a_way_that_is_not_taken_leaves_the_comparison_open():
    """Whoever cannot go the other way is not counted beyond what is needed."""
    contest = Contest(1)
    for _ in range(10 * TRIALS):
        contest.took(0, 1.0)
    assert contest.open
    assert contest.way == 1
    assert contest.next() == 1
