"""Calls are staged in turn; what is not pure runs at every call."""

import functools
import sys
import types

import function_cases
import numpy as np
import pytest
from compare import check, is_staged
from function_cases import IMPURE, cases

import futurex as fx


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_functions(case):
    check(case.function, *case.args, staged=case.staged)


@pytest.mark.parametrize("function", IMPURE)
def test_impure_functions_run_every_time(function):
    futurized = fx.futurize(function)
    results = {float(np.asarray(futurized(np.ones(2)))[0]) for _ in range(3)}
    assert len(results) == 3
    counts = function is function_cases.impure_global_dict  # numbers that change are inputs
    assert is_staged(futurized, (np.ones(2),)) in ((True,) if counts else (False, "fragment"))


def test_seeded_random_numbers_are_those_of_numpy():
    f = fx.futurize(lambda x: x + np.random.default_rng(7).normal(size=3))
    for _ in range(2):
        expected = np.ones(3) + np.random.default_rng(7).normal(size=3)
        assert np.asarray(f(np.ones(3))).tobytes() == expected.tobytes()


def scaled(x):
    return x * function_cases.GAIN + setting.factor


setting = types.SimpleNamespace(factor=1.0)


def test_changed_globals_and_attributes_are_seen(monkeypatch):
    f = fx.futurize(scaled)
    assert f(np.ones(1)).tolist() == [4.0]
    monkeypatch.setattr(function_cases, "GAIN", 10.0)
    assert f(np.ones(1)).tolist() == [11.0]
    monkeypatch.setattr(setting, "factor", 2.0)
    assert f(np.ones(1)).tolist() == [12.0]
    monkeypatch.undo()
    assert f(np.ones(1)).tolist() == [4.0]
    assert is_staged(f, (np.ones(1),))


def made(k, table):
    def inner(x):
        return x * k + table["bias"] + table["w"].sum()

    def change(value):
        nonlocal k
        k = value

    return inner, change


def test_changed_closures_and_contents_of_captured_arrays_are_seen():
    table = {"bias": 1.0, "w": np.ones(2)}
    inner, change = made(2.0, table)
    f = fx.futurize(inner)
    assert f(np.ones(1)).tolist() == [5.0]
    change(4.0)
    assert f(np.ones(1)).tolist() == [7.0]
    table["bias"] = 2.0
    assert f(np.ones(1)).tolist() == [8.0]
    table["w"][0] = 11.0
    assert f(np.ones(1)).tolist() == [18.0]
    table["w"] = np.zeros(3)
    assert f(np.ones(1)).tolist() == [6.0]
    assert is_staged(f, (np.ones(1),))


FIRST = SECOND = np.arange(3.0)


def both(x):
    return x * FIRST - SECOND


def test_two_names_of_one_array_may_part(monkeypatch):
    f = fx.futurize(both)
    assert f(np.ones(3)).tolist() == [0, 0, 0]
    monkeypatch.setattr(sys.modules[__name__], "FIRST", np.ones(3))
    assert f(np.ones(3)).tolist() == [1, 0, -1]


class Holder:
    def __init__(self, value):
        self.value = value

    def __rmul__(self, x):
        return x * self.value

    def __getitem__(self, key):
        return self.value

    @property
    def twice(self):
        return self.value * 2


def use_holder(x, h):
    return x[0] * h, h[0] * x, h.twice + x


def test_changed_state_of_objects_is_seen_through_their_operators():
    h = Holder(2.0)
    f = fx.futurize(use_holder)
    assert [np.asarray(r).tolist() for r in f(np.ones(1), h)] == [2.0, [2.0], [5.0]]
    h.value = 3.0
    assert [np.asarray(r).tolist() for r in f(np.ones(1), h)] == [3.0, [3.0], [7.0]]
    assert is_staged(f, (np.ones(1), h))


def with_default(x, weights=[1.0, 2.0]):  # noqa: B006
    return x * weights[0]


def test_changed_defaults_are_seen():
    f = fx.futurize(with_default)
    assert f(np.ones(1)).tolist() == [1.0]
    with_default.__defaults__[0][0] = 5.0
    try:
        assert f(np.ones(1)).tolist() == [5.0]
    finally:
        with_default.__defaults__[0][0] = 1.0


def test_a_redefined_function_is_seen():
    space = types.ModuleType("space")
    f = fx.futurize(lambda x: space.step(x))
    for k in range(6):  # old functions die: their addresses are used again
        space.step = [lambda x: x + 1, lambda x: x * 5, lambda x: x - 3][k % 3]
        assert f(np.ones(1)).tolist() == space.step(np.ones(1)).tolist()


def test_a_source_that_changed_is_not_used(tmp_path):
    import importlib.util
    import linecache

    path = tmp_path / "edited.py"
    path.write_text("def f(x):\n    return x + 1\n")
    spec = importlib.util.spec_from_file_location("edited", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_text("def f(x):\n    return x + 2\n")
    linecache.checkcache()
    f = fx.futurize(module.f)
    assert np.asarray(f(np.ones(1))).tolist() == [2.0]
    assert "not the source" in f.explain()


def test_functions_without_source_run_as_they_are():
    space = {}
    exec("def f(x):\n    return x + 1 if x.sum() > 0 else x", space)
    assert np.asarray(fx.futurize(space["f"])(np.ones(1))).tolist() == [2.0]


def test_the_factory_and_its_product_may_both_be_futurized():
    inner, _ = made(2.0, {"bias": 1.0, "w": np.ones(2)})
    outer = fx.futurize(lambda x: made(2.0, {"bias": x, "w": np.ones(2)})[0](x))
    assert float(outer(3.0)) == 3.0 * 2.0 + 3.0 + 2.0
    assert fx.futurize(inner)(np.ones(1)).tolist() == [5.0]
    again, _ = made(3.0, {"bias": 1.0, "w": np.ones(2)})
    assert fx.futurize(again)(np.ones(1)).tolist() == [6.0]


def extend(items, scale):
    items["list"].append(items["x"] * scale)
    items["new"] = scale
    return items["x"]


def test_containers_with_futures_in_them_are_changed_by_functions_that_run_plainly():
    future = fx.futurize(lambda x: x + 1)(np.ones(2))
    items = {"x": future, "list": [future]}
    inner = items["list"]
    fx.futurize(extend)(items, 2.0)
    assert items["x"] is future
    assert items["list"] is inner
    assert inner[0] is future
    assert inner[1].tolist() == [4.0, 4.0]
    assert items["new"] == 2.0


def doubled(target):
    @functools.wraps(target)
    def function(x, *args):
        if type(x) is float:
            x = np.array(x)
        return target(x, *args) * 2

    return function


floor_twice, norm_twice = doubled(np.floor), doubled(np.linalg.norm)


def test_functions_that_say_they_are_numpys_are_the_users():
    def f(x):
        return floor_twice(x / 2) + norm_twice(x) + floor_twice(1.5)

    x = np.arange(5.0)
    staged = fx.futurize(f, escape="error")  # no fragments either
    np.testing.assert_allclose(staged(x), f(x), rtol=1e-15)
