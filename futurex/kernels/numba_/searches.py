"""Compiled searches in sorted tables: ``searchsorted``, ``digitize``, ``interp`` and ``histogram``, with NumPy's bits.

NumPy looks for one number after the other, and its processor guesses at each step which half comes next. Here several
numbers are looked for side by side, and a step of each is an addition: nothing is guessed, and what one waits for in
memory the others do not. What NumPy finds in tables that are not sorted depends on the order of what it looks for: each
call looks at its table, and leaves such a one, and what NumPy refuses, to NumPy.
"""

from __future__ import annotations

import abc
import ast
import functools
import inspect
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.channels import Written
from futurex.kernels.numba_.code import module
from futurex.kernels.numba_.searching import ABREAST, DECLARED, HELD, TABLES, Searching
from futurex.kernels.numba_.team import Share
from futurex.kernels.threads import may_share
from futurex.ops.library import Hole
from futurex.tree.aval import Aval
from futurex.tree.node import Node

Dtype = np.dtype[Any]

FEWEST = 4096
"""Fewer numbers stay with NumPy."""
SHARED = 1600 * 1024
"""Bytes from which threads share what takes as long to do as so many take to move."""
QUICK, SLOW = 30, 100
"""Such bytes for each number, where a table is short, or a quotient tells the place; and where it is halved."""
LARGEST_TABLE = 16
"""Entries of a table for each number that is looked for, at most: all are looked at, whether they are in order."""
MOST_BINS = 1 << 14
"""More have no tables for each thread."""
_MOST_EDGES = {4: 128, 8: 2048}
"""By their bytes; with more NumPy is as fast, which sorts in vectors."""
SHORT = 512
"""Bytes of a table to which a look at all of it takes less than halves of it."""
_TABLE_WORTH = 16
"""Numbers that are counted for each entry of a ticket's tables, which is cleared and added up."""
_BLOCK = 1 << 16
_FLOAT, _INT = np.dtype("f8"), np.dtype("i8")


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of ``interp``, or of one of NumPy's functions that search; None for another."""
    if not node.is_static or not all(each.aval.static for each in node.inputs):
        return None
    if node.op == "interp":
        return _claim_lines(node, threads)
    name = node.attrs["call"].partition("(")[0]
    return _CLAIMS[name](node, threads) if name in _CLAIMS else None


@functools.lru_cache(maxsize=4096)
def arguments(call: str) -> dict[str, Any] | None:
    """The arguments of a call of a function of NumPy by name, a :class:`Hole` for each input; None if that is not all
    that its text says.

    >>> arguments("np.digitize(_0, [0.0, 1.5])")
    {'x': _0, 'bins': [0.0, 1.5], 'right': False}
    """
    tree: Any = ast.parse(call, mode="eval").body
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.slice) == "0":
        tree = tree.value
    if not isinstance(tree, ast.Call):
        return None
    names = {repr(Hole(k)): Hole(k) for k in range(8)} | {"np": np}

    def value(part: ast.expr) -> Any:
        return eval(compile(ast.Expression(part), call, "eval"), names)

    values = {each.arg: value(each.value) for each in tree.keywords if each.arg is not None}
    bound = inspect.signature(value(tree.func)).bind(*map(value, tree.args), **values)
    bound.apply_defaults()
    return bound.arguments


def _table(node: Node, entry: Any) -> Aval | None:
    """The type of a vector of real numbers that stands in the call, or is an input of it."""
    found = node.inputs[entry.index].aval if isinstance(entry, Hole) else None
    if found is None and isinstance(entry, list | tuple | np.ndarray) and np.ndim(entry) == 1:
        array = np.asarray(entry)
        found = Aval(array.shape, array.dtype)
    fits = found is not None and len(found.shape) == 1 and not found.weak and _is_real(found.dtype)
    return found if fits else None


def _numbers(node: Node, entry: Any) -> Aval | None:
    """The type of what is looked for; None for what is too little, or has no loop."""
    found = node.inputs[entry.index].aval if isinstance(entry, Hole) else None
    if found is None or found.weak or found.size < FEWEST or not _is_real(found.dtype):
        return None
    return None if found.dtype == np.dtype("f2") else found


