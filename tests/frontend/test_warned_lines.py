"""``warnings.warn`` of the user's functions names the lines that it names in plain Python."""

import warnings

import numpy as np
import pytest

import futurex as fx


def helper(x, level):
    warnings.warn("odd", stacklevel=level)
    return x * 2


def direct(x, level):
    y = np.tanh(x) + 1
    warnings.warn("direct", RuntimeWarning, level)
    return y * 2


def through_a_helper(x, level):
    y = np.tanh(x) + 1
    z = helper(y, level)
    return z * 2


def warned(function, level, action):
    """What is said in three calls from one line, and of which lines."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        for _ in range(3):
            function(np.ones(3), level)
    own = [each for each in seen if each.category is not ResourceWarning]  # of what others left, collected by now
    return [(each.category, str(each.message), each.filename, each.lineno) for each in own]


@pytest.mark.parametrize("function", [direct, through_a_helper], ids=lambda f: f.__name__)
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("action", ["always", "default"])
def test_it_names_the_same_lines(function, level, action):
    futurized = fx.futurize(function)
    expected = warned(function, level, action)
    assert expected[0][2] == __file__
    globals().pop("__warningregistry__", None)
    for _ in range(2):
        assert warned(futurized, level, "always") == warned(function, level, "always")
    globals().pop("__warningregistry__", None)
    assert warned(futurized, level, action) == expected
    assert "fragment: _warnings.warn" in str(futurized.explain())


def test_a_warning_that_is_an_error():
    futurized = fx.futurize(direct)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            with pytest.raises(RuntimeWarning, match="direct"):
                np.asarray(futurized(np.ones(3), 1))


def divides(x):
    y = x + 0
    return 1 / y


def divides_elsewhere(x):
    return (
        2 / x
    )


def multiplies(x):
    return (x + np.inf) @ x


def casts(x):
    return (x * 1j).astype(float)


def is_a_number(x):
    return np.float64(2) / x[0]


@pytest.mark.parametrize("function", [divides, divides_elsewhere, multiplies, casts, is_a_number])
def test_numpys_own_name_the_lines_of_the_program(function):
    """Python shows a warning once for each line: one of futurex's would be the same for all programs."""
    futurized, x = fx.futurize(function), np.zeros(3)

    def told(function):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            np.asarray(function(x))
        return [(each.category, each.filename, each.lineno) for each in found]

    for _ in range(3):
        assert told(futurized) == told(function) != []
