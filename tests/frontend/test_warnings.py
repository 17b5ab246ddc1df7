# ruff: noqa: B028, UP031
"""``warnings.warn`` in staged code: given at every run that comes by, with the values and the line of plain Python."""

import re
import warnings

import numpy as np
import pytest

import futurex as fx

X = np.ones(5)


def told(function, *args):
    """What a call returns or raises, and its warnings with the lines that they name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = np.asarray(function(*args)).tolist()
        except ZeroDivisionError as error:
            result = repr(error)
    return result, [(str(each.message), each.category, each.filename, each.lineno) for each in caught]


def until_large(x, n):
    for k in range(n):
        x = x * 1.1
        if (x > 50).any():
            warnings.warn("large at %d: %s, %5.2f%%" % (k, x[0], x[1]), RuntimeWarning)
            break
        if k % 10 == 0 and x.sum() < 1:
            warnings.warn(f"small {x.sum():.3f}")
            break
    else:
        warnings.warn("not converged", stacklevel=1)
    return x


def at_every_round(x, n):
    for _ in range(n):
        x = x * 1.1
        if x[0] > 3:
            warnings.warn("more than 3")
    return x


def warns_and_fails(x, n):
    for _ in range(n):
        x = x * 1.1
        if x[0] > 3:
            warnings.warn("more than 3")
            1 / (int(x[0]) - 4)
    return x


def stable(x, n):
    for _ in range(n):
        x = x * 0.9
        if (x > 50).any():
            warnings.warn("large", stacklevel=2)
            break
    else:
        warnings.warn("not converged", stacklevel=2)
    return x


def by_a_helper(x, n):
    if x.sum() > 0:
        x = stable(x, n)
    return x


@pytest.mark.parametrize("function", [until_large, at_every_round, warns_and_fails, by_a_helper])
def test_warnings_come_as_in_plain_python(function):
    """Also where no call before has given them."""
    futurized = fx.futurize(function)
    for factor in (0.1, 1.0, 60.0, 2.5, -1.0, 3.7, 60.0):
        assert told(futurized, X * factor, 12) == told(function, X * factor, 12)


@pytest.mark.parametrize("function", [until_large, at_every_round, by_a_helper])
def test_a_function_is_staged_although_it_may_warn(function):
    futurized = fx.futurize(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        futurized(X, 1)
    assert "staged" in futurized.explain()
    assert "runs as plain" not in futurized.explain()


def in_percents(x):
    print("%d of %s|%-8.3e|%g|%i%%" % (int(x[0]), x, x[1], x.sum(), 5))
    if x[0] > 0:
        raise ValueError("%s" % x[0] + "%r" % (2 * x[1],))
    return x


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_texts_of_the_operator_percent_have_the_values_of_the_run(dtype, capsys):
    def printed(function, x):
        with pytest.raises(ValueError) as caught:
            function(x)
        return str(caught.value), capsys.readouterr().out

    futurized = fx.futurize(in_percents)
    for factor in (1, 2.5, 3):
        x = np.arange(1, 4).astype(dtype) * dtype(factor)
        assert printed(futurized, x) == printed(in_percents, x)
    assert "staged" in futurized.explain()


@pytest.mark.parametrize("text", ["%d%d", "%(a)s", "%*d", "%x", "% %"])
def test_other_texts_are_plain_pythons(text):
    def formatted(x):
        return x * len(text % int(x[0]))

    for function in (formatted, fx.futurize(formatted)):
        try:
            assert (np.asarray(function(X)) == len(text % 1)).all()
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                text % 1


def test_a_function_that_warns_has_derivatives():
    """The warnings are those of one plain call."""

    def root(x, n):
        y = x
        for k in range(n):
            y = (y + x / y) / 2
            if np.abs(y * y - x).max() < 1e-12:
                warnings.warn(f"done in {k}", RuntimeWarning)
                break
        else:
            warnings.warn(RuntimeWarning("not done"), stacklevel=1)
        return y.sum()

    x = np.array([2.0, 3.0])
    for n in (20, 3, 20):
        value, slope = fx.value_and_grad(root)(x, n)
        assert np.allclose(value, root(x, n))
        assert np.allclose(slope, 0.5 / np.sqrt(x), atol=1e-3)
        for derivative in (fx.grad(root), fx.value_and_grad(root)):
            assert told(lambda x, d=derivative, n=n: d(x, n)[0], x)[1] == told(root, x, n)[1]


def guarded(x, low, high):
    if np.any(low >= high):
        raise ValueError("no width")
    return np.log(x / (high - low))


@pytest.mark.parametrize("n", [3, 1000])
@pytest.mark.parametrize("mode", ["background", "wait"])
def test_a_check_comes_before_what_it_keeps_from_warnings(n, mode, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", mode)
    f, x = fx.futurize(guarded), np.ones(n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(6):
            if k % 2:
                with pytest.raises(ValueError, match="no width"):
                    f(x, x, x).result()
            else:
                np.testing.assert_array_equal(f(x, x, 2 * x), np.zeros(n))


def test_so_it_does_where_numbers_of_python_are_divided():
    def framed(left, right):
        if left >= right:
            raise ValueError("no width")
        return np.array([[2.0 / (right - left), 0.0], [0.0, 1.0]])

    f = fx.futurize(framed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for right in (3, 4, 5, 6):
            assert f(2, right).tolist() == framed(2, right).tolist()
        for _ in range(4):
            with pytest.raises(ValueError, match="no width"):
                f(3, 3).result()
