"""Counted loops inside each other, as lines of a function's text."""

from __future__ import annotations


class Nest:
    """Loops one inside the other, whose counters have names, in ``lines`` behind the block ``before``."""

    def __init__(self, lines: list[str], before: str) -> None:
        self.lines, self.before = lines, before
        self.open: list[tuple[str, int | str]] = []

    def enter(self, name: str, low: str, high: str, step: int | str = 1) -> None:
        """``for name in range(low, high, step)``: what follows is its body."""
        label = name[1:]
        self.lines += [
            f"  br label %head.{label}",
            f"head.{label}:",
            f"  {name} = phi i64 [ {low}, %{self.before} ], [ {name}.next, %end.{label} ]",
            f"  {name}.go = icmp slt i64 {name}, {high}",
            f"  br i1 {name}.go, label %body.{label}, label %done.{label}",
            f"body.{label}:",
        ]
        self.before = f"body.{label}"
        self.open.append((name, step))

    def leave(self, note: str = "") -> None:
        """End the innermost loop, of which ``note`` tells the compiler; what follows stands behind it."""
        name, step = self.open.pop()
        label = name[1:]
        self.lines += [
            f"  br label %end.{label}",
            f"end.{label}:",
            f"  {name}.next = add nsw i64 {name}, {step}",
            f"  br label %head.{label}{note}",
            f"done.{label}:",
        ]
        self.before = f"done.{label}"

    def least(self, name: str, step: int, end: str) -> str:
        """Where ``step`` rounds that begin at a counter end, at the latest at ``end``."""
        self.lines += [
            f"  {name}.{step}.on = add nsw i64 {name}, {step}",
            f"  {name}.{step}.in = icmp slt i64 {name}.{step}.on, {end}",
            f"  {name}.{step}.to = select i1 {name}.{step}.in, i64 {name}.{step}.on, i64 {end}",
        ]
        return f"{name}.{step}.to"
