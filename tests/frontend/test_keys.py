"""Keys of calls: long rows of numbers and texts are looked at all at once, and have the key of their entries."""

import pytest

from futurex.frontend import keys
from futurex.frontend.keys import call_key
from futurex.frontend.number_lists import flat_arguments

ROWS = [
    [0.5] * 40, [1] * 40, [True] * 40, ["a"] * 40, [b"a"] * 40, [1j] * 40, list(range(40)), [1.0] * 39 + [1],
    [1] * 39 + [True], [None] * 40, [[1.0] * 40] * 40, (0.5,) * 40, (0.5,) * 41, [], [1.0, 2.0],
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{type(row).__name__}-{len(row)}-{str(row[-1:])[:9]}")
def test_a_row_has_the_key_and_leaves_of_its_entries(row, monkeypatch):
    leaves = []
    key = call_key((row, 2), {"row": row}, leaves)
    monkeypatch.setattr(keys, "_FEWEST", 1 << 30)
    one_by_one = []
    assert key == call_key((row, 2), {"row": row}, one_by_one)
    assert list(map(type, key)) == list(map(type, call_key((row, 2), {"row": row}, [])))
    found, _ = flat_arguments((row, 2), {"row": row})
    assert list(map(id, leaves)) == list(map(id, one_by_one)) == list(map(id, found))


def test_rows_that_compare_equal_have_keys_of_their_own():
    made = [call_key((row,), {}, []) for row in ROWS]
    assert len(set(made)) == len(ROWS)