def _is_short(table: Aval, dtype: Dtype) -> bool:
    return table.size * dtype.itemsize <= SHORT


def _is_real(dtype: Dtype) -> bool:
    return dtype.kind in "iuf" and dtype.itemsize <= 8 and dtype.isnative


class _Search(Written, abc.ABC):
    """The kernel of one node, whose ``table`` is looked at before each call."""

    bind = None

    def __init__(
        self, node: Node, threads: int, text: str, count: int, asked: dict[str, Any], quick: bool
    ) -> None:  # fmt: skip
        moved = count * (QUICK if quick else SLOW)
        super().__init__(node, threads if may_share() and moved >= SHARED else 1, text, (count,))
        self.count, self.asked = count, asked
        self.share = Share.of(self.threads, moved, count)
        self.checks = self.checks[: len(self.checks) - len(node.inputs[3:])]

    def __call__(self, out: Any, *inputs: Any) -> Any:
        if not self.found(out, *inputs[:3]) or not self.search(out, inputs):
            return self.interpret(out, *inputs)
        return out

    @abc.abstractmethod
    def search(self, out: Any, inputs: Sequence[Any]) -> bool:
        """Write the result; False for what is NumPy's."""

    def interpret(self, out: Any, *inputs: Any) -> Any:
        """NumPy computes the node, and says what it has to say."""
        self.interpreted += 1
        found = self.node.record.run(inputs, self.node.attrs)
        for target, value in zip(out if self.several else (out,), found if self.several else (found,), strict=True):
            np.copyto(target, value)
        return out

    def given(self, name: str, inputs: Sequence[Any]) -> Any:
        """An argument of the call."""
        entry = self.asked[name]
        return inputs[entry.index] if isinstance(entry, Hole) else np.asarray(entry)


def ordered(table: Any) -> int:
    """How many entries of a table are numbers, if it lies in NumPy's order, in which what is no number comes last; else
    -1.

    >>> ordered(np.array([1.0, 2.0, np.nan])), ordered(np.array([2.0, 1.0]))
    (2, -1)
    """
    count = len(table)
    if table.dtype.kind == "f" and table[-1] != table[-1]:
        count = int(np.searchsorted(table, np.nan))  # right if the rest is in order
        if not all(np.isnan(table[k : k + _BLOCK]).all() for k in range(count, len(table), _BLOCK)):
            return -1
    for start in range(0, count - 1, _BLOCK):
        stop = min(start + _BLOCK, count - 1)
        if not (table[start:stop] <= table[start + 1 : stop + 1]).all():
            return -1
    return count


# -- places ----------------------------------------------------------------------------------------------------------


def _claim_searchsorted(node: Node, threads: int) -> Written | None:
    asked = arguments(node.attrs["call"])
    if asked is None or asked["side"] not in ("left", "right"):
        return None
    sorter = asked["sorter"]
    if sorter is not None and (not isinstance(sorter, Hole) or node.inputs[sorter.index].dtype != _INT):
        return None
    return _claim_places(node, threads, asked, ("a", "v"), asked["side"] == "left")


def _claim_digitize(node: Node, threads: int) -> Written | None:
    asked = arguments(node.attrs["call"])
    if asked is None or type(asked["right"]) is not bool:
        return None
    return _claim_places(node, threads, asked, ("bins", "x"), asked["right"])


def _claim_places(
    node: Node, threads: int, asked: dict[str, Any], names: tuple[str, str], left: bool
) -> Written | None:
    entries, keys = _table(node, asked[names[0]]), _numbers(node, asked[names[1]])
    if entries is None or keys is None or not 0 < entries.size <= LARGEST_TABLE * keys.size:
        return None
    dtype = np.promote_types(entries.dtype, keys.dtype)
    if dtype not in HELD:
        return None
    short = _is_short(entries, dtype)
    text = _places_text(dtype, keys.dtype, left, short, may_share())
    return _Places(node, threads, text, keys.size, asked, short, names, dtype, left)


