"""Programs whose arrays have extents that only the run knows, against NumPy and against finite differences."""

import pickle
import warnings

import numpy as np
import pytest
from compare import agree, bits, plain
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.partition.mesh import Mesh, Replicate, Shard
from futurex.partition.virtual import run
from futurex.tree.printer import compile_printed
from futurex.tree.verify import verify

RNG = np.random.default_rng(7)
X = RNG.normal(size=20)
M = RNG.normal(size=(5, 6))
LINES = (X, -np.abs(X), np.abs(X), np.where(np.arange(20) == 3, 1.0, -1.0))  # some, none, all, and one positive
TABLES = (M, -np.abs(M), np.abs(M), np.where(np.eye(5, 6) > 0, 1.0, -1.0))
PROGRAMS = []


def program(*inputs):
    def add(function):
        PROGRAMS.append(pytest.param(function, inputs, id=function.__name__))
        return function

    return add


lines, tables = program(*((x,) for x in LINES)), program(*((m,) for m in TABLES))


@lines
def masked_reads(x):
    y = x[x > 0]
    return y, y.sum(), y * 2 + 1, np.exp(y), y[::-1], x[~(x > 0)], y.astype(np.float32), -y, np.where(y > 1, y, 0)


@lines
def masked_statistics(x):
    good = x[np.isfinite(x) & (x > 0)]
    return good.mean(), good.std(), good.var(ddof=1), good.size, good.shape, len(good), good.nbytes


@lines
def rows_under_names(x):
    a, b, c = np.append(x[x > 0], np.ones(3))[:3]
    peak = int(np.argmax(x))
    if 0 < peak < len(x) - 1:
        before, top, after = x[peak - 1 : peak + 2]
        return a, b * c, (before - after) / (before - 2 * top + after)
    return a, b * c, 0.0


@lines
def rows_of_two_masks(x):
    rows = x.reshape(10, 2)[np.argsort(x[:10]) < 2]
    (a, b), c = rows
    d, e = rows.T
    return a, b, c, d, e


@lines
def counts_of_groups(x):
    keys = (x[x > -1] * 2).astype(int)
    groups, of = np.unique(keys, return_inverse=True)
    n = len(groups)
    large = np.bincount(of[keys > 0], minlength=n)
    return groups, np.bincount(of, minlength=n), large / n, np.bincount(of, weights=keys * 0.5, minlength=n)


@lines
def diagonals(x):
    n, m = int((x > 0).sum()), int((x > 0.5).sum())
    ones = np.eye(n, order="F")
    ones[:1] = 3
    return ones, np.eye(n, m, n - 3), np.eye(n, k=1, dtype=bool), np.eye(2, n, -1, np.float32), np.identity(m, int)


@lines
def a_system_of_what_is_kept(x):
    kept = np.flatnonzero(x > 0)
    matrix = np.outer(x, x)[np.ix_(kept, kept)] + np.eye(len(kept))
    return np.linalg.solve(matrix, x[kept])


@lines
def masked_writes(x):
    y, z = x.copy(), x.copy()
    y[y > 0] = y[y > 0] * 2
    y[y < 0] += 5
    z[z > 0] = np.arange((z > 0).sum())
    x[x > 1] = 0.5
    return y, z


@tables
def masks_among_other_indices(m):
    rows = m[:, 0] > 0
    few = m[m > 0], m[None, rows], m[rows, 1:3], m[rows][:, [0, 2]]
    return m[rows], m[rows, 1], m[1, m[1] > 0], m[:, m[0] > 0], few


@tables
def masked_writes_of_tables(m):
    m = m.copy()
    m[m[:, 0] > 0, 1] = 7
    m[1, m[1] > 0] += 2
    m[m > 0] *= -1
    m[:, m[0] > 0] = 0
    m[m[:, 0] < -1] = np.arange(6.0)
    return m


@tables
def narrower_from_round_to_round(m):
    """What a mask leaves is reshaped in each round, and masked again in the next."""
    for _ in range(3):
        rows, columns = m.shape
        mask = np.ones((rows, columns), dtype=bool)
        place = np.argmin(m[-1])
        for i in range(rows - 1, -1, -1):
            mask[i, place] = False
            place = place + 1 if place < columns - 1 else place - 1
        m = m[mask].reshape(rows, columns - 1)
    return m


