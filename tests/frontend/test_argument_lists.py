"""Long lists of numbers among the arguments: read, changed, returned, of any length, as plain Python has them."""

import copy
import math

import numpy as np
import pytest
from compare import plain
from program_search import kinds, whose

import futurex as fx
from futurex.frontend.argument_lists import MANY, MOST
from futurex.frontend.number_lists import LEAST, numbers_of

FLOATS = [k * 0.37 % 1.3 - 0.5 for k in range(200)]
INTS = [k * 7 % 31 - 9 for k in range(200)]
PLACES = np.arange(9) % 7


def table(n, width=6, of=float):
    return [[of(i * j % 7 - 2) for j in range(width)] for i in range(n)]


def outcome(function, args):
    args = copy.deepcopy(args)
    try:
        made = function(*args)
        return repr((plain(made), args)), kinds(args), whose(made, args)
    except Exception as error:
        return repr(error), repr(args), None


def agrees(function, *calls, traces=None):
    """The futurized function, after these calls: each means what the plain one does."""
    futurized = fx.futurize(function)
    for args in calls:
        assert outcome(futurized, args) == outcome(function, args)
    assert "runs as plain NumPy" not in futurized.explain(), futurized.explain()
    if traces is not None:
        assert len(futurized._traces()) <= traces, futurized.explain()
    return futurized


def mean(xs):
    return sum(xs) / len(xs)


def smoothed(xs):
    out = [xs[0]]
    for x in xs[1:]:
        out.append(0.3 * x + 0.7 * out[-1])
    return out


def drawdown(xs):
    best, peak = 0.0, xs[0]
    for x in xs:
        if x > peak:
            peak = x
        best = max(best, peak - x)
    return best


def rising(xs):
    n = len(xs)
    d = [1] * n
    for i in range(n):
        for j in range(i):
            if xs[j] < xs[i] and d[j] + 1 > d[i]:
                d[i] = d[j] + 1
    return max(d)