class _Places(_Search):
    """``searchsorted`` and ``digitize``."""

    def __init__(
        self, node: Node, threads: int, text: str, count: int, asked: dict[str, Any], quick: bool,
        names: tuple[str, str], dtype: Dtype, left: bool,
    ) -> None:  # fmt: skip
        super().__init__(node, threads, text, count, asked, quick)
        self.names, self.dtype, self.left = names, dtype, left

    def search(self, out: Any, inputs: Sequence[Any]) -> bool:
        table, keys = (self.given(name, inputs) for name in self.names)
        n, flip, base = len(table), 0, 0
        if self.asked.get("sorter") is not None:
            order = self.given("sorter", inputs)
            if order.shape != table.shape or order.min() < 0 or order.max() >= n:
                return False
            table = table[order]
        bins = "bins" in self.asked
        if bins and float(table[0]) > float(table[-1]):  # as NumPy compares them
            table, flip, base = table[::-1], -1, n + 1  # n - k is ~k + n + 1
        table = np.ascontiguousarray(table, self.dtype)
        numbers = ordered(table)
        if numbers < n * bins:  # NumPy takes bins that are no numbers for falling ones
            return False
        last = numbers if self.left else n
        addresses = map(address_of, (out, keys, table))
        self.run(struct.pack("=9q", self.count, n, (n - 1).bit_length(), last, flip, base, *addresses))
        return True


@functools.cache
def _places_text(dtype: Dtype, source: Dtype, left: bool, short: bool, threaded: bool) -> str:
    writer = Searching(dtype, source, short)
    code = writer.code

    def places(at: list[str]) -> None:
        for place, (key, found) in zip(at, writer.searched(at, left), strict=True):
            if writer.floating:
                odd = code.do(f"fcmp uno {writer.element} {key}, {key}")
                found = code.do(f"select i1 {odd}, i64 %last, i64 {found}")
            found = code.add(code.do(f"xor i64 {found}, %flip"), "%base")
            code.run(f"store i64 {found}, ptr {code.at('i64', '%y', place)}, align 8")

    writer.side_by_side(places)
    numbers = ("count", "n", "rounds", "last", "flip", "base")
    parameters = [*(("i64", each) for each in numbers), *(("ptr", each) for each in ("y", "x", "table"))]
    return module(parameters, code, threaded, DECLARED)


# -- what lies between two points ------------------------------------------------------------------------------------


def _claim_lines(node: Node, threads: int) -> Written | None:
    x, xs, fs = (_numbers(node, Hole(0)), _table(node, Hole(1)), _table(node, Hole(2)))
    if x is None or xs is None or fs is None or node.dtype != _FLOAT or not interpolates_alike():
        return None
    if not 2 <= xs.size <= LARGEST_TABLE * x.size:
        return None
    short = _is_short(xs, _FLOAT)
    return _Lines(node, threads, _lines_text(x.dtype, short, may_share()), x.size, {}, short)


class _Lines(_Search):
    """``interp``."""

    def search(self, out: Any, inputs: Sequence[Any]) -> bool:
        x, *tables = inputs[:3]
        xs, fs = (np.ascontiguousarray(each, _FLOAT) for each in tables)
        n = len(xs)
        if ordered(xs) < n:
            return False
        ends = inputs[3:] or (fs[0], fs[-1])
        left, right = (float(np.asarray(each).item()) for each in ends)
        addresses = map(address_of, (out, x, xs, fs))
        self.run(struct.pack("=3q2d4q", self.count, n, (n - 1).bit_length(), left, right, *addresses))
        return True


@functools.cache
def interpolates_alike() -> bool:
    """Does this NumPy round as the code here? A compiler may have made one rounding of a product and a sum."""
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.normal(size=64)), rng.normal(size=64)
    at = rng.uniform(x[0], x[-1], 999)
    k = np.searchsorted(x, at, side="right") - 1
    slope = (y[k + 1] - y[k]) / (x[k + 1] - x[k])
    return bool((np.interp(at, x, y) == slope * (at - x[k]) + y[k]).all())


