"""Lists that rounds add to and look at: entries at a known distance from the end are carried, the loop stays one."""

import numpy as np
import pytest
from compare import same, settled

import futurex as fx
from futurex.tree.graph import Graph

X = np.random.default_rng(0).standard_normal(5)


def euler(x):
    path = [x]
    for _ in range(40):
        path.append(path[-1] + 0.1 * np.sin(path[-1]))
    return np.stack(path), path[-1], len(path)


def fibonacci(x):
    fib = [0, 1]
    for _ in range(40):
        fib.append(fib[-1] + fib[-2])
    return np.array(fib), fib[10], x * fib[5]


def by_number(x):
    n, xs = 30, [x[0]]
    for i in range(1, n):
        xs.append(xs[i - 1] * 0.9 + i)
    return np.array(xs), xs[7]


def numbers_of_python(x):
    xs = [1.0]
    for _ in range(30):
        xs.append(xs[-1] * x[0] + 0.5)
    return np.array(xs), xs[0], xs[3]


def several(x):
    q, p, energy = [x], [x * 0], []
    for _ in range(30):
        half = p[-1] - 0.05 * q[-1]
        q.append(q[-1] + 0.1 * half)
        p.append(half - 0.05 * q[-1])
        energy.append(0.5 * (p[-1] ** 2 + q[-1] ** 2).sum())
    return np.stack(q), np.stack(p), np.array(energy), energy[-1]


def tuples(x):
    path = [(x, 0.0)]
    for _ in range(30):
        q, t = path[-1]
        path.append((q + 0.1 * np.cos(q) * t, t + 0.1))
    qs, ts = zip(*path, strict=True)
    return np.stack(qs), np.array(ts), [t for _, t in path][3], path[4][1]


def lengths(x):
    xs = [x[0], x[1]]
    for k in range(0, 60, 3):
        xs.append(xs[-1] + len(xs) * k)
        xs.append(len(xs) * 0.5 + xs[-3])
    return np.array(xs), len(xs)


def empty_first(x):
    xs = []
    for k in range(30):
        xs.append(x[0] * k if k == 0 else xs[-1] + x[k % 5])
    return np.array(xs)


def the_first(x):
    xs = [x, x * 2]
    for _ in range(30):
        xs.append(xs[-1] * 0.5 + xs[0] - xs[1])
    return np.stack(xs)


def other_kind_first(x):
    xs = [np.arange(5)]
    for _ in range(30):
        xs.append(xs[-1] * 0.5 + x)
    return np.stack(xs), xs[0], xs[1] * 1


def in_a_branch(x):
    xs = [x[0]]
    for k in range(30):
        if xs[-1] > 1:
            y = xs[-1] * 0.5
        else:
            y = xs[-1] + x[k % 5] + 0.3
        xs.append(y)
    return np.array(xs)


def two_loops(x):
    xs = [x]
    for _ in range(20):
        xs.append(xs[-1] * 0.9)
    for _ in range(20):
        xs.append(xs[-1] + 0.1 * xs[-2])
    return np.stack(xs)


def around_and_inside(x):
    rows = []
    for i in range(20):
        row = [x[i % 5]]
        for j in range(30):
            row.append(row[-1] * 0.9 + j)
        rows.append(np.array(row))
    return np.array(rows)


def within_with(x):
    xs = [x]
    with np.errstate(all="ignore"):
        for _ in range(30):
            xs.append(np.sqrt(np.abs(xs[-1])) + x)
    return np.stack(xs)


def as_it_was_put(x):
    xs = [x]
    for _ in range(30):
        xs.append(np.tanh(xs[-1]))
        y = xs[-1] + xs[-2]
        xs.append(y)
    return np.stack(xs), y


def of_inner_rounds(x):
    losses, pairs = [], []
    for i in range(20):
        for j in range(30):
            x = x * 0.99 + 0.01 * j
            losses.append((x**2).sum())
            pairs.append((x, j))
        pairs.append((x * 2, i))
    return np.array(losses), np.stack([a for a, _ in pairs]), [b for _, b in pairs][29:33]


def of_three_levels(x):
    found = [x[1]]
    for i in range(6):
        for j in range(7):
            for k in range(20):
                found.append(x[k % 5] * i + j)
    return np.array(found), len(found)


