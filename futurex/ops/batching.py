"""Batching rules: what an op becomes when some inputs carry one more axis, the examples of a ``vmap``, in front.

``rule(size, batched, *inputs, **attrs)`` gives the result with the axis in front, or NotImplemented where the general
ways (:mod:`futurex.autodiff.batch`) must serve. ``batched`` says which inputs have the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply


class NotBatchable(TypeError):
    """An op has no meaning for many examples at once; the message names it, and the user's line where it can."""


BatchRule = Callable[..., Any]
WHOLE = ("s", None, None, None)


def spread(size: int, x: Node) -> Node:
    """A value that all examples share, once for each of them."""
    if x.aval.weak:
        x = apply("cast", x, dtype=x.dtype)
    return apply("broadcast_to", x, shape=(size, *x.shape))


def everywhere(size: int, batched: Sequence[bool], inputs: Sequence[Node]) -> list[Node]:
    """All inputs with the axis."""
    return [x if has else spread(size, x) for has, x in zip(batched, inputs, strict=True)]


def widened(x: Node, ndim: int) -> Node:
    """A batched value whose examples have ``ndim`` dimensions: ones behind the axis."""
    missing = ndim - (x.ndim - 1)
    return apply("reshape", x, shape=(x.shape[0], *(1,) * missing, *x.shape[1:])) if missing else x


def to_front(x: Node, axis: int) -> Node:
    """Axis ``axis`` moved to the front."""
    return x if axis == 0 else apply("transpose", x, axes=(axis, *(k for k in range(x.ndim) if k != axis)))


def from_front(x: Node, axis: int) -> Node:
    """The first axis moved to ``axis``."""
    if axis == 0:
        return x
    return apply("transpose", x, axes=(*range(1, axis + 1), 0, *range(axis + 1, x.ndim)))


def lanes(size: int) -> Node:
    """The numbers of the examples."""
    return apply("iota", shape=(size,), axis=0, dtype=np.dtype(np.int64))


# -- shapes -----------------------------------------------------------------------------------------------------------


def full(size: int, batched: Sequence[bool], value: Node, shape: tuple[int, ...], dtype: Any) -> Node:
    out = apply("broadcast_to", widened(value, len(shape)), shape=(size, *shape))
    return out if out.dtype == dtype and not out.aval.weak else apply("cast", out, dtype=np.dtype(dtype))


def reshape(size: int, batched: Sequence[bool], x: Node, shape: tuple[int, ...]) -> Node:
    return apply("reshape", x, shape=(size, *shape))


def transpose(size: int, batched: Sequence[bool], x: Node, axes: tuple[int, ...]) -> Node:
    return apply("transpose", x, axes=(0, *(axis + 1 for axis in axes)))


def broadcast_to(size: int, batched: Sequence[bool], x: Node, shape: tuple[int, ...]) -> Node:
    return apply("broadcast_to", widened(x, len(shape)), shape=(size, *shape))


def concatenate(size: int, batched: Sequence[bool], *parts: Node, axis: int) -> Node:
    return apply("concatenate", *everywhere(size, batched, parts), axis=axis + 1)


def pad(size: int, batched: Sequence[bool], x: Node, value: Node, widths: tuple[tuple[int, int], ...]) -> Any:
    return NotImplemented if batched[1] else apply("pad", x, value, widths=((0, 0), *widths))


def unchanged(name: str) -> BatchRule:
    """The same op on one more axis."""
    return lambda size, batched, *inputs, **attrs: apply(name, *inputs, **attrs)


def rows(name: str) -> BatchRule:
    """The same op on one more axis of rows, which all inputs have."""
    return lambda size, batched, *inputs, **attrs: apply(name, *everywhere(size, batched, inputs), **attrs)


# -- contractions -----------------------------------------------------------------------------------------------------


def matmul(size: int, batched: Sequence[bool], x: Node, y: Node) -> Node:
    if not batched[1] and y.ndim <= 2:
        return apply("matmul", x, y)
    ndims = [node.ndim - has for node, has in zip((x, y), batched, strict=True)]
    leading = max(0, *(ndim - 2 for ndim in ndims))

    def matrix(node: Node, has: bool, ndim: int, at: int) -> Node:
        own = node.shape[has:]
        if ndim == 1:
            own = (1, *own) if at == 0 else (*own, 1)
        shape = (size, *(1,) * (leading + 2 - len(own)), *own) if has else own
        return node if shape == node.shape else apply("reshape", node, shape=shape)

    out = apply("matmul", matrix(x, batched[0], ndims[0], 0), matrix(y, batched[1], ndims[1], 1))
    dropped = {out.ndim - 2 + k for k, ndim in enumerate(ndims) if ndim == 1}
    shape = tuple(extent for k, extent in enumerate(out.shape) if k not in dropped)
    return apply("reshape", out, shape=shape) if dropped else out


