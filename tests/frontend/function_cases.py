"""Functions that call functions, and functions that are not pure."""

import copy
import functools
import itertools
import math
import operator
import random
import time
from dataclasses import dataclass

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 5)
GAIN = 3.0


def double(x, times=2.0, *, shift=0.0):
    return x * times + shift


def variadic(first, *rest, **named):
    total = first
    for value in rest:
        total = total + value
    for name, value in named.items():
        total = total + value * len(name)
    return total


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) + GAIN

    return wrapper


@decorated
def square(x):
    return x * x


def power(x, n):
    return x if n == 0 else x * power(x, n - 1)


def halve(x):
    return x if x.max() < 1 else halve(x / 2)


class Layer:
    scale = 2.0

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return self.apply(x) + self.rate

    def apply(self, x):
        return x * self.scale

    @property
    def half(self):
        return self.rate / 2

    @staticmethod
    def add(x, y):
        return x + y

    @classmethod
    def make(cls, rate):
        return cls(rate)

    def __mul__(self, other):
        return other * self.rate

    def __rmul__(self, other):
        return other * self.rate

    def __eq__(self, other):
        return isinstance(other, Layer) and other.rate == self.rate

    __hash__ = None


class Lookup:
    def __init__(self, values):
        self.values = values

    def __getitem__(self, key):
        return self.values[key]

    def __len__(self):
        return len(self.values)

    def __eq__(self, other):
        return isinstance(other, Lookup) and other.values == self.values

    __hash__ = None


@dataclass
class State:
    x: np.ndarray
    n: int = 0

    def moved(self, by):
        return State(self.x + by, self.n + 1)


@cases(V)
def arguments_of_all_kinds(x):
    a = double(x) + double(x, 3.0) + double(x, times=0.5, shift=1.0)
    pair = (x, x * 2)
    b = variadic(*pair, 1.0, abc=x, d=2.0)
    return a, b


@cases(V)
def lambdas_and_closures(x):
    k = 2.0
    f = lambda v, by=3.0: v * k + by  # noqa: E731

    def g(v):
        return f(v) - k

    k = 5.0
    return f(x), g(x), (lambda: x)()


@cases(V)
def decorators(x):
    return square(x)


@cases(V)
def recursion_with_a_known_depth(x):
    return power(x, 4)


@cases(V)
def recursion_that_depends_on_data(x):
    return halve(x)


@cases(V)
def partials_and_reduce(x):
    f = functools.partial(double, shift=2.0)
    return f(x), functools.reduce(lambda a, b: a * b, [x, x, 2.0]), list(map(double, [x, x + 1]))


@cases(V, Layer(0.5))
def methods(x, layer):
    return layer(x), layer.apply(x), layer.half * x, Layer.add(x, 1), layer * x, x[0] * layer


@cases(V, Lookup([2.0, 3.0]))
def items_of_objects(x, table):
    return table[1] * x + len(table)


@cases(V)
def objects_made_inside(x):
    layer = Layer.make(0.25)
    layer.rate = 0.75
    state = State(x, 1).moved(2.0)
    return layer(x), state.x, state.n


@cases(V)
def nonlocal_variables(x):
    total = x * 0
    calls = 0

    def add(v):
        nonlocal total, calls
        total = total + v
        calls += 1
        return total

    add(x)
    add(x * 2)
    return total, calls


@cases(V)
@cases(-V)
def nonlocal_variables_in_a_branch(x):
    n = 0.0

    def add(v):
        nonlocal n
        n = n + v

    if x[0] > 0:
        add(1.0)
    return x + n


@cases(V)
@cases(-V)
def a_function_with_control_flow(x):
    def clip(v, low):
        for _ in range(20):
            if v > low:
                return low
            v = v + 0.5
        return v

    return clip(x[0], 0.5), clip(x[-1], 1.5)


@cases(V)
def names_of_a_comprehension_are_its_own(x):
    GAINS = [1.0, 2.0]
    return x * GAIN, GAINS


@cases(V)
def itertools_and_operator(x):
    pairs = [a * b for a, b in itertools.product(x[:2], [1.0, 2.0])]
    return pairs, operator.add(x, 1), operator.getitem(x, 2), list(itertools.chain([x[0]], [x[1]]))


@cases(V)
def math_on_known_values(x):
    return x * math.pi + math.sqrt(4.0) + math.prod([1, 2, 3])


@cases(2.0)
def math_on_traced_values(a):
    return math.sqrt(a)


@cases(V)
def copies(x):
    y, z = copy.copy(x), copy.deepcopy({"x": [x, 1.0]})
    y[0] = 7.0
    z["x"][0][1] = 8.0
    return x, y, z


@cases(V)
def containers_made_inside(x):
    d = {"a": x}
    d["b"] = d["a"] + 1
    d.update(c=x * 2)
    parts = [x]
    parts.append(x + 1)
    parts += [x + 2]
    parts[0] = parts[1]
    d.pop("a")
    return d, parts, len(parts), "b" in d, sorted([3, 1, 2])


@cases(V)
def text_of_known_values(x):
    name = f"{x.shape[0]:03d}" + str(len(x)) + "{}".format("z")
    return {name: x}


@cases(V, staged=False)
def text_of_traced_values(x):
    return {f"{x[0]:.2f}": x}


@cases(V, staged=False)
def representation_of_traced_values(x):
    return {f"{x!r}": x, str([x]): 1}


@cases(V)
def a_generator(x):
    def rows():
        yield x
        yield x * 2

    return sum(rows())


@cases({"x": V.copy()})
def an_argument_dict_grows(d):
    d["y"] = d["x"] * 2
    return d["x"]


@cases(V, [1.0])
def an_argument_list_grows(x, items):
    items.append(2.0)
    return x * items[0]


@cases(V, {1, 2})
def a_set_as_argument(x, s):
    return x * len(s) if 1 in s else x


COUNTS = {"calls": 0}
SEEN = []


def impure_global_dict(x):
    COUNTS["calls"] += 1
    return x * COUNTS["calls"]


def impure_global_list(x):
    SEEN.append(x.sum())
    return x * len(SEEN)


def impure_random(x):
    return x + random.random()


def impure_time(x):
    return x + time.perf_counter_ns()


NUMBER = 0


def impure_global(x):
    global NUMBER
    NUMBER += 1
    return x * NUMBER


def require_positive(x):
    assert (x > 0).all(), "positive numbers, please"


IMPURE = [
    impure_global_dict, impure_global_list, impure_random, impure_time,
    impure_global,
]  # fmt: skip
