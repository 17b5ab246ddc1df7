"""The state machine of elastic runs among simulated workers: whatever comes, goes, hangs and fails, in any order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from futurex.runtime.elastic.coordinator import (
    Alive,
    How,
    Joined,
    Leaving,
    Left,
    Over,
    Phase,
)
from tests.elastic.simulation import SETTINGS, STEPS, Simulation, Worker

WHICH = st.integers(0, 10**6)


class Elastic(RuleBasedStateMachine):
    """Every rule is one thing that happens to one worker, or to the clock."""

    @initialize(
        workers=st.integers(0, 4), least=st.integers(1, 2), most=st.sampled_from([None, 2, 3]), pieces=st.booleans()
    )
    def begin(self, workers: int, least: int, most: int | None, pieces: bool) -> None:
        self.world = Simulation(
            workers, replace(SETTINGS, min_workers=least, max_workers=most, pieces=pieces)
        )  # fmt: skip
        self.leaving: set[str] = set()

    def pick(self, which: int, suits=lambda worker: True) -> Worker | None:
        found = [worker for worker in self.world.able() if suits(worker)]
        return found[which % len(found)] if found else None

    @rule(which=WHICH, times=st.integers(1, 4))
    def a_worker_reads(self, which: int, times: int) -> None:
        worker = self.pick(which, lambda each: each.inbox)
        for _ in range(times):
            if worker is not None and worker.inbox:
                self.world.read(worker)

    @rule(which=WHICH)
    def a_worker_works(self, which: int) -> None:
        worker = self.pick(which, lambda each: each.part and each.part.started)
        if worker is not None:
            self.world.work(worker)

    @rule(which=WHICH)
    def a_worker_shows_life(self, which: int) -> None:
        worker = self.pick(which, lambda each: each.part)
        if worker is not None:
            self.world.send(worker, Alive(worker.name, worker.part.generation))

    @rule(which=WHICH, times=st.integers(1, 4))
    def the_coordinator_hears(self, which: int, times: int) -> None:
        found = [worker for worker in self.world.workers.values() if worker.outbox]
        for _ in range(times):
            if found and found[which % len(found)].outbox and self.world.over is None:
                self.world.hear(found[which % len(found)])

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 11.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        if self.world.over is None:
            self.world.advance(seconds)

    @rule(moments=st.integers(1, 8))
    def all_goes_well(self, moments: int) -> None:
        for _ in range(moments):
            if self.world.over is None:
                self.world.live()

    @rule()
    def a_worker_joins(self) -> None:
        if len(self.world.workers) < 5:
            worker = self.world.new()
            self.world.send(worker, Joined(worker.name))

    @rule(which=WHICH, unheard=st.integers(0, 3))
    def a_worker_dies(self, which: int, unheard: int) -> None:
        """What it sent last may have arrived or not."""
        found = list(self.world.workers.values())
        if not found or self.world.over is not None:
            return
        worker = found[which % len(found)]
        while len(worker.outbox) > unheard:
            self.world.hear(worker)
            if self.world.over is not None:
                return
        del self.world.workers[worker.name]
        self.world.leave(worker)
        self.world.perform(self.world.coordinator.handle(Left(worker.name), self.world.now))

    @rule(which=WHICH)
    def a_worker_is_to_leave(self, which: int) -> None:
        found = list(self.world.workers.values())
        if found and self.world.over is None:
            worker = found[which % len(found)]
            self.leaving.add(worker.name)
            self.world.perform(self.world.coordinator.handle(Leaving(worker.name), self.world.now))

    @rule(stays=st.booleans())
    def those_leave_who_may(self, stays: bool) -> None:
        for name in sorted(self.leaving - set(self.world.coordinator.members)):
            if self.world.over is None:
                self.leaving.discard(name)
                worker = self.world.workers.get(name)
                if worker is not None and not stays:
                    del self.world.workers[name]
                    self.world.leave(worker)
                event = Joined(name) if stays and worker is not None else Left(name)
                self.world.perform(self.world.coordinator.handle(event, self.world.now))

    @rule(which=WHICH)
    def a_worker_hangs(self, which: int) -> None:
        worker = self.pick(which)
        if worker is not None:
            worker.stopped = True

    @rule()
    def those_that_hang_go_on(self) -> None:
        for worker in self.world.workers.values():
            worker.stopped = False

    @rule(which=WHICH)
    def a_channel_closes(self, which: int) -> None:
        worker = self.pick(which, lambda each: each.part and each.part.started)
        if worker is not None:
            self.world.end(worker, How.INTERRUPTED)

    @invariant()
    def generations_and_phases_fit(self) -> None:
        if not hasattr(self, "world"):
            return
        coordinator = self.world.coordinator
        if coordinator.phase in (Phase.FORMING, Phase.RUNNING):
            assert len(coordinator.members) >= coordinator.settings.min_workers
            assert len(coordinator.members) <= (coordinator.settings.max_workers or 5)
        for worker in self.world.workers.values():
            if worker.part is not None:
                assert worker.part.generation <= coordinator.generation

    def teardown(self) -> None:
        """Whatever was before, once all goes well the run comes to its end, and every step was done once."""
        if not hasattr(self, "world"):
            return
        world = self.world
        self.those_that_hang_go_on()
        for _ in range(400):
            if world.over is None:
                if len(world.workers.keys() - self.leaving) < world.coordinator.settings.min_workers:
                    worker = world.new()
                    world.send(worker, Joined(worker.name))
                world.live()
                self.those_leave_who_may(False)
        assert world.over is not None, "the run neither ends nor fails"
        if world.over == Over():
            assert len(set(world.results[-world.coordinator.settings.min_workers :])) == 1
            assert len(world.results[-1]) == STEPS
            assert list(world.results[-1]) == sorted(world.results[-1])
        else:
            assert world.over.missing > 0


TestElastic = Elastic.TestCase
TestElastic.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