def einsum(size: int, batched: Sequence[bool], *operands: Node, subscripts: str, optimize: bool) -> Node:
    inputs, out = subscripts.split("->")
    letter = next(chr(code) for code in range(ord("A"), 0x7F) if chr(code) not in subscripts and chr(code).isalpha())
    parts = [letter + part if has else part for part, has in zip(inputs.split(","), batched, strict=True)]
    return apply("einsum", *operands, subscripts=f"{','.join(parts)}->{letter}{out}", optimize=optimize)


def solve(size: int, batched: Sequence[bool], a: Node, b: Node) -> Node:
    """A right-hand side is a vector or a stack of matrices, by its rank: with the axis it must be the latter."""
    ranks = [x.ndim - has for x, has in zip((a, b), batched, strict=True)]
    vector = ranks[1] == 1
    if vector:
        b = apply("reshape", b, shape=(*b.shape, 1))
    stack = max(ranks[0], ranks[1] + vector)
    a, b = (widened(x, stack) if has else x for x, has in zip((a, b), batched, strict=True))
    out = apply("solve", a, b)
    return apply("reshape", out, shape=out.shape[:-1]) if vector else out


def pinv(size: int, batched: Sequence[bool], x: Node, rcond: Node, **attrs: Any) -> Any:
    return NotImplemented if batched[1] or rcond.ndim else apply("pinv", x, rcond, **attrs)


# -- advanced indexing ------------------------------------------------------------------------------------------------

Pattern = tuple[tuple[Any, ...], ...]


def _advanced_place(pattern: Pattern) -> int:
    """The dimension of the result at which NumPy puts those of the index arrays; 0 where they are separated."""
    places = [k for k, entry in enumerate(pattern) if entry[0] in "di"]
    if not places or places[-1] - places[0] + 1 != len(places):
        return 0
    return places[0]


def _aligned(indices: Sequence[Node], batched: Sequence[bool]) -> tuple[list[Node], int]:
    """Index arrays that broadcast against each other with the axis in front, and the rank of one example's."""
    rank = max((x.ndim - has for x, has in zip(indices, batched, strict=True)), default=0)
    return [widened(x, rank) if has else x for x, has in zip(indices, batched, strict=True)], rank


def _shared_lanes(size: int, rank: int) -> Node:
    return apply("reshape", lanes(size), shape=(size, *(1,) * rank))


def _located(size: int, x_batched: bool, indices: Sequence[Node], batched: Sequence[bool], pattern: Pattern) -> Any:
    """Indices and pattern for all examples at once, and how to bring a result of one example's form to NumPy's.

    The last is ``(place of the axis, place of the index dimensions in one example, their number)``; all index
    dimensions come right behind the axis where the examples' axis is one of them.
    """
    if not any(batched):
        place = _advanced_place(pattern)
        moved = (WHOLE, *pattern)
        rank = max((x.ndim for x in indices), default=0)
        separated = place == 0 and _advanced_place(moved) == 0
        return list(indices), moved, ("behind", rank) if separated else ("front", 0)
    aligned, rank = _aligned(indices, batched)
    if not x_batched:
        return aligned, pattern, ("at", _advanced_place(pattern))
    shifted = tuple(("d", entry[1] + 1) if entry[0] == "d" else entry for entry in pattern)
    moved = (("d", 0), *shifted)
    own = _advanced_place(pattern)
    return [_shared_lanes(size, rank), *aligned], moved, ("joined", own, rank)


def _restored(out: Node, form: tuple[Any, ...]) -> Node:
    """A result as NumPy lays it out, with the axis in front and one example's layout behind it."""
    kind = form[0]
    if kind == "behind":
        return to_front(out, form[1])
    if kind == "at":
        return to_front(out, form[1])
    if kind == "joined" and form[1]:
        _, place, rank = form
        order = [*range(1 + rank, 1 + rank + place), *range(1, 1 + rank), *range(1 + rank + place, out.ndim)]
        return apply("transpose", out, axes=(0, *order))
    return out


