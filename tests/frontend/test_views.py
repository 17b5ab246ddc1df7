"""Views, writes and aliasing mean in staged code what they mean in NumPy."""

import warnings

import container_cases
import flag_cases
import numpy as np
import pytest
import scalar_cases
import view_cases
from compare import check

import futurex as fx
from futurex.frontend.plain import folded
from futurex.tree.pytree import flatten

CASES = [*view_cases.cases, *flag_cases.cases, *container_cases.cases, *scalar_cases.cases]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_views_and_writes(case):
    check(case.function, *case.args, staged=case.staged)


def test_written_arguments_are_the_callers():
    x = np.zeros((2, 3))
    v = x[0]
    fx.futurize(view_cases.an_argument_is_written)(x)
    expected = np.zeros((2, 3))
    view_cases.an_argument_is_written(expected)
    assert x.tobytes() == expected.tobytes()
    assert v.tobytes() == expected[0].tobytes()


def test_a_returned_argument_is_the_argument():
    x = np.ones((2, 3))
    first, second = fx.futurize(view_cases.an_argument_is_returned)(x)
    assert first is x
    assert second is x
    views = fx.futurize(view_cases.a_view_of_an_argument_is_returned)(x)
    assert all(np.shares_memory(view, x) for view in views)


def shift_into(target, source):
    target[:] = source + 1
    return source.sum()


def test_overlapping_arguments():
    expected, actual = np.arange(6.0), np.arange(6.0)
    wanted = shift_into(expected[1:], expected[:-1])
    got = fx.futurize(shift_into)(actual[1:], actual[:-1])
    assert float(got) == wanted
    assert actual.tobytes() == expected.tobytes()


class Tied:
    """A model whose last weights are its first ones, turned, and which remembers what it was given."""

    def __init__(self):
        self.first = np.arange(12.0).reshape(4, 3)
        self.last, self.seen = self.first.T, np.zeros(3)

    def step(self, k):
        self.seen += self.first[k]
        return self.seen @ self.last


def test_arrays_that_are_only_read_may_share_memory(monkeypatch):
    """A call that writes is staged nevertheless, as long as what it writes is a storage of its own."""
    step, mine, theirs = fx.futurize(Tied.step), Tied(), Tied()
    plain_calls = []
    run_plain = step._run_plain
    monkeypatch.setattr(step, "_run_plain", lambda *given: plain_calls.append(given) or run_plain(*given))
    for k in (2, 0, 3, 1):
        if k == 1:
            assert not plain_calls
            mine.last, theirs.last = (np.outer(each.seen, np.ones(4)) for each in (mine, theirs))
            mine.seen, theirs.seen = mine.last[:, 0], theirs.last[:, 0]
        assert np.asarray(step(mine, k)).tobytes() == theirs.step(k).tobytes()
        assert mine.seen.tobytes() == theirs.seen.tobytes()
        assert mine.last.tobytes() == theirs.last.tobytes()
    assert plain_calls


def _broadcast():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.broadcast_arrays(np.zeros((1, 3)), np.ones((4, 1)))[0]


FOLDED = {
    "one element for all": lambda: np.lib.stride_tricks.as_strided(np.zeros(1), (4,), (0,)),
    "windows": lambda: np.lib.stride_tricks.sliding_window_view(np.arange(6.0), 3, writeable=True),
    "broadcast": _broadcast,
}


def counted(x, y):
    x[..., -1] += 1
    x[-1] += y[-1]
    return (x * 2).sum()


@pytest.mark.filterwarnings("ignore:Numpy has detected:DeprecationWarning")
@pytest.mark.parametrize("kind", FOLDED)
def test_an_argument_whose_elements_share_memory_is_written_as_numpy_does(kind):
    """Several names for one element: a write changes them all."""
    function, first, second = fx.futurize(counted), FOLDED[kind](), FOLDED[kind]()
    more = np.arange(first.shape[-1], dtype=float)
    wanted = counted(first, more)
    assert float(function(second, more)) == wanted
    assert second.tobytes() == first.tobytes()


def test_an_argument_with_gaps_is_staged():
    """Elements that lie apart, in whatever order, are not taken for ones that share memory."""
    function, wide = fx.futurize(counted), np.zeros((5, 8, 6))
    for view in (wide[::2, ::-3], wide.T[::2], wide[:, :1, ::2], wide[:0], wide[2]):
        assert not folded(view)
    assert float(function(wide[::2, 1, ::-3], np.ones(2))) == 10.0
    assert wide.sum() == 5.0


def same_object(a, b):
    return 1.0 if a is b else a.sum()


def test_one_array_as_two_arguments_is_one_object():
    x, y = np.ones(3), np.ones(3)
    f = fx.futurize(same_object)
    assert float(f(x, x)) == 1.0
    assert float(f(x, y)) == 3.0
    assert float(f(y, y)) == 1.0


