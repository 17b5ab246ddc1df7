"""What objects hold after calls of random programs is what plain NumPy leaves, and which of it is one object."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from object_programs import ObjectWriter, held
from program_search import load

import futurex as fx

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def agrees(text, folder):
    """Does a program mean the same, call after call? Whether it was staged."""
    module = load(text, folder)
    function, plain, staged = fx.futurize(module.program), module.made(), module.made()
    for number in range(4):
        x = np.random.default_rng(number).normal(size=3).round(2)
        for model in (plain, staged) if number == 2 else ():  # what somebody else does between two calls
            model.a, model.d, model.s = model.a.copy(), {**model.d}, 1.0
        given_ = x.copy(), x.copy()
        expected = held(plain, module.program(plain, given_[0]), given_[0])
        assert held(staged, function(staged, given_[1]), given_[1]) == expected, f"{text}\ncall {number}"
    return "plain" not in str(function.explain())


def test_a_fixed_set_of_programs(tmp_path):
    writers = [ObjectWriter(random.Random(seed).randrange) for seed in range(60)]
    staged = [agrees(writer.program(2 + k % 5), tmp_path) for k, writer in enumerate(writers)]
    assert sum(staged) > 0.4 * len(staged)


@settings(max_examples=25)
@given(data=st.data())
def test_any_program(tmp_path_factory, data):
    text = ObjectWriter(lambda n: data.draw(st.integers(0, n - 1))).program(data.draw(st.integers(2, 4)))
    agrees(text, tmp_path_factory.mktemp("programs"))
