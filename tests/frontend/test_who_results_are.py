"""Lists, dicts and dataclasses that a call returns are the ones that NumPy's call would return."""

import dataclasses

import numpy as np
import pytest

import futurex as fx

TABLE = {"rows": [1.0, np.arange(2.0)]}


@dataclasses.dataclass
class Moments:
    first: object
    second: list


def given(p, x):
    p["w"] = p["w"] + x
    return p, x * 2


def part_of_given(p, x):
    return [p["inner"]["rows"], x + 1], p["inner"]


def of_a_dataclass(m, x):
    m.second.append(x * 3)
    return m, m.second


def twice(p, x):
    rows = [x * 2]
    inner = {"rows": rows, "x": x + 1}
    return inner, (rows, inner), Moments(rows, [inner])


def from_outside(p, x):
    return TABLE, x * 2, TABLE["rows"]


def the_same(p, q):
    return (1 if p is q else 2), (p["inner"] is not q["inner"])


def opaque(x):
    return x if x.ctypes.data else None


def keeps():
    """A function with a list of its own, which it returns."""
    kept = []

    def collect(p, x):
        kept.append(x * 2)
        return kept, [x + 1], {"kept": kept}

    return collect


def stored(p, x):
    rows = [x * 2]
    p["rows"] = rows
    return rows, p


def places(value, path=()):
    """Every list, dict and dataclass in a nest, and where."""
    if dataclasses.is_dataclass(value):
        yield path, value
        value = vars(value)
    elif isinstance(value, list | dict):
        yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, entry in inner:
        yield from places(entry, (*path, key))


def who(result, args):
    """Which places of a result and of the arguments hold one object."""
    found = list(places((result, args, TABLE)))
    return {(a, b) for a, one in found for b, other in found if one is other}


def arguments():
    return {"w": np.ones(2), "inner": {"rows": [np.zeros(2), 1.0]}}, np.arange(2.0)


@pytest.mark.parametrize("function", [given, part_of_given, twice, from_outside, stored])
@pytest.mark.parametrize("plainly", [False, True])
def test_objects_of_results(function, plainly):
    futurized = fx.futurize((lambda p, x: function(p, opaque(x))) if plainly else function)
    for _ in range(5):
        mine, theirs = arguments(), arguments()
        expected, found = function(*theirs), futurized(*mine)
        assert who(found, mine) == who(expected, theirs), futurized.explain()


def test_objects_of_results_that_are_dataclasses():
    futurized = fx.futurize(of_a_dataclass)
    for _ in range(3):
        m = Moments(np.ones(2), [np.ones(2)])
        found, rows = futurized(m, np.ones(2))
        assert found is m
        assert rows is m.second
        assert len(rows) == 2


def test_objects_that_the_function_keeps():
    plain, futurized = keeps(), fx.futurize(keeps())
    expected = [plain(*arguments()) for _ in range(5)]
    found = [futurized(*arguments()) for _ in range(5)]
    assert [len(rows) for rows, *_ in found] == [len(rows) for rows, *_ in expected] == [5] * 5
    assert all(rows is found[0][0] is more["kept"] for rows, _, more in found)
    assert all(isinstance(fresh[0], fx.Array) for _, fresh, _ in found)


@pytest.mark.parametrize("calls", [1, 5])
def test_one_object_in_two_arguments(calls):
    futurized = fx.futurize(the_same)
    for _ in range(calls):
        p, q = arguments()[0], arguments()[0]
        for pair in ((p, p), (p, q), (p, {**q, "inner": p["inner"]})):
            assert tuple(map(int, futurized(*pair))) == tuple(map(int, the_same(*pair)))


def keyed(p, q):
    q["n"] = p["w"].ctypes.data * 0 + 1.0
    return len(p), q, [p]


def test_objects_that_hold_futures():
    """A plain call is given stand-ins for them."""
    futurized = fx.futurize(keyed)
    for _ in range(4):
        p = {"w": fx.futurize(np.sin)(np.ones(2)), "inner": [1.0]}
        count, same, (again,) = futurized(p, p)
        assert (int(count), len(p)) == (3, 3)
        assert same is again is p
        assert isinstance(p["w"], fx.Array)


def test_fresh_objects_are_fresh_at_every_call():
    for plainly in (False, True):
        futurized = fx.futurize((lambda p, x: twice(p, opaque(x))) if plainly else twice)
        first, *_ = futurized(*arguments())
        first["rows"].clear()
        for _ in range(4):
            assert len(futurized(*arguments())[0]["rows"]) == 1


class Scale:
    def __init__(self, a):
        self.a = a

    def of(self, x):
        return self.a * x

    @fx.futurize
    def futurized(self, x):
        return self.a * x


def stores_a_method(held, x):
    held["scale"] = Scale(x).of
    return x + 1


