"""Generated inner loops, with the signature that NumPy's own have; equal ones are one function of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops.arrays import Strides
from futurex.kernels.loops.function import FAIL, Function
from futurex.kernels.loops.records import Kernel
from futurex.kernels.loops.values import Scalar
from futurex.kernels.numba_.scalar import register_type as register_type

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
_BOOL = np.dtype(bool)


@dataclass
class Kernels:
    """The generated inner loops of one module, by their text."""

    names: dict[str, str]
    intrinsics: set[str]
    others: dict[str, str] = field(default_factory=dict)
    flag: str | None = None  # of the loop being built: where it is remembered that some element was out of bounds

    @contextmanager
    def building(self, e: Emitter, count: int) -> Iterator[Draft]:
        """Collect the body of a loop of ``count`` operands instead of the code itself."""
        draft = Draft(Function(), [f"%a{k}" for k in range(count)])
        outer, e.function, self.flag = e.function, draft.function, None
        f = draft.function
        try:
            yield draft
            if self.flag is not None:
                f.fail_if(f.load(_BOOL, self.flag))
        finally:
            e.function = outer
        parameters = ", ".join(["i64 %n", *(f"ptr noalias %a{k}" for k in range(count)), "ptr %block"])
        body = "\n".join([
            "entry:", *f.variables, "br label %start", "start:", *f.lines, "ret void",
            f"{FAIL}:", "store i64 1, ptr %block, align 8", "ret void", "}",
        ])  # fmt: skip
        key = f"({parameters}) {{\n{body}"
        name = self.names.setdefault(key, f"kernel{len(self.names)}")
        self.intrinsics |= f.intrinsics
        draft.kernel = Kernel(name, any(f"label %{FAIL}" in line for line in f.lines))
        draft.count = count

    def own(self, base: str, parameters: str, f: Function, bits: int = 0) -> str:
        """The name of a function that is none over elements; ``bits`` of the vectors that it wants to keep whole."""
        body = "\n".join(["entry:", *f.variables, "br label %start", "start:", *f.lines, "ret void", "}"])
        wide = f' "min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}"' if bits else ""
        key = f"{parameters} noinline{wide} {{\n{body}"
        name = self.others.setdefault(key, f"{base}{len(self.others)}")
        self.intrinsics |= f.intrinsics
        return name

    def remember(self, f: Function, condition: str) -> None:
        """Let the loop that is being built fail in the end if the condition holds for some element."""
        if self.flag is None:
            self.flag = f.variable("i8")
            f.variables.append(f"store i8 0, ptr {self.flag}, align 1")
        f.store(_BOOL, f.emit(f"or i1 {f.load(_BOOL, self.flag)}, {condition}"), self.flag)

    def text(self) -> list[str]:
        """All functions, each with an entry that takes a record's arguments apart."""
        lines = [f"define internal void @{name}{key}" for key, name in self.others.items()]
        for key, name in self.names.items():
            count = key[: key.index("\n")].count("ptr noalias")
            lines.append(f"define internal void @{name}.body{_attributed(key)}")
            lines.append(f"define internal void @{name}(ptr %args, ptr %dims, ptr %steps, ptr %block) {{")
            lines.append("%n = load i64, ptr %dims, align 8")
            for k in range(count):
                lines.append(f"%p{k} = getelementptr ptr, ptr %args, i64 {k}")
                lines.append(f"%a{k} = load ptr, ptr %p{k}, align 8")
            arguments = ", ".join(["i64 %n", *(f"ptr %a{k}" for k in range(count)), "ptr %block"])
            lines += [f"call void @{name}.body({arguments})", "ret void", "}"]
        return lines


def _attributed(key: str) -> str:
    head, body = key.split(" {\n", 1)
    return f"{head} alwaysinline {{\n{body}"


