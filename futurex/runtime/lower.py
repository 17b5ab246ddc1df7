"""A graph becomes instructions over slots: constants are loaded, items and fixed views cost nothing at run time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from futurex.kernels.numpy_ import NumpyBackend, copied
from futurex.kernels.registry import Backend, Kernel, fits, kernel_for
from futurex.ops.comm import COMMUNICATION
from futurex.ops.strides import is_gathered
from futurex.passes.dead import may_not_end, may_raise
from futurex.runtime.shadows import shadow
from futurex.runtime.structured import STRUCTURED, structured_kernel
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node

JOINED = ("matmul_store", "rank_update")
"""What passes join for kernels of compiled code: without those its parts are lowered."""
COMMUNICATOR = 0  #: the slot that holds the communicator of a run
_SECONDS_PER_FLOP, _SECONDS_PER_BYTE, _SECONDS_PER_CALL = 1 / 20e9, 1 / 8e9, 0.5e-6
_ITERATIONS = 10  # what a loop is taken to do when its cost is estimated


class Kind(Enum):
    """What a slot holds: an argument, constant or Python scalar, memory of the plan, or an array that a kernel made."""

    PARAM = "param"
    CONST = "const"
    SCALAR = "scalar"
    BUFFER = "buffer"
    OWN = "own"


@dataclass(slots=True)
class Slot:
    """One value. ``root`` is the slot in whose memory it lies or may lie; ``layout`` is a stand-in with the strides
    it will have, where they are known before the run; ``derive`` makes a fixed view from its base."""

    index: int
    aval: Aval
    kind: Kind
    root: int
    writer: int | None = None
    readers: list[int] = field(default_factory=list)
    layout: Any = None
    derive: tuple[Kernel, tuple[int, ...]] | None = None
    value: Any = None


@dataclass(slots=True)
class Draft:
    """An instruction in the making; ``after`` grows while memory is planned."""

    node: Node
    kernel: Kernel
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    after: set[int]
    cost: float

    @property
    def communicates(self) -> bool:
        return self.node.op in COMMUNICATION

    @property
    def paired(self) -> bool:
        """Does it write each result over its own input or nowhere? Collectives do, and loops what they carry."""
        return self.communicates or self.node.op == "loop"


Compile = Callable[[Graph], Any]


class Lowering:
    """Slots and instructions of one graph, in the order of its nodes."""

    def __init__(self, graph: Graph, threads: int, backends: Sequence[Backend], compile_sub: Compile) -> None:
        self.graph = graph
        self.threads = threads
        self.backends = backends
        self.slots: list[Slot] = [Slot(COMMUNICATOR, Aval((), np.dtype(object)), Kind.SCALAR, COMMUNICATOR)]
        self.drafts: list[Draft] = []
        self._compile_sub = compile_sub
        self._of: dict[Node, tuple[int, ...]] = {}
        self.params = [self._enter(node, Kind.PARAM) for node in graph.params]
        for node in graph.nodes:
            if node not in self._of:
                self._lower(node)
        self.outs = [self._single(node) for node in graph.outs]
        self._order_effects()

    def group(self, root: int) -> list[Slot]:
        """Every slot that lies, or may lie, in the memory of ``root``."""
        return [slot for slot in self.slots if slot.root == root]

    def loose(self, ins: Sequence[int], kernel: Kernel) -> tuple[int, ...]:
        """Operands that are not known to lie as a kernel wants them."""
        if not kernel.contiguous:
            return ()
        slots = [self.slots[index] for index in ins]
        return tuple(
            place for place, slot in enumerate(slots)
            if slot.kind is not Kind.SCALAR and (slot.layout is None or not fits(kernel, place, slot.layout))
        )  # fmt: skip

    def _slot(self, aval: Aval, kind: Kind, **fields: Any) -> Slot:
        index = len(self.slots)
        slot = Slot(index, aval, kind, fields.pop("root", index), **fields)
        self.slots.append(slot)
        return slot

    def _enter(self, node: Node, kind: Kind, value: Any = None) -> int:
        kind = Kind.SCALAR if node.aval.weak else kind
        layout = value if isinstance(value, np.ndarray) else None
        slot = self._slot(node.aval, kind, value=value, layout=layout)
        self._of[node] = (slot.index,)
        return slot.index

    def _single(self, node: Node) -> int:
        slots = self._of[node]
        if len(slots) != 1 or isinstance(node.aval, tuple):
            raise TypeError(f"{self.graph.name} returns {node!r}, which has several results: return items of it")
        return slots[0]

    def _lower(self, node: Node) -> None:
        if node.op == "const":
            value = node.value
            self._enter(node, Kind.CONST, np.ascontiguousarray(value) if np.ndim(value) else value)
        elif node.op == "item":
            self._of[node] = (self._of[node.inputs[0]][node.attrs["index"]],)
        elif node.op == "param":
            raise TypeError(f"{self.graph.name} reads {node!r}, which is not one of its inputs")
        else:
            kernel = self._kernel(node)
            if node.op in JOINED and kernel.backend == NumpyBackend.name:
                self._lower_parts(node)
                return
            ins = tuple(self._single(source) for source in node.inputs)
            stand_ins = self._stand_ins(node, kernel, ins)
            if node.op == "contiguous" and self.slots[self.slots[ins[0]].root].kind in (Kind.PARAM, Kind.CONST):
                like = [shadow(node.shape, node.dtype)] if node.is_static else []
                self._instruction(node, copied(node, kernel, like), ins)  # what is not the run's, however it lies
                return
            if stand_ins is None and is_gathered(node):  # of an argument, if that lies dense
                self._instruction(node, copied(node, kernel, [shadow(node.inputs[0].shape, node.dtype)]), ins)
                return
            found = kernel.call(None, *stand_ins) if stand_ins is not None else None
            if stand_ins is None or kernel.view is None or not isinstance(found, np.ndarray):
                self._instruction(node, kernel, ins)
            elif found is stand_ins[kernel.view] and node.op == "contiguous":
                self._of[node] = ins
            elif np.may_share_memory(found, stand_ins[kernel.view]):
                self._fixed_view(node, kernel, ins, found)
            else:  # elements that do not lie so: what is called a view will be a copy, whatever the run
                self._instruction(node, copied(node, kernel, stand_ins), ins)

    def _lower_parts(self, node: Node) -> None:
        """What was joined for a kernel that is not there."""
        assert node.record.decompose is not None
        made = node.record.decompose(*node.inputs, **node.attrs)
        parts = made if isinstance(made, tuple) else (made,)
        for each in Graph((), parts).nodes:
            if each not in self._of:
                self._lower(each)
        self._of[node] = tuple(self._single(each) for each in parts)

    def _kernel(self, node: Node) -> Kernel:
        if node.op in COMMUNICATION:
            inplace = tuple(range(len(node.inputs))) if node.op == "all_reduce" else ()
            return Kernel(_needs_communicator, "communicator", into=True, inplace=inplace, contiguous=True)
        if node.op in STRUCTURED:
            return structured_kernel(node, self._compile_sub, self.backends, self.threads)
        return kernel_for(node, self.backends, self.threads)

    def _stand_ins(self, node: Node, kernel: Kernel, ins: tuple[int, ...]) -> list[Any] | None:
        """Stand-ins for what a view reads, where its base is planned memory or a constant; None where only a run can
        tell."""
        if kernel.view is None or not isinstance(node.aval, Aval) or node.aval.weak:
            return None
        slots = [self.slots[index] for index in ins]
        found = [slot.layout if place == kernel.view else slot.value for place, slot in enumerate(slots)]
        return None if any(value is None for value in found) else found  # an index that only the run knows

    def _fixed_view(self, node: Node, kernel: Kernel, ins: tuple[int, ...], result: Any) -> None:
        """A view that costs nothing at run time."""
        assert kernel.view is not None
        base = self.slots[ins[kernel.view]]
        slot = self._slot(node.aval, base.kind, root=base.root, writer=base.writer, layout=result)
        if base.kind is Kind.CONST:
            slot.value = result
        else:
            slot.derive = kernel, ins
        self._of[node] = (slot.index,)

    def _instruction(self, node: Node, kernel: Kernel, ins: tuple[int, ...]) -> None:
        index = len(self.drafts)
        if node.op in STRUCTURED:
            ins = (COMMUNICATOR, *ins)
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        outs = []
        for aval in avals:
            slot = self._slot(aval, _kind(aval, kernel), writer=index)
            if slot.kind is Kind.BUFFER:
                slot.layout = shadow(aval.shape, aval.dtype)
            elif kernel.view is not None and slot.kind is Kind.OWN:
                slot.root = self.slots[ins[kernel.view]].root
            outs.append(slot.index)
        after = set()
        for source in ins:
            slot = self.slots[source]
            slot.readers.append(index)
            if slot.writer is not None:
                after.add(slot.writer)
        self._of[node] = tuple(outs)
        self.drafts.append(Draft(node, kernel, ins, tuple(outs), after, seconds(node)))

    def _order_effects(self) -> None:
        """Effects run in program order, which is the order in which their nodes were made.

        Instructions with collectives inside wait in them, so every locality must run them in the same order.
        """
        effects = [k for k, draft in enumerate(self.drafts) if _is_ordered(draft.node)]
        effects.sort(key=lambda k: self.drafts[k].node.id)
        tags = [(tag, k) for k, draft in enumerate(self.drafts) if (tag := _inner_tag(draft.node)) is not None]
        for chain in (effects, [k for _, k in sorted(tags)]):
            for before, following in itertools.pairwise(chain):
                self.drafts[following].after.add(before)
        if effects and not tags and not any(draft.communicates for draft in self.drafts):
            self._order_failures(effects)

    def _order_failures(self, effects: Sequence[int]) -> None:
        """What may raise waits for the effects that do not need it: a check comes before the lines that it guards.

        What may raise and stands before a check is among the check's inputs. What NumPy may warn of waits, too: where
        warnings are errors, a division by zero would come instead of the error that keeps the program from it. So do
        loops, which might never end where the check does not hold.
        """
        needed_by: dict[int, int] = {}  # the place among the effects of the first that needs an instruction
        for place, effect in enumerate(effects):
            stack = [effect]
            while stack:
                index = stack.pop()
                if index not in needed_by:
                    needed_by[index] = place
                    stack.extend(self.drafts[index].after)
        for index, draft in enumerate(self.drafts):
            place = needed_by.get(index, len(effects)) - 1
            last = may_raise(draft.node) or _may_warn(draft) or may_not_end(draft.node)
            if place >= 0 and not draft.node.record.effect and last:
                draft.after.add(effects[place])


def _may_warn(draft: Draft) -> bool:
    """May NumPy warn of it, as of a division by zero? Compiled code does not."""
    node = draft.node
    if draft.kernel.backend != "numpy" or not node.record.elementwise or not isinstance(node.aval, Aval):
        return False
    return node.aval.dtype.kind in "fc" or node.op in ("floor_divide", "remainder")


def _is_ordered(node: Node) -> bool:
    """Is it an effect, or a branch that checks something? A message that takes work is made in one."""
    if node.record.effect or node.acts:
        return True
    branches = [node.attrs["then"], node.attrs["orelse"]] if node.op == "cond" else []
    return any(each.record.effect and each.op != "param" for graph in branches for each in graph.nodes)


def _kind(aval: Aval, kernel: Kernel) -> Kind:
    if aval.weak:
        return Kind.SCALAR
    return Kind.BUFFER if kernel.into and not aval.dtype.hasobject else Kind.OWN


def seconds(node: Node) -> float:
    """A rough estimate of the time one node takes. A region, whose record says what it costs, is no loop."""
    inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
    if inner and node.record.cost is None:
        rounds = 1 if node.op == "cond" else _ITERATIONS
        return _SECONDS_PER_CALL + rounds * sum(seconds(each) for graph in inner for each in graph.nodes)
    if node.op in ("param", "const", "item"):
        return 0.0
    work = node.record.work(tuple(source.aval for source in node.inputs), node.aval, node.attrs)
    return _SECONDS_PER_CALL + max(work.flops * _SECONDS_PER_FLOP, work.bytes * _SECONDS_PER_BYTE)


def _inner_tag(node: Node) -> int | None:
    """The smallest tag of the collectives in the sub-graphs of a node; None if there are none."""
    inner = [each for value in node.attrs.values() if isinstance(value, Graph) for each in value.nodes]
    tags = [each.attrs["tag"] if each.op in COMMUNICATION else _inner_tag(each) for each in inner]
    return min((tag for tag in tags if tag is not None), default=None)


def _needs_communicator(*_: Any) -> Any:
    raise RuntimeError("an instruction that communicates is started by a communicator, not called")
