"""One arena and the closures bound to it: what one run at a time of a plan works in."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from futurex.kernels.copies import in_c_order
from futurex.kernels.recycling import maker
from futurex.kernels.registry import Kernel
from futurex.ops.strides import Lie, lies_in_rows
from futurex.runtime.arenas import LEAST_LENT, allocate, lent
from futurex.runtime.counters import Counters
from futurex.runtime.lower import Kind, Lowering, Slot
from futurex.runtime.memory import Layout

Values = list[Any]
Step = Callable[[Values], None]

_locks: weakref.WeakValueDictionary[int, threading.Lock] = weakref.WeakValueDictionary()
_locks_guard = threading.Lock()


class Home(Protocol):
    """Memory of a kind of its own, such as that which the processes of a host share."""

    def empty(self, shape: Any, dtype: Any) -> Any: ...


class Instance:
    """``template`` holds constants and arena arrays; a run copies it, fills in its arguments and executes ``calls``.

    The arena lies in ``home`` where one is given: arrays that ranks exchange are then read where they are made. A large
    one is ``lent``, and taken when the instance has been made; not if others than the run, which is then not ``alone``,
    may write to it.
    ``prologue`` makes what differs from run to run: fresh arrays for results, donated arguments, and views of both.
    """

    def __init__(
        self, low: Lowering, layout: Layout, kernels: Sequence[Kernel], counters: Counters, home: Home | None = None,
        *, alone: bool = True,
    ) -> None:  # fmt: skip
        self.home = home
        self.lent = lent(layout.arena, self) if alone and layout.arena >= LEAST_LENT else None
        self.arena: Any = None
        if self.lent is not None:
            self.arena = self.lent.memory[: layout.arena]
        elif layout.arena:
            self.arena = allocate(layout.arena) if home is None else home.empty(layout.arena, np.uint8)
        self.counters = counters
        self.kernels = kernels
        self.program: Any = None  # the whole run as one function, once that is worth making
        self.template: Values = [slot.value for slot in low.slots]
        self.prologue: list[Step] = []
        self._low, self._layout = low, layout
        for slot in low.slots:
            if slot.kind is Kind.BUFFER:
                self._place(slot)
        self.calls: list[Step] = [
            step(
                kernel, each.ins, each.outs, low.loose(each.ins, kernel), several=isinstance(each.node.aval, tuple),
                numbers=tuple(k for k, out in enumerate(each.outs) if low.slots[out].kind is Kind.SCALAR),
            )
            for each, kernel in zip(low.drafts, kernels, strict=True)
        ]

    def take(self) -> bool:
        """Begin a run, if no other plan's works in the same arena."""
        return self.lent is None or self.lent.take(self)

    def give(self) -> None:
        """End a run."""
        if self.lent is not None:
            self.lent.give()

    def _place(self, slot: Slot) -> None:
        layout = self._layout
        per_run = slot.root in layout.fresh or slot.root in layout.donated
        if slot.index in layout.shared:
            make = _shared(slot.index, layout.shared[slot.index])
        elif slot.derive is not None:
            make = step(*slot.derive, (slot.index,), ())
        elif slot.root != slot.index:
            raise AssertionError(f"slot {slot.index} lies in the memory of {slot.root}, but nothing says how")
        elif per_run:
            return  # the run itself brings the array
        else:
            self.template[slot.index] = np.ndarray(
                slot.aval.shape,
                slot.aval.dtype,
                self.arena if slot.layout.nbytes else None,
                layout.offsets.get(slot.index, 0),
            )
            return
        if per_run:
            self.prologue.append(make)
        else:
            make(self.template)


def _shared(index: int, source: int) -> Step:
    def take(values: Values) -> None:
        values[index] = values[source]

    return take


def dense(value: Any) -> Any:
    """``value`` as a C-contiguous aligned array; itself where it is one."""
    if isinstance(value, np.ndarray) and value.flags.c_contiguous and value.flags.aligned:
        return value
    return in_c_order(value)


