"""Python's constructs mean in staged code what they mean in Python: results, messages, prints, the caller's objects."""

import contextlib
import copy
import io

import language_exceptions
import language_loops
import language_objects
import language_values
import numpy as np
import pytest
from compare import bits, is_staged, plain
from language_programs import disagreement

import futurex as fx

CASES = [
    case for room in (language_values, language_loops, language_exceptions, language_objects) for case in room.cases
]


def state(value):
    """A value as data that can be compared, attributes of objects included."""
    value = plain(value)
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(state, value)]
    if isinstance(value, dict):
        return {key: state(entry) for key, entry in value.items()}
    if isinstance(value, int) or type(value).__module__ in ("numpy", "builtins"):
        return value if isinstance(value, int | range | slice | set | type) else bits(value)
    return {name: state(entry) for name, entry in vars(value).items()}


def observed(function, args):
    """All that a call does: its result or exception, what it prints, and what it makes of its arguments."""
    args = copy.deepcopy(args)
    printed = io.StringIO()
    try:
        with np.errstate(all="ignore"), contextlib.redirect_stdout(printed):
            result = ("value", state(function(*args)))
    except Exception as error:
        result = ("error", type(error), str(error))
    return result, state(list(args)), printed.getvalue()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_language(case):
    expected = observed(case.function, case.args)
    futurized = fx.futurize(case.function)
    for _ in range(2):
        assert observed(futurized, case.args) == expected, futurized.explain()
    assert is_staged(futurized, case.args) == case.staged, futurized.explain()


@pytest.mark.parametrize("seed", [*range(10), 390, 1072])
def test_random_programs(seed):
    assert not disagreement(seed, observed, fx.futurize)
