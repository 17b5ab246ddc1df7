# ruff: noqa: B009, E721, E741, PIE800, PIE804
"""Python's values, containers and calls in staged functions."""

import collections
import functools
import math
import operator
from functools import partial

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
both = partial(cases.signs, V)


@both()
def int_then_float(x):
    y = 0
    if x[0] > 0:
        y = 1.5
    return y


@both()
def int_then_array(x):
    y = 0
    if x[0] > 0:
        y = x * 2
    return y


@both()
def none_or_array(x):
    y = None
    if x[0] > 0:
        y = x * 2
    return y


@both()
def none_then_used(x):
    y = None
    if x[0] > 0:
        y = x * 2
    if y is None:
        y = x
    return y


@both()
def string_in_branch(x):
    mode = "a"
    if x[0] > 0:
        mode = "b"
    return x * 2 if mode == "a" else x * 3


@both()
def f4_f8(x):
    y = x.astype(np.float32)
    if x[0] > 0:
        y = x
    return y.sum()


@both()
def ranks(x):
    y = x
    if x[0] > 0:
        y = x.reshape(1, -1)
    return y


@cases(V, staged=False)
def filter_traced(x):
    return list(filter(lambda t: t > 0, x))


@both()
def print_fstring(x):
    print(f"sum {x.sum():.3f} {x[0]}")
    return x


@cases(np.float64(5.0))
@cases(np.float64(0.5))
def traced_recursion(a):
    def halve(v):
        return v if v < 1 else halve(v / 2)

    return halve(a)


@cases(np.array(6))
def fib(n):
    def f(k):
        if k < 2:
            return k
        return f(k - 1) + f(k - 2)

    return f(n)


@both()
def nonlocal_in_branch(x):
    n = 0.0

    def add(v):
        nonlocal n
        n = n + v

    if x[0] > 0:
        add(1.0)
    return x + n


@both()
def gen_traced(x):
    def g():
        yield x
        yield x * 2

    return sum(g())


@both(staged=False)
def globals_write(x):
    global COUNTER
    COUNTER = 3
    return x * COUNTER


COUNTER = 0


@both()
def walrus_traced(x):
    if (s := x.sum()) > 0 and (t := s * 2) > 1:
        return t
    return s


@both()
def match_traced(x):
    match int(x[0]):
        case 1:
            y = x * 2
        case -1:
            y = x * 3
        case _:
            y = x
    return y


@both()
def match_seq(x):
    match (x, 1, [2, 3]):
        case (a, 1, [b, *rest]):
            return a * b + len(rest)
        case _:
            return x


@both()
def match_map(x):
    match {"kind": "a", "x": x}:
        case {"kind": "a", "x": v}:
            return v * 2
        case _:
            return x


@both()
def star_unpack(x):
    a, *b, c = x
    (d, e), f = (1, 2), 3
    return a, b, c, [*b, a], (*b,), {**{"a": a}}, d + e + f


@functools.lru_cache
def cached(n):
    return n * 2


@both()
def lru(x):
    return x * cached(3)


@both()
def oper(x):
    return (
        operator.itemgetter(1)(x),
        operator.attrgetter("T")(x),
        operator.mul(x, 2),
        operator.neg(x),
        operator.methodcaller("sum")(x),
    )


@both()
def oper_called(x):
    return (
        operator.call(lambda a, b=1.0: a * b, x, b=3.0),
        operator.is_(x, x),
        operator.is_not(x, x),
        operator.methodcaller("sum", axis=0)(x),
    )


@cases(np.float64(0.5))
@cases(0.5)
def math_fns(a):
    return (
        math.sqrt(a),
        math.sin(a),
        math.exp(a),
        math.log(a),
        math.floor(a),
        math.ceil(a),
        math.hypot(a, 1.0),
        math.atan2(a, 1.0),
        math.isnan(a),
        math.fabs(a),
        math.tanh(a),
        math.pow(a, 2.0),
        math.log1p(a),
        math.trunc(a),
        math.copysign(1.0, a),
        math.radians(a),
        math.isclose(a, 0.5),
    )


@cases(-0.5)
def math_domain(a):
    return math.sqrt(a)


@cases(0.0)
def math_domain2(a):
    return math.log(a)


@both()
def builtin_mix(x):
    return (
        abs(x[0]),
        round(x[0], 1),
        round(float(x[0])),
        pow(x[0], 2),
        divmod(x[0], 0.3),
        len(x),
        sum(x),
        min(x),
        max(x),
        any(x > 1),
        all(x > -5),
        min(x[0], 1.0, x[2]),
        max(x, key=lambda v: -v),
        min([1, 2], default=3),
    )


@both()
def sorted_key(x):
    return sorted([(1, x), (0, x * 2)], key=lambda p: p[0])


@both()
def isinst(x):
    return (
        isinstance(x, np.ndarray),
        isinstance(x[0], float),
        isinstance(x[0], np.float64),
        isinstance(float(x[0]), float),
        type(x) is np.ndarray,
        type(x) == np.ndarray,
        type(x).__name__,
        type(x[0]) is np.float64,
        callable(x),
        hasattr(x, "shape"),
        hasattr(x, "foo"),
        getattr(x, "shape"),
        getattr(x, "foo", 3),
        x is x,
    )


@both()
def chained(x):
    return (
        0 < x[0] < 2,
        0 < x[1] <= 1 < x[2],
        1 < 2 < 3,
        x[0] in (1.0, 2.0),
        0 <= int(x[0]) in (1, 2),
        x[0] is not None is not True,
    )


@both()
def is_none_default(x, y=None):
    if y is None:
        y = x * 2
    return y


@cases(1.0, 0.0)
@cases(1.0, 2.0)
def zerodiv(a, b):
    return a / b


