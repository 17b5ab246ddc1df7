"""Lists whose length depends on data, of numbers of which some are Python's and some NumPy's."""

import numpy as np
import pytest

import futurex as fx
from futurex.frontend.entries import Listed
from futurex.frontend.entry_kinds import Mixed
from futurex.frontend.returned import UNFIT


def newton(x0, c):
    xs = [x0]
    while abs(xs[-1] ** 2 - c[0]) > 1e-9 and len(xs) < 50:
        xs.append(0.5 * (xs[-1] + c[0] / xs[-1]))
    return xs[-1]


def newton_list(x0, c):
    xs = [x0]
    while abs(xs[-1] ** 2 - c[0]) > 1e-9 and len(xs) < 50:
        xs.append(0.5 * (xs[-1] + c[0] / xs[-1]))
    return xs


def newton_all(x0, c):
    xs = [x0]
    while abs(xs[-1] ** 2 - c[0]) > 1e-9 and len(xs) < 50:
        xs.append(0.5 * (xs[-1] + c[0] / xs[-1]))
    return np.array(xs), xs[0], len(xs), xs[-1]


def half(x0, c):
    xs = [x0, 2.0]
    for v in c:
        if v > 0:
            xs.append(v)
    return np.float32(1) * xs[-1], xs


def popped(x0, c):
    xs = [x0, 2.0]
    for v in c:
        if v > 0:
            xs.append(v)
        elif len(xs) > 1:
            xs.pop()
    return xs[-1], len(xs)


def popvalue(x0, c):
    xs = [x0, 2.0]
    last = 0.0
    for v in c:
        if v > 0:
            xs.append(v)
        elif len(xs) > 1:
            last = xs.pop()
    return last, xs


def ordered(x0, c):
    xs = [x0, 2.0]
    for v in c:
        if v > 0:
            xs.append(v)
    xs.sort()
    return xs[0], xs[-1], xs


def total(x0, c):
    xs = [x0, 2.0]
    for v in c:
        if v > 0:
            xs.append(v)
    return sum(xs), max(xs), xs[1:], 2.0 in xs


def pairs(x0, c):
    xs = [(x0, 0)]
    for k, v in enumerate(c):
        if v > 0:
            xs.append((v, k))
    return xs[-1], xs[0]


def pairs_list(x0, c):
    xs = [(x0, 0)]
    for k, v in enumerate(c):
        if v > 0:
            xs.append((v, k))
    return xs


def sets(x0, c):
    xs = [x0, 1.0]
    for v in c:
        if v > 0:
            xs.append(v)
            xs[0] = v
    return xs[0], xs[1], xs[-1]


def inserted(x0, c):
    xs = [x0, 1.0]
    for v in c:
        if v > 0:
            xs.insert(0, v)
        elif v < -1:
            xs.insert(1, 3.5)
    return xs


def best_of(x0, c):
    xs = [x0]
    for v in c:
        xs.append(min(xs[-1], v))
        if v < -1:
            xs.append(0.25)
    return xs


def either(x0, c):
    xs = []
    for v in c:
        w = v if v > 0 else 0.0
        if abs(v) > 0.3:
            xs.append(w)
    return xs, len(xs)


def ints(x0, c):
    xs = [0, 0]
    for v in c:
        if v > 0:
            xs.append(np.int64(v * 3))
            xs[0] = np.argmax(c)
    return xs[-1], xs


def reversed_(x0, c):
    xs = [x0]
    for v in c:
        if v > 0:
            xs.append(v)
    xs.reverse()
    ys = xs + [1.0]  # noqa: RUF005
    ys.extend(xs)
    return ys, xs[0]


def isin(x0, c):
    xs = [x0]
    for v in c:
        if v > 0:
            xs.append(v)
    n = 0
    for v in xs:
        if isinstance(v, np.float64):
            n += 1
    return n, xs.copy()


def ordered_back(x0, c):
    xs = [2.0, x0, 2.0]
    for v in c:
        if v > 0:
            xs.append(v)
            xs.append(v * 0 + 2.0)
    xs.sort(reverse=True)
    return xs, sorted(xs), 2.0 in xs, xs.index(2.0)


def removed(x0, c):
    xs = [2.0, x0]
    for v in c:
        if v > 0:
            xs.append(v)
    xs.remove(2.0)
    del xs[0]
    return xs, len(xs)


def counted(x0, c):
    xs = [2.0, x0]
    for v in c:
        if v > 0:
            xs.append(v)
    return max(xs), min(xs), sum(xs), [a * 2 for a in xs], np.mean(xs), xs[::-1]


def zipped(x0, c):
    xs = [2.0, x0]
    for v in c:
        if v > 0:
            xs.append(v)
    s = 0.0
    for k, v in enumerate(xs):
        s = v if k == 1 else s
    return s, xs[1]


