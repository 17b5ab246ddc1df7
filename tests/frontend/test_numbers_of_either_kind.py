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
