"""One trace for arguments of many sizes, against NumPy on every size."""

import numpy as np
import pytest
from compare import agree, bits, outcome, plain
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.frontend.keys import call_key
from futurex.frontend.symbolic import Families
from futurex.tree.pytree import flatten

SIZES = (5, 7, 9, 11, 4, 20, 2, 3)
RNG = np.random.default_rng(11)
PROGRAMS = []


def program(calls, symbolic=True, static=2):
    def add(function):
        PROGRAMS.append(pytest.param(function, calls, symbolic, static, id=function.__name__))
        return function

    return add


def each(*makers, sizes=SIZES):
    return [tuple(make(n) for make in makers) for n in sizes]


def line(n):
    return RNG.normal(size=n)


def square(n):
    return RNG.normal(size=(n, n))


def rows(n):
    return RNG.normal(size=(n, 4)).astype(np.float32)


def integer(n):
    return n


def ten(n):
    return np.arange(10.0)


@program(each(line))
def sums(x):
    return (x * 2 + 1).sum(), x.mean(), x.std(), x.max(), np.cumsum(x), np.sort(x), np.median(x)


@program(each(line))
def differences(x):
    return x[2:] - 2 * x[1:-1] + x[:-2], np.diff(x), x[::-1], x[-1], x[len(x) // 2]


@program(each(line, line))
def two_of_one_length(x, y):
    return x * y + x.mean(), x @ y, np.concatenate([x, y]), np.stack([x, y])


@program(each(line, lambda n: line(n + 1)))
def two_lengths(x, y):
    return np.outer(x, y).sum(axis=0), x[:, None] + y


@program(each(square, line))
def products(a, x):
    return a @ x / x.size, a.T @ a, np.linalg.solve(a + 9 * np.eye(5)[:1, :1], x), np.einsum("ij,j->i", a, x)


@program(each(rows))
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@program(each(square, sizes=(5, 7, 9, 11, 4, 20)))
def jacobi(u):
    v = u.copy()
    for _ in range(20):
        v[1:-1, 1:-1] = 0.25 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:])
    return v


@program(each(line))
def writes(u):
    u[1:] += u[:-1].copy()
    u[0] = u.sum()
    u *= 2


@program(each(line))
def shapes(x):
    return np.zeros(x.shape) + len(x), x.shape, x.size, np.arange(len(x)), x.reshape(-1, 1), np.ones((2, x.size))


@program(each(line))
def views_of_the_argument(x):
    return x[1:], x[:-1], x[: len(x) - 1], x


@program(each(rows))
def layouts(x):
    return x.T.flatten(), x.T.copy(), x.ravel(), x.reshape(2, -1, order="C") if x.size % 2 == 0 else x, x.sum(axis=0)


@program(each(line))
def masks(x):
    return x[x > 0], np.nonzero(x > 0), np.where(x > 0, x, 0)


@program([(RNG.normal(size=(n, m)),) for n, m in ((5, 11), (9, 4), (11, 17), (12, 3), (4, 5), (6, 6))])
def two_sizes_in_a_call(x):
    return np.pad(x, 1).reshape(-1), np.tensordot(np.pad(x, 2), np.pad(x, ((1, 3), (0, 0))), axes=([0], [0]))


