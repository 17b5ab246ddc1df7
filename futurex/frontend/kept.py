"""What of a result is somebody's already: lists, dicts and dataclasses of the caller's, and those in several places.

A result is put together anew of its leaves; what must stay one object stands in it as a leaf of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from futurex.frontend.errors import Escape
from futurex.frontend.objects import describe, entries_of
from futurex.frontend.placeholders import Conflict
from futurex.frontend.trace import Trace
from futurex.tree.pytree import containers, flatten, leaf, opened, unflatten

Path = tuple[Any, ...]


@leaf
@dataclass(frozen=True)
class Kept:
    """Stands for an object in a result: the argument at a place, what a guard reads, or one of the shared ones."""

    kind: str  # "given" | "outside" | "shared"
    place: Path = ()
    read: Callable[[], Any] | None = None
    number: int = 0


def kept_apart(result: Any, trace: Trace) -> tuple[Any, list[Any]]:
    """The result with Kept where an object must stay the one that it is, and the nests that are in several places.

    Raises Escape where one would have to be part of both the result and an object of the caller's.
    """
    often = Counter(id(value) for value in containers(result))
    in_some = list(_in_some_runs(result))
    _refuse_two_owners(often + Counter(map(id, in_some)), trace)
    _refuse_mergers([*containers(result), *in_some], trace)
    twice = len({*often, *map(id, in_some)}) < len(often) + len(in_some)
    if twice or not all(map(trace.is_own, in_some)):
        raise Escape("a list or dict that is the result in some runs only", "somebody else has it")
    if not often:
        return result, []
    outside = {} if all(trace.is_own(value) for value in containers(result)) else _outside(trace)
    if max(often.values()) == 1 and not often.keys() & (trace.arguments.keys() | outside.keys()):
        return result, []
    nests: list[Any] = []
    return _Walk(trace.arguments, outside, often, nests).kept(result), nests


def _in_some_runs(result: Any) -> Iterator[Any]:
    """The lists, dicts and dataclasses in what leaves of the result may be."""
    for each in flatten(result)[0]:
        for nest in each.alternatives.values if type(each) is Conflict and each.alternatives is not None else ():
            yield from (value for value in containers(nest) if not isinstance(value, tuple))


class _Walk:
    def __init__(
        self, given: Mapping[int, tuple[Any, Any]], outside: Mapping[int, Kept], often: Counter[int], nests: list[Any]
    ) -> None:
        self.given, self.outside, self.often, self.nests = given, outside, often, nests
        self.numbers: dict[int, int] = {}

    def kept(self, value: Any) -> Any:
        if id(value) in self.given:
            return Kept("given", self.given[id(value)][0])
        if id(value) in self.outside:
            return self.outside[id(value)]
        if self.often[id(value)] < 2:
            return self._inside(value)
        if id(value) not in self.numbers:
            inside = self._inside(value)
            self.numbers[id(value)] = len(self.nests)
            self.nests.append(inside)
        return Kept("shared", number=self.numbers[id(value)])

    def _inside(self, value: Any) -> Any:
        found = opened(value)
        if found is None:
            return value
        structure, entries = found
        return unflatten(structure, [self.kept(entry) for entry in entries])


def found_apart(nest: Any, trace: Trace) -> Any:
    """What is put into an object of the caller's, with Kept where an object is one that is found outside. What holds an
    argument is left as it is: it would be made anew, and the argument have a double."""
    outside = {} if any(id(each) in trace.arguments for each in containers(nest)) else _outside(trace)
    return _Walk({}, outside, Counter(), []).kept(nest) if outside else nest


def _outside(trace: Trace) -> dict[int, Kept]:
    """The containers that the trace was given by names and attributes outside of it, and how to come to them again."""
    return {key: Kept("outside", read=held.read) for key, held in trace.held.nests.items()}


def _refuse_mergers(left: list[Any], trace: Trace) -> None:
    """What branches or rounds have merged is made anew: it must be nobody else's in any run."""
    entries = (entry for value, _ in trace.outside.values() for entry in entries_of(value).values())
    left += [each for entry in entries for each in containers(entry)]
    once = {id(value): value for value in left}
    may_be = [each for value in once.values() for each in _among(value, trace)]
    others = Counter(map(id, may_be)) + Counter(once.keys())
    for each in may_be:
        if id(each) in trace.arguments or id(each) in trace.held.nests or others[id(each)] > 1:
            raise Escape(
                f"leaving {describe(each)} behind that is another one in some runs",
                "which depends on data",
                "a copy before the branch or loop (`p = dict(p)`, `x = list(x)`) is nobody else's",
            )  # fmt: skip


def _among(value: Any, trace: Trace) -> list[Any]:
    """What an object may be that branches or rounds have merged."""
    seen: dict[int, Any] = {}
    todo = [*trace.frozen.get(id(value), (None, None, ()))[2]]
    while todo:
        each = todo.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            todo += trace.frozen.get(id(each), (None, None, ()))[2]
    return list(seen.values())


def found_at(value: Any, place: Path) -> Any:
    """What stands at a place of a nest."""
    for key in place:
        by_name = isinstance(key, str) and not isinstance(value, dict)
        value = getattr(value, key) if by_name else value[key]
    return value


def _refuse_two_owners(often: Counter[int], trace: Trace) -> None:
    """What a trace puts into an object of the caller's is made at every run; it cannot be in a second place."""
    seen = set(often)
    for value, before in trace.outside.values():
        for key, entry in entries_of(value).items():
            if key in before and before[key] is entry:
                continue
            for inner in containers(entry):
                if id(inner) in seen and id(inner) not in trace.arguments and id(inner) not in trace.held.nests:
                    what = f"putting {describe(inner)} into {describe(value)} and another place"
                    raise Escape(what, "the two would have to stay one object")
                seen.add(id(inner))
