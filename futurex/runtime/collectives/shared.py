"""Collective operations in memory that the ranks of a host share.

Every rank writes its own memory and reads the others'. An exchange goes by stages: a rank announces a stage on its
board when its part is there, and enters the next one when everybody has announced it. Small arrays lie on the board
itself; large ones where they are, if that is in the arena, and otherwise in a copy there. An all-reduce of a large
array is cut into one slice a rank: each adds its slice, in the order of the ranks, and then copies the others' sums. So
the result has the same bits on every rank, in every run, wherever the arrays are cut.

All ranks start the same exchanges in the same order: the n-th of one is the n-th of all, and boards say what it is, so
a disagreement is found and named. Whoever waits drives the exchanges itself; otherwise the progress thread does, rung
by the peers.
"""

from __future__ import annotations

import functools
import operator
import os
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

from futurex.kernels.shared import Status
from futurex.runtime.collectives.board import SLOTS, STAGE_BITS, Board, fence
from futurex.runtime.collectives.operation import Alarm, Collective, CollectiveError, Key
from futurex.runtime.transport import PeerLost, StaleGeneration
from futurex.runtime.transport.local import LocalEndpoint

_SEQUENCE = 32  # bits of an exchange's number that count within a generation
_BUSY_SECONDS = 2e-3  # how long a waiting thread looks for itself before it sleeps
_LEAST_PATIENCE = 1 / 16
_PROMPT_SECONDS = 2e-3  # a stage that took less was worth looking for
_TURNS = 64  # looks before a waiting thread lets others run
_SPINS, _YIELDS = 4000, 1000  # looks of compiled code in one go, where processes have cores of their own, and not


class SharedExchange(Collective):
    """One exchange. A subclass says what it shows, in how many stages, and what each of them does.

    `closing`: whether peers read this rank's own memory, so that it must wait until they have.
    """

    __slots__ = ("_group", "closing", "land", "number", "ready", "signature", "stage", "stages")

    def __init__(self, name: str, group: SharedGroup, key: Key, timeout: float) -> None:
        super().__init__(name, group.endpoint, key, timeout)
        self._group = group
        self.number = -1
        self.stage = 0
        self.stages = 1
        self.closing = True
        self.ready = True  # whether it may be shown; those behind it wait until it is
        self.signature = 0
        self.land: Callable[[], None] | None = None  # runs when everything is there, before the exchange is done

    @abstractmethod
    def show(self, board: Board, slot: int) -> None:
        """Write what the peers need, on the board or where it says."""

    def run(self, stage: int, slot: int) -> None:
        """Do what everybody has announced stage `stage` for, from 1 on."""

    def proceed(self, slot: int, spins: int) -> Status | None:
        """Go as far as the peers allow, in compiled code; None if there is none for this exchange."""
        return None

    def wait(self, timeout: float) -> None:
        """Drive the exchanges for a moment, then sleep; raise what this one failed with, or TransportTimeout."""
        if not self._done:
            start = time.perf_counter()
            self._group.drive(self.done)
            super().wait(timeout)
            self._group.learn((time.perf_counter() - start) < self.stages * _PROMPT_SECONDS)
        super().wait(0.0)

    def finish(self, error: BaseException | None = None) -> bool:
        """Deliver, then be done."""
        if error is None and self.land is not None and not self.done():
            land, self.land = self.land, None
            land()
        return super().finish(error)

    def late(self) -> list[int]:
        """Return the ranks that are behind this one."""
        return self._group.late(self)


class Prepared(Protocol):
    """An exchange that is made again and again, in compiled code."""

    def call(self, number: int, key: Key) -> Status: ...

    def exchange(self, key: Key, timeout: float) -> SharedExchange: ...

    @property
    def stage(self) -> int: ...