def sorted_in_place(xs):
    for i in range(len(xs)):
        for j in range(len(xs) - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return xs


def scaled(xs):
    most = max(xs)
    for i in range(len(xs)):
        xs[i] = xs[i] / most


def unit(xs):
    size = math.sqrt(sum(x * x for x in xs))
    return [x / size for x in xs]


def grown(xs):
    xs.append(sum(xs))
    last = xs.pop(0)
    return xs[-1] - last, len(xs)


@pytest.mark.parametrize("numbers", [FLOATS, INTS], ids=["floats", "ints"])
@pytest.mark.parametrize("function", [mean, smoothed, drawdown, rising, sorted_in_place, scaled, unit, grown])
def test_lists_of_any_length_have_a_few_traces(function, numbers):
    lengths = [60, 61, 47, 60, 83, 52, 75, 99, 64, 58]
    agrees(function, *((numbers[k : k + n],) for k, n in enumerate(lengths)), traces=4)


def test_another_list_of_ints_is_no_new_trace():
    calls = [([k + v for v in INTS[:50]],) for k in range(8)]
    agrees(rising, *calls, traces=3)


@pytest.mark.parametrize("least", [2**61 - 3, -(2**61), 2**63 - 3])
def test_sums_of_wide_ints_are_pythons(least):
    f = fx.futurize(mean)
    for k in range(6):
        assert outcome(f, ([least + k] * 40,)) == outcome(mean, ([least + k] * 40,))


@pytest.mark.parametrize(
    "numbers",
    [
        [True] * 40, [1] * 39 + [2.0], [0.5] * 39 + [True], [np.float64(2)] * 40, [np.float32(2)] * 40, [1j] * 40,
        [2**70] * 40, [0.5] * (LEAST - 1), [math.nan] * 40, [math.inf, -0.0] * 20,
    ],
    ids=lambda numbers: repr(numbers[-1]),
)  # fmt: skip
def test_numbers_of_other_types_stay_what_they_are(numbers):
    def taken(xs):
        return xs[3], xs[-1], xs[-1] * np.float32(2), xs[:2]

    agrees(taken, (numbers,), (numbers,))


def doubled(t):
    for i in range(len(t)):
        for j in range(len(t[i])):
            t[i][j] *= 2
    return t[1], sum(map(sum, t)), np.array(t)


def put(t, places, k):
    for i in range(9):
        t[i % 4][places[i] % 5] = places[i] * k
    return t[places[2]][1], t


def ordered(t, places, k):
    t[0].sort()
    t[1].reverse()
    t[places[3]][0] = k
    return [max(row) for row in t], t[0]


@pytest.mark.parametrize("of", [float, int])
@pytest.mark.parametrize("k", [3, 0.5])
def test_tables_are_read_and_written(of, k):
    agrees(doubled, *((table(n, of=of),) for n in (8, 8, 9, 10, 11)))
    agrees(put, *((table(n, of=of), PLACES, k) for n in (8, 8, 9, 10)))
    agrees(ordered, *((table(n, of=of), PLACES, of(k)) for n in (8, 8, 9)))  # those of several types are not sorted


def test_a_table_of_one_list_is_that_list():
    def written(t):
        t[0][1] = 7.0
        return t[3][1]

    for _ in range(2):
        row, other = [0.5] * 8, [0.5] * 8
        assert plain(fx.futurize(written)([row] * 8)) == written([other] * 8) == 7.0
        assert row == other


def test_a_list_that_is_given_twice_is_one_list():
    def changed(a, b):
        a[0] = b[1] + 1.0
        b[2] = a[0] + 1.0
        return a, b

    f = fx.futurize(changed)
    for one in (True, False, True, True, False):
        (a, b), (c, d) = ((xs, xs if one else list(FLOATS[:40])) for xs in (list(FLOATS[:40]), list(FLOATS[:40])))
        found, other = f(a, b)
        assert found is a
        assert other is b
        assert changed(c, d) == (a, b)


def test_a_call_that_fails_leaves_what_plain_python_leaves():
    def failing(xs, i):
        xs[0] = 5.0
        xs.append(1.0)
        return xs[int(i)]

    agrees(failing, *((FLOATS[:40], i) for i in (3.0, 700.0, 2.0, -42.0)))


def test_lists_in_dicts_and_keywords_are_changed_where_they_are():
    def logged(state, *, by):
        state["xs"].append(sum(state["xs"]) * by)
        return state["xs"], state["n"]

    f = fx.futurize(logged)
    for n in (40, 45, 46, 47, 48):
        mine, theirs = {"xs": FLOATS[:n], "n": 3}, {"xs": FLOATS[:n], "n": 3}
        xs, _ = f(mine, by=0.5)
        assert xs is mine["xs"]
        logged(theirs, by=0.5)
        assert mine == theirs


def test_a_list_that_may_be_another_names_is_the_callers():
    def one_of(a, b, w):
        c = a if w[0] > 0 else b
        c[1] = w[1]
        return c

    f = fx.futurize(one_of)
    for w in ([1.0, 5.0], [-1.0, 5.0]):
        mine, theirs = (FLOATS[:40], FLOATS[1:41]), (FLOATS[:40], FLOATS[1:41])
        found = f(*mine, np.array(w))
        one_of(*theirs, np.array(w))
        assert found is mine[w[0] < 0]
        assert mine == theirs


def test_slopes_of_lists_are_lists():
    def loss(w, x):
        return sum((v * x - 1) ** 2 for v in w)

    g = fx.grad(loss)
    for n in (40, 41, 42, 43, 40):
        found = plain(g(FLOATS[:n], 0.5))
        assert type(found) is list
        np.testing.assert_allclose(found, [(v * 0.5 - 1) for v in FLOATS[:n]], rtol=1e-12)


def residual(w, xs):
    total = 0.0
    for x in xs:
        total = total + (w * x - 1) ** 2
    return total


@fx.checkpoint
def squares(xs):
    return sum(x * x for x in xs)


@fx.custom_vjp
def doubled_slope(xs):
    return sum(xs)


doubled_slope.defvjp(lambda xs: (sum(xs), len(xs)), lambda n, g: ([2 * g] * n,))


@pytest.mark.parametrize("n", [40, MANY + 4])
def test_transforms_have_lists_entry_by_entry(n):
    xs = np.random.default_rng(n).normal(size=n).tolist()
    a, ones = np.array(xs), [1.0] * n
    np.testing.assert_allclose(plain(fx.grad(residual)(2.0, xs)), (2 * (2 * a - 1) * a).sum())
    np.testing.assert_allclose(plain(fx.grad(residual, argnums=1)(2.0, xs)), 4 * (2 * a - 1))
    np.testing.assert_allclose(plain(fx.jvp(squares, (xs,), (ones,)))[1], 2 * a.sum())
    np.testing.assert_allclose(plain(fx.vjp(squares, xs)[1](1.0))[0], 2 * a)
    np.testing.assert_allclose(plain(fx.grad(squares)(xs)), 2 * a)
    np.testing.assert_allclose(plain(fx.grad(doubled_slope)(xs)), 2.0)
    np.testing.assert_allclose(plain(fx.futurize(lambda v: doubled_slope(v) + squares(v))(xs)), (a + a * a).sum())


def test_the_trace_of_a_long_list_is_as_short_as_that_of_an_array():
    xs = np.random.default_rng(0).normal(size=MOST + 1).tolist()
    assert len(fx.futurize(smoothed).graph(xs).nodes) < 60
    agrees(drawdown, (xs,), (xs,))


def test_what_a_traced_list_cannot_be_is_staged_entry_by_entry():
    def told(xs):
        return xs == sorted(xs), xs[0]

    xs = np.random.default_rng(0).normal(size=MANY + 10).tolist()
    f = fx.futurize(told)
    for each in (xs, sorted(xs), xs[1:]):
        assert plain(f(each)) == told(each)


def repeated(x):
    n = int(x.sum())
    once, twice, none = [0] * n, n * [x[0], 2.5], [] * n
    for i in range(1, n):
        once[i] = once[i - 1] / 2 + i
    return once, twice, len(none), [1] * np.int64(3)


def test_a_list_repeated_as_often_as_data_says():
    calls = [(np.array(v),) for v in ([3.0, 2.0], [0.0, 0.0], [-5.0, 1.0], [1.0, 0.0], [10.0, 2.0])]
    f = fx.futurize(repeated)
    for args in calls:
        assert outcome(f, args) == outcome(repeated, args)


def filled(x):
    n = int(x.sum())
    found = [0] * n
    for i in range(n):
        found[i] = i * i
    return found


def test_such_a_list_is_one_of_the_tree():
    agrees(filled, *((np.array([v]),) for v in (5.0, 0.0, -2.0, 70.0)), traces=1)


def test_what_is_one_leaf():
    assert numbers_of([1.0] * LEAST) == (float, (LEAST,))
    assert numbers_of([[1] * 8] * 4) is None
    assert numbers_of([[1, k] for k in range(16)]) == (int, (16, 2))
    uneven, deep = [[1.0] * 40, [1.0] * 39], [[[1.0]] * 40]
    for other in ([], [[]] * 40, [1.0] * 39 + [1], uneven, [[1.0] * 40, 3.0], (1.0,) * 40, deep):
        assert numbers_of(other) is None


def test_explanations_and_graphs_have_lists():
    f = fx.futurize(mean)
    for n in (50, 51, 52, 53):
        f(FLOATS[:n])
    assert "list of float[50]" in f.explain()
    assert "list of float64[n0]: one trace for all sizes" in f.explain()
    assert "xs: float64[50]" in str(f.graph(FLOATS[:50]))


def apart(a, b):
    return sum(x * y for x, y in zip(a, b, strict=False)) + len(a) * 100 + len(b)


def marked(t, places, k):
    t[places[3]][0] = k
    return sum(row[0] for row in t)


def turned(t, places, k):
    t[0], t[1] = t[1], t[0]
    t[places[3]][1] = k
    return t[places[2]][0], t


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (mean, [(INTS[:40],)] * 5 + [(INTS[1:41],), (INTS[:40],)]),
        (mean, [([k] * 40,) for k in range(8)] + [([2**62] * 40,), ([2**62 + 1] * 40,), ([9] * 40,)]),
        (apart, [(FLOATS[:n], FLOATS[1 : n + 1]) for n in range(50, 58)] + [(FLOATS[:50], FLOATS[:40])] * 2),
        (marked, [(table(8), PLACES, 2.5)] * 6 + [([[0.5] * 6] * 8, PLACES, 2.5)] * 2),
        (turned, [(table(8), PLACES, 2.5)] * 4),
    ],
    ids=["other ints", "wide ints", "two lengths", "one row", "exchanged"],
)
def test_the_short_way_looks_at_all_that_a_trace_is_for(function, calls):
    f = fx.futurize(function)
    for args in calls:
        assert outcome(f, args) == outcome(function, args)


def test_a_long_list_that_may_be_another_names_is_the_callers():
    def one_of(a, b, w):
        c = a if w[0] > 0 else b
        c[1] = w[1]
        return len(c)

    f = fx.futurize(one_of)
    for w in ([1.0, 5.0], [-1.0, 5.0]):
        args = [k * 0.5 for k in range(MANY + 4)], [k * 0.25 for k in range(MANY + 4)], np.array(w)
        assert outcome(f, args) == outcome(one_of, args)
