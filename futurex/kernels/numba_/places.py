"""What kernels with reductions share: how reductions begin and join, and values made where they are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.numba_.element import computed, helds_of
from futurex.kernels.numba_.scalar import Body, memory_type, operate, register_type
from futurex.kernels.numba_.sweep import Operand, Sweep
from futurex.ops.sweeps import aligned
from futurex.tree.node import Node

Dtype = np.dtype[Any]
_PRODUCTS = ("multiply", "square")
Values = dict[tuple[Node, Dtype], str]


class InCode(Body):
    """The instructions of elements among loops."""

    def __init__(self, code: Code) -> None:
        super().__init__()
        self.code = code

    def emit(self, instruction: str) -> str:
        return self.code.do(instruction)

    def store(self, dtype: Dtype, value: str, pointer: str) -> None:
        super().store(dtype, value, pointer)
        self.flush()

    def flush(self) -> None:
        """Instructions without a result come after those with one."""
        for line in self.lines:
            self.code.run(line)
        self.lines.clear()


def start_of(node: Node) -> Any:
    """Where a reduction begins."""
    if node.op == "prod":
        return node.dtype.type(1)
    if node.op == "all":
        return True
    if node.op in ("max", "free_max", "min"):
        if node.dtype.kind == "b":
            return node.op == "min"
        if node.dtype.kind == "f":
            return np.inf if node.op == "min" else -np.inf
        return np.iinfo(node.dtype).max if node.op == "min" else np.iinfo(node.dtype).min
    return node.dtype.type(0)


def literal(dtype: Dtype, value: Any) -> str:
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind != "f":
        return str(int(value))
    return {np.inf: "0x7FF0000000000000", -np.inf: "0xFFF0000000000000"}.get(float(value), f"{float(value):e}")


_WORDS = {
    "sum": "add", "free_sum": "add", "prod": "multiply", "max": "maximum", "free_max": "maximum", "min": "minimum",
    "any": "logical_or", "all": "logical_and",
}  # fmt: skip


def joined(body: Body, node: Node, total: str, value: str) -> str:
    """One more element of a reduction, as NumPy joins them."""
    if node.op == "free_max" and node.dtype.kind == "f":
        kind = register_type(node.dtype)
        return body.emit(f"select i1 {body.emit(f'fcmp ogt {kind} {value}, {total}')}, {kind} {value}, {kind} {total}")
    if node.op in ("max", "free_max", "min") and node.dtype.kind == "b":
        return operate(body, "logical_and" if node.op == "min" else "logical_or", node.dtype, [total, value])
    return operate(body, _WORDS[node.op], node.dtype, [total, value])


def total_at(body: InCode, node: Node, pointer: str) -> str:
    """What lies there of a reduction, and will with one more element. A floating extreme is frozen, or LLVM stores only
    where it is another one: by masked stores, which are 40 instructions inside AMD's processors before Zen 4."""
    total = body.load(node.dtype, pointer)
    chosen = node.op in ("max", "free_max", "min") and node.dtype.kind == "f"
    return body.emit(f"freeze {register_type(node.dtype)} {total}") if chosen else total


def added(body: Body, node: Node, total: str, terms: tuple[str, ...]) -> str:
    """One more element, as :meth:`Elements.terms` has it."""
    if len(terms) == 1:
        return joined(body, node, total, terms[0])
    kind, name = register_type(node.dtype), f"@llvm.fma.f{8 * node.dtype.itemsize}"
    body.intrinsics.add(f"declare {kind} {name}({', '.join([kind] * 3)})")
    return body.emit(f"call {kind} {name}({', '.join(f'{kind} {each}' for each in (*terms, total))})")


def freely_joined(body: Body, node: Node, total: str, value: str) -> str:
    """The same in any order, in a form that LLVM makes vectors of."""
    if node.op in ("max", "min") and node.dtype.kind == "f":
        kind, bits = register_type(node.dtype), node.dtype.itemsize * 8
        name = "@llvm.maximum" if node.op == "max" else "@llvm.minimum"
        body.intrinsics.add(f"declare {kind} {name}.f{bits}({kind}, {kind})")
        return body.emit(f"call {kind} {name}.f{bits}({kind} {total}, {kind} {value})")
    if node.op == "free_sum" and node.dtype.kind == "f":
        return body.emit(f"fadd reassoc {register_type(node.dtype)} {total}, {value}")
    return joined(body, node, total, value)


