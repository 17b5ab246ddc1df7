"""A function that a transform is applied to: traced on stand-ins, closed into a graph, its effects kept apart."""

from __future__ import annotations

import functools
import reprlib
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend import calls
from futurex.frontend.cells import Cell
from futurex.frontend.closing import close
from futurex.frontend.control.either import as_one, settled
from futurex.frontend.control.values import is_numeric
from futurex.frontend.errors import StagingError
from futurex.frontend.layout import Strides
from futurex.frontend.lists import need_entries, refuse_lists
from futurex.frontend.placeholders import Placeholder
from futurex.frontend.staging import Futurized, is_futurized
from futurex.frontend.trace import current, emit, tracing
from futurex.frontend.tracer import Tracer, entered, fresh, node_of
from futurex.frontend.transforms.changes import Changes
from futurex.frontend.transforms.frames import Alike, Frames, Shared
from futurex.ops.tapes import plain
from futurex.tree.activity import carries
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, const, param
from futurex.tree.pytree import Structure, flatten, leaf_paths, parts_of, unflatten


@dataclass(frozen=True)
class StandIn:
    """What takes the place of an argument: a value of this type, an array that lies in memory so, or a scalar."""

    aval: Aval
    is_array: bool
    strides: Strides

    @classmethod
    def of(cls, leaf: Tracer) -> StandIn:
        """One like a traced argument."""
        return cls(leaf.aval, not leaf.is_scalar, leaf.strides_in_memory)

    def tracer(self, node: Node) -> Tracer:
        return Tracer(Cell(node, strides=self.strides)) if self.is_array else fresh(node)


class _Value:
    """Marks where a value stands in a result."""


VALUE = _Value()


@dataclass(frozen=True)
class Inner:
    """A traced function as a graph.

    ``graph`` maps the stand-ins and then ``free``, the values from outside that the function reads, to the arrays and
    numbers of its result, then to its effects and to what it ``changes`` outside. ``leaves`` is the result with VALUE
    where such a value stands, ``kept`` has the arrays among these that the changes keep, too, ``result`` is what the
    function returned. ``shared`` lists leaves that are storage of something else: of what (None: of one another), and
    which leaf.
    """

    graph: Graph
    free: list[Node]
    structure: Structure
    leaves: list[Any]
    n_outs: int
    changes: Changes
    kept: dict[int, Tracer]
    result: Any
    written: bool = False  # does the function write into a stand-in
    shared: tuple[tuple[Cell | None, int], ...] = ()

    @property
    def outs(self) -> Sequence[Node]:
        """The outputs that are values."""
        return self.graph.outs[: self.n_outs]

    @property
    def floats(self) -> list[int]:
        """The outputs that can have a derivative."""
        return [k for k, node in enumerate(self.outs) if carries(node)]

    @property
    def moving(self) -> list[Aval | None]:
        """The types of the floating leaves of the result, None for the others."""
        avals = iter([node.aval if carries(node) else None for node in self.outs])
        return [next(avals) if leaf is VALUE else None for leaf in self.leaves]

    def value(self, nodes: Sequence[Node]) -> Any:
        """The function's result out of the outputs of a graph derived from it.

        Its effects run once, in their order, generators go on, and what it changes outside is changed.
        """
        n_outs = len(self.graph.outs)
        first_change = n_outs - len(self.changes.nodes)
        for node in nodes[self.n_outs : first_change]:
            current().keep(node)
        self.changes.perform(nodes[first_change:n_outs])
        values = iter(nodes)
        leaves = [fresh(next(values)) if leaf is VALUE else leaf for leaf in self.leaves]
        for position, leaf in self.kept.items():
            leaves[position] = leaf
        return self.changes.in_place(self.result, current().remember_all(unflatten(self.structure, leaves)))


