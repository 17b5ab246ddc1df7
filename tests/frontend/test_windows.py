"""Deques that keep the last values alone (``maxlen``), and what goes over deques that grow by data."""

import collections
from collections import deque

import numpy as np
import pytest
from compare import Cases, check, outcome

import futurex as fx

cases = Cases()
X = np.random.default_rng(0).normal(size=120)
TAPS = np.array([0.5, 0.3, 0.2])


@cases.signs(X)
@cases(X[:3])
def means_of_the_last_ones(x):
    window = deque(maxlen=5)
    means = []
    for value in x:
        window.append(value)
        means.append(sum(window) / len(window))
    return means


@cases(np.random.default_rng(1).normal(size=1500))
def sums_of_the_last_ones(x):
    window, sums = deque(maxlen=5), []
    for value in x:
        window.append(value)
        sums.append(sum(window))
    return sums


@cases.signs(X)
def means_of_a_full_one(x):
    window = collections.deque([0.0] * 5, maxlen=5)
    means = []
    for value in x:
        window.append(value)
        means.append(np.mean(window))
    return means


@cases.signs(X)
def the_positive_ones(x):
    window = deque([x[0]], maxlen=4)
    total = 0.0
    for value in x:
        if value > 0:
            window.append(value)
        total += max(window) - min(window) + window[-1]
    return total, list(window), len(window), window.maxlen


@cases.signs(X)
def taps_of_a_filter(x):
    last = deque(np.zeros(3), maxlen=3)
    y = np.zeros(len(x))
    for i in range(len(x)):
        last.appendleft(x[i])
        y[i] = sum(a * b for a, b in zip(TAPS, last, strict=True))
    return y


@cases.signs(X)
def products_with_taps(x):
    last = deque([0.0] * 3, maxlen=3)
    y = np.zeros(len(x))
    for i in range(len(x)):
        last.appendleft(x[i])
        y[i] = np.dot(TAPS, last)
    return y


@cases.signs(X)
def feedback(x):
    last = deque([0.0, 0.0, 0.0], maxlen=3)
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = 0.5 * x[i] + 0.25 * last[0] + 0.125 * last[1] - 0.1 * last[-1]
        last.appendleft(y[i])
    return y


@cases.signs(X)
def runs_of_signs(x):
    last, found = deque(maxlen=4), 0
    for value in x:
        last.append(value > 0)
        if len(last) == last.maxlen and all(last):
            found += 1
        if any(last):
            found += 10
    return found, last.count(True)


@cases.signs(X)
def numbered_and_backwards(x):
    window, total = deque(maxlen=3), 0.0
    for value in x:
        window.append(value)
        for k, entry in enumerate(window):
            total += k * entry
        for entry in reversed(window):
            total = entry - total / 2
    return total


@cases.signs(X)
def stopped_early(x):
    last = deque(maxlen=10)
    for i in range(len(x)):
        last.append(abs(x[i]))
        if len(last) == last.maxlen and sum(last) / 10 < 0.6:
            return i
    return -1


@cases.signs(X)
def pairs(x):
    last, total = deque(maxlen=3), 0.0
    for i, value in enumerate(x):
        if value > 0.5:
            last.append((i, value))
        for k, entry in last:
            total += k * entry
    return total, list(last)


@cases.signs(X)
def many_at_once(x):
    last = deque([x[0]], maxlen=4)
    for value in x:
        if value > 0:
            last.extend([value, 2 * value, 3 * value])
        else:
            last.extendleft([value, -value])
        if value > 1.5:
            last += [value]
    return list(last), deque(last, 2)[0], list(deque(last, maxlen=9))


@cases.signs(X)
def turned(x):
    last, seen = deque([0.0, 1.0], maxlen=6), []
    for i, value in enumerate(x):
        if value > 0:
            last.append(value)
        last.rotate()
        last.rotate(-2)
        last.rotate(i % 5)
        last.rotate(int(value > 1) - 3)
        seen.append(last[0])
    return seen, list(last)


@cases.signs(X)
def turned_until_one_is_left(x):
    ring = deque([0])
    for i in range(1, len(x)):
        if x[i] > 0:
            ring.append(i)
    out = []
    while len(ring) > 1:
        ring.rotate(-2)
        out.append(ring.popleft())
    return ring[0], out


@cases.signs(X)
def turned_when_empty(x):
    ring = deque()
    for value in x:
        if value > 0.5:
            ring.append(value)
        ring.rotate(1)
        if len(ring) > 2:
            ring.clear()
        ring.rotate(3)
    return list(ring)


@cases.signs(X)
def copies_keep_their_length(x):
    last = deque([x[0]], maxlen=3)
    for value in x:
        if value > 0:
            last.append(value)
    other = last.copy()
    other.append(x[1])
    other.appendleft(x[2])
    return list(other), list(last)


@cases.signs(X)
def in_an_object(x):
    class Smooth:
        def __init__(self, size):
            self.last = deque(maxlen=size)

        def __call__(self, value):
            self.last.append(value)
            return sum(self.last) / len(self.last)

    smooth, short = Smooth(7), Smooth(2)
    return [smooth(value) - short(value) for value in x]


