"""Random generators in generated code: one that draws on, where the tree has a state for each draw.

In a tree a draw maps a state to the next one and a sample, so that a state can be drawn from twice. A loop hardly ever
does. So its code knows a state by the generator that is in it, and by how many draws were emitted before it: whoever
draws from an earlier state than the last one has the loop run another way. What a run begins with are states, which
nobody changes, and so is what it ends with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from futurex.kernels.loops import mathematics
from futurex.kernels.loops.arrays import Opaque
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar
from futurex.ops.draws import METHODS, PYTHON_TYPES
from futurex.ops.streams import STATE, State, generator_of, plain_scalar
from futurex.ops.twister import bits_now, bring
from futurex.tree.aval import Aval
from futurex.tree.dims import has_dims, replaced
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Drawn = dict[int, int]
"""The number of the last draw for each generator, while code is emitted."""


@dataclass(frozen=True)
class Stream(Opaque):
    """The state of a generator behind the draw with this number."""

    draw: int


def is_state(aval: Any) -> bool:
    return isinstance(aval, Aval) and aval == STATE


def new(e: Emitter) -> Stream:
    """A state that the code is given, or that an operation makes."""
    stream = Stream(e.opaque().index, 0)
    e.drawn[stream.index] = 0
    return stream


def now(e: Emitter, index: int) -> Stream:
    """The last state of a generator."""
    return Stream(index, e.drawn[index])


def drawn(e: Emitter, stream: Stream) -> Stream:
    """The state behind one more draw."""
    check(e, stream)
    e.draws += 1
    e.drawn[stream.index] = e.draws
    return now(e, stream.index)


def check(e: Emitter, *values: Any) -> None:
    """Raise Unsupported for a state that is no longer the last one of its generator."""
    if any(isinstance(value, Stream) and e.drawn[value.index] != value.draw for value in values):
        raise Unsupported("a random stream that is read twice")


@dataclass(frozen=True)
class Drawer:
    """A method of a generator that code calls by itself, with numbers in registers: its address stands in a word."""

    word: int
    stream: int
    method: str
    options: tuple[tuple[str, Any], ...]

    def armed(self, generator: Any) -> tuple[Any, int]:
        """What is to live as long as the code may call it, and what is to stand in the word."""
        function = getattr(generator, self.method)
        called = functools.partial(function, **_options(self.options)) if self.options else function
        return called, id(called)


class Armed(Protocol):
    """What code wants of a generator that draws: an address in a word."""

    @property
    def word(self) -> int: ...
    @property
    def stream(self) -> int: ...
    def armed(self, generator: Any) -> tuple[Any, int]: ...


def one_number(e: Emitter, node: Node, stream: Any, operands: Sequence[Any]) -> list[Any]:
    """A draw of one number from a generator that is live. Raises Unsupported for others."""
    aval = node.aval[1]
    if not isinstance(stream, Stream) or aval.shape or not all(isinstance(value, Scalar) for value in operands):
        raise Unsupported("a draw of arrays")
    if not in_order(node.attrs) or "dims" in node.attrs:
        raise Unsupported("a draw with parameters that are not in order, or that the run tells")
    word = e.memory.word()
    number = Scalar(mathematics.asked(e, word, operands, aval.dtype), aval.dtype, aval.weak)
    e.drawers.append(Drawer(word, stream.index, node.attrs["method"], node.attrs["options"]))
    return [drawn(e, stream), number]


def are_handed(values: Iterable[Any]) -> bool:
    """Is there an object among the values that is no state?"""
    return any(isinstance(value, Opaque) and not isinstance(value, Stream) for value in values)


def merged(e: Emitter, before: Drawn, ends: Sequence[Drawn]) -> None:
    """Several paths meet, of which a run takes one: what one of them has drawn from has another last state."""
    e.drawn = dict(before)
    for index, draw in before.items():
        if any(end[index] != draw for end in ends):
            e.draws += 1
            e.drawn[index] = e.draws


def joined(e: Emitter, one: Stream, two: Any) -> Stream:
    """The state that a branch leaves, of that of both its sides, each the last one there."""
    if not isinstance(two, Stream) or two.index != one.index:
        raise Unsupported("a branch that leaves one of two random streams")
    return now(e, one.index)


# -- at run time -------------------------------------------------------------------------------------------------------


class _Live:
    """A generator that draws in a run."""

    __slots__ = ("generator", "of")

    def __init__(self, generator: Any, of: State) -> None:
        self.generator, self.of = generator, of

    @property
    def state(self) -> State:
        generator, of = self.generator, self.of
        bits = bits_now(generator) if of.legacy else generator.bit_generator.state
        return State(of.legacy, bits, of.seed)


class Streams:
    """The generators of one instance of the code: made once for each kind, they are brought to the states of a run."""

    def __init__(self, drawers: Sequence[Armed], words: Any) -> None:
        self._generators: dict[tuple[Any, ...], Any] = {}
        self._drawers, self._words = drawers, words
        self._called: dict[int, Any] = {}  # by the word that holds their address
        self._for: dict[int, Any] = {}  # the generators of which these are methods

    def arm(self, objects: dict[int, Any], indices: Iterable[int]) -> None:
        """The code may call methods of the generators that are in these states from now on."""
        for index in {each.stream for each in self._drawers}.intersection(indices):
            generator = self.live(objects, index)
            if self._for.get(index) is not generator:
                self._for[index] = generator
                for each in self._drawers:
                    if each.stream == index:
                        self._called[each.word], self._words[each.word] = each.armed(generator)

    def live(self, objects: dict[int, Any], index: int) -> Any:
        """The generator that draws in place of a state, from then on until the run is over."""
        found = objects[index]
        if type(found) is State:
            found = objects[index] = _Live(self._brought(index, found), found)
        return found.generator

    def _brought(self, index: int, state: State) -> Any:
        kind = index, state.legacy, state.bits["bit_generator"]
        generator = self._generators.get(kind)
        if generator is None:
            generator = self._generators[kind] = generator_of(state)
        elif state.legacy:
            bring(generator, state.bits)
        else:
            generator.bit_generator.state = state.bits
        return generator


def state_of(objects: Mapping[int, Any], index: int) -> Any:
    """The state of a generator now."""
    found = objects[index]
    return found.state if type(found) is _Live else found


def drawing(node: Node) -> Callable[[Any, list[Any]], Any]:
    """``draw(generator, operands)``: a draw from a live generator."""
    attrs = node.attrs
    draw = _drawing(attrs)
    if "dims" not in attrs:
        options = _options(attrs["options"])
        return lambda generator, operands: draw(generator, operands, options)
    count = len(attrs["dims"])
    places = {dim: k - count for k, dim in enumerate(attrs["dims"])}  # the run's sizes are the last operands
    fixed = _options((name, value) for name, value in attrs["options"] if not has_dims(value))
    sized = [(name, value) for name, value in attrs["options"] if has_dims(value)]

    def drawn_with_sizes(generator: Any, operands: list[Any]) -> Any:
        sizes = {name: replaced(value, lambda dim: int(operands[places[dim]])) for name, value in sized}
        return draw(generator, operands[:-count], fixed | sizes)

    return drawn_with_sizes


def _drawing(attrs: Mapping[str, Any]) -> Callable[[Any, Sequence[Any], dict[str, Any]], Any]:
    method, names = attrs["method"], attrs["names"]
    if in_order(attrs):
        return lambda generator, operands, options: getattr(generator, method)(*map(plain_scalar, operands), **options)
    return lambda generator, operands, options: getattr(generator, method)(
        **options, **dict(zip(names, map(plain_scalar, operands), strict=True))
    )


def in_order(attrs: Mapping[str, Any]) -> bool:
    """Are the operands of a draw the first parameters of its method?"""
    names = attrs["names"]
    return names == METHODS[attrs["legacy"]][attrs["method"]].parameters[: len(names)]


def _options(given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    options = dict(given)
    if "dtype" in options:
        options["dtype"] = PYTHON_TYPES.get(options["dtype"], options["dtype"])
    return options
