"""Writes into arrays of names that branches and rounds bind anew: staged where no other name can hold the array."""

import types

import numpy as np
import pytest

import futurex as fx

X = np.linspace(-1.0, 2.0, 5)


def clipped(x, n):
    h = x * 1.0
    for _ in range(n):
        if h.sum() > 1:
            h = h * 0.5
        h -= 0.1
    return (h**2).sum()


def while_it_is_large(x, n):
    h, k = x * 1.0, 0
    while h @ h > 0.2 and k < n:
        if h[0] > -1:
            h = h / (1 + h @ h)
        h[1:] -= 0.05
        h[k % 5] = 0.3 * h[0]
        k += 1
    return (h * np.arange(5.0)).sum()


def of_two_names(x, n):
    h, a = np.zeros(5), x * 0.5
    for k in range(n):
        if a.sum() > h.sum():
            h, a = a + h * 0.9, np.where(a > 0, a, h)
        else:
            h = np.concatenate([a[:2], h[2:]])
        a[k % 5] += h[0] * 0.2
        h *= 0.5
    return (h * a).sum() + len(h)


def in_branches(x, n):
    h = np.maximum(x, 0.1)
    for k in range(n):
        if k % 2 and h.max() > 0.5:
            h = h - h.mean()
        if h[k % 5] < 0.4:
            h[k % 5] = 1.0
        else:
            h *= 0.9
    return np.sqrt(h @ h + 1)


def normalised(x, n):
    total = 0.0
    h = x + 0.0
    for k in range(n):
        h[0] += k
        size = np.sqrt(h @ h)
        if size > 2:
            h = h / size
        total = total + h.sum()
    return total


STAGED = [clipped, while_it_is_large, of_two_names, in_branches, normalised]


@pytest.mark.parametrize("function", STAGED)
def test_they_are_staged(function):
    f = fx.futurize(function)
    for n in (0, 1, 2, 7, 3, 4):
        for scale in (1.0, -2.0, 0.1):
            np.testing.assert_allclose(float(f(X * scale, n)), function(X * scale, n), rtol=1e-14)
    assert "runs as plain NumPy:" not in f.explain()


@pytest.mark.parametrize("function", STAGED)
def test_they_have_derivatives(function):
    x, slopes = 0.97 * X, fx.grad(function)
    for n in (1, 4):
        steps = 1e-6 * np.eye(5)
        expected = [(function(x + step, n) - function(x - step, n)) / 2e-6 for step in steps]
        np.testing.assert_allclose(slopes(x, n), expected, rtol=1e-6, atol=1e-8)


class Keeps:
    """Operators that keep their operand, or return what they keep."""

    def __init__(self):
        self.kept = np.ones(5)

    def __rmul__(self, other):
        self.kept = other
        return other * 1.0

    def __radd__(self, other):
        return self.kept

    def __neg__(self):
        return self.kept

    __array_ufunc__ = None


def with_alias(statement, where):
    """A function in which another name may hold the array, made by a statement before, in or behind a loop's branch."""
    lines = ["    h = x * 1.0", "    other, held, table, made = x, [], {}, None"]
    lines += [f"    {statement}"] if where == "before" else []
    lines += ["    k = 0", "    while k < n:", "        if h.sum() > 1:", "            h = h * 0.5"]
    lines += [f"            {statement}"] if where == "branch" else []
    lines += ["        h -= 0.1", "        h[k % 5] = 2.0"]
    lines += [f"        {statement}"] if where == "round" else []
    lines += ["        k += 1", "    return h, other, held, table, keeps.kept"]
    return "\n".join(["import numpy as np", "def f(x, n, keeps):", *lines])


ALIASES = [
    "other = h", "other = h[1:]", "held.append(h)", "held += [h]", "table['h'] = h", "h = x", "h = np.asarray(h)",
    "other = h.reshape(5)", "made = lambda: h", "h, other = other, h", "h = held[0] if held else h",
    "made = [h for _ in 'a']",
    "h = h * keeps", "h = h + keeps", "h = -keeps", "h = np.abs(h, x)", "h = np.abs(x, out=x)", "h = np.diff(x, n=0)",
    "other = held[0] if held else h", "table.update(h=h)", "h = (h)", "held[:] = [h]", "other = h = x * 2.0",
    "keeps.kept = h", "h = keeps.kept.copy(); other = h", "other = np.transpose(h)", "h = np.broadcast_to(x, 5)",
]  # fmt: skip


@pytest.mark.parametrize("where", ["before", "branch", "round"])
@pytest.mark.parametrize("statement", ALIASES)
def test_other_names_see_what_is_written(statement, where, tmp_path):
    path = tmp_path / "aliased.py"
    path.write_text(with_alias(statement, where))
    module = types.ModuleType("aliased")
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    f = fx.futurize(module.f)
    for n in (0, 1, 3, 2):
        ends = []
        for function in (module.f, f):
            x, keeps = X + 0.5, Keeps()
            try:
                result = tuple(function(x, n, keeps))
            except ValueError as error:  # a view that may not be written
                ends.append(str(error).partition("\n")[0])
                continue
            arrays = [np.asarray(each) for each in (*result[:2], *result[2], *result[3].values(), result[4], x)]
            shares = [[np.shares_memory(one, other) for one in arrays] for other in arrays]
            ends.append(([each.tolist() for each in arrays], shares))
        assert ends[0] == ends[1]


def bound_to_what_is_kept(x, keeps):
    h, k = x * 1.0, 0
    while h @ h > 0.3 and k < 3:
        if h.sum() > 1:
            h = h + keeps
        h -= 0.1
        k += 1
    return h.sum()


def bound_before(x, keeps):
    h, k = x + keeps, 0
    while h @ h > 0.3 and k < 3:
        if h.sum() > 1:
            h = h * 0.5
        h -= 0.1
        k += 1
    return h.sum()


def kept_behind(x, keeps):
    h, k = x * 1.0, 0
    while h @ h > 0.3 and k < 3:
        if h.sum() > 1:
            h = h * 0.5
        h -= 0.1
        k += 1
    return (h * keeps).sum()


@pytest.mark.parametrize("function", [bound_to_what_is_kept, bound_before, kept_behind])
def test_a_trace_with_operators_of_classes_does_without(function):
    """What they return, or keep, may be the array that is written."""
    f = fx.futurize(function)
    for scale in (1.0, 0.1, 2.0):
        mine, theirs = Keeps(), Keeps()
        assert float(f(X * scale, mine)) == function(X * scale, theirs)
        np.testing.assert_array_equal(mine.kept, theirs.kept)
    assert "runs as plain NumPy:" in f.explain()


def test_what_names_mean_is_asked():
    """A module that is called ``np`` and is not NumPy may return what it is given."""
    twin = types.SimpleNamespace(where=lambda test, a, b: b)

    def function(x, n):
        h = x * 1.0
        other = h * 2.0
        k = 0
        while k < n:
            if h.sum() > 1:
                h = np.where(h > 0, h, other)
            h -= 0.1
            k += 1
        return h, other

    renamed = types.FunctionType(function.__code__, {**globals(), "np": twin})
    renamed.__module__ = __name__
    f = fx.futurize(renamed)
    for n in (0, 1, 3):
        for mine, theirs in zip(f(X + 1, n), renamed(X + 1, n), strict=True):
            np.testing.assert_array_equal(mine, theirs)
