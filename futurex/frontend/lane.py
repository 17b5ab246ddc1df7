"""The short way of a call like the last one: two functions made for one trace, without loops or look-ups.

The first says whether a call is of the trace's kind, and finds its leaves; it says no rather than look twice, and the
long way then decides. The second puts the results of a run into the nest that the call returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from operator import countOf
from sys import getrefcount
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.choice import Choice, ChoiceOfSizes, Misfit, computes, leaves_little, leaves_whole_arrays, places
from futurex.frontend.entries import lists_in
from futurex.frontend.keys import Key, is_by_identity
from futurex.frontend.nest_texts import Unwritten, put_together, taken_apart
from futurex.frontend.number_lists import can_enter, copy_of
from futurex.frontend.plain import PlainCalls
from futurex.frontend.variants import Output, Variant
from futurex.frontend.within import Within
from futurex.kernels.addresses import ALIGNED, IN_ORDER
from futurex.kernels.recycling import settled
from futurex.ops.streams import GENERATORS, bits_of
from futurex.ops.views import read_only
from futurex.runtime.futures import OWN_REFERENCES, Done, Future, Resident
from futurex.tree.aval import Aval
from futurex.tree.pytree import Structure, unflatten

Match = Callable[[tuple[Any, ...], Mapping[str, Any]], "list[Any] | None"]
Pack = Callable[..., Any]
Take = Callable[[Sequence[Any]], "tuple[list[Any], tuple[Done[Any], ...]] | None"]
_NOTHING: Mapping[int, Aval] = {}
_LONGEST = 1000
"""Leaves of a result for which such a function is made, and tests of a call."""
_FEWEST = 32
"""Entries of a list or tuple that are looked at all at once."""
_BY_VALUE = frozenset({bool, int, str, bytes})
_OF_KEYS = frozenset({*_BY_VALUE, type(None)})
"""Types of a dict's keys, and of what is in tuples among these."""
_CONTAINERS = (tuple, list, dict)
_TOLD_APART = frozenset({np.ndarray, *GENERATORS})


class Lane:
    """The short way of one trace. ``match(args, kwargs)`` gives the leaves of a call of its kind, or None.

    ``looks``: does it find whether a call is of its kind?
    ``fits``: leaves that match are all that a run takes, as it takes them. ``lies``: some of them in another order.
    ``pack``, where there is one: the trace only computes, and what is to be done is ``pack(plan.run(inputs))``, or
    ``pack(results, call)`` where somebody wants to know when the results are asked for. ``take(inputs)``, where futures
    are among them or are given away: their values, and the futures that own what is given away, which has ``names``;
    None if not all is there, and the caller's to give. ``read``: bytes of the arrays that a run reads and does not own.
    ``choice``, where there is one: calls may go as plain NumPy. ``plain``: how they do where all do, or some because
    the last runs failed. ``within``: how calls of futurized functions go in those.
    ``valid()``: does the trace still hold?
    """

    __slots__ = (
        "choice", "fits", "inputs", "lies", "looks", "match", "names", "pack", "plain", "read", "take", "valid",
        "variant", "within",
    )  # fmt: skip

    def __init__(self, variant: Variant, match: Match, choice: Choice | None) -> None:
        self.variant = variant
        self.choice = choice
        self.match = match
        self.looks = match is not _none
        self.valid = variant.quickly_valid()
        self.pack = _pack(variant) if variant.graph is not None and not variant.opened else None
        self.plain = PlainCalls()
        self.within = Within(variant.plainly, variant.throughout)
        same = variant.inputs == list(range(len(variant.leaves)))
        self.inputs = None if same else variant.inputs
        takes = any(key[0] is Array for key in variant.leaves)
        apart = [variant.leaves[k][0] is np.ndarray and len(variant.leaves[k]) > 3 for k in variant.inputs]
        self.fits = not (takes or variant.gives or variant.captures) and all(
            k in variant.lying.orders or k in variant.lying.steps for k, strided in enumerate(apart) if strided
        )
        self.lies = bool(variant.lying.orders or variant.lying.steps or variant.lying.lists)
        self.names = tuple(variant.gives.values())
        self.take = _take(variant) if takes or variant.gives else None
        if variant.gives:
            self.take = self._once_settled(self.take)
        self.read = 0
        if self.pack is not None:
            params = enumerate(variant.graph.params)  # type: ignore[union-attr]
            self.read = sum(param.aval.nbytes for k, param in params if k not in variant.gives)

    def either_way(
        self, again: Callable[[Lane, list[Any], Any, Any], Any], leaves: list[Any], args: Any, kwargs: Any,
        began: float, *, looked: bool = True,
    ) -> Any:  # fmt: skip
        """A call of a trace that may go as plain NumPy, and does where that is faster; ``again`` makes it staged.

        ``began``: when somebody began to look whether the trace still holds, which plain calls need not.
        ``looked``: has anybody looked whether the trace still holds? What a call that goes as plain NumPy returns and
        raises is right in any case.
        """
        choice = self.choice
        assert choice is not None
        settled = not looked or choice.goes_plain()
        if not (settled or choice.next_is_plain):
            result = again(self, leaves, args, kwargs)
            choice.was_staged(began)
            return result
        began = 0.0 if settled else time.perf_counter()
        try:
            result = choice.call(self.variant.throughout, args, kwargs)
        except Misfit as misfit:
            choice.open = not (looked or self.valid())
            return misfit.result
        except Exception:
            choice.failed()
            if choice.acts or self.variant.has_log or not (looked or self.valid()):
                raise
        else:
            if not settled:
                choice.was_plain(began)
            return result
        return again(self, leaves, args, kwargs)  # whose results tell of the error, while none is being handled

    def _once_settled(self, take: Take | None) -> Take:
        """The long way, as long as it may lead what is given away into better memory, and once more then: it stays
        where it is from there on."""

        def wait(inputs: Sequence[Any]) -> None:
            if settled():
                self.take = take

        return wait