METHODS = {
    "of an object": lambda x: Scale(x).of, "futurized": lambda x: Scale(x + 1).futurized,
    "of a list": lambda x: [x, x * 2].index, "of a dict": lambda x: {2.0: x + 1}.get, "of an array": lambda x: x.take,
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_what_a_call_makes_are_those_of_its_objects(name):
    function = METHODS[name]
    futurized, key = fx.futurize(function), 0 if name == "of an array" else 2.0
    for k in range(3):
        x = np.arange(3.0) + k
        key = x if name == "of a list" else key
        assert np.array_equal(futurized(x)(key), function(x)(key))


def test_methods_that_a_call_leaves_in_the_callers_objects_or_takes_from_them():
    stores, append = fx.futurize(stores_a_method), fx.futurize(lambda rows, x: (rows.append, x + 1))
    for k in range(3):
        held, x, rows = {"scale": None}, np.arange(3.0) + k, []
        assert np.array_equal(stores(held, x), x + 1)
        assert np.array_equal(held["scale"](x), x * x)
        append(rows, x)[0](k)
        assert rows == [k]


WHOLE_VIEWS = {
    "T": lambda x: x.T, "np.transpose": np.transpose, "swapaxes": lambda x: x.swapaxes(0, 0),
    "np.moveaxis": lambda x: np.moveaxis(x, 0, 0), "view": lambda x: x.view(), "x[:]": lambda x: x[:],
    "reshape": lambda x: x.reshape(x.shape), "np.einsum": lambda x: np.einsum("...->...", x),
    "squeeze": lambda x: x.squeeze(), "np.squeeze": lambda x: np.squeeze(x, axis=()), "real": lambda x: x.real,
    "np.asarray": np.asarray,
}  # fmt: skip


@pytest.mark.parametrize("extent", [0, 3, 300])
@pytest.mark.parametrize("name", WHOLE_VIEWS)
def test_a_view_of_the_whole_array_is_the_array_where_numpys_is(name, extent):
    view, x = WHOLE_VIEWS[name], np.ones(extent)
    found, inside = fx.futurize(view)(x), fx.futurize(lambda x: view(x) is x)(x)
    is_array = view(x) is x
    assert (found is x, bool(inside)) == (is_array, is_array)
    assert np.shares_memory(np.asarray(found), x) == np.shares_memory(view(x), x)


def written_through_whole_views(x):
    a, b = x.T, x.copy().view()
    a[...] = 2
    a.T[1:] += 1
    b.T[0] = 9
    return x * 1, a, b


def test_writes_through_views_of_the_whole_array():
    for x in (np.arange(3.0), np.arange(4.0).reshape(2, 2)):
        expected = written_through_whole_views(y := x.copy())
        found = fx.futurize(written_through_whole_views)(x)
        for one, other in zip((*found, x), (*expected, y), strict=True):
            np.testing.assert_array_equal(one, other)


SEEN = {5, 6}


def sets_of_others(members, x):
    return members, x * 2, [members], SEEN


def one_set_twice(members, x):
    made = {1, 2}
    return made, x * 2, [made], members | {4}


def sets_of_its_own(members, x):
    return {1, 2}, x * 2, [members.copy()], set()


@pytest.mark.parametrize("function", [sets_of_others, one_set_twice, sets_of_its_own])
def test_sets_of_results(function):
    f = fx.futurize(function)
    for _ in range(5):
        members = {1, 2}
        first, double, (second,), third = f(members, np.ones(2))
        assert (first, double.tolist(), [second], third) == (
            function(members, 0)[0], [2.0, 2.0], function(members, 0)[2], function(members, 0)[3]
        )  # fmt: skip
        assert type(double) is fx.Array
        assert (first is members, first is second, third is SEEN) == {
            sets_of_others: (True, True, True), one_set_twice: (False, True, False),
            sets_of_its_own: (False, False, False),
        }[function]  # fmt: skip
    assert ("plain NumPy" in f.explain()) is (function is not sets_of_its_own)


def kept_and_returned(d, x):
    d["y"] = y = x * 2
    return y


def kept_as_view_and_returned(d, x):
    y = x * 2
    d["whole"], d["part"] = y, y[1:]
    return {"part": d["part"], "sum": y.sum(), "whole": y}


def test_an_array_that_a_dict_of_the_callers_has_is_returned_as_it_is(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    kept, parts = fx.futurize(kept_and_returned), fx.futurize(kept_as_view_and_returned)
    for k in range(5):
        d = {}
        assert kept(d, np.arange(3.0) + k) is d["y"]
        assert d["y"].tolist() == [2.0 * k, 2.0 * k + 2, 2.0 * k + 4]
        found = parts(d, np.arange(3.0) + k)
        assert found["whole"] is d["whole"]
        assert found["part"] is d["part"]
        assert d["part"].base is d["whole"]
        assert float(found["sum"]) == 6 * k + 6
