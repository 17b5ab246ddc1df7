"""Control flow on data means in staged code what it means in Python."""

import re

import branch_cases
import exception_cases
import loop_cases
import numpy as np
import pytest
from compare import check, is_staged

import futurex as fx
from futurex.frontend.control import carried
from futurex.frontend.control.compact import is_compact

CASES = [*branch_cases.cases, *loop_cases.cases, *exception_cases.cases]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_control_flow(case):
    check(case.function, *case.args, staged=case.staged)


def test_one_trace_takes_both_branches():
    f = fx.futurize(lambda x: x * 2 if x.sum() > 0 else x - 1)
    graphs = {f.graph(x).hash for x in (np.ones(3), -np.ones(3))}
    assert len(graphs) == 1
    assert f(np.ones(3)).tolist() == [2, 2, 2]
    assert f(-np.ones(3)).tolist() == [-2, -2, -2]


def count_up(x, n):
    for i in range(n):
        x = x + i
    return x


def test_a_long_loop_is_one_node():
    assert len(fx.futurize(count_up).graph(np.ones(3), 1000).nodes) < 20


def pairs(table, x):
    """Short loops around a long one, five deep."""
    out = np.zeros((2, 3, len(x)))
    for a in range(2):
        for b in range(3):
            for c in range(2):
                for d in range(2):
                    for k in range(len(x)):
                        if b >= c:
                            out[a, b, k] += table[c, d] * x[k - d] + out[a, b - c, k - 1]
    return out


def test_short_loops_around_a_long_one_are_loops():
    x, table = np.linspace(0, 1, 40), np.array([[1.0, 2.0], [0.5, 0.25]])
    f = fx.futurize(pairs)
    for _ in range(2):
        np.testing.assert_array_equal(f(table, x), pairs(table, x))
    assert "unrolled" not in f.explain()
    assert sum(node.op == "loop" for node in f.graph(table, x).nodes) == 1


def test_while_loops_on_known_numbers_around_a_long_one_are_loops():
    def network(x):
        x, width = x.copy(), 2
        while width <= len(x):
            apart = width // 2
            while apart > 0:
                for i in range(len(x)):
                    other = i ^ apart
                    if other > i and (x[i] > x[other]) == (i & width == 0):
                        x[i], x[other] = x[other], x[i]
                apart //= 2
            width *= 2
        return x

    f, x = fx.futurize(network), np.random.default_rng(0).random(128)
    for _ in range(2):
        np.testing.assert_array_equal(f(x), np.sort(x))
    assert len(f.graph(x).nodes) < 20


def test_a_long_while_loop_on_known_values_is_staged():
    def relaxed(n):
        x, change, rounds = np.linspace(0, 1, n), 1.0, 0
        while change > 1e-3 and rounds < 2000:
            before = x
            for _ in range(3):
                x = 0.5 * x + 0.2 * np.roll(x, 1) + 0.3 * np.sin(np.roll(x, -1)) + 0.1 * np.cos(x).mean() + x[0]
                x = np.sqrt(np.abs(x - x.min())) * np.tanh(x).max() + 0.01 * rounds / (rounds + 1)
            change, rounds = np.abs(x - before).max() + 2.0 / (rounds + 1), rounds + 1
        return x, rounds

    f = fx.futurize(relaxed)
    for mine, wanted in zip(f(20), relaxed(20), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-9)
    assert "plain NumPy" not in f.explain()


def tiles(image, out):
    """Parts of large arrays, which no round computes as a whole."""
    for i in range(8):
        for j in range(8):
            tile = image[i * 20 : (i + 1) * 20, j * 20 : (j + 1) * 20]
            out[i * 20 : (i + 1) * 20, j * 20 : (j + 1) * 20] = (tile - tile.min()) / tile.std()
    return out


def windows(image, weights):
    """Many rounds that each sum more elements than a short loop may have."""
    out = np.zeros((4, 8, 8, 16))
    for i in range(8):
        for j in range(8):
            out[:, i, j] = (image[:, i : i + 5, j : j + 5, :, None] * weights).sum(axis=(1, 2, 3))
    return out


def assembled(k, stiffness):
    """Elements of a mesh, whose places in a large matrix are fancy indices."""
    for i in range(8):
        for j in range(8):
            first = 9 * i + j
            places = np.array([first, first + 9, first + 10, first + 1])
            k[np.ix_(places, places)] += stiffness[i, j] * np.eye(4)
            k[places[0], places] = -stiffness[i, j]
    return k