@cases(1.0, 0.0)
@cases(1.0, 2.0)
def zerodiv_floor(a, b):
    return a // b, a % b


@cases(V)
def zerodiv_float(x):
    return 1.0 / float(x[2])


@cases(np.zeros(2))
def zerodiv_float0(x):
    return 1.0 / float(x[1])


@cases(np.array([2**62, 3]))
def overflow_int(x):
    return int(x[0]) * 4


@cases(np.array([2**62, 3]))
def overflow_pow(x):
    return 2 ** int(x[1]), int(x[1]) ** 2


@cases(np.array([40, -3]))
@cases(np.array([3, -3]))
def powers_of_ints_that_are_none(x):
    return 5 ** int(x[0]), 2 ** int(x[1]), int(x[0]) ** 0.5, (-1) ** int(x[0]), int(x[0]) ** -1


@cases(np.array([-40]))
def a_root_of_a_negative_int(x):
    return int(x[0]) ** 0.5


@both()
def local_import(x):
    import math

    return x * math.pi


@cases([1.0, 0.0])
def list_arg_zero(ws):
    return ws[0] / ws[1]


@cases([1.0, 0.0])
def list_append_arg(ws):
    ws.append(3.0)
    return ws[0] + ws[2]


@cases({"w": V.copy()})
def dict_arg_set(d):
    d["w"] = d["w"] * 2
    return d["w"]


@cases({"w": V.copy()})
def dict_arg_inplace(d):
    d["w"] *= 2
    return d["w"].sum()


@both()
def np_vectorize(x):
    f = np.vectorize(lambda v: v * 2 if v > 0 else v)
    return f(x)


@both()
def apply_along(x):
    return np.apply_along_axis(lambda r: r.sum(), 0, x.reshape(7, 1))


@both()
def fromfunction(x):
    return np.fromfunction(lambda i, j: i + j, (2, 3)) + x[0]


@both()
def kwonly(x):
    def f(a, /, b, *, c=2, **kw):
        return a * b + c + sum(kw.values())

    return f(x, 2), f(x, b=3, c=4, d=5), f(*(x, 1), **{"c": 3})


@both()
def defaultdict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    c = collections.Counter("aab")
    q = collections.deque([1, 2])
    q.append(3)
    return d["a"][0] * c["a"] * q[2]


@both()
def swap(x):
    a, b = x[0], x[1]
    if a > b:
        a, b = b, a
    x[0], x[1] = x[1], x[0]
    return a, b


@functools.singledispatch
def disp(a):
    return 1


@disp.register(np.ndarray)
def _(a):
    return 2


@both()
def singled(x):
    return x * disp(x)


@both()
def complex_return(x):
    return {"a": (x, [1, None, "s"]), "n": None, "t": (), "r": range(3), "sl": slice(1, 2), "set": {1}}


@cases({"w": V.copy(), "n": 1})
def grows(d):
    d["y"] = d["w"] * 2
    d["w"] = d["w"] + 1
    del d["n"]
    return d["y"]


@cases({"w": V.copy(), "log": [1.0]}, 3.0)
def log(d, a):
    d["log"].append(a * 2)
    d["log"].append(d["w"][0])
    d["new"] = [d["w"] * 2, {"a": 1}]
    return d["log"][0]


@cases([1.0, V.copy(), "a"])
def lists(l):
    l[0] = l[0] + 1
    l.reverse()
    l.append(None)
    l[1] += 5


@cases(V, V)
def alias_list(x, y):
    l = [x]
    m = {"a": l, "b": l}
    m["a"].append(y)
    return m


D = {"a": 1.0}


@both()
def shared(x):
    return x * D["a"]


@cases({"a": {"b": V.copy()}})
def move_arrays(d):
    d["c"] = d["a"]["b"]
    d["a"]["b"] = d["a"]["b"] * 2
    return d["c"] + 1


@cases({"a": {"b": V.copy()}})
def move(d):
    d["c"] = d.pop("a")
    return d["c"]["b"] + 1


@cases.signs(V)
def places_compared_as_tuples(x):
    here, steps = (0, 0), 0
    goal = (3, int(np.abs(x[:3]).sum()))
    while here != goal and steps < 12:
        i, j = here
        here = (i + 1, j) if i < 3 else (i, j + 1)
        steps += 1
    return steps, here == goal, here == (3, 99), (here, steps) == (goal, steps), here == (3, 1, 0), here == 3


@cases.signs(V, staged=False)
def tuples_of_floats_are_asked_who_they_are(x):
    bad = x[0] * np.nan
    return (bad, 1) == (bad, 1), (bad, 1) == (x[1] * np.nan, 1)


@cases.signs(V)
def keys_joined(x):
    found = {"low": x.min(), "high": x.max()}
    return ", ".join(found), found["high"] - found["low"]


def halved_until(f, x):
    n = 0
    while f(x) > 1 and n < 20:
        x = x * 0.5
        n += 1
    return x, n


@cases.signs(V)
def calls_counted_by_a_closure(x):
    calls, best = 0, np.inf

    def size(v):
        nonlocal calls, best
        calls += 1
        found = (v**2).sum()
        if found < best:
            best = found
        return found

    y, n = halved_until(size, x * 3)
    for v in x:
        calls += 1
        if size(v) > 3:
            break
    return y, n, calls, best


@cases.signs(V)
def array_that_a_closure_rebinds_in_rounds(x):
    y = x.copy()

    def push(v):
        nonlocal y
        y = y + v

    while y.sum() < 20:
        push(x[1] + 2)
        y[0] += 1
    z = y if x[0] > 0 else y * 2
    push(1.0)
    return y, z
