"""Slices whose bounds move with a loop's counter: their shapes are known before the run where they stay on the axis."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import futurex as fx

ROUNDS = 40
X = np.random.default_rng(0).normal(size=(2 * ROUNDS, 6))


def batches(x, w):
    for i in range(0, len(x), 2):
        part = x[i : i + 2]
        w = w - 0.01 * (part.T @ (part @ w - part.mean(axis=1)))
    return w


def paths(d):
    d = d.copy()
    for k in range(len(d)):
        d = np.minimum(d, d[:, k : k + 1] + d[k : k + 1])
    return d


def blocks(x):
    out = np.zeros((ROUNDS, 2))
    for i in range(ROUNDS):
        out[i : i + 1] = x[i * 2 : (i + 1) * 2, 1:5:2].sum(axis=0)
        out[i : i + 1, :1] += x[2 * i + 1 - 1 : i + i + 2].max()
    return out


def backwards(x):
    total = np.zeros((3, 6))
    for i in range(len(x) - 3, -1, -1):
        total = 0.5 * total + x[i : i + 3]
        total += x[len(x) - 3 - i : len(x) - i]
    return total


def every_other(x):
    total = np.zeros((2, 6))
    for i in range(ROUNDS):
        total = 0.9 * total + x[i : i + 3 : 2]
    return total


def views_are_views(x):
    x = x.copy()
    for i in range(1, len(x) - 1):
        part = x[i - 1 : i + 2]
        part[1] = part.mean(axis=0)
        part[:, 0] *= 0.5
    return x


def cut_off(x):
    """Parts that end beyond the axis, or begin before it, are as long as NumPy leaves them."""
    sizes = np.zeros(ROUNDS * 2)
    for i in range(ROUNDS * 2):
        sizes[i] = x[i : i + 3].sum() + len(x[i : i + 3]) + x[i - 1 : i + 1].size
    return sizes


def nested(x):
    total = 0.0
    for i in range(ROUNDS):
        for j in range(2, 30):
            total = total * 0.5 + (x[i : i + 2, :2] * x[j - 2 : j, 2:4]).sum()
    return total


def shapes(x):
    out = np.zeros(ROUNDS)
    for i in range(ROUNDS):
        part = x[i : i + 4]
        rows, columns = part.shape
        out[i] = part.reshape(rows * columns)[::-1][: len(part)].sum() / part.size
    return out


def growing(x):
    """Parts that get longer from round to round are changed in place by others, as in triangular solvers."""
    x, y = x.copy(), np.linspace(0.1, 0.9, len(x))
    for k in range(1, ROUNDS):
        y[:k] += 0.01 * np.flip(y[:k]) - x[:k, 1] * y[ROUNDS - k : ROUNDS]
        x[k, :2] *= x[:k, 0].mean()
        np.multiply(x[:k, 3], y[k : 2 * k], out=x[:k, 4], where=y[:k] > 0.2)
        np.maximum.at(y, np.arange(k), x[:k, 5])
    return np.concatenate([x.ravel(), y])


def pivots(x):
    """Columns of one element beside rows that get shorter, as elimination reads them."""
    a = x[:ROUNDS] @ x[:ROUNDS].T + np.eye(ROUNDS)
    for k in range(ROUNDS - 1):
        j = k + np.argmax(np.abs(a[k:, k]))
        if j != k:
            a[[k, j]] = a[[j, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k : k + 1] * a[k : k + 1, k + 1 :]
    return a


def corners(x):
    """Beside what is known of one axis there are axes of one element, numbers and slices of known bounds."""
    x, total = x.reshape(len(x), 2, 3).copy(), 0.0
    for k in range(1, ROUNDS):
        part = x[k:, None, 1, k - k : 2 - k + k]
        total = 0.5 * total + part.sum() + part.shape[-1] - part.shape[1]
        x[:k, 1:, k : k + 1] *= 0.5
        x[k : k + 2, :, :k] += x[k : k + 2, :1, :k] * 0.25
        total += x[:k][..., k - 1 : k].sum() + x[-k:, k : k + 2][0].sum()
    return x.ravel() * total


def named_rows(x):
    """A name for a part that its round writes, or changes through the name: the next round binds it anew."""
    x = x.copy()
    for i in range(1, len(x)):
        row, before = x[i], x[i - 1]
        x[i] = row * 0.5 + before
        row[2:4] += x[i, :2]
        for j in range(8):
            other = x[j]
            other *= 1.01
            x[i, 5] += other[4]
    x[0] = 7
    return x


def read_behind(x):
    x = x.copy()
    for i in range(1, ROUNDS):
        row = x[i]
        x[i] = row * 0.5 + x[i - 1]
    row[1] = 5
    x[ROUNDS - 1, 0] = 3
    return x * row[0]


def read_before(x):
    x = x.copy()
    row = x[0]
    for i in range(1, ROUNDS):
        x[i] += row * 0.5
        row = x[i]
    return x


def kept_from_a_round(x):
    x = x.copy()
    for i in range(1, ROUNDS):
        row = x[i]
        x[i] = row * 0.5 + 1
        if i == 5:
            kept = row
        if i > 5:
            kept += 1
            x[5] *= 0.9
    return x, kept * 1


UNROLLED = [read_behind, read_before, kept_from_a_round]
FUNCTIONS = [paths, blocks, backwards, every_other, views_are_views, cut_off, nested, shapes, growing, named_rows,
             pivots, corners]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_parts_mean_what_they_mean_in_numpy(function, dtype):
    x = X[:, :6].astype(dtype) if function is not paths else np.abs(X[:, :1] - X[:, 0]).astype(dtype)
    f = fx.futurize(function)
    for _ in range(3):
        found, wanted = np.asarray(f(x)), np.asarray(function(x))
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == "f4" else 1e-12)
    assert "unrolled" not in f.explain()
    assert "plain NumPy" not in f.explain()


@pytest.mark.parametrize("function", UNROLLED, ids=lambda each: each.__name__)
def test_names_of_parts_that_other_rounds_read(function):
    f = fx.futurize(function)
    for _ in range(3):
        for mine, numpys in zip(f(X), function(X), strict=True):
            np.testing.assert_allclose(mine, numpys, rtol=1e-12)
    assert "unrolled" in f.explain()


@pytest.mark.parametrize("late", [0, ROUNDS - 3])
def test_parts_that_do_not_fit_raise_as_in_numpy(late):
    def function(x):
        for k in range(1, ROUNDS):
            x[:k] += 0.5 * x[ROUNDS : ROUNDS + k + (k > late)]
        return x

    f = fx.futurize(function)
    for _ in range(3):
        mine, numpys = X.copy(), X.copy()
        with pytest.raises(ValueError) as wanted:
            function(numpys)
        with pytest.raises(ValueError) as found:
            np.asarray(f(mine))
        assert str(found.value) == str(wanted.value)
        np.testing.assert_array_equal(mine, numpys)


def test_batches_are_arrays_of_known_shape():
    f = fx.futurize(batches)
    np.testing.assert_allclose(f(X, np.ones(6)), batches(X, np.ones(6)), rtol=1e-12)
    (loop,) = [each for each in f.graph(X, np.ones(6)).nodes if each.op == "loop"]
    assert all(node.is_static for node in loop.attrs["body"].nodes)
    assert any(node.op == "load" and node.shape == (2, 6) for node in loop.attrs["body"].nodes)


def test_derivatives_and_maps():
    w = np.linspace(-1, 1, 6)

    def loss(w, x):
        return (batches(x, w) ** 2).sum()

    gradient = np.asarray(fx.grad(loss)(w, X))
    direction = np.cos(np.arange(6.0))
    ahead, behind = (loss(w + step * direction, X) for step in (1e-6, -1e-6))
    np.testing.assert_allclose(gradient @ direction, (ahead - behind) / 2e-6, rtol=1e-6)
    others = np.stack([w, 2 * w, -w])
    np.testing.assert_allclose(fx.vmap(lambda w: batches(X, w))(others), [batches(X, each) for each in others])
    by_x = np.asarray(fx.grad(loss, argnums=1)(w, X))
    bump = np.zeros_like(X)
    bump[7, 2] = 1e-6
    np.testing.assert_allclose(by_x[7, 2], (loss(w, X + bump) - loss(w, X - bump)) / 2e-6, rtol=1e-5)


def test_columns_beside_rows_that_get_shorter_are_arrays_of_one_column():
    def eliminated(a):
        a = a.copy()
        for k in range(len(a) - 1):
            a[k + 1 :] -= a[k + 1 :, k : k + 1] / a[k, k] * a[k]
        return a

    a = X[:20] @ X[:20].T + 4 * np.eye(20)
    f = fx.futurize(eliminated)
    np.testing.assert_allclose(f(a), eliminated(a), rtol=1e-12)
    (loop,) = [each for each in f.graph(a).nodes if each.op == "loop"]
    assert any(node.op == "load" and node.ndim == 2 and node.shape[1] == 1 for node in loop.attrs["body"].nodes)
    gradient = np.asarray(fx.grad(lambda a: (eliminated(a) ** 2).sum())(a))
    ahead, behind = ((eliminated(a + step * np.eye(20, k=1)) ** 2).sum() for step in (1e-6, -1e-6))
    np.testing.assert_allclose(np.diag(gradient, 1).sum(), (ahead - behind) / 2e-6, rtol=1e-6)
    several = np.stack([a, a.T, 2 * a])
    np.testing.assert_allclose(fx.vmap(eliminated)(several), [eliminated(each) for each in several], rtol=1e-11)


@given(
    first=st.tuples(st.integers(-1, 2), st.integers(-4, 9), st.integers(-1, 2), st.integers(-4, 9)),
    second=st.tuples(st.integers(-1, 2), st.integers(-2, 6), st.integers(0, 4)),
    form=st.integers(0, 4), write=st.booleans(),
)  # fmt: skip
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_two_axes(first, second, form, write):
    a, b, c, d = first
    slope, offset, length = second

    def function(x):
        x, total = x.reshape(10, 8, 6).copy(), 0.0
        for i in range(6):
            rows, columns = slice(a * i + b, c * i + d), slice(slope * i + offset, slope * i + offset + length)
            index = ((rows, columns), (columns, rows, 2), (rows, None, columns), (3, rows, columns),
                     (rows, slice(1, 5), columns))[form]  # fmt: skip
            part = x[index]
            total = 0.5 * total + part.sum() + part.size
            if write:
                part += 0.25
                x[index] *= 0.5
        return total, x

    found = fx.futurize(function)(X)
    wanted = function(X)
    for mine, numpys in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, numpys, rtol=1e-12, atol=1e-12)


@given(
    start=st.integers(-3, 6), stop=st.integers(-6, 90), step=st.sampled_from([1, 2, 3, -1, -2]),
    slope=st.integers(-2, 3), offset=st.integers(-5, 90), length=st.integers(-1, 5),
    stride=st.sampled_from([None, 1, 2, -1]),
    write=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_line_over_a_counter(start, stop, step, slope, offset, length, stride, write):
    def function(x):
        x, total = x.copy(), 0.0
        for i in range(start, stop, step):
            part = x[slope * i + offset : slope * i + offset + length : stride]
            total = 0.5 * total + part.sum() + part.shape[0]
            if write:
                part += 0.25
                x[slope * i + offset : offset + length + i * slope] *= 0.5
        return total, x

    found = fx.futurize(function)(X)
    wanted = function(X)
    for mine, numpys in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, numpys, rtol=1e-12, atol=1e-12)


def rows_of_windows(x):
    rows, total = [], 0.0
    for i in range(len(x) - 3):
        rows.append(np.array([x[j] for j in range(i, i + 3)]))
        a, b, c = [x[j] * j for j in range(i + 2, i - 1, -1)]
        total = total + a * b - c
    return np.array(rows), total


def medians(x):
    """Which numbers stand where, an array tells."""
    out = np.zeros(len(x))
    for i in range(2, len(x) - 2):
        near = [x[j] for j in range(i - 2, i + 3)]
        near.sort(reverse=True)
        out[i] = near[2] - sorted([x[j] for j in range(i - 1, i + 1)])[0]
    return out


def sums_of_windows(x):
    """Comprehensions over as many numbers in each round."""
    out = np.zeros(len(x))
    for i in range(5, len(x) - 25):
        near = [x[j] * (j - i) for j in range(i - 2, i + 3)]
        out[i] = max(near) - min(near) + len(near) + sum([x[k] * 0.5 ** (i - k) for k in range(i, i - 5, -2)])
        out[i] += sum([x[j] for j in range(i, i)]) + len([-j for j in range(i, i - 3)])
        out[i] += max([x[j] for j in range(i, i + 25)])
        out[i] += sum([x[p] * x[q] for p, q in zip(range(i, i + 3), range(i + 1, i + 4), strict=False)])
        for k, j in enumerate(range(2 * i, 2 * i + 2)):
            out[i] += k * x[j % 7]
    return out


@pytest.mark.parametrize("function", [rows_of_windows, medians, sums_of_windows], ids=lambda f: f.__name__)
def test_ranges_between_numbers_that_move_together_are_as_long_in_each_round(function):
    f = fx.futurize(function, escape="error")
    for x in (X[:, 0], X[:, 1], X[:60, 2], X[:61, 2].astype(np.float32), np.round(X[:, 3])):
        rtol = 1e-12 if x.dtype == float else 1e-4
        found, expected = f(x), function(x)
        for mine, numpys in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
            np.testing.assert_allclose(mine, numpys, rtol=rtol)
    assert "compiled whole" in f.explain()
    assert "unrolled" not in f.explain()


def numbers_of_windows(n):
    found = []
    for i in range(6, 20):
        first = np.int64(2) * i
        found = [j + 1 for j in range(first, first + 2)] + [j for j, _ in zip(range(i, i + 2), range(3), strict=False)]
    return found


def test_numbers_of_such_ranges_are_pythons():
    found = [each.result() if isinstance(each, fx.Array) else each for each in fx.futurize(numbers_of_windows)(1)]
    assert found == numbers_of_windows(1)
    assert set(map(type, found)) == {int}
