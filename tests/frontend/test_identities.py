"""Lists, dicts and objects that branches and rounds bind to names stay the objects that they are."""

import identity_cases
import pytest
from compare import check
from hypothesis import given, settings
from hypothesis import strategies as st
from identity_programs import IdentityWriter
from program_search import disagreement, share_staged

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("case", identity_cases.cases, ids=lambda case: case.name)
def test_identities(case):
    check(case.function, *case.args, staged=case.staged)


def test_a_fixed_set_of_programs(tmp_path):
    assert share_staged(IdentityWriter, 60, tmp_path) > 0.6


@settings(max_examples=60)
@given(data=st.data())
def test_any_program(tmp_path_factory, data):
    text = IdentityWriter(lambda n: data.draw(st.integers(0, n - 1))).program(data.draw(st.integers(2, 6)))
    wrong, _ = disagreement(text, tmp_path_factory.mktemp("programs"), seeds=(1, 2))
    assert not wrong, f"{text}\n{wrong}"