@functools.cache
def _lines_text(source: Dtype, short: bool, threaded: bool) -> str:
    writer = Searching(_FLOAT, source, short)
    code = writer.code
    final, before = code.do("sub i64 %n, 1"), code.do("sub i64 %n, 2")

    def entry(table: str, place: str) -> str:
        return code.do(f"load double, ptr {code.at('double', table, place)}, align 8")

    def lines(at: list[str]) -> None:
        lanes, pairs = len(at), writer.searched(at, left=False)
        kind, truth = writer.kind("double", lanes), writer.kind("i1", lanes)

        def beside(element: str, values: list[str]) -> str:
            return code.beside(writer.kind(element, lanes), values)

        def chosen(condition: str, yes: str, no: str) -> str:
            return code.do(f"select {truth} {condition}, {kind} {yes}, {kind} {no}")

        def odd(value: str) -> str:
            return code.do(f"fcmp uno {kind} {value}, {value}")

        k = [code.most(code.least(code.do(f"sub i64 {found}, 1"), before), "0") for _, found in pairs]
        behind = [code.add(each, "1") for each in k]
        x0, x1, y0, y1 = (
            beside("double", [entry(table, each) for each in places])
            for table in ("%table", "%values") for places in (k, behind)
        )  # fmt: skip
        x, found = beside("double", [key for key, _ in pairs]), beside("i64", [place for _, place in pairs])
        slope = code.do(f"fdiv {kind} {code.do(f'fsub {kind} {y1}, {y0}')}, {code.do(f'fsub {kind} {x1}, {x0}')}")

        def line(x0: str, y0: str) -> str:
            run = code.do(f"fmul {kind} {slope}, {code.do(f'fsub {kind} {x}, {x0}')}")
            return code.do(f"fadd {kind} {run}, {y0}")

        def compared(word: str, other: str) -> str:
            return code.do(f"icmp {word} {writer.kind('i64', lanes)} {found}, {writer.spread('i64', other, lanes)}")

        # from the other end where this one is infinitely far away
        first, second = line(x0, y0), line(x1, y1)
        level = code.do(f"and {truth} {odd(second)}, {code.do(f'fcmp oeq {kind} {y0}, {y1}')}")
        value = chosen(odd(first), chosen(level, y0, second), first)
        value = chosen(code.do(f"fcmp oeq {kind} {x}, {x0}"), y0, value)
        value = chosen(compared("sgt", final), y1, value)
        value = chosen(compared("eq", "0"), writer.spread("double", "%left", lanes), value)
        end = writer.spread("double", entry("%table", final), lanes)
        value = chosen(code.do(f"fcmp ogt {kind} {x}, {end}"), writer.spread("double", "%right", lanes), value)
        value = chosen(odd(x), x, value)
        code.run(f"store {kind} {value}, ptr {code.at('double', '%y', at[0])}, align 8")

    writer.side_by_side(lines)
    parameters = [("i64", each) for each in ("count", "n", "rounds")]
    parameters += [("double", each) for each in ("left", "right")]
    return module([*parameters, *(("ptr", each) for each in ("y", "x", "table", "values"))], code, threaded, DECLARED)


# -- counts ----------------------------------------------------------------------------------------------------------


