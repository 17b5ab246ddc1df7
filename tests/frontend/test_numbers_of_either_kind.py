"""Numbers that are Python's in some branch and NumPy's in another, where the two give other results."""

import numpy as np
import pytest
from compare import bits, plain

import futurex as fx

CASES = {
    "a decimal fraction": lambda t, s, n: round(t, 2),
    "and what is made of it": lambda t, s, n: round(t, 2) + 1.0,
    "tens": lambda t, s, n: round(n, -1),
    "a quotient and a rest": lambda t, s, n: divmod(t, 2),
    "quotients of arrays": lambda t, s, n: np.divmod(s, t),
    "a bound": lambda t, s, n: np.clip(s, 0, t),
    "a bound of a method": lambda t, s, n: s.clip(0, t),
    "a bound of small integers": lambda t, s, n: np.clip(s.astype(np.int8), 0, n),
    "one of several": lambda t, s, n: np.choose([0, 1], [s, t]),
    "an end": lambda t, s, n: np.linspace(s, t, 3),
    "an end of powers": lambda t, s, n: np.logspace(np.float32(0), t, 3),
    "a share": lambda t, s, n: np.quantile(s, t / 9),
    "bins": lambda t, s, n: np.histogram(s, bins=2, range=(0, t))[1],
    "a type": lambda t, s, n: np.ones(2, np.result_type(s, t)),
}


@pytest.mark.parametrize("name", CASES)
def test_either_kind(name):
    case = CASES[name]

    def either(x, s, t, n):
        t = x[0] if x[1] > 0 else t
        n = np.int64(14) if x[1] > 0 else n
        return case(t, s, n)

    f, s = fx.futurize(either), np.array([0.5, 1.5], np.float32)
    for x, t in (([2.675, 1.0], 2.675), ([2.675, -1.0], 2.675), ([1.5, 1.0], 2.0), ([1.5, -1.0], 2.675)) * 2:
        found, expected = plain(f(np.array(x), s, t, 25)), either(np.array(x), s, t, 25)
        assert type(found) is type(expected), f.explain()
        assert bits(found) == bits(expected), f.explain()
        if isinstance(expected, tuple):
            assert list(map(type, found)) == list(map(type, expected))


def texts(x, t):
    t = x[0] if x[1] > 0 else t
    print(f"{t:.2f} {t}", "%.1f" % t, str(t), "{:>8}".format(t))  # noqa: UP032, UP031
    return t


def raised(x, t):
    t = max(t, x[0])
    if t > 2:
        raise ValueError(f"too large: {t:.3f}")
    return t


@pytest.mark.parametrize("program", [texts, raised])
def test_texts_of_either_kind(program, capsys):
    """Python's and NumPy's numbers print alike, and what is returned is the one or the other."""
    f = fx.futurize(program)
    for x, t in (([2.5, 1.0], 1.75), ([1.5, -1.0], 1.75), ([1.5, 1.0], 1.75), ([0.1, 0.1], 0.2)) * 2:
        results = []
        for each in (program, f):
            try:
                value = plain(each(np.array(x), t))
                results.append((type(value), value))
            except ValueError as error:
                results.append(str(error))
            results.append(capsys.readouterr().out)
        assert results[:2] == results[2:], f.explain()
    assert "plain NumPy" not in f.explain().replace("until it is there calls run as plain NumPy", "")


def checked(value):
    if value > 2:
        raise ValueError("too large")
    return value


def in_a_try(x, t):
    t = max(t, x[0])
    try:
        t = checked(t)
    except LookupError:
        t = 0.0
    return t


def test_where_the_two_cannot_be_told_apart_numpy_is_asked():
    """Calls are traced with Python's and NumPy's numbers apart; where that is refused, they are as they would be."""
    f = fx.futurize(in_a_try)
    for x, t in ((1.5, 1.75), (1.9, 1.75), (1.0, 2.5), (1.5, 1.75)):
        results = []
        for each in (in_a_try, f):
            try:
                results.append(repr(plain(each(np.array([x]), t))))
            except ValueError as error:
                results.append(str(error))
        assert results[0] == results[1], f.explain()


def part(row, t):
    if row.sum() < 0:
        return 0.0
    return row[0] * t


def stacked(x, t):
    found = []
    for k in range(len(x)):
        found.append(part(x[k], t))
    return np.array(found)


def with_the_last(x, t):
    found = [1.5]
    for k in range(len(x)):
        found.append(part(x[k], t) + found[-1])
    return np.array(found)


def listed(x, t):
    found = []
    for k in range(len(x)):
        found.append(part(x[k], t))
    return found


def beside_single(x, t):
    found = []
    for k in range(len(x)):
        found.append(part(x[k], t))
    return np.float32(2) * found[0], sum(found)


def asked(x, t):
    found, count = [1.5], 0
    for k in range(len(x)):
        count += isinstance(found[-1], np.float64)
        found.append(part(x[k], t))
    return np.array(found), count


def in_tuples(x, t):
    found = []
    for k in range(len(x)):
        found.append((part(x[k], t), k))
    return sum(a * b for a, b in found), found[2][0]


@pytest.mark.parametrize("program", [stacked, with_the_last, listed, beside_single, asked, in_tuples])
@pytest.mark.parametrize("apart", [False, True])
def test_entries_of_either_kind(program, apart):
    """Lists have them as rows of one array, as long as nobody tells them apart; ``apart``: something else does."""

    def whole(x, t):
        number = part(x[0], t)
        return (program(x, t), number) if apart else program(x, t)

    f, rng = fx.futurize(whole), np.random.default_rng(0)
    for k in range(8):
        x = rng.normal(size=(20, 3))
        x = x if k % 3 else abs(x)
        found, expected = plain(f(x, 2.0)), whole(x, 2.0)
        assert repr(found) == repr(expected), f.explain()
    assert "plain NumPy" not in f.explain()
    if program is stacked or program is with_the_last:
        assert "unrolled" not in f.explain(), f.explain()


class Held:
    def __init__(self, value):
        self.value = value


def in_an_object(x, t):
    held, k = Held(t), 0
    while k < 3 and x[0, 0] > 1:
        k += 1
        held.value = x[0, 1]
    return 0.5 + held.value


def in_a_dict(x, t):
    held = {"value": t}
    for k in range(len(x)):
        if x[k, 0] > 1:
            held["value"] = x[k, 1] * 2
    return held["value"], np.float32(1) * held["value"]


def in_a_list(x, t):
    held = [t, 1.0]
    for k in range(len(x)):
        if x[k, 0] > 1:
            held[0] = x[k, 1] * 2
    return held, 2 * held[0]


@pytest.mark.parametrize("program", [in_an_object, in_a_dict, in_a_list])
def test_what_rounds_leave_in_objects(program):
    f, rng = fx.futurize(program), np.random.default_rng(0)
    for k in range(8):
        x = rng.normal(size=(20, 3)) - (0.0 if k % 2 else 9.0)
        x[0, 0] += 3.0 * (k % 2)
        found, expected = plain(f(x, 2.0)), program(x, 2.0)
        assert repr(found) == repr(expected), f.explain()
    assert "plain NumPy" not in f.explain(), f.explain()