def write_both(a, b):
    a[0] = 5.0
    return b + 1


def test_one_array_as_two_arguments_is_written_once():
    x = np.zeros(3)
    assert fx.futurize(write_both)(x, x).tolist() == [6.0, 1.0, 1.0]
    assert x.tolist() == [5.0, 0.0, 0.0]


def write_table(x):
    container_cases.TABLE[0] = x
    return container_cases.TABLE * 2


def test_global_arrays_are_written():
    before = container_cases.TABLE.copy()
    try:
        result = fx.futurize(write_table)(np.float64(9.0))
        assert container_cases.TABLE[0] == 9.0
        assert result[0] == 18.0
    finally:
        container_cases.TABLE[:] = before


def test_results_do_not_share_memory_with_the_callers_arrays():
    f = fx.futurize(lambda x, y: (x + 0, np.zeros(3), y))
    x, y = np.ones(3), np.ones(3)
    total, zeros, _ = f(x, y)
    x[:] = 7
    assert total.tolist() == [1, 1, 1]
    np.asarray(zeros)[...] if not np.asarray(zeros).flags.writeable else np.asarray(zeros).fill(5)
    assert f(x, y)[1].tolist() == [0, 0, 0]


def test_a_python_power_may_be_complex():
    f = fx.futurize(lambda a: a**0.5)
    assert float(f(4.0)) == 2.0
    found = f(-4.0)
    assert type(found) is complex
    assert found == (-4.0) ** 0.5


def written(index):
    def f(a, k):
        b = a.copy()
        b[index(k)] += np.arange(4.0).reshape(2, 2)
        return b

    return f


EMPTY_ELLIPSES = {
    "behind a number": lambda k: (slice(None), 0, ..., [0, 1]),
    "between arrays": lambda k: (slice(None), [0, 1], ..., [0, 1]),
    "beside an array without dimensions": lambda k: (slice(None), [[0, 1], [1, 0]], ..., np.array(1)),
    "behind a number that the run knows": lambda k: (slice(None), k, ..., [0, 1]),
    "with a new axis": lambda k: (None, slice(None), 0, ..., [0, 1]),
    "behind the first axis": lambda k: (0, ..., [0, 1]),
    "at the end": lambda k: (slice(None), [0, 1], [0, 1], ...),
    "in front": lambda k: (..., slice(None), 0, [0, 1]),
    "of an axis": lambda k: ([0, 1], ..., [0, 1]),
}


@pytest.mark.parametrize("name", EMPTY_ELLIPSES)
def test_an_ellipsis_parts_index_arrays_even_if_it_stands_for_no_axes(name):
    index, a = EMPTY_ELLIPSES[name], np.arange(24.0).reshape(2, 3, 4)

    def read(a, k):
        return a[index(k)] * 2

    for f in (read, written(index)) if a[index(1)].shape == (2, 2) else (read,):
        expected, found = f(a, 1), np.asarray(fx.futurize(f)(a, 1))
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)


def frozen_alone(x):
    return np.diagonal(x * 2)


def frozen_beside_the_array(x):
    y = x * 2
    return {"diagonal": y.diagonal(1), "array": y, "rows": [np.diagonal(y)[1:], np.diagonal(y).copy()]}


def frozen_kinds(x):
    y = x * 2
    z = np.array(y[0, 0])
    return np.broadcast_to(y[0], (2, 3)), y.imag, y.real, np.diag(y), y.diagonal() + 1, np.diagonal(x), z.imag, [z.imag]


def frozen_in_the_callers(x, d):
    y = x * 2
    d["array"], d["diagonal"], d["other"] = y, y.diagonal(), np.diagonal(x * 3)
    return d["diagonal"]


@pytest.mark.parametrize("function", [frozen_alone, frozen_beside_the_array, frozen_kinds])
@pytest.mark.parametrize("how", ["wait", ""])
def test_results_are_read_only_where_numpys_are(function, how, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", how)
    futurized = fx.futurize(function)
    for k in range(10):
        x = np.arange(9.0).reshape(3, 3) + k
        for mine, theirs in zip(flatten(futurized(x))[0], flatten(function(x))[0], strict=True):
            np.testing.assert_array_equal(np.asarray(mine), theirs)
            assert np.asarray(mine).flags.writeable == theirs.flags.writeable
    assert "plain NumPy:" not in futurized.explain()


def test_so_are_views_that_the_callers_objects_get():
    futurized = fx.futurize(frozen_in_the_callers)
    for k in range(5):
        d = {}
        diagonal = futurized(np.arange(9.0).reshape(3, 3) + k, d)
        assert [each.flags.writeable for each in d.values()] == [True, False, False]
        assert diagonal is d["diagonal"]
        assert d["diagonal"].base is d["array"]
