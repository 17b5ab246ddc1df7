"""Lists, dicts and tuples in each other that global names hold: every change is seen, and looking takes little time."""

import copy

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import variants

PARTS = ([1.5, 2.5], [3.5], {"a": 1.0}, {})
TABLE = {f"row {k}": {"two": (k + 0.5, 1, k * 0.25), "ten": (k + 0.75, 1, [k, k * 0.125])} for k in range(40)}


def parts(x):
    return x * sum(PARTS[0]) + len(PARTS[1]) + 10 * len(PARTS[2]) + 100 * len(PARTS[3])


def entry(x):
    return x * np.asarray(TABLE["row 3"]["two"]) + TABLE["row 3"]["ten"][2][1]


def same_as_plain(futurized):
    for x in np.arange(9.0).reshape(3, 3):
        np.testing.assert_array_equal(np.asarray(futurized(x)), futurized.plain(x))


def test_what_moves_from_one_to_the_next_is_seen():
    futurized = fx.futurize(parts)
    same_as_plain(futurized)
    PARTS[1].insert(0, PARTS[0].pop())
    same_as_plain(futurized)
    PARTS[3]["a"] = PARTS[2].pop("a")
    same_as_plain(futurized)


def another_tuple():
    TABLE["row 3"]["two"] = (-1.0, 1, 2.0)


def another_number():
    TABLE["row 3"]["ten"][2][1] = 7.5


def another_dict():
    TABLE["row 3"] = {"two": (8.0, 1, 2.0), "ten": (1.0, 1, [2, 3.0])}


@pytest.mark.parametrize("change", [another_tuple, another_number, another_dict])
def test_changes_at_every_depth_are_seen(change, monkeypatch):
    monkeypatch.setattr(f"{__name__}.TABLE", copy.deepcopy(TABLE))
    futurized = fx.futurize(entry)
    same_as_plain(futurized)
    change()
    same_as_plain(futurized)


def test_a_table_that_stays_is_not_read_again(monkeypatch):
    read = []
    monkeypatch.setattr(variants, "fingerprint", lambda *args, **kwargs: read.append(args))
    futurized = fx.futurize(entry)
    for _ in range(20):
        same_as_plain(futurized)
    assert not read
