"""What becomes of lists whose length depends on data: sums, extremes, arrays and results of them, and comprehensions
that make them. Values, types and errors are Python's."""

import math
import sys

import numpy as np
import pytest
from compare import check, plain

import futurex as fx

X = np.random.default_rng(0).normal(size=60)


def some(x, c):
    out = []
    for v in x:
        if v > c:
            out.append(v * 2)
    return out


def parts(x, c):
    out = []
    for i in range(len(x) // 4):
        if x[i] > c:
            out.append(x[4 * i : 4 * i + 4] * 2)
    return out


def squares(x, c):
    return [np.outer(x[i : i + 2], x[:3]) for i in range(len(x) - 2) if x[i] > c]


def total(x, c):
    return sum(some(x, c))


def total_of_numbers(x, c):
    out = [float(v) for v in x if v > c]
    return sum(out, 0.5), sum([i for i, v in enumerate(x) if v > c]), sum(v > c for v in x)


def total_of_arrays(x, c):
    return sum(parts(x, c), np.zeros(4))


def mean(x, c):
    out = some(x, c)
    return sum(out) / len(out) if out else 0.0


def largest(x, c):
    return max(some(x, c))


def smallest(x, c):
    return min(v * v for v in x if v > c)


def farthest(x, c):
    return max(some(x, c), key=lambda v: abs(v - 1)), min([v for v in x if v > c], key=lambda v: -v)


def with_default(x, c):
    return max(some(x, c), default=0), min(some(x, c), default=None)


def truths(x, c):
    flags = [v > 1 for v in x if v > c]
    return any(flags), all(flags), any(v > 2 * c for v in x if v > c), all(v > 0 for v in x)


def product(x, c):
    return math.prod(some(x, c))


def ordered(x, c):
    out = some(x, c)
    again = sorted(out, reverse=True)
    out.sort()
    return np.array(out), np.array(again), np.array(sorted(v < 0 for v in x if v < c))


def side_by_side(x, c):
    a, m = parts(x, c), squares(x, c)
    return (
        np.stack(a), np.stack(a, axis=1), np.stack(m, -1), np.concatenate(a), np.concatenate(m, axis=1),
        np.concatenate(m, axis=None), np.concatenate(a, dtype=np.float32),
    )  # fmt: skip


def below_each_other(x, c):
    a, m, s = parts(x, c), squares(x, c), some(x, c)
    return (
        np.vstack(a), np.vstack(m), np.vstack(s), np.hstack(a), np.hstack(m), np.hstack(s),
        np.column_stack(a), np.column_stack(m), np.stack(s),
    )  # fmt: skip


def quantiles(x, c):
    out = some(x, c)
    return np.median(out), np.percentile(out, 30), np.quantile(parts(x, c), 0.2, axis=0), np.median(x[x > c])


def comprehended(x, c):
    places = [i for i in range(len(x)) if x[i] > c if x[i] < 2]
    positive = [v for v in x if v > c]
    rises = [w - v for v, w in zip(x[:-1], x[2:], strict=False) if v < w]
    return np.array(places), len(places), positive[0], np.array(rises)


def of_few(x, c):
    return np.sum([v for v in x[:3] if v > c]), sum(v for v in x[:9] if v > c), any(v > 2 for v in x[:9] if v > c)


def of_all(x, c):
    return np.array([v * c for v in x]), sum(x), max(x), min(abs(v) for v in x), sum([v * v for v in x]), any(x)


def inside_rounds(x, c):
    out = np.zeros(20)
    for i in range(20):
        out[i] = sum([v * i for v in x if v > c * i]) + sum(v for v in x[:18] if v > i)
    return out


def returned(x, c):
    out = some(x, c)
    return out, [i for i, v in enumerate(x) if v > c], {"flags": [bool(v > 1) for v in x if v > c], "n": len(out)}


def pairs(x, c):
    return [(i, v) for i, v in enumerate(x) if v > c]


def at_once_returned(x, c):
    return sorted(v for v in x if v > c)


PROGRAMS = [
    total, total_of_numbers, total_of_arrays, mean, with_default, truths, product, ordered, comprehended, of_few,
    of_all, inside_rounds, returned, pairs, at_once_returned,
]  # fmt: skip
NAN = [total, largest, ordered, truths, quantiles, at_once_returned]
OF_ENTRIES = [largest, smallest, farthest, side_by_side, below_each_other, quantiles]


def kinds(value):
    """The types of what a result consists of."""
    if isinstance(value, list | tuple):
        return type(value), [*map(kinds, value)]
    return {key: kinds(each) for key, each in value.items()} if isinstance(value, dict) else type(value)


def is_to_be_staged(program):
    """From 3.12 on Python compensates sums of its floats."""
    return program is not total_of_numbers or sys.version_info < (3, 12)


@pytest.mark.parametrize("program", [*PROGRAMS, *OF_ENTRIES], ids=lambda program: program.__name__)
@pytest.mark.parametrize("c", [0.3, -9.0])
def test_results_and_their_types_are_pythons(program, c):
    futurized = check(program, X, c, staged=is_to_be_staged(program))
    assert kinds(plain(futurized(X, c))) == kinds(program(X, c))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_of_nothing(program):
    if program is comprehended:
        pytest.skip("it asks for an entry")
    futurized = check(program, X, 9.0, staged=is_to_be_staged(program))
    assert kinds(plain(futurized(X, 9.0))) == kinds(program(X, 9.0))


@pytest.mark.parametrize("program", [largest, smallest, side_by_side, below_each_other], ids=lambda f: f.__name__)
def test_errors_of_nothing_are_pythons(program):
    with pytest.raises(ValueError) as expected:
        program(X, 9.0)
    futurized = fx.futurize(program)
    for _ in range(3):
        with pytest.raises(ValueError) as found:
            plain(futurized(X, 9.0))
        assert str(found.value) == str(expected.value)
    assert kinds(plain(futurized(X, 0.3))) == kinds(program(X, 0.3))


@pytest.mark.parametrize("program", NAN, ids=lambda f: f.__name__)
def test_what_is_no_number(program):
    x = X.copy()
    x[[3, 20, 41]] = np.nan, np.inf, -0.0
    check(program, x, 0.3)
    check(program, np.where(X > 1, np.nan, X), -0.1)


@pytest.mark.parametrize("program", [total, largest, mean, truths, ordered, comprehended], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_other_types(program, dtype):
    x = (X * 4).astype(dtype)
    futurized = check(program, x, dtype(1))
    assert kinds(plain(futurized(x, dtype(1)))) == kinds(program(x, dtype(1)))


@pytest.mark.parametrize("program", [total, largest, truths, smallest, side_by_side, of_all], ids=lambda f: f.__name__)
def test_compiled(program, at_once):
    futurized, expected = fx.futurize(program), plain(program(X, 0.3))
    for _ in range(4):
        np.testing.assert_equal(plain(futurized(X, 0.3)), expected)


def derived(x):
    out = some(x, 0.2)
    rows = np.concatenate([x[i : i + 3] * x[0] for i in range(len(x) - 3) if x[i] > 0.5])
    others = sum(v * v for v in x if v > 0) + sorted(out)[2] ** 2
    return sum(out) * max(out) + np.median(out) + rows[1] * rows[-1] + others


def test_derivatives():
    found, step = np.asarray(fx.grad(derived)(X)), 1e-6
    for k in range(0, 60, 7):
        shift = step * (np.arange(60) == k)
        expected = (derived(X + shift) - derived(X - shift)) / (2 * step)
        np.testing.assert_allclose(found[k], expected, rtol=1e-5, atol=1e-7)


def written_into(x, box):
    box["places"] = [i for i in range(len(x)) if x[i] > 0]
    return len(box)


def one_list_twice(x):
    out = [v for v in x if v > 0]
    return out, out


def test_lists_that_others_hold_are_the_very_ones():
    box, expected = {}, {}
    assert fx.futurize(written_into)(X, box) == written_into(X, expected)
    assert box == expected
    first, second = fx.futurize(one_list_twice)(X)
    assert first is second


def used_up(x):
    numbers = iter(list(x))
    next(numbers)
    positive = [v for v in numbers if v > 0]
    return len(positive), sum(numbers)


def drawn(x, log):
    def shown(v):
        log.append(1)
        return v > 0

    return sum(v for v in x if shown(v))


def test_what_a_comprehension_uses_up_or_does():
    check(used_up, X[:8], staged=False)
    check(drawn, X, [])


def listed_and_summed(x):
    out = [2 * v for v in x if v > 0]
    return sum(out), out


@pytest.mark.parametrize(
    "transform",
    [fx.grad, fx.jacobian, lambda f: fx.value_and_grad(f, has_aux=True), lambda f: lambda x: fx.lower(f, x),
     lambda f: lambda x: fx.jvp(f, (x,), (x,))],
    ids=["grad", "jacobian", "aux", "lower", "jvp"],
)  # fmt: skip
def test_such_a_list_is_no_result_of_a_transformed_function(transform):
    with pytest.raises(fx.StagingError, match=r"a list whose length depends on data .*\n(.*\n)*.*np\.array"):
        transform(listed_and_summed)(X)


def test_examples_that_give_lists_of_several_lengths():
    with pytest.raises(ValueError, match="results of one structure for all examples, not"):
        fx.vmap(listed_and_summed)(np.stack([X, -X]))


def first_of_equals(x):
    return max(x, key=abs), min(x, key=abs), max(x), min(x)


def sorted_both_ways(x):
    out = [v for v in x if v < 2]
    return np.signbit(np.array(sorted(out))), np.signbit(np.array(sorted(out, reverse=True))), np.array(sorted(out))


def test_equals_stay_in_their_order():
    x = np.array([-1.0, 1.0, 0.0, -0.0] * 40)
    for each in (x, -x):
        first, found = first_of_equals(each), fx.futurize(first_of_equals)(each)
        assert [repr(value.result()) for value in found] == [repr(value) for value in first]
        for actual, expected in zip(fx.futurize(sorted_both_ways)(each), sorted_both_ways(each), strict=True):
            np.testing.assert_array_equal(np.asarray(actual), expected)


def test_a_nan_is_sorted_as_python_does():
    x = np.array([0.5, 1.5, np.nan, 0.25, -1.0, np.nan, 0.75] * 30)
    np.testing.assert_array_equal(np.asarray(fx.futurize(in_order)(x)), in_order(x))


def in_order(x):
    return np.array(sorted([v for v in x if not v > 2]))


def array_or_none(x):
    return x * 2 if x[0] > 0 else None


def number_or_none(x):
    return x[0] if x[0] > 0 else None


def label(x):
    return "up" if x[0] > 0 else "down"


@pytest.mark.parametrize(
    ("function", "kinds"), [(array_or_none, "ndarray and None"), (number_or_none, "float64 and None"),
                            (label, "'up' and 'down'")],
)  # fmt: skip
def test_examples_that_give_things_of_several_kinds(function, kinds):
    x = np.array([[1.0, 2.0], [-1.0, 2.0]])
    with pytest.raises(ValueError, match=f"results of one kind for all examples, not {kinds}"):
        fx.vmap(function)(x)
    with pytest.raises(ValueError, match=f"not {' and '.join(kinds.split(' and ')[::-1])}"):
        fx.vmap(function)(x[::-1].copy())
    assert fx.vmap(label)(np.abs(x)) == "up"