def _laid_out(value: Node, form: tuple[Any, ...]) -> Node:
    """The inverse of :func:`_restored`: a value with the axis in front as NumPy wants it for a write."""
    kind = form[0]
    if kind in ("behind", "at"):
        return from_front(value, form[1])
    if kind == "joined" and form[1]:
        _, place, rank = form
        order = [*range(1 + place, 1 + place + rank), *range(1, 1 + place), *range(1 + place + rank, value.ndim)]
        return apply("transpose", value, axes=(0, *order))
    return value


def gather(size: int, batched: Sequence[bool], x: Node, *indices: Node, pattern: Pattern) -> Node:
    moved_indices, moved, form = _located(size, batched[0], indices, batched[1:], pattern)
    return _restored(apply("gather", x, *moved_indices, pattern=moved), form)


def scatter(
    size: int, batched: Sequence[bool], x: Node, value: Node, *indices: Node, pattern: Pattern, mode: str
) -> Node:
    (base,) = everywhere(size, batched[:1], [x])
    moved_indices, moved, form = _located(size, True, indices, batched[2:], pattern)
    target = _example_shape(size, x, batched[0], indices, batched[2:], pattern)
    given = _fitted(size, value, batched[1], target)
    return apply("scatter", base, _laid_out(given, form), *moved_indices, pattern=moved, mode=mode)


def masked_store(size: int, batched: Sequence[bool], x: Node, mask: Node, value: Node) -> Any:
    """A mask that all examples share picks rows of them, when they lie behind what it is a mask of."""
    if batched[1]:
        return NotImplemented
    (base,) = everywhere(size, batched[:1], [x])
    if batched[2]:
        value = from_front(value, value.ndim - 1)
    elif value.ndim:
        value = apply("reshape", value, shape=(*value.shape, 1))
    last = base.ndim - 1
    return to_front(apply("masked_store", from_front(base, last), mask, value), last)


def _example_shape(
    size: int, x: Node, x_batched: bool, indices: Sequence[Node], batched: Sequence[bool], pattern: Pattern
) -> tuple[int, ...]:
    """The shape of what one example reads."""
    from futurex.tree.record import record

    own = [Aval(node.shape[has:], node.dtype) for node, has in zip((x, *indices), (x_batched, *batched), strict=True)]
    aval = record("gather").infer(tuple(own), (None,) * len(own), {"pattern": pattern})
    assert isinstance(aval, Aval)
    return aval.shape


def _fitted(size: int, value: Node, has: bool, target: tuple[int, ...]) -> Node:
    """A value to be written, broadcast to what it is written to, with the axis in front."""
    if not has:
        value = spread(size, value)
    own = value.shape[1:]
    if len(own) > len(target):  # NumPy lets a write drop leading ones
        value = apply("reshape", value, shape=(size, *own[len(own) - len(target) :]))
    return apply("broadcast_to", widened(value, len(target)), shape=(size, *target))


# -- views and writes through them ------------------------------------------------------------------------------------


def _step(step: tuple[Any, ...], size: int, ndim: int) -> list[tuple[Any, ...]]:
    """A step of a view chain for bases with the axis in front; ``ndim`` is the rank of one example before it."""
    kind = step[0]
    if kind == "index":
        return [("index", (WHOLE, *step[1]))]
    if kind == "transpose":
        return [("transpose", (0, *(axis + 1 for axis in step[1])))]
    if kind in ("reshape", "sized"):
        return [(kind, (size, *step[1]))]
    if kind == "broadcast_to":
        extra = (("n",),) * (len(step[1]) - ndim)
        return [("index", (WHOLE, *extra)), ("broadcast_to", (size, *step[1]))]
    if kind == "flip":
        return [("flip", tuple(axis + 1 for axis in step[1]))]
    if kind == "diagonal":
        return [("diagonal", step[1], step[2] % ndim + 1, step[3] % ndim + 1)]
    if kind == "windows":
        return [("windows", step[1] + 1, step[2])]
    return [step]


def _example(x: Node, has: bool) -> Aval:
    return Aval(x.shape[has:], x.dtype)


