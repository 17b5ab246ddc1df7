"""Views that a call returns: NumPy makes a new object each time, and all see the same elements."""

import numpy as np
import pytest

import futurex as fx
from futurex.tree.pytree import flatten


def of_an_argument(x):
    return [x[:2], x[:2]], (x.T, x.T), {"a": x[...], "b": x[...], "c": x[:], "d": x}


def of_a_new_array(x):
    y = x + 1
    return y, y[:3], y[:3], y.reshape(2, 3), y.reshape(2, 3), y.view(), y.view(), np.squeeze(y)


def under_two_names(x):
    y = x + 1
    a = y[:3]
    return {"a": a, "b": [a, y[:3]], "c": np.asarray(a)}


def made_by_a_helper(x):
    def half(v):
        return v[:3]

    a = half(x)
    return a, half(x), a


def of_the_rows(x):
    y = (x + 1).reshape(2, 3)
    return list(y), [row[:] for row in y], y[1]


def written_in_a_loop(x):
    y = x + 1
    a = y[1:]
    b = a
    while y[0] < 50:
        y[0] += 9
        a[0] += 1
    return a, b, y[1:], y


def written_in_a_branch(x):
    y = x + 1
    a = y[1:]
    b = a
    if y[1] > 0:
        a[0] = 3
    else:
        b[0] = 5
    return a, b, y[1:], y


def chosen_in_branches(x):
    a, b, c = x[:3], x[:3], x[3:]
    d = a if x[1] > 0 else c
    e = b if x[1] > 0 else c
    return a, b, c, d, e


def of_what_a_branch_chose(x):
    y, z = x + 1, x * 2
    a = y if x[1] > 0 else z
    b = a[1:]
    return b, b, a[1:], y[1:], z[1:], a, y


def changing_places_in_a_loop(x):
    a, b = x[:3], x[:3]
    for _ in range(int(x[3])):
        a, b = b, a
    return a, b, x[:3]


def chosen_in_rounds(x):
    m = x.reshape(3, 2)
    best = m[0]
    for i in range(3):
        row = m[i]
        if row.sum() > best.sum():
            best = row
    return best, best, m, m[2]


def where_the_run_says(x):
    y, i = x + 1, int(x[1])
    a = y[i:]
    return y, a, a, y[i:], y.reshape(3, 2)[i]


def of_what_a_mask_picks(x):
    y = x[x > 0]
    a = y[:-1]
    return a, a, y[:-1], y[:2], y[:2], y[::-1], y


PROGRAMS = [
    of_an_argument, of_a_new_array, under_two_names, made_by_a_helper, of_the_rows, written_in_a_loop,
    written_in_a_branch, chosen_in_branches, of_what_a_branch_chose, changing_places_in_a_loop, chosen_in_rounds,
    where_the_run_says, of_what_a_mask_picks,
]  # fmt: skip


def who_and_where(result):
    """Which arrays of a result are one object, which share elements, and their elements."""
    found = flatten(result)[0]
    arrays = list(map(np.asarray, found))
    one = [[a is b for a in found] for b in found]
    shared = [[bool(np.shares_memory(a, b)) for a in arrays] for b in arrays]
    return one, shared, [array.tolist() for array in arrays]


@pytest.mark.parametrize("program", PROGRAMS)
def test_equal_views_are_objects_of_their_own(program):
    expected, futurized = who_and_where(program(np.arange(6.0))), fx.futurize(program)
    for _ in range(5):
        assert who_and_where(futurized(np.arange(6.0))) == expected, futurized.explain()


class Holder:
    pass


def kept(holder, x):
    holder.a = x[:2]
    holder.b, holder.c = holder.a, x[:2]
    return holder.b


def test_equal_views_that_an_object_keeps():
    futurized = fx.futurize(kept)
    for _ in range(3):
        holder, x = Holder(), np.arange(3.0)
        assert futurized(holder, x) is holder.a is holder.b is not holder.c
        holder.c[0] = 7
        assert holder.a[0] == x[0] == 7


def reshaped_in_either_branch(x):
    if x.sum() > 0:
        y = x.T.reshape(-1)
    else:
        y = x.T.reshape(-1)[::-1]
    return y


def reshaped_or_new(x):
    y = x.T.reshape(-1)
    if x.sum() > 0:
        y = x.T.ravel() * 2
    return y


def one_row_of_it(x):
    y, z = x.T.reshape(-1), x.T.reshape(-1, 2)
    return (y if x.sum() > 0 else z[0]), z


def reshaped_in_rounds(x):
    y = x.T.reshape(-1)
    for k in range(int(x.sum() + 30)):
        if x.sum() > k:
            y = x.T.reshape(-1) + k
    return y


@pytest.mark.parametrize(
    "function", [reshaped_in_either_branch, reshaped_or_new, one_row_of_it, reshaped_in_rounds]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_argument_in_another_shape_is_the_view_that_numpys_is(function, order):
    futurized = fx.futurize(function)
    for sign in (1, -1, 1, -1, 1):
        x = np.array(np.arange(12.0).reshape(3, 4) * sign, order=order)
        mine, theirs = flatten(futurized(x))[0], flatten(function(x))[0]
        for a, b in zip(map(np.asarray, mine), theirs, strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.shares_memory(a, x) == np.shares_memory(b, x)