class SharedGroup:
    """The exchanges of the ranks of one machine, in order. Create it on every rank, before the endpoint connects.

    Ranks are counted within the machine: `members[rank]` is what the endpoint calls them.
    """

    def __init__(self, endpoint: LocalEndpoint) -> None:
        self.endpoint = endpoint
        self.memory = endpoint.memory
        self.board = Board(endpoint.memory)
        self.board.cores = sum({1 << core % 64 for core in os.sched_getaffinity(0)})
        self._boards: list[Board] = []
        self._others: list[tuple[int, Board]] = []
        self._driving = threading.Lock()  # held by whoever runs stages
        self._again = False
        self._freed = False  # whether an exchange has ended since the last look at what is queued
        self._state = threading.Lock()  # guards what is queued, and who is awake
        self._awake = 0
        self._queued: deque[SharedExchange] = deque()
        self._posted: deque[SharedExchange] = deque()
        self._alarm = Alarm(endpoint, self._expire)
        self._met = False  # whether every rank has entered this generation
        self._failed: BaseException | None = None
        self.yields = False
        self._patience = 1.0  # how much of the time for looking is worth spending: less where peers came late before
        endpoint.on_ring(self._drive)
        endpoint.on_peer_lost(self._peer_lost)
        endpoint.on_generation(self._began)
        self._enter(endpoint.generation)
        self.board.asleep = True

    # --- starting ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def members(self) -> list[int]:
        """The ranks of this machine, once the endpoint connects."""
        machines = self.endpoint.machines
        return [rank for rank, machine in enumerate(machines) if machine == machines[self.endpoint.rank]]

    @functools.cached_property
    def rank(self) -> int:
        """The place of this rank among them."""
        return self.members.index(self.endpoint.rank)

    @functools.cached_property
    def size(self) -> int:
        """How many they are."""
        return len(self.members)

    def boards(self) -> list[Board]:
        """Return the boards of all ranks; the endpoint is connected."""
        if not self._boards:
            peers = self.endpoint.peer_memory
            self._boards = [self.board if rank == self.endpoint.rank else Board(peers[rank]) for rank in self.members]
            cores = functools.reduce(operator.or_, (board.cores for board in self._boards))
            self.yields = self.size > cores.bit_count()
            both = zip(self.members, self._boards, strict=True)
            self._others = [(rank, board) for rank, board in both if rank != self.endpoint.rank]
        return self._boards

    def begin(self, exchange: SharedExchange) -> None:
        """Start an exchange; what needs no work is done at once, the rest by whoever waits or the progress thread."""
        for error in tuple(self.endpoint.lost.values()):
            exchange.fail(error)
        with self._state:
            if self._failed is not None:
                exchange.fail(self._failed)
            elif exchange.key[0] < self.generation:
                exchange.fail(StaleGeneration(f"generation {self.generation} began"))
            elif exchange.key[0] > self.generation:
                raise ValueError(f"{exchange.describe()} cannot start in generation {self.generation}")
            if exchange.done():
                return
            exchange.number = self._next
            self._next += 1
            self._queued.append(exchange)
        self._alarm.at(exchange.deadline)
        self._drive(light=True)

    def at_once(self, prepared: Prepared, key: Key, timeout: float) -> SharedExchange | None:
        """Have compiled code run a whole exchange, if nothing else is under way; return it if it is not done yet."""
        exchange: SharedExchange | None = None
        if self._driving.acquire(blocking=False):
            try:
                with self._state:
                    status = None
                    idle = self._met and not (self._posted or self._queued or self._awake)
                    if idle and self._failed is None and key[0] == self.generation:
                        number = self._next
                        self._next += 1
                        status = prepared.call(number, key)
                        if status is Status.DONE:
                            return None
                        if status is not Status.DONE_RING:
                            exchange = prepared.exchange(key, timeout)
                            exchange.number, exchange.stage = number, prepared.stage
                            (self._posted if exchange.stage else self._queued).append(exchange)
                            self.board.asleep = True  # until somebody waits
            finally:
                self._driving.release()
            if status is Status.DONE_RING:
                for rank, _ in self._others:
                    self.endpoint.ring(rank)
                return None
            if exchange is not None:
                self._ring(exchange)
                self._alarm.at(exchange.deadline)
                self._drive()
                return exchange
        exchange = prepared.exchange(key, timeout)
        self.begin(exchange)
        return exchange

    # --- driving -----------------------------------------------------------------------------------------------------

    def drive(self, done: Callable[[], bool]) -> None:
        """Run stages on this thread until `done()`, for a moment at most."""
        with self._state:
            self._awake += 1
            self.board.asleep = False
        turns, give_up = 0, time.perf_counter() + _BUSY_SECONDS * self._patience
        try:
            while True:
                self._drive(spins=self.spins)
                if done():
                    return
                turns += 1
                if self.yields or turns > _TURNS:
                    os.sched_yield()
                    time.sleep(0)  # the other threads of this process, too
                if time.perf_counter() > give_up:
                    return
        finally:
            with self._state:
                self._awake -= 1
                asleep = not self._awake
                if asleep:
                    self.board.asleep = True
            if asleep:
                fence()
                self._drive()  # what came before the peers knew that this rank must be rung

    def learn(self, prompt: bool) -> None:
        """Look longer where peers come soon, and sleep sooner where the machine is busy with other things."""
        self._patience = min(1.0, self._patience * 2) if prompt else max(_LEAST_PATIENCE, self._patience / 2)

    def look_again(self) -> None:
        """An exchange that was not ready is."""
        self._drive(light=True)

    @property
    def spins(self) -> int:
        """How often compiled code may look for the peers before it gives up."""
        return int((_YIELDS if self.yields else _SPINS) * self._patience)

    def _drive(self, light: bool = False, spins: int = 0) -> None:
        """Do what can be done, unless another thread does; then that one looks again."""
        while True:
            if not self._driving.acquire(blocking=False):
                self._again = True
                if not self._driving.acquire(blocking=False):
                    return
            try:
                self._again = False
                ready = self._advance(light, spins)
            except BaseException as error:  # a stage failed: so does the exchange, and what comes after it
                ready = False
                self.fail(error)
            finally:
                self._driving.release()
            if ready:
                self.endpoint.post(self._drive)
            if not self._again:
                return

    def _advance(self, light: bool, spins: int) -> bool:
        """Post and run whatever may be; with `light`, return whether something was left for another thread."""
        if not self.endpoint.machines or len(self.endpoint.peer_memory) < self.size - 1:
            return False  # rung by a peer that is connected already; nothing has begun here
        self.boards()
        while True:
            left = self._freed = False
            if self._queued:
                self._post()
            for exchange in tuple(self._posted):
                if light and exchange.closing:
                    left = left or self._reached(exchange, exchange.stage)
                elif not exchange.done():
                    self._proceed(exchange, spins)
            if not (self._freed and self._queued):
                return left

    def _proceed(self, exchange: SharedExchange, spins: int) -> None:
        """Take an exchange as far as the peers allow."""
        slot = exchange.number % SLOTS
        while (status := exchange.proceed(slot, spins)) is Status.RING:
            self._ring(exchange)
        if status is Status.MISMATCH:
            self._check(exchange)
            raise CollectiveError(f"{exchange.describe()}: the board of this rank does not say what it shows")
        if status is Status.DONE:
            self._complete(exchange)
        if status is not None:
            return
        while self._reached(exchange, exchange.stage):
            if exchange.stage == 1:
                self._check(exchange)
            if exchange.stage <= exchange.stages:
                exchange.run(exchange.stage, slot)
            if exchange.stage == exchange.stages + exchange.closing:
                self._complete(exchange)
                return
            exchange.stage += 1
            self._announce(exchange)

    def _announce(self, exchange: SharedExchange) -> None:
        """Say which stage this rank has come to."""
        self.board.set_stamp(exchange.number % SLOTS, exchange.number << STAGE_BITS | exchange.stage)
        self._ring(exchange)

    def _ring(self, exchange: SharedExchange) -> None:
        """Wake the peers that sleep and wait for what this rank has announced; those that come later look first."""
        fence()
        slot, low = exchange.number % SLOTS, exchange.number << STAGE_BITS | exchange.stage
        high = exchange.number + 1 << STAGE_BITS
        for rank, board in self._others:
            if board.asleep and low <= board.stamp(slot) < high:
                self.endpoint.ring(rank)

    def _post(self) -> None:
        generation = self.generation
        if not self._met:
            if any(board.generation != generation for _, board in self._others):
                return  # a board may be written anew only when nobody reads it for the generation before
            self._met = True
        while (exchange := self._first()) is not None:
            number = exchange.number
            if not exchange.ready:
                return
            if self._posted and self._posted[0].number + SLOTS <= number:
                return  # this rank itself still needs what lies there
            if any(board.oldest + SLOTS <= number for _, board in self._others):
                self.board.crowded = True
                fence()
                if any(board.oldest + SLOTS <= number for _, board in self._others):
                    return
                self.board.crowded = False
            with self._state:
                if not self._queued:
                    return  # they have failed meanwhile
                self._posted.append(self._queued.popleft())  # never in neither: what fails is found in one of them
            exchange.show(self.board, number % SLOTS)
            exchange.stage = 1
            self._announce(exchange)
        self.board.crowded = False

    def _first(self) -> SharedExchange | None:
        """Return what is to be shown next; another thread may fail it meanwhile."""
        with self._state:
            return self._queued[0] if self._queued else None

    def _reached(self, exchange: SharedExchange, stage: int) -> bool:
        """Whether every peer has announced `stage` of an exchange."""
        slot, low = exchange.number % SLOTS, exchange.number << STAGE_BITS | stage
        high = exchange.number + 1 << STAGE_BITS
        return all(low <= board.stamp(slot) < high for _, board in self._others)

    def _check(self, exchange: SharedExchange) -> None:
        slot = exchange.number % SLOTS
        for rank, board in self._others:
            if board.signature(slot) != exchange.signature:
                facts, mine = board.facts(slot), self.board.facts(slot)
                raise CollectiveError(
                    f"{exchange.describe()}: rank {rank} at {self.endpoint.describe(rank)} is at step {facts.step}, "
                    f"tag {facts.tag}, with {facts.nbytes} bytes where {mine.nbytes} are expected: the ranks disagree "
                    "on the order of their exchanges, or on the size, dtype or kind of one"
                )

    def _complete(self, exchange: SharedExchange) -> None:
        exchange.finish()
        self._freed = True
        with self._state:
            while self._posted and self._posted[0].done():
                self._posted.popleft()
            following = self._posted or self._queued
            self.board.oldest = following[0].number if following else self._next
        fence()
        for rank, board in self._others:
            if board.crowded:
                self.endpoint.ring(rank)

    # --- ending ------------------------------------------------------------------------------------------------------

    def late(self, exchange: SharedExchange) -> list[int]:
        """Return the ranks that have not announced what `exchange` waits for."""
        slot = exchange.number % SLOTS
        low, high = exchange.number << STAGE_BITS | max(1, exchange.stage), exchange.number + 1 << STAGE_BITS
        return [rank for rank, board in self._others if not low <= board.stamp(slot) < high]

    def _enter(self, generation: int) -> None:
        self.generation = generation
        self._next = generation << _SEQUENCE
        self._failed = None
        self._met = False
        self.board.oldest = self._next
        self.board.generation = generation

    def _began(self, generation: int) -> None:
        with self._driving:  # no stage runs for the old generation any more when this returns
            with self._state:
                ended = [*self._posted, *self._queued]
                self._posted.clear()
                self._queued.clear()
                self._enter(generation)
            for rank in self.endpoint.peer_memory:  # they may wait for this rank to enter
                self.endpoint.ring(rank)
        for exchange in ended:
            exchange.fail(StaleGeneration(f"generation {generation} began"))

    def _peer_lost(self, error: PeerLost) -> None:
        self.fail(error)

    def fail(self, reason: BaseException) -> None:
        """Fail everything of this generation: later exchanges would not be the peers' later ones."""
        with self._state:
            self._failed = self._failed or reason
            ended = [*self._posted, *self._queued]
            self._queued.clear()
            self._posted.clear()
        for exchange in ended:
            if isinstance(reason, CollectiveError):
                exchange.finish(reason)
            else:
                exchange.fail(reason)

    def _expire(self, now: float) -> float | None:
        with self._state:
            waiting = [*self._posted, *self._queued]
        overdue = [exchange for exchange in waiting if exchange.deadline <= now]
        for exchange in overdue:
            exchange.expire()
        if overdue and overdue[0].error is not None:
            self.fail(overdue[0].error)
        return min((exchange.deadline for exchange in waiting if not exchange.done()), default=None)
