"""Changes to the caller's Python objects: taken back when the trace ends, made again after every run.

A trace may put into a dict or list among the arguments, or into an attribute of an object, what it computes. The
objects are put back as they were, and what they held at the end becomes outputs of the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from futurex.frontend.errors import Escape
from futurex.frontend.objects import describe, entries_of, fill
from futurex.frontend.outside import can_be_input
from futurex.frontend.trace import Trace
from futurex.tree.pytree import LEAF, Structure, containers, flatten

Path = tuple[Any, ...]


@dataclass(frozen=True)
class Entry:
    """What an object holds under a key after a run: its old entry ``kept``, or a nest of outputs."""

    key: Any
    kept: Any = None
    is_kept: bool = False
    structure: Structure = LEAF
    outputs: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Change:
    """An object that every run changes: by its place in ``(args, kwargs)``, or the object itself."""

    place: Path | None
    value: Any
    entries: tuple[Entry, ...]

    def apply(self, arguments: Any, assemble: Callable[[Entry], Any]) -> None:
        target = self.value if self.place is None else found_at(arguments, self.place)
        old = entries_of(target)
        new = {entry.key: old[entry.kept] if entry.is_kept else assemble(entry) for entry in self.entries}
        if self.place is None:  # other attributes may have come and gone since
            new = {**{key: value for key, value in old.items() if key in new}, **new}
        fill(target, new)


def repeats(arguments: Any) -> bool:
    """Is one container in several places of the arguments? A change would have to be seen in all of them."""
    found = [id(value) for value in containers(arguments)]
    return len(set(found)) < len(found)


def found_at(value: Any, place: Path) -> Any:
    """What stands at a place of a nest."""
    for key in place:
        by_name = isinstance(key, str) and not isinstance(value, dict)
        value = getattr(value, key) if by_name else value[key]
    return value


def changes_of(trace: Trace, output: Callable[[Any], Any]) -> list[Change]:
    """What the trace changed outside of itself; ``output`` makes outputs of leaves."""
    numbers = {
        (id(value), key): value
        for value, before in trace.outside.values()
        for key, entry in entries_of(value).items()
        if id(value) not in trace.arguments and (id(value), key) in trace.guards
        if before.get(key) is not entry and can_be_input(before.get(key))
    }
    if numbers:
        names = " and ".join(repr(name) for _, name in numbers)
        escape = Escape(f"changing the attribute {names}, a constant of the trace", "every call would be traced anew")
        escape.numbers = numbers
        raise escape
    return [_change(trace, value, before, output) for value, before in trace.outside.values()]


def changed_leaves(trace: Trace) -> list[Any]:
    """The leaves of what the trace put into objects outside of itself."""
    leaves: list[Any] = []
    for value, before in trace.outside.values():
        for key, entry in entries_of(value).items():
            if key not in before or before[key] is not entry:
                leaves += flatten(entry)[0]
    return leaves


def _kept(
    trace: Trace, value: Any, place: Path | None, key: Any, entry: Any, before: dict[Any, Any]
) -> tuple[Any] | None:
    """Under which key of the object what it now holds under this one is found before every run; None if it is made.

    What an argument holds is part of the call's kind. Of an object from outside only the attributes are known that
    were read: what was set is the value, not another attribute that happened to be the same one.
    """
    if place is None and (id(value), key) in trace.assigned:
        return None
    if key in before and before[key] is entry:
        return (key,)
    if place is None:
        return None
    return next(((other,) for other, held in before.items() if held is entry), None)


def _change(trace: Trace, value: Any, before: dict[Any, Any], output: Callable[[Any], Any]) -> Change:
    place = trace.arguments.get(id(value), (None, None))[0]
    entries = []
    for key, entry in entries_of(value).items():
        kept = _kept(trace, value, place, key, entry, before)
        if kept is not None:
            entries.append(Entry(key, *kept, is_kept=True))
            continue
        leaves, structure = flatten(entry)
        if any(id(inner) in trace.arguments for inner in containers(entry)):
            raise Escape(f"putting one argument into {describe(value)}", "the two would have to stay one object")
        entries.append(Entry(key, structure=structure, outputs=tuple(output(leaf) for leaf in leaves)))
        static = all(each.kind == "static" for each in entries[-1].outputs)
        if place is None and static and (id(value), key) in trace.guards:
            raise Escape(f"changing the attribute {key!r}, a constant of the trace", "every call would be traced anew")
    return Change(place, None if place is not None else value, tuple(entries))
