"""Loops that take long look from time to time whether they are to end: at a signal, or with the run that they are of.

Every round of such a loop takes what it is worth from a budget, which all loops of the function share. Who has used it
up asks (:data:`ASK`), and gets another one for some 50 ms, by the clock. Loops that end soon for certain do not look,
and stay as the compiler likes them: one block that it makes vectors of.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from futurex.kernels.interrupts import DESK, FUNCTIONS, MAIN, MOST, TOLD, TRUTH
from futurex.passes.counters import counter
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

SOON = float(1 << 24)
"""Of a loop's work, in elements and operations on them, some nanoseconds each or less: it ends soon."""
_FIRST = 1 << 20  # the first budget, that of about a millisecond
_OPEN = 64  # elements that an array is taken to have where only the run knows
_SHORT, _LONG = 1 << 25, 1 << 27  # nanoseconds from one look to the next: below and beyond, the budget changes
STATUS, ENDED = 0, 2
_WORDS = 9
FIRST_BLOCK, _WHEN, FETCHED, _CLOCK, CALLED = 1, 2, 3, 6, 8
"""Words of a look, behind the address of the desk: that of the first block, where the parts of a loop tell each other
that they end, the time of the last look, an exception that Python has raised, room for the clock, what calls call."""


def looks(node: Node) -> int:
    """What a round of a loop takes from the budget; zero where the loop ends soon for certain."""
    found, each = counter(node), 1.0 + _work(node.attrs["test"]) + _work(node.attrs["body"], is_body=True)
    return 0 if found is not None and len(found[1]) * each <= SOON else int(min(each, SOON))


def _work(graph: Graph, *, is_body: bool = False) -> float:
    """What a graph is worth, but for loops inside that look for themselves."""
    read = Counter(source for node in graph.nodes for source in node.inputs) + Counter(graph.outs)
    return sum(
        float(node.inputs[1].size) if is_body and _is_row(node, read) else _work_of(node) for node in graph.nodes
    )


def _is_row(node: Node, read: Counter[Node]) -> bool:
    """Is it a part that is written in what a round is given, which nobody reads but for that?"""
    return node.op == "store" and node.inputs[0].op == "param" and read[node.inputs[0]] == 1 and node.is_static


def _work_of(node: Node) -> float:
    if node.op in ("param", "const", "item"):
        return 0.0
    inner = [_work(value) for value in node.attrs.values() if isinstance(value, Graph)]
    if node.op == "loop":
        found = counter(node)
        return len(found[1]) * (1.0 + sum(inner)) if found is not None and not looks(node) else 1.0
    if inner:
        return 1.0 + max(inner)
    sources = tuple(source.aval for source in node.inputs)
    if not node.is_static or any(isinstance(aval, tuple) or not aval.static for aval in sources):
        return float(_OPEN)
    return 1.0 + sum(aval.size for aval in _avals(node.aval)) + node.record.work(sources, node.aval, node.attrs).flops


def _avals(aval: Any) -> tuple[Aval, ...]:
    return aval if isinstance(aval, tuple) else (aval,)


def allow(e: Emitter) -> None:
    """Let the code look, and call Python."""
    if e.look is None:
        e.look = e.memory.word(_WORDS)
        e.memory.fixed[e.look] = DESK


class Looks:
    """The looks of one loop. They stand outside of its rounds, which leave when the budget is used up, and come back:
    so rounds have one way out more, and nothing else in them."""

    def __init__(self, e: Emitter, node: Node) -> None:
        self._f, self._worth = e.function, looks(node)
        self._again = self._f.label()
        if self._worth:
            allow(e)

    def begin(self, head: str) -> None:
        """Begin the loop's first block, where it is tested whether there is a round."""
        for label in (self._again, head):
            self._f.jump(label)
            self._f.place(label)

    def branch(self, truth: str, body: str, done: str) -> None:
        """Go to a round, to a look, or to what comes behind the loop."""
        f = self._f
        if not self._worth:
            f.branch(truth, body, done)
            return
        leave, ask = f.label(), f.label()
        left = f.emit("load i64, ptr %left, align 8")
        f.branch(f.emit(f"and i1 {truth}, {f.emit(f'icmp sgt i64 {left}, 0')}"), body, leave)
        f.place(leave)
        f.branch(truth, ask, done)
        f.place(ask)
        budget = f.emit("load i64, ptr %budget, align 8")
        given = f.emit(f"call i64 @ask(ptr %block, ptr %look, i64 {budget})")
        f.do(f"store i64 {given}, ptr %left, align 8")
        f.do(f"store i64 {given}, ptr %budget, align 8")
        f.branch(f.emit(f"icmp eq i64 {given}, 0"), "ended", self._again)

    def take(self) -> None:
        """At the beginning of a round: take from the budget what it is worth."""
        if self._worth:
            left = self._f.emit(f"sub nsw i64 {self._f.emit('load i64, ptr %left, align 8')}, {self._worth}")
            self._f.do(f"store i64 {left}, ptr %left, align 8")


def prologue(word: int) -> list[str]:
    """What stands at the start of code that looks."""
    return [
        f"%look = getelementptr i64, ptr %block, i64 {word}",
        *(line for name in ("%left", "%budget")
          for line in (f"{name} = alloca i64, align 8", f"store i64 {_FIRST}, ptr {name}, align 8")),
    ]  # fmt: skip