def lane_of(variant: Variant, structure: Structure, leaves: Sequence[Any], *, choice: bool) -> Lane | None:
    """The short way of a trace that was made, or found, for these leaves; None where only the long one is sure.

    A trace that was given up has one, too: to plain NumPy. One for many sizes has only the choice, if these are not
    those of lists alone.

    ``choice``: the function means plain NumPy, so its calls may go as that.
    """
    try:
        if variant.opened:
            has_choice = choice and variant.graph is not None and leaves_whole_arrays(variant)
            of_lists = all(type(leaves[place]) is list for place in variant.opened)
            if not (of_lists or has_choice):
                return None
            match = _Matcher(structure, variant.leaves, leaves, variant.opened).function() if of_lists else _none
            return Lane(variant, match, ChoiceOfSizes(variant) if has_choice else None)
        match = _Matcher(structure, variant.leaves, leaves).function()
        return Lane(variant, match, _choice(variant) if choice and variant.graph is not None else None)
    except (_Unsure, Unwritten):
        return None


def _none(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """The match of a trace for many sizes: the long way alone finds what they are."""


def _choice(variant: Variant) -> Choice | None:
    if computes(variant) and (pack := packed(variant)) is not None:
        return Choice(variant, pack)
    return Choice(variant, None) if leaves_little(variant) else None


class _Unsure(Exception):
    """A kind of leaf or container that has no short test."""


class _Matcher:
    """Writes ``match``: the tests of :mod:`futurex.frontend.keys`, one after the other."""

    def __init__(
        self, structure: Structure, keys: Sequence[Key], leaves: Sequence[Any], opened: Mapping[int, Aval] = _NOTHING
    ) -> None:
        self._lines: list[str] = []
        self._opened = {id(leaves[place]): aval.shape for place, aval in opened.items()}
        self._symbols: dict[Any, str] = {}
        self._known: dict[str, Any] = {"ndarray": np.ndarray, "Array": Array}
        self._keys, self._leaves = iter(keys), iter(leaves)
        self._count = 0
        self._arrays: list[str] = []
        self._found: list[str] = []
        positional, keyword = structure.children
        self._unless(f"len(args) == {len(positional.children)}")
        if keyword.children:
            self._unless(f"tuple(kwargs) == {self._constant(keyword.keys)}")
        else:
            self._unless("not kwargs")
        self._children(positional, "args")
        self._children(keyword, "kwargs.values()")
        self._tell_apart([id(leaf) for leaf in leaves if type(leaf) in _TOLD_APART])

    def function(self) -> Match:
        text = "".join(f" {line}\n" for line in self._lines)
        exec(f"def match(args, kwargs):\n{text} return [{', '.join(self._found)}]", self._known)
        return self._known["match"]

    def _constant(self, value: Any) -> str:
        self._count += 1
        self._known[f"c{self._count}"] = value
        return f"c{self._count}"

    def _unless(self, test: str) -> None:
        if len(self._lines) > 2 * _LONGEST:
            raise _Unsure
        self._lines.append(f"if not ({test}): return None")

    def _children(self, structure: Structure, source: str) -> None:
        if structure.kind in (tuple, list) and len(structure.children) >= _FEWEST and self._row(structure, source):
            return
        names = []
        for _ in structure.children:
            self._count += 1
            names.append(f"v{self._count}")
        if names:
            self._lines.append(f"{', '.join(names)}, = {source}")
        for name, child in zip(names, structure.children, strict=True):
            if child.kind is None:
                self._leaf(name)
            else:
                self._container(name, child)

    def _tell_apart(self, arrays: Sequence[int]) -> None:
        """Writes the tests which of the arrays are one."""
        first = [self._arrays[arrays.index(array)] for array in arrays]
        for name, other in zip(self._arrays, first, strict=True):
            if name != other:
                self._unless(f"{name} is {other}")
        apart = list(dict.fromkeys(first))
        if len(apart) == 2:
            self._unless(" is not ".join(apart))
        elif apart[1:]:
            self._unless(f"len({{{', '.join(f'id({name})' for name in apart)}}}) == {len(apart)}")

    def _row(self, structure: Structure, name: str) -> bool:
        """Writes one test for all entries of a long list or tuple, where these are Python's numbers or texts."""
        count = len(structure.children)
        if any(child.kind is not None for child in structure.children):
            return False
        keys, leaves = list(islice(self._keys, count)), list(islice(self._leaves, count))
        kinds = {key[0] for key in keys} | set(map(type, leaves))
        if len(kinds) > 1 or not kinds <= {float, *_BY_VALUE}:
            self._keys, self._leaves = chain(keys, self._keys), chain(leaves, self._leaves)
            return False
        self._known["count"] = countOf
        self._unless(f"count(map(type, {name}), {self._constant(*kinds)}) == {count}")
        if kinds <= _BY_VALUE:
            self._unless(f"{name} == {self._constant(structure.kind(leaves))}")
        self._found.append(f"*{name}")
        return True

    def _container(self, name: str, structure: Structure) -> None:
        kind = structure.kind
        if kind not in _CONTAINERS:
            test, parts = taken_apart(structure, name, self._constant)
            self._unless(test)
            self._children(structure, parts)
            return
        self._unless(f"type({name}) is {self._constant(kind)} and len({name}) == {len(structure.children)}")
        if kind is dict:
            types = tuple(map(type, structure.keys))
            within = {type(part) for key in structure.keys if type(key) is tuple for part in key}
            if not {*types, *within} - {tuple} <= _OF_KEYS or tuple in within:
                raise _Unsure
            if types:
                self._unless(f"tuple(map(type, {name})) == {self._constant(types)}")
                self._unless(f"tuple({name}) == {self._constant(structure.keys)}")
        self._children(structure, f"{name}.values()" if kind is dict else name)

    def _leaf(self, name: str) -> None:
        kind, *values = next(self._keys)
        leaf = next(self._leaves)
        self._found.append(name)
        if type(leaf) is not kind:
            raise _Unsure
        test = f"type({name}) is {self._constant(kind)}"
        if kind is list:
            self._unless(test)
            self._numbers(name, leaf, *values)
            return
        if kind is np.ndarray:
            self._arrays.append(name)
            dtype, shape = map(self._constant, values[:2])
            test = f"type({name}) is ndarray and {name}.dtype is {dtype} and {name}.shape == {shape}"
            test += f" and {name}.flags.num & {IN_ORDER} == {IN_ORDER}" if len(values) == 2 else (
                f" and {name}.strides == {self._constant(values[2])} and {name}.flags.num & {ALIGNED}"
            )  # fmt: skip
        elif kind is Array:
            aval = self._constant(leaf.aval)
            test = f"type({name}) is Array and {name}._is_array is {leaf._is_array}"
            test += f" and ({name}._aval is {aval} or {name}._aval == {aval})"
        elif kind in GENERATORS:
            self._arrays.append(name)
            self._known["bits_of"] = bits_of
            test += f" and type(bits_of({name})).__name__ == {self._constant(values[0])}"
        elif issubclass(kind, np.generic):
            test += f" and {name}.dtype is {self._constant(values[0])}"
        elif kind in _BY_VALUE:
            test += f" and {name} == {self._constant(values[0])}"
        elif kind is slice or kind is range:
            test += f" and {self._bounds(leaf, name)}"
        elif kind is set or kind is frozenset:
            test += f" and {self._members(leaf, name)}"
        elif isinstance(leaf, np.dtype):
            test = f"{name} is {self._constant(leaf)}"
        elif is_by_identity(leaf, (kind, *values)):
            test += f" and {name} is {self._constant(leaf)}"
        elif kind not in (float, complex, type(None)):
            raise _Unsure
        self._unless(test)

    def _numbers(self, name: str, leaf: list[Any], kind: type, shape: tuple[int, ...], *known: Any) -> None:
        """The tests of a long list of numbers, or of lists of them."""
        self._known.update(count=countOf, chain=chain.from_iterable, ident=id)
        entries, opened = name, self._opened.get(id(leaf), shape)
        number = self._extent(f"len({name})", opened[0])
        if len(shape) == 2:
            self._unless(f"count(map(type, {name}), {self._constant(list)}) == {number}")
            self._unless(f"len(set(map(ident, {name}))) == {number}")
            width = self._extent(f"len({name}[0])", opened[1])
            self._unless(f"count(map(len, {name}), {width}) == {number}")
            entries, number = f"chain({name})", f"{number} * {width}"
        self._unless(f"count(map(type, {entries}), {self._constant(kind)}) == {number}")
        if known:
            self._unless(f"{name} == {self._constant(copy_of(leaf))}")
        elif kind is int:
            self._known["can_enter"] = can_enter
            self._unless(f"can_enter({entries})")

    def _extent(self, found: str, wanted: Any) -> str:
        """Writes the test of how long a list is. A length that may be any is a name from then on, for others like it.
        """
        if type(wanted) is int:
            self._unless(f"{found} == {wanted}")
            return str(wanted)
        if wanted in self._symbols:
            self._unless(f"{found} == {self._symbols[wanted]}")
        else:
            self._symbols[wanted] = f"n{len(self._symbols)}"
            self._lines.append(f"{self._symbols[wanted]} = {found}")
            self._unless(f"{self._symbols[wanted]} >= {wanted.low or 0}")
        return self._symbols[wanted]

    def _bounds(self, leaf: slice | range, name: str) -> str:
        bounds = leaf.start, leaf.stop, leaf.step
        if not set(types := tuple(map(type, bounds))) <= {int, type(None)}:
            raise _Unsure
        found = f"({name}.start, {name}.stop, {name}.step)"
        return f"tuple(map(type, {found})) == {self._constant(types)} and {found} == {self._constant(bounds)}"

    def _members(self, leaf: set[Any] | frozenset[Any], name: str) -> str:
        types = set(map(type, leaf)) or {int}
        if len(types) > 1 or not types <= {int, str, bytes}:
            raise _Unsure
        self._known["count"], number = countOf, len(leaf)
        alike = f"len({name}) == {number} and count(map(type, {name}), {self._constant(*types)}) == {number}"
        return f"{alike} and {name} == {self._constant(frozenset(leaf))}"


def _take(variant: Variant) -> Take:
    """Writes ``take``. Who else has a value is a matter of how many refer to it: all values have names by then, so one
    that is among the inputs twice is not given away."""
    kinds = [*(variant.leaves[k][0] for k in variant.inputs), *(type(each.array) for each in variant.captures)]
    futures = [k for k, kind in enumerate(kinds) if kind is Array]
    given = variant.gives
    names = "".join(f"x{k}, " for k in range(len(kinds)))
    lines = ["def take(inputs):", f" {names} = inputs"]
    for k in futures:  # or numbers, which have none yet
        unread, number = (f" and not f{k}.readers", "False") if k in given else ("", f"not isinstance(f{k}, Future)")
        lines += [
            f" f{k} = x{k}._held",
            f" if type(f{k}) is Done and f{k}.gone is None and x{k}._view is None{unread}: x{k} = f{k}.value",
            f" elif {number} and type(f{k}) is not Done and x{k}._view is None: x{k} = f{k}",
            " else: return None",
        ]
    for k in futures:
        mine = f"type(x{k}) is ndarray and refs(x{k}) == {OWN_REFERENCES} and x{k}.base is None and x{k}.flags.carray"
        dense = f"x{k}.flags.c_contiguous or f{k}.exposed"  # else it is brought into order once, on the long way
        other = f"({dense}) if type(x{k}) is ndarray else not isinstance(x{k}, others)"
        lines.append(f" if not ({mine if k in given else other}): return None")
    owners = "".join(f"f{k}, " for k in given)
    lines.append(f" return [{names}], ({owners})" if given.keys() <= set(futures) else " return None")
    known: dict[str, Any] = {
        "Done": Done, "Future": Future, "ndarray": np.ndarray, "others": (np.ndarray, Resident), "refs": getrefcount,
    }  # fmt: skip
    exec("\n".join(lines), known)
    return known["take"]


def _pack(variant: Variant) -> Pack | None:
    """Writes ``pack``, where all that a run leaves behind are arrays that it returns. One that may fail as plain Python
    does not is made again then: it has changed nothing."""
    plain = (
        not (variant.written or variant.apart or variant.generators or variant.has_log)
        and not (variant.prints or variant.quiet or variant.opened)
        and all(map(_is_plain, variant.outputs))
        and all(isinstance(capture.array, np.ndarray | np.generic) for capture in variant.captures)
    )
    return packed(variant) if plain else None


def packed(variant: Variant) -> Pack | None:
    """Writes the function from results of a run, each of which is a leaf of what is returned, to that nest."""
    found = [place for output in variant.outputs for place in places(output)]
    if len(found) > _LONGEST or len(set(found)) < len(found):
        return None  # one future, one result
    known: dict[str, Any] = {"Array": Array, "Done": Done, "read_only": read_only}
    parts = []
    for number, output in enumerate(variant.outputs):
        if output.kind in ("either", "rows", "entries"):
            known[f"a{number}"] = _one_of(output) if output.kind == "either" else lists_in(output)
            parts.append(f"a{number}(results, call)")
            continue
        known[f"a{number}"] = output.aval
        held = f"Done(results[{output.index}], call)"
        if not output.is_array:
            held = f"results[{output.index}] if call is None else {held}"  # nobody need know who asks for a number
        parts.append(f"Array({held}, a{number}, {'read_only' if output.frozen else None}, {output.is_array})")
    try:
        nest = _nest(variant.structure, iter(parts), known)
    except Unwritten:
        return None
    exec(f"def pack(results, call=None):\n return {nest}", known)
    return known["pack"]


def _one_of(output: Output) -> Callable[[Sequence[Any], Any], Any]:
    """Makes one of several things of the results of a run, as these tell."""
    number, among = output.index, [output.among[k] for k in range(len(output.among))]

    def made(results: Sequence[Any], call: Any) -> Any:
        return part(among[int(results[number])], results, call)

    def part(found: Output, results: Sequence[Any], call: Any) -> Any:
        if found.kind == "nest":
            return unflatten(found.value, [part(each, results, call) for each in found.among.values()])
        if found.kind == "either":
            return part(found.among[int(results[found.index])], results, call)
        if found.aval is None:
            return found.value
        viewed = read_only if found.frozen else None
        return Array(Done(results[found.index], call), found.aval, viewed, found.is_array)

    return made


def _is_plain(output: Output) -> bool:
    if output.kind in ("either", "nest"):
        return all(each.kind == "static" or _is_plain(each) for each in output.among.values())
    if output.kind in ("rows", "entries"):
        return True
    return output.kind == "out" and not output.chain and output.aval is not None and output.aval.static


def _nest(structure: Structure, parts: Any, known: dict[str, Any]) -> str:
    if structure.kind is None:
        return next(parts)
    inner = [_nest(child, parts, known) for child in structure.children]
    if structure.kind is tuple:
        return f"({''.join(f'{each}, ' for each in inner)})"
    if structure.kind is list:
        return f"[{', '.join(inner)}]"

    def constant(value: Any) -> str:
        known[name := f"n{len(known)}"] = value
        return name

    if structure.kind is not dict:
        return put_together(structure, inner, constant)
    entries = [f"{constant(key)}: {each}" for key, each in zip(structure.keys, inner, strict=True)]
    return f"{{{', '.join(entries)}}}"
