"""Products of single-precision matrices inside generated code: tiles in registers, the second operand packed.

The scheme is that of Goto and van de Geijn (Anatomy of high-performance matrix multiplication, ACM TOMS 34, 2008),
for a first operand that stays in the cache. A tile of the result stays in vector registers while it runs along the
inner dimension; the second operand lies in panels as wide as a tile, so that each step reads it in order. Where a loop
finds the same matrix there in every round, it is packed once, before the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops.arrays import Array, plus, times
from futurex.kernels.loops.function import Function
from futurex.kernels.numba_.compiler import has_fma, has_scale
from futurex.kernels.numba_.squares import turned

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_FLOAT = np.dtype(np.float32)
LEAST_PRODUCT = 16**3
"""Multiply-adds from which a product is made of tiles; below it is NumPy's, with NumPy's bits."""
_CACHED = 1 << 18
"""Bytes of the first operand up to which it stays in the cache while panels of the second pass by."""
_VECTORS = 2  # in a row of a tile
_UNROLLED = 4  # steps along the inner dimension
_AT_ONCE = 8  # rows that are packed together: they are read along, and leave a kilobyte in each panel


def fits(rows: int, inner: int, columns: int, dtype: np.dtype[Any]) -> bool:
    """Is a product of this size worth tiles?"""
    large = rows * inner * columns > LEAST_PRODUCT and min(inner, columns) >= _UNROLLED
    return dtype == _FLOAT and large and rows > 1 and rows * inner * 4 <= _CACHED and has_fma()


def _tile() -> tuple[int, int]:
    """Rows of a tile, and the elements of a vector: the tile takes 16 of 32 registers, or 12 of 16."""
    return (8, 16) if has_scale() else (6, 8)


def tiled(e: Emitter, x: Array, y: Array) -> Array:
    """``x @ y`` for matrices of known shapes."""
    f = e.function
    (rows, inner), columns = x.capacity, y.capacity[1]
    height, lanes = _tile()
    width = _VECTORS * lanes
    packed = _packed(e, y, width)
    out = e.result((rows, columns), _FLOAT)
    first, panels, target = x.pointer(f), packed.pointer(f), out.pointer(f)

    def row_of_tiles(panel: str, shown: int) -> None:
        source = f.emit(f"getelementptr i8, ptr {panels}, i64 {times(f, panel, str(inner * width * 4))}")
        column = f.emit(f"getelementptr i8, ptr {target}, i64 {times(f, panel, str(width * 4))}")

        def tile(above: str, count: int) -> None:
            name = _function(e, count, shown, inner, x.strides, out.strides[0], lanes)
            at = f.emit(f"getelementptr i8, ptr {first}, i64 {times(f, above, str(x.strides[0]))}")
            to = f.emit(f"getelementptr i8, ptr {column}, i64 {times(f, above, str(out.strides[0]))}")
            f.do(f"call void @{name}(ptr {at}, ptr {source}, ptr {to})")

        _repeated(f, rows, height, tile)

    _repeated(f, columns, width, lambda start, shown: row_of_tiles(_over(f, start, width), shown))
    return out


def _repeated(f: Function, extent: int, step: int, body: Callable[[str, int], None]) -> None:
    """``body(start, count)`` for every ``step`` of an extent, and for the rest."""
    full, rest = divmod(extent, step)
    if full == 1:
        body("0", step)
    elif full:
        with f.counted(full) as index:
            body(f.emit(f"mul nsw nuw i64 {index}, {step}"), step)
    if rest:
        body(str(full * step), rest)


def _over(f: Function, value: str, divisor: int) -> str:
    """A multiple of the divisor, divided."""
    return f.emit(f"udiv exact i64 {value}, {divisor}") if value[0] == "%" else str(int(value) // divisor)


# -- the second operand ----------------------------------------------------------------------------------------------


def _packed(e: Emitter, y: Array, width: int) -> Array:
    """``y`` in panels of so many columns, the last one filled up with zeros."""
    entrance = e.entrance_of(y)
    key = (y.place, y.offset, y.strides, y.shape)
    if entrance is not None and key in entrance.made:
        return entrance.made[key]
    (inner, columns), f = y.capacity, e.function
    panels = -(-columns // width)
    with e.at(entrance):
        made = (e.fresh if entrance is None else e.lasting)((panels, inner, width), _FLOAT)
        source, target = y.pointer(f), made.pointer(f)
        name = _packer(e, inner, columns, y.strides, width)
        f.do(f"call void @{name}(ptr {source}, ptr {target})")
    if entrance is not None:
        entrance.made[key] = made
    return made


def _packer(e: Emitter, inner: int, columns: int, strides: tuple[int, ...], width: int) -> str:
    f = Function()
    full, rest = divmod(columns, width)

    def panel(start: str, shown: int) -> None:
        with f.counted(inner) as k:
            row = plus(f, times(f, start, str(inner * 4)), times(f, k, str(width * 4)))
            below = plus(f, times(f, start, str(strides[1])), times(f, k, str(strides[0])))
            with f.counted(shown) as lane:
                at = f.emit(f"getelementptr i8, ptr %y, i64 {plus(f, below, times(f, lane, str(strides[1])))}")
                to = f.emit(f"getelementptr i8, ptr %p, i64 {plus(f, row, times(f, lane, '4'))}")
                f.store(_FLOAT, f.load(_FLOAT, at), to)
            if shown < width:
                with f.counted(width - shown) as lane:
                    to = f.emit(f"getelementptr i8, ptr %p, i64 {plus(f, row, times(f, lane, '4'))}")
                    to = f.emit(f"getelementptr i8, ptr {to}, i64 {shown * 4}")
                    f.store(_FLOAT, "0.0", to)

    lanes = width // _VECTORS
    if full and strides[1] == 4:
        _pack_rows(f, inner, full, strides[0], lanes)
    elif full and strides[0] == 4 and inner % lanes == 0:
        _pack_turned(f, inner, full, strides[1], lanes)
    elif full:
        with f.counted(full) as index:
            panel(f.emit(f"mul nsw nuw i64 {index}, {width}"), width)
    if rest:
        panel(str(full * width), rest)
    return e.kernels.own("pack", "(ptr noalias %y, ptr noalias %p)", f, lanes * 32)


def _at(f: Function, pointer: str, *terms: tuple[str, int]) -> str:
    """The address behind a pointer, by factors and bytes for each."""
    offset = "0"
    for factor, step in terms:
        offset = plus(f, offset, times(f, factor, str(step)))
    return f.emit(f"getelementptr i8, ptr {pointer}, i64 {offset}")


def _pack_rows(f: Function, inner: int, panels: int, stride: int, lanes: int) -> None:
    """Full panels of a matrix whose rows are dense."""
    kind, width = f"<{lanes} x float>", _VECTORS * lanes

    def rows(low: str, count: int) -> None:
        with f.counted(panels) as panel:
            source = _at(f, "%y", (low, stride), (panel, 4 * width))
            target = _at(f, "%p", (low, 4 * width), (panel, 4 * width * inner))
            for k in range(count):
                for j in range(_VECTORS):
                    at = f.emit(f"getelementptr i8, ptr {source}, i64 {k * stride + j * lanes * 4}")
                    value = f.emit(f"load {kind}, ptr {at}, align 4")
                    to = f.emit(f"getelementptr i8, ptr {target}, i64 {(k * width + j * lanes) * 4}")
                    f.do(f"store {kind} {value}, ptr {to}, align 4")

    _repeated(f, inner, _AT_ONCE, rows)


def _pack_turned(f: Function, inner: int, panels: int, stride: int, lanes: int) -> None:
    """Full panels of a matrix whose columns are dense: squares of registers are turned."""
    kind, width = f"<{lanes} x float>", _VECTORS * lanes
    with f.counted(panels) as panel, f.counted(inner // lanes) as square:
        for j in range(_VECTORS):
            source = _at(f, "%y", (panel, width * stride), (square, lanes * 4))
            target = _at(f, "%p", (panel, 4 * width * inner), (square, 4 * width * lanes))
            columns = []
            for k in range(lanes):
                at = f.emit(f"getelementptr i8, ptr {source}, i64 {(j * lanes + k) * stride}")
                columns.append(f.emit(f"load {kind}, ptr {at}, align 4"))
            for k, value in enumerate(turned(f.emit, columns)):
                to = f.emit(f"getelementptr i8, ptr {target}, i64 {(k * width + j * lanes) * 4}")
                f.do(f"store {kind} {value}, ptr {to}, align 4")


# -- one tile --------------------------------------------------------------------------------------------------------


def _function(
    e: Emitter, rows: int, shown: int, inner: int, x: tuple[int, ...], out: int, lanes: int
) -> str:
    """The name of ``tile(x, panel, out)`` for so many rows, the first ``shown`` columns of a panel, and these strides
    in bytes: of rows and columns of ``x``, and of rows of the result."""
    kind, width, f = f"<{lanes} x float>", _VECTORS * lanes, Function()
    f.declare(f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})")
    sums = [f.variable(kind, lanes * 4) for _ in range(rows * _VECTORS)]
    for each in sums:
        f.do(f"store {kind} zeroinitializer, ptr {each}, align {lanes * 4}")

    def steps(start: str, count: int) -> None:
        row = f.emit(f"getelementptr i8, ptr %p, i64 {times(f, start, str(width * 4))}")
        column = f.emit(f"getelementptr i8, ptr %x, i64 {times(f, start, str(x[1]))}")
        held = [f.emit(f"load {kind}, ptr {each}, align {lanes * 4}") for each in sums]
        for k in range(count):
            panel = []
            for j in range(_VECTORS):
                at = f.emit(f"getelementptr i8, ptr {row}, i64 {(k * width + j * lanes) * 4}")
                panel.append(f.emit(f"load {kind}, ptr {at}, align {lanes * 4}"))
            for i in range(rows):
                at = f.emit(f"getelementptr i8, ptr {column}, i64 {i * x[0] + k * x[1]}")
                one = f.emit(f"insertelement {kind} poison, float {f.load(_FLOAT, at)}, i64 0")
                every = f.emit(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
                for j in range(_VECTORS):
                    place = i * _VECTORS + j
                    operands = f"{kind} {every}, {kind} {panel[j]}, {kind} {held[place]}"
                    held[place] = f.emit(f"call {kind} @llvm.fma.v{lanes}f32({operands})")
        for each, value in zip(sums, held, strict=True):
            f.do(f"store {kind} {value}, ptr {each}, align {lanes * 4}")

    _repeated(f, inner, _UNROLLED, steps)
    for i in range(rows):
        for j in range(_VECTORS):
            found = f.emit(f"load {kind}, ptr {sums[i * _VECTORS + j]}, align {lanes * 4}")
            at = f.emit(f"getelementptr i8, ptr %o, i64 {i * out + j * lanes * 4}")
            left = shown - j * lanes
            if left >= lanes:
                f.do(f"store {kind} {found}, ptr {at}, align 4")
                continue
            for lane in range(max(left, 0)):
                value = f.emit(f"extractelement {kind} {found}, i64 {lane}")
                f.store(_FLOAT, value, f.emit(f"getelementptr i8, ptr {at}, i64 {lane * 4}"))
    return e.kernels.own("tile", "(ptr noalias %x, ptr noalias %p, ptr noalias %o)", f, lanes * 32)
