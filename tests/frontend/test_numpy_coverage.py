"""Every array function of NumPy means in a futurized function what it means in NumPy; most are staged."""

from pathlib import Path

import numpy as np
import pytest
from numpy_cases import CASES, EXCLUDED, ROUNDED, VARIANTS, arguments, varied
from numpy_judge import judge
from numpy_page import page

#: How much of NumPy must be staged, and not run as a plain call. It only ever grows.
STAGED_NAMES = 0.96


@pytest.fixture(scope="module")
def verdicts():
    return {name: [judge(code, arguments, rounded=name in ROUNDED) for code in codes] for name, codes in CASES.items()}


def test_every_name_of_numpy_is_judged_or_excluded_for_a_reason():
    names = [name for name in np.__all__ if callable(getattr(np, name)) and not is_dtype(getattr(np, name))]
    assert [name for name in names if name not in CASES and name not in EXCLUDED] == []
    assert [name for name in (*CASES, *EXCLUDED) if not hasattr(np, name)] == []
    assert not CASES.keys() & EXCLUDED.keys()


def is_dtype(value):
    return isinstance(value, type) and issubclass(value, np.generic)


def test_no_call_gives_another_result_than_numpy(verdicts):
    wrong = [each for found in verdicts.values() for each in found if not each.equal]
    assert not wrong, "\n".join(f"{each.code}: {each.detail}" for each in wrong)


@pytest.mark.parametrize("variant", VARIANTS)
def test_nor_on_other_arrays(variant):
    arrays = varied(VARIANTS[variant])
    found = [judge(code, arrays, rounded=True) for codes in CASES.values() for code in codes]
    wrong = [each for each in found if not each.equal]
    assert not wrong, "\n".join(f"{each.code}: {each.detail}" for each in wrong)


@pytest.mark.parametrize("then", ["writes into the result", "writes into the arguments"])
def test_views_are_views_and_copies_are_copies(then):
    found = [judge(code, arguments, rounded=True, then=then) for codes in CASES.values() for code in codes]
    wrong = [each for each in found if not each.equal]
    assert not wrong, "\n".join(f"{each.code}: {each.detail}" for each in wrong)


def test_most_names_are_staged(verdicts):
    partly = [name for name, found in verdicts.items() if not all(each.staged is True for each in found)]
    assert len(partly) <= (1 - STAGED_NAMES) * len(CASES), f"plain: {partly}"


@pytest.mark.skipif(not hasattr(np, "row_stack"), reason="the page is that of NumPy 2.4")
def test_the_page_of_the_documentation_is_current(verdicts):
    written = Path(__file__).resolve().parents[2] / "docs" / "numpy.md"
    assert written.read_text() == page(verdicts), "run `python tools/numpy_table.py`"
