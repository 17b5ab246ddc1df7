"""Compare a futurized function with plain NumPy: values bit for bit, dtypes, arguments after the call, exceptions."""

import copy
import dataclasses

import numpy as np
import pytest

import futurex as fx
from futurex.frontend.errors import StagingError


@dataclasses.dataclass
class Case:
    """A function and arguments to run it on; ``staged`` says whether it must be traced or must run as plain NumPy.

    ``"fragment"``: it must be traced but for calls that stay calls.
    """

    function: object
    args: tuple
    staged: bool | str

    @property
    def name(self):
        return self.function.__name__


class Cases(list):
    """Cases of one module; ``@cases(*args)`` adds one."""

    def __call__(self, *args, staged=True):
        def add(function):
            self.append(Case(function, args, staged))
            return function

        return add

    def signs(self, x, *more, staged=True):
        """A case for `x` and one for its negative: tests of signs go either way."""

        def add(function):
            self(x, *more, staged=staged)(function)
            return self(-x, *more, staged=staged)(function)

        return add


def plain(value):
    """A result with every future replaced by its value."""
    if isinstance(value, fx.Array):
        return value.result()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(entry) for entry in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(plain(entry) for entry in value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            "dataclass": type(value).__name__,
            **{f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)},
        }
    return value


def bits(value):
    """A value as comparable data: structure, kind of number, shape, dtype and bytes."""
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return (type(value).__name__, [bits(entry) for entry in value])
    if isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        array = np.asarray(value)
        if array.dtype.kind in "fc":  # any NaN is as good as another
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        if type(value) is int and array.dtype == object:
            return value  # larger than NumPy's
        return (array.dtype.str, array.shape, array.tobytes())
    return value


_ROUNDING = {"<f8": 1e-10, "<f4": 1e-4, "<f2": 1e-2}
COMPLEX_TOO = {**_ROUNDING, "<c16": 1e-10, "<c8": 1e-4}


def agree(actual, expected, rounding=_ROUNDING, near=1e-300):
    """Equal structure, dtypes and shapes; equal bits, or numbers of the types in ``rounding`` that differ by rounding,
    or by less than ``near``.

    NumPy's order of summation follows the memory layout, which a tree does not keep.
    """
    if isinstance(expected, tuple) and len(expected) == 3 and isinstance(expected[2], bytes):
        if actual == expected:
            return True
        if not isinstance(actual, tuple) or actual[:2] != expected[:2] or expected[0] not in rounding:
            return False
        pair = [np.frombuffer(side[2], side[0]) for side in (actual, expected)]
        return bool(np.allclose(*pair, rtol=rounding[expected[0]], atol=near, equal_nan=True))
    if isinstance(expected, tuple | list):
        same = type(actual) is type(expected) and len(actual) == len(expected)
        return same and all(agree(a, b, rounding, near) for a, b in zip(actual, expected, strict=True))
    if isinstance(expected, dict):
        same = actual.keys() == expected.keys()
        return same and all(agree(actual[key], expected[key], rounding, near) for key in expected)
    return actual == expected


def outcome(function, args):
    """``("value", result)`` or ``("error", type)``, and the arguments afterwards."""
    args = copy.deepcopy(args)
    try:
        with np.errstate(all="ignore"):
            result = ("value", bits(plain(function(*args))))
    except Exception as error:
        result = ("error", type(error))
    return result, bits(list(map(plain, args)))


def check(function, *args, staged=True, calls=2):
    """Run plain and futurized on copies of ``args`` and compare; then look whether it was staged."""
    expected = outcome(function, args)
    futurized = fx.futurize(function)
    for _ in range(calls):
        actual = outcome(futurized, args)
        assert actual == expected, f"{actual} is not {expected}\n{futurized.explain()}"
    assert is_staged(futurized, args) == staged, futurized.explain()
    return futurized


def is_staged(futurized, args):
    """Does the function have a trace for these arguments, and is it without fragments?"""
    try:
        if futurized.trace(*copy.deepcopy(args)).has_log:
            return "fragment"
    except StagingError:
        return False
    except Exception as error:
        kind, value = outcome(futurized.plain, args)[0]
        return kind == "error" and issubclass(value, type(error))  # the error is the function's own
    return True


def compiled(function, *args):
    """Call a function until it runs as one compiled function: the results have NumPy's bits."""
    futurized, expected = fx.futurize(function), function(*args)
    for _ in range(20):
        found = np.asarray(futurized(*args))
        if "runs as one compiled function" in futurized.explain():
            break
    else:
        pytest.fail(futurized.explain())
    found = np.asarray(futurized(*args))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def calls_of_loops(futurized, args):
    """The operations for which the compiled loops of a function, of which there are some, call Python."""
    outcome(futurized, args)
    plan = futurized.trace(*args).plan
    programs = [each.kernel.late for each in plan.instructions if each.kernel.backend == "loops"]
    assert programs
    return [call.node.op for program in programs for call in program.calls]


def settled(value):
    """A result, and those in tuples and lists, waited for."""
    if isinstance(value, tuple | list):
        return type(value)(map(settled, value))
    return value.result() if isinstance(value, fx.Array) else value


def same(found, expected):
    """Are results of one structure and type, and equal but for rounding? Raises where numbers differ."""
    found = settled(found)
    if isinstance(expected, tuple | list):
        return type(found) is type(expected) and all(same(*each) for each in zip(found, expected, strict=True))
    assert type(found) is type(expected)
    if isinstance(expected, str | int) and not isinstance(expected, np.generic):
        return found == expected
    np.testing.assert_allclose(found, expected, rtol=1e-13, strict=isinstance(expected, np.ndarray))
    return True


def equal_to_rounding(actual, expected):
    """Are arrays, and those in tuples, of one shape and type, and equal but for rounding? Raises where they are not."""
    if isinstance(expected, tuple):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected, strict=True):
            equal_to_rounding(*pair)
        return
    actual = np.asarray(actual)
    assert (actual.shape, actual.dtype) == (np.shape(expected), expected.dtype)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
