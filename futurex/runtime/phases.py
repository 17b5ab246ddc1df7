"""The steps of a plan for a GPU in two phases: what the host does before anything is launched, then the kernels.

Numbers (the step and the rates of an optimizer), and what NumPy must look at anyway (whether labels are classes), need
nothing of the device as long as what they are computed from is on the host. Done first, they leave a run of kernels
behind that nothing on the host stands between.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from futurex.kernels.registry import Kernel
from futurex.tree.node import Node

SAME_MEMORY = frozenset((
    "reshape", "transpose", "broadcast_to", "flip", "load", "real", "imag", "stop_gradient", "cast", "sum_to", "item",
    "contiguous", "positive", "conjugate", "narrow", "widen", "round",
))  # fmt: skip
"""Ops whose kernel may give an operand, or a view of one, as its result."""


class Step:
    """One kernel of a plan, as :class:`futurex.runtime.plan.Instruction` is one of a plan for the host.

    ``over``: for each result the slot of the argument that it is written over, or None; empty if there is none.
    """

    __slots__ = ("drops", "ins", "kernel", "node", "ns", "outs", "over")

    def __init__(self, node: Node, kernel: Kernel, ins: tuple[int, ...], outs: tuple[int, ...]) -> None:
        self.node, self.kernel, self.ins, self.outs = node, kernel, ins, outs
        self.drops: tuple[int, ...] = ()
        self.over: tuple[int | None, ...] = ()
        self.ns = 0


class Phases:
    """The steps for calls whose arguments lie in one way.

    ``before``: steps with their kernels of the host. ``made``: what kernels make, ``read``: what they read.
    ``entering``: the slots that they, or the results, read and that no kernel makes.
    """

    def __init__(self, steps: Sequence[Step], on_host: Iterable[int], outs: Sequence[int]) -> None:
        """``on_host``: slots of what the host has: arguments and numbers."""
        here = set(on_host)
        self.before: list[tuple[Step, Any]] = []
        self.kernels: list[Step] = []
        effects = True  # all effects so far were the host's: their order stays
        for step in steps:
            call = getattr(step.kernel.call, "on_host", None)
            kernel = None
            if call is not None and here.issuperset(step.ins) and (effects or not step.node.record.effect):
                kernel = call(step.node.inputs)
            if kernel is None:
                self.kernels.append(step)
                effects = effects and not step.node.record.effect
            else:
                self.before.append((step, kernel))
                here.update(step.outs)
        self.made = made = {slot for step in self.kernels for slot in step.outs}
        self.read = dict.fromkeys(slot for step in self.kernels for slot in step.ins)
        self.entering = [slot for slot in dict.fromkeys((*self.read, *outs)) if slot not in made]

    @functools.cached_property
    def numbers(self) -> frozenset[int]:
        """Those of ``entering`` that only kernels read which take numbers from the device's memory, too."""
        bound = {
            slot for step in self.kernels if not getattr(step.kernel.call, "reads_numbers", False) for slot in step.ins
        }
        return frozenset(self.entering) - bound


def write_over(steps: list[Step], outs: Sequence[int], donate: Mapping[int, int], kept: Collection[int]) -> list[Step]:
    """Steps in an order in which as many as can be write results over the arguments that those replace.

    ``donate`` maps places in ``outs`` to slots of arguments; ``kept`` are slots of arguments and constants. A step does
    so if nobody reads the argument, or a view of it, after it. Steps whose results nobody reads move to behind the last
    reader of what they replace.
    """
    replaced = {outs[place]: slot for place, slot in donate.items() if outs[place] not in kept}
    roots: dict[int, frozenset[int]] = {slot: frozenset((slot,)) for slot in kept}
    for step in steps:
        shared = step.node.op in SAME_MEMORY or step.node.record.structured
        inputs = frozenset().union(*(roots[slot] for slot in step.ins)) if shared else frozenset()
        roots.update((slot, inputs | {slot}) for slot in step.outs)

    def readers(order: Sequence[Step]) -> dict[int, int]:
        return {root: place for place, step in enumerate(order) for slot in step.ins for root in roots[slot]}

    last, read = readers(steps), {slot for step in steps for slot in step.ins}
    due = {
        id(step): max([place, *(last.get(replaced[slot], -1) for slot in step.outs if slot in replaced)])
        for place, step in enumerate(steps) if read.isdisjoint(step.outs)
    }  # fmt: skip
    places = {id(step): (due.get(id(step), place), id(step) in due) for place, step in enumerate(steps)}
    order = sorted(steps, key=lambda step: places[id(step)])
    last = readers(order)
    returned = {root for slot in outs for root in roots[slot]}
    for place, step in enumerate(order):
        if not getattr(step.kernel.call, "overwrites", False):
            continue
        targets = tuple(replaced.get(slot) for slot in step.outs)
        step.over = tuple(
            target if target is not None and target not in returned and last.get(target, -1) <= place
            and all(slot == target or target not in roots[slot] for slot in step.ins) else None
            for target in targets
        )  # fmt: skip
        if not any(target is not None for target in step.over):
            step.over = ()
    return order
