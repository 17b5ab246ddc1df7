"""Kernels of Python's own numbers that are written as expressions: values, types and errors are those of the call."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from futurex.kernels.numpy_ import _OF_FLOATS, NumpyBackend, _plain
from futurex.ops.control import Failure
from futurex.tree import Aval, apply, const, param

NUMBERS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.0]))
FLOAT = Aval((), np.dtype(float), weak=True)


def outcome(function):
    """What comes of a call: type and bits, or the type of the error and what it says."""
    try:
        with np.errstate(all="ignore"):
            value = function()
    except (ArithmeticError, ValueError) as error:
        return type(error), str(error)
    return type(value), np.asarray(value).tobytes() if value == value else "nan"


def both(node, *values):
    """The outcomes of the expression and of the reference kernel."""
    kernel, plain = NumpyBackend().claim(node, 1), _plain(node)
    names = [f"x{k}" for k in range(len(values))]
    known = {"call": kernel.call, **dict(zip(names, values, strict=True))}
    text = kernel.written.format(*names, call=f"call(None, {', '.join(names)})")
    return outcome(lambda: eval(text, known)), outcome(lambda: plain(None, *values))


@pytest.mark.parametrize("name", sorted(_OF_FLOATS))
@given(x=NUMBERS, y=NUMBERS)
def test_an_expression_gives_what_the_call_gives(name, x, y):
    values = (x,) if name in ("negative", "absolute") else (x, y)
    for known in ((), (0,), (1,)):
        nodes = [const(value) if k in known else param(FLOAT) for k, value in enumerate(values)]
        if name == "absolute" and known:
            continue
        node = apply(name, *nodes)
        if node.op == name and NumpyBackend().claim(node, 1).written:
            written, called = both(node, *values)
            assert written == called


X = param(FLOAT)


@pytest.mark.parametrize(
    ("base", "exponent", "real"),
    [
        (X, const(0.5), False), (X, param(FLOAT), False), (const(-2.0), X, False), (X, const(math.inf), False),
        (X, const(2.0), True), (X, const(3), True), (const(0.9), X, True), (apply("absolute", X), const(0.5), True),
    ],
)  # fmt: skip
def test_roots_of_what_may_be_negative_are_called(base, exponent, real):
    assert bool(NumpyBackend().claim(apply("scalar_power", base, exponent), 1).written) == real


@pytest.mark.parametrize("ok", [True, False, np.True_, np.False_, np.array(False)])
def test_a_check_is_called_where_it_fails(ok):
    node = apply("check", param(Aval((), np.dtype(bool))), failure=Failure(ValueError, ("no",)))
    written, called = both(node, ok)
    assert (written[0] is ValueError) == (called[0] is ValueError) == (not ok)