def at(name: str, base: str, word: int, kind: str = "") -> str:
    """The address of a word, and with a ``kind`` what stands there."""
    loaded = f"\n  {name} = load {kind}, ptr {name}.at, align 8" if kind else ""
    return f"  {name}.at = getelementptr i64, ptr {base}, i64 {word}{loaded}"


_FETCH = f"""
define internal void @fetch(ptr %look) cold noinline {{
  %desk = load ptr, ptr %look, align 8
{at("%fetch", "%desk", FUNCTIONS + 5, "ptr")}
{at("%kind", "%look", FETCHED)}
{at("%value", "%look", FETCHED + 1)}
{at("%trace", "%look", FETCHED + 2)}
  call void %fetch(ptr %kind.at, ptr %value.at, ptr %trace.at)
  ret void
}}
"""

_FAILS = f"""
define internal i1 @fails(ptr %look, i64 %number) noinline {{
entry:
  %desk = load ptr, ptr %look, align 8
{at("%ensure", "%desk", FUNCTIONS + 1, "ptr")}
{at("%release", "%desk", FUNCTIONS + 3, "ptr")}
{at("%integer", "%desk", FUNCTIONS + 6, "ptr")}
{at("%call", "%desk", FUNCTIONS + 7, "ptr")}
{at("%drop", "%desk", FUNCTIONS + 8, "ptr")}
{at("%truth", "%desk", TRUTH, "ptr")}
{at("%calls", "%look", CALLED, "ptr")}
  %state = call i32 %ensure()
  %argument = call ptr %integer(i64 %number)
  %result = call ptr %call(ptr %calls, ptr %argument)
  call void %drop(ptr %argument)
  %raised = icmp eq ptr %result, null
  %made = icmp eq ptr %result, %truth
  br i1 %raised, label %fetching, label %computed
fetching:
  call void @fetch(ptr %look)
  br label %released
computed:
  call void %drop(ptr %result)
  br label %released
released:
  call void %release(i32 %state)
  %failed = xor i1 %made, true
  ret i1 %failed
}}
"""

_ASK = f"""
define internal i64 @ask(ptr %block, ptr %look, i64 %budget) cold noinline {{
entry:
  %desk = load ptr, ptr %look, align 8
{at("%ident", "%desk", FUNCTIONS, "ptr")}
{at("%main", "%desk", MAIN, "i64")}
{at("%first", "%look", FIRST_BLOCK, "ptr")}
  %me = call i64 %ident()
  %is.main = icmp eq i64 %me, %main
  br i1 %is.main, label %signals, label %told
signals:
{at("%ensure", "%desk", FUNCTIONS + 1, "ptr")}
{at("%check", "%desk", FUNCTIONS + 2, "ptr")}
{at("%release", "%desk", FUNCTIONS + 3, "ptr")}
  %state = call i32 %ensure()
  %handled = call i32 %check()
  %raised = icmp ne i32 %handled, 0
  br i1 %raised, label %fetching, label %released
fetching:
  call void @fetch(ptr %look)
  br label %released
released:
  call void %release(i32 %state)
  br i1 %raised, label %ending, label %others
told:
  %k = phi i64 [ 0, %entry ], [ %k.next, %other ]
  %more = icmp slt i64 %k, {MOST}
  br i1 %more, label %other, label %others
other:
  %k.next = add i64 %k, 1
  %place = add i64 %k, {TOLD}
  %who.at = getelementptr i64, ptr %desk, i64 %place
  %who = load atomic i64, ptr %who.at monotonic, align 8
  %is.me = icmp eq i64 %who, %me
  br i1 %is.me, label %ending, label %told
others:
  %status = load atomic i64, ptr %first monotonic, align 8
  %ends = icmp ne i64 %status, {STATUS}
  br i1 %ends, label %ended, label %time
ending:
  store atomic i64 {ENDED}, ptr %first monotonic, align 8
  br label %ended
ended:
  %reason = phi i64 [ %status, %others ], [ {ENDED}, %ending ]
  store i64 %reason, ptr %block, align 8
  ret i64 0
time:
{at("%read", "%desk", FUNCTIONS + 4, "ptr")}
{at("%clock", "%look", _CLOCK)}
  %timed = call i32 %read(i32 1, ptr %clock.at)
  %seconds = load i64, ptr %clock.at, align 8
{at("%rest", "%look", _CLOCK + 1, "i64")}
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
{at("%then", "%look", _WHEN, "i64")}
  store i64 %now, ptr %then.at, align 8
  %took = sub i64 %now, %then
  %is.short = icmp slt i64 %took, {_SHORT}
  %is.long = icmp sgt i64 %took, {_LONG}
  %more.budget = shl i64 %budget, 1
  %half.budget = lshr i64 %budget, 1
  %less.budget = or i64 %half.budget, 1
  %longer = select i1 %is.long, i64 %less.budget, i64 %budget
  %next = select i1 %is.short, i64 %more.budget, i64 %longer
  ret i64 %next
}}
"""

TEXT = _FETCH + _FAILS + _ASK
"""What code calls that looks or calls Python."""
