"""Names that are None or an array, or of one type or another, in a loop's rounds: these are traced for each."""

import numpy as np
import pytest
from compare import check

import futurex as fx

X = np.random.default_rng(0).normal(size=24)


def _above(v):
    if v > 0:
        return np.array([v, v * v])
    return None


def _above_by_name(v):
    found = None
    if v > 0:
        found = np.array([v, v * v])
    return found


def none_or_an_array(x):
    total = 0.0
    for k in range(len(x)):
        found = None
        if x[k] > 0:
            found = np.array([x[k], 1.0])
        if found is not None:
            total = total + found.sum()
    return total


def of_a_function(x):
    total = 0.0
    for v in x:
        found = _above(v)
        if found is not None:
            total = total + found.sum()
    return total


def of_a_function_by_name(x):
    total, last = x.dtype.type(0), np.zeros(2, x.dtype)
    for k in range(len(x)):
        found = _above_by_name(x[k])
        if found is None:
            continue
        total = total + found.sum()
        last = found
    return total, last


def names_that_change_before_it(x):
    total, count, seen = 0.0, 0, []
    for k in range(len(x)):
        count += 1
        last = x[k] * count
        found = _above(last)
        if found is not None:
            total = total + found.sum() / count
        seen.append(last + count)
    return total, count, np.array(seen)


def none_or_a_tuple(x):
    total = 0.0
    for k in range(len(x)):
        pair = (x[k], x[k] * 2) if x[k] > 0 else None
        if pair:
            a, b = pair
            total = total + a * b
    return total


def one_type_or_another(x):
    total = 0.0
    for v in x:
        if v > 0:
            w = np.float32(v)
        else:
            w = v
        total = total + (np.zeros(3, w.dtype) + w).sum()
    return total


def a_number_or_an_array(x):
    total = x.dtype.type(0)
    for v in x:
        w = v if v > 0 else np.array([v, -2 * v])
        total = total + np.sum(w)
    return total


def until_it_is_large(x):
    k, total = 0, x.dtype.type(0)
    while abs(x[k]) < 2.2 and k < len(x) - 1:
        found = _above(x[k])
        total = total + (0.25 if found is None else found.sum())
        k += 1
    return total, k


def two_loops(x):
    total = x.dtype.type(0)
    for k in range(len(x)):
        for j in range(len(x)):
            found = _above(x[k] - x[j])
            if found is not None:
                total = total + found[1]
    return total


def with_writes_and_lists(x):
    seen, out = np.zeros(len(x)), []
    for k in range(len(x)):
        found = _above(x[k])
        if found is None:
            seen[k] = -1.0
        else:
            seen[k] = found.sum()
            seen[0] += 1.0
        out.append(seen[k] * 2)
    return seen, np.array(out)


FUNCTIONS = [
    none_or_an_array, of_a_function, of_a_function_by_name, names_that_change_before_it, none_or_a_tuple,
    one_type_or_another, a_number_or_an_array, until_it_is_large, two_loops, with_writes_and_lists,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("x", [X, -X, np.abs(X), -np.abs(X), X.astype("f4")], ids=["x", "-x", "all", "none", "f4"])
def test_values(function, x):
    check(function, x)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_are_loops_of_the_tree(function):
    variant = fx.futurize(function).trace(X)
    assert sum(node.op == "loop" for node in variant.graph.nodes) == 1
    assert len(variant.graph.nodes) < 80
    assert not variant.waits  # of no run it is taken that something is found


def test_a_first_round_with_types_of_its_own_may_find_nothing():
    def f(x):
        total = 0
        for v in x:
            total, found = total + v, _above_by_name(v)
            if found is not None:
                total = total + found.sum()
        return total

    assert not check(f, X).trace(X).waits
    check(f, -X)


@pytest.mark.parametrize("function", [none_or_an_array, of_a_function, a_number_or_an_array, two_loops])
def test_derivatives(function):
    step, gradient = 1e-6, np.asarray(fx.grad(function)(X))
    for k in (0, 5, 11):
        one = step * (np.arange(len(X)) == k)
        wanted = (function(X + one) - function(X - one)) / (2 * step)
        np.testing.assert_allclose(gradient[k], wanted, rtol=1e-6, atol=1e-8)


def _nearest(origin, way, spheres):
    least, which = None, None
    for k in range(len(spheres)):
        center, radius = spheres[k, :3], spheres[k, 3]
        b, c = np.dot(way, origin - center), np.dot(origin - center, origin - center) - radius**2
        if b * b > c:
            t = -b - np.sqrt(b * b - c)
            if t > 0 and (least is None or t < least):
                least, which = t, k
    return least, which


def image(origin, ways, spheres):
    seen = np.zeros(len(ways))
    for k in range(len(ways)):
        t, which = _nearest(origin, ways[k], spheres)
        if t is not None:
            seen[k] = t * spheres[which, 3]
    return seen


def test_rays_hit_something_or_nothing():
    rng = np.random.default_rng(1)
    ways = rng.normal(size=(60, 3))
    ways /= np.linalg.norm(ways, axis=1)[:, None]
    spheres = np.concatenate([rng.normal(size=(8, 3)) * 2, rng.random((8, 1))], axis=1)
    f = fx.futurize(image)
    found, wanted = np.asarray(f(np.zeros(3), ways, spheres)), image(np.zeros(3), ways, spheres)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert 0 < np.count_nonzero(wanted) < len(wanted)
    assert len(f.graph(np.zeros(3), ways, spheres).nodes) < 40


def test_choices_are_counted_alike_whatever_was_tried_before():
    """Two first rounds have types of their own: another trace of the body does not try one again, and its choices have
    the same numbers."""

    def f(x):
        a, b, found = 0, np.float32(1), None
        for k in range(len(x)):
            found = np.array([x[k], 1.0]) if x[k] > 0 else None
            b, a = a, a + x[k]
            if found is not None:
                a = a + found.sum()
        out = (a, b) if x[3] > 0.5 else (a * 2, b)
        if x[4] > 0:
            return out[0] + 1
        return out[0]

    futurized, rng = fx.futurize(f), np.random.default_rng(0)
    for _ in range(40):
        x = rng.normal(size=24)
        np.testing.assert_allclose(float(futurized(x)), f(x), rtol=1e-12)
    assert "staged: " in futurized.explain()


def test_bounds_that_are_none_until_something_begins():
    def events(x):
        start, total, count = None, 0.0, 0
        for k in range(len(x)):
            if x[k] > 0.3:
                if start is None:
                    start = k
            elif start is not None:
                total += x[start:k].sum()
                count += 1
                start = None
        return total, count

    f = check(events, X)
    assert len(f.graph(X).nodes) < 30
    check(events, -X)


def test_an_array_written_into_one_element_raises_in_its_branch():
    def f(x, y):
        out = np.zeros(3)
        if x > 0:
            out[1] = y
        return out + x

    check(f, -1.0, np.ones(3))
    check(f, 1.0, np.ones(3))
