"""NumPy indices as data: views (basic indexing) and gathers (advanced indexing)."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.linear import length_of
from futurex.frontend.trace import emit, emit_many
from futurex.ops.dynamic import check_mask
from futurex.tree.dims import Dim, is_static, same
from futurex.tree.node import Node, const, dim_of

Entry = tuple[Any, ...]


def known_extent(node: Node) -> Dim | None:
    """The dimension that a computed integer is, where it is one (as ``len(x)``)."""
    dim = dim_of(node)
    return dim if isinstance(dim, Dim) and dim.low is not None else None


class Index:
    """An encoded index: ``entries`` in the form of :mod:`futurex.ops.views`, ``dynamic`` the nodes they refer to;
    ``lengths`` that slices are known to leave, None for others and for entries that leave no axis."""

    def __init__(
        self, entries: list[Entry], dynamic: list[Node], advanced: bool, lengths: list[int | None], shape: Any
    ) -> None:
        self.entries = tuple(entries)
        self.dynamic = dynamic
        self.advanced = advanced
        self._lengths, self._shape = lengths, shape

    def steps(self, offset: int) -> list[tuple[Any, ...]]:
        """The view as steps of a chain, whose nodes come after ``offset`` others.

        Where bounds that only the run knows leave extents that are known before, a step says so; where they do of some
        axes only (``x[k + 1 :, k : k + 1]``), those are cut first.
        """
        entries = [shifted(entry, offset) for entry in self.entries]
        told = [length if _is_open(entry) else None for entry, length in zip(entries, self._lengths, strict=True)]
        if all(length is None for length in told):
            return [("index", tuple(entries))]
        if all(length is not None for entry, length in zip(entries, self._lengths, strict=True) if entry[0] == "s"):
            kept = (1 if entry[0] == "n" else length for entry, length in zip(entries, self._lengths, strict=True))
            return [("index", tuple(entries)), ("sized", (*(each for each in kept if each is not None), *self._rest))]
        axes = [k for k, entry in enumerate(entries) if entry[0] != "n"]
        first = tuple(entries[k] if told[k] is not None else _ALL for k in axes)
        cut = tuple(told[k] if told[k] is not None else extent for k, extent in zip(axes, self._shape, strict=False))
        others = tuple(_ALL if length is not None else entry for entry, length in zip(entries, told, strict=True))
        return [("index", first), ("sized", (*cut, *self._rest)), ("index", others)]

    @property
    def _rest(self) -> tuple[int, ...]:
        """Extents of the axes behind those that are named."""
        return tuple(self._shape[sum(entry[0] != "n" for entry in self.entries) :])


_ALL: Entry = ("s", None, None, None)


def _is_open(entry: Entry) -> bool:
    """Is it a slice with a bound that only the run knows?"""
    return entry[0] == "s" and any(isinstance(part, tuple) for part in entry[1:])


def encode(index: Any, shape: tuple[Any, ...], node_of: Any) -> Index:
    """Encode any NumPy index of an array of this shape.

    ``node_of(value)`` gives the node of a traced value or array, None for anything else. Raises IndexError as NumPy
    does, and Escape for indices whose result has no known shape.
    """
    ndim = len(shape)
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(_axes_used(part, node_of) for part in parts)
    if used > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed")
    position = None
    if Ellipsis in [part for part in parts if part is None or part is Ellipsis]:
        position = next(k for k, part in enumerate(parts) if part is Ellipsis)
        parts[position : position + 1] = [slice(None)] * (ndim - used)
        if any(part is Ellipsis for part in parts):
            raise IndexError("an index can only have a single ellipsis ('...')")
    entries: list[Entry] = []
    dynamic: list[Node] = []
    advanced = False
    axis, parted = 0, None
    for k, part in enumerate(parts):
        if k == position and used == ndim:
            parted = len(entries)
        for entry, is_array in _entries(part, dynamic, node_of, shape, axis):
            entries.append(entry)
            advanced |= is_array
            axis += entry[0] != "n"
    if advanced and parted is not None:
        _refuse_parted(entries, parted)
    return Index(entries, dynamic, advanced, _known_lengths(entries, dynamic, shape, advanced), shape)


def _refuse_parted(entries: list[Entry], parted: int) -> None:
    """``parted``: the entries before an ellipsis that stands for no axes. Between index arrays it counts, so that NumPy
    puts what these give in front, where it stays in its place without."""
    picked = [k for k, entry in enumerate(entries) if entry[0] in ("i", "d")]
    if 0 < picked[0] < parted <= picked[-1] and picked[-1] - picked[0] < len(picked):
        raise Escape(
            "an ellipsis between index arrays that stands for no axes", "NumPy puts their axes in front",
            "leave it out, and use np.moveaxis",
        )  # fmt: skip


def _known_lengths(
    entries: list[Entry], dynamic: list[Node], shape: tuple[Any, ...], advanced: bool
) -> list[int | None]:
    """What each slice leaves of its axis; None where only the run tells it, and for entries that are none."""
    if advanced or not is_static(shape) or not any(map(_is_open, entries)):
        return [None] * len(entries)
    found: list[int | None] = []
    axis = 0
    for entry in entries:
        found.append(_length(entry[1:], dynamic, shape[axis]) if entry[0] == "s" else None)
        axis += entry[0] != "n"
    return found


def _length(bounds: tuple[Any, ...], dynamic: list[Node], extent: int) -> int | None:
    start, stop, step = bounds
    if not any(isinstance(part, tuple | Dim) for part in bounds):
        return len(range(*slice(*bounds).indices(extent)))
    if isinstance(step, tuple | Dim) or any(isinstance(part, Dim) or part is None for part in (start, stop)):
        return None
    first, last = (dynamic[part[1]] if isinstance(part, tuple) else const(part) for part in (start, stop))
    return length_of(first, last, step, extent)


def is_element(index: Any, ndim: int) -> bool:
    """Does it name one element, as ``x[0]``, and no view without dimensions, as ``x[0, ...]``? ``ndim``: of what it
    names."""
    return not ndim and not any(part is Ellipsis for part in (index if isinstance(index, tuple) else (index,)))


def takes_copy(index: Any) -> bool:
    """Does an array without dimensions stand for a number in it? NumPy gives a copy then, where a number is a view."""
    parts = index if isinstance(index, tuple) else (index,)
    numbers = (part for part in parts if getattr(part, "shape", None) == () and not isinstance(part, np.generic))
    return any(not getattr(part, "is_scalar", False) for part in numbers)


def under_flag(array: Any, index: Any) -> tuple[Any, Any] | None:
    """What an index means that has a boolean without dimensions: ``x[:, flag]`` is ``x[:, None][:, [flag]]``, and this
    the ``x[:, None]`` and the index of it, in which further ones remain. None for other indices."""
    from futurex.frontend.tracer import fresh, index_node, new_array

    parts = list(index) if isinstance(index, tuple) else [index]
    if array.aval.weak or all(isinstance(part, _NO_FLAGS) and not isinstance(part, bool) for part in parts):
        return None
    nodes = [None if isinstance(part, _NO_NODES) else index_node(part) for part in parts]
    place = next((k for k, (part, node) in enumerate(zip(parts, nodes, strict=True)) if _is_flag(part, node)), None)
    if place is None:
        return None
    node = nodes[place]
    firsts = _first_axes(parts, nodes, array.ndim)
    if firsts is None or not all(map(_surely_fits, parts, nodes, firsts, [array.shape] * len(parts))):
        return None  # NumPy's message names the axis: it is another one of the wider array
    flag = const(np.array([bool(parts[place])])) if node is None else emit("reshape", node, shape=(1,))
    one = new_array(array._node) if array.is_scalar else array
    parts[place] = fresh(flag)
    wider = one._extended(("index", (*[("s", None, None, None)] * firsts[place], ("n",))))
    return wider, tuple(parts) if len(parts) > 1 else parts[0]


def _first_axes(parts: list[Any], nodes: list[Node | None], ndim: int) -> list[int] | None:
    """The axis of the array at which each part of an index begins; None if there are more than it has."""
    named = list(map(_axes_named, parts, nodes))
    rest = ndim - sum(named)
    open_ = next((k for k, part in enumerate(parts) if part is Ellipsis), len(parts))
    return None if rest < 0 else [sum(named[:k]) + (rest if k > open_ else 0) for k in range(len(parts))]


def _surely_fits(part: Any, node: Node | None, first: int, shape: tuple[Any, ...]) -> bool:
    """Is it known that NumPy takes this part of an index for the axes from ``first`` on?"""
    if node is not None:
        return node.dtype.kind == "b" and (not node.ndim or same(node.shape, shape[first : first + node.ndim]))
    if isinstance(part, int | np.integer) and not isinstance(part, bool):
        return is_static((shape[first],)) and -shape[first] <= part < shape[first]
    return True


_NO_NODES = slice, type(None), type(Ellipsis), bool, np.bool_, int, np.integer
_NO_FLAGS = slice, type(None), type(Ellipsis), int, np.integer
"""Parts of an index that are no booleans; but ``bool`` is an ``int``."""


def _is_flag(part: Any, node: Node | None) -> bool:
    if node is None:
        return isinstance(part, bool | np.bool_)
    return node.dtype.kind == "b" and not node.ndim


def _axes_named(part: Any, node: Node | None) -> int:
    """How many axes of the array a part of an index is for."""
    if part is None or part is Ellipsis or _is_flag(part, node):
        return 0
    return node.ndim if node is not None and node.dtype.kind == "b" else 1


def _axes_used(part: Any, node_of: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    node = node_of(part) if not isinstance(part, slice | int | np.integer) else None
    return node.ndim if node is not None and node.dtype.kind == "b" else 1


def _entries(
    part: Any, dynamic: list[Node], node_of: Any, shape: tuple[Any, ...], axis: int
) -> list[tuple[Entry, bool]]:
    if part is None:
        return [(("n",), False)]
    if isinstance(part, slice):
        bounds = (_bound(bound, dynamic, node_of) for bound in (part.start, part.stop, part.step))
        return [(("s", *bounds), False)]
    if isinstance(part, bool | np.bool_):
        raise Escape("a boolean scalar index", "it has no form in the tree")
    if isinstance(part, int | np.integer):
        return [(("i", int(part)), False)]
    node = node_of(part)
    if node is None:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays "
            "are valid indices"
        )
    if node.dtype.kind == "b":
        return _mask_entries(node, dynamic, shape, axis)
    return [_array_entry(node, dynamic)]


def _mask_entries(node: Node, dynamic: list[Node], shape: tuple[Any, ...], axis: int) -> list[tuple[Entry, bool]]:
    """A mask stands for the positions of its true elements, one index array for each of its axes, from ``axis`` on."""
    if node.ndim == 0:
        raise Escape("a boolean scalar index", "it has no form in the tree")
    entries: list[tuple[Entry, bool]] = []
    for place in mask_places(node, shape[axis : axis + node.ndim], axis):
        dynamic.append(place)
        entries.append((("d", len(dynamic) - 1), True))
    return entries


def mask_places(mask: Node, extents: tuple[Any, ...], first: int) -> list[Node]:
    """Index arrays of the true elements of a mask over axes of these extents, the ``first`` and those behind it.

    Raises IndexError if it does not fit.
    """
    check_mask(mask.shape, extents, first)
    if is_static(mask.shape) and not mask.size:
        return [const(np.zeros(0, np.intp))] * mask.ndim
    if same(mask.shape, extents):
        return emit_many("nonzero", mask, extents=None)
    return emit_many("nonzero", mask, extents=extents, first=first)


def _array_entry(node: Node, dynamic: list[Node]) -> tuple[Entry, bool]:
    if node.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if node.ndim == 0 and node.op == "const":
        return ("i", int(node.value)), False
    dynamic.append(node)
    return ("d", len(dynamic) - 1), node.ndim > 0


def _bound(bound: Any, dynamic: list[Node], node_of: Any) -> Any:
    if bound is None or isinstance(bound, Dim):
        return bound
    if isinstance(bound, int | np.integer):
        return int(bound)
    node = node_of(bound)
    if node is None or node.ndim or node.dtype.kind not in "iub" or (node.dtype.kind == "b" and not node.aval.weak):
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    if node.op == "const":
        return int(node.value)
    extent = known_extent(node)
    if extent is not None:
        return extent
    dynamic.append(node)
    return ("d", len(dynamic) - 1)


def shifted(entry: Entry, offset: int) -> Entry:
    """The entry of an index whose nodes come after ``offset`` others."""
    if entry[0] == "d":
        return ("d", entry[1] + offset)
    return tuple(("d", part[1] + offset) if isinstance(part, tuple) else part for part in entry)
