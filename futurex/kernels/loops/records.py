"""Calls of inner loops by records: function, counts, steps and addresses stand in the block, one call runs them.

An inner loop has NumPy's signature ``(args, dimensions, steps, data)``: it is one of NumPy's own, or generated. Loops
over further dimensions are part of the record. What is known when the code is made stands there already; the generated
code fills in what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from futurex.kernels.loops.arrays import Array, Extent, Size, Strides, merged
from futurex.kernels.loops.ufuncs import InnerLoop

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_HEADER = 7  # function, data, outer dimensions, operands, and where dimensions, steps and arguments stand
_SHORT_ROW = 64  # elements for which a call of a loop takes longer than the loop
_FEW = 4  # rounds of further loops inside: LLVM writes all of them out, and takes as long


@dataclass(frozen=True)
class Kernel:
    """A generated inner loop; ``fails``: it may set the status."""

    name: str
    fails: bool


def run(
    e: Emitter,
    callee: InnerLoop | Kernel,
    operands: Sequence[Array],
    shape: Sequence[Size],
    strides: Sequence[Strides],
) -> None:
    """Run an inner loop along the last dimension of ``shape`` that is left when dimensions are merged."""
    extents, columns = merged(tuple(shape), strides)
    count: Size = extents.pop() if extents else 1
    inner = columns.pop() if columns else (0,) * len(operands)
    emit(e, callee, operands, [count], inner, extents, columns)


def run_nested(
    e: Emitter,
    write: Callable[[Sequence[int], Sequence[Strides]], Kernel],
    operands: Sequence[Array],
    shape: Sequence[Size],
    strides: Sequence[Strides],
) -> None:
    """Run a loop that ``write`` generates for the lengths of the short loops inside it, and the steps in all of them:
    a call of an inner loop takes as long as some fifty elements."""
    extents, columns = merged(tuple(shape), strides)
    inside: list[int] = []
    while len(extents) > 1 and isinstance(row := extents[-1], int) and row <= (_SHORT_ROW if not inside else _FEW):
        inside.insert(0, row)
        extents.pop()
        if row > _FEW:
            break
    count: Size = extents.pop() if extents else 1
    outer = len(extents)
    own = columns[outer:] or [(0,) * len(operands)]
    emit(e, write(inside, own), operands, [count], own[0], extents, columns[:outer])


def in_short_rows(shape: Sequence[Size], strides: Sequence[Strides]) -> bool:
    """Are there several rows of so few elements that a call for each of them takes longer than they do?"""
    extents, _ = merged(tuple(shape), strides)
    return len(extents) > 1 and isinstance(extents[-1], int) and extents[-1] <= _SHORT_ROW


def run_core(
    e: Emitter, callee: InnerLoop, operands: Sequence[Array], shape: Sequence[Size], strides: Sequence[Strides],
    core: Sequence[Size], steps: Sequence[int], *, along: bool = False,
) -> None:  # fmt: skip
    """Run a loop over matrices: ``shape`` and ``strides`` are those of the stack, ``core`` and ``steps`` the rest.

    One matrix at a time: the loops of ``matmul`` and LAPACK leave their arguments moved behind the stack. ``along``: a
    loop that goes along the stack itself and leaves its arguments alone; it prepares once.
    """
    extents, columns = merged(tuple(shape), strides)
    count: Size = extents.pop() if along and extents else 1
    inner = columns.pop() if along and columns else (0,) * len(operands)
    emit(e, callee, operands, [count, *core], [*inner, *steps], extents, columns)


def emit(
    e: Emitter,
    callee: InnerLoop | Kernel,
    operands: Sequence[Array],
    dims: Sequence[Size],
    steps: Sequence[int],
    outer: Sequence[Size],
    columns: Sequence[Strides],
) -> None:
    """One record and its call."""
    memory, f = e.memory, e.function
    k, m = len(outer), len(operands)
    at_outer = _HEADER
    at_columns = at_outer + k
    at_dims = at_columns + k * m
    at_steps = at_dims + len(dims)
    at_args = at_steps + len(steps)
    start = memory.word(at_args + m)
    fixed = memory.fixed
    if isinstance(callee, Kernel):
        memory.enter(start, f"ptr @{callee.name}")
        memory.in_block.append(start + 1)
    else:
        fixed[start], fixed[start + 1] = callee.address, callee.data
    for word, value in enumerate((k, m, at_dims, at_steps, at_args), start + 2):
        fixed[word] = value
    for word, size in [*enumerate(outer, start + at_outer), *enumerate(dims, start + at_dims)]:
        if isinstance(size, Extent):
            f.do(f"store i64 {size.register}, ptr {_word(e, word)}, align 8")
        else:
            fixed[word] = size
    flat = [stride for column in columns for stride in column]
    for word, step in [*enumerate(flat, start + at_columns), *enumerate(steps, start + at_steps)]:
        fixed[word] = step
    for word, array in enumerate(operands, start + at_args):
        if not memory.point(word, array):
            f.do(f"store ptr {array.pointer(f)}, ptr {_word(e, word)}, align 8")
    f.do(f"call void @apply(ptr {_word(e, start)})")
    if isinstance(callee, Kernel) and callee.fails:
        f.fail_if(f.emit(f"icmp ne i64 {f.emit('load i64, ptr %block, align 8')}, 0"))


def _word(e: Emitter, word: int) -> str:
    return e.function.emit(f"getelementptr i64, ptr %block, i64 {word}")


RUNTIME = f"""
define internal void @apply(ptr %rec) noinline {{
  %k.at = getelementptr i64, ptr %rec, i64 2
  %k = load i64, ptr %k.at, align 8
  %d.at = getelementptr i64, ptr %rec, i64 4
  %d = load i64, ptr %d.at, align 8
  %dims = getelementptr i64, ptr %rec, i64 %d
  %n = load i64, ptr %dims, align 8
  %none = icmp eq i64 %n, 0
  br i1 %none, label %done, label %some
some:
  %flat = icmp eq i64 %k, 0
  br i1 %flat, label %one, label %many
one:
  call void @once(ptr %rec, ptr %dims)
  ret void
many:
  call void @nest(ptr %rec, ptr %dims, i64 0)
  ret void
done:
  ret void
}}
define internal void @once(ptr %rec, ptr %dims) alwaysinline {{
  %f = load ptr, ptr %rec, align 8
  %data.at = getelementptr i64, ptr %rec, i64 1
  %data = load ptr, ptr %data.at, align 8
  %s.at = getelementptr i64, ptr %rec, i64 5
  %s = load i64, ptr %s.at, align 8
  %steps = getelementptr i64, ptr %rec, i64 %s
  %a.at = getelementptr i64, ptr %rec, i64 6
  %a = load i64, ptr %a.at, align 8
  %args = getelementptr i64, ptr %rec, i64 %a
  call void %f(ptr %args, ptr %dims, ptr %steps, ptr %data)
  ret void
}}
define internal void @move(ptr %rec, i64 %level, i64 %by) noinline {{
entry:
  %k.at = getelementptr i64, ptr %rec, i64 2
  %k = load i64, ptr %k.at, align 8
  %m.at = getelementptr i64, ptr %rec, i64 3
  %m = load i64, ptr %m.at, align 8
  %a.at = getelementptr i64, ptr %rec, i64 6
  %a = load i64, ptr %a.at, align 8
  %args = getelementptr i64, ptr %rec, i64 %a
  %row = mul i64 %level, %m
  %skip = add i64 %k, {_HEADER}
  %first = add i64 %row, %skip
  %strides = getelementptr i64, ptr %rec, i64 %first
  br label %head
head:
  %j = phi i64 [ 0, %entry ], [ %j.next, %body ]
  %more = icmp slt i64 %j, %m
  br i1 %more, label %body, label %done
body:
  %stride.at = getelementptr i64, ptr %strides, i64 %j
  %stride = load i64, ptr %stride.at, align 8
  %arg.at = getelementptr i64, ptr %args, i64 %j
  %arg = load i64, ptr %arg.at, align 8
  %step = mul i64 %stride, %by
  %moved = add i64 %arg, %step
  store i64 %moved, ptr %arg.at, align 8
  %j.next = add i64 %j, 1
  br label %head
done:
  ret void
}}
define internal void @nest(ptr %rec, ptr %dims, i64 %level) noinline {{
entry:
  %k.at = getelementptr i64, ptr %rec, i64 2
  %k = load i64, ptr %k.at, align 8
  %n.word = add i64 %level, {_HEADER}
  %n.at = getelementptr i64, ptr %rec, i64 %n.word
  %n = load i64, ptr %n.at, align 8
  %next = add i64 %level, 1
  %last = icmp eq i64 %next, %k
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %step ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  br i1 %last, label %leaf, label %deeper
leaf:
  call void @once(ptr %rec, ptr %dims)
  br label %step
deeper:
  call void @nest(ptr %rec, ptr %dims, i64 %next)
  br label %step
step:
  call void @move(ptr %rec, i64 %level, i64 1)
  %i.next = add i64 %i, 1
  br label %head
done:
  %back = sub i64 0, %n
  call void @move(ptr %rec, i64 %level, i64 %back)
  ret void
}}
"""
"""Runs a record: nothing where the first dimension is empty."""
