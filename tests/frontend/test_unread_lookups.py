"""An index out of bounds raises where NumPy raises, also where nobody reads what was looked up."""

import numpy as np
import pytest
from compare import check

import futurex as fx


def alone(table, places):
    found = table[places[2]]  # noqa: F841


def by_an_array(table, places):
    found = table[places]  # noqa: F841
    return table.sum()


def a_row(table, places):
    row = table.reshape(-1, 1)[places[2]]  # noqa: F841
    return table.sum()


def a_row_of_which_nothing_is_left(table, places):
    return table.reshape(-1, 1)[places[2]][:0].sum()


def a_row_that_another_name_reads(table, places):
    row = table.reshape(-1, 1)[places[1]]
    other = table.reshape(-1, 1)[places[2]]  # noqa: F841
    return row[0] + table[places[0]]


def assigned_in_a_branch(table, places):
    if table.sum() > 0:
        found = table[places][1:]  # noqa: F841
    else:
        pass


def one_branch_of_two(table, places):
    if table.sum() > 0:
        row = table.reshape(-1, 1)[places[2]]
    else:
        row = table[:1]  # noqa: F841
    return table.sum()


def assigned_in_a_loop(table, places):
    for k in range(3):
        found = table[places[k]]  # noqa: F841
    return table.sum()


def assigned_in_a_while_loop(table, places):
    k = 0
    while k < places.size:
        found = table[places[k]]  # noqa: F841
        k += 1
    return table.sum()


def a_total_that_nobody_reads(table, places):
    total = 0.0
    for k in places:
        total += table[k]
    return table.sum()


def a_branch_of_a_loop(table, places):
    for k in range(3):
        found = table[places[k]] if places[k] > 1 else 0.0  # noqa: F841
    return table.sum()


def rows_of_a_loop(table, places):
    rows, total = table.reshape(-1, 1), 0.0
    for k in places:
        row = rows[k]
        total = total + row[0]
    return total


PROGRAMS = [
    alone, by_an_array, a_row, a_row_of_which_nothing_is_left, a_row_that_another_name_reads, assigned_in_a_branch,
    one_branch_of_two, assigned_in_a_loop, assigned_in_a_while_loop, a_total_that_nobody_reads, a_branch_of_a_loop,
    rows_of_a_loop,
]  # fmt: skip


@pytest.mark.parametrize("last", [1, 7, -4], ids=["inside", "behind", "before"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_lookups_that_nobody_reads(program, last):
    check(program, np.array([0.5, 1.0, 2.0]), np.array([0, 1, last]))


def test_a_gradient_raises_for_a_lookup_that_nobody_reads():
    gradient = fx.grad(assigned_in_a_loop)
    np.testing.assert_array_equal(gradient(np.ones(3), np.array([0, 1, 2])), np.ones(3))
    with pytest.raises(IndexError):
        gradient(np.ones(3), np.array([0, 1, 3])).result()