def of_few_inner_rounds(x):
    found = []
    for i in range(30):
        for j in range(3):
            found.append(x * i + j)
        x = x * 0.9
    return np.stack(found)


def against_all(x):
    basis = [x / np.linalg.norm(x)]
    for k in range(20):
        w = basis[-1] * k + x
        for q in basis:
            w = w - (q @ w) * q * 0.5
        basis.append(w)
    return np.stack(basis)


def inner_rounds(x):
    xs = [x]
    for i in range(20):
        y = x * 0
        for j in range(i + 1):
            y = y + xs[j] * 0.1
        xs.append(y)
    return np.stack(xs)


def parts(x):
    xs = [x[0], x[1], x[2]]
    for _ in range(20):
        xs.append(sum(xs[-3:]) * 0.3 + len(xs[1:4]))
    return np.array(xs)


def over_rows(x):
    xs, out, total = [x], [], x * 0
    for i in range(30):
        xs.append(xs[-1] * 0.9 + i)
    for a, b in zip(xs[1:], reversed(xs), strict=False):
        total = total * 0.5 + a * b
        out.append(total)
    for i, a in enumerate(out):
        total = total + i * a
    for a in xs:
        total = total - a
    return np.stack(out), total


WHOLE = [
    of_inner_rounds, of_three_levels, of_few_inner_rounds, against_all, inner_rounds, parts, over_rows,
    euler, fibonacci, by_number, numbers_of_python, several, tuples, lengths, empty_first, the_first, other_kind_first,
    in_a_branch, two_loops, around_and_inside, within_with, as_it_was_put,
]  # fmt: skip


def written_entry(x):
    xs = [x * 1]
    for _ in range(30):
        y = xs[-1]
        xs.append(y * 0.5 + 1)
        y += 1.0
    return np.stack(xs)


def written_start(x):
    xs = [x]
    for _ in range(30):
        x += 0.1
        xs.append(xs[-1] * 0.5 + x)
    return np.stack(xs), x


def start_written_behind(x):
    xs = [x]
    for _ in range(30):
        xs.append(xs[-1] * 0.5 + 1)
    x += 5.0
    return np.stack(xs), x


def name_written_behind(x):
    xs, last = [x * 1], x
    for _ in range(30):
        last = xs[-1]
        xs.append(last * 0.5 + 1)
    last += 5.0
    return np.stack(xs), last


def the_same_again(x):
    xs = [x * 1]
    for _ in range(30):
        xs.append(xs[-1])
    xs[3] += 1
    return np.stack(xs)


def beyond_the_start(x):
    xs = [x]
    for _ in range(30):
        xs.append(xs[-2] * 0.5)
    return np.stack(xs)


def place_by_data(x):
    xs = [x[0]]
    for _ in range(20):
        xs.append(xs[-1] + 1 if xs[0] > 3 else xs[int(abs(xs[-1])) % len(xs)] * 0.5 + 1)
    return np.array(xs)


