"""Deques that grow and shrink by data: searches breadth first, windows, queues that objects hold."""

import collections
from collections import deque

import numpy as np
import pytest
from compare import Cases, check

import futurex as fx

cases = Cases()
X = np.array([0.4, -1.2, 0.7, 2.0, -0.3, 1.1, 0.9, -0.8])
LINKS = np.random.default_rng(0).random((20, 20)) < 0.12
GRID = np.random.default_rng(1).random((9, 9)) < 0.7
COSTS = np.random.default_rng(2).integers(0, 2, (12, 12))


@cases(LINKS, 0)
@cases(LINKS, 7)
def steps_from(links, start):
    steps = np.full(len(links), -1)
    steps[start] = 0
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for there in range(len(links)):
            if links[here, there] and steps[there] < 0:
                steps[there] = steps[here] + 1
                queue.append(there)
    return steps


@cases(GRID)
@cases(~GRID)
def a_region_of_a_grid(free):
    seen = np.zeros(free.shape, bool)
    seen[0, 0] = True
    queue = collections.deque()
    queue.append((0, 0))
    order, farthest = [], 0
    while len(queue) > 0:
        row, column = queue.popleft()
        order.append((row, column))
        farthest = max(farthest, row + column)
        for i, j in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            r, c = row + i, column + j
            if 0 <= r < free.shape[0] and 0 <= c < free.shape[1] and free[r, c] and not seen[r, c]:
                seen[r, c] = True
                queue.append((r, c))
    return order, seen, farthest


@cases(COSTS, 3)
def steps_of_no_or_one_cost(costs, start):
    far = np.full(len(costs), 99)
    far[start] = 0
    queue = deque([(start, 0)])
    while queue:
        here, cost = queue.popleft()
        if cost > far[here]:
            continue
        for there in range(len(costs)):
            new = cost + costs[here, there]
            if new < far[there]:
                far[there] = new
                if costs[here, there]:
                    queue.append((there, new))
                else:
                    queue.appendleft((there, new))
    return far


@cases.signs(X)
def largest_in_each_window(x):
    window, found = deque(), []
    for k in range(len(x)):
        while window and x[window[-1]] <= x[k]:
            window.pop()
        window.append(k)
        if window[0] <= k - 3:
            window.popleft()
        found.append(x[window[0]])
    return found, len(window)


@cases(np.triu(LINKS, 1))
@cases(LINKS)
def in_the_order_of_links(links):
    waiting = links.sum(axis=0)
    queue, order = deque(k for k in range(len(links)) if waiting[k] == 0), []
    while queue:
        here = queue.popleft()
        order.append(here)
        for there in range(len(links)):
            if links[here, there]:
                waiting[there] -= 1
                if waiting[there] == 0:
                    queue.append(there)
    return order


@cases(LINKS, 0, 17)
@cases(LINKS, 3, 4)
def it_is_left_when_found(links, start, end):
    before = np.full(len(links), -1)
    before[start] = start
    queue = deque([start])
    while queue:
        here = queue.popleft()
        if here == end:
            break
        for there in range(len(links)):
            if links[here, there] and before[there] < 0:
                before[there] = here
                queue.append(there)
    return before, len(queue)


@cases(LINKS, 0, 17)
@cases(LINKS, 3, 4)
def a_stack_from_which_a_search_returns(links, start, end):
    seen, stack = np.zeros(len(links), bool), [start]
    while stack:
        here = stack.pop()
        if here == end:
            return True, seen
        for there in range(len(links)):
            if links[here, there] and not seen[there]:
                seen[there] = True
                stack.append(there)
    return False, seen


class Buffer:
    def __init__(self):
        self.waiting = deque()
        self.done = 0.0

    def put(self, value):
        if value > 0:
            self.waiting.append(value)
        elif self.waiting:
            self.done += self.waiting.popleft()


@cases.signs(X)
def an_object_holds_one(x):
    buffer = Buffer()
    for value in x:
        buffer.put(value)
    return buffer.done, len(buffer.waiting), list(buffer.waiting)


@cases.signs(X)
def what_may_be_asked(x):
    queue = deque([x[0], x[1]])
    for value in x:
        if value > 0:
            queue.append(value)
            queue.extendleft([value * 2, -value])
        elif len(queue) > 2:
            queue.pop()
    queue.reverse()
    turned = sorted(queue)
    return (
        list(queue), turned, np.array(queue), queue[0], queue[-1], max(queue), isinstance(queue, list),
        isinstance(queue, deque), type(queue) is deque, hasattr(queue, "popleft"), hasattr(turned, "popleft"),
    )  # fmt: skip


@cases.signs(X, staged=False)
def it_is_returned(x):
    queue = deque([x[0]])
    for value in x:
        if value > 0:
            queue.append(value)
    return queue


@cases.signs(X)
def a_copy_that_grows(x):
    queue = deque([x[0], x[1]])
    other = queue.copy()
    for value in x:
        if value > 0:
            other.append(value)
        if len(other) > 3:
            other.popleft()
    return list(other), list(queue)


@cases.signs(X)
def it_keeps_the_last_ones(x):
    queue = deque([x[0]], maxlen=3)
    for value in x:
        if value > 0:
            queue.append(value)
    return list(queue)


@cases.signs(X, staged=False)
def it_changes_while_it_is_gone_over(x):
    queue = deque([x[0]])
    for value in x:
        if value > 0:
            queue.append(value)
    for value in queue:
        if value > 1:
            queue.append(0.0)
    return len(queue)


@cases.signs(X, staged=False)
def sums_with_lists(x):
    queue = deque([x[0]])
    for value in x:
        if value > 0:
            queue.append(value)
    return len(queue + [1.0])  # noqa: RUF005


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_the_same_as_plain(case):
    check(case.function, *case.args, staged=case.staged)


@pytest.mark.parametrize("take", [deque.popleft, deque.pop, lambda queue: queue[5], lambda queue: queue.pop(0)])
def test_what_an_empty_one_raises(take):
    def f(x):
        queue = deque([x[0]])
        for value in x:
            if value > 0:
                queue.append(value)
            else:
                queue.popleft()
        return queue.popleft() if x[0] > 1 else take(queue)

    def outcome(function, x):
        try:
            return float(function(x))
        except (IndexError, TypeError) as error:
            return type(error), str(error).splitlines()[0]

    futurized = fx.futurize(f)
    for x in (X, -X, X[:2], X[1:3], np.arange(1.0, 9.0)):
        assert outcome(futurized, x) == outcome(f, x)