@lines
def parts_of_one_length(x):
    kept, total = x[np.abs(x) > 0.5], 0.0
    for i in range(1, 9):
        table = np.stack([x[:i], x[i : 2 * i]]) + np.array([x[:i], x[1 : i + 1]])
        total += table.max() + np.stack((kept, kept * 2), axis=-1).sum()
    return total, np.stack([kept, kept + 1])


@tables
def columns(m):
    kept = m[:, m.sum(0) > 0]
    return kept.T, kept.copy().ravel(), kept.sum(axis=0), kept.sum(axis=1), kept.mean(axis=1), kept.T @ kept, kept.size


@lines
def positions(x):
    return np.nonzero(x > 0), np.where(x > 0), np.argwhere(x > 0), np.flatnonzero(x > 0), (x > 0).nonzero()


@tables
def positions_in_tables(m):
    i, j = np.nonzero(m > 0)
    return m[i, j], i * 6 + j, np.argwhere(m > 0), np.compress(m[:, 0] > 0, m, axis=0), np.extract(m > 0, m)


@lines
def distinct(x):
    whole = np.floor(x)
    some = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
    return np.unique(whole), some, np.unique(x > 0), np.unique(whole[whole > 0]).size


@tables
def tiled_so_many_times(m):
    k = int((m[0] > 0).sum())
    n = (m > 0).sum()
    tiled = np.tile(m, (k, 1)), np.tile(m, (1, n)), np.tile(m[0], n), np.tile(m[1], (k, 1)), np.tile(m, (2, k, n))
    repeated = np.repeat(m[:1], n, axis=0), m[:, :1].repeat(k, 1), np.repeat(2.5, k), np.repeat(m[:1] > 0, n, 0)
    return *tiled, *repeated, np.tile(m[m > 0], k), np.tile(m[:0], (n, 1)), np.tile(2.5, (k, 3)), np.tile([1, 2], n)


@tables
def repeats(m):
    counts = np.where(m[:, 0] > 0, 2, 0)
    return np.repeat(m, counts, axis=0), np.repeat(m[0], 3), m.repeat(2, axis=1), np.repeat(m[:, 1], counts)


@lines
def shapes_from_counts(x):
    n = int((x > 0).sum())
    ranges = np.arange(n), np.arange(0, n, 2), np.arange(len(x[x > 0])), np.arange(n, dtype=np.float32)
    return np.zeros((n, n)), np.ones(n), np.full((2, n), 3), ranges, np.zeros(len(x[x > 0])) + x[x > 0]