@program(each(line, sizes=(5, 7, 9, 11, 4, 20)))
def parts_of_bounded_length_in_several_loops(x):
    for i in range(1, len(x)):
        for j in [0, 1, 3]:
            for k in range(i // 2 + 1, len(x)):
                x[i] = x[k] * 0.5 + x[(i + 1) % len(x)] + x[: j + 1].argmax()
    return x


@program(each(ten, integer))
def numbers(x, n):
    return x * n + n, n + 1, n / 2, n // 2, n % 3, -n, float(n), n * 1.5


@program(each(ten, integer))
def powers(x, n):
    return (x + 1) ** n, np.power(x, n)


@program(each(ten, integer))
def rounds(x, n):
    for k in range(n):
        x = x * 1.1 + k
    return x


@program(each(ten, integer))
def bounds(x, n):
    return x[:n].sum(), x[n % 10], np.zeros(n), x[n:], np.arange(n)


@program(each(ten, integer))
def choices(x, n):
    return x if n > 4 else x * 2


@program(each(ten, lambda n: n % 2, sizes=(0, 1, 2, 3)), symbolic=False)
def few_values(x, axis):
    return x * axis


@program([(np.ones((3, 4, 5)), axis) for axis in (0, 1, 2, 0, 1, 2)], symbolic=False, static=3)
def what_must_be_known(x, axis):
    return x.sum(axis=axis)


@pytest.mark.parametrize(("function", "calls", "symbolic", "static"), PROGRAMS)
def test_every_size_means_what_numpy_means(function, calls, symbolic, static):
    futurized = fx.futurize(function)
    for args in calls:
        expected, actual = outcome(function, args), outcome(futurized, args)
        assert actual[0][0] == expected[0][0], (actual, expected)
        assert agree(actual[0][1], expected[0][1]), np.shape(args[0])
        assert agree(actual[1], expected[1])
    explanation = futurized.explain()
    assert ("one trace for all sizes" in explanation) == symbolic, explanation
    assert explanation.count("staged: ") == static + symbolic, explanation


def test_the_third_size_is_traced_with_symbols_and_further_sizes_are_not_traced():
    futurized = fx.futurize(lambda x: x * 2 + x.sum())
    for n in range(2, 30):
        futurized(np.ones(n))
    assert "3 trace(s)" in futurized.explain()
    assert "float64[n0]: one trace for all sizes" in futurized.explain()


def test_a_trace_for_many_sizes_may_be_made_again():
    """Where something it depends on has changed, and where a list turns out to grow: extents are its own each time."""
    scale = 1.0

    def scaled(x):
        return x[1:].mean() * scale + len(x)

    def collected(x, n):
        means = []
        for _ in range(n):
            means.append(x[:3].mean())
        return np.array(means) + x.mean()

    f, g = fx.futurize(scaled), fx.futurize(collected)
    for n in (5, 7, 9, 11):
        for factor in (1.0, 2.0):
            scale = factor
            x = line(n)
            assert agree(bits(plain(f(x))), bits(scaled(x)))
            assert agree(bits(plain(g(x, n))), bits(collected(x, n)))
    assert "one trace for all sizes" in f.explain()
    assert "one trace for all sizes" in g.explain()


def test_a_size_that_comes_back_gets_a_trace_of_its_own():
    f = fx.futurize(lambda x: x * 2)
    for n in (4, 5, 6, 6):
        f(np.ones(n))
    assert "float64[6]" not in f.explain()
    f(np.ones(6)), f(np.ones(6))
    assert "- float64[6]\n" in f.explain()


def test_extents_of_zero_and_one_are_never_symbols():
    f = fx.futurize(lambda x, y: x + y)
    for n, m in ((3, 3), (4, 4), (5, 5), (6, 1), (7, 7), (0, 0), (8, 8)):
        assert bits(plain(f(np.ones(n), np.ones(m)))) == bits(np.ones(n) + np.ones(m))
    for n, m in ((3, 4), (7, 2)):
        with pytest.raises(ValueError, match="broadcast"):
            plain(f(np.ones(n), np.ones(m)))


def test_shapes_of_pending_results_are_known_where_they_follow_from_the_arguments():
    f = fx.futurize(lambda x: (x[1:] * 2, (x + 1).reshape(-1, 1)))
    for n in range(3, 12):
        first, second = f(np.ones(n))
        assert first._aval.shape == (n - 1,)
        assert second._aval.shape == (n, 1)


def test_gradients_of_many_sizes():
    g = fx.grad(lambda x: (x[1:] * x[:-1]).sum() + (x**2).mean())
    for n in (3, 4, 5, 6, 9, 12):
        x = line(n)
        expected = 2 * x / n
        expected[1:] += x[:-1]
        expected[:-1] += x[1:]
        np.testing.assert_allclose(np.asarray(g(x)), expected)
    assert "one trace for all sizes" in g.explain()


def kernel(x, n):
    y = x[: len(x) - 1] * n
    y[y > n] = 0.0
    return y.sum() + n, y, len(y) * n


FUTURIZED = fx.futurize(kernel)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 40), st.integers(-5, 5))
def test_any_mixture_of_sizes_and_numbers(size, n):
    x = np.random.default_rng(size).normal(size=size) * 4
    assert agree(outcome(FUTURIZED, (x, n)), outcome(kernel, (x, n)))


