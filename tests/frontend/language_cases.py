# ruff: noqa: B007, B009, B905, C408, C416, C417, C420, E721, E741, PIE800, PIE804, RET504, RUF005, SIM905, UP028, UP031
"""Python's own constructs in staged functions: every path of each is taken by some arguments."""

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import typing
import warnings

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
W = np.abs(V) + 0.5
X = np.arange(12.0).reshape(3, 4)
LONG = np.sin(np.arange(40.0))


def both(*more, staged=True):
    """A case for an array and for its negative."""

    def add(function):
        cases(V, *more, staged=staged)(function)
        cases(-V, *more, staged=staged)(function)
        return function

    return add


@both(staged=False)
def int_then_float(x):
    y = 0
    if x[0] > 0:
        y = 1.5
    return y


@both(staged=False)
def int_then_array(x):
    y = 0
    if x[0] > 0:
        y = x * 2
    return y


@both(staged=False)
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


@both(staged=False)
def f4_f8(x):
    y = x.astype(np.float32)
    if x[0] > 0:
        y = x
    return y.sum()


@both(staged=False)
def ranks(x):
    y = x
    if x[0] > 0:
        y = x.reshape(1, -1)
    return y


@cases(LONG)
def best_none_loop(x):
    best = None
    for v in x:
        if best is None or v > best:
            best = v
    return best


@cases(LONG)
def prev_none_loop(x):
    prev = None
    total = 0.0
    for v in x:
        if prev is not None:
            total += v * prev
        prev = v
    return total


@cases(LONG)
def argmax_loop(x):
    best, where = -np.inf, -1
    for i, v in enumerate(x):
        if v > best:
            best, where = v, i
    return best, where


@cases(LONG)
def zip_loop(x):
    s = 0.0
    for a, b in zip(x, x[::-1]):
        s += a * b
    return s


@cases(LONG)
def enumerate_start(x):
    s = 0.0
    for i, a in enumerate(x, 1):
        s += a * i
    return s


@cases(LONG)
def reversed_loop(x):
    s = 0.0
    for a in reversed(x):
        s = s * 0.5 + a
    return s


@cases(LONG)
def reversed_range(x):
    s = 0.0
    for i in reversed(range(len(x))):
        s = s * 0.5 + x[i]
    return s


@cases(LONG, np.array(25))
def reversed_traced_range(x, n):
    s = 0.0
    for i in reversed(range(n)):
        s = s * 0.5 + x[i]
    return s


