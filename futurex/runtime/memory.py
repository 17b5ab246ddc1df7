"""Where every planned value lies: in the arena, in an array made for the caller, or in an argument that was donated.

Decided once, from the order in which instructions run. Reuse of memory becomes dependencies (readers before the next
writer), so that an executor which runs instructions in another order stays right.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.passes.dead import may_raise
from futurex.runtime.arenas import ALIGNMENT
from futurex.runtime.lower import Draft, Kind, Lowering, Slot
from futurex.runtime.units import bytes_text
from futurex.tree.node import Node

_SMALL, _SMALL_SHARE = 8192, 16
"""Bytes of values whose memory is used once, where all of them are this part of the largest value: what is saved is not
worth that large instructions wait for those that read them, and that rows of machine code end there."""


@dataclass(frozen=True, slots=True, repr=False)
class Memory:
    """Bytes a plan needs: ``arena`` per concurrent run, ``outputs`` in fresh arrays, ``constants`` once;
    ``unplanned`` is the most at once in arrays that kernels allocate themselves, tapes of loops and copies of strided
    operands among them; ``kernels`` is what these keep for themselves between runs. The
    ``unknown`` arrays, whose size only the run knows, are not counted in bytes; tapes of unknown length are such.

    Two things are not part of ``peak``, but of ``first``: ``interpreted`` is the most that NumPy makes in calls before
    the code of kernels is there, ``copies`` those of arguments, which a call makes that returns before its run is over.
    """

    arena: int
    outputs: int
    constants: int
    unplanned: int
    unknown: int = 0
    kernels: int = 0
    interpreted: int = 0
    copies: int = 0

    @property
    def peak(self) -> int:
        """Predicted peak bytes of one run, arguments not counted."""
        return self.arena + self.outputs + self.constants + self.unplanned + self.kernels

    @property
    def first(self) -> int:
        """Predicted peak bytes of the first call in a process, arguments not counted."""
        return self.peak + self.interpreted + self.copies

    def __repr__(self) -> str:
        """The peak first, then what it is made of, without what is nothing.

        >>> Memory(arena=8_000_000, outputs=400_000, constants=0, unplanned=0, unknown=2)
        <Memory: peak 8.40 MB = arena 8.00 MB + outputs 400 kB, and 2 arrays whose size only the run knows>
        >>> Memory(arena=0, outputs=4_000_000, constants=0, unplanned=0, copies=8_000_000)
        <Memory: peak 4.00 MB = outputs 4.00 MB; first call 12.0 MB = peak + copies 8.00 MB>
        """
        parts = self._parts("arena", "outputs", "constants", "unplanned", "kernels")
        more = self._parts("interpreted", "copies")
        unknown = f", and {self.unknown} array{'s' * (self.unknown > 1)} whose size only the run knows"
        made = f" = {' + '.join(parts)}" if parts else ""
        first = f"; first call {bytes_text(self.first)} = {' + '.join(['peak', *more])}" if more else ""
        return f"<Memory: peak {bytes_text(self.peak)}{made}{unknown if self.unknown else ''}{first}>"

    def _parts(self, *names: str) -> list[str]:
        return [f"{name} {bytes_text(count)}" for name in names if (count := getattr(self, name))]


@dataclass(slots=True)
class Layout:
    """The decisions: arena offsets, fresh and donated roots, slots that share the array of another, and results.

    ``fresh`` and ``donated`` map a root to the output or the parameter it stands for. ``shared`` maps a slot written in
    place to the slot whose array it takes over.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    fresh: dict[int, int] = field(default_factory=dict)
    donated: dict[int, int] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)
    arena: int = 0