def trace_inner(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    stand_ins: Sequence[StandIn | None],
    *,
    exact: bool = False,
    copies: bool = False,
    of_one_type: bool = True,
    delivers: bool = False,
) -> Inner:
    """Trace ``function`` with stand-ins for some leaves of ``(args, kwargs)``; None leaves one as it is.

    The function works on the stand-ins: what it writes into them the caller's arrays do not see. What else it changes
    outside of itself, arrays, lists, dicts and objects, is changed behind its graph if that ``delivers`` it; else, and
    where that would be another thing, it raises Escape.

    ``exact`` is for what must mean the function itself: numbers of Python stay what they are. ``of_one_type``: results
    that are numbers of one type or another, as the run tells, are of the type that NumPy gives both. With ``copies``
    the function works on copies of its other arguments, too.
    """
    leaves, structure = flatten((args, kwargs))
    with current().scope() as scope:
        scope.pure = not delivers
        params = [None if each is None else param(each.aval, "x") for each in stand_ins]
        copied: dict[int, Any] = {}  # an array that is two arguments stays one
        values = [
            (copied.setdefault(id(leaf), _copy(leaf)) if copies else leaf)
            if each is None or node is None else each.tracer(node)
            for leaf, each, node in zip(leaves, stand_ins, params, strict=True)
        ]
        inner_args, inner_kwargs = given = unflatten(structure, values)
        _remember(given)
        current().transforms += 1
        try:
            result = settled(calls.call(function, inner_args, inner_kwargs))
            out_leaves, out_structure = flatten(result)
        finally:
            current().transforms -= 1
        out_leaves = [as_one(leaf) if of_one_type and not exact else leaf for leaf in out_leaves]
        for leaf in out_leaves:
            if isinstance(leaf, Placeholder):
                leaf.used()
        refuse_lists(out_leaves, "a transformed function")
        if exact:
            nodes = [leaf._node if _is_traced(leaf) else None for leaf in out_leaves]
        else:
            nodes = [_node(leaf) if is_value(leaf) else None for leaf in out_leaves]
        given = {value._cell: leaf for value, leaf in _replaced(values, leaves)}
        changes = Changes(scope, given, (args, kwargs), delivers)
        whole = {k: leaf for k, leaf in enumerate(out_leaves) if nodes[k] is not None and changes.keeps(leaf)}
        for leaf in whole.values():
            changes.note(leaf)
        outs = [node for node in nodes if node is not None]
        own = [node for node in params if node is not None]
        name = getattr(function, "__name__", type(function).__name__)
        current().settle_failing([*outs, *changes.nodes])
        (graph,), free = close([[*outs, *scope.effects, *changes.nodes]], [own], scope.start, [name])
    kept = [VALUE if node is not None else leaf for leaf, node in zip(out_leaves, nodes, strict=True)]
    cells = {cell: leaf._cell for cell, leaf in given.items()}
    written = any(cell.written for cell in cells)
    shared = tuple(_shared(out_leaves, kept, cells, scope.start))
    return Inner(graph, free, out_structure, kept, len(outs), changes, whole, result, written, shared)


def _remember(given: Any) -> None:
    """Note that the nests of the arguments are copies, which may be changed."""
    kind: Any = type(given)
    take_apart = parts_of(kind)
    if take_apart is not None:
        current().remember(given)
        for part in take_apart(given)[1]:
            _remember(part)


def _replaced(values: Sequence[Any], leaves: Sequence[Any]) -> Iterator[tuple[Tracer, Tracer]]:
    """The stand-ins and copies, and what they stand for."""
    for value, leaf in zip(values, leaves, strict=True):
        if value is not leaf and isinstance(value, Tracer) and isinstance(whole := entered(leaf), Tracer):
            yield value, whole


def _shared(
    out_leaves: Sequence[Any], kept: Sequence[Any], cells: dict[Cell, Cell], start: int
) -> Iterator[tuple[Cell | None, int]]:
    """The results that are storage of an argument, of something outside or of another result: that, and which."""
    mine = [leaf._cell if mark is VALUE and isinstance(leaf, Tracer) and not leaf.is_scalar else None
            for leaf, mark in zip(out_leaves, kept, strict=True)]  # fmt: skip
    for position, cell in enumerate(mine):
        if cell is None:
            continue
        if cell in cells:
            yield cells[cell], position
        elif cell.born < start:
            yield cell, position
        elif mine.count(cell) > 1:
            yield None, position


def _copy(leaf: Any) -> Any:
    return StandIn.of(leaf).tracer(leaf._node) if isinstance(leaf, Tracer) and not leaf.is_scalar else leaf


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, Tracer) and leaf._node.op != "const"


