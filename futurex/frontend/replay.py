"""Changes to the caller's Python objects: taken back when the trace ends, made again after every run.

A trace may put into a dict or list among the arguments, or into an attribute of an object, what it computes. The
objects are put back as they were, and what they held at the end becomes outputs of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.entry_kinds import Row
from futurex.frontend.errors import Escape
from futurex.frontend.held import can_be_input, entries, is_nest
from futurex.frontend.kept import Path, found_apart, found_at
from futurex.frontend.objects import describe, entries_of
from futurex.frontend.outside import fingerprint
from futurex.frontend.trace import Trace, current
from futurex.frontend.tracer import Tracer
from futurex.tree.pytree import LEAF, Structure, containers, flatten

_ANEW = "every call would be traced anew"


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
    """An object that every run changes: by its place in ``(args, kwargs)``, by how it is found, or the object itself.
    """

    place: Path | None
    value: Any
    entries: tuple[Entry, ...]
    read: Callable[[], Any] | None = None
    gone: frozenset[Any] = frozenset()
    """The keys of entries that the trace took away."""

    def made(self, arguments: Any, assemble: Callable[[Entry], Any]) -> list[tuple[Any, dict[Any, Any]]]:
        """The object, and all that it is to hold after the run: what it is found by others may change."""
        if self.place is not None:
            target = found_at(arguments, self.place)
        else:
            target = self.value if self.read is None else self.read()
        old, found = entries_of(target), self.entries
        if self.place is None and self.read is None:  # other attributes may have come and gone since
            there = {key: value for key, value in old.items() if key not in self.gone}
            found = tuple(entry for entry in found if not (entry.is_kept and entry.key == entry.kept))
        else:
            there = {}
        new = {entry.key: old[entry.kept] if entry.is_kept else assemble(entry) for entry in found}
        return [(target, {**there, **new})]


@dataclass(frozen=True)
class Refill:
    """A list of numbers among the arguments, or of lists of them, that every run changes: by its place in ``(args,
    kwargs)``, and what it holds then."""

    place: Path
    rows: Any

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (Entry(None, outputs=(self.rows,)),)

    def made(self, arguments: Any, assemble: Callable[[Entry], Any]) -> list[tuple[Any, dict[Any, Any]]]:
        """The list, or those in it, and all that it is to hold after the run."""
        target, values = found_at(arguments, self.place), assemble(self.entries[0])
        pairs = zip(target, values, strict=True) if isinstance(self.rows.value, Row) else [(target, values)]
        return [(each, dict(enumerate(row))) for each, row in pairs]


def repeats(arguments: Any, others: Iterable[Any] = ()) -> bool:
    """Is one container in several places of the arguments, or among ``others``, too? A change would have to be seen in
    all of them."""
    found = [id(value) for value in (*containers(arguments), *others)]
    return len(set(found)) < len(found)


def changes_of(trace: Trace, found: list[Changed], output: Callable[[Any], Any]) -> list[Change]:
    """What the trace changed outside of itself; ``output`` makes outputs of leaves."""
    numbers = {
        place
        for value, before in trace.outside.values() if id(value) not in trace.arguments
        for key, entry in entries_of(value).items() if key in before
        for place in _changed_numbers(trace, _place(trace, value, key), before[key], entry)
    }  # fmt: skip
    if numbers:
        names = " and ".join(sorted({repr(name) for _, name in numbers}))
        escape = Escape(f"changing {names}, a constant of the trace", _ANEW)
        escape.numbers = numbers
        raise escape
    return [_change(trace, *changed, output) for changed in found]


def _place(trace: Trace, value: Any, key: Any) -> Any:
    """The key of an entry's place in an object from outside, as guards and captures know it."""
    held = trace.held.nests.get(id(value)) if is_nest(type(value)) else None
    return (id(value) if held is None else held.key), key


def _changed_numbers(trace: Trace, place: Any, before: Any, now: Any) -> Iterator[Any]:
    """The places at which a trace leaves another number than the constant that it found."""
    if now is before:
        return
    if place in trace.held.numbers and place not in trace.numbers:
        yield place
    elif is_nest(type(before)) and type(now) is type(before):
        held = trace.outside[id(before)][1] if id(before) in trace.outside else dict(entries(before))
        new = dict(entries(now))
        for key in held.keys() & new.keys():
            inner = _place(trace, before, key) if id(before) in trace.held.nests else (place, key)
            same = can_be_input(new[key]) and can_be_input(held[key]) and repr(new[key]) == repr(held[key])
            yield from () if same else _changed_numbers(trace, inner, held[key], new[key])


Changed = tuple[Any, dict[Any, Any], list[tuple[Any, Any, Any]]]
"""An object, what it held, and for each entry its key, that of the old entry that it is (in a tuple), and its nest."""


def changed_objects(trace: Trace) -> list[Changed]:
    """What the trace put into objects outside of itself."""
    found = [
        (value, before, [(key, *_entry(trace, value, key, entry, before)) for key, entry in entries_of(value).items()])
        for value, before in trace.outside.values()
    ]
    return [each for each in found if id(each[0]) in trace.arguments or not _is_as_before(*each[1:])]


