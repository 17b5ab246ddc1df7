"""Classes that a function defines for itself: their methods are staged as its own statements are."""

import warnings
from collections import deque

import numpy as np
import pytest
from compare import Cases, check, outcome

import futurex as fx

cases = Cases()
X = np.array([0.4, -1.2, 0.7, 2.0, -0.3, 1.1, 0.9, -0.8])


class Base:
    def __init__(self, rate):
        self.rate = rate

    def step(self, value):
        return self.rate * value


@cases.signs(X)
def changed_in_a_branch(x):
    class Counter:
        def __init__(self):
            self.count = 0.0

        def add(self, value):
            self.count += value

    counter = Counter()
    if x[0] > 0:
        counter.add(1.0)
    else:
        counter.add(x[1])
        counter.add(x[2])
    return counter.count


@cases.signs(X)
@cases(np.linspace(-1, 2, 300))
def changed_in_rounds(x):
    class Mean:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def __call__(self, value):
            if value > 0:
                self.total += value
                self.count += 1
            return self.total / max(self.count, 1)

    mean = Mean()
    return [mean(value) for value in x], mean.count


@cases.signs(X)
def a_branch_and_a_return_inside(x):
    class Clip:
        def __init__(self, low, high):
            self.low, self.high, self.hits = low, high, 0

        def __call__(self, value):
            if value < self.low:
                self.hits += 1
                return self.low
            if value > self.high:
                self.hits += 1
                return self.high
            return value

    clip = Clip(-0.5, 1.0)
    y = np.array([clip(value) for value in x])
    return y, clip.hits


@cases.signs(X)
def it_writes_into_arrays(x):
    class Writer:
        def __init__(self, size):
            self.out = np.zeros(size)

        def put(self, place, value):
            self.out[place] += value

    writer = Writer(3)
    for i in range(len(x)):
        if x[i] > 0:
            writer.put(i % 3, x[i])
    y = x * 2
    writer.out, kept = y, writer.out
    writer.put(0, 5.0)
    return writer.out, kept, y


@cases.signs(X)
def it_derives_from_another_one(x):
    class Momentum(Base):
        def __init__(self, rate, beta):
            super().__init__(rate)
            self.beta, self.speed = beta, 0.0

        def step(self, value):
            self.speed = self.beta * self.speed + super().step(value)
            return self.speed

    class Nesterov(Momentum):
        def step(self, value):
            found = super().step(value)
            return self.beta * found + value if found > 0 else found

    one, two = Momentum(0.1, 0.9), Nesterov(0.2, 0.5)
    total = 0.0
    for value in x:
        total += one.step(value) * two.step(value)
    return total, one.speed, two.speed


@cases.signs(X)
def properties_and_kinds_of_methods(x):
    class Angle:
        limit = 2.0

        def __init__(self, value):
            self._value = value

        @property
        def value(self):
            return self._value if self._value < self.limit else self.limit

        @value.setter
        def value(self, new):
            if new > 0:
                self._value = new

        @staticmethod
        def half(value):
            return value / 2

        @classmethod
        def of(cls, value):
            return cls(cls.half(value))

    a, b = Angle(x[0]), Angle.of(x[3])
    a.value = x[1]
    b.value = x[2] * 3
    return a.value, b.value, a._value


@cases.signs(X)
def private_names_and_slots(x):
    class Hidden:
        __slots__ = ("__v", "w")

        def __init__(self, v):
            self.__v = v
            self.w = 1

        def __grow(self, by):
            if by > 0:
                self.__v = self.__v + by
                self.w += 1

        def grow(self, by):
            self.__grow(by)
            return self.__v

    hidden = Hidden(x[0])
    return [hidden.grow(value) for value in x], hidden.w


@cases.signs(X)
def variables_of_the_function(x):
    total, best = 0.0, -1e9

    class Sink:
        def take(self, value):
            nonlocal total, best
            if value > best:
                best = value
            total += value * x[0]

    sink = Sink()
    for value in x:
        if value < 1:
            sink.take(value)
    return total, best


@cases.signs(X)
def operators(x):
    class Dual:
        def __init__(self, value, slope):
            self.value, self.slope = value, slope

        def __add__(self, other):
            return Dual(self.value + other.value, self.slope + other.slope)

        def __mul__(self, other):
            return Dual(self.value * other.value, self.value * other.slope + self.slope * other.value)

        def __neg__(self):
            return Dual(-self.value, -self.slope)

    product = Dual(1.0, 0.0)
    for value in x:
        factor = Dual(value, 1.0)
        product = product * factor + (-factor)
    return product.value, product.slope


