"""The coordinator of elastic runs, one transition at a time."""

from __future__ import annotations

import pytest

from futurex.runtime.elastic.coordinator import (
    Alive,
    Coordinator,
    Ended,
    Form,
    Formed,
    Grant,
    Held,
    How,
    Joined,
    Leaving,
    Left,
    Mark,
    Over,
    Phase,
    Settings,
    Start,
    Stop,
    Tell,
    newest_whole,
)
from tests.elastic.simulation import SETTINGS


def started(settings: Settings = SETTINGS, workers=("a", "b"), mark: Mark | None = None) -> Coordinator:
    run = Coordinator(settings)
    run.begin(workers, 0.0)
    for worker in workers:
        run.handle(Formed(worker, run.generation, (Held(mark),) if mark else ()), 0.0)
    assert run.phase is Phase.RUNNING
    return run


def test_too_few_workers_are_waited_for_and_then_named():
    run = Coordinator(Settings(min_workers=3, wait=5.0))
    [note] = run.begin(["a"], 0.0)
    assert (note.what, note.workers, run.phase, run.deadline) == ("waiting", ("a",), Phase.WAITING, 5.0)
    assert run.handle(Joined("b"), 1.0) == []
    assert run.deadline == 5.0  # those who come do not prolong it
    assert run.tick(4.9) == []
    [over] = run.tick(5.0)
    assert (over.reason, over.missing, run.deadline) == ("2 of 3 workers were there", 1, None)
    assert run.handle(Joined("c"), 6.0) == []


def test_a_lost_worker_ends_the_generation_and_the_newest_commit_is_taken():
    run = started(Settings(min_workers=1), workers=("a", "b", "c"))
    forms = [action for action in run.handle(Left("a"), 1.0) if isinstance(action, Form)]
    assert [(form.worker, form.rank, form.size, form.generation) for form in forms] == [("b", 0, 2, 2), ("c", 1, 2, 2)]
    run.handle(Formed("b", 2, (Held(Mark(10, 1)),)), 1.0)
    starts = [action for action in run.handle(Formed("c", 2, (Held(Mark(20, 1)),)), 1.0) if isinstance(action, Start)]
    assert {(start.worker, start.mark, start.sources) for start in starts} == {
        ("b", Mark(20, 1), (1,)), ("c", Mark(20, 1), (1,)),
    }  # fmt: skip


def test_equal_commits_are_not_sent():
    run = Coordinator(SETTINGS)
    run.begin(("a", "b"), 0.0)
    run.handle(Formed("a", 1, (Held(Mark(3, 1)),)), 0.0)
    starts = [action for action in run.handle(Formed("b", 1, (Held(Mark(3, 1)),)), 0.0) if isinstance(action, Start)]
    assert [start.sources for start in starts] == [(), ()]


def test_workers_that_come_together_interrupt_once():
    run = started()
    assert run.handle(Joined("c"), 1.0) == []
    assert run.handle(Joined("d"), 1.5) == []
    assert run.deadline == 2.0
    assert run.tick(2.0) == [Tell("a", 1, "pause"), Tell("b", 1, "pause")]
    run.handle(Ended("a", 1, How.PAUSED, 5), 2.1)
    forms = [action for action in run.handle(Ended("b", 1, How.PAUSED, 5), 2.2) if isinstance(action, Form)]
    assert [form.worker for form in forms] == ["a", "b", "c", "d"]  # the oldest is the first rank


def test_silence_is_noticed_and_an_answer_brings_a_worker_back():
    run = started(Settings(min_workers=1, stall=10.0, settle=1.0))
    assert run.handle(Alive("a", 1), 9.0) == [Grant("a", 1)]
    forms = [action for action in run.tick(10.0) if isinstance(action, Form)]
    assert [(form.worker, form.size) for form in forms] == [("a", 1)]
    run.handle(Formed("a", 2), 10.1)
    assert run.handle(Alive("b", 1), 11.0) == []  # alive, but perhaps still in what it did
    assert run.deadline == pytest.approx(20.1)
    run.handle(Ended("b", 1, How.INTERRUPTED, 3), 12.0)
    assert run.deadline == 13.0
    assert run.tick(13.0) == [Tell("a", 2, "pause")]


def test_a_program_that_fails_twice_at_one_step_fails_the_run_whoever_says_so_first():
    run = started(workers=("a", "b"))
    run.handle(Ended("b", 1, How.INTERRUPTED, 5, "a channel closed"), 1.0)
    assert run.generation == 2
    run.handle(Ended("a", 1, How.FAILED, 5, "IndexError"), 1.1)  # late, and counted
    assert run.phase is Phase.FORMING
    for worker in ("a", "b"):
        run.handle(Formed(worker, 2), 1.2)
    [*_, over] = run.handle(Ended("a", 2, How.FAILED, 5, "IndexError"), 2.0)
    assert over == Over("IndexError", "a")