def is_value(leaf: Any) -> bool:
    """Is a leaf an array or a number?"""
    return is_numeric(leaf) or hasattr(type(leaf), "__fx_future__")


def _node(leaf: Any) -> Node:
    node = node_of(leaf)
    return emit("cast", node, dtype=node.dtype) if node.aval.weak and node.dtype.kind == "f" else node


def float_leaves(arg: Any, name: str, what: str = "differentiate with respect to") -> list[Tracer]:
    """The traced floating leaves of an argument. Raises TypeError naming the first that is no such thing."""
    leaves, structure = flatten(arg)
    need_entries(leaves, "a derivative")
    # of a list or dict from outside the arrays are traced when they are read, which nobody has done yet
    leaves = [fresh(const(leaf)) if type(leaf) is float else entered(leaf) for leaf in leaves]
    for leaf, path in zip(leaves, leaf_paths(structure, name), strict=True):
        traced = isinstance(leaf, Tracer)
        if not traced or leaf.dtype.kind not in "fc":
            shown = leaf.dtype if traced else " ".join(reprlib.repr(leaf).split())  # a table takes many lines
            name = type(leaf).__name__
            kind = f"an array of {shown}" if traced else f"{'an' if name[0] in 'aeiou' else 'a'} {name} ({shown})"
            remedy = _remedy(leaf)
            raise TypeError(
                f"cannot {what} {path}: it is {kind}; only arrays of floats have gradients. {remedy}"
            )
    return leaves


def _remedy(leaf: Any) -> str:
    """What to do about a leaf that has no gradient."""
    if isinstance(leaf, Tracer):
        return "Pass floats (`.astype(float)`), or keep it in another argument"
    if type(leaf) in (bool, int):
        return "Pass a float, or keep it in another argument"
    return "Pass np.asarray of it" if hasattr(leaf, "__array__") else "Keep it in another argument"


def matching(
    values: Any, structure: Structure, avals: Sequence[Aval | None], what: str, of: str
) -> list[Node]:
    """The nodes of tangents or cotangents, one for each value they belong to, in its dtype; None: there is none.

    Raises TypeError or ValueError naming the first that does not fit.
    """
    leaves, found = flatten(values)
    if found != structure:
        expected, given = (", ".join(leaf_paths(each)) or "nothing" for each in (structure, found))
        raise TypeError(f"the {what} must have the structure of {of}: it has {given} in place of {expected}")
    nodes = []
    for leaf, aval, path in zip(leaves, avals, leaf_paths(structure, what), strict=True):
        if aval is None:
            continue
        node = node_of(leaf)
        if node.shape != aval.shape:
            raise ValueError(f"{path} has shape {node.shape}; the value it belongs to has shape {aval.shape}")
        if node.dtype.kind == "c" and aval.dtype.kind != "c":
            raise TypeError(f"{path} is {node.dtype}; the value it belongs to is {aval.dtype}")
        target = plain(aval)
        nodes.append(node if node.aval == target else emit("cast", node, dtype=target.dtype))
    return nodes


def placed(structure: Structure, where: Sequence[Any], nodes: Sequence[Node]) -> Any:
    """A nest with the nodes where ``where`` has something, and None elsewhere."""
    values = iter(nodes)
    leaves = [None if each is None else fresh(next(values)) for each in where]
    return current().remember_all(unflatten(structure, leaves))


