"""Lists of lists that are asked at places of data, and lists of numbers of several types: programs of textbooks."""

import numpy as np
import pytest
from compare import Cases, check, outcome, plain
from program_search import kinds

import futurex as fx

cases = Cases()
INF = float("inf")
R = np.random.default_rng(0)
A, B = R.integers(0, 4, 40), R.integers(0, 4, 35)
W = np.maximum(R.integers(-4, 9, (24, 24)), 0)
EDGES, COSTS = R.integers(0, 20, (60, 2)), R.integers(1, 9, 60)


@cases(A, B)
@cases(A[:3], B[:20])
def edits(a, b):
    d = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        d[i][0] = i
    for j in range(len(b) + 1):
        d[0][j] = j
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                d[i + 1][j + 1] = d[i][j]
            else:
                d[i + 1][j + 1] = 1 + min(d[i][j + 1], d[i + 1][j], d[i][j])
    return d[len(a)][len(b)], d[-1][-2]


@cases(A, B)
def longest_common(a, b):
    length = [[0 for _ in range(len(b) + 1)] for _ in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            same = a[i - 1] == b[j - 1]
            length[i][j] = length[i - 1][j - 1] + 1 if same else max(length[i - 1][j], length[i][j - 1])
    i, j, found = len(a), len(b), []
    while i > 0 and j > 0:
        if a[i - 1] == b[j - 1]:
            found.append(int(a[i - 1]))
            i, j = i - 1, j - 1
        elif length[i - 1][j] >= length[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found[::-1]


@cases(R.integers(1, 9, 30), R.random(30), 50)
def knapsack(w, v, most):
    best = [[0.0] * (most + 1) for _ in range(len(w) + 1)]
    for i in range(1, len(w) + 1):
        for c in range(most + 1):
            best[i][c] = best[i - 1][c]
            if w[i - 1] <= c:
                best[i][c] = max(best[i][c], best[i - 1][c - w[i - 1]] + v[i - 1])
    return best[len(w)][most], best[0][0], best[5]


@cases(R.integers(1, 50, 14))
def products_of_a_chain(p):
    n = len(p) - 1
    cost = [[0] * n for _ in range(n)]
    for span in range(2, n + 1):
        for i in range(n - span + 1):
            j = i + span - 1
            cost[i][j] = INF
            for k in range(i, j):
                found = cost[i][k] + cost[k + 1][j] + p[i] * p[k + 1] * p[j + 1]
                if found < cost[i][j]:
                    cost[i][j] = found
    return cost[0][n - 1], cost


@cases(W)
@cases(W * 0.5)
def shortest_paths_of_all(w):
    d = [[INF] * len(w) for _ in range(len(w))]
    for i in range(len(w)):
        d[i][i] = 0
        for j in range(len(w)):
            if w[i][j] > 0:
                d[i][j] = w[i][j]
    for k in range(len(w)):
        for i in range(len(w)):
            for j in range(len(w)):
                d[i][j] = min(d[i][j], d[i][k] + d[k][j])
    return d


@cases(W, 0)
@cases(W * 0.5, 3)
@cases(np.zeros((9, 9), int), 2)
def shortest_paths_of_one(w, start):
    distance = [INF] * len(w)
    distance[start] = 0
    done = [False] * len(w)
    for _ in range(len(w)):
        u = -1
        for v in range(len(w)):
            if not done[v] and (u == -1 or distance[v] < distance[u]):
                u = v
        done[u] = True
        for v in range(len(w)):
            if w[u, v] > 0 and distance[u] + w[u, v] < distance[v]:
                distance[v] = distance[u] + w[u, v]
    return distance, done, np.array(done)


@cases(EDGES, COSTS, 20)
@cases(EDGES, COSTS * 0.5, 20)
@cases(EDGES, COSTS, 25)
def relaxed(edges, costs, n):
    distance = [INF] * n
    distance[0] = 0
    for _ in range(n - 1):
        for (u, v), c in zip(edges, costs, strict=True):
            if distance[u] + c < distance[v]:
                distance[v] = distance[u] + c
    return np.array(distance)


@cases(np.array([1, 5, 12]), 70)
@cases(np.array([4, 6]), 33)
def coins(values, amount):
    fewest = [0] + [INF] * amount
    for c in values:
        for x in range(c, amount + 1):
            fewest[x] = min(fewest[x], fewest[x - c] + 1)
    return -1 if fewest[amount] == INF else fewest[amount], fewest[1], np.array(fewest, float)


@cases(R.random((16, 16)), R.random(16))
def eliminated(a, b):
    n = len(b)
    m = [[a[i, j] for j in range(n)] + [b[i]] for i in range(n)]
    for c in range(n):
        p = c
        for r in range(c + 1, n):
            if abs(m[r][c]) > abs(m[p][c]):
                p = r
        m[c], m[p] = m[p], m[c]
        for r in range(c + 1, n):
            f = m[r][c] / m[c][c]
            for k in range(c, n + 1):
                m[r][k] -= f * m[c][k]
    x = [0.0] * n
    for i in range(n - 1, -1, -1):
        s = m[i][n]
        for k in range(i + 1, n):
            s -= m[i][k] * x[k]
        x[i] = s / m[i][i]
    return x, m[0], [row[-1] for row in m]


@cases(R.integers(0, 9, (15, 18)))
def cheapest_way(grid):
    n, m = grid.shape
    c = [[0] * m for _ in range(n)]
    c[0][0] = grid[0, 0]
    for i in range(n):
        for j in range(m):
            if i == 0 and j == 0:
                continue
            best = INF
            if i > 0:
                best = min(best, c[i - 1][j])
            if j > 0:
                best = min(best, c[i][j - 1])
            c[i][j] = best + grid[i, j]
    return c[n - 1][m - 1]


@cases(R.integers(0, 2, (14, 16)))
def islands(g):
    n, m = len(g), len(g[0])
    seen = [[False] * m for _ in range(n)]
    count = 0
    for i in range(n):
        for j in range(m):
            if g[i][j] and not seen[i][j]:
                count += 1
                stack = [(i, j)]
                while stack:
                    a, b = stack.pop()
                    if 0 <= a < n and 0 <= b < m and g[a][b] and not seen[a][b]:
                        seen[a][b] = True
                        stack += [(a + 1, b), (a - 1, b), (a, b + 1), (a, b - 1)]
    return count, seen


@cases(R.normal(size=30))
def rows_by_name(x):
    t = [[0.0] * 4 for _ in range(6)]
    for i, v in enumerate(x):
        row, other = t[i % 6], t[(i + 1) % 6]
        row[i % 4] = v
        other[0] += row[i % 4]
        for k, value in enumerate(row):
            other[k] = max(other[k], value)
    return t, sum(t[2]), max(t[0]), [list(row) for row in t[3:4]] if len(t) < 4 else np.array(t), t[1][1:3], len(t[0])


@cases(R.random(40), R.random(30))
def made_row_by_row(a, b):
    out, counted = [], []
    for u in a:
        row = []
        for v in b:
            row.append(u * v + 1)
        out.append(row)
        counted.append([0] * 3)
    for i in range(len(a)):
        counted[i % 7][i % 3] += i
    return np.array(out), counted, out[3]


@cases(R.random(30))
def each_from_the_last(x):
    rows = [[1.0] * len(x)]
    for i in range(1, len(x)):
        row = [0.0] * len(x)
        for j in range(len(x)):
            row[j] = rows[i - 1][j] * x[j] + (rows[i - 1][j - 1] if j else 0.0)
        rows.append(row)
    return rows[-1], len(rows)


@cases.signs(R.normal(size=40))
def moved(x):
    t = [[k, k + 1] for k in range(5)]
    for i, v in enumerate(x):
        if v > 0:
            t[i % 5], t[(i + 2) % 5] = t[(i + 2) % 5], t[i % 5]
        t[i % 5][0] += 1
    return t, np.array(t), list(t[0])


@cases.signs(R.normal(size=40))
def one_list_at_several_places(x):
    t = [[k, k + 1] for k in range(5)]
    for i, v in enumerate(x):
        if v > 0.5:
            t[i % 5] = t[(i + 2) % 5]
        t[i % 5][0] += 1
    return [row[0] for row in t]


@cases.signs(R.normal(size=40))
def ints_and_floats(x):
    last, found = [0] * 6, []
    for i, v in enumerate(x):
        last[i % 6] = i if v > 0 else v
        found.append(last[(i + 3) % 6] * 2)
    return last, found, last[2] < last[3], last[0] * np.float32(2), max(last), [v / 2 for v in last]


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_the_same_as_plain(case):
    check(case.function, *case.args)
    futurized = fx.futurize(case.function)
    assert kinds(plain(futurized(*case.args))) == kinds(case.function(*case.args))


def _in_two_places(x):
    t = [[k, k] for k in range(4)]
    for i in range(9):
        t[i % 4] = t[x[i]]
    return t


def _of_one_row(x):
    t = [[0, 1, 2]] * 4
    for i in range(9):
        t[x[i]][i % 3] += 1
    return t


def _of_rows_with_names(x):
    a, b = [0] * 3, [1] * 3
    t = [a, b]
    for i in range(9):
        t[x[i] % 2][i % 3] += i
        a[i % 3] += 1
    return t, a, b


def _of_several_lengths(x):
    t = [[0] * (k + 1) for k in range(4)]
    for i in range(9):
        t[x[i]][0] += i
    return t


def _that_grow(x):
    t = [[] for _ in range(4)]
    for i in range(9):
        t[x[i]].append(i)
    return t


def _replaced(x):
    t = [[0] * 3 for _ in range(4)]
    for i in range(9):
        t[x[i]] = [i] * 3
        t[x[i]][1] = 7
    return t


def _used_behind_its_end(x):
    t, row = [], [0]
    for i in range(9):
        row = [0] * 3
        t.append(row)
        row[x[i] % 3] = i
    row[0] = 7
    return t, t[8][0], row is t[8]


@pytest.mark.parametrize(
    "function", [_in_two_places, _of_one_row, _of_rows_with_names, _of_several_lengths, _that_grow, _replaced]
)
def test_which_list_it_is(function):
    """Lists of several names or places, or that are replaced: whoever computes them, each is the one that it is."""
    x = np.array([0, 3, 1, 2, 0, 0, 3, 1, 2])
    found, expected = fx.futurize(function)(x), function(x)
    assert plain(found) == expected
    rows = found[0] if function is _of_rows_with_names else found
    theirs = expected[0] if function is _of_rows_with_names else expected
    same = lambda t: [[a is b for b in t] for a in t]  # noqa: E731
    assert same(rows) == same(theirs)


@pytest.mark.parametrize("wrong", [
    lambda t, k: t[k + 9], lambda t, k: t[0][k + 9], lambda t, k: t[-k - 9], lambda t, k: t[1.5],
    lambda t, k: t[k].append(1), lambda t, k: t[0].__setitem__(9, 0), lambda t, k: t.append(3) or t[-1],
    lambda t, k: t.index([5]), lambda t, k: t[0][k + 4],
])  # fmt: skip
def test_what_python_does(wrong):
    def f(x, k):
        t = [[0.0] * 4 for _ in range(5)]
        for i, v in enumerate(x):
            t[i % 5][int(v > 0)] += v
        return wrong(t, k), t

    futurized = fx.futurize(f)
    for k in (0, 1):
        assert outcome(futurized, [A, k]) == outcome(f, [A, k])


def test_a_list_that_is_used_after_it_was_put_into_another():
    x = np.array([0, 3, 1, 2, 0, 0, 3, 1, 2])
    assert plain(fx.futurize(_used_behind_its_end)(x)) == _used_behind_its_end(x)


def test_ints_that_no_array_holds():
    def f(x):
        t = [[1, 2, 3] for _ in range(4)]
        for i in range(400):
            t[i % 4][x[i % 9] % 3] += t[(i + 1) % 4][i % 3] * 2
        return t

    x = np.arange(9)
    assert plain(fx.futurize(f)(x)) == f(x)
    assert max(map(max, f(x))) > 2**63


def test_derivatives():
    def f(x):
        t = [[0.0] * 3 for _ in range(4)]
        for i in range(len(x)):
            t[i % 4][i % 3] += x[i] * t[(i + 1) % 4][(i + 2) % 3] + x[i] ** 2
        return sum(map(sum, t))

    x = np.random.default_rng(2).normal(size=40)
    steps = 1e-6 * np.eye(len(x))
    expected = [(f(x + step) - f(x - step)) / 2e-6 for step in steps]
    assert np.allclose(np.asarray(fx.grad(f)(x)), expected, rtol=1e-4, atol=1e-6)
    rows = np.stack([x, x * 0.5, -x])
    assert np.allclose(np.asarray(fx.vmap(f)(rows)), [f(row) for row in rows])


def test_infinity_and_zero_under_derivatives():
    def f(w):
        d = [INF] * 6
        d[0] = 0
        for _ in range(6):
            for u in range(6):
                for v in range(6):
                    d[v] = min(d[v], d[u] + w[u, v])
        return d[3] + d[5] * 2

    w = np.random.default_rng(3).random((6, 6)) + 0.1
    gradient = np.asarray(fx.grad(f)(w))
    for place in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[place] = 1e-6
        assert abs(gradient[place] - (f(w + step) - f(w - step)) / 2e-6) < 1e-5