@cases.signs(X)
def it_holds_lists_and_queues(x):
    class Window:
        def __init__(self, size):
            self.last, self.all = deque(maxlen=size), []

        def push(self, value):
            self.last.append(value)
            if value > 0:
                self.all.append(value)
            return sum(self.last) / len(self.last)

    long, short = Window(4), Window(2)
    found = [long.push(value) - short.push(value) for value in x]
    return found, long.all, list(short.last)


@cases.signs(X)
def a_generator_and_a_length(x):
    class Bag:
        def __init__(self, values):
            self.values = values

        def __len__(self):
            return len(self.values)

        def __getitem__(self, k):
            return self.values[k]

        def pairs(self):
            for k in range(len(self.values) - 1):
                yield self.values[k], self.values[k + 1]

    bag = Bag(x)
    return sum(a * b for a, b in bag.pairs()), len(bag), bag[2]


@cases.signs(X)
def made_in_every_round(x):
    total = 0.0
    for k in range(len(x)):
        class Cell:
            def __init__(self, value):
                self.value = value

            def scaled(self):
                return self.value * k  # noqa: B023

        cell = Cell(x[k])
        if x[k] > 0:
            cell.value = 1.0
        total += cell.scaled()
    return total


@cases.signs(X, staged=False)
def what_all_of_a_class_have(x):

    class C:
        count = 0

        def go(self, v):
            if v > 0:
                C.count += 1
            return C.count
    a, b = (C(), C())
    for v in x:
        a.go(v)
    if x[0] > 0:
        b.go(1.0)
    return (C.count, a.count)


@cases.signs(X)
def a_context_manager(x):

    class Timer:

        def __init__(self):
            self.n = 0
            self.log = []

        def __enter__(self):
            self.n += 1
            return self

        def __exit__(self, *a):
            self.log.append(self.n)
            return False
    t = Timer()
    s = 0.0
    for v in x:
        if v > 0:
            with t as u:
                s += v * u.n
    return (s, t.n, t.log)


@cases.signs(X)
def an_iterator(x):

    class Walk:

        def __init__(self, n):
            self.n = n
            self.i = 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.i >= self.n:
                raise StopIteration
            self.i += 1
            return self.i
    s = 0.0
    for i in Walk(4):
        s += x[i] * i
    return (s, list(Walk(3)))


@cases.signs(X)
def a_solver_that_counts(x):

    class Solver:

        def __init__(self, tol):
            self.tol = tol
            self.it = 0

        def solve(self, a):
            g = 1.0
            while abs(g * g - a) > self.tol:
                g = 0.5 * (g + a / g)
                self.it += 1
                if self.it > 200:
                    break
            return g
    s = Solver(1e-09)
    return ([s.solve(abs(v)) for v in x], s.it)


@cases.signs(X)
def one_of_two_objects(x):

    class Stat:
        __slots__ = ('m', 'n', 's')

        def __init__(self):
            self.n, self.m, self.s = (0, 0.0, 0.0)

        def push(self, v):
            self.n += 1
            d = v - self.m
            self.m += d / self.n
            self.s += d * (v - self.m)

        @property
        def var(self):
            return self.s / (self.n - 1) if self.n > 1 else 0.0
    p, q = (Stat(), Stat())
    for v in x:
        (p if v > 0 else q).push(v)
    return (p.var, q.var, p.n, q.n)


@cases.signs(X)
def a_linked_list(x):

    class Node:

        def __init__(self, v, nxt=None):
            self.v, self.nxt = (v, nxt)
    head = None
    for v in x:
        head = Node(v, head)
    s, k = (0.0, 0)
    while head is not None:
        s += head.v * k
        k += 1
        head = head.nxt
    return s


@cases.signs(X, staged=False)
def a_tree_of_values(x):

    class T:

        def __init__(self, v):
            self.v, self.l, self.r = (v, None, None)

        def insert(self, v):
            if v < self.v:
                if self.l is None:
                    self.l = T(v)
                else:
                    self.l.insert(v)
            elif self.r is None:
                self.r = T(v)
            else:
                self.r.insert(v)

        def walk(self):
            if self.l:
                yield from self.l.walk()
            yield self.v
            if self.r:
                yield from self.r.walk()
    t = T(x[0])
    for v in x[1:]:
        t.insert(v)
    return list(t.walk())


@cases.signs(X)
def objects_that_know_each_other(x):
    ops = {}

    class Op:

        def __init__(self, name):
            self.name = name
            ops[name] = self

        def __call__(self, v):
            return v * len(self.name)
    Op('ab')
    Op('abc')
    s = 0.0
    for op in ops.values():
        if x[0] > 0:
            s += op(x[1])
        else:
            s -= op(x[2])
    return s


