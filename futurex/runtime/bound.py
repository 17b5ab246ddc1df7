"""Consecutive instructions of one instance that run as machine code alone, aimed anew where an array has moved."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels import steps
from futurex.kernels.addresses import address_of
from futurex.kernels.steps import Bound, Renewable, Row, Step, StepFailed

_bits = struct.Struct("d").pack


@dataclass(frozen=True, slots=True)
class Operand:
    """What an instruction reads or writes: an array of the instance, or a value of the run, by its number."""

    number: int | None
    array: Any = None

    def of(self, values: Sequence[Any]) -> Any:
        return self.array if self.number is None else values[self.number]


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


class Together:
    """``together(*values)`` runs all parts on these values of a run; those that cannot be aimed at them by a call.

    Nothing that a run brings is kept: what has moved is known by its address and strides. An exception has ``part``,
    the number of the part that failed.
    """

    def __init__(self, parts: Sequence[Part], values: int, locks: Sequence[threading.Lock]) -> None:
        self._parts = parts
        self._locks = sorted(set(locks), key=id)  # one order for all who take several
        self._seen: list[Any] = [None] * values
        self._readers: list[list[int]] = [[] for _ in range(values)]
        for place, part in enumerate(parts):
            for operand in (*part.outs, *part.ins):
                if operand.number is not None and place not in self._readers[operand.number]:
                    self._readers[operand.number].append(place)
        self._renew = [part.bound.renew if isinstance(part.bound, Renewable) else None for part in parts]
        self._steps: list[Sequence[Step] | None] = [None] * len(parts)
        self._called = set(range(len(parts)))  # parts without steps
        self._rows: list[tuple[Row, list[int]] | int] = list(range(len(parts)))
        """Steps with the part of each, and parts that are called."""

    def __call__(self, *values: Any) -> None:
        for lock in self._locks:
            lock.acquire()
        place = 0
        try:
            if steps.ready() and self._aim(values):
                self._rows = self._joined()
            for row in self._rows:
                if isinstance(row, int):
                    place = row
                    part = self._parts[place]
                    part.call(*part.arrays(values))
                else:
                    place = row[1][0]
                    row[0].run()
        except Exception as error:
            error.part = row[1][error.number] if isinstance(error, StepFailed) else place  # type: ignore
            raise
        finally:
            for lock in self._locks:
                lock.release()

    def _aim(self, values: Sequence[Any]) -> bool:
        """Aim what has moved, and try again what could not be aimed; True if steps are others now."""
        moved = set(self._called)
        renewed: set[int] = set()
        for number, value in enumerate(values):
            seen = self._seen[number]
            if type(value) is np.ndarray:
                where: Any = (address_of(value), value.strides)
            else:
                where = _bits(value) if type(value) is float else None
            if where is None or where != seen:
                self._seen[number] = where
                only_numbers = type(where) is bytes and type(seen) is bytes
                (renewed if only_numbers else moved).update(self._readers[number])
        changed = False
        moved |= {place for place in renewed if self._renew[place] is None}
        renewed -= moved
        self._called |= moved | renewed  # should one of them raise
        for place in renewed:
            self._renew[place]([operand.of(values) for operand in self._parts[place].ins])  # type: ignore[misc]
            self._called.discard(place)
        for place in moved:
            part = self._parts[place]
            found = part.bound.aim(*part.arrays(values))
            if found is not None:
                self._called.discard(place)
            changed = changed or found is not self._steps[place]
            self._steps[place] = found
        return changed

    def _joined(self) -> list[tuple[Row, list[int]] | int]:
        rows: list[tuple[Row, list[int]] | int] = []
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
                rows.append(place)
        return rows