def binomials(x):
    xs = [1.0]
    for i in range(1, 20):
        xs.append(xs[i // 2] * 0.9 + x[0])
    return np.array(xs)


def names_of_two_kinds(x):
    xs = [(x, 1)]
    for _ in range(20):
        a, b = xs[-1]
        xs.append((b, a))
    return xs[4][1], len(xs)


def mixed(x):
    xs = [x[0]]
    for k in range(20):
        xs.append(xs[-1] * 0.5 if k % 2 else "text" and x[1])
    return np.array(xs)


def objects(x):
    held = {"last": x * 0}
    xs = [x]
    for _ in range(30):
        held["last"] = xs[-1] * 0.5
        xs.append(held["last"])
    held["last"] += 1
    return np.stack(xs), held["last"]


OTHERS = [
    written_entry, written_start, start_written_behind, name_written_behind, the_same_again, beyond_the_start,
    place_by_data, binomials, names_of_two_kinds, mixed, objects,
]  # fmt: skip


@pytest.mark.parametrize("f", [*WHOLE, *OTHERS], ids=lambda f: f.__name__)
def test_results_are_numpys(f):
    g = fx.futurize(f)
    for _ in range(2):
        mine, yours = X.copy(), X.copy()
        expected = raised = None
        try:
            expected = f(yours)
        except Exception as error:
            raised = error
        if raised is not None:
            with pytest.raises(type(raised)) as info:
                settled(g(mine))
            assert str(info.value) == str(raised)
            continue
        assert same(settled(g(mine)), expected)
        np.testing.assert_array_equal(mine, yours)


@pytest.mark.parametrize("f", WHOLE, ids=lambda f: f.__name__)
def test_the_loop_is_one_of_the_tree(f):
    assert not [note for note in fx.futurize(f).trace(X.copy()).notes if "unrolled" in note]


def written_behind_inner_rounds(x):
    xs = []
    for i in range(20):
        for j in range(6):
            h = x * i + j
            xs.append(h)
        h += 1
    return xs


def added_to_while_gone_over(x):
    xs = [x * 1]
    for _ in range(20):
        xs.append(xs[-1] * 0.9)
    for i, y in enumerate(xs):
        if i < 3:
            xs.append(y)
    return np.stack(xs)


@pytest.mark.parametrize("f", [written_behind_inner_rounds, added_to_while_gone_over, name_written_behind])
def test_what_rows_cannot_do_unrolls_the_loop_and_no_more(f):
    g = fx.futurize(f)
    assert same(settled(g(X.copy())), f(X.copy()))
    assert "runs as plain" not in g.explain()


def test_arrays_in_a_list_that_a_caller_gets_are_rows_where_nobody_else_has_them():
    def alone(x):
        path = [x]
        for _ in range(30):
            path.append(path[-1] * 0.5 + 1)
        return path

    def named(x):
        path, h = [x], x
        for _ in range(30):
            h = path[-1] * 0.5 + 1
            path.append(h)
        return path, h

    def twice(x):
        path, other = [x], []
        for _ in range(30):
            path.append(path[-1] * 0.5 + 1)
            other.append(path[-1])
        return path, other

    x = X.copy()
    path = settled(fx.futurize(alone)(x))
    assert path[0] is x
    assert all(each.flags.owndata for each in path[1:])
    assert not [note for note in fx.futurize(alone).trace(x).notes if "unrolled" in note]
    assert same(path, alone(X))
    path, h = settled(fx.futurize(named)(x))
    assert np.shares_memory(path[-1], h)
    path, other = settled(fx.futurize(twice)(x))
    assert all(np.shares_memory(*each) for each in zip(path[1:], other, strict=True))


@pytest.mark.parametrize("wrong", [None, (5, 9), (7, -20), (20, 19), (20, 20)])
def test_positions_that_data_tell_are_looked_at(wrong, monkeypatch):
    def picks(x, at):
        xs = [x[0]]
        for i in range(1, 30):
            xs.append(xs[at[i]] * 0.5 + x[i])
        return xs[-1]

    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    g, at, x = fx.futurize(picks), np.arange(30) // 2, np.random.default_rng(0).random(30)
    at[2:] = (np.arange(2, 30) - 1) // 2
    at[1] = 0
    assert same(g(x, at), picks(x, at))
    if wrong is not None:
        at[wrong[0]] = wrong[1]
    if wrong in (None, (20, 19)):
        assert same(g(x, at), picks(x, at))
        return
    for function in (picks, g):
        with pytest.raises(IndexError, match="list index out of range"):
            np.asarray(function(x, at))


def relaxed(tolerance):
    p, errors, error = np.linspace(0.0, 1.0, 40) ** 2, [], 1.0
    while error > tolerance:
        q = p.copy()
        p[1:-1] = 0.5 * (q[:-2] + q[2:])
        error = np.abs(p - q).max()
        errors.append(error)
    return p, len(errors), errors[-1]


@pytest.mark.parametrize("tolerance", [0.04, 1e-3, 1e-9])
def test_a_long_loop_over_what_is_known_is_left_to_the_run(tolerance, monkeypatch):
    f, asked, evaluated = fx.futurize(lambda: relaxed(tolerance)), [], Graph.__call__

    def counted(self, *values):
        asked.append(self)
        return evaluated(self, *values)

    monkeypatch.setattr(Graph, "__call__", counted)
    f.graph()
    monkeypatch.undo()
    assert len(asked) < 4000  # of 8400 for the smallest tolerance
    for _ in range(3):
        p, rounds, error = f()
        expected = relaxed(tolerance)
        np.testing.assert_array_equal(p, expected[0])
        assert (rounds, error) == expected[1:]
