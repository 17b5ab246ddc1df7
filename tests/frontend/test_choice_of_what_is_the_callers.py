"""Calls that change the caller's objects, or return what is the caller's, go as plain NumPy where that is faster: what
they leave behind is the same, and who it is, before and after."""

import dataclasses

import numpy as np
import pytest
from choosing import compare_soon

import futurex as fx
from futurex.frontend.variants import Variant
from futurex.tree.pytree import flatten

CALLS = 80


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    compare_soon(monkeypatch)


class Layer:
    def __init__(self):
        self.w, self.n, self.rate, self.parts = np.arange(3.0), 0, 0.5, {"g": np.zeros(3)}


@dataclasses.dataclass
class State:
    w: object
    n: float = 0.0


def puts_into_a_dict(held, x):
    held["sum"] = x.sum()
    held["w"] = held["w"] + x
    return held


def puts_into_a_list(rows, x):
    rows[0], rows[1] = rows[1], rows[0] + x
    return rows[0].sum(), rows


def ledger(accounts, moves):
    for who, amount in moves:
        accounts[who] = accounts[who] + amount
    return accounts


def sets_attributes(layer, x):
    layer.w = layer.w + layer.rate * x
    layer.rate = float(x[1])
    layer.n += 1
    layer.parts["g"] = x * 2
    return layer.n, layer


def of_a_dataclass(state, x):
    state.w = state.w * 0.5 + x
    state.n += 1
    return state, x + 1


def reads_attributes(layer, x):
    return layer.w * x, layer.w, layer.w[1:], layer.parts


def raises_in_between(held, x):
    held["sum"] = x.sum()
    if x[0] > 40:
        raise ValueError(f"{x[0]} is too much")
    held["w"] = x + 1
    return x * 2


CASES = {
    puts_into_a_dict: lambda: {"sum": np.float64(0), "w": np.zeros(3)},
    puts_into_a_list: lambda: [np.zeros(3), np.ones(3)],
    sets_attributes: Layer,
    of_a_dataclass: lambda: State(np.zeros(3)),
    reads_attributes: Layer,
    raises_in_between: lambda: {"sum": np.float64(0), "w": np.zeros(3)},
}


def described(value):
    """What a nest of arrays, numbers and objects holds, and of which kinds; futures count as what they are of."""
    if isinstance(value, Layer):
        return [described(each) for each in vars(value).items()]
    leaves, structure = flatten(value)
    leaves = [leaf.result() if isinstance(leaf, fx.Array) else leaf for leaf in leaves]
    return structure, [described(leaf) if isinstance(leaf, Layer) else (type(leaf), repr(leaf)) for leaf in leaves]


def called(function, args):
    """A result, or an error, and which of its leaves are things of the caller's, or share their elements."""
    try:
        result = function(*args)
    except ValueError as error:
        return str(error), None, None
    mine = [each for arg in args for each in (arg, *flatten(vars(arg) if isinstance(arg, Layer) else arg)[0])]
    parts = result if isinstance(result, tuple) else (result,)
    numbers = fx.Array | np.generic | int | float
    whose = [[part is each for each in mine] for part in parts if not isinstance(part, numbers)]
    whose = [each for each in whose if any(each)]
    arrays = [leaf for leaf in flatten(result)[0] if isinstance(leaf, np.ndarray | fx.Array) and leaf.ndim]
    views = [[isinstance(each, np.ndarray) and np.shares_memory(leaf, each) for each in mine] for leaf in arrays]
    return described(result), whose, views


@pytest.mark.parametrize("function", CASES)
def test_both_ways_leave_the_same_behind(function):
    f, mine, theirs, kinds = fx.futurize(function), CASES[function](), CASES[function](), []

    def noted(*args):
        result = f(*args)
        kinds.append(tuple(map(type, flatten(result)[0])))
        return result

    for k in range(CALLS):
        x, y = (np.arange(3.0) + k for _ in range(2))
        assert called(noted, (mine, x)) == called(function, (theirs, y)), k
        assert described(mine) == described(theirs)
    assert "calls run as plain NumPy" in f.explain()
    assert len(set(kinds[3:])) == 1  # futures stay futures


def test_what_is_put_into_objects_is_put_there_once():
    f, accounts, moves = fx.futurize(ledger), {"a": 0.0, "b": 1.0}, [("a", 1.0), ("b", -2.0), ("a", 0.5)]
    for k in range(1, CALLS):
        assert f(accounts, moves) is accounts
        assert accounts == {"a": 1.5 * k, "b": 1.0 - 2.0 * k}
    assert "calls run as plain NumPy" in f.explain()


