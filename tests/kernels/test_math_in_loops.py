"""``math`` and powers of Python's ints in compiled loops: Python's bits, and its errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compare import outcome

import futurex as fx

RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=400) * 10 ** RNG.uniform(-8, 2, 400)
UNIT = RNG.uniform(-1, 1, 400)
VALUES = {
    **dict.fromkeys(("sqrt", "log", "log2", "log10"), np.abs(WIDE)), **dict.fromkeys(("asin", "acos", "atanh"), UNIT),
    **dict.fromkeys(("log1p", "acosh"), np.abs(WIDE) + 1),
    **dict.fromkeys(("cbrt", "exp", "exp2", "expm1", "sin", "cos", "tan", "atan"), WIDE),
    **dict.fromkeys(("sinh", "cosh", "tanh", "asinh"), WIDE),
}  # fmt: skip


def of(name):
    function = getattr(math, name)

    def called(values):
        out = np.zeros(len(values))
        for k in range(len(values)):
            out[k] = function(float(values[k]))
        return out

    return called


def weights(image, spread):
    total = 0.0
    for i in range(len(image)):
        for j in range(-2, 3):
            total += math.exp(-(j**2 + (i - 3) ** 3) / spread) * image[i]
    return total


def powers(values):
    total = 0
    for value in values:
        n = int(value)
        total += n**1 + n**2 - n**3 + n**4
    return total


CASES = [
    *((of(name), values) for name, values in VALUES.items()),
    (of("exp"), np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -800.0] * 8)),
    (weights, RNG.normal(size=12) + 3, 2000.0), (powers, RNG.integers(-9000, 9000, 50)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_bits_are_pythons_and_nothing_is_called(case, at_once):
    function, *args = case
    futurized = fx.futurize(function)
    for _ in range(3):
        assert outcome(futurized, args) == outcome(function, args), futurized.explain()
    plan = futurized.trace(*args).plan
    programs = [each.kernel.late for each in plan.instructions if each.kernel.backend == "loops"]
    assert programs
    assert not [call.node.op for program in programs for call in program.calls], futurized.explain()


@pytest.mark.parametrize(
    "function, last",
    [(of("exp"), 1000.0), (of("log"), 0.0), (of("log"), -1.0), (of("sqrt"), -1.0), (of("sin"), np.inf)],
)
def test_what_python_does_beyond_is_done(function, last, at_once):
    values = np.array([1.0] * 40 + [last])
    futurized = fx.futurize(function)
    for _ in range(3):
        assert outcome(futurized, (values,)) == outcome(function, (values,))


def test_powers_that_outgrow_64_bits_are_pythons(at_once):
    values = np.array([1.0] * 40 + [1e6])
    futurized = fx.futurize(powers)
    for _ in range(3):
        assert futurized(values) == powers(values) > 1 << 63
