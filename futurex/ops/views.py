"""``load`` and ``store``: every view and every write, without mutation in the tree.

A *chain* is a tuple of steps from a base array to a view of it:

- ``("index", entries)``: basic indexing. Entries are ``("i", k)`` an integer, ``("d", n)`` the n-th dynamic integer
  input, ``("s", start, stop, step)`` a slice whose parts are ints, None or ``("d", n)``, and ``("n",)`` a new axis;
- ``("bits", dtype)`` and ``("field", dtype, offset)``: the same bytes as another type, which is written as text;
- ``("transpose", axes)``, ``("reshape", shape)``, ``("broadcast_to", shape)``, ``("flip", axes)``,
  ``("diagonal", offset, axis1, axis2)``, ``("real",)``, ``("imag",)``;
- ``("sized", shape)``: nothing but that slices before it, whose parts the run knows, are known to leave this shape;
- ``("windows", axis, size)``: all windows of ``size`` elements along an axis, whose elements are a last axis. Elements
  are in several windows, so nothing is written through such a view;
- ``("strided", start, shape, steps)``: of a dense array of one axis the elements from ``start`` on, so many from one to
  the next along each axis. Plans read arguments that are views so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from futurex.ops import batching
from futurex.ops.elementwise import unbroadcast, zeros_like
from futurex.ops.strides import undone
from futurex.tree.aval import Aval
from futurex.tree.dims import (
    Dim,
    Fresh,
    UnknownDimension,
    broadcast_shapes,
    has_dims,
    is_static,
    reshaped,
    slice_length,
)
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op

Entry = tuple[Any, ...]
Step = tuple[Any, ...]
Chain = tuple[Step, ...]


def index_of(entries: Sequence[Entry], dynamic: Sequence[Any]) -> tuple[Any, ...]:
    """The NumPy index that encoded entries stand for; it ends in an ellipsis so that the result stays a view."""

    def part(value: Any) -> Any:
        return int(dynamic[value[1]]) if isinstance(value, tuple) else value

    index: list[Any] = []
    for entry in entries:
        if entry[0] == "s":
            index.append(slice(*(part(value) for value in entry[1:])))
        elif entry[0] == "n":
            index.append(None)
        else:
            index.append(entry[1] if entry[0] == "i" else part(entry))
    return (*index, ...)


@functools.lru_cache(maxsize=4096)
def known_index(entries: tuple[Entry, ...]) -> tuple[Any, ...] | None:
    """The same where no part of it is left to the run."""
    known = all(entry[0] in "sni" and not any(isinstance(part, tuple) for part in entry[1:]) for entry in entries)
    return index_of(entries, ()) if known else None


def view(base: Any, chain: Chain, dynamic: Sequence[Any]) -> Any:
    """NumPy's view of ``base`` along ``chain`` (shares memory with it)."""
    for step in chain:
        kind = step[0]
        if kind == "index":
            base = base[known_index(step[1]) or index_of(step[1], dynamic)]
        elif kind == "transpose":
            base = np.transpose(base, step[1])
        elif kind == "reshape":
            base = base.reshape(step[1])
        elif kind == "broadcast_to":
            base = np.broadcast_to(base, step[1])
        elif kind == "flip":
            base = np.flip(base, step[1])
        elif kind == "diagonal":
            whole, base = base, base.diagonal(*step[1:])
            base.flags.writeable = whole.flags.writeable
        elif kind in ("real", "imag"):
            base = getattr(base, kind)
        elif kind == "windows":
            base = np.lib.stride_tricks.sliding_window_view(base, step[2], step[1])
        elif kind == "sized":
            sized(base, step[1])
        elif kind == "bits":
            base = _side_by_side(base).view(step[1])
        elif kind == "field":
            base = base.getfield(np.dtype(step[1]), step[2])
        elif kind == "strided":
            base = _strided(base, *step[1:])
        else:
            raise ValueError(f"a view chain has an unknown step {step!r}")
    return base


def read_only(array: np.ndarray | np.generic) -> np.ndarray:
    """A view of all of the array that NumPy lets nobody write through; of one without dimensions runs give a scalar."""
    seen = np.asarray(array).view()
    seen.flags.writeable = False
    return seen


def sized(view: Any, shape: tuple[int, ...]) -> None:
    """Raise RuntimeError if a view has another shape than was known before."""
    if view.shape != shape:
        raise RuntimeError(f"a view of shape {view.shape} was to have the shape {shape}")