def test_networks_in_single_precision_are_traced_for_every_size():
    def layer(x, w):
        return np.maximum(x @ w, 0)

    staged, w = fx.futurize(layer), np.ones((4, 3), np.float32)
    for rows in (5, 6, 7, 8):
        staged(np.ones((rows, 4), np.float32), w)
    assert "one trace for all sizes" not in staged.explain()
    double = fx.futurize(layer)
    for rows in (5, 6, 7, 8):
        double(np.ones((rows, 4)), w.astype(float))
    assert "one trace for all sizes" in double.explain()


def test_matrices_that_do_not_meet_are_refused_in_the_words_of_dot_in_every_size():
    dot = fx.futurize(lambda a, b: np.dot(a, b))
    for n in range(4, 12):
        a, b = np.ones((3, n)), np.ones((3, n))
        np.testing.assert_array_equal(np.asarray(dot(a, b[0])), np.dot(a, b[0]))
        with pytest.raises(ValueError, match=rf"\(3,{n}\) and \(3,{n}\) not aligned: {n} \(dim 1\) != 3 \(dim 0\)"):
            np.asarray(dot(a, b))


def test_results_that_are_arguments_of_a_trace_for_many_sizes_keep_plain_extents():
    double = fx.futurize(lambda x: x * 2)
    for n in range(3, 12):
        doubled = double(fx.futurize(np.sqrt)(np.ones((2, n))))
        assert all(type(extent) is int for extent in doubled.shape)
        assert doubled.shape == (2, n)


def test_how_often_sizes_came_is_known_of_the_last_ones():
    families = Families(list)

    def asked(n):
        args = RNG.normal(size=3), n
        leaves = []
        key = call_key(args, {}, leaves)
        return families.find(flatten((args, {}))[1], leaves, key)

    found = [asked(n) for n in range(3, 5003)]
    trace = found[-1]
    assert found[2:] == [trace] * 4998  # the third call showed what changes
    assert len(trace.calls) < 2000
    assert [asked(4) for _ in range(3)] == [trace, trace, None]  # it comes often


def waves(x, n):
    for wave in (np.sin, np.cos) * 30:
        x = wave(x) + n
    return x


def test_numbers_have_a_trace_of_their_own_once_they_came_as_often_as_it_is_long():
    f, x = fx.futurize(waves), line(3)

    def traces(n, calls):
        for _ in range(calls):
            assert agree(bits(plain(f(x, n))), bits(waves(x, n)))
        return sum(map(len, f._variants.values()))

    before = [traces(n, 1) for n in range(2, 8)][-1]
    (trace,) = f._families.variants()
    often = len(trace.graph.nodes) // 20
    assert 6 <= often <= 9
    assert traces(9, often - 1) == before
    assert traces(9, 2) == before + 1


def test_extents_have_one_as_soon_as_they_come_often():
    f = fx.futurize(waves)
    for n in (3, 4, 5, 6):
        f(line(n), 2)
    before = sum(map(len, f._variants.values()))
    for _ in range(3):
        f(line(9), 2)
    assert sum(map(len, f._variants.values())) == before + 1
