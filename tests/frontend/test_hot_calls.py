"""Calls that have become hot: plans turn into one function, ways are compared, memory is used again, results stay."""

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import staging

RNG = np.random.default_rng(8)
X = RNG.standard_normal(70_000)
A = RNG.standard_normal((260, 300))
B = RNG.standard_normal((260, 300))
IMAGE = RNG.integers(0, 256, (120, 160, 3)).astype(np.uint8)
PLACES = RNG.integers(0, 260, 50_000)
CALLS = 45


def gradient_of_picture(a):
    across, along = np.gradient(a)
    return np.sqrt(across * across + along * along)


def counted(places, x):
    sums = np.zeros(260)
    np.add.at(sums, places, x[: places.size])
    return sums, np.bincount(places, minlength=260)


def windows(a):
    return np.lib.stride_tricks.sliding_window_view(a, (3, 3)).mean(axis=(2, 3))


def padded(a):
    p = np.pad(a, 1, mode="edge")
    return p[:-2, 1:-1] + p[2:, 1:-1] - 2 * a


def clipped(x):
    y = np.clip(x, -1, 1)
    return y.mean(), y.std(), y.max()


def zeroed(x):
    y = x.copy()
    y[x > 1] = 0
    return y


CASES = {
    "spectrum": (lambda x: np.abs(np.fft.rfft(x)), X),
    "sorted": (lambda x: np.sort(x)[::-1] * 2, X),
    "order": (lambda x: np.argsort(x) + 1, X),
    "middle": (lambda x: np.percentile(x, [5, 50, 95]), X),
    "smoothed": (lambda x: np.convolve(x, np.ones(16) / 16, "valid"), X),
    "turned and added": (lambda a: a[:, :260] + a[:, :260].T, A),
    "function of turned": (lambda a: np.exp(a.T) + 1, A),
    "every other": (lambda x: x[::2] + x[1::2], X),
    "differences": (lambda x: np.diff(x), X),
    "residual": (lambda a: ((a[1:-1, 1:-1] - a[:-2, 1:-1]) ** 2).sum(), A),
    "rows of views": (lambda a: (a[:, 1:-1] * a[:, :-2]).sum(1), A),
    "rolled": (lambda a: np.roll(a, 1, 0) + np.roll(a, -1, 1) - 2 * a, A),
    "grey": (lambda image: image[..., 0] * 0.3 + image[..., 1] * 0.6 + image[..., 2] * 0.1, IMAGE),
    "mirrored": (lambda image: (image[:, ::-1] // 2 + image // 2).astype(np.uint8), IMAGE),
    "means of colours": (lambda image: image.mean(axis=2), IMAGE),
    "picked rows": (lambda a, places: a[places[:900]] * 2, A, PLACES),
    "picked columns": (lambda a, places: a[:, places[:400]] * 2 - a[:, -places[:400]], A, PLACES),
    "joined": (lambda a, b: np.concatenate([a, b], 1) * 2, A, B),
    "stacked": (lambda a: np.stack([a, a * 2, a + 1]).mean(0), A),
    "repeated": (lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1), A),
    "blocks": (lambda a: a.reshape(65, 4, 75, 4).mean(axis=(1, 3)), A),
    "running": (lambda a: a.cumsum(0) + a.cumsum(1), A),
    "solved": (lambda a: np.linalg.solve(a[:200, :200] + 20 * np.eye(200), a[:200, 0]), A),
    "gradient": (gradient_of_picture, A),
    "counted": (counted, PLACES, X),
    "windows": (windows, A),
    "padded": (padded, A),
    "clipped": (clipped, X),
    "zeroed": (zeroed, X),
}


@pytest.mark.parametrize("name", CASES)
def test_the_last_call_gives_what_the_first_gives(name):
    function, *arguments = CASES[name]
    before = [each.copy() for each in arguments]
    expected = function(*arguments)
    expected = expected if isinstance(expected, tuple) else (expected,)
    futurized = fx.futurize(function)
    for _ in range(CALLS):
        found = futurized(*arguments)
        for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            value = np.asarray(one)
            assert value.dtype == other.dtype
            np.testing.assert_allclose(value, other, rtol=1e-12, atol=1e-12)
    for one, other in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_places_out_of_bounds_raise_at_every_call():
    pick = fx.futurize(lambda a, places: a[:, places] * 2)
    for place in (260, -261):
        places = PLACES.copy()
        places[-1] = place
        for _ in range(3):
            with pytest.raises(IndexError, match=f"index {place} is out of bounds for axis 1 with size 260"):
                pick(A[:, :260].copy(), places).result()


def sum_and_first(values, x):
    total = 0
    for value in values:
        total = total + value
    return total, x * values[0]


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("values", [[0.5] * 40, list(range(40)), [True, False] * 20])
def test_long_lists_are_told_apart(kind, values):
    f, x = fx.futurize(sum_and_first), np.ones(3)

    def same(values, x):
        total, first = f(values, x)
        expected = sum_and_first(values, x)
        assert type(total.result() if isinstance(total, fx.Array) else total) is type(expected[0])
        assert total == expected[0]
        assert np.asarray(first).dtype == expected[1].dtype
        assert first.tolist() == expected[1].tolist()

    for _ in range(6):
        same(kind(values), x)
    assert f._lane is not None
    numbers = 7.5, 4, True, np.float64(2.5), np.int64(2), np.float32(1.5), 3j
    for k, other in enumerate(numbers):
        same(kind([*values[:k], other, *values[k + 1 :]]), x)
    same(kind(values[1:]), x)
    same(kind([*values, 1]), x)
    same(kind(values[::-1]), x.astype(np.float32))
    same((tuple if kind is list else list)(values), x)
    same(kind(values), x)


def test_lists_of_many_numbers_have_a_short_way():
    f = fx.futurize(lambda rows: [sum(row) for row in rows])
    rows = [[float(i * j) for i in range(40)] for j in range(40)]
    for k in range(6):
        rows[3][5] = k + 0.5
        assert f(rows) == [sum(row) for row in rows]
    assert f._lane is not None
    rows[39][39] = 5
    assert f(rows) == [sum(row) for row in rows]
    g, many = fx.futurize(lambda rows: rows[0]["a"] + 1), [{"a": float(k)} for k in range(2000)]
    for _ in range(6):
        assert g(many) == 1.0
    assert g._lane is None  # as many tests as entries


def part_and_size(x, part, among, dtype, table):
    return x[part].astype(dtype) * len(among), sum(table.values()), len(table)


KINDS = {
    "slices": (1, [slice(0, 2), slice(0, 3), slice(None, 2), slice(0, 2, 1), slice(0, 2, None), slice(False, 2)]),
    "bounds of NumPy's": (1, [slice(0, 2), slice(np.int64(0), 2), slice(0, np.int64(2))]),
    "sets": (2, [{1, 2}, {1, 3}, {1, 2, 3}, {True, 2}, {1.0, 2}, frozenset({1, 2}), set(), {"a", "b"}]),
    "data types": (3, [np.dtype(float), np.dtype("f4"), np.dtype(">f8"), np.float32, "f4"]),
    "keys": (4, [{1: 2.0}, {True: 2.0}, {1.0: 2.0}, {2: 2.0}, {"1": 2.0}, {1: 2}, {}, {None: 2.0}, {np.int64(1): 2.0}]),
    "tuples": (4, [{(0, 1): 2.0}, {(0, 2): 2.0}, {(0, (1,)): 2.0}, {(0, "1"): 2.0}, {(0, 1, 2): 2.0}, {0: 2.0}]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_many_kinds_are_told_apart(kind):
    place, values = KINDS[kind]
    for value in values:
        f, args = fx.futurize(part_and_size), [np.arange(3.0), slice(0, 2), {1, 2}, np.dtype(float), {1: 2.0}]
        for other in [value] * 5 + values * 4 + [value] * 2:
            args[place] = other
            found, expected = f(*args), part_and_size(*args)
            assert [type(np.asarray(each)[()]) for each in found] == [type(np.asarray(each)[()]) for each in expected]
            assert found[0].dtype == expected[0].dtype
            assert repr([np.asarray(each).tolist() for each in found]) == repr(
                [np.asarray(each).tolist() for each in expected]
            )


class Layer:
    def __init__(self, weights):
        self.weights = weights

    @fx.futurize
    def __call__(self, x):
        return np.maximum(x @ self.weights, 0)


def test_kinds_of_calls_that_take_turns_have_short_ways(monkeypatch):
    layers = [Layer(np.full((k, k + 1), 0.5)) for k in (3, 4, 5, 6)]

    def called(x):
        for layer in layers:
            assert np.array_equal(layer(x), Layer.__call__.plain(layer, x))
            x = np.ones(layer.weights.shape[1])

    for _ in range(CALLS):
        called(np.ones(3))
    asked, call_key = [], staging.call_key
    monkeypatch.setattr(staging, "call_key", lambda *given: asked.append(1) or call_key(*given))
    called(np.ones(3))
    layers[1].weights *= 2
    called(np.ones(3))
    assert not asked
    layers[1].weights = np.full((4, 2), 3.0)
    layers[2].weights = np.full((2, 6), -1.0)
    called(np.ones(3))
    assert asked


def test_states_of_what_is_outside_are_told_apart_where_kinds_of_calls_take_turns(monkeypatch):
    f = fx.futurize(lambda x: x * SCALE)
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    for scale in [1.0] * 4 + [2.0] * 3 + [1.0, 3, 2.0, 3, 3]:
        globals()["SCALE"] = scale
        for given in (np.ones(2), np.ones(3, np.float32), 2.0, np.ones(2)):
            assert np.array_equal(f(given), given * scale)


SCALE = 1.0


def test_sets_that_change_are_told_apart():
    f, members = fx.futurize(lambda x, members: x * len(members)), {1, 2}
    for _ in range(6):
        assert f(1.5, members) == 3.0
    assert f._lane is not None
    members.add(3)
    assert f(1.5, members) == 4.5


def test_arrays_that_are_one_are_told_from_those_that_are_not():
    def written(a, b, c):
        a += 1
        return a.sum() + b.sum() * 10 + c.sum() * 100

    f = fx.futurize(written)
    for pattern in ["aab"] * 6 + ["abc"] * 6 + ["aaa"] * 4 + ["abb", "aba", "abb", "aba", "aab", "abc", "aaa"] * 2:
        mine, theirs = ({name: np.full(3, float(k)) for k, name in enumerate("abc")} for _ in range(2))
        assert f(*map(mine.get, pattern)) == written(*map(theirs.get, pattern))
        assert all((mine[name] == theirs[name]).all() for name in "abc")
