"""What a transformed function changes outside of itself: found when it is traced, done again behind its graph."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.errors import Escape
from futurex.frontend.objects import describe, entries_of, fill, is_state
from futurex.frontend.outside import PLAIN, own_container
from futurex.frontend.trace import Scope, current
from futurex.frontend.tracer import Tracer
from futurex.frontend.which import through
from futurex.ops.streams import STATE
from futurex.tree.dims import is_static
from futurex.tree.node import Node
from futurex.tree.pytree import containers, opened, unflatten

_HARMLESS = (*PLAIN, np.generic, np.dtype, np.ndarray, type, types.ModuleType, types.BuiltinFunctionType)
_ELSEWHERE = "what is run is made of the function, not the function itself", "return what is new"


class Changes:
    """The arrays and generators from outside that a function has written, and what objects from outside then hold.

    ``nodes`` are further results of its graph. What the function made and put into such an object stays the object that
    it is: when the graph has been put in the function's place, :meth:`perform` gives its storage the values outside.
    """

    def __init__(self, scope: Scope, given: Mapping[Cell, Tracer], args: Any, delivers: bool) -> None:
        self.cells = list(scope.journal)
        arrays = [cell for cell in self.cells if cell.value.aval != STATE]
        if arrays and not delivers:
            raise Escape("a write into an array from outside the transformed function", "its derivative is not defined")
        outside = {leaf._cell for leaf in given.values()}
        if any(cell in outside for cell in arrays):
            raise Escape("a write into an argument of the transformed function by another name", *_ELSEWHERE)
        found = ((value, before, entries_of(value)) for value, before in scope.state.values())
        self._objects = [(value, now) for value, before, now in found if not _is_same(before, now)]
        of_args = {id(each) for each in containers(args)}
        for value, _ in self._objects:
            if id(value) in of_args or hasattr(type(value), "__fx_traced__"):
                raise _refused(f"changing {describe(value)}", value)
        walk = _Walk(scope, given)
        for value, now in self._objects:
            walk.go(now.values(), value)
        self._own, self._leaves, self._given = walk.own, walk.leaves, given
        self._made = list(walk.made)
        self._nests = {*walk.own, *(id(value) for value, _ in self._objects)}
        self._kept = {leaf._cell for leaf in walk.leaves.values()} | set(arrays)
        self._places = list(dict.fromkeys(node for leaf in walk.leaves.values() for node in leaf._dynamic))
        self.nodes = [*(cell.value for cell in [*self.cells, *self._made]), *self._places]

    @property
    def draws(self) -> bool:
        """Does the function draw from generators from outside?"""
        return any(cell.value.aval == STATE for cell in self.cells)

    def keeps(self, leaf: Any) -> bool:
        """Is a result the storage of something that an object keeps? It must stay one array with that."""
        return isinstance(leaf, Tracer) and not leaf.is_scalar and leaf._cell in self._kept

    def note(self, leaf: Tracer) -> None:
        """A result that stays the array that it is."""
        self._leaves[id(leaf)] = leaf
        new = [node for node in leaf._dynamic if node not in self._places]
        self._places += new
        self.nodes += new

    def in_place(self, returned: Any, made: Any) -> Any:
        """A result with the nests that changed objects are or hold, where the function returned these."""
        if id(returned) in self._nests:
            return returned
        found, new = opened(returned), opened(made)
        if not self._nests or found is None or new is None:
            return made
        entries = [self.in_place(*pair) for pair in zip(found[1], new[1], strict=True)]
        same = all(a is b for a, b in zip(entries, new[1], strict=True))
        return made if same else current().remember(unflatten(new[0], entries))

    def perform(self, nodes: Sequence[Node]) -> None:
        """Do the changes where the function is called; ``nodes`` are what :attr:`nodes` are there."""
        values = iter(nodes)
        for cell in self.cells:
            node = next(values)
            if node.aval == STATE:
                cell.settle(node)
            else:
                cell.write(node)
        for cell in self._made:
            cell.restore(next(values))
            if not cell.value.aval.static or not is_static(cell.strides or ()):
                cell.strides = None
        places = dict(zip(self._places, values, strict=True))
        for leaf in self._leaves.values():
            self._moved(leaf, places)
        for each in self._own.values():
            current().remember(each)
        for value, now in self._objects:
            if own_container(value, describe(value)):
                fill(value, now)

    def _moved(self, leaf: Tracer, places: Mapping[Node, Node]) -> None:
        """Let a traced array of the function stand for what it is outside."""
        leaf._dynamic = tuple(places[node] for node in leaf._dynamic)
        if leaf._cell in self._given:
            seen = through(self._given[leaf._cell], leaf)
            leaf._cell, leaf._chain, leaf._dynamic = seen._cell, seen._chain, seen._dynamic
        leaf._guard, leaf._aval = None, None


def _refused(what: str, value: Any) -> Escape:
    """A change that is not done, at the line where the object was changed first."""
    escape = Escape(f"{what} from outside the transformed function", *_ELSEWHERE)
    escape.source = current().changed_at.get(id(value), escape.source)
    return escape


def _is_same(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> bool:
    return list(before) == list(now) and all(now[key] is entry for key, entry in before.items())


class _Walk:
    """Goes through what objects hold: the traced values, the storage that the function made, and its own objects.

    Raises Escape for what cannot outlast the trace of the function.
    """

    def __init__(self, scope: Scope, given: Mapping[Cell, Tracer]) -> None:
        self.scope, self.given = scope, given
        self.leaves: dict[int, Tracer] = {}
        self.made: dict[Cell, None] = {}
        self.own: dict[int, Any] = {}

    def go(self, entries: Iterable[Any], holder: Any) -> None:
        todo = list(entries)
        while todo:
            value = todo.pop()
            if isinstance(value, Tracer):
                self._leaf(value, holder)
            elif isinstance(value, tuple):
                todo += value
            elif id(value) in self.scope.born and is_state(value) and not hasattr(type(value), "__fx_traced__"):
                if id(value) not in self.own:
                    self.own[id(value)] = value
                    todo += entries_of(value).values()
            elif not self._outlasts(value):
                raise _refused(f"putting a {type(value).__name__} into {describe(holder)}", holder)

    def _leaf(self, leaf: Tracer, holder: Any) -> None:
        if id(leaf) in self.leaves:
            return
        leaf._node  # noqa: B018 - a name that may be unbound is checked inside
        cell = leaf._cell
        is_written = cell in self.given and cell.written
        if is_written or (cell.which is not None and cell.born >= self.scope.start):
            what = "a written argument" if is_written else "one of several arrays"
            raise _refused(f"putting {what} into {describe(holder)}", holder)
        self.leaves[id(leaf)] = leaf
        if cell not in self.given and cell.born >= self.scope.start:
            self.made[cell] = None
            if cell.seen is not None:
                self._leaf(cell.seen, holder)

    def _outlasts(self, value: Any) -> bool:
        """Is it from outside, or no place for traced values?"""
        if isinstance(value, _HARMLESS) or hasattr(type(value), "__fx_future__"):
            return True
        if type(value) is types.FunctionType:
            return value.__closure__ is None
        if id(value) in self.scope.born or not is_state(value) or hasattr(type(value), "__fx_traced__"):
            return False
        inside = (each for each in entries_of(value).values() if isinstance(each, Tracer))
        return id(value) in self.scope.state or all(each._cell.born < self.scope.start for each in inside)
