"""Sums in NumPy's order whose terms are computed where they are added: four leaves of its tree side by side.

Nothing is laid down for them: what each leaf has, eight running sums, the compiler keeps in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.pairwise import joined
from futurex.kernels.numba_.places import InCode
from futurex.kernels.numba_.scalar import register_type
from futurex.kernels.numba_.sweep import Sweep
from futurex.tree.node import Node

LANES, LEAVES = 8, 4
MOST = 512
"""Elements of four leaves at most."""
_SLOTS = LANES * LEAVES
PARAMETERS = ("start", "a", "b", "c", "d")
"""Where the leaves begin and how many elements each of them has: the first is none longer than the others."""


def suits(sweep: Sweep, stage: int) -> bool:
    """Are all reductions of a pass such sums? Not of what takes whole vectors of functions, twice as wide as these."""
    nodes = sweep.reductions(stage)
    alike = all(node.op == "sum" and node.dtype.char in "fd" for node in nodes)
    return bool(nodes) and alike and not sweep.approximate and not sweep.crossings(stage)


class Leaves:
    """The running sums of ``nodes``, in one function of :data:`PARAMETERS`."""

    def __init__(self, code: Code, nodes: Sequence[Node]) -> None:
        self.code, self.nodes = code, list(nodes)
        self.result = "{" + ", ".join(register_type(node.dtype) for node in self.nodes) + "}"
        for k, node in enumerate(self.nodes):
            kind = register_type(node.dtype)
            code.run(f"%q{k} = alloca [{_SLOTS} x {kind}], align 64")
            begun = f"<{_SLOTS} x {kind}> <{', '.join([f'{kind} -0.0'] * _SLOTS)}>"
            code.run(f"store {begun}, ptr %q{k}, align 64")

    def run(self, element: Callable[[str, str], None], ask: Callable[[str, int], None], in_order: bool) -> None:
        """``element(place, slot)`` adds an element's terms to a slot of the running sums; ``ask(place, count)`` asks
        for what lies ahead of so many elements. ``in_order``: one leaf after the other, which the processor foresees,
        and nothing is asked for."""
        code = self.code
        starts = ["%start"]
        for count in PARAMETERS[1:-1]:
            starts.append(code.add(starts[-1], f"%{count}"))
        if not in_order:
            with code.loop("0", "%a", str(LANES)) as (at, _):
                ask(code.add("%start", code.multiply(at, str(LEAVES))), _SLOTS)
                for k, start in enumerate(starts):
                    self._vector(code.add(start, at), k, element)
        for k, (start, count) in enumerate(zip(starts, PARAMETERS[1:], strict=True)):
            with code.loop("0" if in_order else "%a", f"%{count}", str(LANES)) as (at, _):
                self._vector(code.add(start, at), k, element)

    def _vector(self, begin: str, leaf: int, element: Callable[[str, str], None]) -> None:
        code = self.code
        with code.loop("0", str(LANES), lanes=LANES) as (lane, _):
            element(code.add(begin, lane), code.add(lane, str(LANES * leaf)))

    def add(self, body: InCode, node: Node, slot: str, term: str) -> None:
        """One more term of a sum."""
        kind = register_type(node.dtype)
        place = self.code.at(kind, f"%q{self.nodes.index(node)}", slot)
        body.store(node.dtype, body.emit(f"fadd {kind} {body.load(node.dtype, place)}, {term}"), place)

    def finish(self) -> str:
        """All sums as one structure."""
        code, held = self.code, "undef"
        for k, kind in enumerate(register_type(node.dtype) for node in self.nodes):
            vector = f"<{LANES} x {kind}>"
            parts = [
                code.do(f"load {vector}, ptr {code.at(kind, f'%q{k}', str(first))}, align {LANES * 4}")
                for first in range(0, _SLOTS, LANES)
            ]
            held = code.do(f"insertvalue {self.result} {held}, {kind} {joined(code.do, kind, parts)}, {k}")
        return held