def in_order(node: Node) -> bool:
    """Does the order matter to the bits?"""
    return node.op in ("sum", "prod") and node.dtype.kind == "f"


def laid_down(node: Node) -> bool:
    """Is it a function of numbers that lie next to each other in memory, an operand's or those of a buffer?"""
    return in_order(node) or (node.op in ("max", "min") and node.dtype.kind == "f" and node.dtype.itemsize > 2)


def parameters_of(sweep: Sweep, numbers: list[str]) -> list[tuple[str, str]]:
    """The slots of the block."""
    own = [("i64", name) for name in numbers]
    own += [("ptr", f"o{k}") for k in range(len(sweep.graph.outs))]
    own += [("ptr", f"a{k}") for k in range(len(sweep.operands))]
    own += [(memory_type(scalar.dtype), f"s{k}") for k, scalar in enumerate(sweep.scalars)]
    return [*own, ("ptr", "scratch")]


class Elements:
    """Values of one place of a region, made when they are asked for; sub-classes know where operands lie."""

    def __init__(self, sweep: Sweep, code: Code) -> None:
        self.sweep = sweep
        self.code = code
        self.body = InCode(code)
        self.values: Values = {}

    def scalars(self) -> Values:
        found = {}
        for k, scalar in enumerate(self.sweep.scalars):
            found[scalar.node, scalar.dtype] = scalar.read(k, self.body, self.sweep.nodes)
        return found

    def read(self, operand: Operand) -> str:
        """An operand's element here; only a place inside a loop has one."""
        raise ValueError(f"{operand!r} is read where no loop runs over its elements")

    def known(self, node: Node) -> str | None:
        """A value that need not be computed here."""
        return None

    def value(self, node: Node, held: Dtype, user: Node) -> str:
        """The register of ``node`` as ``user`` reads it."""
        if (node, held) in self.values:
            return self.values[node, held]
        if not node.inputs:
            operand = self.sweep.operand[node, aligned(user, node, self.sweep.space)]
            return self.read(operand)
        return self.computed(node)

    def taken(self, node: Node) -> str:
        """What a reduction takes of this element, in its result's dtype."""
        source = node.inputs[0]
        return self.body.cast(self.value(source, source.dtype, node), source.dtype, node.dtype)

    def terms(self, node: Node) -> tuple[str, ...]:
        """The same for a total that is added to. Of a product that goes into a sum in a free order, whose bits are the
        kernel's own, the two factors: it is added in one rounding."""
        source, dtype = node.inputs[0], node.dtype
        if node.op == "free_sum" and dtype.char in "fd" and source.op in _PRODUCTS and has_fma():
            lies = source in self.sweep.kept_values or source in self.sweep.graph.outs
            if not lies and {source.dtype, *helds_of(source)} == {dtype}:
                factors = [self.value(each, dtype, source) for each in source.inputs]
                return factors[0], factors[-1]
        return (self.taken(node),)

    def computed(self, node: Node) -> str:
        key = node, node.dtype
        if key not in self.values:
            found = self.known(node)
            if found is None:
                pairs = zip(node.inputs, helds_of(node), strict=True)
                operands = {(source, held): self.value(source, held, node) for source, held in pairs}
                found = computed(self.body, node, operands)
                self.body.flush()
            self.values[key] = found
        return self.values[key]


def watch(code: Code) -> None:
    """Let the code of one function have a flag, which arguments beyond bounds set."""
    code.lines += ["  %flag = alloca i32, align 4", "  store i32 0, ptr %flag, align 4"]


def report(code: Code) -> None:
    """Any thread whose flag is set sets the caller's, the second word of ``scratch``; none takes it back."""
    seen = code.do("load i32, ptr %flag, align 4")
    wide = code.do(f"zext i32 {seen} to i64")
    pointer = code.at("i64", "%scratch", "1")
    code.do(f"atomicrmw or ptr {pointer}, i64 {wide} monotonic")