def nested(x0, c):
    xs = [(x0, (1.0, 2))]
    for v in c:
        if v > 0:
            xs.append((x0, (v, 3)))
        elif v < -1 and len(xs) > 1:
            xs.pop(0)
    return xs, xs[-1][1][0]


def stacked(x0, c):
    xs = [x0]
    while xs[-1] < 3:
        xs.append(xs[-1] + abs(c[len(xs) % 6]) + 0.2)
    return np.array(xs), np.float32(0.1) * xs[0], xs


def branch(x0, c):
    xs = [x0]
    for v in c:
        if v > 0:
            xs.append(v)
    if c[0] > 0.5:
        ys = xs
    else:
        ys = [1.0]
    return ys, len(ys)


def in_for(x0, c):
    xs = [1.0]
    for k in range(4):
        for v in c:
            if v > k * 0.5:
                xs.append(v)
            elif v < -k:
                xs.append(0.0)
    return xs


def bools(x0, c):
    xs = [True]
    for v in c:
        if v > 0:
            xs.append(v > 0.5)
    return xs[-1], xs


def cplx(x0, c):
    xs = [1j]
    for v in c:
        if v > 0:
            xs.append(v * 1j)
    return xs[-1], xs


def joined(x0, c):
    xs, ys, zs = [x0], [2.5], [c[0]]
    for v in c:
        if v > 0:
            xs.append(v)
            ys.append(1.25)
        else:
            zs.append(v)
    xs.extend(ys)
    xs.extend(zs)
    return xs


def of_two_types(x0, c):
    xs = [x0]
    for k, v in enumerate(c):
        if v > 0:
            xs.append(v)
        elif v < -0.5:
            xs.append(k)
    return xs


def pairs_among_them(x0, c):
    xs = [x0]
    for v in c:
        if v > 0:
            xs.append(v)
        elif v < -0.3:
            xs.append((v, True))
    return xs


PROGRAMS = [
    joined,
    newton, newton_list, newton_all, half, popped, popvalue, ordered, total,
    pairs, pairs_list, sets, inserted, best_of, either, ints, reversed_,
    isin, ordered_back, removed, counted, zipped, nested, stacked, branch,
    in_for, bools, cplx,
]


def kinds(value):
    """What Python says a value is, in nests, too."""
    if isinstance(value, fx.Array):
        value = value.result()
    if isinstance(value, list | tuple):
        return type(value)(map(kinds, value))
    return (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else (type(value), repr(value))


def given(program, k, rng):
    c, x0 = rng.normal(size=6), float(abs(rng.normal()))
    if program.__name__.startswith("newton"):
        return (x0 if k % 3 else float(np.sqrt(abs(c[0]))), abs(c))
    return x0, -abs(c) if k % 4 == 3 else c


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_entry_is_of_its_kind(program):
    f, rng = fx.futurize(program), np.random.default_rng(0)
    for k in range(12):
        args = given(program, k, rng)
        assert kinds(f(*args)) == kinds(program(*args)), f.explain()
    assert "is compiled whole" in f.explain(), f.explain()
    assert "plain NumPy" not in f.explain(), f.explain()


@pytest.mark.parametrize("program", [of_two_types, pairs_among_them])
def test_entries_of_another_type_are_told_from_them(program):
    f, rng = fx.futurize(program), np.random.default_rng(0)
    for k in range(12):
        args = given(program, k, rng)
        assert kinds(f(*args)) == kinds(program(*args)), f.explain()


def test_a_list_that_a_plain_call_returned_comes_back_as_one_of_a_run():
    listed, values = Listed(Mixed.of_dtype(np.dtype(np.int64))), [3, np.int64(4), 5]
    assert kinds(listed.fit(values)) == kinds(values)
    rows, flags = listed.columns(values)
    assert kinds(listed.of(iter((rows, flags)))) == kinds(values)
    assert rows.tolist() == [3, 4, 5]
    for others in ([2**70, np.int64(4)], [3, 4.0], (3, 4)):
        assert listed.fit(others) is UNFIT


@pytest.mark.parametrize("program, place", [(newton, None), (half, 0), (popvalue, 0), (sets, 2), (ordered, 0)])
def test_gradients_of_entries(program, place):
    def loss(x0, c):
        found = program(x0, c)
        return (found if place is None else found[place]) * 1.5

    step, rng = 1e-6, np.random.default_rng(1)
    for k in range(2):
        x0, c = given(program, k + 1, rng)
        found = fx.grad(loss, argnums=(0, 1))(x0, c)
        assert np.allclose(found[0], (loss(x0 + step, c) - loss(x0 - step, c)) / (2 * step), atol=1e-5)
        moved = [(loss(x0, c + step * d) - loss(x0, c - step * d)) / (2 * step) for d in np.eye(6)]
        assert np.allclose(found[1], moved, atol=1e-5)
