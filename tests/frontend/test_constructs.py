"""Constructs that are easily dropped, refused or mistaken are staged, and mean what they mean in Python."""

import pytest
from compare import is_staged
from construct_cases import cases
from test_language import observed

import futurex as fx


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_constructs(case):
    expected = observed(case.function, case.args)
    futurized = fx.futurize(case.function)
    for _ in range(2):
        assert observed(futurized, case.args) == expected, futurized.explain()
    assert is_staged(futurized, case.args) is case.staged, futurized.explain()
