"""Compiled ``convolve``: the weights slide over neighbouring results at once, which lie in vectors.

NumPy adds up to eleven products in their order, and so does this, to the bit. Of more, and at the ends, it takes an
inner product for each result, by BLAS, which at the ends adds up singles as doubles; here a result of many weights is a
sum in order whose products are not rounded. Last bits of these may differ.
"""

from __future__ import annotations

import functools

from futurex.kernels.numba_ import compiler
from futurex.kernels.numba_.channels import Written
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.threads import may_share
from futurex.tree.aval import Aval
from futurex.tree.node import Node

IN_ORDER = 11
"""Weights whose products NumPy adds up one after the other."""
LEAST, MOST_WEIGHTS = 64 * 1024, 2048
"""Products in all from which there is a kernel, and weights: what is rounded grows with the sums."""
_RESULT, _WITHIN, _AT_ENDS, _CALL = 8.0, 0.0075, 0.019, 16_000.0
"""Nanoseconds that it saves for each result and each byte of a product within, loses for each byte of one at the ends,
where NumPy's inner products are of the very elements that there are, and that a call has to save."""
PARALLEL = 512 * 1024
"""Products below which one thread is done before a second has started."""
_WORDS = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "u4": "i32", "u8": "i64"}
_ABREAST = 8
"""Vectors of results side by side, so that sums do not wait for each other."""


def slides(node: Node) -> bool:
    """Is it a convolution that this kernel computes?"""
    out, avals = node.aval, [each.aval for each in node.inputs]
    if not isinstance(out, Aval) or not node.is_static or any(each.weak or each.dtype != out.dtype for each in avals):
        return False
    if out.dtype.str[1:] not in _WORDS or not out.dtype.isnative:
        return False
    weights, count = sorted(each.size for each in avals)
    if weights > MOST_WEIGHTS or weights * count < LEAST:
        return False
    return weights <= IN_ORDER or _pays(count, weights, _left(node, weights), out)