def first_or_other(x, y):
    if x[0] > 0:
        return x
    return y


def first_or_new(x, y):
    if x[0] > 0:
        return x, x[0]
    return y * 2, y[0]


def part_of_either(x, y):
    if x.sum() > 0:
        return x[1:]
    return y[1:]


def new_or_none(x, y):
    if x[0] > 0:
        return None
    return y + 1


def bound_in_rounds(x, y):
    a = b = x
    for i in range(len(x)):
        if x[i] > 1:
            a = a + 1
        else:
            b = y
    return a, b


@pytest.mark.parametrize("function", [first_or_other, first_or_new, part_of_either, new_or_none, bound_in_rounds])
def test_results_from_branches_are_who_they_are(function):
    f, kinds = fx.futurize(function), ({}, {})
    for k in range(2 * CALLS):
        args = np.arange(3.0) + 1 if k % 2 else -np.arange(3.0), np.ones(3) * k
        assert called(f, args) == called(function, args), k
        for leaf, other in zip(flatten(f(*args))[0], flatten(function(*args))[0], strict=True):
            kinds[k % 2].setdefault((type(other), any(other is each for each in args)), set()).add(type(leaf))
    assert "calls run as plain NumPy" in f.explain()
    assert all(len(found) == 1 for each in kinds for found in each.values())  # futures stay futures


def test_an_array_that_is_put_somewhere_and_returned_is_one_array():
    def put(held, x):
        held["y"] = y = x * 2
        return y

    f, held = fx.futurize(put), {"y": np.zeros(3)}
    for _ in range(CALLS):
        assert f(held, np.arange(3.0)) is held["y"]
    assert "calls run as plain NumPy" not in f.explain()


def twice(x):
    y = x * 2
    return y, [y, x + 1]


def with_views(x):
    y = x + 1
    return {"y": y, "views": (y[1:], y[::-1]), "sum": y.sum()}


def one_view_twice(x):
    x += 1
    y = np.tile(x, 2)  # is a view of an array that nobody has
    part = y[:4]
    return part, y, part, y[:4], y, x


def of_two_arrays(x):
    y, z = x * 2, x * 3
    return y.reshape(3, 1), y, z, z[None], y[:1]


def only_views(x):
    y = x * 2
    return y[1:], y[:1], x[1:]


@pytest.mark.parametrize("function", [twice, with_views, one_view_twice, of_two_arrays, only_views])
def test_arrays_that_are_left_together_share_their_elements(function):
    f, seen = fx.futurize(function), []
    for _ in range(CALLS):
        x = np.arange(3.0)
        result = f(x)
        leaves = flatten(result)[0]
        assert described(result) == described(function(np.arange(3.0)))
        arrays = [leaf.result() if isinstance(leaf, fx.Array) else leaf for leaf in leaves if leaf.ndim]
        seen.append(
            (
                [type(leaf) for leaf in leaves],
                [one is other for one in leaves for other in leaves],
                [np.shares_memory(one, other) for one in arrays for other in arrays],
            )
        )
    assert all(each == seen[0] for each in seen)
    assert ("calls run as plain NumPy" in f.explain()) is (function is not only_views)


