"""Consecutive instructions of one instance that run as machine code alone, aimed anew where an array has moved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels import steps
from futurex.kernels.addresses import address_of
from futurex.kernels.steps import Bound, Following, Numbered, Row, Step, StepFailed
from futurex.kernels.watch import KNOWN, Copy, Watch, address_to, how_to_copy


@dataclass(frozen=True, slots=True)
class Operand:
    """What an instruction reads or writes: an array of the instance, or a value of the run, by its number, or what
    functions one after the other make of it, which are to be views."""

    number: int | None
    array: Any = None
    views: tuple[Callable[..., Any], ...] = ()

    def of(self, values: Sequence[Any]) -> Any:
        return self.seen(self.array if self.number is None else values[self.number])

    def seen(self, value: Any) -> Any:
        """The view of a value."""
        for view in self.views:
            value = view(None, value)
        return value


@dataclass(frozen=True, slots=True)
class Part:
    """One instruction: its kernel as steps and as a call. ``several``: the kernel is given a tuple of results."""

    bound: Bound
    call: Callable[..., Any]
    outs: tuple[Operand, ...]
    ins: tuple[Operand, ...]
    several: bool

    def arrays(self, values: Sequence[Any]) -> list[Any]:
        """What the kernel is given."""
        outs = tuple([operand.of(values) for operand in self.outs])
        return [outs if self.several else outs[0], *(operand.of(values) for operand in self.ins)]

    def aim(self, values: Sequence[Any]) -> Sequence[Step] | None:
        """The steps on these values; None where there are none, or where one would read a copy of an argument."""
        arrays = self.arrays(values)
        for operand, array in zip(self.ins, arrays[1:], strict=True):
            if operand.views and not np.may_share_memory(array, values[operand.number]):  # type: ignore[index]
                return None
        return self.bound.aim(*arrays)


class Together:
    """``together(*values)`` runs all parts on these values of a run; those that cannot be aimed at them by a call.

    Nothing that a run brings is kept: what has moved is known by its address and strides, and numbers are copied into
    the kernels' blocks, and so are addresses where kernels follow. An exception has ``part``, the number of the part
    that failed. ``fresh``: values that lie apart from all others.
    """

    def __init__(
        self, parts: Sequence[Part], values: int, locks: Sequence[threading.Lock], fresh: Collection[int] = ()
    ) -> None:
        self._parts = parts
        self._locks = sorted(set(locks), key=id)  # one order for all who take several
        self._readers: list[list[int]] = [[] for _ in range(values)]
        for place, part in enumerate(parts):
            for operand in (*part.outs, *part.ins):
                if operand.number is not None and place not in self._readers[operand.number]:
                    self._readers[operand.number].append(place)
        self._numbers = self._only_numbers()
        self._followed = self._all_follow(fresh)
        self._steps: list[Sequence[Step] | None] = [None] * len(parts)
        self._called = set(range(len(parts)))  # parts without steps
        self._rows: list[tuple[Row | None, list[int]]] = [(None, [place]) for place in range(len(parts))]
        """Steps with the part of each, and parts that are called."""
        self._watch = Watch(values)
        self._copies: list[list[Copy]] = [[] for _ in range(values)]
        self._guard = Row((), self._watch) if steps.ready() else None
        """Looks whether a value has moved; makes all steps if none has, and nothing is called."""
        self._known = False  # where values lie
        self._owners = [0]  # of these steps
        self.play: Callable[..., bool] = lambda *values: False
        """Runs all parts, where that takes no lock, or tells that a call has to."""
        if self._guard is not None:
            self._guard.arm(False)
            self.play = self._guard.play

    def _only_numbers(self) -> list[list[tuple[int, np.dtype[Any]]]]:
        """For each value that is only read as a number where it is written; those kernels need not fetch."""
        found: list[list[tuple[int, np.dtype[Any]]]] = [[] for _ in self._readers]
        otherwise = {operand.number for part in self._parts for operand in part.outs}
        bounds = [part.bound if isinstance(part.bound, Numbered) else None for part in self._parts]
        for part, bound in zip(self._parts, bounds, strict=True):
            for position, operand in enumerate(part.ins):
                if operand.number is None:
                    continue
                if bound is None or operand.views or position not in bound.numbers:
                    otherwise.add(operand.number)
                else:
                    found[operand.number] += bound.numbers[position]
        for part, bound in zip(self._parts, bounds, strict=True):
            if bound is not None:
                bound.copied = frozenset(
                    position for position, operand in enumerate(part.ins)
                    if operand.number is not None and operand.number not in otherwise
                )  # fmt: skip
        return [[] if number in otherwise else places for number, places in enumerate(found)]

    def _all_follow(self, fresh: Collection[int]) -> list[list[tuple[int, int, Operand]]]:
        """For each value that only kernels read and write which follow it: the places where its address stands, or one
        so many bytes behind it, each with the operand. Arguments that a result may lie on are not among them."""
        found: list[list[tuple[int, int, Operand]]] = [[] for _ in self._readers]
        otherwise: set[int | None] = set()
        for part in self._parts:
            written = {operand.number for operand in part.outs if operand.number is not None}
            outs, ins = part.bound.places if isinstance(part.bound, Following) else ((), {})
            follows = bool(outs) and written.issubset(fresh)
            for k, operand in enumerate((*part.outs, *part.ins)):
                places = outs[k] if k < len(outs) else ins.get(k - len(part.outs))
                if operand.number is None:
                    continue
                if follows and places is not None:
                    found[operand.number] += [(place, behind, operand) for place, behind in places]
                else:
                    otherwise.add(operand.number)
        return [[] if number in otherwise else places for number, places in enumerate(found)]

    def __call__(self, *values: Any) -> None:
        for lock in self._locks:
            lock.acquire()
        owners = self._owners
        try:
            if self._guard is not None:
                if self._guard.run(values):
                    return
                self._aim(self._guard, values)
            for row, owners in self._rows:
                if row is not None:
                    row.run()
                else:
                    part = self._parts[owners[0]]
                    part.call(*part.arrays(values))
        except StepFailed as error:
            error.part = owners[error.number]
            self._explain(self._parts[owners[error.number]], values, error)
            raise
        except Exception as error:
            error.part = owners[0]  # type: ignore[attr-defined]
            raise
        finally:
            for lock in self._locks:
                lock.release()

    @staticmethod
    def _explain(part: Part, values: Sequence[Any], failure: StepFailed) -> None:
        """Raise what a call of the kernel raises, which knows more of it than a step does."""
        try:
            part.call(*part.arrays(values))
        except Exception as error:
            error.part = failure.part  # type: ignore[attr-defined]
            raise error from None

    def _aim(self, guard: Row, values: Sequence[Any]) -> None:
        """Aim what has moved, and try again what could not be aimed."""
        guard.arm(False)
        moved = self._watch.moved() if self._known else range(len(values))
        changed, self._known = not self._known, False  # should a kernel raise, all are aimed anew
        for place in sorted(self._called.union(*(self._readers[number] for number in moved))):
            found = self._parts[place].aim(values)
            (self._called.add if found is None else self._called.discard)(place)
            changed = changed or found is not self._steps[place]
            self._steps[place] = found
        for number in moved:
            self._note(number, values[number])
        self._watch.copy([each for copies in self._copies for each in copies])
        if changed:
            self._rows = self._joined()
            made = [(step, k) for k, found in enumerate(self._steps) for step in found or ()]
            self._owners = [k for _, k in made] or [0]
            guard.aim([step for step, _ in made])
        guard.arm(KNOWN and not self._called)
        self._known = KNOWN

    def _note(self, number: int, value: Any) -> None:
        """Know where a value lies, or what to copy of it."""
        places, followed = self._numbers[number], self._followed[number]
        if not places:
            follows = bool(followed) and type(value) is np.ndarray
            self._watch.note(number, value, number=False, copied=follows)
            self._copies[number] = [
                address_to(number, place, address_of(operand.seen(value)) - address_of(value) + behind)
                for place, behind, operand in (followed if follows else ())
            ]
            return
        ways = [how_to_copy(value, dtype) for _, dtype in places]
        self._watch.note(number, value, number=True, copied=all(ways))
        targets = zip(places, ways, strict=True) if all(ways) else ()
        self._copies[number] = [(number, address, way, 0) for (address, _), way in targets]

    def _joined(self) -> list[tuple[Row | None, list[int]]]:
        rows: list[tuple[Row | None, list[int]]] = []
        taken: list[Step] = []
        owners: list[int] = []
        for place, found in enumerate([*self._steps, None]):
            if found is not None:
                taken += found
                owners += [place] * len(found)
                continue
            if taken:
                rows.append((Row(taken), owners))
                taken, owners = [], []
            if place < len(self._steps):
                rows.append((None, [place]))
        return rows
