"""``np.interp`` in compiled loops: NumPy's search, which begins where the one before has ended, and its roundings.

The search is NumPy's own, step by step: in tables that are not in order what it finds depends on the way that it takes.
Where more is looked for than the table has entries, it is worth looking whether they are in order: then the place is
halved without a branch, and slopes are divided once, as NumPy's are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import elementwise
from futurex.kernels.loops.arrays import Array, most, text
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.searching import element, vector
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import NUMBERS, converted
from futurex.kernels.numba_.searches import interpolates_alike
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_NEAR = 8
"""Entries on both sides of a place that NumPy takes to lie in the cache."""
_SHORT = 4
"""Entries of a table that NumPy goes through one after the other."""


def interp(e: Emitter, node: Node, inputs: Sequence[Any]) -> Any:
    """``interp`` of real numbers."""
    if node.dtype != _FLOAT or not (interpolates_alike() and searches_alike()):
        raise Unsupported("an interpolation of another kind")
    if any(value.dtype.kind not in "biuf" or value.dtype not in NUMBERS for value in inputs):
        raise Unsupported("an interpolation of other numbers")
    f = e.function
    x, xs, fs = (elementwise.operand(e, value, _FLOAT) for value in (inputs[0], *map(vector, inputs[1:3])))
    x, xs, fs = (each if each.contiguous else e.copied(each) for each in (x, xs, fs))
    count, entries = text(xs.shape[0]), text(fs.shape[0])
    if count != entries:
        f.fail_if(f.emit(f"icmp ne i64 {count}, {entries}"))
    f.fail_if(f.emit(f"icmp eq i64 {count}, 0"))
    table, values = xs.pointer(f), fs.pointer(f)
    if len(inputs) > 3:
        left, right = (converted(f, e.scalar(value), _FLOAT) for value in inputs[3:])
    else:
        last = f.emit(f"sub i64 {count}, 1")
        left, right = f.load(_FLOAT, values), f.load(_FLOAT, element(f, values, last))
    out = e.fresh(x.shape, _FLOAT)
    numbers = _count(x)
    many = most(numbers) >= (xs.shape[0] if isinstance(xs.shape[0], int) else 2)
    slopes = e.fresh(xs.capacity, _FLOAT) if many else None
    name = e.kernels.own("lines", f"({', '.join(_PARAMETERS)})", _lines(many))
    f.do(
        f"call void @{name}(ptr {x.pointer(f)}, i64 {text(numbers)}, ptr {table}, ptr {values}, i64 {count}, "
        f"double {left}, double {right}, ptr {'null' if slopes is None else slopes.pointer(f)}, ptr {out.pointer(f)})"
    )
    if slopes is not None:
        e.memory.hold(slopes.place)
        e.memory.release(slopes.place)
    return e.unboxed(out)


_PARAMETERS = (
    "ptr noalias %x", "i64 %m", "ptr %xs", "ptr %fs", "i64 %n", "double %left", "double %right", "ptr noalias %slopes",
    "ptr noalias %out",
)  # fmt: skip


def _lines(many: bool) -> Function:
    f = Function()
    final = f.emit("sub i64 %n, 1")
    first, end = f.load(_FLOAT, "%xs"), f.load(_FLOAT, element(f, "%xs", final))
    if many:
        steps = f.label()
        _in_order(f, final, first, end, steps)
        f.place(steps)
    _in_any_order(f, final, first, end)
    return f


def _in_order(f: Function, final: str, first: str, end: str, otherwise: str) -> None:
    """All numbers, by a table whose entries do not fall."""
    enough, sorted_, places, last = f.label(), f.label(), f.variable("i64"), f.variable("i64")
    f.branch(f.emit("icmp sle i64 %n, %m"), enough, otherwise)
    f.place(enough)
    f.store(_INT, "0", places)
    with f.counted(final) as i:
        following = f.emit(f"add i64 {i}, 1")
        (x0, y0), (x1, y1) = ([_entry(f, table, k) for table in ("%xs", "%fs")] for k in (i, following))
        rising = f.emit(f"zext i1 {f.emit(f'fcmp ole double {x0}, {x1}')} to i64")
        f.store(_INT, f.emit(f"add i64 {f.load(_INT, places)}, {rising}"), places)
        f.store(_FLOAT, _slope(f, x0, y0, x1, y1), element(f, "%slopes", i))
    level = f.emit(f"icmp eq i64 {f.load(_INT, places)}, {final}")
    f.branch(f.emit(f"and i1 {level}, {f.emit('icmp sgt i64 %n, 1')}"), sorted_, otherwise)
    f.place(sorted_)
    f.store(_FLOAT, "0.0", element(f, "%slopes", final))
    result = f.variable("double")
    with f.counted("%m") as i:
        key = f.load(_FLOAT, element(f, "%x", i))
        f.store(_INT, "0", places)
        f.store(_INT, "%n", last)
        head, body, done, odd, stored = (f.label() for _ in range(5))
        f.jump(head)
        f.place(head)
        length = f.load(_INT, last)
        f.branch(f.emit(f"icmp sgt i64 {length}, 1"), body, done)
        f.place(body)
        half, begun = f.emit(f"lshr i64 {length}, 1"), f.load(_INT, places)
        middle = f.emit(f"add i64 {begun}, {half}")
        f.store(_INT, f.select(_reaches(f, key, _entry(f, "%xs", middle)), "i64", middle, begun), places)
        f.store(_INT, f.emit(f"sub i64 {length}, {half}"), last)
        f.jump(head)
        f.place(done)
        place = f.load(_INT, places)
        x0, y0, slope = (_entry(f, table, place) for table in ("%xs", "%fs", "%slopes"))
        found = _at(f, slope, key, x0, y0)
        f.store(_FLOAT, f.select(f.emit(f"fcmp oeq double {x0}, {key}"), "double", y0, found), result)
        f.branch(f.emit(f"fcmp uno double {found}, {found}"), odd, stored)
        f.place(odd)
        _line(f, key, place, final, result, stored)
        f.place(stored)
        value = f.load(_FLOAT, result)
        for word, limit, other in (("ogt", end, "%right"), ("olt", first, "%left"), ("uno", key, key)):
            value = f.select(f.emit(f"fcmp {word} double {key}, {limit}"), "double", other, value)
        f.store(_FLOAT, value, element(f, "%out", i))
    f.do("ret void")


def _count(x: Array) -> Any:
    if not x.shape:
        return 1
    return x.shape[0] if len(x.shape) == 1 else x.nbytes // x.dtype.itemsize


def _in_any_order(f: Function, final: str, first: str, end: str) -> None:
    """All numbers, each from the place of the one before."""
    place = f.variable("i64")
    f.store(_INT, "0", place)
    several = f.emit("icmp sgt i64 %n, 1")
    result = f.variable("double")
    with f.counted("%m") as i:
        key = f.load(_FLOAT, element(f, "%x", i))
        begin, above, below, inside, stored = (f.label() for _ in range(5))
        f.store(_FLOAT, key, result)  # NumPy hands on what is no number, and does not look for it
        odd = f.emit(f"fcmp uno double {key}, {key}")
        f.branch(f.emit(f"and i1 {odd}, {several}"), stored, begin)
        f.place(begin)
        beyond, begun = f.label(), f.label()
        f.branch(f.emit(f"fcmp ogt double {key}, {end}"), above, beyond)
        f.place(above)
        f.store(_INT, "%n", place)
        f.store(_FLOAT, "%right", result)
        f.jump(stored)
        f.place(beyond)
        f.branch(f.emit(f"fcmp olt double {key}, {first}"), below, begun)
        f.place(below)
        f.store(_INT, "-1", place)
        f.store(_FLOAT, "%left", result)
        f.jump(stored)
        f.place(begun)
        _search(f, key, place, inside)
        f.place(inside)
        at = f.label()
        f.store(_FLOAT, "%left", result)  # where the first entry is no number, it may be that none comes before
        f.branch(f.emit(f"icmp slt i64 {f.load(_INT, place)}, 0"), stored, at)
        f.place(at)
        _line(f, key, f.load(_INT, place), final, result, stored)
        f.place(stored)
        f.store(_FLOAT, f.load(_FLOAT, result), element(f, "%out", i))


def _entry(f: Function, table: str, place: str, apart: int = 0) -> str:
    return f.load(_FLOAT, element(f, table, f.emit(f"add i64 {place}, {apart}") if apart else place))


def _least(f: Function, x: str, y: str) -> str:
    return f.select(f.emit(f"icmp slt i64 {x}, {y}"), "i64", x, y)


def _search(f: Function, key: str, place: str, found: str) -> None:
    """Leave in ``place`` the entry that the number follows, and go on at ``found``: ``binary_search_with_guess``."""
    few, many = f.label(), f.label()
    f.branch(f.emit(f"icmp sle i64 %n, {_SHORT}"), few, many)
    f.place(few)
    f.store(_INT, "0", place)
    head, test, step = f.label(), f.label(), f.label()
    f.jump(head)
    f.place(head)
    following = f.emit(f"add i64 {f.load(_INT, place)}, 1")
    f.branch(f.emit(f"icmp slt i64 {following}, %n"), test, found)
    f.place(test)
    f.branch(_reaches(f, key, _entry(f, "%xs", following)), step, found)
    f.place(step)
    f.store(_INT, following, place)
    f.jump(head)

    f.place(many)
    low, high = f.variable("i64"), f.variable("i64")
    guess = _least(f, f.load(_INT, place), f.emit("sub i64 %n, 3"))
    guess = f.select(f.emit(f"icmp slt i64 {guess}, 1"), "i64", "1", guess)
    f.store(_INT, "0", low)
    f.store(_INT, "%n", high)
    smaller, larger, halves = f.label(), f.label(), f.label()
    f.branch(f.emit(f"fcmp olt double {key}, {_entry(f, '%xs', guess)}"), smaller, larger)

    f.place(smaller)
    lower, near, close = f.label(), f.label(), f.label()
    one = f.emit(f"sub i64 {guess}, 1")
    f.store(_INT, one, place)
    f.branch(f.emit(f"fcmp olt double {key}, {_entry(f, '%xs', one)}"), lower, found)
    f.place(lower)
    f.store(_INT, one, high)
    f.branch(f.emit(f"icmp sgt i64 {guess}, {_NEAR}"), near, halves)
    f.place(near)
    f.branch(_reaches(f, key, _entry(f, "%xs", guess, -_NEAR)), close, halves)
    f.place(close)
    f.store(_INT, f.emit(f"sub i64 {guess}, {_NEAR}"), low)
    f.jump(halves)

    f.place(larger)
    further, furthest, near, close = (f.label() for _ in range(4))
    f.store(_INT, guess, place)
    f.branch(f.emit(f"fcmp olt double {key}, {_entry(f, '%xs', guess, 1)}"), found, further)
    f.place(further)
    f.store(_INT, f.emit(f"add i64 {guess}, 1"), place)
    f.branch(f.emit(f"fcmp olt double {key}, {_entry(f, '%xs', guess, 2)}"), found, furthest)
    f.place(furthest)
    f.store(_INT, f.emit(f"add i64 {guess}, 2"), low)
    f.branch(f.emit(f"icmp slt i64 {guess}, {f.emit(f'sub i64 %n, {_NEAR + 1}')}"), near, halves)
    f.place(near)
    f.branch(f.emit(f"fcmp olt double {key}, {_entry(f, '%xs', guess, _NEAR)}"), close, halves)
    f.place(close)
    f.store(_INT, f.emit(f"add i64 {guess}, {_NEAR}"), high)
    f.jump(halves)

    f.place(halves)
    body, done = f.label(), f.label()
    start, stop = f.load(_INT, low), f.load(_INT, high)
    f.branch(f.emit(f"icmp slt i64 {start}, {stop}"), body, done)
    f.place(body)
    length = f.emit(f"sub i64 {stop}, {start}")
    middle = f.emit(f"add i64 {start}, {f.emit(f'lshr i64 {length}, 1')}")
    reached = _reaches(f, key, _entry(f, "%xs", middle))
    f.store(_INT, f.select(reached, "i64", f.emit(f"add i64 {middle}, 1"), start), low)
    f.store(_INT, f.select(reached, "i64", stop, middle), high)
    f.jump(halves)
    f.place(done)
    f.store(_INT, f.emit(f"sub i64 {start}, 1"), place)
    f.jump(found)


def _reaches(f: Function, key: str, entry: str) -> str:
    return f.emit(f"fcmp oge double {key}, {entry}")


def _line(f: Function, key: str, place: str, final: str, result: str, stored: str) -> None:
    """Leave in ``result`` what lies behind the entry at ``place``, and go on at ``stored``."""
    y0 = _entry(f, "%fs", place)
    f.store(_FLOAT, y0, result)
    within, apart, again = (f.label() for _ in range(3))
    f.branch(f.emit(f"icmp eq i64 {place}, {final}"), stored, within)
    f.place(within)
    x0 = _entry(f, "%xs", place)
    f.branch(f.emit(f"fcmp oeq double {x0}, {key}"), stored, apart)
    f.place(apart)
    x1, y1 = (_entry(f, table, place, 1) for table in ("%xs", "%fs"))
    slope = _slope(f, x0, y0, x1, y1)
    found = _at(f, slope, key, x0, y0)
    f.store(_FLOAT, found, result)
    f.branch(f.emit(f"fcmp uno double {found}, {found}"), again, stored)
    f.place(again)  # from the other end where this one is infinitely far away
    found = _at(f, slope, key, x1, y1)
    flat = f.emit(f"and i1 {f.emit(f'fcmp uno double {found}, {found}')}, {f.emit(f'fcmp oeq double {y0}, {y1}')}")
    f.store(_FLOAT, f.select(flat, "double", y0, found), result)
    f.jump(stored)


def _slope(f: Function, x0: str, y0: str, x1: str, y1: str) -> str:
    return f.emit(f"fdiv double {f.emit(f'fsub double {y1}, {y0}')}, {f.emit(f'fsub double {x1}, {x0}')}")


def _at(f: Function, slope: str, key: str, x: str, y: str) -> str:
    run = f.emit(f"fmul double {slope}, {f.emit(f'fsub double {key}, {x}')}")
    return f.emit(f"fadd double {run}, {y}")


@functools.cache
def searches_alike() -> bool:
    """Does this NumPy look for places as the code above? In tables that are not in order it shows."""
    rng = np.random.default_rng(0)
    for length in (4, 5, 11, 40, 200):
        xs, fs, keys = rng.normal(size=length), rng.normal(size=length), rng.normal(size=300)
        if not np.array_equal(np.interp(keys, xs, fs), _by_steps(keys.tolist(), xs.tolist(), fs.tolist())):
            return False
    return True


def _by_steps(keys: list[float], xs: list[float], fs: list[float]) -> Any:
    found, place, n = [], 0, len(xs)
    for key in keys:
        if key > xs[-1] or key < xs[0]:
            place = n if key > xs[-1] else -1
            found.append(fs[-1] if place == n else fs[0])
            continue
        place = _place(key, xs, place)
        if place < 0:
            found.append(fs[0])
        elif place == n - 1 or xs[place] == key:
            found.append(fs[place])
        else:
            slope = (fs[place + 1] - fs[place]) / (xs[place + 1] - xs[place])
            found.append(slope * (key - xs[place]) + fs[place])
    return np.array(found)


def _place(key: float, xs: list[float], guess: int) -> int:
    n = len(xs)
    if n <= _SHORT:
        return next((k for k in range(1, n) if not key >= xs[k]), n) - 1
    low, high, guess = 0, n, max(min(guess, n - 3), 1)
    if key < xs[guess]:
        if key >= xs[guess - 1]:
            return guess - 1
        high = guess - 1
        if guess > _NEAR and key >= xs[guess - _NEAR]:
            low = guess - _NEAR
    elif key < xs[guess + 1]:
        return guess
    elif key < xs[guess + 2]:
        return guess + 1
    else:
        low = guess + 2
        if guess < n - _NEAR - 1 and key < xs[guess + _NEAR]:
            high = guess + _NEAR
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if key >= xs[middle] else (low, middle)
    return low - 1
