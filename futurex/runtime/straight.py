"""A plan that runs often becomes one Python function without loops: slots are its variables, instructions its lines.

What one run after another finds unchanged (kernels, constants, arrays of the arena) are globals of the function, so the
same code serves every instance. Which line raised says which instruction failed. Instructions that are machine code
alone are brought together: a row of them is one line, and one call (:mod:`futurex.runtime.bound`).
"""

from __future__ import annotations

import builtins
import heapq
import os
import types
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.recycling import maker
from futurex.kernels.registry import Kernel
from futurex.kernels.steps import Following, Workspace
from futurex.ops.strides import LongRows
from futurex.runtime.bound import Operand, Part, Together
from futurex.runtime.instance import Instance, dense, entry, in_rows, lock_of, wanted
from futurex.runtime.lower import COMMUNICATOR, Draft, Kind, Slot
from futurex.runtime.results import COPIES, all_given, spare
from futurex.runtime.scheduler import Scheduler

if TYPE_CHECKING:
    from futurex.runtime.plan import Plan

LONGEST = 4000
"""Instructions of a plan for which the code is worth its making: some 20 µs each, about what a hundred runs gain."""
SHORT = 2.0
"""Seconds of a run from which it does not matter what a call costs, and who interrupts it would wait long for a row to
end."""
_BY_NAME = (np.maximum, np.minimum)  # NumPy warns where these take their result by position
_FILE = os.path.join(os.path.dirname(__file__), "<plan>")

Program = Callable[[Sequence[Any], Any, Any, bool], list[Any]]


