# ruff: noqa: B007, C416, E741
"""Objects of the user's classes in staged functions: attributes, methods, dataclasses, named tuples."""

import dataclasses
import enum
import typing
from functools import partial

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
W = np.abs(V) + 0.5
both = partial(cases.signs, V)


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


class Boom(Exception):
    def __init__(self, v):
        super().__init__(v)
        self.v = v


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


@both(NT(V, 2.0))
def nt(x, t):
    return t._replace(b=x[0]), NT(x), t.a + t[1], NT(*t)


@both()
def match_class(x):
    p = P(x, x * 2, 3)
    match p:
        case P(x=a, n=3):
            return a
        case P(v=b):
            return b


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


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@both()
def enums(x):
    c = Color.RED
    return x * c.value if c is Color.RED else x


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


@both(Net())
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


class Model:
    def __init__(self):
        self.params = {"w": np.ones(3), "b": np.zeros(1)}
        self.steps = 0

    def fit(self, x):
        for k in self.params:
            self.params[k] = self.params[k] - 0.1 * x[0]
        return self


@both(Model())
def model(x, m):
    m.fit(x)
    return m.params["w"] * 2


class Held:
    def __init__(self, total=0.5):
        self.total = total
        self.parts = np.zeros(3)


@dataclasses.dataclass
class Filled:
    """Its factories make lists, arrays and objects, one of which no argument sets."""

    start: np.ndarray
    items: list = dataclasses.field(default_factory=list)
    zeros: np.ndarray = dataclasses.field(default_factory=partial(np.zeros, 3))
    ones: np.ndarray = dataclasses.field(default_factory=lambda: np.ones(3))
    held: Held = dataclasses.field(default_factory=Held)
    seen: dict = dataclasses.field(default_factory=dict, init=False)


@dataclasses.dataclass
class Prepared(Filled):
    scale: dataclasses.InitVar[float] = 2.0
    size: int = dataclasses.field(init=False)

    def __post_init__(self, scale):
        self.size = len(self.start)
        self.zeros += self.start[:3] * scale
        self.rest = self.start.sum()


@dataclasses.dataclass(frozen=True)
class Unit:
    v: np.ndarray
    norm: float = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "norm", np.sqrt((self.v**2).sum()))


@cases.signs(V)
def dataclasses_with_factories(x):
    out = []
    for _ in range(2):
        f = Filled(x.copy())
        f.items.append(x[0])
        f.zeros += x[:3]
        f.ones[0] = x[1]
        f.held.total += x.sum()
        f.held.parts[1:] += 1
        f.seen["a"] = x
        out.append((len(f.items), f.zeros, f.ones, f.held.total, f.held.parts, list(f.seen)))
    return out, Filled(x, [1.0], ones=x[:3]).zeros


@cases.signs(V)
def dataclasses_that_prepare_themselves(x):
    first, second = Prepared(x), Prepared(x, scale=-1.0)
    third = dataclasses.replace(second, start=x[:4], scale=0.5) if x[0] > 0 else second
    return first.zeros, first.size, second.zeros, second.rest, third.size, third.zeros, Unit(x).norm


@cases(V)
def dataclass_that_is_given_too_little(x):
    return Prepared(scale=x[0]).size