@cases.signs(X)
def one_of_two_lengths(x):
    a, b = deque(maxlen=2), deque(maxlen=4)
    for value in x:
        (a if value > 0 else b).append(value)
    return list(a), list(b)


@cases.signs(X)
def queues_that_are_gone_over(x):
    queue, total = deque([x[0]]), 0.0
    for value in x:
        if value > 0:
            queue.append(value)
        if len(queue) > 5:
            queue.popleft()
        for entry in queue:
            total += entry * entry
        total += sum(e for e in queue) + max(queue) + np.array(queue)[0]
    return total


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_the_same_as_plain(case):
    check(case.function, *case.args, staged=case.staged)


def _appends(queue, value):
    queue.append(value)


def _writes(queue, value):
    queue[0] = value


def _takes_out_and_puts_in(queue, value):
    queue.append(queue.popleft())


def _turns(queue, value):
    queue.rotate(1)


@pytest.mark.parametrize("change", [_appends, _writes, _takes_out_and_puts_in, _turns])
@pytest.mark.parametrize("goes_over", ["for", "zip", "enumerate", "reversed", "last"])
@pytest.mark.parametrize("most", [None, 3])
def test_changes_while_something_goes_over_it(change, goes_over, most):
    def f(x):
        queue = deque([x[0]], maxlen=most)
        for value in x:
            if value > 0:
                queue.append(value)
        total = 0.0
        if goes_over == "for":
            for entry in queue:
                total += entry
                change(queue, 1.0)
        elif goes_over == "zip":
            for entry, value in zip(queue, x, strict=False):
                total += entry * value
                change(queue, 1.0)
        elif goes_over == "enumerate":
            for k, entry in enumerate(queue):
                total += k * entry
                change(queue, 1.0)
        elif goes_over == "reversed":
            for entry in reversed(queue):
                total += entry
                change(queue, 1.0)
        else:
            for k, entry in enumerate(queue):
                total += entry
                if k == len(queue) - 1:
                    change(queue, entry)
        return total, len(queue)

    futurized = fx.futurize(f)
    for x in (X, -X, X[:2], X[:1], np.arange(1.0, 9.0)):
        assert outcome(futurized, [x]) == outcome(f, [x]), x[:3]


@pytest.mark.parametrize("change", [_appends, _takes_out_and_puts_in, _writes])
def test_changes_in_a_comprehension_over_one_that_grows_later(change):
    def f(x):
        queue = deque([x[0], x[1]], maxlen=4)
        doubled = [change(queue, 1.0) or entry * 2 for entry in queue]
        for value in x:
            if value > 0:
                queue.append(value)
        return doubled, list(queue)

    futurized = fx.futurize(f)
    for x in (X, -X):
        assert outcome(futurized, [x]) == outcome(f, [x])


@pytest.mark.parametrize("place", [0, 1, -1, -2])
def test_places_that_a_window_need_not_have(place):
    def f(x):
        window, total = deque(maxlen=5), 0.0
        for value in x:
            window.append(value)
            total += window[place]
        return total

    x = np.random.default_rng(2).normal(size=1500)
    assert outcome(fx.futurize(f), [x]) == outcome(f, [x])


@pytest.mark.parametrize("wrong", [
    lambda q, x: q.insert(1, x[0]), lambda q, x: q.slice, lambda q, x: q.rotate(0.5), lambda q, x: q[7],
    lambda q, x: q.pop(0), lambda q, x: deque(q, -1), lambda q, x: deque(q, 1.5), lambda q, x: setattr(q, "maxlen", 3),
])  # fmt: skip
def test_what_python_refuses(wrong):
    def f(x):
        queue = deque(maxlen=3)
        for value in x:
            queue.append(value)
        return wrong(queue, x)

    futurized = fx.futurize(f)
    for x in (X, -X):
        assert outcome(futurized, [x]) == outcome(f, [x])
        assert outcome(f, [x])[0][0] == "error"


@pytest.mark.parametrize("most", [0, 1, 2, 5000])
def test_lengths(most):
    def f(x):
        queue = deque([1.0, 2.0], most)
        for value in x:
            if value > 0:
                queue.append(value)
            if value < -1:
                queue.appendleft(value)
        return list(queue), queue.maxlen, list(deque(queue, most)), list(deque(queue, maxlen=1))

    futurized = fx.futurize(f)
    for x in (X, -X, X[:1]):
        assert outcome(futurized, [x]) == outcome(f, [x])


def test_a_list_has_no_such_methods():
    def f(x):
        values = [x[0]]
        for value in x:
            if value > 0:
                values.append(value)
        return values.maxlen if x[1] > 0 else values.rotate(1)

    futurized = fx.futurize(f)
    for x in (X, -X):
        with pytest.raises(AttributeError, match="'list' object has no attribute"):
            futurized(x)


def test_derivatives():
    def f(x):
        window, total = deque([0.0] * 3, maxlen=3), 0.0
        for value in x:
            window.append(value * value)
            total += sum(window) * window[0]
        return total

    found = np.asarray(fx.grad(f)(X))
    steps = 1e-6 * np.eye(len(X))
    assert np.allclose(found, [(f(X + step) - f(X - step)) / 2e-6 for step in steps], rtol=1e-5, atol=1e-7)