def in_rows(value: Any, step: Lie) -> Any:
    """``value`` as an aligned array that lies so (:data:`~futurex.ops.strides.Lie`); itself where it is one."""
    if isinstance(value, np.ndarray) and lies_in_rows(value, step):
        return value
    if step == 1 or not isinstance(step, int):
        return in_c_order(value)
    value = np.asarray(value)
    nbytes, shape = value.nbytes * abs(step), (*value.shape[:-1], value.shape[-1] * abs(step))
    apart = maker(nbytes)(shape, value.dtype)[..., ::step]
    apart[...] = value
    return apart


def wanted(kernel: Kernel, place: int) -> Callable[[Any], Any]:
    """Gives an operand as the kernel wants it to lie."""
    return functools.partial(in_rows, step=kernel.rows[place]) if place in kernel.rows else dense


def operands(ins: Sequence[int], kernel: Kernel, loose: Sequence[int]) -> Callable[[Values], list[Any]]:
    """Reads the operands of an instruction, those in ``loose`` as the kernel wants them to lie."""
    changes = [(place, wanted(kernel, place)) for place in loose]

    def read(values: Values) -> list[Any]:
        args = [values[index] for index in ins]
        for place, change in changes:
            args[place] = change(args[place])
        return args

    return read


def step(
    kernel: Kernel, ins: tuple[int, ...], outs: tuple[int, ...], loose: tuple[int, ...], *, several: bool = False,
    numbers: tuple[int, ...] = (),
) -> Step:
    """One instruction as a closure over its slots; ``several``: the kernel gives a tuple, even of one; ``numbers``:
    which results are no arrays."""
    call = entry(kernel)
    if loose or several:
        return _general(call, kernel.into, operands(ins, kernel, loose), outs, several, numbers)
    if kernel.into and 1 <= len(ins) <= 3:
        return _INTO[len(ins)](call, outs[0], *ins)
    if not kernel.into and len(ins) == 1:
        return _returning(call, outs[0], ins[0])
    return _general(call, kernel.into, operands(ins, kernel, ()), outs, several)


def entry(kernel: Kernel) -> Callable[..., Any]:
    """What is called to run a kernel."""
    return _guarded(kernel.call) if kernel.exclusive else kernel.call


def lock_of(call: Callable[..., Any]) -> threading.Lock:
    """What whoever calls an exclusive kernel holds meanwhile, whichever plan it is in; it lives as long as they keep
    it, and they keep the kernel as long."""
    with _locks_guard:
        lock = _locks.get(id(call))
        if lock is None:
            lock = _locks[id(call)] = threading.Lock()
        return lock


def _free_locks() -> None:
    """In a child after a fork: whoever held one of the locks runs in the parent only."""
    for lock in (_locks_guard, *_locks.values()):
        lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)


def _guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    """One call at a time, whichever plan makes it."""
    lock = lock_of(call)

    def guarded(*args: Any) -> Any:
        with lock:
            return call(*args)

    return guarded


def _into1(call: Callable[..., Any], out: int, a: int) -> Step:
    def run(values: Values) -> None:
        call(values[out], values[a])

    return run


def _into2(call: Callable[..., Any], out: int, a: int, b: int) -> Step:
    def run(values: Values) -> None:
        call(values[out], values[a], values[b])

    return run


def _into3(call: Callable[..., Any], out: int, a: int, b: int, c: int) -> Step:
    def run(values: Values) -> None:
        call(values[out], values[a], values[b], values[c])

    return run


_INTO: dict[int, Callable[..., Step]] = {1: _into1, 2: _into2, 3: _into3}


def _returning(call: Callable[..., Any], out: int, a: int) -> Step:
    def run(values: Values) -> None:
        values[out] = call(None, values[a])

    return run


def _general(
    call: Callable[..., Any], into: bool, read: Callable[[Values], list[Any]], outs: tuple[int, ...], several: bool,
    numbers: tuple[int, ...] = (),
) -> Step:
    def write(values: Values) -> None:
        call(tuple(values[out] for out in outs) if several else values[outs[0]], *read(values))

    def write_several(values: Values) -> None:
        result = call(tuple(None if k in numbers else values[out] for k, out in enumerate(outs)), *read(values))
        for k in numbers:
            values[outs[k]] = result[k]

    def keep(values: Values) -> None:
        result = call(None, *read(values))
        for out, value in zip(outs, result if several else (result,), strict=True):
            values[out] = value

    if into:
        return write_several if several and numbers else write
    return keep