def test_short_loops_over_parts_of_large_arrays_are_loops():
    rng = np.random.default_rng(0)
    for function, args in (
        (assembled, (np.zeros((81, 81)), rng.random((8, 8)))),
        (tiles, (rng.random((160, 160)), np.zeros((160, 160)))),
        (windows, (rng.random((4, 12, 12, 6)), rng.random((5, 5, 6, 16)))),
    ):
        f = fx.futurize(function)
        for _ in range(2):
            np.testing.assert_allclose(f(*args), function(*args), rtol=1e-12)
        assert len(f.graph(*args).nodes) < 200


def test_a_short_loop_over_large_arrays_is_tried_once_in_others(monkeypatch):
    def smoothed(x):
        for i in range(6):
            for _ in range(5):
                x = 0.5 * np.tanh(x) + i
            x = x * 0.9
        return x

    refused = []
    monkeypatch.setattr(carried, "is_compact", lambda body, most: refused.append(is_compact(body, most)) or refused[-1])
    f, x = fx.futurize(smoothed), np.ones(5000)
    np.testing.assert_allclose(f(x), smoothed(x))
    assert refused.count(False) <= 3  # of eight: once in a loop, and once among its rounds


def test_short_loops_that_differ_from_round_to_round_are_unrolled_around_long_ones():
    def stretched(x):
        parts = []
        for a in range(4):
            for b in range(3):
                for name in ("one", "two"):
                    total = np.zeros(a + b + 1)
                    for value in x:
                        total[b] = 0.5 * total[b] + value * len(name)
                    parts.append(total)
        return parts

    f, x = fx.futurize(stretched), np.linspace(0, 1, 40)
    for mine, wanted in zip(f(x), stretched(x), strict=True):
        np.testing.assert_allclose(mine, wanted)
    assert "plain NumPy" not in f.explain()


def test_a_handler_of_memory_errors_sees_them():
    """What a plan has no room for is plain Python's to handle, with what was written until then."""

    def distances(x, room):
        x[0] = 1.0
        try:
            table = np.ones((room, room)).cumsum(axis=0)
        except MemoryError:
            return "in pieces", x.sum()
        x[1] = 2.0
        return "at once", x.sum() + table.max()

    f = fx.futurize(distances)
    for room, way in ((2, "at once"), (10**7, "in pieces")):
        for _ in range(2):
            x, y = np.zeros(3), np.zeros(3)
            assert f(x, room) == distances(y, room)
            assert f(x, room)[0] == way
            assert x.tolist() == y.tolist()
    assert is_staged(f, (np.zeros(3), 2)) is True


def test_no_room_is_said_at_the_line_that_asks_for_it():
    def table(x, n):
        x[0] = 1.0
        return np.ones((n, n)).cumsum(axis=0) + x[0]

    x = np.zeros(3)
    with pytest.raises(MemoryError) as found:
        fx.futurize(table)(x, 10**7)
    assert any(entry.name == "table" for entry in found.traceback)
    assert x[0] == 1.0


def test_a_test_that_prints_does_so_once_for_each_time_it_is_asked(capsys):
    def steps(x):
        def goes_on(i):
            print("asked", i)
            return x[i] > 0

        i = int(x[0])
        while goes_on(i):
            i += int(x[i])
            print("went", i)
        return i

    printed = []
    for function in (steps, fx.futurize(steps)):
        assert function(np.array([1, 2, 1, 1, 0])) == 4
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def squared_until_small(x, lowest):
    for k in range(200):
        if x @ x < lowest:
            return x, k
        y = np.array([np.cos(x[0]), np.sin(x[1]), x[2] / 2])
        x = x - 0.1 * (x + y)
    return x, -1


@pytest.mark.parametrize("lowest", [0.1, 1000.0, 0.0])
def test_a_loop_that_returns_may_begin_with_integers(lowest):
    x = np.array([1, 2, 3])
    staged = fx.futurize(squared_until_small, escape="error")  # unrolled it would be too large a tree
    result, k = staged(x, lowest)
    expected, rounds = squared_until_small(x, lowest)
    assert int(k) == rounds
    assert np.asarray(result).dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def letters(x, words):
    for word in words:
        for letter in word:
            x = x * 0.5 + ord(letter)
    return x


def test_rounds_that_are_too_many_to_be_unrolled_are_not_begun():
    """How many there are is known: when the first ones have made too large a tree, the others need not be looked at."""
    f, words = fx.futurize(letters), ["abcdefgh" * 125] * 40
    assert f(1.0, words) == letters(1.0, words)
    refused = re.search(r"has more than (\d+) rounds", f.explain())
    assert refused is not None, f.explain()
    assert int(refused[1]) < 8
    assert fx.futurize(letters, escape="error")(1.0, words[:3]) == letters(1.0, words[:3])
