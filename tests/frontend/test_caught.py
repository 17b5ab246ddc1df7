"""Handlers of what no operation raises (KeyError, OSError, ...) catch what the program raises where data says so."""

import contextlib

import numpy as np
import pytest

import futurex as fx


class Missing(KeyError):
    pass


class Gone(OSError):
    pass


def not_implemented(x):
    try:
        if x.sum() > 3:
            raise NotImplementedError
        y = x * 2
    except NotImplementedError:
        y = x * 3
    return y


def of_a_base(x):
    try:
        if x.sum() > 3:
            raise FileNotFoundError("there is none")
        y = x * 2
    except (ImportError, OSError):
        y = x * 3
    return y


def with_a_value(x):
    try:
        if x.sum() > 3:
            raise StopIteration(5)
        y = x * 2
    except StopIteration as error:
        y = x * error.value
    return y


def in_a_helper(x):
    def checked(v):
        if v > 2:
            raise Missing(v)
        return v

    try:
        return np.array([checked(v) for v in x])
    except Missing:
        return np.zeros(1)


def in_a_recursion(x):
    def doubled(v, n):
        if v > 100:
            raise RecursionError("too much")
        return v if n == 0 else doubled(v * 2, n - 1)

    try:
        return doubled(x.sum(), 5)
    except RecursionError:
        return x.max()


def behind_a_loop(x):
    try:
        for v in x:
            if v > 2:
                raise StopIteration
            x = x + 1
    except StopIteration:
        pass
    return x


def in_rounds(x):
    y = x
    for k in range(4):
        try:
            y = y * 1.5
            if y.sum() > 20:
                raise NotImplementedError(k)
        except NotImplementedError:
            break
    return y


def suppressed(x):
    with contextlib.suppress(OSError, KeyError):
        y = x * 2
        if y.sum() > 6:
            raise Gone
        y = y * 10
    return y


def in_another_one(x):
    try:
        y = x * 2
        if y.sum() > 12:
            raise Gone
        try:
            if y.sum() > 6:
                raise Missing
        except Missing:
            y = y + 1
        y = y * 10
    except OSError:
        y = y - 1
    else:
        y = y + 100
    return y


def beside_a_generator(x):
    def values():
        for v in x:
            try:
                yield v * 2
            except KeyError:
                yield v

    numbers = values()
    y = x * next(numbers)
    try:
        y = y + next(numbers)
        if y.sum() > 14:
            raise Gone
        y = y * 10
    except OSError:
        y = y - 1
    return y


CASES = (
    not_implemented, of_a_base, with_a_value, in_a_helper, in_a_recursion, behind_a_loop, in_rounds, suppressed,
    in_another_one, beside_a_generator,
)  # fmt: skip


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_what_data_raises_is_caught(function):
    staged = fx.futurize(escape="error")(function)
    for _ in range(2):
        for x in ([1.0, 0.5, 0.25], [1.0, 3.0, 2.5], [1.0, 2.0, 0.5], [3.0, 30.0, 2.5]):
            np.testing.assert_array_equal(staged(np.array(x)), function(np.array(x)))


def test_what_another_handler_is_for_passes_by():
    @fx.futurize
    def function(x):
        try:
            if x.sum() > 3:
                raise Gone("there is none")
            y = x * 2
        except KeyError:
            y = x * 3
        return y

    assert function(np.ones(3)).tolist() == [2.0, 2.0, 2.0]
    for _ in range(3):
        with pytest.raises(Gone, match="there is none"):
            function(np.full(3, 2.0)).result()