def test_generations_without_a_new_commit_do_not_go_on_for_ever():
    run = started(Settings(min_workers=1, patience=3), workers=("a",))
    ends = []
    for _ in range(3):
        run.handle(Ended("a", run.generation, How.INTERRUPTED, 1), 1.0)
        ends = run.handle(Formed("a", run.generation), 1.0)
    assert "ended without a new commit after step 0" in ends[-1].reason


def test_a_stop_outlives_a_generation():
    run = started()
    assert run.handle(Stop(), 1.0) == [Tell("a", 1, "stop"), Tell("b", 1, "stop")]
    run.handle(Ended("a", 1, How.INTERRUPTED, 4), 1.0)
    run.handle(Formed("a", 2), 1.0)
    actions = run.handle(Formed("b", 2), 1.0)
    assert [action for action in actions if isinstance(action, Tell)] == [Tell("a", 2, "stop"), Tell("b", 2, "stop")]


def test_a_worker_that_is_to_leave_pauses_the_others_and_is_not_asked_again():
    run = started(Settings(min_workers=1), workers=("a", "b", "c"))
    assert run.handle(Leaving("b"), 1.0) == []
    assert run.deadline == 1.0
    assert {action.command for action in run.tick(1.0)} == {"pause"}
    assert "b" in run.members
    for worker in ("a", "b"):
        run.handle(Ended(worker, 1, How.PAUSED, 5), 1.1)
    actions = run.handle(Ended("c", 1, How.PAUSED, 5), 1.1)
    assert [action.worker for action in actions if isinstance(action, Form)] == ["a", "c"]
    for worker in ("a", "c"):
        run.handle(Formed(worker, 2, (Held(Mark(5, 1)),)), 1.2)
    assert run.handle(Joined("b"), 2.0) == []  # it stays after all
    assert {action.command for action in run.tick(run.deadline)} == {"pause"}


def test_workers_with_pieces_leave_one_after_the_other():
    run = started(Settings(min_workers=1, pieces=True), workers=("a", "b", "c"))
    for worker in ("b", "c"):
        run.handle(Leaving(worker), 1.0)
    sizes = []
    while len(run.members) > 1:
        run.tick(run.deadline)
        members, generation = run.members, run.generation
        for worker in members:
            run.handle(Ended(worker, generation, How.PAUSED, 5), 1.1)
        size, mark = len(members), Mark(5, generation)
        held = {worker: Held(mark, (rank, (rank - 1) % size), size) for rank, worker in enumerate(members)}
        for worker in run.members:
            actions = run.handle(Formed(worker, run.generation, (held[worker],)), 1.2)
        sizes.append([action.sources for action in actions if isinstance(action, Start)])
    assert sizes == [[(0, 1, 0)] * 2, [(0, 0)]]


def test_more_workers_than_there_may_be_stand_by():
    run = started(Settings(min_workers=1, max_workers=2))
    assert run.handle(Joined("c"), 1.0) == []
    assert run.tick(2.0) == []
    forms = [action for action in run.handle(Left("a"), 3.0) if isinstance(action, Form)]
    assert [(form.worker, form.size) for form in forms] == [("b", 2), ("c", 2)]


def test_a_commit_whose_pieces_are_lost_is_passed_over():
    new, old = Mark(6, 1), Mark(3, 1)
    assert newest_whole([[Held(new, (0, 1), 3), Held(old, (0, 1), 3)], [Held(old, (1, 2), 3)]]) == (old, (0, 0, 1))
    assert newest_whole([[Held(new, (0, 1), 3)], [Held(new, (1, 2), 3)]]) == (new, (0, 0, 1))
    assert newest_whole([[Held(new, (0, 1), 3)]]) == (None, ())
    assert newest_whole([[Held(new)], []]) == (new, (0,))
    assert newest_whole([[], []]) == (None, ())


def pieces_of(mark: Mark, rank: int, size: int) -> tuple[Held, ...]:
    return (Held(mark, tuple(sorted({rank, (rank - 1) % size})), size),)


def answered(run: Coordinator, now: float, answers: dict[str, tuple[Held, ...]]) -> list:
    """All members of a generation that is being formed answer; what the last of them made the coordinator do."""
    actions = []
    for worker in run.members:
        actions = run.handle(Formed(worker, run.generation, answers[worker]), now)
    return actions


def short_of_pieces(wait: float = 50.0) -> tuple[Coordinator, float]:
    """Four workers have a commit of four pieces; two neighbours answer, the other two are silent."""
    run = started(Settings(min_workers=2, wait=wait, stall=10.0, pieces=True), workers=("a", "b", "c", "d"))
    run.tick(10.0)
    assert run.phase is Phase.WAITING
    assert not run.members
    for worker in ("a", "b"):
        run.handle(Ended(worker, 1, How.INTERRUPTED, 45), 10.5)
    held = {worker: pieces_of(Mark(40, 1), rank, 4) for rank, worker in enumerate("abcd")}
    assert not [action for action in answered(run, 11.0, held) if isinstance(action, Start)]
    assert (run.phase, run.members, run.deadline) == (Phase.WAITING, ("a", "b"), 11.0 + wait)
    return run, 11.0


