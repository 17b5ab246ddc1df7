"""Random programs around views, writes, branches and loops on data, nearly all of which can be staged."""

HEAD = """import numpy as np

SCALE = np.array([1.0, -0.5, 2.0, 0.25])
OFFSET = 0.5


def helper(x, y):
    if x.sum() > y:
        x[1:3] = y
        return x * 2
    for j in range(20):
        x[j % 4] += y
    return x + OFFSET


def inputs(seed):
    # different seeds take different branches
    rng = np.random.default_rng(seed)
    a, b = np.round(rng.normal(size=4), 2), np.round(rng.normal(size=(3, 4)), 2)
    f = np.round(rng.normal(size=4), 2).astype(np.float32)
    return a, f, b, rng.integers(0, 6, 4), float(np.round(rng.normal(), 2)), 2
"""
FLOATS = ["0.5", "-1.5", "2.0", "0.0", "np.float32(0.1)", "np.float64(3.0)"]
INTS = ["1", "2", "3", "-1", "i0"]
FUNCTIONS = ["np.abs", "np.sqrt", "np.sin", "np.tanh", "np.square", "np.floor", "np.negative", "np.sign"]
BINARY = ["+", "-", "*", "+", "-", "*", "/", "//", "%"]
COMPARE = [">", "<", ">=", "<=", "==", "!="]