def _left(node: Node, weights: int) -> int:
    """How many results come before the first for which there is an element for each weight."""
    return {"full": weights - 1, "same": weights // 2, "valid": 0}[node.attrs["mode"]]


def _pays(count: int, weights: int, left: int, out: Aval) -> bool:
    """Does the kernel take less time than NumPy, which begins an inner product for each result?"""
    within = (count - weights + 1) * weights
    ends = left * (2 * weights - left)
    saved = _RESULT * out.size + out.dtype.itemsize * (_WITHIN * within - _AT_ENDS * ends)
    return saved >= _CALL


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a ``convolve``; None for a small one, or one of other numbers."""
    if not slides(node):
        return None
    a, v = (each.aval for each in node.inputs)
    swapped = v.size > a.size
    count, weights = max(a.size, v.size), min(a.size, v.size)
    left = _left(node, weights)
    fused = weights > IN_ORDER and compiler.has_fma() and node.dtype.kind == "f"
    lanes = 64 // node.dtype.itemsize
    tile = lanes * _ABREAST
    geometry = (-(-node.size // tile), node.size, count, weights, left)
    threads = threads if may_share() and a.size * v.size >= PARALLEL else 1
    return Written(node, threads, _text(_WORDS[node.dtype.str[1:]], lanes, fused, swapped, may_share()), geometry)


class _Sliding:
    """Writes the body: a task is a tile of results."""

    def __init__(self, word: str, lanes: int, fused: bool) -> None:
        self.code = Code()
        self.word, self.lanes, self.fused = word, lanes, fused
        self.kind, self.truth, self.places = (f"<{lanes} x {each}>" for each in (word, "i1", "i64"))
        self.size, self.mark = 64 // lanes, "f" if word in ("float", "double") else ""
        self.name = f"v{lanes}{self.mark or 'i'}{8 * self.size}"

    def write(self) -> Code:
        """All tiles of a thread."""
        code, tile = self.code, self.lanes * _ABREAST
        with code.loop("%low", "%high") as (task, _):
            target = code.multiply(task, str(tile))
            source = code.do(f"sub i64 {target}, %left")
            begun = code.do(f"icmp sge i64 {source}, 0")
            read = code.do(f"icmp sle i64 {code.add(source, str(tile - 1), '%weights')}, %count")
            written = code.do(f"icmp sle i64 {code.add(target, str(tile))}, %length")
            inside = code.do(f"and i1 {code.do(f'and i1 {begun}, {read}')}, {written}")
            whole = code.do(f"zext i1 {inside} to i64")
            with code.loop("0", whole):
                self._whole(target, source)
            with code.loop(whole, "1"), code.loop("0", str(tile), str(self.lanes)) as (first, _):
                self._part(code.add(target, first), code.add(source, first))
        return code

    def _whole(self, target: str, source: str) -> None:
        """Results of which all that they are made of lies in the array."""
        code, begun = self.code, [(self.kind, "zeroinitializer")] * _ABREAST
        with code.loop("0", "%weights", carried=begun) as (number, sums):
            weight, first = self._weight(number), code.add(source, number)
            for k in range(_ABREAST):
                place = code.at(self.word, "%x", code.add(first, str(k * self.lanes)))
                value = code.do(f"load {self.kind}, ptr {place}, align {self.size}")
                sums[k] = self._added(value, weight, sums[k])
        for k, total in enumerate(sums):
            place = code.at(self.word, "%out", code.add(target, str(k * self.lanes)))
            code.run(f"store {self.kind} {total}, ptr {place}, align {self.size}")

    def _part(self, target: str, source: str) -> None:
        """A vector of results at the ends: there are only those products whose number lies in the array."""
        code, steps = self.code, ", ".join(f"i64 {lane}" for lane in range(self.lanes))
        with code.loop("0", "%weights", carried=[(self.kind, "zeroinitializer")]) as (number, sums):
            first = code.add(source, number)
            mask = self._below(first, "%count", steps)
            value = code.do(
                f"call {self.kind} @llvm.masked.load.{self.name}.p0(ptr {code.at(self.word, '%x', first)}, "
                f"i32 {self.size}, {self.truth} {mask}, {self.kind} zeroinitializer)"
            )
            total = self._added(value, self._weight(number), sums[0])
            sums[0] = code.do(f"select {self.truth} {mask}, {self.kind} {total}, {self.kind} {sums[0]}")
        mask = self._below(target, "%length", steps)
        code.run(
            f"call void @llvm.masked.store.{self.name}.p0({self.kind} {sums[0]}, "
            f"ptr {code.at(self.word, '%out', target)}, i32 {self.size}, {self.truth} {mask})"
        )

    def _below(self, first: str, extent: str, steps: str) -> str:
        """Which of neighbours from ``first`` on are no less than zero, and below ``extent``."""
        code = self.code
        places = code.do(f"add {self.places} {code.spread(self.places, first)}, <{steps}>")
        return code.do(f"icmp ult {self.places} {places}, {code.spread(self.places, extent)}")

    def _weight(self, number: str) -> str:
        """The weight of this number, counted from the end, in every lane."""
        code = self.code
        place = code.do(f"sub i64 {code.do('sub i64 %weights, 1')}, {number}")
        value = code.do(f"load {self.word}, ptr {code.at(self.word, '%v', place)}, align {self.size}")
        return code.spread(self.kind, value)

    def _added(self, value: str, weight: str, total: str) -> str:
        if self.fused:
            kind = self.kind
            return self.code.do(f"call {kind} @llvm.fma.{self.name}({kind} {value}, {kind} {weight}, {kind} {total})")
        product = self.code.do(f"{self.mark}mul {self.kind} {value}, {weight}")
        return self.code.do(f"{self.mark}add {self.kind} {total}, {product}")

    @property
    def declared(self) -> list[str]:
        """What the text declares."""
        kind, name = self.kind, self.name
        lines = [
            f"declare {kind} @llvm.masked.load.{name}.p0(ptr, i32, {self.truth}, {kind})",
            f"declare void @llvm.masked.store.{name}.p0({kind}, ptr, i32, {self.truth})",
        ]
        return [*lines, f"declare {kind} @llvm.fma.{name}({kind}, {kind}, {kind})"] if self.fused else lines


@functools.cache
def _text(word: str, lanes: int, fused: bool, swapped: bool, threaded: bool) -> str:
    """``swapped``: the weights are the first operand."""
    body = _Sliding(word, lanes, fused)
    names = [("i64", name) for name in ("tiles", "length", "count", "weights", "left")]
    names += [("ptr", name) for name in ("out", *(("v", "x") if swapped else ("x", "v")))]
    return module(names, body.write(), threaded, body.declared)
