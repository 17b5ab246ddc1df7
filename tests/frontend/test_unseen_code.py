# ruff: noqa: B007, B008, C408, UP031, UP032
"""Code that Python runs by itself: special methods, class bodies, imports, partials. What it reads may change between
calls; what iterators and targets do happens in Python's order."""

import abc
import copy
import dataclasses
import functools
import itertools
import math
import sys
import types
from collections import namedtuple
from contextlib import nullcontext

import numpy as np
import pytest
from compare import bits, check, plain

import futurex as fx

X = np.arange(6.0)
rate = 2.0


class Size:
    """A number in disguise."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)

    def __index__(self):
        return int(self.value)

    def __abs__(self):
        return self.value

    def __round__(self, digits=None):
        return self.value

    def __floor__(self):
        return self.value

    def __lt__(self, other):
        return self.value < other.value

    def __gt__(self, other):
        return self.value > other.value

    def __eq__(self, other):
        return self.value == other.value

    def __hash__(self):
        return 1

    def __radd__(self, other):
        return other + self.value

    def __iter__(self):
        return iter([self.value, 1])

    def __str__(self):
        return f"size {self.value}"


a, b = Size(3), Size(4)
NATIVE = {
    "abs": lambda x: x * abs(a),
    "contains": lambda x: x * (a in [b]),
    "count": lambda x: x * [b, b].count(a),
    "float": lambda x: x * float(a),
    "floor": lambda x: x * math.floor(a),
    "format": lambda x: (x, f"{a}", "{}".format(a), str(a), "%s" % (a,)),
    "hash": lambda x: x * len({a, b}),
    "index": lambda x: x * list(range(9))[a],
    "iter": lambda x: x * next(iter(a)),
    "keys": lambda x: x * len({a: 1, b: 2}),
    "lists": lambda x: x * ([a] < [b]),
    "look up": lambda x: x * {b: 5}.get(a, 1),
    "max": lambda x: x * max(a, b).value,
    "min": lambda x: x * min([a, b]).value,
    "numpy": lambda x: np.roll(x, a),
    "range": lambda x: x * len(range(a)),
    "round": lambda x: x * round(a),
    "scalar": lambda x: x * np.float64(a),
    "slice": lambda x: x[:a] + len([1, 2, 3, 4, 5, 6][:a]),
    "sorted": lambda x: x * sorted([a, b])[0].value,
    "sqrt": lambda x: x * math.sqrt(a),
    "sum": lambda x: x * sum([1, a]) + sum([1, a, x[0]]),
    "zeros": lambda x: np.zeros(a),
}


@pytest.mark.parametrize("name", NATIVE)
def test_special_methods_that_builtins_call(name):
    function = NATIVE[name]
    futurized = fx.futurize(function)
    for values in ((3, 4), (5, 4), (1, 4), (4, 4), (3, 2)):
        a.value, b.value = values
        assert bits(plain(futurized(X))) == bits(function(X)), values


class Signed:
    def __init__(self, value):
        self.value = value

    def __abs__(self):
        return Signed(np.abs(self.value) * rate)


def lengths(x):
    return (abs(Signed(x)).value * x).sum()


def test_abs_of_the_users_objects_has_a_derivative(monkeypatch):
    futurized = fx.futurize(lengths, escape="error")
    for k in range(3):
        monkeypatch.setitem(globals(), "rate", float(k))
        assert float(futurized(X - 3)) == lengths(X - 3) == -9 * k
        assert np.asarray(fx.grad(lengths)(X - 3)).tolist() == (2 * k * abs(X - 3)).tolist()


class Pair(namedtuple("Pair", "first second")):
    def __new__(cls, first):
        return super().__new__(cls, first, rate)


class Cached:
    @functools.cached_property
    def value(self):
        return rate


class Dynamic:
    def __getattr__(self, name):
        return rate


class Described:
    class Descriptor:
        def __get__(self, owner, kind=None):
            return rate

    value = Descriptor()


class Setting:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * rate)


class Checked:
    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, new):
        self._value = new * rate


class Defaults:
    step = 1.0


def times_rate(function):
    factor = rate
    return lambda value: function(value) * factor


def class_body(x):
    class Settings:
        step = rate

    return x * Settings.step


def decorated(x):
    @times_rate
    def inner(value):
        return value + 1

    return inner(x)


def setter(x):
    checked = Checked()
    checked.value = x
    return checked.value


def set_by_class(x):
    setting = Setting()
    setting.value = x
    return setting.value


def imported(x):
    from unseen_settings import rate as step

    return x * step


READING = [
    class_body, decorated, setter, set_by_class, imported, lambda x: x * Pair(1.0).second, lambda x: x * Cached().value,
    lambda x: x * Dynamic().value, lambda x: x * Described().value, lambda x: x * Defaults().step,
]  # fmt: skip


@pytest.mark.parametrize("function", READING)
def test_what_python_reads_by_itself_may_change(function, monkeypatch):
    settings = types.ModuleType("unseen_settings")
    monkeypatch.setitem(sys.modules, "unseen_settings", settings)
    futurized = fx.futurize(function)
    for value in (2.0, 3.0, 2.0, 5.0):
        monkeypatch.setitem(globals(), "rate", value)
        monkeypatch.setattr(Defaults, "step", value)
        settings.rate = value
        assert bits(plain(futurized(X))) == bits(function(X))


def scaled(params, x):
    return x * params["w"] + params["k"][0]


@pytest.mark.parametrize("make", [
    lambda params: functools.partial(scaled, params),
    lambda params: lambda x, by_name=functools.partial(scaled, params=params): by_name(x=x),
    lambda params: lambda x, view=types.MappingProxyType(params): scaled(view, x),
])  # fmt: skip
def test_what_partials_and_views_of_dicts_hold(make):
    params = {"w": np.ones(6), "k": [1.0]}
    function = make(params)
    futurized = fx.futurize(function)
    for value in range(4):
        assert bits(plain(futurized(X))) == bits(function(X))
        params["w"] = np.full(6, value + 2.0)
        assert bits(plain(futurized(X))) == bits(function(X))
        params["k"][0] = value + 3.0


class State:
    def __init__(self):
        self.on, self.other, self.nothing, self.empty, self.first, self.second = False, True, None, None, 1, 1

    def switch(self, x):
        self.on = True
        self.first = None
        self.copy = self.second
        return x

    def on_and_off(self, x):
        self.other = False
        y = x * 2
        self.other = True
        return y


@pytest.mark.parametrize("name", ["switch", "on_and_off"])
def test_attributes_hold_what_was_set(name):
    """Not another attribute that happened to be the same object, and also where it was so before."""
    states = State(), State()
    calls = getattr(states[0], name), fx.futurize(getattr(states[1], name))
    for others in (dict(other=True), dict(other=False, nothing=3), dict(on=False, empty=4), dict(other=None, first=1)):
        for state, call in zip(states, calls, strict=True):
            vars(state).update(others)
            plain(call(X))
        assert vars(states[0]) == vars(states[1])


def targets_from_the_left(x):
    filled, n = [0.0] * 4, 0
    y = x.copy()
    for k in range(3):
        filled[n], n = x[k], n + 1
    y[n], n = 10.0, 0
    n, y[n] = 4, 20.0
    for y[n], n in [(1.0, 5), (2.0, 1)]:
        pass
    return filled, y, n


class Holder:
    pass


held = Holder()


def targets_of_with(x):
    y = x.copy()
    with nullcontext(5.0) as y[0], nullcontext(2) as k, nullcontext(x[k]) as y[k]:
        return y


def attributes_as_targets(x):
    with nullcontext(x * 2) as held.value:
        pass
    for held.count in range(3):
        try:
            if held.count == 1:
                break
        except KeyError:
            pass
    return held.value + held.count


def yields_from(x):
    def inner():
        got = yield x.sum()
        while got is not None:
            got = yield got * x
        return "end"

    def outer():
        result = yield from inner()
        yield result

    steps = outer()
    return next(steps), steps.send(2.0), steps.send(3.0), steps.send(None)


def looks_until_it_knows(x):
    seen = []

    def positive(value):
        seen.append(value)
        return value > 1

    found = any(positive(v) for v in [1, 2, 3]), all(positive(v) for v in [2, 1, 3])
    return x * len(seen), found, any(v > 2 for v in x), all(v > 2 for v in x)


def looks_as_long_as_data_say(x):
    seen = []

    def positive(value):
        seen.append(1)
        return value > 1

    return any(positive(v) for v in x), len(seen)


def divides_as_long_as_data_say(x):
    return any(1 / float(v) > 3 for v in x[::-1])


def one_at_a_time(x):
    seen, data = [], [1, 2]

    def double(value):
        seen.append(value)
        return value * 2

    doubled = map(double, data)
    first, so_far = next(doubled), len(seen)
    backwards, sums, large = reversed(data), itertools.accumulate(data), filter(lambda v: v > 1, data)
    data[0] = 7
    numbers = itertools.islice(map(double, itertools.count()), 2)
    return x * first, so_far, list(backwards), list(sums), list(large), list(numbers), seen


def copies_of_one_list(x):
    row = [1, 2]
    rows = copy.deepcopy([row, row])
    rows[0][0] = 9
    return x * rows[1][0]


def dict_of_a_view(x):
    return x, dict(types.MappingProxyType({"ab": 1, "cd": 2}))


ORDERS = [
    targets_from_the_left, targets_of_with, attributes_as_targets, yields_from, looks_until_it_knows,
    looks_as_long_as_data_say, divides_as_long_as_data_say, one_at_a_time, copies_of_one_list, dict_of_a_view,
]  # fmt: skip


@pytest.mark.parametrize("function", ORDERS, ids=lambda function: function.__name__)
def test_in_the_order_of_python(function):
    def outcome(call, x):
        vars(held).clear()
        try:
            result = bits(plain(call(x)))
        except ZeroDivisionError as error:
            result = str(error)
        return result, {name: bits(plain(value)) for name, value in vars(held).items()}

    futurized = fx.futurize(function)
    for x in (X, X, X + 1, -X, X[::-1] / 9):
        assert outcome(futurized, x) == outcome(function, x)


@dataclasses.dataclass
class Layer:
    width: float


def holds_objects(x):
    layers = [Layer(2.0), Layer(3.0)]
    by_name = dict({"first": layers[0]}, third=layers[0])
    del by_name["third"]
    by_name.update({"second": layers[1]})
    rows = iter(layers)
    y = x * next(rows).width * by_name["second"].width
    for layer in [*layers, *rows]:
        y = y + layer.width
    return y, len(layers), sorted(by_name), max(by_name.values(), key=lambda layer: layer.width).width


def test_objects_with_methods_that_nobody_calls_are_staged():
    check(holds_objects, X)


class Activation(abc.ABC):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    @abc.abstractmethod
    def of(self, x): ...


class Leaky(Activation):
    def of(self, x):
        return np.where(x > 0, x, self.slope * x)


def test_a_class_with_an_abstract_base_is_made_like_any_other():
    def slopes(x):
        made = Leaky(0.5)
        return made.of(x) * isinstance(made, Activation)

    check(slopes, X - 2)
    np.testing.assert_array_equal(fx.grad(lambda x: Leaky(0.5).of(x).sum())(X - 2), [0.5, 0.5, 0.5, 1, 1, 1])
    with pytest.raises(TypeError, match="abstract"):
        fx.futurize(lambda x: Activation(x))(X)


class Documented(abc.ABCMeta):
    """Gives classes without a text that of their bases, and counts them."""

    made = 0

    def __new__(mcs, name, bases, members):
        return super().__new__(mcs, name, bases, {"__doc__": bases[0].__doc__ if bases else None, **members})

    def __init__(cls, name, bases, members):
        super().__init__(name, bases, members)
        Documented.made += 1


class Single(type):
    """Makes one instance of each class."""

    def __call__(cls, *args):
        if not hasattr(cls, "instance"):
            cls.instance = super().__call__(*args)
        return cls.instance


class Steep(Leaky, metaclass=Documented):
    def of(self, x):
        return super().of(x) * 3


class Only(metaclass=Single):
    def __init__(self, slope):
        self.slope = slope


def test_classes_of_classes_that_leave_making_instances_to_python():
    def slopes(x):
        made = Steep(0.5)
        return made.of(x) * isinstance(made, Activation), Documented.made

    check(slopes, X - 2)
    np.testing.assert_array_equal(fx.grad(lambda x: Steep(0.5).of(x).sum())(X - 2), [1.5, 1.5, 1.5, 3, 3, 3])
    one = fx.futurize(lambda x: x * Only(x[1]).slope)
    for k in range(3):
        np.testing.assert_array_equal(one(X + k), X + k)


@pytest.mark.parametrize("error", [BaseException, SystemExit, KeyboardInterrupt])
def test_what_ends_a_program_does_not_end_a_trace(error):
    @fx.futurize
    def careful(x):
        if x[0] > 5:
            raise error("too large")
        return x * 2

    for _ in range(3):
        np.testing.assert_array_equal(careful(X), X * 2)
        with pytest.raises(error, match="too large"):
            careful(X + 6)
    with pytest.raises(fx.StagingError, match="raising"):
        fx.grad(lambda x: careful(x).sum())(X)