class Transform(ABC):
    """A function made of another one by a transform; it exists as a tree only."""

    kind = "transform"

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(
                f"{self.kind} is taken of a function, not of an object of type {type(function).__name__}; "
                "give it f itself, not what f(x) returned"
            )
        self.function = function
        self.__name__ = f"{self.kind}_{getattr(function, '__name__', 'function')}"
        self.__qualname__ = self.__name__
        self.__wrapped__ = function  # the signature is the function's
        self.__doc__ = f"{self.kind} of {getattr(function, '__name__', 'a function')}."

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise StagingError(
            f"{self.__name__} exists only as a tree, and plain NumPy would have to make this call: what the function "
            "changes is something else that it is given, or shares memory with that. Pass a copy"
        )

    @abstractmethod
    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call means in staged code."""


def staged(transform: Transform) -> Futurized[Any, Any]:
    """The transformed function as one that is called."""
    return Futurized(transform, strict=True)


_Again = Callable[[Any], Futurized[Any, Any]]


class Borrowing(Futurized[Any, Any]):
    """The same of a function whose text another function has, too: the calls of both are those of one derivative.

    ``base`` is the user's function, ``again`` makes the same of another one, ``kinds`` tells what is made.
    """

    __slots__ = ("_shared", "again", "base", "kinds")

    def __init__(self, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        super().__init__(function, *args, **options)
        self._shared: Shared | None = None
        self.base: Any = None

    def of(self, shared: Shared, base: Any, again: _Again, kinds: tuple[Any, ...]) -> Borrowing:
        self._shared, self.base, self.again, self.kinds = shared, base, again, kinds
        return self

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._shared is None or tracing() or not self._shared.borrow(self.base):
            return super().__call__(*args, **kwargs)
        try:
            return self._shared.derivative(*args, **kwargs)
        finally:
            self._shared.give_back()

    def _traces(self) -> list[Any]:
        shared = self._shared.derivative if self._shared is not None else None
        return super()._traces() + (shared._traces() if shared is not None else [])


FUNCTIONS, HOLDING = 128, 4  # functions whose traces are kept; of callables that hold something, a model or data
_OF_IDENTITY = (object.__eq__, types.MethodType.__eq__, types.BuiltinMethodType.__eq__)
_HOLD_NOTHING = (types.BuiltinFunctionType, np.ufunc)
_How = Callable[[Transform], Futurized[Any, Any]]


def _make(how: _How, kind: type[Transform], function: Any, *options: Any) -> Futurized[Any, Any]:
    return how(kind(function.function if type(function) is Alike else function, *options))


_kept = functools.lru_cache(maxsize=FUNCTIONS, typed=True)(_make)
_held = functools.lru_cache(maxsize=HOLDING, typed=True)(_make)
_of_frames = Frames()


def made(
    kind: type[Transform], function: Callable[..., Any], *options: Any, how: _How = staged
) -> Futurized[Any, Any]:
    """The transformed function, the same one for every call of the transform, so that it is traced once.

    Callables that say themselves when they are equal may differ in what they compute: ``2.0`` and ``np.float64(2)`` do.
    """
    own: Any = type(function)
    code = function.plain if is_futurized(function) else function
    try:
        hash(options)
    except TypeError:  # axes of a nest
        return _make(how, kind, function, *options)
    if own is Borrowing and how is staged and getattr(function, "base", None) is not None and not tracing():
        return _of_its_frame(kind, function, options)
    if own.__eq__ not in _OF_IDENTITY or own.__hash__ is None:
        return _make(how, kind, function, *options)
    if not isinstance(function, types.FunctionType):  # there are no classes derived from it
        holds = type(code) not in _HOLD_NOTHING and (
            type(code) is not types.FunctionType or code.__closure__ is not None
        )
        if holds and getattr(code, "__name__", "") == "<lambda>":  # another one whenever it is evaluated
            return _make(how, kind, function, *options)
        return (_held if holds else _kept)(how, kind, function, *options)
    if function.__closure__ is None:
        return _kept(how, kind, Alike(function), *options)
    if tracing():  # its variables may be those of the trace
        return _make(how, kind, function, *options)
    if how is staged:
        return _of_its_frame(kind, function, options)
    return _of_frames.made(Alike(function), (how, kind, *options), lambda f: _make(how, kind, f, *options), None)


def _of_its_frame(kind: type[Transform], function: Any, options: tuple[Any, ...]) -> Futurized[Any, Any]:
    """Of a function that has variables of a frame, or of what a transform has made of one."""
    base, kinds, inner = function, (kind, *options), None
    if type(function) is Borrowing:
        base, kinds, inner = function.base, (*kinds, function.kinds), function.again

    def again(other: Any) -> Futurized[Any, Any]:
        return staged(kind(other if inner is None else inner(other), *options))

    def borrowing(shared: Shared) -> Futurized[Any, Any]:
        return Borrowing(kind(function, *options), strict=True).of(shared, base, again, kinds)

    return _of_frames.made(Alike(base), kinds, again, borrowing)
