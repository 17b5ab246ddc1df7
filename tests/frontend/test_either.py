"""Names that are one of several things, as the data tells: numbers of Python's or of NumPy's types, None, a text."""

from __future__ import annotations

import importlib.util
import os

import numpy as np
import pytest
from either_programs import Writer

import futurex as fx

SEEDS = int(os.environ.get("FUTUREX_EITHER_PROGRAMS", "40"))


def mean_of_positive(x):
    total, n = 0.0, 0
    for v in x:
        if v > 0:
            total += v
            n += 1
    return total / n if n else total


def largest(x):
    best = 0
    for v in x:
        if v > best:
            best = v
    return best


def largest_and_place(x):
    best, at = -1e9, -1
    for i in range(len(x)):
        if x[i] > best:
            best, at = x[i], i
    return best, at


def smallest_positive(x):
    best = at = None
    for i in range(len(x)):
        if x[i] > 0 and (best is None or x[i] < best):
            best, at = x[i], i
    return best, at


def bounds(x):
    low, high = float("inf"), -np.inf
    for v in x:
        low, high = min(low, v), max(high, v)
    return low, high


def running(x):
    out, total = np.zeros(len(x), int), 0.0
    for i in range(len(x)):
        if x[i] > 0:
            total += x[i]
        out[i] = total
    return out


def until(x):
    i, total = 0, 0
    while i < len(x) and total < 5:
        if x[i] > 0:
            total += x[i]
        i += 1
    return i, total


def kadane(x):
    best = current = 0
    for v in x:
        current = max(0, current + v)
        best = max(best, current)
    return best


def states(x):
    state, turns = "idle", 0
    for v in x:
        if state == "idle":
            if v > 0.5:
                state = "up"
        elif v < -0.5:
            state = "idle"
            turns += 1
    return state, turns


def in_a_dict(x):
    found = {"n": 0, "sum": 0.0, "best": None}
    for v in x:
        if v > 0:
            found["n"] += 1
            found["sum"] += v
            if found["best"] is None or v > found["best"]:
                found["best"] = v
    return found


def by_helpers(x):
    def best_of(a):
        best = None
        for v in a:
            if v > 0 and (best is None or v > best):
                best = v
        return best

    left, right = best_of(x[: len(x) // 2]), best_of(x[len(x) // 2 :])
    if left is None:
        return right
    return left if right is None else max(left, right)


def functions(x):
    total = 0
    for v in x:
        if v > 0:
            total += v * v
    return np.sqrt(total), total**0.5, float(total), abs(total), -total, round(total, 2), int(total), bool(total)


def is_a_float(x):
    total = 0.0
    for v in x:
        if v > 0.3:
            total += v
    return isinstance(total, np.floating), total is None


PROGRAMS = [
    mean_of_positive, largest, largest_and_place, smallest_positive, bounds, running, until, kadane, states, in_a_dict,
    by_helpers, functions, is_a_float,
]  # fmt: skip


def samples(dtype):
    rng = np.random.default_rng(3)
    for data in (rng.normal(size=40), np.zeros(40), -np.arange(40.0), rng.normal(size=40) * 5, np.ones(1)):
        yield data.astype(dtype)


def outcome(function, *args):
    """The result, with its types and bits, or the error."""
    try:
        with np.errstate(all="ignore"):
            return described(function(*args))
    except fx.StagingError:
        raise
    except Exception as error:
        return type(error), str(error)


def described(value):
    value = value.result() if hasattr(type(value), "__fx_future__") else value
    if isinstance(value, list | tuple):
        return type(value), [described(each) for each in value]
    if isinstance(value, dict):
        return dict, {key: described(each) for key, each in value.items()}
    return type(value), getattr(value, "dtype", None), repr(value)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda each: each.__name__)
def test_values_and_types_are_numpys(function, dtype):
    futurized = fx.futurize(function, escape="error")
    for x in samples(dtype):
        assert outcome(futurized, x) == outcome(function, x), x
    assert any(node.op == "loop" for node in futurized.graph(x=np.ones(40, dtype)).nodes)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda each: each.__name__)
def test_many_calls_return_the_same_as_one(function):
    futurized = fx.futurize(function)
    for _ in range(60):
        for x in samples("f4"):
            assert outcome(futurized, x) == outcome(function, x), x


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs(seed, tmp_path):
    function = loaded(Writer(seed).program(), tmp_path / f"program_{seed}.py")
    futurized = fx.futurize(function)
    for dtype in ("f4", "f8", "i8"):
        for x in samples(dtype):
            for _ in range(2):
                assert outcome(futurized, x) == outcome(function, x), (dtype, x)


def loaded(text, path):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program


def never_found(x):
    best = None
    for v in x:
        if v > 100:
            best = v
    return best + 1