def test_those_who_hold_missing_pieces_are_waited_for():
    run, now = short_of_pieces()
    assert run.handle(Alive("a", run.generation), now + 9.0) == [Grant("a", run.generation)]  # it may still act
    run.handle(Ended("d", 1, How.INTERRUPTED, 45), now + 20.0)
    assert run.members == ("d", "a", "b")
    held = {worker: pieces_of(Mark(40, 1), rank, 4) for rank, worker in enumerate("abcd")}
    starts = [action for action in answered(run, now + 20.5, held) if isinstance(action, Start)]
    assert [(start.worker, start.mark) for start in starts] == [(worker, Mark(40, 1)) for worker in "dab"]
    assert len(starts[0].sources) == 4  # every piece is given by somebody; c was not needed


def test_the_wait_for_missing_pieces_ends():
    run, now = short_of_pieces()
    assert run.tick(now + 49.0) == []
    starts = [action for action in run.tick(now + 50.0) if isinstance(action, Start)]
    assert [(start.worker, start.mark) for start in starts] == [("a", None), ("b", None)]


def test_nobody_waits_for_pieces_whose_holders_are_gone():
    run, now = short_of_pieces()
    assert not [action for action in run.handle(Left("d"), now + 1.0) if isinstance(action, Start)]
    starts = [action for action in run.handle(Left("c"), now + 2.0) if isinstance(action, Start)]
    assert [(start.worker, start.mark) for start in starts] == [("a", None), ("b", None)]


def test_those_who_come_do_not_prolong_the_wait_for_pieces():
    run, now = short_of_pieces()
    run.handle(Joined("e"), now + 30.0)
    held = {worker: pieces_of(Mark(40, 1), rank, 4) for rank, worker in enumerate("abcd")} | {"e": ()}
    assert not [action for action in answered(run, now + 31.0, held) if isinstance(action, Start)]
    assert (run.members, run.deadline) == (("a", "b", "e"), now + 50.0)


def test_a_member_lost_while_pieces_are_waited_for_leaves_too_few():
    run, now = short_of_pieces()
    run.handle(Left("a"), now + 1.0)
    assert (run.phase, run.members, run.deadline) == (Phase.WAITING, (), now + 51.0)


def test_a_stop_while_pieces_are_waited_for_ends_the_run():
    run, now = short_of_pieces()
    [over] = run.handle(Stop(), now + 1.0)
    assert over.reason == "it was stopped while it waited for workers"


def test_newcomers_wait_for_those_who_know_what_there_is():
    run = started(Settings(min_workers=1, max_workers=2, wait=50.0, stall=10.0), workers=("a", "b"))
    run.handle(Joined("c"), 9.0)
    run.tick(10.0)
    assert run.members == ("c",)
    assert not [action for action in run.handle(Formed("c", run.generation), 10.1) if isinstance(action, Start)]
    run.handle(Joined("d"), 10.2)
    for worker in run.members:
        run.handle(Formed(worker, run.generation), 10.3)
    run.handle(Ended("b", 1, How.INTERRUPTED, 50), 15.0)
    assert run.members == ("b", "c")  # more there may not be, and what it holds counts
    held = {"b": (Held(Mark(45, 1)),), "c": ()}
    starts = [action for action in answered(run, 15.5, held) if isinstance(action, Start)]
    assert [(start.worker, start.mark) for start in starts] == [("b", Mark(45, 1)), ("c", Mark(45, 1))]


def test_a_silent_worker_that_holds_no_more_than_others_is_not_waited_for():
    run = started(Settings(min_workers=2, stall=10.0, pieces=True), workers=("a", "b", "c"))
    run.tick(10.0)
    for worker in "ab":
        run.handle(Ended(worker, 1, How.INTERRUPTED, 45), 10.0)
    old, new = Mark(30, 1), Mark(40, 1)  # the newer one may have been under way
    held = {worker: (*pieces_of(new, rank, 3), *pieces_of(old, rank, 3)) for rank, worker in enumerate("abc")}
    held["a"] = pieces_of(old, 0, 3)
    starts = [action for action in answered(run, 10.5, held) if isinstance(action, Start)]
    assert [start.mark for start in starts] == [old, old]


def test_who_answers_while_others_form_a_generation_without_it_is_asked_before_they_begin():
    run = started(Settings(min_workers=1, stall=10.0, pieces=True), workers=("a", "b"))
    run.tick(10.0)
    run.handle(Ended("a", 1, How.INTERRUPTED, 45), 10.0)
    run.handle(Ended("b", 1, How.INTERRUPTED, 45), 10.1)
    assert run.members == ("a",)
    held = {worker: (Held(Mark(40, 1), (rank,), 2),) for rank, worker in enumerate("ab")}
    assert not [action for action in answered(run, 10.2, held) if isinstance(action, Start)]
    assert run.members == ("a", "b")
    starts = [action for action in answered(run, 10.3, held) if isinstance(action, Start)]
    assert [start.mark for start in starts] == [Mark(40, 1)] * 2
