"""Exceptions that runs raise are what Python raises: with their attributes, notes, and what they came from."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import futurex as fx


class Refused(ValueError):
    def __init__(self, said, code=3, *, at=None):
        super().__init__(said)
        self.code, self.at = code, at


class Told(Exception):
    def __init__(self):
        super().__init__("told")
        self.lines = []


class Narrow(Exception):
    __slots__ = ("place",)


def attribute(x):
    y = x * 2
    if y.sum() > 10:
        error = Refused("much")
        error.code = float(y.sum())
        raise error
    return y + 1


def slot(x):
    if x.sum() > 10:
        error = Narrow("much")
        error.place = 4
        raise error
    return x + 1


def other_arguments(x):
    if x.sum() > 10:
        error = Refused("much")
        error.args = ("more", 2)
        raise error
    return x + 1


def filled(x):
    error = Told()
    error.lines.append("a line")
    if x.sum() > 10:
        raise error
    return x + 1


def noted(x):
    if x.sum() > 10:
        error = ValueError("much")
        error.add_note("a note")
        raise error
    return x + 1


def caused(x):
    if x.sum() > 10:
        raise ValueError("much") from KeyError("of this")
    return x + 1


def caused_by_a_class(x):
    if x.sum() > 10:
        raise ValueError from LookupError
    return x + 1


def handling(x):
    try:
        {}["a"]
    except KeyError:
        if x.sum() > 10:
            raise ValueError("much")  # noqa: B904
    return x + 1


def handled(x):
    try:
        {}["a"]
    except KeyError as error:
        if x.sum() > 10:
            raise Refused("much", 5) from error
    return x + 1


def from_nothing(x):
    try:
        {}["a"]
    except KeyError:
        if x.sum() > 10:
            raise ValueError("much") from None
    return x + 1


def by_name(x):
    y = x * 2
    if y.sum() > 10:
        raise Refused(f"{y.sum():.2f}", at=x[0], code=int(y[0]))
    return y + 1


def with_shapes(x):
    if x.sum() > 10:
        raise Refused(x.shape, ("of", 2.5, None, (True, x.ndim)))
    return x + 1


def of_pythons(x):
    if x.sum() > 10:
        raise OSError(2, "there is none", "of this name")
    return x + 1


def of_pythons_by_name(x):
    if x.sum() > 10:
        raise ImportError("there is none", name="of this", path="there")
    return x + 1


def told_of(error):
    if error is None:
        return None
    own = {name: value for name, value in vars(error).items() if not name.startswith("__")}
    own["notes"] = [note for note in getattr(error, "__notes__", ()) if not note.startswith("in ")]
    others = [getattr(error, name, None) for name in ("place", "filename", "name", "path")]
    said = type(error), str(error), error.args, own, others, error.__suppress_context__
    return said, told_of(error.__cause__), told_of(error.__context__)


CASES = (
    attribute, slot, other_arguments, filled, noted, caused, caused_by_a_class, handling, handled, from_nothing,
    by_name, with_shapes, of_pythons, of_pythons_by_name,
)  # fmt: skip


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_an_exception_is_all_that_it_is_in_python(function):
    staged = fx.futurize(escape="error")(function)
    large = np.full(3, 5.0)
    with pytest.raises(Exception) as wanted:
        function(large)
    np.testing.assert_array_equal(staged(np.ones(3)), function(np.ones(3)))
    for _ in range(3):
        with pytest.raises(type(wanted.value)) as raised:
            np.asarray(staged(large))
        assert told_of(raised.value) == told_of(wanted.value)


def factorised(a):
    try:
        root = np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        raise ValueError("not positive definite")  # noqa: B904
    return root * 2


def factorised_in_a_helper(a):
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        _refuse()


def _refuse():
    raise KeyError("not positive definite")


def asserted(a):
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        assert a.sum() > 0, "not positive definite"
    return a * 2


HANDLERS = (factorised, factorised_in_a_helper, asserted)


@pytest.mark.parametrize("function", HANDLERS, ids=lambda function: function.__name__)
def test_what_the_handler_of_a_factorization_raises_came_from_its_failure(function):
    staged = fx.futurize(escape="error")(function)
    np.testing.assert_array_equal(staged(np.eye(3)), function(np.eye(3)))
    for _ in range(3):
        with pytest.raises((ValueError, KeyError, AssertionError)) as raised:
            np.asarray(staged(-np.eye(3)))
        assert isinstance(raised.value.__context__, np.linalg.LinAlgError)


def test_an_exception_with_arguments_by_name_is_made_where_nothing_can_be_run_again():
    with pytest.raises(Refused, match="300") as raised:
        fx.grad(lambda x: by_name(x).sum())(np.full(3, 50.0)).result()
    assert (raised.value.code, raised.value.at) == (100, 50.0)


def test_exceptions_of_values_print_as_what_can_be_executed():
    graph = fx.futurize(by_name).graph(np.ones(3))
    assert " Value(" not in str(graph)
    assert str(pickle.loads(pickle.dumps(graph))) == str(graph)


def written(x):
    x += 1
    if x.sum() > 10:
        raise ValueError("much")
    return x.sum()


def test_what_is_raised_while_a_call_is_made_again_came_from_nothing():
    staged = fx.futurize(written)
    for _ in range(4):
        staged(np.ones(3))
    for _ in range(4):
        with pytest.raises(ValueError, match="much") as raised:
            staged(np.full(3, 5.0))
        assert raised.value.__context__ is None


class Own(np.ndarray):
    pass


@pytest.mark.parametrize("given", [np.ones(3).view(Own), np.ma.array([1.0])], ids=["own", "masked"])
def test_what_is_raised_in_a_call_with_arguments_that_are_not_traced_came_from_nothing(given):
    @fx.futurize
    def function(x, given):
        if x.sum() > 10:
            raise ValueError("much")
        return x + 1

    with pytest.raises(ValueError, match="much") as raised:
        function(np.full(3, 5.0), given)
    assert raised.value.__context__ is None


def test_an_optimised_interpreter_leaves_assertions_out(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np, futurex as fx\n\n\n"
        "def function(x):\n    assert x.sum() < 3, 'much'\n    return x * 2\n\n\n"
        "staged = fx.futurize(escape='error')(function)\n"
        "for _ in range(3):\n    print(staged(np.ones(4)).tolist())\n"
    )
    run = subprocess.run(
        [sys.executable, "-O", str(program)], capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(fx.__file__).parents[1])},
    )  # fmt: skip
    assert run.stdout.split("\n")[:3] == ["[2.0, 2.0, 2.0, 2.0]"] * 3, run.stderr
