"""How much memory a run will take, told from its plan: which arrays are alive while each instruction runs.

Tapes of loops are counted where the number of rounds follows from constants: what decides over the next round is
computed here, for as many rounds as there will be. Strided operands of kernels that want them dense are counted as the
copies that the run makes of them. What a kernel of NumPy's allocates while it runs is counted where its op says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from futurex.kernels.interpreted import room_of
from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import fits
from futurex.ops.tapes import Tape
from futurex.passes.rounds import rounds_of
from futurex.runtime.lower import Draft, Kind, Lowering, Slot
from futurex.runtime.memory import Layout, Memory
from futurex.runtime.shadows import shadow
from futurex.tree.aval import Aval


def predicted(low: Lowering, layout: Layout, order: Sequence[int], copied: Sequence[int] = ()) -> Memory:
    """The memory of one run of a plan whose instructions run in ``order``, plans of sub-graphs included. The results
    in the slots ``copied`` are copies, since they are views of planned memory, of arguments or of other results."""
    slots = low.slots
    lengths = _lengths(low)
    handed_over = sum(slot_bytes(slots[index]) for index in copied)
    unplanned = _peak(low, order, lengths, handed_over)
    inner = [plan.memory for draft in low.drafts for plan in draft.kernel.plans]
    return Memory(
        arena=layout.arena + sum(each.arena for each in inner),
        outputs=sum(slots[root].aval.nbytes for root in layout.fresh),
        constants=sum(slot_bytes(slot) for slot in slots if slot.kind is Kind.CONST and slot.root == slot.index)
        + sum(each.constants for each in inner),
        unplanned=unplanned,
        unknown=sum(slot.kind is Kind.OWN and not slot.aval.static for slot in slots if slot.root == slot.index)
        + sum(isinstance(slot.aval, Tape) and slot.index not in lengths for slot in slots if slot.kind is Kind.OWN)
        + sum(each.unknown for each in inner),
        kernels=sum(_kept(low)),
        interpreted=_peak(low, order, lengths, handed_over, first=True) - unplanned,
    )


def _kept(low: Lowering) -> tuple[int, int]:
    """What kernels keep for themselves, those of sub-graphs included, and what they share, which every plan that has
    become one function has of its own: the most that one of its kernels needs."""
    own, scratch = sum(draft.kernel.own for draft in low.drafts), max((d.kernel.scratch for d in low.drafts), default=0)
    for draft in low.drafts:
        for plan in draft.kernel.plans:
            inside = _kept(plan.low)
            own, scratch = own + inside[0], scratch + inside[1]
    return own, scratch


def _peak(
    low: Lowering, order: Sequence[int], lengths: Mapping[int, int], handed_over: int, *, first: bool = False
) -> int:
    """The most bytes at once in arrays that kernels make, from their writer to the last reader of what lies in them,
    and at the end in copies of results that are ``handed_over``; in a ``first`` run, whose kernels have no code yet,
    NumPy's among them."""
    position = {index: place for place, index in enumerate(order)}
    end = len(order)
    ends: dict[int, int] = {}
    copies: dict[int, int] = {}  # of views of arguments: the copy or the argument in which they lie
    for slot in low.slots:
        if slot.kind is not Kind.OWN:
            continue
        root = slot.root
        if low.slots[root].kind is Kind.PARAM:
            root = slot.index if _is_copied(low, slot) else copies.get(_base(low, slot), root)
            copies[slot.index] = root
        if low.slots[root].kind is Kind.OWN:
            last = end if slot.index in low.outs else max((position[k] for k in slot.readers), default=end)
            ends[root] = max(ends.get(root, 0), last)
    change = [0] * (end + 2)
    for root, last in ends.items():
        writer = low.slots[root].writer
        assert writer is not None
        size = slot_bytes(low.slots[root], lengths)
        change[position[writer]] += size
        change[last + 1] -= size
    most = alive = 0
    for place in range(end + 1):
        alive += change[place]
        while_it_runs = beside(low, low.drafts[order[place]]) if place < end else handed_over
        if first and place < end:
            while_it_runs += _interpreted(low.drafts[order[place]])
        most = max(most, alive + while_it_runs)
    return most


def _interpreted(draft: Draft) -> int:
    """What NumPy makes in place of the code of a kernel, or of those in its plans, that is not there yet."""
    if draft.kernel.plans:
        return max(plan.memory.interpreted for plan in draft.kernel.plans)
    return 0 if draft.kernel.late is None else room_of(draft.node)