@lines
def slices_with_computed_bounds(x):
    n = (x > 0).sum()
    head, tail = x[:n], x[n:]
    x[:n] = 0
    x[n:] += 1
    middle = x[n // 2 : n]
    middle *= 3
    return head.sum(), tail.size, x[n - 1 : n + 1], x[::-1][:n]


@lines
def slices_of_selections(x):
    y = x[x > 0]
    return y[1:] - y[:-1], y[:3], y[-2:], y[2:-1].sum(), y[::2], len(y[5:]), y[1:][1:]


@lines
def slices_between_lengths(x):
    y, a, b = x[x > -1], len(x[x > 0]), len(x[x > 1])
    z = x[:a]
    return x[b:a], x[a:b], y[: len(y)], y[1 : len(y)], z[b:], np.zeros(len(z[b:])), np.ones(len(x[a:b])), len(x[a:b])


@lines
def products_of_selections(x):
    y, z = x[x > 0], x[:1]
    return np.einsum("i,i->i", y, y), np.einsum("i,j->ij", y, x[x < 0]), np.einsum("i,i->", y, y), y @ y, z * y


@lines
def reshapes(x):
    y = x[x > 0]
    return y.reshape(-1, 1), y[:, None] * y, np.outer(y, x[x < 0]), y.reshape(1, len(y)).ravel(), np.vstack([y, y]).T


@lines
def joins(x):
    return np.concatenate([x[x > 0], x[x <= 0]]), np.append(x[x > 1], 5.0), np.hstack([x[x > 0], 1.0, 2.0])


@lines
def broadcasts(x):
    return x[x > 0] + x[:1], x[x > 0][:, None] * x[:3], x[:3, None] - x[x < 0]


@lines
def views_of_selections(x):
    y = x[x > 0]
    y[:2] = 1.0
    z = y[::-1]
    z += 1
    return y, z


@lines
def shrinks_in_a_loop(x):
    rounds, y = 0, x
    while len(y) > 2:
        y = y[y > y.mean()]
        rounds += 1
    return y, rounds


@lines
def grows_in_a_loop(x):
    out = x[:0]
    for i in range(40):
        if x[i % 20] > 0:
            out = np.append(out, x[i % 20] + i)
    return out


@lines
def iterates_over_a_selection(x):
    total = 0.0
    for value in x[x > 0]:
        total = total * 0.5 + value
    return total


@lines
def branches_of_different_lengths(x):
    y = x[x > 0] if x.sum() > 0 else x[:2]
    if len(y) > 3:
        z = y[:3]
    else:
        z = x[x < 0]
    return y, z


@program((np.zeros(100),), (np.zeros(7),))
def sieve(marks):
    n = len(marks)
    prime = np.ones(n, bool)
    prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if prime[i]:
            prime[i * i :: i] = False
    return np.nonzero(prime)[0]


ADJACENT = np.random.default_rng(3).random((30, 30)) < 0.08


@program((ADJACENT, 0), (ADJACENT, 5), (np.zeros((30, 30), bool), 0), (np.ones((30, 30), bool), 2))
def breadth_first(adjacent, start):
    distance = np.full(adjacent.shape[0], -1)
    distance[start] = 0
    frontier, level = np.array([start]), 0
    while len(frontier):
        level += 1
        reached = adjacent[frontier].any(axis=0)
        frontier = np.nonzero(reached & (distance < 0))[0]
        distance[frontier] = level
    return distance


POINTS = np.random.default_rng(5).normal(size=(50, 2))


@program((POINTS, POINTS[:3]), (POINTS, POINTS[10:13] + 100))
def k_means(points, centres):
    centres = centres.copy()
    for _ in range(5):
        nearest = ((points[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)
        for k in range(3):
            mine = points[nearest == k]
            if len(mine) > 0:
                centres[k] = mine.mean(axis=0)
    return centres, nearest


@lines
def newton_on_an_active_set(a):
    x, active = np.ones_like(a), np.nonzero(a > 0)[0]
    rounds = 0
    while len(active) > 0 and rounds < 50:
        guess = x[active]
        better = 0.5 * (guess + a[active] / guess)
        x[active] = better
        active = active[np.abs(better - guess) > 1e-12]
        rounds += 1
    return x, rounds


@pytest.mark.parametrize(("function", "inputs"), PROGRAMS)
def test_a_program_means_what_numpy_means(function, inputs):
    futurized = fx.futurize(function, escape="error")
    for given_ in inputs:
        mine, theirs = ([a.copy() if isinstance(a, np.ndarray) else a for a in given_] for _ in range(2))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # means of nothing
            expected = bits(function(*theirs))
            actual = bits(plain(futurized(*mine)))
        assert agree(actual, expected), function.__name__
        assert agree(bits(mine), bits(theirs))
    traces = len({tuple(a if isinstance(a, int) else a.shape for a in given_) for given_ in inputs})
    assert futurized.explain().count("staged: ") == traces  # data does not make a new trace


FAILURES = {
    "a mask of another length": lambda x: x[np.array([True, False])],
    "a mask whose length the run tells": lambda x: x[(x[x > 0] > 0)],
    "lengths that do not fit": lambda x: x[x > 0] + np.ones(7),
    "an index past the end": lambda x: x[x > 0][15],
    "the greatest of nothing": lambda x: x[x > 100].max(),
    "a negative extent": lambda x: np.zeros((x > 0).sum() - 100),
    "a diagonal of less than nothing": lambda x: np.eye((x > 0).sum() - 100),
    "counts of less than none": lambda x: np.bincount((x > 0).astype(int), minlength=(x > 0).sum() - 100),
    "a reshape that does not divide": lambda x: np.append(x[x > 0], x[:1]).reshape(2, -1)[:, :0],
    "a write that does not fit": lambda x: np.copyto(x[x > 0], np.ones(17)),
    "a stack of several lengths": lambda x: np.stack([x[x > 0], x[x <= 0]]),
    "too many indices": lambda x: x[x > 0, 0],
    "more rows than names": lambda x: (lambda a, b: a)(*_two(x[x > 0])),
    "less rows than names": lambda x: (lambda a, b: a)(*_two(x[x > 0][:1])),
}


def _two(rows):
    first, second = rows
    return first, second


@pytest.mark.parametrize("name", FAILURES)
def test_what_numpy_refuses_is_refused(name):
    function, x = FAILURES[name], np.where(np.arange(20) < 4, 1.0, -1.0)
    with pytest.raises(Exception) as expected:
        function(x)
    with pytest.raises(expected.type):
        plain(fx.futurize(function)(x))


SCALARS = {
    "a sum of squares": lambda x: (x[x > 0] ** 2).sum(),
    "a mean": lambda x: x[x > 0].mean(),
    "a deviation": lambda x: x[x > 0].std(),
    "the greatest": lambda x: x[x > 0].max(),
    "differences": lambda x: ((x[x > 0][1:] - x[x > 0][:-1]) ** 2).sum(),
    "cumulative sums": lambda x: (np.cumsum(x[x > 0]) ** 2).sum(),
    "a join": lambda x: (np.concatenate([x[x > 0] * 2, x[x <= 0]]) ** 2)[::2].sum(),
    "an outer product": lambda x: (np.outer(x[x > 0], x[x < 0]) ** 2).sum(),
    "broadcasting": lambda x: (x[x > 0] + x[:1]).sum() + (x[x > 0][:, None] * x[:3]).sum(),
    "a matrix product": lambda x: (x[x > 0].reshape(-1, 1) @ x[x > 0].reshape(1, -1)).sum(),
    "repetition": lambda x: (np.repeat(x, np.where(x > 0, 2, 1)) ** 3).sum(),
    "positions": lambda x: (x[np.nonzero(x > 0)[0]] * np.nonzero(x > 0)[0]).sum(),
    "a computed slice": lambda x: (x[: int(np.abs(x[0]) * 10) + 2] ** 2).sum(),
}


def masked_update(x):
    y = x.copy()
    y[y > 0] = y[y > 0] * x[x > 0]
    y[y < -1] *= 3
    return (y * y).sum()


def written_slice(x):
    k = int(np.abs(x[0]) * 10) + 2
    y = np.zeros(len(x))
    y[k:] = x[k:] * 2
    return (y**2).sum()


def filled_selection(x):
    y = x[x > 0]
    w = np.zeros(len(y))
    w += y
    w[0] = 3.0
    return (w * w).sum()


def chosen_selection(x):
    y = x[x > 0] if x.sum() > 0 else x[x < 0]
    return (y * y).sum()


def selections_in_a_loop(x):
    total = 0.0
    for i in range(30):
        total = total + (x[x > i * 0.1] ** 2).sum()
    return total


SCALARS |= {
    f.__name__: f for f in (masked_update, written_slice, filled_selection, chosen_selection, selections_in_a_loop)
}


@pytest.mark.parametrize("name", SCALARS)
def test_gradients_are_those_of_finite_differences(name):
    function, step = SCALARS[name], 1e-6
    expected = [(function(X + step * e) - function(X - step * e)) / (2 * step) for e in np.eye(20)]
    np.testing.assert_allclose(np.asarray(fx.grad(function)(X)), expected, rtol=1e-5, atol=1e-5)


def elements_of_a_selection(x):
    v = x[x > 0.1]
    y = np.zeros_like(v)
    for i in range(len(v)):
        y[i] = v[i] ** 3
    return y.sum()


def rounds_over_a_selection(x):
    v = x[x > 0.1]
    s = v * 1
    for i in range(len(v)):
        s = s * v[i] + np.sin(v)
        s[i] = s[i] * v[0]
    return s.sum()


@pytest.mark.parametrize("function", [elements_of_a_selection, rounds_over_a_selection])
def test_loops_over_a_selection_have_second_derivatives(function):
    gradient, step = fx.grad(function), 1e-6
    for x in (np.array([0.5, -1.0, 1.2, 0.8]), np.array([0.7, 0.9, -0.5, -0.2])):
        ups_and_downs = [(np.asarray(gradient(x + e)), np.asarray(gradient(x - e))) for e in step * np.eye(4)]
        expected = np.array([(up - down) / (2 * step) for up, down in ups_and_downs])
        np.testing.assert_allclose(np.asarray(fx.hessian(function)(x)), expected, rtol=1e-5, atol=1e-5)
        again = fx.grad(lambda x: fx.grad(function)(x).sum())
        np.testing.assert_allclose(np.asarray(again(x)), expected.sum(0), rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 6), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_random_masks_and_shapes(rows, columns_, seed):
    rng = np.random.default_rng(seed)
    m, mask = rng.normal(size=(rows, columns_)), rng.random((rows, columns_)) < rng.random()

    def select(m, mask):
        chosen, rows_ = m[mask], m[mask.any(axis=1)]
        m[mask] = chosen * 2
        return chosen, rows_, rows_.sum(axis=0), m[:, mask.all(axis=0)], np.nonzero(mask), len(chosen), rows_.T

    expected = select(m.copy(), mask)
    assert agree(bits(plain(fx.futurize(select, escape="error")(m, mask))), bits(expected))


def test_a_tree_with_unknown_dimensions_verifies_prints_and_travels():
    def select(x):
        y = x[x > 0]
        return np.zeros(len(y) + 2) + y.sum(), y[1:] * 2, y.reshape(-1, 1)

    graph = verify(fx.futurize(select).graph(X))
    again = pickle.loads(pickle.dumps(graph))
    assert again.hash == graph.hash
    printed = compile_printed(str(graph), graph.name)(X)
    for result, expected in zip(printed, select(X), strict=True):
        np.testing.assert_array_equal(result, expected)
    for result, expected in zip(again(X), select(X), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_plan_says_how_many_arrays_it_cannot_measure():
    assert fx.futurize(lambda x: x[x > 0] + 1.0).memory(X).unknown >= 2
    assert fx.futurize(lambda x: x + 1.0).memory(X).unknown == 0


def test_results_know_their_shape_once_they_are_there():
    y = fx.futurize(lambda x: x[x > 0])(X)
    assert (y.shape, y.size, len(y), y.ndim) == (((X > 0).sum(),), (X > 0).sum(), (X > 0).sum(), 1)
    assert float((y + 1).sum()) == pytest.approx((X[X > 0] + 1).sum())


def test_localities_agree_on_unknown_dimensions():
    graph = fx.lower(lambda x: (x[x > 0] * 2).sum() + x.sum(), X).graph
    for placement in (Shard(0), Replicate()):
        for results in run(graph, [placement], Mesh((("data", 3),)), [X]):
            np.testing.assert_allclose(results[0], (X[X > 0] * 2).sum() + X.sum())


def under_empty_masks(x):
    none = x[x > 99] > 0
    table, written = np.outer(x, x), x.copy()
    written[none] = 5
    return x[none], table[:, none], table[np.outer(x, x[x > 99]) > 0], written


def test_a_mask_of_nothing_fits_any_axis():
    for result, expected in zip(fx.futurize(under_empty_masks, escape="error")(X), under_empty_masks(X), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.onednn
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [3, 64])
def test_what_is_picked_is_a_matrix_in_products(dtype, n):
    def product(x, w):
        a = x[x > 0].reshape(n, n)
        return a @ w, w @ a.T, a.T @ a

    x, w = np.arange(-2, n * n + 1).astype(dtype), np.random.default_rng(0).random((n, n)).astype(dtype)
    staged = fx.futurize(product, escape="error")
    for result, expected in zip(staged(x, w), product(x, w), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-12 if dtype is np.float64 else 1e-4)


def distances(x):
    """A row against those behind it, of which there are fewer in each round."""
    found = np.full((len(x), len(x)), np.inf)
    for k in range(len(x)):
        found[k, k:] = np.abs(np.tile(x[k], (len(x) - k, 1)) - x[k:]).max(axis=1)
    return found


def test_what_is_tiled_as_often_as_a_counter_says_is_no_reason_to_unroll():
    f, x = fx.futurize(distances, escape="error"), RNG.normal(size=(40, 3))
    np.testing.assert_array_equal(f(x), distances(x))
    assert "compiled whole" in f.explain()


def test_gradients_of_what_is_repeated_so_many_times():
    def repeated(x):
        k = (x > 0).sum()
        return (np.tile(x[:3], (k, 1)) * np.arange(3.0)).sum() + (np.repeat(x[:1], k) ** 2).sum() + np.tile(x, k).sum()

    check = np.array([(repeated(X + e) - repeated(X - e)) / 2e-6 for e in 1e-6 * np.eye(20)])
    np.testing.assert_allclose(fx.grad(repeated)(X), check, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("by", [-1, -2])
def test_negative_counts_of_tiles_are_refused(by):
    f = fx.futurize(lambda x: np.tile(x, by * (x > 0).sum()))
    np.testing.assert_array_equal(f(-np.abs(X)), [])
    with pytest.raises(ValueError, match="negative dimensions"):
        np.asarray(f(np.abs(X)))