class Writer:
    """Writes one program. ``pick(n)`` gives a number below n, from a seed or from Hypothesis."""

    def __init__(self, pick):
        self.pick = pick
        self.lines = []
        self.names = {"v": ["a", "f"], "m": ["b"], "n": ["n"], "s": ["s"]}
        self.fresh = 0
        self.counters = []
        self.depth = 0

    def one(self, *choices):
        choice = choices[self.pick(len(choices))]
        return choice() if callable(choice) else choice

    def name(self, kind):
        return self.names[kind][self.pick(len(self.names[kind]))]

    def target(self, kind):
        """A name to bind: an old one or a new one."""
        if len(self.names[kind]) > 1 and self.pick(2):
            return self.name(kind)
        self.fresh += 1
        return f"{kind}{self.fresh}"

    def bind(self, kind, name):
        if self.depth == 0 and name not in self.names[kind]:
            self.names[kind].append(name)

    # -- expressions -------------------------------------------------------------------------------------------------

    def index(self):
        return self.one(
            lambda: str(self.pick(3)), lambda: f"{self.counters[-1]} % 3" if self.counters else "-1", "n[1] % 3"
        )

    def vector(self, deep=2):
        v = lambda: self.vector(deep - 1)  # noqa: E731
        if deep <= 0:
            return self.one(lambda: self.name("v"), lambda: f"{self.name('m')}[{self.index()}]", "SCALE")
        return self.one(
            lambda: self.name("v"), lambda: self.name("v"),
            lambda: f"({v()} {self.one(*BINARY[:7])} {v()})", lambda: f"({v()} {self.one(*BINARY[:6])} {self.scalar(1)})",
            lambda: f"{self.one(*FUNCTIONS)}({v()})", lambda: f"{self.matrix(deep - 1)}.sum(axis=0)",
            lambda: f"{v()}[::-1]", lambda: f"np.where({v()} {self.one(*COMPARE)} {self.scalar(0)}, {v()}, {self.scalar(0)})",
            lambda: f"{v()}.copy()", lambda: f"np.roll({v()}, {self.one('1', '-1', '2')})",
            lambda: f"{v()}.astype({self.one('np.float32', 'np.float64')})", lambda: f"np.zeros(4, {self.dtype()})",
            lambda: f"np.maximum({v()}, {self.scalar(0)})", lambda: f"{v()}[{self.name('n')} % 4]", lambda: f"np.cumsum({v()})",
            lambda: f"np.clip({v()}, -1.0, {self.one('1.0', '2')})", lambda: f"({v()} {self.one(*COMPARE)} {v()})",
            lambda: f"np.concatenate([{v()}[1:], {v()}[:1]])", lambda: f"{self.matrix(deep - 1)}.max(0)",
            lambda: f"({v()} ** {self.one('2', '0.5', '3', '2.0')})", lambda: f"({v()} @ {self.square()})",
            lambda: f"np.array([{self.scalar(1)}, {self.scalar(0)}, {self.scalar(0)}, 1.0])", lambda: f"(OFFSET - {v()})",
            lambda: f"helper({v()}.copy(), {self.scalar(0)})", lambda: f"{self.name('m')}.T[:, {self.index()}]",
        )  # fmt: skip

    def square(self):
        return self.one("np.outer(SCALE, a)", "np.eye(4)")

    def dtype(self):
        return self.one("np.float32", "np.float64", "float")

    def matrix(self, deep=2):
        m = lambda: self.matrix(deep - 1)  # noqa: E731
        if deep <= 0:
            return self.name("m")
        return self.one(
            lambda: self.name("m"), lambda: self.name("m"),
            lambda: f"({m()} {self.one(*BINARY[:6])} {m()})", lambda: f"({m()} {self.one(*BINARY[:6])} {self.vector(1)})",
            lambda: f"({m()} {self.one(*BINARY[:6])} {self.scalar(1)})", lambda: f"{m()}[::-1]", lambda: f"{m()}[:, ::-1]",
            lambda: f"np.outer({self.vector(1)}[:3], {self.vector(1)})", lambda: f"{m()}.copy()",
            lambda: f"{m()}.T.reshape(3, 4)", lambda: f"{m()}.reshape(-1).reshape(3, 4)",
            lambda: f"np.stack([{self.vector(1)}, {self.vector(1)}, {self.vector(0)}])", lambda: f"{m()}[[2, 0, 1]]",
            lambda: f"np.where({m()} > {self.scalar(0)}, {m()}, {self.vector(0)})", lambda: f"{m()}.ravel().reshape(3, 4)",
            lambda: f"({m()} - {m()}.mean(axis=1, keepdims=True))", lambda: f"{m()}[{self.name('n')}[:3] % 3]",
        )  # fmt: skip

    def scalar(self, deep=1):
        if deep <= 0:
            return self.one(lambda: self.one(*FLOATS), lambda: str(self.pick(4)), lambda: self.name("s"))
        s = lambda: self.scalar(deep - 1)  # noqa: E731
        return self.one(
            lambda: self.one(*FLOATS), lambda: self.name("s"), lambda: f"{self.vector(1)}[{self.index()}]",
            lambda: f"{self.vector(1)}.{self.one('sum', 'max', 'min', 'mean', 'prod')}()",
            lambda: f"{self.matrix(1)}[{self.index()}, {self.index()}]", lambda: f"float({self.vector(0)}[{self.index()}])",
            lambda: f"({s()} {self.one('+', '-', '*')} {self.number()})", lambda: f"abs({s()})", lambda: f"{self.name('n')}[{self.index()}]",
            lambda: f"{self.one('max', 'min')}({s()}, {s()})", lambda: f"({self.vector(0)} @ {self.vector(0)})",
            lambda: f"({s()} if {self.test(0)} else {s()})", lambda: f"{self.vector(0)}.argmax()", lambda: f"len({self.name('m')})",
            lambda: f"({self.vector(0)}[{self.index()}] ** 2)", lambda: f"float({self.name('m')}.sum())",
        )  # fmt: skip

    def number(self):
        """A factor or summand that keeps Python integers from growing without bound."""
        return self.one(lambda: self.one(*FLOATS), "1", "2.5", lambda: f"{self.name('v')}[{self.index()}]")

    def test(self, deep=1):
        simple = lambda: f"{self.scalar(1)} {self.one(*COMPARE)} {self.scalar(0)}"  # noqa: E731
        if deep <= 0:
            return simple()
        return self.one(
            simple, simple, lambda: f"{self.test(0)} and {self.test(0)}", lambda: f"{self.test(0)} or {self.test(0)}",
            lambda: f"not {self.test(0)}", lambda: f"0 < {self.scalar(1)} < 2", lambda: f"({self.vector(1)} > 0).any()",
            lambda: f"({self.vector(1)} < {self.scalar(0)}).all()",
        )  # fmt: skip

    # -- statements --------------------------------------------------------------------------------------------------

    def add(self, text):
        self.lines.append("    " * (self.depth + 1) + text)

    def block(self, count, in_loop=False):
        self.depth += 1
        for _ in range(count):
            self.statement(in_loop)
        self.depth -= 1

    def statement(self, in_loop=False):
        simple = (self.assign, self.write, self.write, self.augment, self.augment, self.alias)
        nested = (self.branch, self.loop, self.while_loop, self.rows) if self.depth < 3 else ()
        leave = (lambda: self.leave(in_loop),) if self.depth else ()
        self.one(*simple, *simple, *nested, *leave)

    def assign(self):
        kind = self.one("v", "v", "m", "s", "s")
        name = self.target(kind)
        self.add(f"{name} = {({'v': self.vector, 'm': self.matrix, 's': self.scalar}[kind])()}")
        self.bind(kind, name)

    def alias(self):
        kind = self.one("v", "m")
        name = self.target(kind)
        source = self.name(kind) if kind == "m" else self.one(
            lambda: self.name("v"), lambda: f"{self.name('m')}[{self.index()}]", lambda: f"{self.name('v')}[::-1]",
            lambda: f"{self.name('m')}.reshape(-1)[4:8]", lambda: f"{self.name('m')}.T[:, 1][::-1][::-1]",
        )  # fmt: skip
        self.add(f"{name} = {source}")
        self.bind(kind, name)

    def place(self):
        return self.one(
            lambda: (f"{self.name('v')}[{self.index()}]", "s"), lambda: (f"{self.name('v')}[1:3]", "s"),
            lambda: (f"{self.name('v')}[{self.name('v')} > {self.scalar(0)}]", "s"), lambda: (f"{self.name('m')}[{self.index()}]", "v"),
            lambda: (f"{self.name('m')}[:, {self.index()}]", "s"), lambda: (f"{self.name('m')}[{self.index()}, {self.index()}]", "s"),
            lambda: (f"{self.name('v')}[::-1]", "v"), lambda: (f"{self.name('v')}[:]", "v"), lambda: (f"{self.name('m')}.T[1:3]", "s"),
            lambda: (f"{self.name('v')}[[0, 2, 2]]", "s"), lambda: (f"{self.name('m')}[1:]", "v"), lambda: (f"{self.name('m')}[...]", "m"),
            lambda: (f"{self.name('v')}[{self.name('n')} % 4]", "s"), lambda: (f"{self.name('m')}[::-1]", "m"),
        )  # fmt: skip

    def value(self, kind):
        return {"v": self.vector, "m": self.matrix, "s": self.scalar}[kind](1)

    def write(self):
        place, kind = self.place()
        self.add(f"{place} = {self.value(self.one(kind, kind, 's'))}")

    def augment(self):
        operator = self.one("+=", "-=", "*=")
        place, kind = self.one(
            self.place, lambda: (self.name("v"), "v"), lambda: (self.name("m"), "m"), lambda: (self.name("s"), "s")
        )
        if "> " in place:
            place, kind = self.name("v"), "v"
        if place in self.names["s"]:
            self.add(f"{place} {self.one('+=', '-=')} {self.number()}")
        else:
            self.add(f"{place} {operator} {self.value(self.one(kind, 's'))}")

    def branch(self):
        self.add(f"if {self.test()}:")
        self.block(1 + self.pick(3))
        if self.pick(2):
            self.add("else:")
            self.block(1 + self.pick(2))

    def loop(self):
        counter = f"i{len(self.counters) + 1}"
        self.counters.append(counter)
        bound = self.one("3", "25", "20", "int(n[2]) % 5", "n[0]", "len(a)")
        self.add(f"for {counter} in range({bound}):")
        self.block(1 + self.pick(3), in_loop=True)
        self.counters.pop()
        if self.pick(6) == 0:
            self.add("else:")
            self.block(1)

    def while_loop(self):
        self.fresh += 1
        count = f"w{self.fresh}"
        self.add(f"{count} = 0")
        self.add(f"while ({self.test()}) and {count} < {self.one('4', '30')}:")
        self.depth += 1
        self.add(f"{count} += 1")
        self.depth -= 1
        self.block(1 + self.pick(2), in_loop=True)

    def rows(self):
        self.add(self.one(lambda: f"for r in {self.name('m')}:", lambda: f"for k, r in enumerate({self.name('m')}):"))
        self.depth += 1
        self.add(
            self.one(
                "r[0] += 1.5", "r *= 2", lambda: f"{self.name('v')}[:] = r", lambda: f"r[1:] = {self.name('v')}[:-1]"
            )
        )
        self.depth -= 1

    def leave(self, in_loop):
        if in_loop and self.pick(2):
            self.add(f"if {self.test()}:")
            self.depth += 1
            self.add(self.one("break", "continue"))
            self.depth -= 1
        elif self.pick(3) == 0:
            self.add(f"if {self.test()}:")
            self.depth += 1
            self.add(f"return {self.results()}")
            self.depth -= 1
        else:
            self.assign()

    def results(self):
        return f"({self.name('v')}, {self.name('m')}, {self.name('s')}, {self.name('v')})"

    def program(self, statements):
        for _ in range(statements):
            self.statement()
        self.add(f"return {self.results()}, {self.name('v')}.sum()")
        return HEAD + "\n\ndef program(a, f, b, n, s, i0):\n" + "\n".join(self.lines) + "\n"
