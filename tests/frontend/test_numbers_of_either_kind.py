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
