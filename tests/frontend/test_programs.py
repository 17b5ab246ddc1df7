"""Random programs mean the same, plain and futurized: bit for bit but for the rounding of sums."""

import pytest
from argument_programs import ArgumentWriter
from array_programs import ArrayWriter, LargeWriter, SmoothWriter
from class_programs import ClassWriter
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kind_programs import GrowingWriter, KindWriter
from program_search import disagreement, share_staged, slope_disagreement, written
from programs import Writer
from table_programs import TableWriter

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
# The share of programs that are staged, at least: the others choose between types or aliases by data, which no trace
# can hold, or call what has no translation.
STAGED = {
    Writer: 0.5, ArrayWriter: 0.3, SmoothWriter: 0.25, LargeWriter: 0.4, KindWriter: 0.8, GrowingWriter: 0.7,
    ClassWriter: 0.85, TableWriter: 0.65, ArgumentWriter: 0.4,
}  # fmt: skip
# These take longer.
PROGRAMS = {LargeWriter: 40, GrowingWriter: 60, ClassWriter: 60, TableWriter: 60, ArgumentWriter: 30}


@pytest.mark.parametrize("writer", STAGED)
def test_a_fixed_set_of_programs(writer, tmp_path):
    judge = slope_disagreement if writer is SmoothWriter else disagreement
    assert share_staged(writer, PROGRAMS.get(writer, 150), tmp_path, judge) > STAGED[writer]


@pytest.mark.parametrize("writer", [Writer, KindWriter, GrowingWriter, ClassWriter, TableWriter])
@settings(max_examples=60)
@given(data=st.data())
def test_any_program(writer, tmp_path_factory, data):
    text = writer(lambda n: data.draw(st.integers(0, n - 1))).program(data.draw(st.integers(2, 7)))
    wrong, _ = disagreement(text, tmp_path_factory.mktemp("programs"), seeds=(1, 2))
    assert not wrong, f"{text}\n{wrong}"


@pytest.mark.parametrize("writer", [ArrayWriter, SmoothWriter])
@settings(max_examples=100, phases=[Phase.generate])  # a smaller seed is no smaller program
@given(seed=st.integers(1000, 1 << 62))
def test_any_seed(writer, tmp_path_factory, seed):
    judge = slope_disagreement if writer is SmoothWriter else disagreement
    text = written(seed, writer)
    wrong, _ = judge(text, tmp_path_factory.mktemp("programs"), seeds=(1, 2))
    assert not wrong, f"{text}\n{wrong}"
