"""LLVM IR of one function: instructions, basic blocks, counted loops, failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from futurex.kernels.numba_.scalar import Body

FAIL = "fail"


class Function(Body):
    """Instructions with control flow. ``fail_if`` leaves the function: what happens then is the caller's business."""

    def __init__(self) -> None:
        super().__init__()
        self.block = "start"
        self.variables: list[str] = []
        self.ranges: dict[str, range] = {}  # of registers, where they are known
        self._count = 0

    def _new(self) -> int:
        self._count += 1
        return self._count

    def emit(self, instruction: str) -> str:
        name = f"%v{self._new()}"
        self.lines.append(f"{name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        self.lines.append(instruction)

    def declare(self, declaration: str) -> None:
        """A function from outside."""
        self.intrinsics.add(declaration)

    def variable(self, kind: str, align: int = 8) -> str:
        """A place on the stack for one value; LLVM keeps it in a register."""
        name = f"%x{self._new()}"
        self.variables.append(f"{name} = alloca {kind}, align {align}")
        return name

    def label(self) -> str:
        return f"b{self._new()}"

    def place(self, label: str) -> None:
        """Begin the block ``label``."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def fail_if(self, condition: str) -> None:
        passed = self.label()
        self.branch(condition, FAIL, passed)
        self.place(passed)

    @contextmanager
    def captured(self) -> Iterator[list[str]]:
        """Collect the instructions of the block apart; the caller puts them where they belong."""
        outer, self.lines = self.lines, []
        try:
            yield self.lines
        finally:
            self.lines = outer

    @contextmanager
    def counted(self, extent: int | str) -> Iterator[str]:
        """``for index in range(extent)``."""
        head, body, done = self.label(), self.label(), self.label()
        before, index, following = self.block, f"%i{self._new()}", f"%i{self._new()}"
        self.jump(head)
        self.place(head)
        lines, position = self.lines, len(self.lines)
        lines.append("")
        self.branch(self.emit(f"icmp slt i64 {index}, {extent}"), body, done)
        self.place(body)
        yield index
        self.do(f"{following} = add nsw nuw i64 {index}, 1")
        lines[position] = f"{index} = phi i64 [ 0, %{before} ], [ {following}, %{self.block} ]"
        self.jump(head)
        self.place(done)