def test_calls_that_find_a_future_in_an_object_have_no_choice():
    f, layer = fx.futurize(lambda layer, x: layer.w + x), Layer()
    layer.w = fx.futurize(lambda x: x + 1)(np.ones(3))
    for _ in range(CALLS):
        assert f(layer, np.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert "calls run as plain NumPy" not in f.explain()
    layer.w = np.zeros(3)
    assert f(layer, np.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_objects_are_told_apart_in_hot_calls():
    f, layers = fx.futurize(reads_attributes), [Layer(), Layer()]
    for k in range(CALLS):
        layer = layers[k > CALLS // 2]
        layer.w = np.full(3, float(k))
        first, same, part, parts = f(layer, np.ones(3))
        assert first.tolist() == [k] * 3
        assert same is layer.w
        assert part.base is same
        assert parts is layer.parts
    assert f._lane is not None


def weighted(layer, x):
    layer.n += 1
    layer.w = layer.w * 0.5 + x
    return layer.w.sum() * layer.n + layer.rate, layer.n


OTHERS = [
    ("w", np.arange(4.0)), ("w", np.arange(3)), ("w", np.arange(6.0)[::2]), ("w", np.ones((2, 3)).T[:, 0]),
    ("w", np.arange(3.0, dtype=">f8")), ("w", np.arange(3.0, dtype=np.float32)), ("w", np.float64(2.5)), ("w", 1.5),
    ("n", 2**62), ("n", 2**63), ("n", True), ("n", 2.5), ("n", np.int64(3)), ("n", 7), ("rate", 3), ("rate", 2j),
]  # fmt: skip


def nobody_asks(monkeypatch, same):
    """After some calls nothing that they hold is looked at piece by piece."""
    for k in range(8):
        same(np.full(3, k + 0.5))
    asked, valid = [], Variant.valid
    monkeypatch.setattr(Variant, "valid", lambda variant: asked.append(variant) or valid(variant))
    for k in range(8):
        same(np.full(3, k + 0.25))
    assert not asked


@pytest.mark.parametrize(("name", "other"), OTHERS)
def test_inputs_that_objects_hold_are_asked_for_their_kind_alone(monkeypatch, name, other):
    f, mine, theirs = fx.futurize(weighted), Layer(), Layer()

    def same(x):
        assert called(f, (mine, x)) == called(weighted, (theirs, x))
        assert described(mine) == described(theirs)

    nobody_asks(monkeypatch, same)
    for _ in range(3):
        before = getattr(mine, name), getattr(theirs, name)
        for layer in (mine, theirs):
            setattr(layer, name, other)
        same(np.ones(np.shape(other) if name == "w" else 3))
        same(np.ones(np.shape(other) if name == "w" else 3))
        for layer, value in zip((mine, theirs), before, strict=True):
            setattr(layer, name, value)
        same(np.ones(3))


class Held:
    def __init__(self):
        self.parts = {"w": np.ones(3), "n": 2, "name": "a", "rows": [np.zeros(3), (1.5, None, True)], "scale": 0.5}


def held_parts(held, x):
    parts = held.parts
    first, (factor, nothing, flag) = parts["rows"]
    parts["w"] = parts["w"] * 0.5 + x
    assert nothing is None
    return parts["w"] * factor * parts["n"] * (2 if flag else 3) + first, len(parts["name"]), parts["scale"] * x


CHANGES = {
    "another array": lambda held: held.parts.update(w=np.full(3, 4.0)),
    "another dict": lambda held: setattr(held, "parts", dict(held.parts)),
    "another shape": lambda held: held.parts.update(w=np.float64(2.0)),
    "another dtype": lambda held: held.parts["rows"].__setitem__(0, np.ones(3, np.float32)),
    "another number": lambda held: held.parts.update(n=3),
    "True for one": lambda held: held.parts.update(n=True),
    "NumPy's for Python's": lambda held: held.parts.update(scale=np.float64(0.5)),
    "another text": lambda held: held.parts.update(name="abc"),
    "another entry": lambda held: held.parts.update(more=1),
    "another order": lambda held: held.parts.update(n=held.parts.pop("n")),
    "a tuple for a list": lambda held: held.parts.update(rows=tuple(held.parts["rows"])),
    "another tuple": lambda held: held.parts["rows"].__setitem__(1, (1.5, None, False)),
    "a longer list": lambda held: held.parts["rows"].append(1),
    "an array for a number": lambda held: held.parts.update(scale=np.ones(3)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_objects_hold_in_nests_is_asked_at_every_call(monkeypatch, change):
    f, mine, theirs = fx.futurize(held_parts), Held(), Held()

    def same(x):
        def outcome(function, held):
            try:
                return described(function(held, x))
            except ValueError as error:
                return str(error)

        assert outcome(f, mine) == outcome(held_parts, theirs)
        assert described(mine.parts) == described(theirs.parts)

    nobody_asks(monkeypatch, same)
    for held in (mine, theirs):
        CHANGES[change](held)
    for k in range(4):
        same(np.full(3, float(k)))


COMING = fx.futurize(lambda x: x * 2.0)(np.ones(3))


def scaled_by_a_future(held, x):
    held.parts["w"] = x * COMING
    return held.parts["w"].sum()


def test_calls_that_find_futures_outside_have_no_choice():
    """A plain one would wait for them."""
    f, mine, theirs = fx.futurize(scaled_by_a_future), Held(), Held()
    for k in range(8):
        x = np.full(3, k + 0.5)
        assert float(f(mine, x)) == float(scaled_by_a_future(theirs, x))
    assert f._lane is not None, f.explain()
    assert f._lane.choice is None
