"""Queues in compiled loops: rows that are taken out in front leave the others where they lie, and rows that come to
stand in front find room there; who runs out of room on one side is moved to the middle."""

from collections import deque

import numpy as np
import pytest

import futurex as fx

X = np.random.default_rng(0).random(997)
MANY = 400_000  # more than an array has room for


def first_in_first_out(x, n):
    queue, total = deque(), 0.0
    for i in range(n):
        queue.append(i * x[i % len(x)])
        if len(queue) > 1000:
            total += queue.popleft() * (i % 7)
    while queue:
        total = total / 2 + queue.popleft()
    return total


def from_behind(x, n):
    queue, total = deque(), 0.0
    for i in range(n):
        queue.appendleft(i * x[i % len(x)])
        if len(queue) > 1000:
            total += queue.pop() * (i % 7)
    while queue:
        total = total / 2 + queue.pop()
    return total


def any_way(x, n):
    queue, total, k = deque(), 0.0, 0
    for i in range(n):
        v = x[i % len(x)]
        if v < 0.2:
            queue.append(i)
        elif v < 0.4:
            queue.appendleft(-i)
        elif v < 0.5:
            queue.append(queue.popleft() if queue else 7)
        elif v < 0.6:
            queue.appendleft(queue.pop() if queue else 5)
        elif v < 0.78:
            if queue:
                total += queue.popleft() * (k % 7)
                k += 1
        elif v < 0.98:
            if queue:
                total += queue.pop() * (k % 5)
                k += 1
        elif queue:
            total += queue[0] - queue[-1] + queue[len(queue) // 2]
            if v > 0.995 and len(queue) > 100:
                queue.clear()
    return total, len(queue), k, list(queue)[:5]


def almost_full(x, n):
    queue, total = deque(), 0.0
    for i in range(220_000):
        queue.append(i)
    for i in range(n):
        total += queue.popleft() * x[i % len(x)]
        queue.append(i)
        queue.appendleft(queue.pop())
        total -= queue[-1]
    return total, len(queue)


def in_front_of_many(x, n):
    queue, total = deque(), 0.0
    for i in range(150_000):
        queue.append(i)
    for i in range(min(n, 90_000)):
        queue.appendleft(-i)
    while queue:
        total = total / 2 + queue.popleft() * x[len(queue) % len(x)]
    return total


def windows(x, n):
    last, newest, total = deque(maxlen=100), deque(maxlen=3), 0.0
    for i in range(n):
        last.append(x[i % len(x)])
        newest.appendleft(last[0])
        total += newest[-1] - last[-1] / 2
    return total, list(last), list(newest)


def pairs(x, n):
    queue, total = deque([(0, 0.0)]), 0.0
    for i in range(n):
        v = x[i % len(x)]
        if v < 0.5:
            queue.append((i, v))
        if v > 0.3 and queue:
            j, w = queue.popleft()
            total += w * (i - j)
    return total, len(queue)


def arrays(x, n):
    queue, total = deque([np.zeros(3)]), np.zeros(3)
    for i in range(n):
        v = x[i % len(x)]
        if v < 0.5:
            queue.append(np.array([v, i, 1.0]))
        else:
            queue.appendleft(np.array([v, -i, 2.0]))
        if len(queue) > 5:
            total = total + queue.popleft() * v
        if len(queue) > 5 and v < 0.1:
            total = total - queue.pop()
    return total, len(queue)


def loops_inside(x, n):
    n = min(n, 200_000)
    queue, seen, total = deque([int(x[0] > 2)]), np.zeros(n, bool), 0.0
    while queue:
        i = queue.popleft()
        total = total * 0.9 + x[i % len(x)]
        for k in range(1, 4):
            j = i * 3 + k
            if j < n and not seen[j]:
                seen[j] = True
                queue.append(j)
    return total, seen.sum()


@pytest.mark.parametrize("n", [3000, MANY])
@pytest.mark.parametrize(
    "function",
    [first_in_first_out, from_behind, any_way, almost_full, in_front_of_many, windows, pairs, arrays, loops_inside],
)
def test_queues_are_those_of_python(function, n, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    futurized, expected = fx.futurize(function), as_arrays(function(X, n))
    for _ in range(2):
        for mine, other in zip(as_arrays(futurized(X, n)), expected, strict=True):
            np.testing.assert_array_equal(mine, other)
    assert "staged" in str(futurized.explain())


def as_arrays(result):
    return list(map(np.asarray, result if isinstance(result, tuple) else [result]))