class Planner:
    """Fills a :class:`Layout`: donation before the order is known, then in-place writes and offsets.

    ``apart``: no decision makes an instruction wait for another one that it does not read from. ``intact``: nothing is
    written into what was donated before all is done that may raise.
    """

    def __init__(
        self, low: Lowering, donate: Mapping[int, int], *, apart: bool = False, intact: bool = False
    ) -> None:
        self.low = low
        self.apart = apart
        self._failing = _failing(low.drafts) if intact and donate else set[int]()
        self.donate = dict(donate)
        self.layout = Layout()
        self._content: dict[int, list[Slot]] = {}  # what lies in a root since it was last written in place
        for slot in low.slots:
            self._content.setdefault(slot.root, []).append(slot)
        self._check_donation()

    def _check_donation(self) -> None:
        graph = self.low.graph
        for out, param in self.donate.items():
            if not (0 <= out < len(graph.outs) and 0 <= param < len(graph.params)):
                raise ValueError(
                    f"donate={{{out}: {param}}}: {graph.name} has {len(graph.outs)} outputs, {len(graph.params)} inputs"
                )
            result, target = graph.outs[out].aval, graph.params[param].aval
            if result != target or result.weak:
                raise ValueError(
                    f"donate={{{out}: {param}}}: output {out} is {result!r} but input {param} is {target!r}"
                )
        if len(set(self.donate.values())) != len(self.donate):
            raise ValueError(f"donate={self.donate}: an input can take one output")

    def place_donated(self) -> None:
        """Let donated outputs be written straight into their parameter where every other reader can run before."""
        dependents = _dependents(self.low.drafts)
        for out, param in self.donate.items():
            slot, target = self.low.slots[self.low.outs[out]], self.low.slots[self.low.params[param]]
            if (
                slot.kind is not Kind.BUFFER
                or slot.root != slot.index
                or slot.writer is None
                or slot.root in self.layout.donated
            ):
                continue
            if any(self.low.slots[index].root == target.index for index in self.low.outs):
                continue
            before: Slot | None = slot
            while before is not None and self._donated(before, target, dependents):
                self.layout.donated[before.root] = param
                before = self._overwritten(before, dependents)

    def _donated(self, slot: Slot, target: Slot, dependents: list[set[int]]) -> bool:
        """May it be written straight into a parameter? Who else reads that runs before, and what may raise, if it
        must."""
        writer = slot.writer
        assert writer is not None
        if writer in self._failing and not _raises_first(self.low.drafts[writer], target):
            return False
        readers = (self._users(target.index) | self._failing) - {writer}
        if not self._reads_in_place(writer, target, slot.index) or _reaches(writer, readers, dependents):
            return False
        self._wait(writer, readers, dependents)
        return True

    def _wait(self, writer: int, readers: set[int], dependents: list[set[int]]) -> None:
        for reader in readers:
            self.low.drafts[writer].after.add(reader)
            dependents[reader].add(writer)

    def _overwritten(self, slot: Slot, dependents: list[set[int]]) -> Slot | None:
        """What the writer of a slot may write over, where nobody else reads it later: it goes where that goes."""
        writer = slot.writer
        assert writer is not None
        draft, returned = self.low.drafts[writer], {self.low.slots[index].root for index in self.low.outs}
        for place in () if draft.paired else draft.kernel.inplace:
            found = self.low.slots[draft.ins[place + len(draft.ins) - len(draft.node.inputs)]]
            if found.kind is not Kind.BUFFER or found.root != found.index or found.writer is None:
                continue
            if found.aval != slot.aval or found.root in returned or found.root in self.layout.donated:
                continue
            readers = self._users(found.root) - {found.writer, writer}
            if self._reads_in_place(writer, found, slot.index) and not _reaches(writer, readers, dependents):
                self._wait(writer, readers, dependents)
                return found
        return None

    def place(self, order: Sequence[int]) -> Layout:
        """In-place writes, fresh outputs and arena offsets for instructions that run in ``order``."""
        position = {index: place for place, index in enumerate(order)}
        returned = {self.low.slots[index].root for index in self.low.outs}
        for index in order:
            self._write_in_place(index, position, returned)
        for number, index in enumerate(self.low.outs):
            slot = self.low.slots[index]
            root = self.low.slots[slot.root]
            taken = slot.root in self.layout.fresh or slot.root in self.layout.donated
            if slot.kind is not Kind.BUFFER or taken or number in self.donate or not slot.aval.shape:
                continue  # a single number is copied out of the arena: kernels are not aimed at it anew in every run
            if slot.layout.nbytes == root.layout.nbytes and slot.layout.flags.writeable:
                self.layout.fresh[slot.root] = number
        self._place_arena(position)
        return self.layout

    def _users(self, root: int) -> set[int]:
        """Instructions that read or write what ``root`` holds; those of what it held before have run by then."""
        users: set[int] = set()
        for slot in self._content[root]:
            users.update(slot.readers)
            if slot.writer is not None:
                users.add(slot.writer)
        return users

    def _reads_in_place(self, index: int, source: Slot, out: int) -> bool:
        """True if the instruction reads the memory of ``source`` nowhere but where its kernel may write ``out`` over
        it."""
        draft = self.low.drafts[index]
        shift = len(draft.ins) - len(draft.node.inputs)
        allowed = [draft.outs.index(out)] if draft.paired else range(len(draft.node.inputs))
        for place, read in enumerate(draft.ins):
            same_memory = self.low.slots[read].root == source.root
            here = place - shift in draft.kernel.inplace and place - shift in allowed
            if place - shift in draft.kernel.overlaps:
                continue
            if same_memory and (read != source.index or not here):
                return False
        return True

    def _write_in_place(self, index: int, position: Mapping[int, int], returned: set[int]) -> None:
        draft = self.low.drafts[index]
        for out in draft.outs:
            target = self.low.slots[out]
            if target.kind is not Kind.BUFFER or target.root in self.layout.donated:
                continue
            for source in self._candidates(draft, out):
                if self._may_take(index, self.low.slots[source], target, position, returned):
                    self._take(index, self.low.slots[source], target, returned)
                    break

    @staticmethod
    def _candidates(draft: Draft, out: int) -> list[int]:
        """Input slots whose memory a result may take."""
        shift = len(draft.ins) - len(draft.node.inputs)
        if draft.paired:
            number = draft.outs.index(out)
            own = [draft.ins[number + shift]] if number in draft.kernel.inplace else []
            return [source for source in own if draft.ins.count(source) == 1]
        return list(dict.fromkeys(draft.ins[k + shift] for k in draft.kernel.inplace))

    def _may_take(
        self, index: int, source: Slot, target: Slot, position: Mapping[int, int], returned: set[int]
    ) -> bool:
        root = self.low.slots[source.root]
        if source.kind is not Kind.BUFFER or root.index in returned or root.index in self.layout.donated:
            return False
        if (
            source.aval != target.aval
            or not source.layout.flags.c_contiguous
            or not source.layout.flags.writeable  # an element of a broadcast view
            or source.layout.nbytes != root.layout.nbytes
        ):
            return False
        here, users = position[index], self._users(root.index)
        if any(position[user] > here for user in users) or (self.apart and users - {index, root.writer}):
            return False
        outs = self.low.drafts[index].outs
        apart = all(self.low.slots[out].root != root.index for out in outs)
        return apart and self._reads_in_place(index, source, target.index)

    def _take(self, index: int, source: Slot, target: Slot, returned: set[int]) -> None:
        self.low.drafts[index].after |= self._users(source.root) - {index}
        self.layout.shared[target.index] = source.index
        members = self._content.pop(target.root)
        if target.root in returned:
            returned.add(source.root)
        for slot in members:
            slot.root = source.root
        self._content[source.root] = members

    def _place_arena(self, position: Mapping[int, int]) -> None:
        roots = [
            slot for slot in self.low.slots
            if slot.kind is Kind.BUFFER and slot.root == slot.index
            and slot.index not in self.layout.fresh and slot.index not in self.layout.donated
        ]  # fmt: skip
        roots = [slot for slot in roots if slot.layout.nbytes]
        sizes = [-(-slot.layout.nbytes // ALIGNMENT) * ALIGNMENT for slot in roots]
        if self.apart:
            ends = [0, *itertools.accumulate(sizes)]
            self.layout.offsets = {slot.index: end for slot, end in zip(roots, ends[:-1], strict=True)}
            self.layout.arena = ends[-1]
            return
        returned = {self.low.slots[index].root for index in self.low.outs}
        lives = {slot.index: self._life(slot.index, position, returned) for slot in roots}
        small = sum(size for size in sizes if size <= _SMALL)
        keep = _SMALL if _SMALL_SHARE * small <= max(sizes, default=0) else 0
        always = 0, len(position)
        held = [always if size <= keep else lives[slot.index][:2] for slot, size in zip(roots, sizes, strict=True)]
        offsets = packed(sizes, held)
        self.layout.offsets = {slot.index: offset for slot, offset in zip(roots, offsets, strict=True)}
        self.layout.arena = max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
        self._order_reuse(roots, sizes, lives)

    def _life(self, root: int, position: Mapping[int, int], returned: Set[int]) -> tuple[int, int, int]:
        """First and last position at which the memory is in use, and its first writer.

        What a collective reads stays until the result is read: taken over at once, the memory would make others wait.
        """
        users = self._users(root)
        end = max(position[user] for user in users)
        if root in returned:
            end = len(position)
        for user in users:
            draft = self.low.drafts[user]
            if draft.communicates:
                readers = [position[reader] for out in draft.outs for reader in self._users(self.low.slots[out].root)]
                end = max(end, min((place for place in readers if place > position[user]), default=len(position)))
        first = self.low.slots[root].writer
        assert first is not None
        return position[first], end, first

    def _order_reuse(
        self, roots: Sequence[Slot], sizes: Sequence[int], lives: Mapping[int, tuple[int, int, int]]
    ) -> None:
        """The first writer of memory waits for all users of what lay there before."""
        occupied: list[tuple[int, int, int]] = []
        for slot, size in sorted(zip(roots, sizes, strict=True), key=lambda pair: lives[pair[0].index][0]):
            low = self.layout.offsets[slot.index]
            high = low + size
            writer = lives[slot.index][2]
            kept: list[tuple[int, int, int]] = []
            for start, stop, tenant in occupied:
                if stop <= low or start >= high:
                    kept.append((start, stop, tenant))
                    continue
                self.low.drafts[writer].after |= self._users(tenant) - {writer}
                kept += [(a, b, tenant) for a, b in ((start, low), (high, stop)) if a < b]
            occupied = [*kept, (low, high, slot.index)]


def packed(sizes: Sequence[int], lives: Sequence[tuple[int, int]]) -> list[int]:
    """Offsets such that values alive at the same time do not overlap, in little more memory than is alive at once.

    Of three orders in which values get their places, the first that needs no more than the busiest moment has, or the
    one that needs least: large ones first (Pisarchyk and Lee, arXiv 2001.03288); those of the busiest moment first,
    which live longest or end last at the bottom, because what a training step keeps for its way back lives in layers.

    >>> packed([64, 64, 64], [(0, 1), (1, 2), (2, 3)])
    [0, 64, 0]
    """
    if not sizes:
        return []
    size, life = np.array(sizes, np.int64), np.array(lives, np.int64)
    change = np.zeros(life.max() + 2, np.int64)
    np.add.at(change, life[:, 0], size)
    np.add.at(change, life[:, 1] + 1, -size)
    alive = change.cumsum()
    then = (life[:, 0] <= alive.argmax()) & (alive.argmax() <= life[:, 1])
    lasting, ending = (np.where(then, key, 0) for key in (life[:, 0] - life[:, 1], -life[:, 1]))
    found = []
    for keys in ((-size,), (-size, lasting, ~then), (-size, ending, ~then)):  # the last key counts most
        offsets = best_fit(size, life, np.lexsort(keys))
        found.append(((offsets + size).max(), offsets))
        if found[-1][0] == alive.max():
            break
    places: list[int] = min(found, key=lambda each: each[0])[1].tolist()
    return places


def best_fit(size: Any, life: Any, order: Any) -> Any:
    """Offsets of values that get their places in this order, each in the tightest gap."""
    offsets = np.zeros(len(size), np.int64)
    placed: list[int] = []
    for index in order:
        others = np.array(placed, np.int64)
        others = others[(life[others, 0] <= life[index, 1]) & (life[others, 1] >= life[index, 0])] if placed else others
        others = others[np.argsort(offsets[others], kind="stable")]
        offsets[index] = _tightest(offsets[others], offsets[others] + size[others], size[index])
        placed.append(index)
    return offsets


def _tightest(starts: Any, stops: Any, size: int) -> int:
    if not len(starts):
        return 0
    reached = np.maximum.accumulate(stops)
    gaps_from = np.concatenate([[0], reached[:-1]])
    room = starts - gaps_from
    fits = np.flatnonzero(room >= size)
    return int(gaps_from[fits[np.argmin(room[fits])]]) if len(fits) else int(reached[-1])


def _failing(drafts: Sequence[Draft]) -> set[int]:
    """The instructions that may raise, of those that look at the same places of equal shapes the first."""
    found: dict[Any, int] = {}
    for index, draft in enumerate(drafts):
        if may_raise(draft.node):
            found.setdefault(_looked_at(draft.node) or index, index)
    return set(found.values())


def _looked_at(node: Node) -> Any:
    """Which places it may find outside of an array of which shape; None where it may raise for another reason."""
    if node.op not in ("load", "store", "gather", "scatter") or not node.is_static:
        return None
    places = node.inputs[2 if node.op in ("store", "scatter") else 1 :]
    return node.attrs.get("chain"), node.attrs.get("pattern"), places, node.inputs[0].shape


def _raises_first(draft: Draft, target: Slot) -> bool:
    """Does it look at all indices before it writes anything? It copies first what it is to write into, if that lies
    elsewhere."""
    base = draft.ins[len(draft.ins) - len(draft.node.inputs)]
    writes = draft.node.op in ("store", "scatter", "masked_store") and draft.kernel.backend in ("numpy", "numba")
    return writes and base == target.index


def _dependents(drafts: Sequence[Draft]) -> list[set[int]]:
    dependents: list[set[int]] = [set() for _ in drafts]
    for index, draft in enumerate(drafts):
        for source in draft.after:
            dependents[source].add(index)
    return dependents


def _reaches(start: int, goals: set[int], dependents: Sequence[set[int]]) -> bool:
    """True if an instruction of ``goals`` depends on ``start``."""
    stack, seen = [start], {start}
    while stack and goals:
        index = stack.pop()
        if index in goals:
            return True
        fresh = dependents[index] - seen
        seen |= fresh
        stack.extend(fresh)
    return False