def test_none_where_a_number_is_needed_raises_what_python_raises():
    futurized = fx.futurize(never_found)
    for x in (np.ones(20), np.full(20, 200.0), np.ones(20)):
        assert outcome(futurized, x) == outcome(never_found, x)


def hinge(x):
    total = 0
    for v in x:
        total += max(0, 1 - v)
    return total


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_a_number_of_several_types_has_derivatives(dtype):
    x = np.array([0.5, 2.0, -1.0, 3.0, 0.25], dtype)
    value, slope = fx.value_and_grad(hinge)(x)
    assert value.dtype == slope.dtype == dtype
    np.testing.assert_array_equal(value, hinge(x))
    np.testing.assert_array_equal(slope, np.where(x < 1, -1, 0))


# -- keys that the run tells -------------------------------------------------------------------------------------------


def by_number(x):
    cost, total = {0: 1.5, 1: 2.5, 2: 4.0}, 0.0
    for v in x:
        total += cost[v]
    return total


def by_pair(x):
    cost, total = {(0, 0): 1, (0, 1): 2, (1, 0): 3, (1, 1): 4, (0, 2): 5, (2, 0): 6, (1, 2): 7, (2, 1): 8, (2, 2): 9}, 0
    for i in range(len(x) - 1):
        total += cost[x[i], x[i + 1]]
    return total


def counted(x):
    counts = {0: 0, 1: 0, 2: 0}
    for v in x:
        counts[v] += 1
    return counts


def members(x):
    n = 0
    for v in x:
        if v in {0, 2} or v in {1: "a", 5: "b"}:
            n += 1
    return n


def with_a_default(x):
    total = 0
    for v in x:
        total += {0: 10, 1: 20}.get(v, -1)
    return total


@pytest.mark.parametrize("function", [by_number, by_pair, counted, members, with_a_default], ids=lambda f: f.__name__)
def test_keys_that_are_known_are_found(function):
    futurized = fx.futurize(function, escape="error")
    for seed in range(4):
        x = np.random.default_rng(seed).integers(0, 3, 30)
        assert outcome(futurized, x) == outcome(function, x)


@pytest.mark.parametrize("function", [by_number, by_pair, counted], ids=lambda f: f.__name__)
def test_a_key_that_is_not_there_raises_a_key_error(function):
    futurized = fx.futurize(function)
    for x in (np.array([0, 1, 7] * 8), np.array([0, 1, 2] * 8)):
        assert outcome(futurized, x) == outcome(function, x)


def keyed_by_data(x):
    counts = {}
    for v in x:
        counts[v] = counts.get(v, 0) + 1
    return len(counts)


def test_explain_says_that_keys_depend_on_data():
    futurized = fx.futurize(keyed_by_data)
    assert futurized(np.array([1, 2, 1])) == 2
    assert "key which is not known before the run" in futurized.explain()


# -- loops of known rounds ---------------------------------------------------------------------------------------------


def steps(x):
    i, total = 0, 0.0
    while i < len(x):
        if x[i] > 0.5:
            total += x[i]
        i += 1
    return total


def test_a_long_while_of_known_rounds_is_a_loop_of_the_tree():
    futurized = fx.futurize(steps, escape="error")
    x = np.random.default_rng(0).normal(size=300)
    assert outcome(futurized, x) == outcome(steps, x)
    assert len(futurized.graph(x).nodes) < 60


# -- where it shows whether a number of NumPy's default type is Python's -----------------------------------------------


def summed(x):
    total = 0.0
    for v in x:
        if v > 0:
            total = total + v
    return total


SHOWS = {
    "quotient": lambda x: 1 / summed(x),
    "remainder": lambda x: 7 % summed(x),
    "power": lambda x: (summed(x) - 1.0) ** 0.5,
    "large power": lambda x: (summed(x) + 10.0) ** 400,
    "attribute": lambda x: summed(x).dtype.name,
    "method": lambda x: summed(x).sum(),
    "hasattr": lambda x: hasattr(summed(x), "dtype"),
    "type": lambda x: type(summed(x)) is float,
}


@pytest.mark.parametrize("name", SHOWS)
def test_it_is_told_apart_where_it_shows(name):
    futurized = fx.futurize(SHOWS[name])
    for x in (np.zeros(20), np.ones(20), -np.ones(20)):
        assert outcome(futurized, x) == outcome(SHOWS[name], x)


def test_programs_have_results_of_one_type():
    x = np.array([0.5, -2.0, 1.0] * 4, np.float32)
    program = fx.lower(largest, x)
    assert [each.dtype for each in program.graph(*program.flatten(x))] == [np.float32]
    assert program.unflatten(program.graph(*program.flatten(x))) == 1
