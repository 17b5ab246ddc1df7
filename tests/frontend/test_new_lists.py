"""Lists that are made otherwise than by writing them out, and that grow or shrink by data afterwards."""

from collections import deque

import numpy as np
import pytest
from compare import Cases, check

import futurex as fx

cases = Cases()
X = np.array([0.4, -1.2, 0.7, 2.0, -0.3, 1.1])
LINKS = np.array([[1, 2], [3, 3], [4, 4], [5, 5], [5, 5], [0, 0]])


@cases.signs(X)
def a_copy_is_added_to(x):
    first = [x[0], x[1]]
    found, other = list(first), first.copy()
    for value in x:
        if value > 0:
            found.append(value)
        if value > 1:
            other.append(-value)
    return found, other, first


@cases.signs(X)
def a_part_is_added_to(x):
    found = [x[0], x[1], x[2]]
    last = found[-2:]
    for value in x:
        if value > 0.5:
            last.append(value)
        elif len(last) > 1:
            last.pop(0)
    return last, found


@cases.signs(X)
def sums_and_products_are_added_to(x):
    zeros = [0.5] * 3
    both = zeros + [float(x[0])]  # noqa: RUF005
    for value in x:
        if value > 0:
            both.append(float(value))
            zeros.pop() if zeros else None
    return both, len(zeros)


@cases.signs(X)
def a_comprehension_is_added_to(x):
    found = [value * 2 for value in x[:3]]
    while found[-1] > 0.5 and len(found) < 9:
        found.append(found[-1] * 0.5)
    return found


@cases(LINKS, 0)
@cases(LINKS, 4)
def a_search_from_a_list_of_starts(links, start):
    queue, seen = list({start: 1, 1: 2}), np.zeros(len(links), bool)
    order = []
    while queue:
        here = queue.pop(0)
        if seen[here]:
            continue
        seen[here] = True
        order.append(here)
        for there in links[here]:
            if not seen[there]:
                queue.append(there)
    return order, seen


@cases(np.array([0.02, 0.9, -0.72, 0.9]))
def lists_of_numbers_of_either_kind_are_added(x):
    a, b = [1.0], [x[1], 2.0]
    total, k = 0.0, 0
    while x[k] > -0.6:
        if len(a) > 3:
            b.append(x[k])
        b = a + b
        if a:
            total = total * 0.5 + a.pop(0)
        a.append(x[k] + x[0])
        k += 1
    return total, k, len(b)  # what a holds is asked by its sum with b, in a branch of its own


@cases(np.random.default_rng(1).integers(0, 1000, 400), 100)
def entries_of_a_long_product_are_written(x, n):
    counts, seen = [0] * n, [False] * (n + 1)
    for value in x:
        counts[int(value) % n] += 1
        seen[int(value) % n + 1] = counts[int(value) % n] > 2
    return counts, sum(seen), seen[0]


@cases(np.random.default_rng(1).integers(0, 100, (120, 2)), 100)
def sets_are_united(pairs, n):
    parent, size = [k for k in range(n)], [1] * n  # noqa: C416
    for k in range(len(pairs)):
        a, b = int(pairs[k, 0]), int(pairs[k, 1])
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            b = parent[b]
        if a != b:
            if size[a] < size[b]:
                a, b = b, a
            parent[b] = a
            size[a] += size[b]
    return max(size), parent, size


@cases.signs(np.random.default_rng(1).normal(size=120))
def the_longest_rising_sequence(x):
    tails, size = [0.0] * len(x), 0
    for value in x:
        low, high = 0, size
        while low < high:
            middle = (low + high) // 2
            if tails[middle] < value:
                low = middle + 1
            else:
                high = middle
        tails[low] = float(value)
        size = max(size, low + 1)
    return size, tails[:3]


@cases.signs(np.random.default_rng(2).normal(size=120))
def an_entry_behind_the_end_is_written(x):
    tails = [0.0] * 100
    for k in range(len(x)):
        if x[k] > 0 or k > 100:
            tails[k] = float(x[k])
    return tails


@cases(np.random.default_rng(3).integers(1, 100, 30), 3)
def a_loop_of_known_rounds_writes_into_them(x, n):
    """Its first rounds show what the lists are: it need not be unrolled to find out."""
    stack, order = [int(value) for value in x], [-1] * (3 * len(x))
    place = 0
    while len(stack) > 1:
        a, b = stack.pop(), stack.pop(0)
        order[a % len(order)] = place
        order[b % len(order)] = a
        stack.append((a * 7 + b) % 100)
        place += 1
    return order, place, stack


class Bag:
    def __init__(self, entries):
        self.entries = list(entries)

    def add(self, value):
        if value > 0:
            self.entries.append(value)


@cases.signs(X)
def an_object_holds_a_copy(x):
    bag = Bag([x[0], x[1]])
    for value in x:
        bag.add(value)
    return bag.entries, sum(bag.entries)


def start(x):
    return list(reversed((x[0], x[2])))


@cases.signs(X)
def a_function_returns_one(x):
    found = start(x)
    for value in x:
        if value > 0.3:
            found.append(value * 2)
    return found


class Shared:
    """What its sums, copies and slices are is always the same list."""

    def __init__(self, x):
        self.entries = [x[0]]

    def __add__(self, other):
        return self.entries

    def __getitem__(self, index):
        return self.entries

    def copy(self):
        return self.entries


@cases.signs(X, staged=False)
def a_list_that_is_another_ones(x):
    shared = Shared(x)
    a, b, c = shared + [x[1]], shared[1:], shared.copy()  # noqa: RUF005
    d = shared.copy()
    for value in x:
        if value > 0:
            d.append(value)
    return a, b, c, d, a is d


@cases.signs(X)
def sums_of_arrays_that_have_methods_of_lists(x):
    y = x + x[::-1]
    z = y[1:]
    found = []
    for value in z:
        if value > 0:
            found.append(value)
    return found, z.copy(), y


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_the_same_as_plain(case):
    check(case.function, *case.args, staged=case.staged)


def test_a_function_that_is_called_list():
    kept = []

    def list(values):
        kept[:] = values
        return kept

    def f(x):
        a = list([x[0]])
        b = list([x[0]])
        for value in x:
            if value > 0:
                a.append(value)
        return a, b, a is b

    check(f, X, staged=False)


def test_a_list_of_zeros_is_true():
    def f(x):
        stack, queue, total = [0.0 * x[0]], deque([0.0]), 0.0
        while stack:
            total += 1.0
            if total > x[0] * 10:
                stack.pop()
        while queue:
            total += 1.0
            if total > x[1] * 20:
                queue.pop()
        return total

    futurized = fx.futurize(f)
    for x in (np.array([0.4, 1.0]), np.array([-0.4, -1.0]), np.array([2.4, 3.0])):
        assert futurized(x) == f(x)