def beside(low: Lowering, draft: Draft) -> int:
    """What a node with sub-graphs needs while it runs, besides its results and the arenas of its plans.

    A loop writes one set of what it carries while it reads another, the last of which is its result; what its body
    writes in place it has once.
    """
    plans: Sequence[Any] = draft.kernel.plans
    if not plans:
        return _copies(low, draft) + _room(draft)
    results = sum(slot_bytes(low.slots[out]) for out in draft.outs)
    most = max(plan.memory.outputs + plan.memory.unplanned for plan in plans)
    if draft.node.op == "cond":
        return int(max(0, most - results))
    carried = sum(slot_bytes(low.slots[out]) for out in draft.outs[: _carried(draft)])
    body = plans[-1]
    in_place = sum(slot_bytes(body.low.slots[root]) for root in body.layout.donated)
    return int(most + max(0, carried - body.memory.outputs - in_place))


def _copies(low: Lowering, draft: Draft) -> int:
    """Bytes of the operands that an instruction has to copy, because they do not lie as its kernel wants them."""
    places = low.loose(draft.ins, draft.kernel)
    layouts = {place: _layout(low, draft.ins[place]) for place in places}
    copied = [place for place, each in layouts.items() if each is not None and not fits(draft.kernel, place, each)]
    return sum(slot_bytes(low.slots[draft.ins[place]]) for place in copied)


def _room(draft: Draft) -> int:
    """Bytes that an op's own kernel allocates while it runs; those of other backends have their room from the start."""
    node = draft.node
    if draft.kernel.backend != NumpyBackend.name or node.record.room is None or not node.is_static:
        return 0
    return node.record.room(*(each.aval for each in node.inputs), **node.attrs)


def _base(low: Lowering, slot: Slot) -> int:
    """The slot of which this one is a view."""
    assert slot.writer is not None
    draft = low.drafts[slot.writer]
    return draft.ins[draft.kernel.view or 0]


def _is_copied(low: Lowering, slot: Slot) -> bool:
    """Does a view of an argument have to be a copy, because its elements do not lie so? Arguments are taken to be
    dense."""
    assert slot.writer is not None
    draft = low.drafts[slot.writer]
    stand_ins = _stand_ins(low, draft)
    found = None if stand_ins is None else draft.kernel.call(None, *stand_ins)
    return isinstance(found, np.ndarray) and not np.may_share_memory(found, stand_ins[draft.kernel.view])


def _stand_ins(low: Lowering, draft: Draft) -> Any:
    """What a view reads, as far as it matters; None where indices are only known to the run."""
    found = [
        _layout(low, source) if place == draft.kernel.view else low.slots[source].value
        for place, source in enumerate(draft.ins)
    ]
    return None if any(each is None for each in found) else found


def _layout(low: Lowering, index: int) -> Any:
    """A stand-in that lies as the array will, without memory of its own; None for what is no array or unknown.

    Arguments are taken to be dense; indices that only the run knows, to leave gaps.
    """
    slot = low.slots[index]
    if slot.layout is not None or not (isinstance(slot.aval, Aval) and slot.aval.static) or slot.aval.dtype.hasobject:
        return slot.layout
    dense = shadow(slot.aval.shape, slot.aval.dtype)
    draft = low.drafts[slot.writer] if slot.writer is not None else None
    if draft is None or draft.kernel.view is None:
        return dense
    if draft.node.op == "after":  # the same array, once others are there
        return _layout(low, draft.ins[draft.kernel.view])
    stand_ins = _stand_ins(low, draft)
    if stand_ins is None:
        return shadow((2 * dense.shape[0], *dense.shape[1:]), dense.dtype)[::2] if dense.ndim else dense
    found = draft.kernel.call(None, *stand_ins)
    return found if isinstance(found, np.ndarray) else dense


def _carried(draft: Draft) -> int:
    """How many results of a loop are what it carries."""
    attrs = draft.node.attrs
    return int(attrs["n_carry"]) if draft.node.op == "scan" else len(attrs["body"].outs)


def slot_bytes(slot: Slot, lengths: Mapping[int, int] = MappingProxyType({})) -> int:
    if isinstance(slot.aval, Tape):
        return slot.aval.element.nbytes * lengths.get(slot.index, 0) if slot.aval.element.static else 0
    known = isinstance(slot.aval, Aval) and slot.aval.static and not slot.aval.dtype.hasobject
    return slot.aval.nbytes if known else 0


def _lengths(low: Lowering) -> dict[int, int]:
    """How many elements the tapes will have, by slot."""
    lengths: dict[int, int] = {}
    for draft in low.drafts:
        tapes = [out for out in draft.outs if isinstance(low.slots[out].aval, Tape)]
        if not tapes:
            continue
        read = [lengths[source] for source in draft.ins if source in lengths]
        count = read[0] if read else rounds_of(draft.node) if draft.node.op == "loop" else None
        if count is not None:
            lengths.update(dict.fromkeys(tapes, count))
    return lengths
