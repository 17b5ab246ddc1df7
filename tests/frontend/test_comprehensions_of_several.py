"""Comprehensions over several iterables, one inside the other: loops in loops where data says which have an entry, or
where they are long. Values, types and errors are Python's."""

import numpy as np
import pytest
from compare import check

import futurex as fx

X = np.random.default_rng(1).integers(2, 6, (20, 20))


def asked_of_each(x):
    n, m = x.shape
    return [(i, j, x[i, j]) for i in range(n) if x[i, 0] > 3 for j in range(m) if x[i, j] >= 4]


def three(x):
    return [i * j * k for i in range(4) for j in range(5) if x[i, j] > 2 for k in range(3) if x[i, k] > 3]


def what_is_inside_depends_on_what_is_around(x):
    return [(i, j) for i in range(len(x)) for j in range(i) if x[i, 0] < x[j, 0]]


def numbered_pairs(x):
    return [a + b for i, a in enumerate(x[0]) for j, b in enumerate(x[1]) if i < j and a < b]


def all_pairs(x):
    out = [abs(a - b) for a in x[0] for b in x[1:, 0]]
    return len(out), max(out), np.array(out)


def of_rows(x):
    out = [float(v) for row in x for v in row if v % 2 == 0]
    return out, sum(out), len(out)


def one_name_twice(x):
    return [x for x in x for x in x if x > 3]


def used_up_one_by_one(x):
    n, m = x.shape
    return (
        sum(x[i, j] for i in range(n) for j in range(m) if x[i, j] > 2),
        any(x[i, j] > 4 for i in range(n) for j in range(m)),
        all(x[i, j] > 1 and j < m for i in range(n) for j in range(m)),
        max(x[i, j] * j for i in range(n) for j in range(m)),
        sum(0.5 * i + j for i in range(30) for j in range(i)),
    )


def neighbours(x):
    total = 0
    for i in range(1, 19):
        for j in range(1, 19):
            if sum(1 for a in (-1, 0, 1) for b in (-1, 0, 1) if (a or b) and x[i + a, j + b] > 3) == 3:
                total += i * j
    return total


def a_stack_of_places(x):
    stack = [(i, j) for i in range(20) for j in range(20) if x[i, j] > 4]
    total = 0
    while stack:
        i, j = stack.pop()
        total = 31 * total % 1009 + i - j
        if i > 0 and x[i - 1, j] < 3:
            stack.append((i - 1, j))
    return total


@pytest.mark.parametrize(
    "function",
    [asked_of_each, three, what_is_inside_depends_on_what_is_around, numbered_pairs, all_pairs, of_rows, one_name_twice,
     used_up_one_by_one, neighbours, a_stack_of_places],
)  # fmt: skip
def test_data_says_which_have_an_entry(function):
    check(function, X)
    check(function, X.astype(float))


def divided(x):
    return [1 / (x[i, j] - 3) for i in range(20) for j in range(20) if x[i, j] > 2 and i != j]


def nothing(x):
    return [x[i, j] for i in range(20) for j in range(20) if x[i, j] > 9]


def test_empty_and_failing_ones():
    check(nothing, X)
    check(divided, X.astype(float))


def an_iterator(x):
    rest = iter([1, 2, 3])
    return [a * b for a in range(3) for b in rest if x[0, a] > 0]


def kept_names(x):
    each = [lambda: i + j for i in range(3) for j in range(2)]  # noqa: B023
    return [f() + x[0, 0] for f in each]


def read_before_it_is_bound(x):
    b = [1, 2]
    return [b for a in x for b in b if b > 1]


def test_what_loops_would_change_is_python_s():
    check(an_iterator, X, staged=False)
    check(kept_names, X)
    futurized = fx.futurize(read_before_it_is_bound)
    for _ in range(2):
        with pytest.raises(NameError, match="'b'"):
            futurized(X)