def _after(base: Aval, step: tuple[Any, ...], dynamic: Sequence[Node]) -> Aval:
    from futurex.tree.record import record

    avals = tuple(Aval((), node.dtype) for node in dynamic)
    aval = record("load").infer((base, *avals), (None,) * (1 + len(dynamic)), {"chain": (step,)})
    assert isinstance(aval, Aval)
    return aval


def _whole_chain(size: int, base: Aval, chain: Any, dynamic: Sequence[Node]) -> tuple[Any, ...]:
    steps: list[tuple[Any, ...]] = []
    for step in chain:
        steps += _step(step, size, base.ndim)
        base = _after(base, step, dynamic)
    return tuple(steps)


def _pattern_of(step: tuple[Any, ...], ndim: int) -> Pattern:
    """An index step as a pattern of advanced indexing, written out over all dimensions."""
    consumed = sum(entry[0] != "n" for entry in step[1])
    return (*step[1], *(WHOLE,) * (ndim - consumed))


def load(size: int, batched: Sequence[bool], base: Node, *dynamic: Node, chain: Any) -> Any:
    if not any(batched[1:]):
        moved = _whole_chain(size, _example(base, True), chain, dynamic)
        return apply("load", base, *dynamic, chain=moved)
    flags, has = list(batched[1:]), batched[0]
    for step in chain:  # one step at a time: those with an index of every example's own are gathered
        own = _used(step)
        example = _example(base, has)
        if any(flags[k] for k in own):
            if _dynamic_slices(step):
                return NotImplemented
            pattern = _pattern_of(_renumbered(step, own), example.ndim)
            base = gather(size, [has, *(flags[k] for k in own)], base, *(dynamic[k] for k in own), pattern=pattern)
            has = True
        else:
            step = _renumbered(step, own)
            steps = _step(step, size, example.ndim) if has else [step]
            base = apply("load", base, *(dynamic[k] for k in own), chain=tuple(steps))
    return base if has else spread(size, base)


def _used(step: tuple[Any, ...]) -> list[int]:
    """The dynamic integers that a step reads."""
    if step[0] != "index":
        return []
    parts = [part for entry in step[1] for part in (entry[1:] if entry[0] == "s" else [entry])]
    return sorted({part[1] for part in parts if isinstance(part, tuple) and part[0] == "d"})


def _renumbered(step: tuple[Any, ...], own: list[int]) -> tuple[Any, ...]:
    """A step on the dynamic integers that it reads alone."""
    if not own:
        return step

    def part(value: Any) -> Any:
        return ("d", own.index(value[1])) if isinstance(value, tuple) and value[0] == "d" else value

    entries = (part(entry) if entry[0] == "d" else (entry[0], *map(part, entry[1:])) for entry in step[1])
    return ("index", tuple(entries))


def _dynamic_slices(step: tuple[Any, ...]) -> bool:
    return any(entry[0] == "s" and any(isinstance(part, tuple) for part in entry[1:]) for entry in step[1])


def store(size: int, batched: Sequence[bool], base: Node, value: Node, *dynamic: Node, chain: Any, mode: str) -> Any:
    example = _example(base, batched[0])
    if any(batched[2:]):
        if len(chain) != 1 or _dynamic_slices(chain[0]):
            return NotImplemented
        pattern = _pattern_of(chain[0], example.ndim)
        return scatter(size, batched, base, value, *dynamic, pattern=pattern, mode=mode)
    target = example
    for step in chain:
        target = _after(target, step, dynamic)
    (whole,) = everywhere(size, batched[:1], [base])
    if batched[1]:
        own = value.shape[1:]
        if len(own) > target.ndim:  # NumPy lets a write drop leading ones
            value = apply("reshape", value, shape=(size, *own[len(own) - target.ndim :]))
        value = widened(value, target.ndim)
    moved = _whole_chain(size, example, chain, dynamic)
    return apply("store", whole, value, *dynamic, chain=moved, mode=mode)


# -- Python's own -----------------------------------------------------------------------------------------------------

_KINDS = {"b": bool, "i": np.int64, "u": np.int64, "f": float, "c": complex}


def python_scalar(size: int, batched: Sequence[bool], x: Node, kind: str) -> Any:
    if kind in "iu" and (x.dtype.kind not in "biu" or x.dtype == np.uint64):
        return NotImplemented  # Python refuses what NumPy casts to something, and its ints grow where casts wrap
    return apply("cast", x, dtype=np.dtype(_KINDS[kind]))