@cases(LONG, np.array(25))
def traced_step(x, n):
    s = 0.0
    for i in range(0, 40, n // 5):
        s = s * 0.5 + x[i]
    return s


@cases(LONG, np.array(25))
def enumerate_traced_range(x, n):
    s = 0.0
    for k, i in enumerate(range(5, n)):
        s = s * 0.5 + x[i] * k
    return s


@cases(LONG, np.array(25))
def zip_traced_range(x, n):
    s = 0.0
    for i, v in zip(range(n), x):
        s = s * 0.5 + v * i
    return s


@cases(LONG)
def map_filter(x):
    s = 0.0
    for v in map(lambda t: t * 2, x):
        s += v
    for i in filter(lambda k: k % 2, range(6)):
        s += x[i]
    return s


@cases(V, staged=False)
def filter_traced(x):
    return list(filter(lambda t: t > 0, x))


@cases(V, staged=False)
def comp_filter_traced(x):
    return [v * 2 for v in x if v > 0]


@cases(V, staged=False)
def comp_filter_sum(x):
    return sum(v for v in x if v > 0)


@cases(V, staged=False)
def comp_filter_array(x):
    return np.array([v * 2 for v in x if v > 0])


@cases(V)
def list_of_arrays(x):
    s = 0
    for a in [x, x * 2, x[::-1]]:
        s = s + a
    return s


@cases(X)
def ndindex(x):
    s = 0.0
    for i, j in np.ndindex(*x.shape):
        s += x[i, j] * i
    for idx in np.ndindex(x.shape):
        s += x[idx]
    return s


@cases(X)
def ndenumerate(x):
    s = 0.0
    for (i, j), v in np.ndenumerate(x):
        s += v * i
    return s


@cases(X)
def nditer(x):
    s = 0.0
    for v in np.nditer(x):
        s += v
    return s


@cases(X)
def nditer_write(x):
    y = x.copy()
    with np.nditer(y, op_flags=["readwrite"]) as it:
        for v in it:
            v[...] = 2 * v
    return y


@cases(X)
def flat_iter(x):
    s = 0.0
    for v in x.flat:
        s += v
    x.flat[3] = 7
    return s


@both()
def return_in_with(x):
    with np.errstate(all="ignore"):
        if x[0] > 0:
            return x
        return x * 2


@both()
def return_in_with_then(x):
    with np.errstate(divide="ignore"):
        if x[0] > 0:
            return x
    return x * 2


@both()
def return_in_try(x):
    try:
        if x[0] > 0:
            return x
    finally:
        y = x * 2
    return y


@both()
def return_in_loop_in_with(x):
    with np.errstate(divide="ignore"):
        for v in x:
            if v > 0.2:
                return v
    return x[0]


@both()
def break_in_with_in_loop(x):
    s = 0.0
    for v in x:
        with np.errstate(divide="ignore"):
            if v > 0.7:
                break
            s += v
    return s


@both()
def suppress_warnings(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = np.sqrt(x)
    return y


class Scaled:
    def __init__(self, k):
        self.k = k

    def __enter__(self):
        self.old = self.k
        self.k = self.k * 2
        return self

    def __exit__(self, *a):
        self.k = self.old


@both()
def user_context(x):
    s = Scaled(2.0)
    with s as t:
        y = x * t.k
    return y, s.k


@contextlib.contextmanager
def scaled(k):
    yield k * 2


@both()
def user_contextmanager(x):
    with scaled(x) as t:
        y = x * t
    return y


@both()
def nullctx(x):
    with contextlib.nullcontext(x) as t, contextlib.suppress(KeyError):
        y = x * t
    return y


@both()
def try_except_safe(x):
    try:
        y = x * 2
    except ValueError:
        y = x
    else:
        y = y + 1
    return y


@both()
def try_index_known(x):
    try:
        y = x[3]
    except IndexError:
        y = x[0]
    return y


@both()
def try_key(x):
    d = {"a": x}
    try:
        y = d["b"]
    except KeyError:
        y = x * 3
    return y


@both()
def try_static_raise(x):
    try:
        raise ValueError("x")
    except ValueError as e:
        y = x * len(str(e))
    return y


@both(staged=False)
def try_shape_mismatch(x):
    try:
        y = x + np.ones(3)
    except ValueError:
        y = x
    return y


@both()
def try_int_conv(x):
    try:
        n = int("12")
    except ValueError:
        n = 0
    return x * n


@both()
def raise_fstring(x):
    if x[0] > 0:
        raise ValueError(f"bad value {x[0]} at {x[1]:.3f}")
    return x


@both()
def assert_fstring(x):
    assert x[0] < 0, f"bad value {x[0]}"
    return x


@both()
def raise_in_loop(x):
    s = 0.0
    for i in range(30):
        s += x[i % 7]
        if s > 3:
            raise ValueError("too large")
    return s


@both()
def assert_in_loop(x):
    s = 0.0
    for i in range(30):
        s += x[i % 7]
        assert s < 3, "too large"
    return s


@both()
def print_in_loop(x):
    s = 0.0
    for i in range(30):
        s += x[i % 7]
        if i % 10 == 0:
            print(i, s)
    return s


@both()
def print_fstring(x):
    print(f"sum {x.sum():.3f} {x[0]}")
    return x


class Boom(Exception):
    def __init__(self, v):
        super().__init__(v)
        self.v = v


@both()
def raise_from(x):
    if x[0] > 0:
        raise ValueError("a") from None
    return x


@both()
def write_then_raise(x):
    y = x.copy()
    if x[0] > 0:
        y[0] = 3
        raise ValueError("a")
    return y


@cases(np.float64(5.0), staged=False)
@cases(np.float64(0.5), staged=False)
def traced_recursion(a):
    def halve(v):
        return v if v < 1 else halve(v / 2)

    return halve(a)


@cases(np.array(6), staged=False)
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
def nonlocal_in_loop(x):
    n = 0.0

    def add(v):
        nonlocal n
        n = n + v

    for i in range(20):
        add(x[i % 7])
    return x + n


class Net:
    def __init__(self):
        self.w = np.ones(3)
        self.b = 0.5

    def __call__(self, x):
        return x[:3] * self.w + self.b

    def step(self, x):
        self.w = self.w + x[:3]
        return self

    def inplace(self, x):
        self.w += x[:3]


@both(Net())
def net_read(x, net):
    return net(x)


@both(Net())
def net_write(x, net):
    net.w = net.w * 2
    return net(x)


@both(Net())
def net_inplace(x, net):
    net.inplace(x)
    return net.w.sum()


@both()
def net_inside(x):
    net = Net()
    net.step(x)
    net.inplace(x)
    return net(x)


@both()
def net_inside_branch(x):
    net = Net()
    if x[0] > 0:
        net.w = net.w + 1
    return net(x)


@both()
def net_inside_loop(x):
    net = Net()
    for i in range(30):
        net.step(x)
    return net(x)


@both()
def net_inside_loop_inplace(x):
    net = Net()
    for i in range(30):
        net.inplace(x)
    return net(x)


@dataclasses.dataclass
class P:
    x: np.ndarray
    v: np.ndarray
    n: int = 0


@both()
def dc_fields(x):
    p = P(x, x * 0)
    p.x = p.x + 1
    p.n += 1
    return p


@cases(P(V.copy(), W.copy()))
def dc_arg(p):
    return p.x + p.v


@cases(P(V.copy(), W.copy()))
def dc_arg_write(p):
    p.x = p.x + p.v
    p.n += 1
    return p.x


@cases(P(V.copy(), W.copy()))
def dc_arg_replace(p):
    return dataclasses.replace(p, x=p.x + 1)


@cases(P(V.copy(), W.copy()))
def dc_loop(p):
    for i in range(30):
        p = P(p.x + p.v * 0.1, p.v - p.x * 0.1, p.n + 1)
    return p


class NT(typing.NamedTuple):
    a: np.ndarray
    b: float = 1.0


@both(NT(V, 2.0), staged=False)
def nt(x, t):
    return t._replace(b=x[0]), NT(x), t.a + t[1], NT(*t)


@both()
def set_ops(x):
    s = {1, 2} | {3}
    t = {k * 2 for k in s}
    return x * len(t), sorted(t)


@both()
def dict_ops(x):
    d = dict(a=x, b=x * 2)
    e = {**d, "c": x[0]}
    for k, v in e.items():
        d[k] = v * 2
    del d["a"]
    return d, list(d.keys()), d.get("zz"), d.get("b"), d.pop("c")


@both()
def gen_static(x):
    def g(n):
        for i in range(n):
            yield i

    return sum(x * i for i in g(3))


@both()
def gen_traced(x):
    def g():
        yield x
        yield x * 2

    return sum(g())


@both()
def gen_next(x):
    def g():
        i = 0
        while True:
            yield i
            i += 1

    it = g()
    return x * next(it) + next(it)


@both(staged=False)
def globals_write(x):
    global COUNTER
    COUNTER = 3
    return x * COUNTER


COUNTER = 0


@both()
def walrus_comp(x):
    return [y for v in (1, 2, 3) if (y := v * 2) > 2], y


@both()
def walrus_traced(x):
    if (s := x.sum()) > 0 and (t := s * 2) > 1:
        return t
    return s


@both()
def walrus_while(x):
    s = x.sum()
    while (s := s * 0.5) > 0.1:
        pass
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
def match_class(x):
    p = P(x, x * 2, 3)
    match p:
        case P(x=a, n=3):
            return a
        case P(v=b):
            return b


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


@both()
def del_things(x):
    d = {"a": 1, "b": x}
    del d["a"]
    l = [1, 2, x]
    del l[0]
    n = Net()
    del n.b
    return d, l, hasattr(n, "b")


@both()
def aug_attr(x):
    n = Net()
    n.b += 2
    n.w *= 3
    d = {"a": [1.0, x]}
    d["a"][0] += 5
    d["a"][1] += 5
    return n.w, n.b, d, x


@functools.lru_cache
def cached(n):
    return n * 2


@both()
def lru(x):
    return x * cached(3)


@both()
def itert(x):
    s = 0
    for a, b in itertools.product([1, 2], [3, 4]):
        s += a * b
    for a, b in itertools.combinations(x[:3], 2):
        s = s + a * b
    for i in itertools.islice(itertools.count(), 3):
        s = s + i
    for a, b in itertools.pairwise(x):
        s = s + a * b
    acc = list(itertools.accumulate(x))
    return s, acc


@both()
def oper(x):
    return (
        operator.itemgetter(1)(x),
        operator.attrgetter("T")(x),
        operator.mul(x, 2),
        operator.neg(x),
        operator.methodcaller("sum")(x),
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
def strings(x):
    s = "a,b".split(",") + ["c".upper()]
    return {k: x for k in s}, "%d" % x.shape[0], "-".join(s), s[0].startswith("a")


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


@both()
def lambda_default(x):
    fs = [lambda v, k=k: v * k for k in range(3)]
    return [f(x) for f in fs], (lambda *a, **k: a[0] + k["z"])(x, z=1)


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


@cases(np.array([2**62, 3]), staged=False)
def overflow_pow(x):
    return 2 ** int(x[1]), int(x[1]) ** 2


@both()
def local_import(x):
    import math

    return x * math.pi


@both()
def class_inside(x):
    class A:
        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v * 2

    return A(x).get()


class Base:
    def f(self, x):
        return x + 1


class Derived(Base):
    def f(self, x):
        return super().f(x) * 2

    @property
    def p(self):
        return 3

    @staticmethod
    def s(x):
        return x

    @classmethod
    def c(cls, x):
        return x


@both()
def supers(x):
    d = Derived()
    return d.f(x), d.p, d.s(x), Derived.c(x)


class Vec:
    def __init__(self, *v):
        self.v = v

    def __iter__(self):
        return iter(self.v)

    def __len__(self):
        return len(self.v)

    def __contains__(self, z):
        return z in (1, 2)

    def __getitem__(self, i):
        return self.v[i]

    def __bool__(self):
        return True

    def __eq__(self, o):
        return True

    __hash__ = None


@both()
def user_iter(x):
    v = Vec(x, x * 2)
    s = 0
    for a in v:
        s = s + a
    return s, [a for a in v], 1 in v, len(v), v[0], list(v), sum(v), (1 if v else 2)


@both()
def numbers_list(x):
    ws = [1.0, 2.0, 3.0]
    return x[0] / ws[1], 1.0 / ws[0], sum(ws), [w * 2 for w in ws]


@cases([1.0, 2.0, 3.0])
def list_arg(ws):
    return ws[0] / ws[1], sum(ws), [w * 2 for w in ws], max(ws), np.array(ws), len(ws)


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


@cases([V.copy(), W.copy()])
def list_arg_inplace(l):
    for a in l:
        a -= 1
    l[0] += 3
    return l[0].sum()


@both()
def append_while(x):
    out = []
    v = x[-1]
    i = 0
    while i < 25:
        v = v * 0.5
        out.append(v)
        i += 1
    return np.array(out)


@both
def append_traced_while(x):
    out = []
    v = abs(x[-1])
    while v > 0.1:
        v = v * 0.5
        out.append(v)
    return np.array(out)


@both(staged=False)
def append_cond(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v)
    return out


@cases(np.array(3), staged=False)
def traced_range_append(n):
    out = []
    for i in range(n):
        out.append(i * 2)
    return out


@both()
def while_else(x):
    i = 0
    while i < 30:
        if x[i % 7] > 0.9:
            r = i
            break
        i += 1
    else:
        r = -1
    return r


@both()
def float_sum_py(x):
    return sum([float(v) for v in x])


@both(staged=False)
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


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@both()
def enums(x):
    c = Color.RED
    return x * c.value if c is Color.RED else x


@both()
def defaultdict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    c = collections.Counter("aab")
    q = collections.deque([1, 2])
    q.append(3)
    return d["a"][0] * c["a"] * q[2]


@both()
def int_cond_sum(x):
    n = 0
    for v in x:
        if v > 0:
            n += 1
    return n, n / len(x)


@cases(LONG)
def int_float_loop(x):
    s = 0
    for i in range(40):
        s = s + x[i]
    return s


@cases(LONG)
def int_float_loop_py(x):
    s = 0
    for i in range(40):
        s = s + float(x[i])
    return s


@cases(LONG)
def shape_change_loop(x):
    y = x[:2]
    for i in range(20):
        y = np.concatenate([y, x[i : i + 1]])
    return y


@both()
def swap(x):
    a, b = x[0], x[1]
    if a > b:
        a, b = b, a
    x[0], x[1] = x[1], x[0]
    return a, b


@both(staged=False)
def try_finally_loop(x):
    s = 0.0
    for v in x:
        try:
            if v > 0.5:
                continue
            s += v
        finally:
            s += 0.1
    return s


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


@cases({"w": V.copy()})
@cases({"w": -V})
def cond(d):
    if d["w"][0] > 0:
        d["w"] = d["w"] * 2
        d["flag"] = 1
    else:
        d["w"] = d["w"] * 3
        d["flag"] = 0
    for i in range(30):
        d["w"] = d["w"] * 0.99
    return d["w"].sum()


@both(Net())
def attr(x, net):
    net.w = net.w * 2 + x[:3]
    net.last = x.sum()
    net.b = 0.25
    return net(x)


@both(Net())
def attr_cond(x, net):
    if x[0] > 0:
        net.w = net.w * 2 + x[:3]
    for k in range(30):
        net.w = net.w * 0.5
    return net(x)


@both(Net(), staged=False)
def attr_counter(x, net):
    net.b = net.b + 1
    return net(x)


@both(Net())
def attr_fail(x, net):
    net.w = net.w * 2
    net.hist = [x]
    if x[0] > 0:
        raise ValueError("a")
    return net(x)


@cases(P(V.copy(), W.copy()))
def dc(p):
    p.x = p.x + p.v
    p.n = 7
    return p


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


class Model:
    def __init__(self):
        self.params = {"w": np.ones(3), "b": np.zeros(1)}
        self.steps = 0

    def fit(self, x):
        for k in self.params:
            self.params[k] = self.params[k] - 0.1 * x[0]
        return self


@both(Model(), staged=False)
def model(x, m):
    m.fit(x)
    return m.params["w"] * 2