class Straight:
    """The code of one plan. :meth:`bind` makes the function ``program(args, communicator, outs, checked) -> results``
    of an instance; ``args`` fit, and if they were ``checked`` before the run, donated ones may be written to."""

    def __init__(self, plan: Plan) -> None:
        self._low, self._layout, self._outs = plan.low, plan.layout, plan.delivery.outs
        self._names = [self._name(self._low.slots[root]) for root in self._roots()]
        self._lines: list[str] = []
        self._instructions: dict[int, list[int]] = {}  # by line
        self._rows: list[tuple[list[int], list[str]]] = []  # instructions, and names of what a run brings
        self._views: dict[int, tuple[int, tuple[int, ...]]] = {}
        """Views of arguments that only rows read: they see to them when they are aimed. By slot the argument's, and the
        instructions on the way."""
        self._fresh = {self._names[root] for root in self._layout.fresh}
        binds = [draft.kernel.bind for draft in self._low.drafts] if plan.grain.seconds < SHORT else []
        self._steps = {index: bind for index, bind in enumerate(binds) if bind is not None}
        self._write(plan)
        text = "def program(args, communicator, outs, checked):\n" + "".join(f" {line}\n" for line in self._lines)
        module = compile(text, _FILE, "exec")
        self.code = next(each for each in module.co_consts if isinstance(each, types.CodeType))

    def bind(self, instance: Instance) -> Program:
        """The function of an instance."""
        avals = [self._low.slots[root].aval for root in self._layout.donated]
        known: dict[str, Any] = {"__builtins__": builtins, "kinds": [(aval.shape, aval.dtype) for aval in avals]}
        known |= {**COPIES, "dense": dense, "in_rows": in_rows, "all_given": all_given, "spare": spare}
        known["LongRows"] = LongRows  # as it prints
        for slot in self._low.slots:
            name = self._names[slot.index]
            if name[0] == "c":
                known[name] = instance.template[slot.index]
            if self._per_run(slot.index):
                known[f"z{slot.index}"], known[f"t{slot.index}"] = slot.aval.shape, slot.aval.dtype
                known[f"m{slot.index}"] = maker(slot.layout.nbytes)
            if slot.derive is not None:
                known[f"k_{slot.index}"] = slot.derive[0].call
        for index, kernel in enumerate(instance.kernels):
            known[f"k{index}"] = kernel.ufunc if kernel.ufunc is not None else entry(kernel)
        workspace = Workspace()
        if self._rows:  # all of it at once: what is too small for a later kernel would be kept, too
            workspace.take(max(kernel.scratch for kernel in instance.kernels))
        for number, row in enumerate(self._rows):
            known[f"r{number}"] = made = self._row(instance, workspace, *row)
            known[f"p{number}"] = made.play
        return types.FunctionType(self.code, known, "program")

    def failed(self, error: BaseException) -> tuple[int, dict[int, Any]] | None:
        """The instruction that raised, and what the slots it reads held; None if the error is from elsewhere."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self.code:
            trace = trace.tb_next
        found = self._instructions.get(trace.tb_lineno) if trace is not None else None
        if found is None or trace is None:
            return None
        index = found[getattr(error, "part", 0) if len(found) > 1 else 0]
        seen: Mapping[str, Any] = {**trace.tb_frame.f_globals, **trace.tb_frame.f_locals}
        return index, {slot: self._seen(slot, seen) for slot in self._low.drafts[index].ins}

    def _seen(self, slot: int, seen: Mapping[str, Any]) -> Any:
        source, way = self._views.get(slot, (slot, ()))
        value = seen.get(self._names[source])
        for index in way:
            value = self._low.drafts[index].kernel.call(None, value)
        return value

    def _roots(self) -> list[int]:
        """Of each slot the one whose memory it has: of a chain of updates, which may be long, all have that of one."""
        found = [slot.index for slot in self._low.slots]
        for index, source in self._layout.shared.items():
            while source in self._layout.shared and found[source] == source:
                source = self._layout.shared[source]
            found[index] = found[source]
        return found

    def _name(self, slot: Slot) -> str:
        """The variable of a slot: a constant of the instance (c), an argument (a), or what a run makes (s)."""
        if slot.index == COMMUNICATOR:
            return "communicator"
        if slot.index in self._low.params:
            return f"a{self._low.params.index(slot.index)}"
        per_run = self._per_run(slot.root) or (slot.kind is not Kind.BUFFER and slot.writer is not None)
        return f"s{slot.index}" if per_run else f"c{slot.index}"

    def _per_run(self, root: int) -> bool:
        """Does every run bring this memory?"""
        return root in self._layout.fresh or root in self._layout.donated

    def _write(self, plan: Plan) -> None:
        names = self._names
        if self._low.params:
            self._lines.append(f"{''.join(f'{names[slot]}, ' for slot in self._low.params)} = args")
        for root, number in self._layout.fresh.items():
            kind = f"z{root}, t{root}"
            self._lines.append(f"{names[root]} = m{root}({kind}) if outs is None else spare(outs, {number}, {kind})")
        if self._layout.donated:
            targets, sources = (
                "".join(f"{names[slot]}, " for slot in slots)
                for slots in (self._layout.donated, map(self._low.params.__getitem__, self._layout.donated.values()))
            )
            self._lines.append(f"{targets} = ({sources}) if checked else all_given(({sources}), args, kinds)")
        for slot in self._low.slots:
            if slot.derive is not None and self._per_run(slot.root) and slot.index not in self._layout.shared:
                self._lines.append(f"{names[slot.index]} = k_{slot.index}(None, {self._list(slot.derive[1])})")
        groups = self._groups(plan)
        of_rows = {index for group in groups if self._is_row(group) for index in group}
        self._find_views([group[0] for group in groups if group[0] not in of_rows], of_rows)
        drops = _drops(plan, groups)
        for number, group in enumerate(groups):
            if group[0] in of_rows:
                self._together(group)
            elif self._low.drafts[group[0]].outs[0] not in self._views:
                self._instruction(group[0], self._low.drafts[group[0]])
            self._lines += [f"{names[gone]} = None" for gone in drops[number] if gone not in self._views]
        results = (f"{copy}({names[slot]})" if copy else names[slot] for slot, copy in self._outs)
        self._lines.append(f"return [{', '.join(results)}]")

    def _groups(self, plan: Plan) -> list[list[int]]:
        """The instructions in an order in which those that are steps stand together, as far as they may."""
        drafts = self._low.drafts
        bound = [index in self._steps for index in range(len(drafts))]
        scheduler = Scheduler([tuple(draft.after) for draft in drafts], plan.rank, plan.dependents)
        ready: tuple[list[int], list[int]] = [], []  # ranks of those that are called, and of steps
        groups: list[list[int]] = []

        def admit(indices: list[int]) -> None:
            for index in indices:
                heapq.heappush(ready[bound[index]], plan.rank[index])

        admit(scheduler.start())
        while any(ready):
            while ready[False]:
                index = plan.order[heapq.heappop(ready[False])]
                groups.append([index])
                admit(scheduler.finished(index))
            group: list[int] = []
            while ready[True]:
                group.append(plan.order[heapq.heappop(ready[True])])
                admit(scheduler.finished(group[-1]))
            if group:
                groups.append(group)
        return groups

    def _is_row(self, group: Sequence[int]) -> bool:
        """Are these instructions steps that are worth a row? One alone is where it follows what it reads and writes:
        else it would be aimed at every run."""
        bind = self._steps.get(group[0])
        return len(group) > 1 or (bind is not None and isinstance(bind(Workspace()), Following))

    def _find_views(self, alone: Sequence[int], of_rows: set[int]) -> None:
        """Which views of arguments nobody but rows reads. Where only the run knows how many rows an argument has, its
        last one may lie elsewhere though the argument does not."""
        drafts, slots = self._low.drafts, self._low.slots
        passed_by = set(of_rows)
        kept = {*self._low.outs, *(source for slot in slots if slot.derive is not None for source in slot.derive[1])}
        for index in reversed(alone):
            draft = drafts[index]
            is_view = draft.kernel.view is not None and not draft.kernel.into and len(draft.ins) == len(draft.outs) == 1
            if is_view and draft.outs[0] not in kept and passed_by.issuperset(slots[draft.outs[0]].readers):
                passed_by.add(index)
        for index in alone:
            if index in passed_by:
                source, way = self._views.get(drafts[index].ins[0], (drafts[index].ins[0], ()))
                if source in self._low.params and slots[source].aval.static:
                    self._views[drafts[index].outs[0]] = source, (*way, index)

    def _together(self, group: list[int]) -> None:
        """One line for a row of instructions that are steps."""
        slots = [slot for index in group for slot in (*self._low.drafts[index].outs, *self._low.drafts[index].ins)]
        named = [self._names[self._views.get(slot, (slot,))[0]] for slot in slots]
        brought = list(dict.fromkeys(name for name in named if name[0] != "c"))
        self._rows.append((group, brought))
        values = ", ".join(brought)
        line = f"r{len(self._rows) - 1}({values})"
        if not any(self._low.drafts[index].kernel.exclusive for index in group):
            line = f"p{len(self._rows) - 1}({values}) or {line}"
        self._lines.append(line)
        self._instructions[len(self._lines) + 1] = group

    def _row(self, instance: Instance, workspace: Workspace, group: Sequence[int], brought: Sequence[str]) -> Together:
        """The function of such a line."""
        parts, locks = [], []
        for index in group:
            draft, kernel = self._low.drafts[index], instance.kernels[index]
            loose = self._low.loose(draft.ins, kernel)
            call = kernel.call if not loose else _laid(kernel, loose)
            outs, ins = (tuple([self._operand(slot, brought, instance) for slot in slots])
                         for slots in (draft.outs, draft.ins))  # fmt: skip
            assert kernel.bind is not None
            parts.append(Part(kernel.bind(workspace), call, outs, ins, isinstance(draft.node.aval, tuple)))
            if kernel.exclusive:
                locks.append(lock_of(kernel.call))
        fresh = [number for number, name in enumerate(brought) if name in self._fresh]
        return Together(parts, len(brought), locks, fresh)

    def _operand(self, slot: int, brought: Sequence[str], instance: Instance) -> Operand:
        source, way = self._views.get(slot, (slot, ()))
        name = self._names[source]
        if name[0] == "c":
            return Operand(None, instance.template[slot])
        return Operand(brought.index(name), views=tuple([instance.kernels[index].call for index in way]))

    def _instruction(self, index: int, draft: Draft) -> None:
        kernel, loose = draft.kernel, self._low.loose(draft.ins, draft.kernel)
        inputs = self._list(draft.ins, {place: _change(kernel, place) for place in loose})
        outs = [self._names[out] for out in draft.outs]
        several = isinstance(draft.node.aval, tuple)
        targets = f"({''.join(f'{out}, ' for out in outs)})" if several else outs[0]
        numbers = [self._low.slots[out].kind is Kind.SCALAR for out in draft.outs]
        if kernel.written:
            call = f"k{index}(None, {inputs})"
            line = f"{targets} = {kernel.written.format(*inputs.split(', '), call=call)}"
        elif kernel.ufunc in _BY_NAME:
            line = f"k{index}({inputs}, out={targets})"
        elif kernel.ufunc is not None:
            line = f"k{index}({inputs}, {targets})"
        elif kernel.into and several and any(numbers):
            found = "".join(f"{out if number else '_'}, " for out, number in zip(outs, numbers, strict=True))
            given = "".join(f"{None if number else out}, " for out, number in zip(outs, numbers, strict=True))
            line = f"{found} = k{index}(({given}), {inputs})"
        elif kernel.into:
            line = f"k{index}({targets}, {inputs})"
        else:
            line = f"{targets} = k{index}(None, {inputs})"
        self._lines.append(line)
        self._instructions[len(self._lines) + 1] = [index]

    def _list(self, slots: Sequence[int], changes: Mapping[int, str] = MappingProxyType({})) -> str:
        names = [self._names[slot] for slot in slots]
        return ", ".join(changes[place].format(name) if place in changes else name for place, name in enumerate(names))


def _change(kernel: Kernel, place: int) -> str:
    """As text what :func:`wanted` gives."""
    return f"in_rows({{}}, {kernel.rows[place]})" if place in kernel.rows else "dense({})"


def _drops(plan: Plan, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """The slots that nobody reads after each group."""
    place = {index: number for number, group in enumerate(groups) for index in group}
    drops: list[list[int]] = [[] for _ in groups]
    for slot in plan.readers:
        drops[max(place[reader] for reader in plan.low.slots[slot].readers)].append(slot)
    return drops


def _laid(kernel: Kernel, loose: Sequence[int]) -> Callable[..., Any]:
    """``call(out, *inputs)`` with these inputs as the kernel wants them to lie."""
    call, changes = kernel.call, {place: wanted(kernel, place) for place in loose}

    def run(out: Any, *inputs: Any) -> Any:
        return call(out, *(changes[place](value) if place in changes else value for place, value in enumerate(inputs)))

    return run
