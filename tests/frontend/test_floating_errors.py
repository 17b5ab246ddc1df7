"""Floating-point errors are reported as NumPy's state at the call says: silently, as warnings, as exceptions."""

import threading
import traceback
import warnings

import numpy as np
import pytest

import futurex as fx

ZEROS, BIG = np.zeros(4), np.full(4, 1e300)


def warned(function, *args):
    """The messages of the warnings of a call, whose results are waited for, but those of what is collected."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args)
        np.asarray(result)
    return sorted(str(each.message) for each in caught if each.category is RuntimeWarning)


def quotient(x):
    return 1.0 / x


def product(x):
    return x * x


@pytest.mark.parametrize("function, x", [(quotient, ZEROS), (product, BIG), (np.log, ZEROS - 1), (np.sqrt, ZEROS - 1)])
def test_small_arrays_warn_as_numpy_does(function, x):
    futurized = fx.futurize(lambda x: function(x))
    for _ in range(2):
        assert warned(futurized, x) == warned(function, x) != []
        with np.errstate(all="ignore"):
            assert warned(futurized, x) == []


@pytest.mark.parametrize("function, x", [(quotient, ZEROS), (product, BIG)])
def test_errors_raise_where_the_caller_wants_that(function, x):
    futurized = fx.futurize(function)
    with np.errstate(all="ignore"):
        np.asarray(futurized(x))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        futurized(x)
    calls = []
    with np.errstate(all="call", call=lambda kind, flag: calls.append(kind)):
        np.asarray(futurized(x))
    assert len(calls) == 1


def losses(w, x):
    """Of points at the origin the logarithm is infinite."""
    y = np.exp(x @ w)
    return np.log(y - 1).sum()


def rounds(w, x):
    total = 0.0
    for row in x:
        total = total + 1.0 / (row @ w)
    return total


TRANSFORMS = {"grad": fx.grad, "value_and_grad": fx.value_and_grad, "vmap": lambda f: fx.vmap(f, in_axes=(None, 0))}


@pytest.mark.parametrize("function, rows", [(losses, 3000), (rounds, 7)])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_derivatives_raise_where_the_caller_wants_that(function, rows, transform):
    """Compiled kernels do not look: such a call is computed operation by operation, the first and settled ones."""
    w, x = np.ones(2), np.ones((rows, 2))
    if transform == "vmap":
        x = np.stack([x] * 3)
    futurized = TRANSFORMS[transform](function)
    bad = x.copy()
    bad[..., 1, :] = 0
    for _ in range(3):
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero") as caught:
            futurized(w, bad)
        told = "".join(traceback.format_exception(caught.value))
        assert "np.log(y - 1)" in told or "1.0 / (row @ w)" in told
        for _ in range(20):
            expected = futurized(w, x)
        with np.errstate(divide="raise"):
            found = futurized(w, x)
        one, other = (value if isinstance(value, tuple) else (value,) for value in (found, expected))
        for mine, usual in zip(one, other, strict=True):
            np.testing.assert_allclose(mine, usual, rtol=1e-12)


def test_the_state_of_the_caller_goes_with_a_run_to_other_threads():
    def slow(x):
        for _ in range(30):
            x = np.sqrt(x @ x)
        return np.log(x - np.inf)

    x = np.eye(300) - 0.5
    futurized = fx.futurize(slow)
    with np.errstate(all="ignore"):
        for _ in range(3):
            assert warned(futurized, x) == []


def test_a_block_inside_a_function_silences_its_run():
    def silent(x):
        with np.errstate(divide="ignore"):
            y = 1.0 / x
        return y + 1

    futurized = fx.futurize(silent)
    assert warned(futurized, ZEROS) == warned(silent, ZEROS) == []
    assert "runs as plain NumPy" not in futurized.explain()


def test_a_block_that_raises_runs_as_plain_numpy():
    def strict(x):
        with np.errstate(divide="raise"):
            return 1.0 / x

    futurized = fx.futurize(strict)
    with pytest.raises(FloatingPointError):
        futurized(ZEROS)
    assert "errstate" in futurized.explain()


def test_states_of_threads_do_not_mix():
    futurized, found = fx.futurize(quotient), {}

    def call(name, mode):
        with np.errstate(all=mode):
            try:
                found[name] = np.asarray(futurized(ZEROS)).tolist()
            except FloatingPointError:
                found[name] = "raised"

    threads = [threading.Thread(target=call, args=(k, ("raise", "ignore")[k % 2])) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[k] for k in range(6)] == ["raised", [np.inf] * 4] * 3


def in_a_branch(x):
    if x.sum() > 100:
        return np.full(x.shape, np.nan).astype(int) + np.log(np.zeros(4)) + np.float64(1e300) * 1e300
    return x + 1


def in_a_round(x):
    k = 0
    while x.sum() > 100:
        x = x * 0.5 + np.float32(1e30) * np.float32(1e30) * k
        k += 1
    return x


@pytest.mark.parametrize("function", [in_a_branch, in_a_round])
@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_constants_of_branches_and_rounds_that_do_not_come_warn_of_nothing(function):
    futurized = fx.futurize(function)
    for _ in range(3):
        assert warned(futurized, ZEROS) == warned(function, ZEROS) == []


@pytest.mark.parametrize("function", [in_a_branch, in_a_round])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_warnings_that_are_errors_come_where_numpys_do(function):
    futurized = fx.futurize(function)
    for x in (ZEROS, ZEROS + 100, ZEROS):
        got, expected = (call(each, x) for each in (futurized, function))
        assert got == expected


def call(function, x):
    try:
        return np.asarray(function(x)).tolist()
    except RuntimeWarning as error:
        return str(error)


def of_numbers(a, b):
    return [a / b, a // b, a % b, *divmod(a, b)]


def where_it_can_be(x, b):
    total = float(x.sum())
    if total == 0:
        raise ValueError("nothing")
    return [b / total, b // total, b % total]


@pytest.mark.filterwarnings("error")
def test_quotients_of_pythons_numbers_warn_of_nothing():
    """They are infinite, NaN, or raise, which a line before may do first."""
    numbers = [0.0, -0.0, 3.0, -2.5, 1e308, 1e-308, np.inf, -np.inf, np.nan]
    for function, firsts in ((of_numbers, numbers), (where_it_can_be, [np.ones(3), np.zeros(3), np.full(3, 1e-300)])):
        futurized = fx.futurize(function)
        for a in firsts:
            for b in numbers:
                try:
                    expected = str(function(a, b))
                except (ZeroDivisionError, ValueError) as error:
                    with pytest.raises(type(error), match=str(error)):
                        np.asarray(futurized(a, b))
                else:
                    assert str([float(each) for each in futurized(a, b)]) == expected
