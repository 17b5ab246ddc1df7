"""A plan that runs often becomes one Python function without loops: slots are its variables, instructions its lines.

What one run after another finds unchanged (kernels, constants, arrays of the arena) are globals of the function, so the
same code serves every instance. Which line raised says which instruction failed.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.recycling import maker
from futurex.runtime.instance import Instance, dense, entry
from futurex.runtime.lower import COMMUNICATOR, Draft, Kind, Slot
from futurex.runtime.results import copied, given, often, spare

if TYPE_CHECKING:
    from futurex.runtime.plan import Plan

LONGEST = 4000
"""Instructions of a plan for which the code is worth its making: some 20 µs each, about what a hundred runs gain."""
_BY_NAME = (np.maximum, np.minimum)  # NumPy warns where these take their result by position
_FILE = os.path.join(os.path.dirname(__file__), "<plan>")

Program = Callable[[Sequence[Any], Any, Any], list[Any]]


class Straight:
    """The code of one plan. :meth:`bind` makes the function ``program(args, communicator, outs) -> results`` of an
    instance; ``args`` have been checked."""

    def __init__(self, plan: Plan) -> None:
        self._low, self._layout, self._outs = plan.low, plan.layout, plan.delivery.outs
        self._names = [self._name(slot) for slot in self._low.slots]
        self._lines: list[str] = []
        self._instructions: dict[int, int] = {}  # by line
        self._write(plan)
        text = "def program(args, communicator, outs):\n" + "".join(f" {line}\n" for line in self._lines)
        module = compile(text, _FILE, "exec")
        self.code = next(each for each in module.co_consts if isinstance(each, types.CodeType))

    def bind(self, instance: Instance) -> Program:
        """The function of an instance."""
        known: dict[str, Any] = {"copied": copied, "dense": dense, "given": given}
        known |= {"often": often, "spare": spare}
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
        return types.FunctionType(self.code, known, "program")

    def failed(self, error: BaseException) -> tuple[int, dict[int, Any]] | None:
        """The instruction that raised, and what the slots it reads held; None if the error is from elsewhere."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self.code:
            trace = trace.tb_next
        index = self._instructions.get(trace.tb_lineno) if trace is not None else None
        if index is None or trace is None:
            return None
        seen: Mapping[str, Any] = {**trace.tb_frame.f_globals, **trace.tb_frame.f_locals}
        return index, {slot: seen.get(self._names[slot]) for slot in self._low.drafts[index].ins}

    def _name(self, slot: Slot) -> str:
        """The variable of a slot: a constant of the instance (c), an argument (a), or what a run makes (s)."""
        if slot.index == COMMUNICATOR:
            return "communicator"
        if slot.index in self._layout.shared:
            return self._name(self._low.slots[self._layout.shared[slot.index]])
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
            self._lines.append("seen = often(args)")
        for root, param in self._layout.donated.items():
            self._lines.append(f"{names[root]} = given({names[self._low.params[param]]}, seen, z{root}, t{root})")
        for slot in self._low.slots:
            if slot.derive is not None and self._per_run(slot.root) and slot.index not in self._layout.shared:
                self._lines.append(f"{names[slot.index]} = k_{slot.index}(None, {self._list(slot.derive[1])})")
        for index in plan.order:
            self._instruction(index, self._low.drafts[index])
            self._lines += [f"{names[gone]} = None" for gone in plan.drops.get(index, ())]
        results = (f"copied({names[slot]})" if copy else names[slot] for slot, copy in self._outs)
        self._lines.append(f"return [{', '.join(results)}]")

    def _instruction(self, index: int, draft: Draft) -> None:
        kernel, loose = draft.kernel, self._low.loose(draft.ins, draft.kernel)
        inputs = self._list(draft.ins, loose)
        outs = [self._names[out] for out in draft.outs]
        several = isinstance(draft.node.aval, tuple)
        targets = f"({''.join(f'{out}, ' for out in outs)})" if several else outs[0]
        if kernel.ufunc in _BY_NAME:
            line = f"k{index}({inputs}, out={targets})"
        elif kernel.ufunc is not None:
            line = f"k{index}({inputs}, {targets})"
        elif kernel.into:
            line = f"k{index}({targets}, {inputs})"
        else:
            line = f"{targets} = k{index}(None, {inputs})"
        self._lines.append(line)
        self._instructions[len(self._lines) + 1] = index

    def _list(self, slots: Sequence[int], loose: Sequence[int] = ()) -> str:
        names = [self._names[slot] for slot in slots]
        return ", ".join(f"dense({name})" if place in loose else name for place, name in enumerate(names))
