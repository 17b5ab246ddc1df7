"""Reading and writing parts of arrays: views, positions given by arrays, masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, elementwise, records, values
from futurex.kernels.loops.arrays import Array, Extent, Shape, Size, Strides, plus, text
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.kernels import Draft
from futurex.kernels.loops.order import Placed, overwrites
from futurex.kernels.loops.records import Kernel
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import inner_loop
from futurex.kernels.loops.values import Scalar, supported
from futurex.kernels.numba_.scalar import operate
from futurex.ops.fusion import operand_kind
from futurex.ops.ufunc_methods import ufunc_named
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
_INT, _BOOL = np.dtype(np.int64), np.dtype(bool)


def _dynamic(e: Emitter, inputs: Sequence[Any]) -> list[str]:
    return [values.converted(e.function, e.scalar(value), _INT) for value in inputs]


def _array(value: Any) -> Array:
    if not isinstance(value, Array):
        raise Unsupported("a view of a number")
    return value


# -- views -----------------------------------------------------------------------------------------------------------


def _is_stepped(array: Any, chain: Sequence[Any]) -> bool:
    """Is it a slice of a row, by a step that the run tells?"""
    if not isinstance(array, Array) or len(array.shape) != 1 or len(chain) != 1 or chain[0][0] != "index":
        return False
    (*others, entry) = chain[0][1]
    parts = all(isinstance(part, int | tuple | None) for part in entry[1:])
    return not others and entry[0] == "s" and parts and isinstance(entry[3], tuple)


def _load_stepped(e: Emitter, node: Node, base: Array, dynamic: Sequence[str]) -> Array:
    f, entry = e.function, node.attrs["chain"][0][1][0]
    start, count, step = arrays.stepped(f, base.shape[0], entry[1:], dynamic)
    made = e.fresh((count,), base.dtype)
    first, target = base.pointer(f), made.pointer(f)
    with f.counted(count.register) as index:
        place = f.emit(f"add i64 {start}, {f.emit(f'mul i64 {index}, {step}')}")
        value = f.load(base.dtype, _at(f, first, place, base.strides[0]))
        f.store(base.dtype, value, _at(f, target, index, base.dtype.itemsize))
    return made


def _store_stepped(e: Emitter, placed: Placed, base: Array, value: Any, dynamic: Sequence[str]) -> Array:
    node, f = placed.node, e.function
    if node.attrs["mode"] == "add" or (isinstance(value, Array) and value.dtype != base.dtype):
        raise Unsupported("a slice by steps that is added to, or written with another dtype")
    start, count, step = arrays.stepped(f, base.shape[0], node.attrs["chain"][0][1][0][1:], dynamic)
    apart = 0
    if isinstance(value, Array):
        (apart,) = arrays.broadcast_strides(f, value, (count,))
        value = e.copied(value) if value.place == base.place else value
        apart = apart and value.strides[-1]
    else:
        number = values.converted(f, e.scalar(value), supported(base.dtype))
    held = e.owned(base, 0 in placed.consumes)
    target, source = held.pointer(f), value.pointer(f) if isinstance(value, Array) else ""
    with f.counted(count.register) as index:
        if source:
            number = f.load(base.dtype, _at(f, source, index, apart))
        place = f.emit(f"add i64 {start}, {f.emit(f'mul i64 {index}, {step}')}")
        f.store(base.dtype, number, _at(f, target, place, held.strides[0]))
    return held


def _at(f: Function, first: str, place: str, apart: int) -> str:
    return f.emit(f"getelementptr i8, ptr {first}, i64 {f.emit(f'mul i64 {place}, {apart}')}")


def load(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    if isinstance(inputs[0], Scalar):  # with new axes, as np.stack gives them to numbers
        return inputs[0] if placed.node.aval.weak else full(e, placed, inputs[:1])
    if _is_stepped(inputs[0], placed.node.attrs["chain"]):
        return _load_stepped(e, placed.node, inputs[0], _dynamic(e, inputs[1:]))
    base = _array(inputs[0])
    region = arrays.viewed(e.function, base, placed.node.attrs["chain"], _dynamic(e, inputs[1:]))
    if not region.shape:
        return e.unboxed(region)
    if 0 in placed.consumes and base.owned and isinstance(region.shape[0], Extent):
        left = Extent(region.shape[0].register, base.capacity[0])
        return replace(base, shape=(left, *base.shape[1:]), offset=region.offset)
    return region if placed.lazy else e.copied(region)


def turn(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    """``transpose``, ``broadcast_to`` and ``flip``."""
    node, source = placed.node, inputs[0]
    if isinstance(source, Scalar):
        return full(e, placed, inputs) if node.shape else source
    attribute = {"transpose": "axes", "broadcast_to": "shape", "flip": "axis"}[node.op]
    region = arrays.viewed(e.function, source, ((node.op, node.attrs[attribute]),), ())
    return region if placed.lazy else e.copied(region)


def reshape(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    node, source = placed.node, inputs[0]
    if isinstance(source, Scalar):
        return full(e, placed, inputs) if node.shape else source
    shape = [extent if type(extent) is int else None for extent in node.shape]
    try:
        region = arrays.reshaped(e.function, source, shape)
    except Unsupported:
        return e.unboxed(arrays.reshaped(e.function, e.copied(source), shape))
    if not region.shape:
        return e.unboxed(region)
    return region.borrowed() if placed.lazy else e.copied(region)


def contiguous(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    source = _array(inputs[0])
    return source.borrowed() if placed.lazy and source.contiguous else e.copied(source)


def store(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    node = placed.node
    base, value = _array(inputs[0]), inputs[1]
    if e.delivery is not None and e.delivery.has(node):
        return base
    if _is_stepped(base, node.attrs["chain"]):
        return _store_stepped(e, placed, base, value, _dynamic(e, inputs[2:]))
    adds = node.attrs["mode"] == "add"
    if adds and value.dtype != base.dtype:
        raise Unsupported("an addition in place of another dtype")
    dynamic = _dynamic(e, inputs[2:])
    target = arrays.viewed(e.function, base, node.attrs["chain"], dynamic)
    if isinstance(value, Array):
        arrays.broadcast_strides(e.function, value, target.shape)  # what does not fit fails before anything is written
        if value.place == base.place:
            value = e.copied(value)
    held = e.owned(base, 0 in placed.consumes)
    if held.place != base.place:  # the same view of the copy
        target = arrays.viewed(e.function, held, node.attrs["chain"], dynamic)
    elementwise.assign(e, target, value, add=adds)
    return held


def full(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    node = placed.node
    value = e.scalar(inputs[0])
    if not node.shape:
        return Scalar(values.converted(e.function, value, supported(node.dtype)), node.dtype, False)
    made = e.fresh(e.shape_of(node), node.dtype)
    elementwise.assign(e, made, value)
    return made


def concatenate(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    node, f = placed.node, e.function
    parts = [_array(value) for value in inputs]
    axis, total = node.attrs["axis"], "0"
    for part in parts:
        total = plus(f, total, text(part.shape[axis]))
    limit = sum(arrays.most(part.shape[axis]) for part in parts)
    (place, *_) = overwrites(node) or [0]
    base = parts[place]
    if total[0] == "%" and not axis and not node.aval.static and base.static_rows:
        room = e.most_rows(base.capacity[1:])
        if limit > room:
            f.fail_if(f.emit(f"icmp ugt i64 {total}, {room}"))
            limit = room
        free = e.delivery is None or e.delivery.whole(node) is None
        roomy = base.capacity[0] == limit == room and e.is_afloat(base)
        if free and roomy and place in placed.consumes and base.owned:
            return (_put_in_front if place else _appended)(e, parts, total)
    whole = list(arrays.broadcast(f, [(*part.shape[:axis], 1, *part.shape[axis + 1 :]) for part in parts]))
    whole[axis] = Extent(total, limit) if total[0] == "%" else int(total)
    out = e.result(tuple(whole), node.dtype, dense=False)
    delivery = e.delivery if e.delivery is not None and e.delivery.whole(node) is out else None
    start = "0"
    for k, part in enumerate(parts):
        extent = part.shape[axis]
        if extent == 0 or (delivery is not None and delivery.has(node, k)):
            start = plus(f, start, text(extent))
            continue
        shape = (*whole[:axis], extent, *whole[axis + 1 :])
        offset = plus(f, out.offset, arrays.times(f, start, str(out.strides[axis])))
        elementwise.assign(e, replace(out, shape=shape, offset=offset, owned=False), part)
        start = plus(f, start, text(extent))
    return out


def _appended(e: Emitter, parts: Sequence[Array], total: str) -> Array:
    """The first part, which nobody else reads and which has room, with the others behind its rows."""
    f, (base, *others) = e.function, parts
    base, start = _with_room(e, base, total), text(base.shape[0])
    for part in others:
        arrays.broadcast(f, [base.shape[1:], part.shape[1:]])
        if part.place == base.place:
            part = e.copied(part)
        offset = plus(f, base.offset, arrays.times(f, start, str(base.strides[0])))
        elementwise.assign(e, replace(base, shape=part.shape, offset=offset, owned=False), part)
        start = plus(f, start, text(part.shape[0]))
    return replace(base, shape=(Extent(total, base.capacity[0]), *base.shape[1:]))


def _put_in_front(e: Emitter, parts: Sequence[Array], total: str) -> Array:
    """The last part, which nobody else reads and which has room, with the first in front of its rows."""
    f, (part, base) = e.function, parts
    arrays.broadcast(f, [base.shape[1:], part.shape[1:]])
    if part.place == base.place:
        part = e.copied(part)
    size = arrays.most(part.shape[0]) * base.strides[0]
    base = _with_room(e, base, total, size)
    offset = plus(f, base.offset, str(-size))
    elementwise.assign(e, replace(base, shape=part.shape, offset=offset, owned=False), part)
    return replace(base, shape=(Extent(total, base.capacity[0]), *base.shape[1:]), offset=offset)


def _with_room(e: Emitter, base: Array, total: str, front: int = 0) -> Array:
    """The array, in the middle of its place where it must have as many rows as that, ``front`` bytes of them in front,
    and they would not lie inside where it is. That is rare if the place is twice as large as what a queue holds."""
    f, row, size = e.function, base.strides[0], base.dtype.itemsize
    if base.offset == "0" and not front:
        return base
    begin = f.variable("i64")
    f.do(f"store i64 {base.offset}, ptr {begin}, align 8")
    move, ready = f.label(), f.label()
    end = plus(f, base.offset, arrays.times(f, total, str(row)))
    outside = f"ult i64 {base.offset}, {front}" if front else f"ugt i64 {end}, {base.capacity[0] * row}"
    f.branch(f.emit(f"icmp {outside}"), move, ready)
    f.place(move)
    left = f.emit(f"lshr i64 {f.emit(f'sub i64 {base.capacity[0]}, {total}')}, 1")
    middle = plus(f, arrays.times(f, left, str(row)), str(front))
    kind, count = f"i{8 * size}", arrays.times(f, text(base.shape[0]), str(row // size))
    source, target = base.pointer(f), replace(base, offset=middle).pointer(f)
    with f.counted(count) as index:
        if front:  # it moves up: the last ones first
            index = f.emit(f"sub i64 {f.emit(f'sub i64 {count}, 1')}, {index}")
        value = f.emit(f"load {kind}, ptr {_at(f, source, index, size)}, align {base.dtype.alignment}")
        f.do(f"store {kind} {value}, ptr {_at(f, target, index, size)}, align {base.dtype.alignment}")
    f.do(f"store i64 {middle}, ptr {begin}, align 8")
    f.jump(ready)
    f.place(ready)
    return replace(base, offset=f.emit(f"load i64, ptr {begin}, align 8"))


def extent_of(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    """``dim``: an extent as a Python int."""
    extent = _array(inputs[0]).shape[placed.node.attrs["axis"]]
    return Scalar(text(extent), _INT, True, extent if isinstance(extent, int) else None)


# -- positions in arrays ---------------------------------------------------------------------------------------------


_JOINED = ("add", "maximum", "minimum")
"""What joins an element that is there and one that comes."""
_COMPARED = frozenset(("f4", "f8", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8))))
_SHORT_ROW = 8
"""Elements of the row that a place stands for up to which they are written out."""


class Positions:
    """Elements of ``base`` at positions that index arrays give, in the shape that NumPy gives them."""

    def __init__(self, e: Emitter, base: Array, indices: Sequence[Any], pattern: Sequence[tuple[Any, ...]]) -> None:
        f = e.function
        chosen: list[Array] = []
        self.limits: list[Size] = []
        self.steps: list[int] = []
        cut: list[tuple[Any, ...]] = []
        kinds: list[str] = []
        axis = 0
        for entry in pattern:
            kinds.append(entry[0])
            if entry[0] == "d":
                chosen.append(self._index(e, indices[entry[1]]))
                self.limits.append(base.shape[axis])
                self.steps.append(base.strides[axis])
                cut.append(("s", None, None, None))
            else:
                cut.append(entry)
            axis += entry[0] != "n"
        scalars = [e.scalar(value) if isinstance(value, Scalar) else None for value in indices]
        dynamic = [values.converted(f, value, _INT) if value is not None else "0" for value in scalars]
        region = arrays.viewed(f, base, (("index", tuple(cut)),), dynamic)
        kept = [k for k in kinds if k != "i"]
        advanced = [k for k, kind in enumerate(kinds) if kind in "di"]
        together = advanced == list(range(advanced[0], advanced[-1] + 1))
        at = sum(kind != "i" for kind in kinds[: advanced[0]]) if together else 0
        rest = [k for k in range(len(region.shape)) if k >= len(kept) or kept[k] != "d"]
        common = arrays.broadcast(f, [each.shape for each in chosen])
        self.shape: Shape = (
            *(region.shape[k] for k in rest[:at]), *common, *(region.shape[k] for k in rest[at:])
        )  # fmt: skip
        own = [region.strides[k] for k in rest]
        none = (0,) * len(common)
        self.base = region
        self.base_strides: Strides = (*own[:at], *none, *own[at:])
        self.chosen = chosen
        self.chosen_strides = [
            ((0,) * at + arrays.broadcast_strides(f, each, common) + (0,) * (len(rest) - at)) for each in chosen
        ]
        self.cells = [e.cell(Scalar(limit.register, _INT, False)) for limit in self.limits if isinstance(limit, Extent)]

    def _index(self, e: Emitter, value: Any) -> Array:
        if isinstance(value, Scalar):
            return e.cell(Scalar(values.converted(e.function, value, _INT), _INT, False))
        return elementwise.operand(e, value, _INT)

    def run(self, e: Emitter, others: Sequence[Array], name: str) -> None:
        """A loop over all positions: ``get`` into, ``set`` or ``add`` from the one other array, or keep extremes."""
        (other,) = others
        operands = [self.base, *self.chosen, *self.cells, other]
        strides = [
            self.base_strides, *self.chosen_strides, *((0,) * len(self.shape) for _ in self.cells),
            arrays.broadcast_strides(e.function, other, self.shape),
        ]  # fmt: skip
        shape, row = self.shape, self._row(strides)
        if row:
            shape, strides = shape[:-1], [own[:-1] for own in strides]
        _, columns = arrays.merged(shape, strides)
        steps = columns[-1] if columns else (0,) * len(operands)
        records.run(e, self._kernel(e, name, other.dtype, steps, row or [(0, 0)]), operands, shape, strides)

    def _row(self, strides: Sequence[Strides]) -> list[tuple[int, int]]:
        """Where the few elements of each place's row lie behind its first one, and where those of the other array do;
        none where a place has one, or many: they are a loop of their own."""
        last = self.shape[-1] if len(self.shape) > 1 else None
        if not isinstance(last, int) or not 1 < last <= _SHORT_ROW or any(own[-1] for own in self.chosen_strides):
            return []
        inner, outer = strides[0][-1], strides[-1][-1]
        return [(k * inner, k * outer) for k in range(last)]

    def _kernel(
        self, e: Emitter, name: str, dtype: Dtype, steps: Strides, row: Sequence[tuple[int, int]]
    ) -> Kernel:
        n = len(self.chosen)
        with e.kernels.building(e, len(steps)) as draft:
            f = draft.function
            cells = iter(range(n + 1, n + 1 + len(self.cells)))
            limits = [
                f.load(_INT, draft.pointers[next(cells)]) if isinstance(limit, Extent) else str(limit)
                for limit in self.limits
            ]
            with f.counted("%n") as i:
                element = _located(f, draft, i, steps, limits, self.steps)
                other = draft.at(len(steps) - 1, i, steps[-1])
                for inner, outer in row:
                    _moved(f, name, dtype, _behind(f, element, inner), _behind(f, other, outer))
        return draft.kernel


def _behind(f: Function, pointer: str, distance: int) -> str:
    return f.emit(f"getelementptr i8, ptr {pointer}, i64 {distance}") if distance else pointer


def _located(
    f: Function, draft: Draft, i: str, steps: Strides, limits: Sequence[str], strides: Sequence[int]
) -> str:
    """The address of the element that the index arrays name; fails where one is out of bounds."""
    place = draft.at(0, i, steps[0])
    for k, (limit, stride) in enumerate(zip(limits, strides, strict=True), 1):
        index = f.load(_INT, draft.at(k, i, steps[k]))
        negative = f.emit(f"icmp slt i64 {index}, 0")
        wrapped = f.select(negative, "i64", f.emit(f"add i64 {index}, {limit}"), index)
        f.fail_if(f.emit(f"icmp uge i64 {wrapped}, {limit}"))
        place = f.emit(f"getelementptr i8, ptr {place}, i64 {f.emit(f'mul i64 {wrapped}, {stride}')}")
    return place


def _moved(f: Function, name: str, dtype: Dtype, element: str, other: str) -> None:
    if name in _JOINED:
        f.store(dtype, operate(f, name, dtype, [f.load(dtype, element), f.load(dtype, other)]), element)
        return
    source, target = (element, other) if name == "get" else (other, element)
    kind = f"i{8 * dtype.itemsize}"
    align = min(dtype.itemsize, 8)
    f.do(f"store {kind} {f.emit(f'load {kind}, ptr {source}, align {align}')}, ptr {target}, align {align}")


def gather(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    base = _array(inputs[0])
    out = _evenly(e, base, placed.node)
    if out is None:
        places = Positions(e, base, inputs[1:], placed.node.attrs["pattern"])
        out = e.fresh(places.shape, base.dtype)
        places.run(e, [out], "get")
    return e.unboxed(out)


def _evenly(e: Emitter, base: Array, node: Node) -> Array | None:
    """Rows at known positions that lie evenly apart (frames of a signal, every third row) are a view, copied."""
    if node.attrs["pattern"] != (("d", 0),) or node.inputs[1].op != "const" or not isinstance(base.shape[0], int):
        return None
    index, limit = np.asarray(node.inputs[1].value), base.shape[0]
    if index.dtype.kind != "i" or not index.size or not index.ndim:
        return None
    index = np.where(index < 0, index + limit, index)
    first = int(index.flat[0])
    steps = [int(np.take(index, 1, axis=k).flat[0]) - first if n > 1 else 0 for k, n in enumerate(index.shape)]
    places: Any = np.indices(index.shape, sparse=True)
    even = first + sum(step * place for step, place in zip(steps, places, strict=True))
    if index.min() < 0 or index.max() >= limit or not (index == even).all():
        return None
    stride = base.strides[0]
    view = replace(
        base, shape=(*index.shape, *base.shape[1:]), strides=(*(step * stride for step in steps), *base.strides[1:]),
        offset=plus(e.function, base.offset, str(first * stride)), owned=False,
    )  # fmt: skip
    return e.copied(view)


def scatter(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    """``scatter``, and ``ufunc_at`` of extremes."""
    node, base, value = placed.node, _array(inputs[0]), inputs[1]
    mode = node.attrs["mode"] if node.op == "scatter" else node.attrs["ufunc"]
    if mode not in ("set", *_JOINED) or (node.op == "ufunc_at" and base.dtype.str[1:] not in _COMPARED):
        raise Unsupported(f"{mode} at places")
    if mode != "set":
        if value.dtype != base.dtype or getattr(value, "weak", False):
            raise Unsupported("an operand of another dtype")
        supported(base.dtype)
    value = elementwise.operand(e, value, base.dtype)
    if value.place == base.place:
        value = e.copied(value)
    fits = Positions(e, base, inputs[2:], node.attrs["pattern"])
    arrays.broadcast_strides(e.function, value, fits.shape)
    held = e.owned(base, 0 in placed.consumes)
    Positions(e, held, inputs[2:], node.attrs["pattern"]).run(e, [value], mode)
    return held


# -- masks -----------------------------------------------------------------------------------------------------------


def nonzero(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    """Positions of true elements, by one array for each dimension."""
    mask, extents = _array(inputs[0]), placed.node.attrs["extents"]
    if extents is not None:
        _fits(e, mask.shape, extents)
    if not mask.static and len(mask.shape) > 1:
        raise Unsupported("a mask of unknown shape")
    supported(mask.dtype)
    limit = max(arrays.Array(mask.place, mask.shape, mask.strides, np.dtype(np.int8)).nbytes, 1)
    outs = [e.fresh((limit,), _INT) for _ in mask.shape]
    count = e.fresh((), _INT)
    operands = [mask, *outs, count]
    kernel = _searching(e, mask)
    first = mask.shape[0] if len(mask.shape) == 1 else 1
    elementwise.assign(e, count, values.constant(0, _INT, weak=False))
    records.emit(e, kernel, operands, [first], [0] * len(operands), [], [])
    found = Extent(e.scalar(e.unboxed(count)).register, limit)
    return [replace(out, shape=(found,)) for out in outs]


def _searching(e: Emitter, mask: Array) -> Kernel:
    ndim = len(mask.shape)
    with e.kernels.building(e, ndim + 2) as draft:
        f = draft.function
        count = f.variable("i64")
        f.do(f"store i64 0, ptr {count}, align 8")

        def along(axis: int, indices: list[str], pointer: str) -> None:
            if axis < ndim:
                with f.counted("%n" if ndim == 1 else text(mask.shape[axis])) as i:
                    offset = f.emit(f"mul nsw i64 {i}, {mask.strides[axis]}")
                    along(axis + 1, [*indices, i], f.emit(f"getelementptr i8, ptr {pointer}, i64 {offset}"))
                return
            truth = f.cast(f.load(mask.dtype, pointer), mask.dtype, _BOOL)
            at = f.emit(f"load i64, ptr {count}, align 8")
            for k, index in enumerate(indices, 1):
                place = f.emit(f"getelementptr i64, ptr {draft.pointers[k]}, i64 {at}")
                f.do(f"store i64 {index}, ptr {place}, align 8")
            more = f.emit(f"add i64 {at}, {f.emit(f'zext i1 {truth} to i64')}")
            f.do(f"store i64 {more}, ptr {count}, align 8")

        along(0, [], draft.pointers[0])
        f.do(f"store i64 {f.emit(f'load i64, ptr {count}, align 8')}, ptr {draft.pointers[ndim + 1]}, align 8")
    return draft.kernel


def _fits(e: Emitter, mask: Shape, base: Sequence[Size]) -> None:
    """A mask has the extents of what it selects from, or NumPy raises."""
    f = e.function
    for one, two in zip(mask, base, strict=True):
        if one != two:
            if not isinstance(one, Extent) and not isinstance(two, Extent):
                raise Unsupported("a mask of another shape")
            f.fail_if(f.emit(f"icmp ne i64 {text(one)}, {text(two)}"))


def masked_store(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    """``x[mask] = value``: one value, or one for each true element."""
    base, mask, value = _array(inputs[0]), _array(inputs[1]), inputs[2]
    if mask.dtype != _BOOL or len(mask.shape) > len(base.shape):
        raise Unsupported("a mask of its own kind")
    _fits(e, mask.shape, base.shape[: len(mask.shape)])
    single = isinstance(value, Scalar) or all(extent == 1 for extent in value.shape)
    if not single and (len(value.shape) != 1 or len(mask.shape) != len(base.shape)):
        raise Unsupported("rows under a mask")
    value = elementwise.operand(e, value, base.dtype)
    if value.place == base.place:
        value = e.copied(value)
    held = e.owned(base, 0 in placed.consumes)
    if single:
        still = replace(value, shape=(), strides=())
        wide = replace(mask, shape=base.shape, strides=(*mask.strides, *(0,) * (len(base.shape) - len(mask.shape))))
        strides = [wide.strides, (0,) * len(base.shape), held.strides]
        _, columns = arrays.merged(base.shape, strides)
        steps = columns[-1] if columns else (0, 0, 0)
        records.run(e, _choosing(e, base.dtype, steps), [wide, still, held], base.shape, strides)
        return held
    if not (mask.contiguous or len(mask.shape) == 1) or not base.contiguous:
        raise Unsupported("a mask of another order")
    count: Size = base.shape[0] if len(base.shape) == 1 else base.nbytes // base.dtype.itemsize
    given = e.cell(Scalar(text(value.shape[0]), _INT, False))
    steps = (mask.strides[-1], value.strides[0], base.dtype.itemsize, 0)
    kernel = _filling(e, base.dtype, steps)
    records.emit(e, kernel, [mask, value, held, given], [count], steps, [], [])
    return held


def masked(e: Emitter, placed: Placed, inputs: Sequence[Any]) -> Any:
    """``ufunc(*operands, out=base, where=mask)``: computed everywhere, taken where the mask is true."""
    node = placed.node
    mask, base, operands = inputs[0], inputs[1], inputs[2:]
    ufunc = ufunc_named(node.attrs["ufunc"])
    if not isinstance(mask, Array) or not isinstance(base, Array) or mask.dtype != _BOOL or ufunc.nout != 1:
        raise Unsupported("a mask of its own kind")
    *ins, out = ufunc.resolve_dtypes((*(operand_kind(source.aval) for source in node.inputs[2:]), None))
    loop = inner_loop(ufunc, tuple(ins), out)
    if loop is None or out != base.dtype or base.dtype != node.dtype:
        raise Unsupported("a result of another dtype")
    made = e.copied(base)
    found = e.fresh(base.shape, out)
    taken = [elementwise.operand(e, value, dtype) for value, dtype in zip(operands, ins, strict=True)]
    strides = [arrays.broadcast_strides(e.function, each, base.shape) for each in (*taken, found)]
    records.run(e, loop, [*taken, found], base.shape, strides)
    strides = [arrays.broadcast_strides(e.function, each, base.shape) for each in (mask, found, made)]
    _, columns = arrays.merged(base.shape, strides)
    steps = columns[-1] if columns else (0, 0, 0)
    records.run(e, _choosing(e, out, steps), [mask, found, made], base.shape, strides)
    return made


def _choosing(e: Emitter, dtype: Dtype, steps: Strides) -> Kernel:
    with e.kernels.building(e, 3) as draft:
        f = draft.function
        kind, align = f"i{8 * dtype.itemsize}", min(dtype.itemsize, 8)
        with f.counted("%n") as i:
            value = f.emit(f"load {kind}, ptr {draft.at(1, i, steps[1])}, align {align}")
            target = draft.at(2, i, steps[2])
            old = f.emit(f"load {kind}, ptr {target}, align {align}")
            chosen = f.select(f.load(_BOOL, draft.at(0, i, steps[0])), kind, value, old)
            f.do(f"store {kind} {chosen}, ptr {target}, align {align}")
    return draft.kernel


def _filling(e: Emitter, dtype: Dtype, steps: Strides) -> Kernel:
    """The next value for each true element, or the only one; fails where their numbers differ."""
    with e.kernels.building(e, 4) as draft:
        f = draft.function
        count = f.variable("i64")
        f.do(f"store i64 0, ptr {count}, align 8")
        given = f.load(_INT, draft.pointers[3])
        only = f.emit(f"icmp eq i64 {given}, 1")
        kind, align = f"i{8 * dtype.itemsize}", min(dtype.itemsize, 8)
        with f.counted("%n") as i:
            yes, no = f.label(), f.label()
            f.branch(f.load(_BOOL, draft.at(0, i, steps[0])), yes, no)
            f.place(yes)
            read = f.emit(f"load i64, ptr {count}, align 8")
            at = f.select(only, "i64", "0", read)
            f.fail_if(f.emit(f"icmp sge i64 {at}, {given}"))
            value = f.emit(f"load {kind}, ptr {draft.at(1, at, steps[1])}, align {align}")
            f.do(f"store {kind} {value}, ptr {draft.at(2, i, steps[2])}, align {align}")
            f.do(f"store i64 {f.emit(f'add i64 {read}, 1')}, ptr {count}, align 8")
            f.jump(no)
            f.place(no)
        differ = f.emit(f"icmp ne i64 {f.emit(f'load i64, ptr {count}, align 8')}, {given}")
        f.fail_if(f.select(only, "i1", "false", differ))
    return draft.kernel