class Draft:
    """A loop in the making: its function and the pointers of its operands."""

    def __init__(self, function: Function, pointers: list[str]) -> None:
        self.function = function
        self.pointers = pointers
        self.kernel = Kernel("", False)
        self.count = 0

    def at(self, k: int, index: str, step: int) -> str:
        """The address of an element of operand ``k``."""
        return self.at_all(k, [index], [step])

    def at_all(self, k: int, indices: Sequence[str], steps: Sequence[int]) -> str:
        """The address of an element of operand ``k`` in nested loops."""
        place = self.pointers[k]
        for index, step in zip(indices, steps, strict=True):
            if step:
                offset = self.function.emit(f"mul nsw i64 {index}, {step}")
                place = self.function.emit(f"getelementptr inbounds i8, ptr {place}, i64 {offset}")
        return place

    @contextmanager
    def nest(self, inside: Sequence[int], columns: Sequence[Strides]) -> Iterator[list[str]]:
        """``for i in range(n)``, and loops of known lengths in it; gives the indices. ``columns``: the steps in each.

        LLVM's vectoriser may end the process where a loop of known length goes backwards over memory (20 or 31 floats:
        its two estimates of the costs disagree, which it asserts). It is not told how long such a loop is.
        """
        with ExitStack() as stack:
            extents: list[int | str] = ["%n", *inside]
            if inside and any(step < 0 for step in columns[-1]):
                extents[-1] = self.function.emit(f'call i64 asm "", "=r,0"(i64 {inside[-1]})')
            yield [stack.enter_context(self.function.counted(extent)) for extent in extents]


def elementwise(
    e: Emitter,
    ins: Sequence[tuple[Dtype, bool]],
    outs: Sequence[Dtype],
    inside: Sequence[int],
    columns: Sequence[Strides],
    compute: Callable[[list[Scalar]], Sequence[str]],
    in_place: Mapping[int, int],
) -> Kernel:
    """``outs[i] = compute(ins[i])``; each input is a dtype and whether it is a Python number, which does not move.
    ``columns``: the steps of the operands in the loop over ``i``, and in each of those ``inside`` it. ``in_place``: the
    inputs that are what an output overwrites, by its number; all pointers show memory of their own."""
    with e.kernels.building(e, len(ins) + len(outs)) as draft:
        f = draft.function
        steps = [[column[k] for column in columns] for k in range(len(ins) + len(outs))]
        still = {
            k: Scalar(f.load(dtype, draft.pointers[k]), dtype, weak)
            for k, (dtype, weak) in enumerate(ins) if not any(steps[k])
        }  # fmt: skip
        shown = [len(ins) + in_place[k] if k in in_place else k for k in range(len(ins))]
        with draft.nest(inside, columns) as indices:
            operands = [
                still[k] if k in still else Scalar(f.load(dtype, draft.at_all(place, indices, steps[k])), dtype, weak)
                for k, (place, (dtype, weak)) in enumerate(zip(shown, ins, strict=True))
            ]
            for k, (dtype, found) in enumerate(zip(outs, compute(operands), strict=True), len(ins)):
                f.store(dtype, found, draft.at_all(k, indices, steps[k]))
    return draft.kernel


def accumulating(
    e: Emitter, dtype: Dtype, inside: Sequence[int], columns: Sequence[Strides],
    compute: Callable[[list[Scalar]], str],
) -> Kernel:  # fmt: skip
    """``total[i] = compute(total[i], x[i])``, where ``i`` stands for several elements in turn."""
    with e.kernels.building(e, 2) as draft:
        f = draft.function
        with draft.nest(inside, columns) as indices:
            total, x = (draft.at_all(k, indices, [column[k] for column in columns]) for k in range(2))
            found = compute([Scalar(f.load(dtype, place), dtype, False) for place in (total, x)])
            f.store(dtype, found, total)
    return draft.kernel


def of_rows(
    e: Emitter, dtype: Dtype, inside: Sequence[int], columns: Sequence[Strides], row: tuple[int, int],
    compute: Callable[[Scalar, list[Scalar]], str],
) -> Kernel:  # fmt: skip
    """``total[i] = compute(total[i], x[i])`` where ``x[i]`` is a row: so many elements, so many bytes apart."""
    count, step = row
    with e.kernels.building(e, 2) as draft:
        f = draft.function
        with draft.nest(inside, columns) as indices:
            total, x = (draft.at_all(k, indices, [column[k] for column in columns]) for k in range(2))
            places = [f.emit(f"getelementptr inbounds i8, ptr {x}, i64 {k * step}") for k in range(count)]
            held, *elements = (Scalar(f.load(dtype, place), dtype, False) for place in (total, *places))
            f.store(dtype, compute(held, elements), total)
    return draft.kernel
