"""Numbers in lists, dicts and tuples that objects and global names hold: a step that changes them is staged, once for
each kind, and leaves what plain NumPy leaves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from number_programs import NumberWriter, fixed
from object_programs import held
from program_search import load

import futurex as fx

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"), pytest.mark.filterwarnings("ignore:.*was traced 8 times"),
]  # fmt: skip


def outcome(module, model, function, call):
    """All that a call leaves behind: what it returned or raised, and what is held, with types and identities."""
    x = np.random.default_rng(call).normal(size=3).round(2) * 3
    try:
        module.others(model, call)
        result = function(model, x)
        result = held(result) if not isinstance(result, fx.Array) else held(result.result())
    except Exception as error:
        result = type(error), str(error)
    return held(model, module.SEEN), result


def agrees(text, folder):
    """Does a program mean the same, call after call? Whether it was staged."""
    plain, staged = load(text, folder), load(text, folder)
    function, models = fx.futurize(staged.program), (plain.made(), staged.made())
    for call in range(8):
        expected = outcome(plain, models[0], plain.program, call)
        assert repr(outcome(staged, models[1], function, call)) == _of(staged, plain, expected), f"{text}\ncall {call}"
    return "plain" not in str(function.explain())


def _of(module, other, found):
    """The two modules have classes of their own."""
    return repr(found).replace(other.__name__, module.__name__)


def test_a_fixed_set_of_programs(tmp_path):
    staged = [agrees(text, tmp_path) for text in fixed(80)]
    assert sum(staged) > 0.4 * len(staged)


@settings(max_examples=25)
@given(data=st.data())
def test_any_program(tmp_path_factory, data):
    text = NumberWriter(lambda n: data.draw(st.integers(0, n - 1))).program(data.draw(st.integers(1, 4)))
    agrees(text, tmp_path_factory.mktemp("programs"))
