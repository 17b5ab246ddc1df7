"""A row in order, by several threads: each sorts a part with NumPy's code, and parts are merged, two and two.

Each thread merges the same share of a result, and begins where its share does in both parts: the place where so many
elements are before it is found by halves (Odeh, Green, Mwassi, Shmueli, Birk, *Merge Path*, IPDPSW 2012). A share is
four pieces that are merged side by side: what one waits for, the next comparison, the others do not.
"""

from __future__ import annotations

import functools
import itertools
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.contest import Contest
from futurex.kernels.helpers import together
from futurex.kernels.numba_.channels import Written
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.team import Share
from futurex.kernels.recycling import maker
from futurex.kernels.threads import may_share
from futurex.tree.aval import Aval
from futurex.tree.node import Node

LEAST = 1 << 17
"""Elements of a part: NumPy brings fewer in order before a helper is awake."""
_ABREAST = 4
_HALVES = 48
"""Halves that are found in whatever memory holds."""
_WORDS = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "u4": "i32", "u8": "i64"}


def claim(node: Node, threads: int) -> Merged | None:
    """The kernel of a ``sort`` of a long row; None for others. Numbers that are equal look alike but for zeros of
    either sign, which NumPy's own order does not tell apart where it is to be stable."""
    if not isinstance(node.aval, Aval) or not node.is_static or node.ndim != 1 or not node.dtype.isnative:
        return None
    word, kind = _WORDS.get(node.dtype.str[1:]), node.attrs["kind"]
    if word is None or (kind not in (None, "quicksort") and node.dtype.kind == "f") or node.aval.weak:
        return None
    parts = 1 << min(threads, node.size // LEAST).bit_length() - 1 if may_share() and node.size >= LEAST else 1
    return Merged(node, parts, _text(word, node.dtype.itemsize, node.dtype.kind == "u")) if parts > 1 else None


_numbers = struct.Struct("=qqqqq").pack


class Merged(Written):
    """The kernel of one node, with so many ``threads``, a power of two, each of which sorts a part."""

    bind = None
    inplace = (0,)
    exclusive = True

    def __init__(self, node: Node, threads: int, text: str) -> None:
        super().__init__(node, threads, text, ())
        self.share, self.contest = Share(threads, threads), Contest(1)
        self.bounds = [node.size * k // threads for k in range(threads + 1)]
        self.own = node.aval.nbytes

    def __call__(self, out: Any, x: Any) -> Any:
        if not self.found(out, x):
            return self.interpret(out, x)
        way, start = self.contest.next(), time.perf_counter()
        if way:
            self._in_parts(out, x)
        else:  # what is equal or in order NumPy may be done with at once
            self._part(out, x, 0, x.size)()
        self.contest.took(way, time.perf_counter() - start)
        return out

    def _in_parts(self, out: Any, x: Any) -> None:
        other = maker(out.nbytes)(out.shape, out.dtype)
        rounds = len(self.bounds).bit_length() - 1
        ordered, into = (other, out) if rounds % 2 else (out, other)
        together([self._part(ordered, x, *ends) for ends in itertools.pairwise(self.bounds)])
        bounds = self.bounds
        while len(bounds) > 2:
            for low, middle, high in zip(bounds[:-2:2], bounds[1:-1:2], bounds[2::2], strict=True):
                self._merge(into[low:high], ordered[low:middle], ordered[middle:high])
            ordered, into, bounds = into, ordered, bounds[::2]

    def _merge(self, into: Any, x: Any, y: Any) -> None:
        """What is no number comes last."""
        if x.dtype.kind == "f" and (x[-1] != x[-1] or y[-1] != y[-1]):
            ends = [int(np.searchsorted(each, np.nan)) for each in (x, y)]
            into[sum(ends) :] = np.concatenate([x[ends[0] :], y[ends[1] :]])
            x, y = x[: ends[0]], y[: ends[1]]
            into = into[: sum(ends)]
        if x.size and y.size:
            self.run(_numbers(into.size, x.size, address_of(into), address_of(x), address_of(y)))
        else:
            np.concatenate([x, y], out=into)

    @staticmethod
    def _part(ordered: Any, x: Any, low: int, high: int) -> Callable[[], None]:
        def run() -> None:
            part = ordered[low:high]
            np.copyto(part, x[low:high])
            part.sort()

        return run


class _Merging:
    """Writes the body: the elements of a result from ``%low`` to ``%high``, of two parts, the first of which has
    ``%split``."""

    def __init__(self, word: str, size: int, unsigned: bool) -> None:
        self.code = Code()
        self.word, self.size, self.unsigned = word, size, unsigned
        code = self.code
        self.rest = code.do("sub i64 %length, %split")
        self.last = code.do(f"sub i64 {self.rest}, 1")

    def write(self) -> Code:
        """All pieces of a share, side by side."""
        code = self.code
        piece = code.do(f"sdiv i64 {code.do('sub i64 %high, %low')}, {_ABREAST}")
        begins = [code.add("%low", code.multiply(piece, str(k))) for k in range(_ABREAST)]
        firsts = [self._place(begin) for begin in begins]
        carried = [("i64", first) for first in firsts]
        with code.loop("0", piece, carried=carried) as (number, held):
            for k, begin in enumerate(begins):
                held[k] = self._step(held[k], code.add(begin, number))
        with code.loop(code.add(begins[-1], piece), "%high", carried=[("i64", held[-1])]) as (number, rest):
            rest[0] = self._step(rest[0], number)
        return code

    def _place(self, begin: str) -> str:
        """How many of the first ``begin`` elements are from the first part."""
        code = self.code
        low, high = code.most(code.do(f"sub i64 {begin}, {self.rest}"), "0"), code.least(begin, "%split")
        with code.loop("0", str(_HALVES), carried=[("i64", low), ("i64", high)]) as (_, held):
            low, high = held
            middle = code.do(f"lshr i64 {code.add(low, high)}, 1")
            other = code.do(f"sub i64 {code.do(f'sub i64 {begin}, {middle}')}, 1")
            here = self._load("%x", code.least(middle, code.do("sub i64 %split, 1")))
            there = self._second(code.most(other, "0"))
            smaller = self._is_before(there, here)
            open_ = code.do(f"icmp slt i64 {low}, {high}")
            down = code.do(f"and i1 {open_}, {smaller}")
            up = code.do(f"and i1 {open_}, {code.do(f'xor i1 {smaller}, true')}")
            held[0] = code.do(f"select i1 {up}, i64 {code.add(middle, '1')}, i64 {low}")
            held[1] = code.do(f"select i1 {down}, i64 {middle}, i64 {high}")
        return held[0]

    def _step(self, first: str, place: str) -> str:
        """Write the element at a place, ``first`` of those before it being from the first part; how many then are."""
        code = self.code
        second = code.do(f"sub i64 {place}, {first}")
        here, there = self._load("%x", first), self._second(second)  # behind the first part lies the second one
        smaller = self._is_before(there, here)
        left = code.do(f"icmp slt i64 {second}, {self.rest}")
        gone = code.do(f"icmp sge i64 {first}, %split")
        taken = code.do(f"or i1 {gone}, {code.do(f'and i1 {left}, {smaller}')}")
        value = code.do(f"select i1 {taken}, {self.word} {there}, {self.word} {here}")
        code.run(f"store {self.word} {value}, ptr {code.at(self.word, '%out', place)}, align {self.size}")
        return code.add(first, code.do(f"zext i1 {code.do(f'xor i1 {taken}, true')} to i64"))

    def _second(self, place: str) -> str:
        """An element of the second part, or the nearest one that there is."""
        return self._load("%y", self.code.least(place, self.last))

    def _load(self, pointer: str, place: str) -> str:
        return self.code.do(f"load {self.word}, ptr {self.code.at(self.word, pointer, place)}, align {self.size}")

    def _is_before(self, x: str, y: str) -> str:
        word = {"float": "fcmp olt", "double": "fcmp olt"}.get(self.word, "icmp ult" if self.unsigned else "icmp slt")
        return self.code.do(f"{word} {self.word} {x}, {y}")


@functools.cache
def _text(word: str, size: int, unsigned: bool) -> str:
    names = [("i64", "length"), ("i64", "split"), ("ptr", "out"), ("ptr", "x"), ("ptr", "y")]
    return module(names, _Merging(word, size, unsigned).write(), True)