@cases.signs(X)
def names_that_swap(x):

    class C:

        def __init__(self, v):
            self.v = v
    a, b = (C(x[0]), C(x[1]))
    if x[2] > 0:
        a, b = (b, a)
    a.v += 10.0
    return (a.v, b.v)


@cases.signs(X)
def kinds_of_arguments(x):

    class C:

        def go(self, v, k=2, *rest, flag=True, **kw):
            if flag and v > 0:
                return v * k + len(rest) + kw.get('z', 0.0)
            return -v
    c = C()
    return (c.go(x[0]), c.go(x[1], 3, 4, 5), c.go(x[2], flag=False), c.go(x[3], z=1.5))


@cases.signs(X)
def an_exception_of_its_own(x):

    class E(Exception):

        def __init__(self, v):
            super().__init__(f'bad {v:.2f}')
            self.v = v
    s = 0.0
    for v in x:
        try:
            if v > 1:
                raise E(v)
            s += v
        except E as e:
            s += e.v * 10
    return s


@cases.signs(X)
def it_reads_a_variable(x):
    k = 0.0

    class C:

        def get(self):
            return k
    c = C()
    for v in x:
        if v > 0:
            k = v
    return c.get()


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_the_same_as_plain(case):
    check(case.function, *case.args, staged=case.staged)


def test_an_error_is_raised_at_its_line_in_a_method():
    @fx.futurize
    def f(x):
        class Layer:
            def apply(self, value):
                return value @ np.ones((3, 3))  # here

        return Layer().apply(x)

    with pytest.raises(ValueError, match="8") as info:
        f(X)
    lines = [entry.lineno for entry in info.traceback if str(entry.path) == __file__]
    with open(__file__) as file:
        assert "# here" in file.read().splitlines()[lines[-1]]


def test_derivatives():
    def f(x):
        class Filter:
            def __init__(self, pole):
                self.state, self.pole = 0.0, pole

            def __call__(self, value):
                self.state = self.pole * self.state + (value if value > 0 else 0.1 * value)
                return self.state

        smooth = Filter(0.7)
        total = 0.0
        for value in x:
            total += smooth(value) ** 2
        return total

    steps = 1e-6 * np.eye(len(X))
    expected = [(f(X + step) - f(X - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(np.asarray(fx.grad(f)(X)), expected, rtol=1e-6)


class Fixed:
    @property
    def limit(self):
        return 3


FIXED = Fixed()


@pytest.mark.parametrize("local", [True, False])
def test_what_cannot_be_set_is_not_set_to_what_it_is(local):
    def f(x):
        class Own:
            @property
            def limit(self):
                return 3

        holder = Own() if local else FIXED
        if x[0] > -9:
            holder.limit = 3
        return x[0]

    futurized = fx.futurize(f)
    for _ in range(2):
        with pytest.raises(AttributeError, match="limit"):
            futurized(X)


def test_a_coroutine_is_not_made_by_the_trace():
    def f(x):
        class Reader:
            async def read(self):
                return x[0]

        async def other():
            return x[1]

        first, second = Reader().read(), other()
        first.close()
        second.close()
        return x[2]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fx.futurize(f)(X) == X[2]


def test_names_are_those_of_the_source():
    def f(x):
        class Bad(ValueError):
            def where(self):
                return self.where.__qualname__

        def inner(v):
            for _ in range(3):
                def deeper():
                    return v
            return deeper.__qualname__, (lambda: v).__qualname__

        if x[0] > 0:
            x = x + 1
        return Bad.__qualname__, Bad("x").where(), inner.__qualname__, inner(x), repr(Bad)

    assert fx.futurize(f)(X) == f(X)


class Answer:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return self.value > 0


class Length:
    def __init__(self, value):
        self.value = value

    def __len__(self):
        return self.value


@pytest.mark.parametrize("wrapped", [Answer, Length])
@pytest.mark.parametrize("make", [
    float, int, bool, np.float64, np.int64, np.bool_, lambda v: v, lambda v: int(v > 0), lambda v: np.int32(v),
    lambda v: float(v) if v < 1 else np.float64(v),
])  # fmt: skip
def test_what_python_takes_for_the_answer_of_an_object(wrapped, make):
    def f(x):
        holder = wrapped(make(x[0]))
        y = 1.0 if holder else x[1]
        return (y, not holder) if holder else y

    futurized = fx.futurize(f)
    for x in (X, -X, 4 * X, -4 * X, 0 * X):
        assert outcome(futurized, [x]) == outcome(f, [x]), x[0]
