"""Lists, dicts and objects that branches and rounds bind to names stay the objects that they are."""

import operator
import threading

import identity_cases
import nest_programs
import numpy as np
import pytest
from compare import check
from hypothesis import given, settings
from hypothesis import strategies as st
from identity_programs import IdentityWriter, MovingWriter
from program_search import disagreement, share_staged

import futurex as fx
from futurex.tree import Aval, param
from futurex.tree.node import made_here

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("case", identity_cases.cases, ids=lambda case: case.name)
def test_identities(case):
    check(case.function, *case.args, staged=case.staged)


@pytest.mark.parametrize(("writer", "programs", "share"), [(IdentityWriter, 60, 0.6), (MovingWriter, 20, 0.4)])
def test_a_fixed_set_of_programs(writer, programs, share, tmp_path):
    assert share_staged(writer, programs, tmp_path) > share


def test_a_fixed_set_of_programs_that_return_nests(tmp_path):
    assert share_staged(nest_programs.NestWriter, 40, tmp_path, nest_programs.disagreement) > 0.15


@settings(max_examples=60)
@given(data=st.data())
def test_any_program(tmp_path_factory, data):
    text = IdentityWriter(lambda n: data.draw(st.integers(0, n - 1))).program(data.draw(st.integers(2, 6)))
    wrong, _ = disagreement(text, tmp_path_factory.mktemp("programs"), seeds=(1, 2))
    assert not wrong, f"{text}\n{wrong}"


def test_what_branches_merged_before_a_loop_is_not_returned_beside_what_it_may_be():
    def f(x):
        a, b = [x[0]], [x[1]]
        one = a if x[2] > 0 else b
        best, total = one, 0.0
        for k in range(20):
            total = total + one[0] * k
            if total > 3:
                best = one
        return a, best, total

    for sign in (1, -1, 1):
        x = sign * np.array([0.25, -0.5, 1.0])
        a, best, _ = fx.futurize(f)(x)
        assert (best is a) is (sign == 1)
    alone = fx.futurize(lambda x: f(x)[1:])
    np.testing.assert_array_equal(np.ravel(alone(x)[0]), f(x)[1])
    assert "staged: " in alone.explain()


def test_what_other_threads_make_counts_for_no_trace():
    """A trace that has made many nodes tries no more choices and unrolls no more: nodes of others are not its own."""

    def beside():
        x = param(Aval((2,), np.dtype(float)))
        for _ in range(100):
            x = x + 1.0

    before = made_here()
    other = threading.Thread(target=beside)
    other.start()
    other.join(10)
    assert made_here() == before
    beside()
    assert made_here() >= before + 100


DEFAULT = np.array([3.0, 4.0])
OTHER = DEFAULT.copy()


class Holder:
    held = DEFAULT


def against_a_name_outside(x):
    return x * 2 if x is DEFAULT else x


def against_an_attribute(x):
    return any(each is x for each in [Holder.held]), x * 2


def of_two_names_outside(x):
    return x * 2 if DEFAULT is OTHER else x


def two_if_same(x, y):
    return 2.0 if x is y else 1.0


def in_a_helper(x):
    return two_if_same(x, DEFAULT) * x


def in_a_helper_behind_a_branch(x):
    return two_if_same(OTHER if x.sum() < 0 else x, x) * x


def by_a_function(x):
    return x * (2.0 if operator.is_(x, DEFAULT) else 1.0), operator.is_not(x, DEFAULT)


OUTSIDE = [
    against_a_name_outside, against_an_attribute, of_two_names_outside, in_a_helper, in_a_helper_behind_a_branch,
    by_a_function,
]  # fmt: skip


@pytest.mark.parametrize("function", OUTSIDE)
def test_an_array_from_outside_may_be_an_argument_and_another_name(function, monkeypatch):
    futurized = fx.futurize(function)
    for other in (OTHER, DEFAULT, OTHER):
        monkeypatch.setitem(globals(), "OTHER", other)
        for x in (DEFAULT, OTHER, DEFAULT.copy()) * 3:
            np.testing.assert_array_equal(np.asarray(futurized(x)[0]), function(x)[0])


def of_two_arguments(x, y):
    return x * 2 if x is y else x


def of_a_number(x, y):
    return x * 2 if x is y else x - y


def test_futures_and_numbers_of_numpy_may_be_given_twice():
    one, other = (fx.futurize(np.negative)(np.array([1.0, n])) for n in (2, 3))
    two, number, single = fx.futurize(of_two_arguments), fx.futurize(of_a_number), np.float64(3.0)
    for _ in range(4):
        for x, y in ((one, one), (one, other), (other, other)):
            np.testing.assert_array_equal(two(x, y), np.asarray(x) * (2 if x is y else 1))
        assert [float(number(single, y)) for y in (single, np.float64(3.0))] == [6.0, 0.0]