def _is_as_before(before: dict[Any, Any], entries: list[tuple[Any, Any, Any]]) -> bool:
    """Is what an object from outside holds after a run what it held before? It may only have been looked at."""
    return [(key, (key,)) for key in before] == [(key, kept) for key, kept, _ in entries]


def changed_leaves(found: list[Changed]) -> list[Any]:
    """The leaves of what the trace put into objects outside of itself."""
    return [leaf for _, _, entries in found for _, kept, nest in entries if kept is None for leaf in flatten(nest)[0]]


def _entry(trace: Trace, value: Any, key: Any, entry: Any, before: dict[Any, Any]) -> tuple[tuple[Any] | None, Any]:
    """Under which key of the object what it now holds under this one is found before every run; None if it is made.

    What an argument holds is part of the call's kind. Of an object from outside only the attributes are known that
    were read: what was set is the value, not another attribute that happened to be the same one.
    """
    if id(value) in trace.arguments:
        kept = next(((other,) for other, held in before.items() if held is entry), None)
        if key in before and before[key] is entry:
            kept = (key,)
    else:
        given = isinstance(entry, Tracer) and not entry._chain and entry._cell.origin is not None
        own = entry._cell.origin if given else entry
        number = trace.captures.get(_place(trace, value, key))
        if number is not None:  # a run finds another one than the trace did
            found = entry is number.tracer
        else:
            found = key in before and (before[key] is own or trace.held.entered(before[key]) is own)
        kept = (key,) if found and (id(value), key) not in trace.assigned else None
    return kept, entry if kept is not None else found_apart(entry, trace)


def _change(
    trace: Trace, value: Any, before: dict[Any, Any], found: list[tuple[Any, Any, Any]], output: Callable[[Any], Any]
) -> Change:
    place = trace.arguments.get(id(value), (None, None))[0]
    held = trace.held.nests.get(id(value)) if place is None else None
    made = []
    for key, kept, nest in found:
        if kept is not None:
            made.append(Entry(key, kept[0], is_kept=True))
            continue
        leaves, structure = flatten(nest)
        if any(id(inner) in trace.arguments for inner in containers(nest)):
            raise Escape(f"putting one argument into {describe(value)}", "the two would have to stay one object")
        in_nest = structure is not LEAF or isinstance(value, list | dict)
        if place is None and in_nest and any(isinstance(leaf, Tracer) and leaf._loose for leaf in leaves):
            trace.tell()
            what = f"leaving a number in {describe(value)} that is Python's in some branch and NumPy's in another"
            raise Escape(what, "which of the two it is depends on data")
        made.append(Entry(key, structure=structure, outputs=tuple(output(leaf) for leaf in leaves)))
        guard = trace.guards.get((id(value), key)) if place is None else None
        if guard is not None and _is_static(made[-1]) and fingerprint(nest, inputs=guard.inputs) != guard.expected:
            raise Escape(f"changing the attribute {key!r}, a constant of the trace", _ANEW)
    if held is not None and _is_there(held.read, value):
        _refuse_new_kinds(value, before, made)
    read = None if held is None or not isinstance(value, list | dict) else held.read
    gone = frozenset(before.keys() - {entry.key for entry in made})
    return Change(place, value if place is None and read is None else None, tuple(made), read, gone)


def _is_there(read: Callable[[], Any], value: Any) -> bool:
    """Is a list or dict from outside found where it was, after the trace?"""
    try:
        return read() is value
    except (LookupError, AttributeError, TypeError):
        return False


def _refuse_new_kinds(value: Any, before: dict[Any, Any], entries: list[Entry]) -> None:
    """The next call finds what this one left in a list or dict: if that is of another kind each time, it is traced anew
    each time. A dict may get entries under new names, of which a program has so many; numbers may change, and what is
    True, False or None may become another of these."""
    added = [entry.key for entry in entries if entry.key not in before]
    if not all(isinstance(key, str) for key in added) or (isinstance(value, list) and len(entries) < len(before)):
        escape = Escape(f"changing how long {describe(value)} is that was not made by the function", _ANEW)
        escape.source = current().changed_at.get(id(value), escape.source)
        raise escape
    for entry in entries:
        kinds = set(map(_kind, entry.outputs))
        if "number" in kinds and _is_of_nests(entry.structure):
            kinds.remove("number")
        if not (entry.is_kept or kinds <= {"array", "arg", "outside"} or (_is_static(entry) and entry.key in added)):
            raise Escape(f"changing an item of {describe(value)} that was not made by the function", _ANEW)


def _kind(output: Any) -> str:
    if output.kind in ("out", "one of"):
        return "array" if output.is_array else "number"
    if output.kind == "either":
        return "number" if all(_kind(each) == "number" for each in output.among.values()) else output.kind
    is_number = output.value is None or isinstance(output.value, bool | int | float | complex | np.generic)
    return "number" if output.kind == "static" and is_number else output.kind


def _is_static(entry: Entry) -> bool:
    return all(each.kind == "static" for each in entry.outputs)


def _is_of_nests(structure: Structure) -> bool:
    """Is it made of lists, dicts and tuples alone, which are found again whichever they are?"""
    return structure.kind is None or (is_nest(structure.kind) and all(map(_is_of_nests, structure.children)))
