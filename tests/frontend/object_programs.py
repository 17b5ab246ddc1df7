"""Random programs that bind, change and swap what objects hold, in branches and loops: arrays in attributes, lists,
dicts and tuples, some under several names."""

import numpy as np

import futurex as fx

HEAD = """
import numpy as np


class Model:
    def __init__(self):
        self.a, self.b = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])
        self.d = self.e = {"p": np.ones(3), "q": np.zeros(3)}
        self.l = [np.arange(3.0), np.ones(3)]
        self.t = np.full(3, 2.0), self.l
        self.n, self.s = 0, 0.5


def made():
    m = Model()
    m.o = Model()
    m.o.a, m.o.d = np.full(3, 3.0), {"p": m.a, "q": np.ones(3)}
    return m


def program(m, x):
    v = x
"""
PLACES = [
    "m.a", "m.b", 'm.d["p"]', 'm.d["q"]', "m.l[0]", "m.l[1]", 'm.e["p"]', "m.o.a", 'm.o.d["p"]', 'm.o.d["q"]',
]  # fmt: skip
READ = [*PLACES, "m.t[0]", "m.t[1][0]", "x", "v"]
DICTS = ["m.d", "m.e", "m.o.d"]
SWAPS = ["m.d, m.e = m.e, m.d", "m.l[0], m.l[1] = m.l[1], m.l[0]", "m.a, m.b = m.b, m.a", "m.l.reverse()"]
RESULTS = ["v", "m.a", "m.d", "m.l, m.a", "m.t", "m.s", "x + m.o.a"]


class ObjectWriter:
    """``draw(n)`` is a number below n."""

    def __init__(self, draw):
        self.draw = draw

    def one(self, values):
        return values[self.draw(len(values))]

    def array(self):
        a, b = self.one(READ), self.one(READ)
        return self.one([f"{a} + {b}", f"np.maximum({a}, {b})", f"{a} - m.s", f"{a}[::-1] + x", f"np.tanh({a})"])

    def test(self):
        a, b = self.one(PLACES), self.one(PLACES)
        return self.one(["x.sum() > 0", f"{a}[0] > 1", f"{a}.sum() > {b}.sum()", "m.n % 2 == 0", "m.s > 0.4"])

    def change(self):
        place, read, kind = self.one(PLACES), self.one(READ), self.draw(14)
        if kind < 3:
            return f"{place} = {self.array()}"
        if kind < 6:
            return f"{place} = {read}{self.one(['', '', '[::-1]'])}"
        if kind == 6:
            return f"{place} {self.one(['+=', '*=', '-='])} {self.one(['x', '0.5', read])}"
        if kind == 7:
            return f"{place}[1:] = {self.one(['0.0', 'x[1:]', read + '[:2]'])}"
        if kind == 8:
            return f"v = {read}"
        if kind == 9:
            return f"{self.one(DICTS)} = {self.one([*DICTS, f'dict(p={self.array()}, q={read})'])}"
        if kind == 10:
            return self.one([f"m.l = [{self.array()}, {read}]", f"m.t = {read}, m.l"])
        if kind == 11:
            return self.one(SWAPS)
        if kind == 12:
            return self.one(["m.n += 1", "m.s = m.s * 0.9", "m.s = float(x[0])", "m.s = m.s + m.n"])
        return f"{self.one(DICTS)}.update(p={self.array()})"

    def statements(self, depth):
        return [line for _ in range(1 + self.draw(2)) for line in self.statement(depth)]

    def statement(self, depth):
        kind = self.draw(8) if depth < 2 else 0
        if kind < 5:
            return [self.change()]
        body = ["    " + line for line in self.statements(depth + 1)]
        if kind == 5:
            return [f"if {self.test()}:", *body]
        if kind == 6:
            return [f"if {self.test()}:", *body, "else:", *("    " + line for line in self.statements(depth + 1))]
        if self.draw(2):
            return [f"for i{depth} in range({self.one([2, 6, 12])}):", *body]
        return [f"k{depth} = 0", f"while k{depth} < 9 and x[0] + k{depth} < 7:", *body, f"    k{depth} += 1"]

    def program(self, length):
        lines = [line for _ in range(length) for line in self.statement(0)]
        return HEAD + "".join(f"    {line}\n" for line in [*lines, f"return {self.one(RESULTS)}"])


def held(*things):
    """All that things hold, with bits, and which of it is one object."""
    seen, found = {}, []

    def look(value, place):
        value = value.result() if isinstance(value, fx.Array) else value
        if isinstance(value, np.ndarray | list | dict) or hasattr(value, "__dict__"):
            if id(value) in seen:
                found.append((place, "is", seen[id(value)][0]))
                return
            seen[id(value)] = place, value
        if isinstance(value, np.ndarray | np.generic):
            found.append((place, type(value), value.dtype, value.shape, value.tobytes()))
        elif isinstance(value, dict | list | tuple):
            found.append((place, type(value), list(value) if isinstance(value, dict) else len(value)))
            for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
                look(entry, f"{place}[{key!r}]")
        elif hasattr(value, "__dict__"):
            for name, entry in sorted(vars(value).items()):
                look(entry, f"{place}.{name}")
        else:
            found.append((place, type(value), repr(value)))

    for number, thing in enumerate(things):
        look(thing, str(number))
    return found