def _claim_histogram(node: Node, threads: int) -> Written | None:
    asked = arguments(node.attrs["call"])
    if asked is None or asked["weights"] is not None or type(asked["density"]) not in (bool, type(None)):
        return None
    a, bins, span = _numbers(node, asked["a"]), asked["bins"], asked["range"]
    if a is None or type(span) not in (tuple, list, type(None)):
        return None
    most = min(MOST_BINS, a.size // 8)
    if type(bins) is int:
        known = span is None or (
            len(span) == 2 and all(type(each) in (int, float) and abs(each) < 2**62 for each in span)
        )
        return _Equal(node, threads, a, asked) if known and 0 < bins <= most else None
    edges = _table(node, bins)
    if edges is None or span is not None or not 2 <= edges.size <= most:
        return None
    dtype = np.promote_types(a.dtype, edges.dtype)
    if dtype not in HELD or edges.size > _MOST_EDGES[dtype.itemsize]:
        return None
    short = _is_short(edges, dtype)
    text = _between_text(dtype, a.dtype, short, may_share())
    return _Between(node, threads, text, a.size, asked, short, edges.size + 1, dtype)


class _Counts(_Search):
    """``histogram``, which counts in so many ``slots``, in tables of its own for each ticket."""

    def __init__(
        self, node: Node, threads: int, text: str, count: int, asked: dict[str, Any], quick: bool, slots: int
    ) -> None:  # fmt: skip
        super().__init__(node, threads, text, count, asked, quick)
        room = count // (TABLES * slots * _TABLE_WORTH)
        if room < self.threads:
            self.threads, self.share = 1, Share(1, 1)
        self.share = replace(self.share, tickets=min(self.share.tickets, max(room, 1)))

    def told(self, out: Any, words: bytes, arrays: Sequence[Any], slots: slice, edges: Any) -> bool:
        """Run the code, and write the results."""
        tables = np.zeros((self.share.tickets, TABLES, slots.stop + 1), np.int64)
        self.run(words + struct.pack(f"={len(arrays) + 1}q", *map(address_of, (tables, *arrays))))
        found = tables.sum(axis=(0, 1))[slots]
        if self.asked["density"]:
            found = found / np.array(np.diff(edges), float) / found.sum()
        for target, value in zip(out if self.several else (out,), (found, edges), strict=False):
            np.copyto(target, value)
        return True


class _Between(_Counts):
    """With edges that are given."""

    def __init__(
        self, node: Node, threads: int, text: str, count: int, asked: dict[str, Any], quick: bool, slots: int,
        dtype: Dtype,
    ) -> None:  # fmt: skip
        super().__init__(node, threads, text, count, asked, quick, slots)
        self.dtype = dtype

    def search(self, out: Any, inputs: Sequence[Any]) -> bool:
        edges = self.given("bins", inputs)
        n, table = len(edges), np.ascontiguousarray(edges, self.dtype)
        if ordered(table) < n or not (edges[:-1] <= edges[1:]).all():
            return False
        words = struct.pack("=4q", self.count, n, (n - 1).bit_length(), n + 1)
        return self.told(out, words, (self.given("a", inputs), table), slice(1, n), edges)


@functools.cache
def _between_text(dtype: Dtype, source: Dtype, short: bool, threaded: bool) -> str:
    """What is smaller than all edges is counted first, what is larger last."""
    writer = Searching(dtype, source, short)
    code, kind = writer.code, writer.element
    at = code.at(kind, "%table", code.do("sub i64 %n, 1"))
    last = code.do(f"load {kind}, ptr {at}, align {writer.align}")
    same = "fcmp oeq" if writer.floating else "icmp eq"

    def counts(at: list[str]) -> None:
        for k, (key, found) in enumerate(writer.searched(at, left=False)):
            inside = code.do(f"zext i1 {code.do(f'{same} {kind} {key}, {last}')} to i64")
            writer.count(code.do(f"sub i64 {found}, {inside}"), k)

    writer.side_by_side(counts)
    parameters = [("i64", each) for each in ("count", "n", "rounds", "slots")]
    return module([*parameters, *(("ptr", each) for each in ("tables", "x", "table"))], code, threaded, DECLARED)


class _Equal(_Counts):
    """With so many bins of one width: a quotient tells the bin, and the edges correct it."""

    def __init__(self, node: Node, threads: int, a: Aval, asked: dict[str, Any]) -> None:
        zero = a.dtype.type(0)
        first, last = asked["range"] or (zero, zero)
        self.dtype, self.wide = _quotients(first, last, a.dtype)
        text = _equal_text(self.dtype, self.wide, a.dtype, may_share())
        super().__init__(node, threads, text, a.size, asked, True, asked["bins"] + 1)

    def search(self, out: Any, inputs: Sequence[Any]) -> bool:
        a, bins = self.given("a", inputs), self.asked["bins"]
        first, last = self.asked["range"] or (a.min(), a.max())
        if not (first <= last and np.isfinite(first) and np.isfinite(last)):
            return False
        exact = self.asked["range"] is None or max(abs(first), abs(last)) < 2**53
        if first == last:
            first, last = first - 0.5, last + 0.5
        if (a.dtype.kind in "iu" and not exact) or _quotients(first, last, a.dtype) != (self.dtype, self.wide):
            return False
        with np.errstate(all="ignore"):
            edges = np.linspace(first, last, bins + 1, endpoint=True, dtype=self.dtype)
            width = np.subtract(last, first) if np.result_type(first, last).kind == "f" else int(last) - int(first)
            low, high, width = self.dtype.type(first), self.dtype.type(last), self.wide.type(width)
        if edges[0] != low or edges[-1] != high or not (edges[:-1] < edges[1:]).all() or not np.isfinite(width):
            return False
        numbers = (low, high, width, self.wide.type(bins))
        words = struct.pack("=3q", self.count, bins, bins + 1)
        words += b"".join(each.tobytes().ljust(8, b"\0") for each in numbers)
        corrected = np.append(edges[:-1], self.dtype.type(np.nan))  # nothing is beyond the last bin
        return self.told(out, words, (a, corrected), slice(0, bins), edges)


def _quotients(first: Any, last: Any, dtype: Dtype) -> tuple[Dtype, Dtype]:
    """In which dtypes NumPy has edges, and places among them."""
    held, between = np.result_type(first, last, dtype), np.result_type(first, last)
    held = held if held.kind == "f" else np.result_type(held, float)
    return held, np.result_type(held, between if between.kind == "f" else np.uint64)


@functools.cache
def _equal_text(dtype: Dtype, wide: Dtype, source: Dtype, threaded: bool) -> str:
    """What lies outside is counted last."""
    writer = Searching(dtype, source)
    code, element, quotient = writer.code, writer.element, HELD[wide]
    most = code.do("trunc i64 %n to i32")
    known = (element, "%first"), (element, "%last"), (quotient, "%width"), (quotient, "%bins"), ("i32", most)
    spread = {lanes: [writer.spread(kind, value, lanes) for kind, value in known] for lanes in (1, ABREAST)}

    def counts(at: list[str]) -> None:
        lanes = len(at)
        first, last, width, bins, count = spread[lanes]
        kind, wider, places, truth = (writer.kind(each, lanes) for each in (element, quotient, "i32", "i1"))
        given = writer.taken(at[0], lanes)
        ends = (code.do(f"fcmp o{word} {kind} {given}, {end}") for word, end in (("ge", first), ("le", last)))
        inside = code.do(f"and {truth} {next(ends)}, {next(ends)}")
        value = code.do(f"select {truth} {inside}, {kind} {given}, {kind} {first}")
        place = code.do(f"fsub {kind} {value}, {first}")
        place = place if kind == wider else code.do(f"fpext {kind} {place} to {wider}")
        place = code.do(f"fmul {wider} {code.do(f'fdiv {wider} {place}, {width}')}, {bins}")
        place = code.do(f"fptosi {wider} {place} to {places}")
        highest = code.do(f"sext {truth} {code.do(f'icmp eq {places} {place}, {count}')} to {places}")
        place = code.do(f"add {places} {place}, {highest}")
        beyond = code.do(f"select {truth} {inside}, {places} zeroinitializer, {places} {count}")
        for k in range(lanes):
            x = writer.lane(kind, value, k)
            own, out = (code.do(f"zext i32 {writer.lane(places, each, k)} to i64") for each in (place, beyond))
            left, right = (
                code.do(f"load {element}, ptr {code.at(element, '%table', each)}, align {writer.align}")
                for each in (own, code.add(own, "1"))
            )
            less = code.do(f"sext i1 {code.do(f'fcmp olt {element} {x}, {left}')} to i64")
            more = code.do(f"zext i1 {code.do(f'fcmp oge {element} {x}, {right}')} to i64")
            writer.count(code.add(own, less, more, out), k)

    writer.side_by_side(counts)
    parameters = [("i64", each) for each in ("count", "n", "slots")]
    parameters += [(element, "first"), (element, "last"), (quotient, "width"), (quotient, "bins")]
    return module([*parameters, *(("ptr", each) for each in ("tables", "x", "table"))], code, threaded)


_CLAIMS: dict[str, Callable[[Node, int], Written | None]] = {
    "np.searchsorted": _claim_searchsorted, "np.digitize": _claim_digitize, "np.histogram": _claim_histogram,
}  # fmt: skip
