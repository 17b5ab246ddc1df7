"""Functions that call themselves mean what they mean in Python: in trees, compiled, and where they go too deep."""

import numpy as np
import pytest
import recursion_cases
from compare import check, outcome, plain
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from program_search import disagreement, share_staged, written
from recursion_programs import RecursionWriter

import futurex as fx
from futurex.frontend.control import recursion

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("case", recursion_cases.cases, ids=lambda case: case.name)
def test_recursions(case):
    check(case.function, *case.args, staged=case.staged)


STAGED = [case for case in recursion_cases.cases if case.staged is True]


@pytest.mark.parametrize("case", STAGED, ids=lambda case: case.name)
def test_compiled(case, at_once):
    futurized = fx.futurize(case.function)
    for _ in range(4):
        assert outcome(futurized, case.args) == outcome(case.function, case.args), futurized.explain()


def test_the_loop_is_compiled_from_its_first_round_on(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    futurized = fx.futurize(recursion_cases.height_of_a_tree)
    outcome(futurized, (recursion_cases.LEFT, recursion_cases.RIGHT))
    assert "is compiled whole" in futurized.explain()


def test_a_fixed_set_of_functions(tmp_path):
    assert share_staged(RecursionWriter, 30, tmp_path) > 0.5


@settings(max_examples=15, phases=[Phase.generate])  # a smaller seed is no smaller function
@given(seed=st.integers(1000, 1 << 62))
def test_any_function(tmp_path_factory, seed):
    text = written(seed, RecursionWriter)
    wrong, _ = disagreement(text, tmp_path_factory.mktemp("recursions"), seeds=(1, 2))
    assert not wrong, f"{text}\n{wrong}"


def area(p):
    return recursion_cases.a_function_among_the_arguments(p)


def test_derivatives_go_through_the_stack():
    p = np.array([1.3, 2.0])
    slopes = [(area(p + step) - area(p - step)) / 2e-6 for step in np.eye(2) * 1e-6]
    np.testing.assert_allclose(plain(fx.grad(area)(p)), slopes, rtol=1e-6)


def test_many_at_once():
    points = np.array([[1.3, 2.0], [0.1, 5.0], [3.0, 0.0]])
    np.testing.assert_array_equal(plain(fx.vmap(area)(points)), [area(p) for p in points])


def test_a_derivative_does_not_go_deeper_than_the_stack():
    with pytest.raises(RecursionError, match="maximum recursion depth"):
        fx.grad(lambda x: recursion_cases.count(int(x)) * x)(np.float64(700))


def test_a_search_over_all_places_is_given_up_at_its_first_calls(monkeypatch):
    traced = []
    inner = recursion._Recursion.call
    monkeypatch.setattr(recursion._Recursion, "call", lambda self, given: traced.append(1) or inner(self, given))
    futurized = fx.futurize(recursion_cases.a_search_over_all_places)
    np.asarray(futurized(np.array([0, 2, 0, 4, 0, 9, 0, 12]))[0])
    assert "at more than 64 places" in futurized.explain()
    assert len(traced) <= 4 * (recursion.CALLS + 40)
