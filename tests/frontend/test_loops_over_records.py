"""Loops over long lists of tuples of numbers (edges, ratings, intervals) are loops of the tree, one round for all."""

import numpy as np
from compare import check, outcome, plain

import futurex as fx

RNG = np.random.default_rng(1)
EDGES = [(int(a), int(b)) for a, b in RNG.integers(0, 30, (100, 2))]
RATINGS = [(u, i % 20, float(r)) for (u, i), r in zip(EDGES, RNG.normal(3, 1, 100), strict=True)]


def factors(ratings, p, q):
    for _ in range(2):
        for u, i, r in ratings:
            e = r - p[u] @ q[i]
            p[u], q[i] = p[u] + 0.01 * (e * q[i] - 0.02 * p[u]), q[i] + 0.01 * (e * p[u] - 0.02 * q[i])
    return p.sum()


def degrees(edges, n):
    found, most = np.zeros(n), 0
    for k, (a, b) in enumerate(edges):
        found[a] += 1
        found[b] -= k
        most = max(most, a * b)
    for a, b in edges:
        most = most + a - b
    return found, most, type(most)


def first_above(edges, c):
    for a, b in edges:
        if a + b > c:
            return a, b
    return None


def with_keys(edges, names):
    total = 0.0
    for a, b in edges:
        total += names[a] * b
    return total


def large(edges):
    total = 0
    for a, b in edges:
        total += a * 2**60 + b
    return total


def list_that_grows(edges, x):
    pairs, total = list(edges), 0
    for a, b in pairs:
        if a > 28 and len(pairs) < 120 and x[a] > 0:
            pairs.append((b, 3))
        total += a
    return total, len(pairs)


def test_one_round_for_all():
    p, q = RNG.normal(size=(30, 3)), RNG.normal(size=(20, 3))
    futurized = check(factors, RATINGS, p, q)
    assert "is unrolled" not in futurized.explain()
    futurized = check(factors, tuple(RATINGS), p, q)
    nodes = int(futurized.explain().split("staged: ")[1].split(" ")[0])
    assert nodes < 2000, futurized.explain()  # round by round there are some sixteen for each rating


def test_they_mean_the_same():
    check(degrees, EDGES, 30)
    check(degrees, [(a, b + 0.5) for a, b in EDGES], 30)
    check(with_keys, EDGES, {k: k * 0.5 for k in range(30)})
    check(with_keys, EDGES, {k: k * 0.5 for k in range(29)} | {29: "text"})
    check(list_that_grows, EDGES, np.ones(30))


def test_what_python_knows_of_them():
    for function, *args in ((first_above, EDGES, 50), (first_above, EDGES, 90), (degrees, EDGES, 20)):
        futurized = fx.futurize(function)
        for _ in range(2):
            assert outcome(futurized, args) == outcome(function, args), futurized.explain()
    futurized = fx.futurize(large)
    for _ in range(3):
        found = plain(futurized(EDGES))
        assert type(found) is int
        assert found == large(EDGES)  # more than 64 bits
