"""Records of ``logging``, and whatever else looks for its caller, name the user's lines, whoever makes the call."""

import collections
import logging
import warnings

import numpy as np
import pytest

import futurex as fx

LOG = logging.getLogger("of a program")
X = np.arange(4.0)


class Noted(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append((record.pathname, record.lineno, record.funcName, record.module, record.getMessage()))


@pytest.fixture
def noted():
    handler, LOG.propagate = Noted(), False
    LOG.addHandler(handler)
    LOG.setLevel(logging.DEBUG)
    yield handler
    LOG.removeHandler(handler)


def a_text(x):
    LOG.info("begins")
    return x * 2


def a_value(x):
    LOG.warning("the sum is %.3f", x.sum())
    return x * 2


def of_a_helper(x):
    def told(y):
        LOG.error("%s", "in a helper")
        return y + 1

    return told(x) * 2


def told_of_its_caller(text):
    LOG.info(text, stacklevel=2)


def of_the_caller(x):
    told_of_its_caller("for another one")
    LOG.debug("own", stacklevel=1)
    return x + 1


def of_two_callers(x):
    return of_the_caller(x) + of_the_caller(x)


def in_a_branch(x):
    if x.sum() > 0:
        LOG.log(logging.INFO, "positive")
    return x + 1


def in_rounds(x):
    for k in range(3):
        x = x * 1.5
        LOG.debug("%d: %f", k, x.max())
    return x


def behind_a_fragment(x):
    values = np.linalg.eigvals(x.reshape(2, 2))
    LOG.info("found")
    return values


def not_staged(x):
    logging.getLogger("of a program").info("%s", x.flags)
    return x + 1


@pytest.mark.parametrize(
    "function", [a_text, a_value, of_a_helper, of_the_caller, of_two_callers, in_a_branch, in_rounds,
                 behind_a_fragment, not_staged],
)  # fmt: skip
def test_records_name_the_users_lines(function, noted):
    f = fx.futurize(function)
    function(X)
    expected = noted.records[:]
    assert expected
    for _ in range(5):
        noted.records.clear()
        assert np.array_equal(f(X), function(X))
        assert noted.records == expected * 2


def test_types_that_a_function_makes_are_of_its_module():
    def made(x):
        return x.sum(), collections.namedtuple("Pair", "a b").__module__

    f = fx.futurize(made)
    for _ in range(4):
        assert f(X)[1] == __name__


def test_what_a_library_warns_of_a_line_is_noted_in_its_module():
    def made(x):
        return np.linalg.eigvals(x.reshape(2, 2)), statistics_of("a", x)

    namespace = {"__name__": "of a library", "warnings": warnings}
    text = "def statistics_of(name, x):\n    warnings.warn(name, stacklevel=2)\n    return float(x.flat[0])"
    exec(compile(text, np.__file__.replace("numpy", "another", 1), "exec"), namespace)
    statistics_of = namespace["statistics_of"]
    f = fx.futurize(made)
    for call in (made, f, f, f, f):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            call(X), call(X)
        assert [(each.filename, each.lineno) for each in seen] == [(__file__, made.__code__.co_firstlineno + 1)]


def test_errors_have_each_line_once(noted):
    def refused(x):
        LOG.info("in vain", 5, extra={"message": x.sum()})
        return x + 1

    f = fx.futurize(refused)
    for _ in range(4):
        with pytest.raises(KeyError, match="overwrite 'message'") as found:
            np.asarray(f(X))
        assert [entry.name for entry in found.traceback].count("refused") == 1
        assert not any("warned" in str(entry.path) for entry in found.traceback)