def _strided(base: Any, start: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    (size,) = base.strides
    strides = tuple([size * step for step in steps])
    if base.flags.c_contiguous:
        return np.ndarray(shape, base.dtype, base, size * start, strides)
    return as_strided(base[start:], shape, strides, writeable=base.flags.writeable)


def _side_by_side(base: Any) -> Any:
    """The array itself if the elements of its last axis are neighbours (those that are written to always are)."""
    return base if base.strides[-1] == base.dtype.itemsize else np.ascontiguousarray(base)


def _load(base: Any, *dynamic: Any, chain: Chain) -> Any:
    return view(np.asarray(base), chain, dynamic)


def box(shape: Sequence[int], chain: Chain) -> list[tuple[int, int]] | None:
    """For each axis of an array the first element of a view of neighbours, and the one behind the last; None for other
    views.

    >>> box((4, 5, 6), (("index", (("s", 1, 3, None), ("i", 0))),))
    [(1, 3), (0, 1), (0, 6)]
    """
    if len(chain) != 1 or chain[0][0] != "index":
        return None
    bounds: list[tuple[int, int]] = []
    for entry, extent in zip(chain[0][1], shape, strict=False):
        if entry[0] == "i":
            first = entry[1] % max(extent, 1)
            bounds.append((first, first + 1))
        elif entry[0] == "s" and entry[3] in (None, 1) and all(isinstance(each, int | None) for each in entry[1:]):
            first, last, _ = slice(*entry[1:]).indices(extent)
            bounds.append((first, max(first, last)))
        else:
            return None
    return [*bounds, *((0, extent) for extent in shape[len(bounds) :])]


def around(shape: Sequence[int], chain: Chain) -> list[tuple[slice, ...]] | None:
    """The blocks of an array that a view of neighbours leaves out, each element in one of them; None for other views.

    >>> around((4, 5), (("index", (("s", 1, 3, None), ("i", 0))),))
    [(slice(0, 1, None),), (slice(3, 4, None),), (slice(1, 3, None), slice(1, 5, None))]
    """
    bounds = box(shape, chain)
    if bounds is None:
        return None
    blocks: list[tuple[slice, ...]] = []
    inside: list[slice] = []
    for (first, last), extent in zip(bounds, shape, strict=True):
        blocks += [(*inside, part) for part in (slice(0, first), slice(last, extent)) if part.start < part.stop]
        inside.append(slice(first, last))
    return blocks


def keep(out: Any, base: Any, blocks: Sequence[Any] | None) -> None:
    """Copy what a store leaves as it is: these blocks of ``base``, or all of it (None)."""
    for block in (...,) if blocks is None else blocks:
        out[block] = base[block]


def view_aval(base: Aval, dynamic: tuple[Any, ...], chain: Chain) -> Aval:
    """Shape and dtype of a view. Dynamic integers select one element, so any legal stand-in gives the shape."""
    if not base.static or any(map(_is_open, chain)):
        return _openview_aval(base, chain)
    dummy = np.broadcast_to(np.zeros((), base.dtype), base.shape)
    dummy.flags.writeable = False
    result = _readonly_view(dummy, chain, [0] * len(dynamic))
    return Aval(result.shape, result.dtype)


def _is_open(step: Step) -> bool:
    """Does the step make extents that only the run knows?"""
    if step[0] == "index":
        return any(isinstance(part, tuple | Dim) for entry in step[1] if entry[0] == "s" for part in entry[1:])
    return step[0] in ("reshape", "broadcast_to") and has_dims(step[1])


def _openview_aval(base: Aval, chain: Chain) -> Aval:
    """The shape of a view step by step, where some extents are not known."""
    shape, dtype = base.shape, base.dtype
    for number, step in enumerate(chain):
        kind = step[0]
        if kind == "index":
            shape = _indexed(shape, step[1], number)
        elif kind == "transpose":
            shape = tuple(shape[axis] for axis in step[1])
        elif kind in ("reshape", "broadcast_to"):
            shape = reshaped(shape, step[1])
        elif kind == "sized":
            shape = step[1]
        elif kind == "diagonal":
            kept = [extent for axis, extent in enumerate(shape) if axis not in {k % len(shape) for k in step[2:]}]
            shape = (*kept, Fresh(64 * number))
        elif kind in ("real", "imag"):
            dtype = np.zeros((), dtype).real.dtype
        elif kind == "windows":
            shape = (*shape[: step[1]], shape[step[1]] - (step[2] - 1), *shape[step[1] + 1 :], step[2])
        elif kind == "field":
            dtype = np.dtype(step[1])
        elif kind == "bits":
            raise TypeError("bytes of an array of unknown shape cannot be read as another type")
    return Aval(shape, dtype)


def _indexed(shape: tuple[Any, ...], entries: Sequence[Entry], number: int) -> tuple[Any, ...]:
    out: list[Any] = []
    rest = list(shape)
    for entry in entries:
        if entry[0] == "n":
            out.append(1)
            continue
        extent = rest.pop(0)
        if entry[0] != "s":
            continue
        bounds = entry[1:]
        length = None
        if not any(isinstance(part, tuple) for part in bounds):
            known = not any(isinstance(part, Dim | Fresh) for part in (extent, *bounds))
            length = len(range(*slice(*bounds).indices(extent))) if known else slice_length(extent, *bounds)
        out.append(Fresh(64 * number + len(out)) if length is None else length)
    return (*out, *rest)


def _readonly_view(base: Any, chain: Chain, dynamic: Sequence[Any]) -> Any:
    for step in chain:
        if step[0] == "bits":
            target = np.dtype(step[1])
            last = base.shape[-1] * base.dtype.itemsize // target.itemsize
            base = np.broadcast_to(np.zeros((), target), (*base.shape[:-1], last))
        else:
            base = np.diagonal(base, *step[1:]) if step[0] == "diagonal" else view(base, (step,), dynamic)
    return base


def _load_aval(base: Aval, *dynamic: Aval, chain: Chain) -> Aval:
    return view_aval(base, dynamic, chain)


def _load_rule(g: Node, out: Node, base: Node, *dynamic: Node, chain: Chain) -> tuple[Any, ...]:
    return (_collected(g, base.aval, dynamic, chain), *(None for _ in dynamic))


def _collected(g: Node, base: Aval, dynamic: tuple[Node, ...], chain: Chain) -> Node:
    """What each element of the base gets from the elements of the view; broadcast ones get it from several."""
    g, chain = _before_turns(g, base, dynamic, chain)
    if not chain:
        return g
    place = next((k for k, step in enumerate(chain) if step[0] in ("broadcast_to", "windows")), None)
    if place is None:
        into = apply("store", zeros_like(base), _turned(g, chain), *dynamic, chain=chain, mode="add")
        return _turned(into, chain)
    for k in reversed(range(place + 1, len(chain))):
        if chain[k][0] == "reshape":  # a view of strides of zero, and so perhaps none of an array that is whole
            before, after = (view_aval(base, dynamic, chain[:end]) for end in (k, k + 1))
            spread = _collected(g, after, dynamic, chain[k + 1 :])
            return _collected(apply("reshape", spread, shape=before.shape), base, dynamic, chain[:k])
    narrow, wide = (view_aval(base, dynamic, chain[:end]) for end in (place, place + 1))
    spread = _collected(g, wide, dynamic, chain[place + 1 :])
    if chain[place][0] == "windows":
        return _collected(_overlapped(spread, narrow, chain[place]), base, dynamic, chain[:place])
    return _collected(unbroadcast(spread, narrow), base, dynamic, chain[:place])


def _overlapped(spread: Node, narrow: Aval, step: Step) -> Node:
    """The sums over windows of what their elements get: one shifted addition for each place in a window."""
    _, axis, size = step
    before = (("s", None, None, None),) * axis
    total = zeros_like(narrow)
    for k in range(size):
        part = apply("load", spread, chain=(("index", (*(("s", None, None, None),) * narrow.ndim, ("i", k))),))
        there = ("index", (*before, ("s", k, k + spread.shape[axis], None)))
        total = apply("store", total, part, chain=(there,), mode="add")
    return total


def _before_turns(g: Node, base: Aval, dynamic: tuple[Node, ...], chain: Chain) -> tuple[Node, Chain]:
    """``g`` before the last steps of a chain that only give elements other places, and the chain without them."""
    while chain and base.static and chain[-1][0] in ("transpose", "reshape", "flip"):
        kind, how = chain[-1]
        chain = chain[:-1]
        if kind == "reshape":
            shape = view_aval(base, dynamic, chain).shape
            if not is_static(shape):
                return g, (*chain, (kind, how))
            g = apply("reshape", g, shape=shape)
        elif kind == "transpose":
            g = apply("transpose", g, axes=undone(how))
        else:
            g = apply("flip", g, axis=how)
    return g, chain


def _turned(g: Node, chain: Chain) -> Node:
    """Parts of complex numbers pair with those of the conjugate: the cotangent of ``imag`` is ``-1j`` times its own."""
    parts = any(step[0] in ("real", "imag", "bits", "field") for step in chain)
    return apply("conjugate", g) if parts and g.dtype.kind == "c" else g


def _full_slice(entry: Entry) -> bool:
    return entry[0] == "s" and entry[1] in (None, 0) and entry[2] is None and entry[3] in (None, 1)


def _chain_names(base: Aval, chain: Chain) -> tuple[list[str], list[str]]:
    """Factor names of the base and of the view: untouched dimensions pass through, others must be whole."""
    names = [f"d{k}" for k in range(base.ndim)]
    whole: set[str] = set()
    fresh = iter(f"v{k}" for k in range(64))
    for step in chain:
        if step[0] == "index":
            out, position = [], 0
            for entry in step[1]:
                if entry[0] == "n":
                    out.append(f"!{next(fresh)}")
                    continue
                if _full_slice(entry):
                    out.append(names[position])
                else:
                    whole.add(names[position])
                    if entry[0] == "s":
                        out.append(f"!{next(fresh)}")
                position += 1
            names = out + names[position:]
        elif step[0] == "transpose":
            names = [names[axis] for axis in step[1]]
        else:
            whole.update(names)
            names = []
            break
    ins = [f"!{name}" if name in whole else name for name in (f"d{k}" for k in range(base.ndim))]
    return ins, [f"!{name}" if name in whole else name for name in names]


def _load_factors(base: Aval, *dynamic: Aval, chain: Chain) -> str:
    ins, outs = _chain_names(base, chain)
    ndim = view_aval(base, dynamic, chain).ndim
    if len(outs) != ndim:
        ins, outs = [f"!d{k}" for k in range(base.ndim)], [f"!v{k}" for k in range(ndim)]
    return f"{', '.join([' '.join(ins), *('' for _ in dynamic)])} -> {' '.join(outs)}"


def _view_samples(rng: np.random.Generator) -> Iterable[Sample]:
    base = rng.normal(size=(4, 5))
    yield Sample((base,), {"chain": (("index", (("s", 1, 3, None), ("s", None, None, -2))),)})
    yield Sample((base,), {"chain": (("index", (("i", -1),)),)})
    yield Sample((base,), {"chain": (("index", (("s", None, None, None), ("s", 1, None, None))),)})
    yield Sample((base, 2), {"chain": (("index", (("d", 0), ("n",))),)})
    yield Sample((base,), {"chain": (("transpose", (1, 0)), ("index", (("s", None, None, 2),)))})
    yield Sample((base,), {"chain": (("reshape", (2, 10)), ("index", (("i", 1),)))})
    yield Sample((base[:4, :4].copy(),), {"chain": (("diagonal", 1, 0, 1),)})
    yield Sample((base,), {"chain": (("broadcast_to", (3, 4, 5)), ("index", (("s", None, None, None), ("i", 1))))})
    for part in ("real", "imag"):
        yield Sample((base - 1j * base[::-1],), {"chain": ((part,), ("index", (("s", 1, None, 2),)))})
    yield Sample((base + 1j,), {"chain": (("field", "<f8", 8),)})
    yield Sample((base + 1j,), {"chain": (("bits", "<f8"), ("index", (("i", 1),)))})
    yield Sample((base[0],), {"chain": (("broadcast_to", (3, 5)), ("index", (("s", 1, None, None),)))})
    rows = (("index", (("s", ("d", 0), ("d", 1), None), ("i", 2))), ("sized", (2,)))
    yield Sample((base, 1, 3), {"chain": rows})
    row = (("index", (("d", 0), ("s", None, None, 2))), ("broadcast_to", (4, 3)))
    yield Sample((base, 3), {"chain": (*row, ("transpose", (1, 0)), ("broadcast_to", (2, 3, 4)))})
    yield Sample((base[0] + 1j,), {"chain": (("broadcast_to", (3, 5)), ("imag",), ("flip", (0,)))})
    merged = (("broadcast_to", (2, 3)), ("transpose", (1, 0)), ("reshape", (6,)), ("index", (("s", 1, None, 2),)))
    yield Sample((np.array(1.5),), {"chain": merged})
    yield Sample((base,), {"chain": (("windows", 1, 3),)})
    windows = (("windows", 0, 2), ("windows", 1, 3), ("index", (("s", None, None, 2), ("n",))))
    yield Sample((base,), {"chain": (*windows, ("transpose", (3, 0, 1, 2, 4)))})
    yield Sample((base[0] + 1j,), {"chain": (("flip", (0,)), ("windows", 0, 2), ("windows", 0, 2), ("imag",))})


op(
    "load", _load, aval=_load_aval, vjp=_load_rule, factors=_load_factors, view=0, samples=_view_samples,
    batch=batching.load,
    cost=lambda base, *dynamic, chain: Cost(0.0, 0.0),
)  # fmt: skip


def _store(base: Any, value: Any, *dynamic: Any, chain: Chain, mode: str) -> Any:
    out = np.array(base, order="C")
    store_into(out, value, dynamic, chain, mode)
    return out


def store_into(out: Any, value: Any, dynamic: Sequence[Any], chain: Chain, mode: str) -> None:
    """Write ``value`` through the view ``chain`` of ``out``, in place."""
    target = view(out, chain, dynamic)
    if any(step[0] == "reshape" for step in chain) and not np.may_share_memory(target, out) and target.size:
        raise RuntimeError(f"what is written through {chain} would be lost: NumPy copies there")
    if mode == "set":
        target[...] = value
    else:
        target += value


def _store_aval(base: Aval, value: Aval, *dynamic: Aval, chain: Chain, mode: str) -> Aval:
    target = view_aval(base, dynamic, chain)
    try:
        fits = broadcast_shapes(target.shape, value.shape) == target.shape
    except UnknownDimension:
        return Aval(base.shape, base.dtype)  # the run tells
    if not fits and not (target.static and value.static):
        return Aval(base.shape, base.dtype)
    if not fits:
        extra = value.shape[: max(0, value.ndim - target.ndim)]
        own = value.shape[len(extra) :]
        if any(extent != 1 for extent in extra) or broadcast_shapes(target.shape, own) != target.shape:
            raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {target.shape}")
    return Aval(base.shape, base.dtype)


def _store_rule(
    g: Node, out: Node, base: Node, value: Node, *dynamic: Node, chain: Chain, mode: str
) -> tuple[Any, ...]:
    read = _turned(apply("load", _turned(g, chain), *dynamic, chain=chain), chain)
    into_value = unbroadcast(read, value.aval)
    rest = g if mode == "add" else apply("store", g, 0, *dynamic, chain=chain, mode="set")
    return (rest, into_value, *(None for _ in dynamic))


def _store_factors(base: Aval, value: Aval, *dynamic: Aval, chain: Chain, mode: str) -> str:
    ins, view_names = _chain_names(base, chain)
    target = view_aval(base, dynamic, chain)
    if len(view_names) != target.ndim:
        ins, view_names = [f"!d{k}" for k in range(base.ndim)], [f"!v{k}" for k in range(target.ndim)]
    aligned = view_names[target.ndim - min(value.ndim, target.ndim) :]
    extents = value.shape[-len(aligned) or value.ndim :]
    values = [name if extent != 1 else "1" for name, extent in zip(aligned, extents, strict=False)]
    values = ["1"] * (value.ndim - len(values)) + values
    return f"{', '.join([' '.join(ins), ' '.join(values), *('' for _ in dynamic)])} -> {' '.join(ins)}"


def _store_samples(rng: np.random.Generator) -> Iterable[Sample]:
    base = rng.normal(size=(4, 5))
    for mode in ("set", "add"):
        rows = (("index", (("s", 1, 3, None),)),)
        yield Sample((base, rng.normal(size=(2, 5))), {"chain": rows, "mode": mode})
        yield Sample((base, rng.normal(size=(5,))), {"chain": rows, "mode": mode})
        yield Sample((base, 1.5), {"chain": (("index", (("i", 0), ("i", 2))),), "mode": mode})
        yield Sample((base, rng.normal(size=(5,)), 3), {"chain": (("index", (("d", 0),)),), "mode": mode})
        columns = (("index", (("s", None, None, None), ("s", ("d", 0), ("d", 1), 2))), ("sized", (4, 2)))
        yield Sample((base, rng.normal(size=(4, 2)), 1, 4), {"chain": columns, "mode": mode})
        yield Sample((base, rng.normal(size=(4,))), {"chain": (("diagonal", 0, 0, 1),), "mode": mode})
        for part in ("real", "imag"):
            yield Sample((base - 1j * base[::-1], rng.normal(size=5)), {"chain": ((part,),), "mode": mode})
        yield Sample((base[:, :4].copy(), np.ones(2) + 1j), {"chain": (("bits", "<c16"),), "mode": mode}, order=1)


op(
    "store", _store, aval=_store_aval, vjp=_store_rule, factors=_store_factors, inplace=(0,), samples=_store_samples,
    batch=batching.store,
)  # fmt: skip
