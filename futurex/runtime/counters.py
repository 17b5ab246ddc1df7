"""What a plan did: runs, time, bytes and where each instruction ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from futurex.runtime.units import bytes_text, seconds_text
from futurex.tree.graph import Graph
from futurex.tree.node import Node

INLINE_BELOW, SPAWN_ABOVE = 50e-6, 100e-6  # a hand-over to another thread and back costs about 12 µs
_WEIGHT = 0.25  # of the newest measurement in the mean
_FAR, _SLICE = 2.0, 20e-3  # times the mean; seconds for which another process may take the CPU
TIMED_FIRST, TIMED_EVERY = 4, 16
HOT, RARELY = 32, 64  # runs after which a plan becomes one function, of which every 64th run is timed
SHOWN, NAMED = 30, 6  # rows of a profile that are printed, and operations of a region: what is longer is not read


class Counters:
    """Of one arena, so that no two runs write the same ones at once. All runs are counted; the first few and then every
    sixteenth are timed, less often once they are many.
    """

    __slots__ = ("ns", "runs", "spawned", "timed")

    def __init__(self, size: int) -> None:
        self.runs = 0
        self.timed = 0
        self.ns = [0] * size
        self.spawned = [0] * size

    def due(self) -> bool:
        """Count a run; True if it shall be timed."""
        self.runs += 1
        return self.runs <= TIMED_FIRST or not self.runs % TIMED_EVERY


class Grain:
    """Which pieces of work are worth a hand-over to another thread, by estimated and then by measured time.

    The threshold has hysteresis, so that a piece near it does not change sides with every measurement. ``seconds``: how
    long the last piece takes; for a plan, the whole of it.

    >>> grain = Grain([1e-6, 1e-3])
    >>> grain.inline(0), grain.inline(1)
    (True, False)
    """

    __slots__ = ("_inline", "_seconds", "seconds")

    def __init__(self, estimates: Sequence[float]) -> None:
        self._seconds = list(estimates)
        self.seconds = self._seconds[-1]
        self._inline = [seconds < SPAWN_ABOVE for seconds in estimates]

    def inline(self, index: int) -> bool:
        """True if the piece should run on the thread that made it ready."""
        return self._inline[index]

    def measured(self, index: int, seconds: float) -> None:
        """Take one measurement into account; one that is far above the mean may be the scheduler's time, and counts for
        less. One far below it says that the mean, which was an estimate at first, is wrong."""
        mean = min(self._seconds[index], seconds * _FAR)
        if mean * _FAR < seconds < _SLICE:
            seconds = mean * _FAR
        mean += _WEIGHT * (seconds - mean)
        self._seconds[index] = mean
        self.seconds = self._seconds[-1]
        self._inline[index] = mean <= SPAWN_ABOVE if self._inline[index] else mean < INLINE_BELOW

    def changed(self, seconds: float) -> None:
        """The whole plan runs another way now, which takes this long."""
        self.seconds = self._seconds[-1] = seconds
        self._inline[-1] = seconds < SPAWN_ABOVE


@dataclass(frozen=True, slots=True)
class Row:
    """The profile of one instruction.

    ``ns`` is the time of all ``count`` runs, estimated from those that were timed; ``bytes`` is read and written per
    run; ``inlined`` counts runs on the thread that made the instruction ready; ``interpreted`` those that NumPy
    computed because the kernel's code was not compiled yet; ``inside`` names the operations of a region.
    """

    op: str
    line: str
    count: int
    ns: int
    bytes: int
    backend: str
    inlined: int
    interpreted: int = 0
    inside: tuple[str, ...] = ()


class Profile(list[Row]):
    """Rows in the order in which they run, printed as a table with those first that take longest.

    What is the same operation of one line, as in a loop that was unrolled, is one line of the table.

    >>> add = Row("fused", "model.py:3", 10, 2_000_000, 240, "numba", 10, inside=("add", "tanh"))
    >>> Profile([add, add])
       total       each  count  each moves  by     operation
     4.00 ms     200 µs     20       240 B  numba  fused (add, tanh)  model.py:3
    """

    def __repr__(self) -> str:
        kinds: dict[tuple[str, str], list[Row]] = {}
        for row in self:
            if row.count:
                kinds.setdefault((row.backend, _described(row)), []).append(row)
        if not kinds:
            return "nothing has run yet, or plain NumPy alone, of which f.explain() says why"
        found = sorted(kinds.items(), key=lambda kind: -_nanoseconds(kind[1]))
        width = max(2, *(len(backend) for backend, _ in kinds))
        lines = [f"{'total':>8}  {'each':>9}  {'count':>5}  {'each moves':>10}  {'by':<{width}}  operation"]
        for (backend, text), rows in found[:SHOWN]:
            total, count = _nanoseconds(rows) * 1e-9, sum(row.count for row in rows)
            moved = sum(row.bytes * row.count for row in rows) / count
            late = sum(row.interpreted for row in rows)
            times = f"  {late} time{'s' * (late > 1)} before its code was compiled" if late else ""
            lines.append(
                f"{seconds_text(total):>8}  {seconds_text(total / count):>9}  {count:>5}  {bytes_text(moved):>10}  "
                f"{backend:<{width}}  {text}{times}"
            )
        if len(found) > SHOWN:
            rest = sum(_nanoseconds(rows) for _, rows in found[SHOWN:]) * 1e-9
            lines.append(f"{seconds_text(rest):>8}  in {len(found) - SHOWN} more")
        return "\n".join(lines)


def _nanoseconds(rows: Sequence[Row]) -> int:
    return sum(row.ns for row in rows)


def _described(row: Row) -> str:
    """The operation, what it holds, and its line."""
    more = ["..."] * (len(row.inside) > NAMED)
    inside = f" ({', '.join([*row.inside[:NAMED], *more])})" if row.inside else ""
    return f"{row.op}{inside}  {row.line}".rstrip()


def inside(node: Node) -> tuple[str, ...]:
    """The operations that a node is made of, each once."""
    graph = node.attrs.get("graph")
    return tuple(dict.fromkeys(each.op for each in graph.nodes if each.inputs)) if isinstance(graph, Graph) else ()
