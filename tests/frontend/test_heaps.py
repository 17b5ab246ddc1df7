"""Heaps, and the order of tuples: shortest paths, simulations of events, the least of what was found."""

import heapq

import numpy as np
import pytest
from compare import Cases, check
from hypothesis import given
from hypothesis import strategies as st

import futurex as fx

cases = Cases()
X = np.array([0.4, -1.2, 0.7, 2.0, -0.3, 1.1, 0.9, -0.8, 0.4, 1.1])
rng = np.random.default_rng(0)
LENGTHS = np.where(rng.random((25, 25)) < 0.2, rng.random((25, 25)).round(1), 0)


@cases(LENGTHS, 0)
@cases(LENGTHS, 9)
def shortest_paths(lengths, start):
    far = np.full(len(lengths), np.inf)
    before = np.full(len(lengths), -1)
    far[start] = 0.0
    heap = [(0.0, start)]
    while heap:
        length, here = heapq.heappop(heap)
        if length > far[here]:
            continue
        for there in range(len(lengths)):
            new = length + lengths[here, there]
            if lengths[here, there] > 0 and new < far[there]:
                far[there], before[there] = new, here
                heapq.heappush(heap, (new, there))
    return far, before


@cases(LENGTHS)
@cases(LENGTHS + LENGTHS.T)
def a_tree_of_the_least_length(lengths):
    seen, total, heap = np.zeros(len(lengths), bool), 0.0, [(0.0, 0)]
    while heap:
        length, here = heapq.heappop(heap)
        if seen[here]:
            continue
        seen[here] = True
        total += length
        for there in range(len(lengths)):
            if lengths[here, there] > 0 and not seen[there]:
                heapq.heappush(heap, (lengths[here, there], there))
    return total, seen


@cases.signs(X)
def sorted_by_a_heap(x):
    heap, found = [], []
    for value in x:
        if value > -1:
            heapq.heappush(heap, value)
    kept = list(heap)
    while heap:
        found.append(heapq.heappop(heap))
    return found, kept


@cases.signs(X)
def the_largest_three(x):
    heap = [x[0], x[1], x[2]]
    heapq.heapify(heap)
    out = 0.0
    for value in x[3:]:
        out += heapq.heappushpop(heap, value)
    for value in x:
        if value > heap[0]:
            out -= heapq.heapreplace(heap, value)
    return heap, out


@cases(np.array([1.0, 0.0, -0.0, 0.0, 2.0, -0.0, 0.0, 1.0]))
@cases(np.array([-1.0, -0.0, 0.0, 2.0, 0.0, -0.0, -0.0]))
def equal_numbers_keep_their_places(x):
    heap, found = [], []
    for value in x:
        if value > -5:
            heapq.heappush(heap, value)
    kept = list(heap)
    while heap:
        found.append(heapq.heappop(heap))
    return kept, found


@cases.signs(X)
def heaps_of_what_was_left(x):
    heap = [x[3], x[1], x[2]]
    for value in x:
        if value > 0:
            heap.append(value)
        else:
            heap.pop(0)
            heap.append(-value)
    heapq.heapify(heap)
    return heap


@cases(X, 30.0)
@cases(-X, 9.0)
def a_queue_with_two_servers(x, until):
    now, waiting, free, served, k = x[0] * 0.0, 0, 2, 0, 0
    events = [(now + 0.5, 0, 0)]
    while events and now < until:
        now, kind, number = heapq.heappop(events)
        if kind == 0:
            waiting += 1
            k += 1
            heapq.heappush(events, (now + 0.5 + abs(x[k % len(x)]), 0, number + 1))
        else:
            free += 1
            served += 1
        while free > 0 and waiting > 0:
            waiting -= 1
            free -= 1
            heapq.heappush(events, (now + 1.0 + x[k % len(x)] ** 2, 1, number))
    return now, waiting, served, len(events)


@cases.signs(X)
def the_least_pair(x):
    best = (0.5, 1)
    for k in range(len(x)):
        if (x[k], k) < best:
            best = (x[k], k)
    return best


@cases.signs(X)
def all_orders(x):
    counts = [0, 0, 0, 0]
    for k in range(len(x) - 1):
        a, b = (x[k] > 0, (round(x[k]), x[k])), (x[k + 1] > 0, (round(x[k + 1]), 0.4, 1))
        counts[0] += 1 if a < b else 0
        counts[1] += 1 if a <= b else 0
        counts[2] += 1 if a > b else 0
        counts[3] += 1 if a >= b else 0
    return counts


@cases.signs(X, staged=False)
def truth_as_a_value(x):
    return (x[0], 1) < (x[1], 0), (x[0], 1) < (x[0], 2), (int(x[0] > 0), 1) >= (int(x[1] > 0), 0, 2)


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_the_same_as_plain(case):
    check(case.function, *case.args, staged=case.staged)


def pushed_and_popped(x, y):
    heap = [(x[0], 0)]
    for k in range(len(x)):
        heapq.heappush(heap, (x[k], y[k]))
        if y[k] > 2:
            heapq.heappop(heap)
    return heap


PUSHED = fx.futurize(pushed_and_popped)
NUMBERS = st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.0, np.inf, np.nan]), min_size=8, max_size=8)


@given(NUMBERS, st.lists(st.integers(0, 4), min_size=8, max_size=8))
def test_any_numbers(x, y):
    x, y = np.array(x), np.array(y)
    wanted, found = pushed_and_popped(x, y), PUSHED(x, y)
    assert [(float(a).hex(), int(b)) for a, b in found] == [(float(a).hex(), int(b)) for a, b in wanted]


def test_a_nan_is_the_same_one_or_another():
    def f(x):
        a, b = x[0], x[1]
        return 1 if (a, 1) < (a, 2) else 2 if (b, 1) < (a, 2) else 3

    futurized = fx.futurize(f)
    for x in ([np.nan, np.nan], [1.0, np.nan], [np.nan, 1.0], [1.0, 1.0], [2.0, 1.0]):
        assert int(futurized(np.array(x))) == f(np.array(x))


def test_an_empty_heap():
    def f(x):
        heap = [x[0]]
        for value in x:
            if value > 0:
                heapq.heappop(heap)
        return heap

    with pytest.raises(IndexError):
        f(X)
    with pytest.raises(IndexError):
        fx.futurize(f)(X)


class Task:
    def __init__(self, cost):
        self.cost = cost

    def __lt__(self, other):
        return self.cost < other.cost


def test_objects_with_an_order_of_their_own():
    def f(x):
        heap = []
        for value in x[:4]:
            heapq.heappush(heap, Task(value))
        return [heapq.heappop(heap).cost for _ in range(4)]

    assert [float(each) for each in fx.futurize(f)(X)] == f(X)
