"""Random classes that read, change and bind anew numbers in the lists, dicts and tuples that they hold."""

import random

HEAD = """
import dataclasses

import numpy as np


@dataclasses.dataclass
class Meter:
    n: int = 0
    total: float = 0.0


SEEN = {"n": 1, "last": 0.5}


class Model:
    def __init__(self):
        self.w = np.array([1.0, 2.0, 3.0])
        self.d = {"n": 0, "v": 0.5, "f": np.float32(2), "on": False, "best": None, "w": np.ones(3), "in": {"k": 1.5}}
        self.e = self.d
        self.l = [1, 0.25, [3, np.float64(1.5)]]
        self.t = 2, 0.75, {"n": 4}
        self.m = {"meter": Meter(), "shared": self.d["in"]}
        self.seen = SEEN


def made():
    SEEN.update(n=1, last=0.5)
    return Model()


def program(m, x):
    v = x
"""
PLACES = [
    'm.d["n"]', 'm.d["v"]', 'm.d["f"]', 'm.e["n"]', 'm.e["in"]["k"]', "m.l[0]", "m.l[1]", "m.l[2][0]", "m.l[2][1]",
    'm.t[2]["n"]', 'm.m["shared"]["k"]', 'SEEN["n"]', 'm.seen["last"]',
]  # fmt: skip
READ = [*PLACES, 'm.m["meter"].n', 'm.m["meter"].total', "m.t[0]", "m.t[1]", "2", "0.5"]
RESULTS = [
    "v", "m.d", "m.l, v", "m.t", "SEEN", "v * m.t[1]", "m.m, m.e", '{"n": m.d["n"], "v": v}', "m.e is m.d",
    'm.m["shared"] is m.d["in"]', 'type(m.d["n"]).__name__', "sum(m.l[2])", "len(m.l)", 'm.d.get("v")',
]  # fmt: skip
SCALARS = ["float(x.sum())", "x.max()", "len(x)", "int(x[0])", "np.float32(0.5)", "1", "0.0", "True", "None"]
MORE = [
    'm.d["on"] = not m.d["on"]',
    'm.d["best"] = float(x.sum())',
    'm.d["best"] = x.min() if m.d["best"] is None else min(m.d["best"], x.min())',
    "m.t = m.t[0] + 1, m.t[1] * 0.5, m.t[2]",
    "m.t = m.t[1], m.t[0], m.t[2]",
    "m.l[0], m.l[1] = m.l[1], m.l[0]",
    "m.l.reverse()",
    "m.l = [m.l[0], m.l[1] * 2, m.l[2]]",
    'm.d = {**m.d, "n": m.d["n"] + 1}',
    'm.d["in"] = {"k": m.d["in"]["k"] * 0.5}',
    'm.d.update(v=m.d["v"] * 0.9, w=x)',
    "m.e = m.d",
    "m.e = dict(m.d)",
    'm.m["meter"].n += 1; m.m["meter"].total += float(x[1])',
    'm.w = m.w - m.d["v"] * x',
    'm.d["w"] = m.d["w"] * m.d["v"]',
    'v = v / (m.d["n"] - 2)',
    "v = v + 1 / (m.l[0] - 1)",
    'v = v * {"a": 1}["a" if m.l[0] < 3 else "b"]',
]
OTHERS = [
    'm.d["n"] += 3', 'm.d["v"] = 1.25', 'm.d["v"] = 2', 'm.d["f"] = np.float32(3)', 'm.d["n"] = 4.0',
    'm.d["on"] = True', 'm.d["best"] = None', 'm.d["in"] = {"k": 2.5}', 'm.d = dict(m.d)', "m.e = m.d",
    "m.l = [2, 0.125, [1, np.float64(0.5)]]", "m.l[0] = 7", "m.t = 1, 0.5, {'n': 1}", "m.t[2]['n'] = 9",
    "m.m['meter'] = Meter(3, 1.5)", "m.m['shared'] = m.d['in']", 'SEEN["n"] = 6', "m.l.append(1)", "m.l.pop()",
    'm.d["more"] = 1', 'm.d.pop("more", None)', "m.d['w'] = np.zeros(3)", "m.l[1] = m.l[1] * 0.5", "pass", "pass",
]  # fmt: skip


class NumberWriter:
    """``draw(n)`` is a number below n."""

    def __init__(self, draw):
        self.draw = draw

    def one(self, values):
        return values[self.draw(len(values))]

    def number(self):
        a, b = self.one(READ), self.one(READ)
        return self.one([f"{a} + {b}", f"{a} * 0.5", f"{a} - 1", f"{a} + {self.one(SCALARS[:6])}", f"abs({a})", a])

    def test(self):
        a, b = self.one(READ), self.one(READ)
        return self.one(["x.sum() > 0", f"{a} > {b}", f"x[0] > {a}", f"{a} % 2 == 0", 'm.d["on"]'])

    def change(self):
        kind = self.draw(10)
        if kind < 3:
            step = self.one([f"+= {self.one(READ)}", f"-= {self.one(READ)}", "+= 1", "*= 0.5", "*= 3"])
            return f"{self.one(PLACES)} {step}"
        if kind < 5:
            return f"{self.one(PLACES)} = {self.number()}"
        if kind == 5:
            return f"{self.one(PLACES)} = {self.one(SCALARS)}"
        if kind == 6:
            return f"v = v * {self.one(READ)} + {self.one(READ)}"
        return self.one(MORE)

    def statements(self, depth):
        return [line for _ in range(1 + self.draw(2)) for line in self.statement(depth)]

    def statement(self, depth):
        kind = self.draw(9) if depth < 2 else 0
        if kind < 6:
            return [self.change()]
        body = ["    " + line for line in self.statements(depth + 1)]
        if kind == 6:
            return [f"if {self.test()}:", *body]
        if kind == 7:
            return [f"if {self.test()}:", *body, "else:", *("    " + line for line in self.statements(depth + 1))]
        return [f"for i{depth} in range({self.one([2, 5])}):", *body]

    def program(self, length):
        """A module's text: what is called, and ``others``, what somebody else does before each call."""
        lines = [line for _ in range(length) for line in self.statement(0)]
        text = HEAD + "".join(f"    {line}\n" for line in [*lines, f"return {self.one(RESULTS)}"])
        others = [self.one(OTHERS) if self.draw(2) else "pass" for _ in range(8)]
        if self.draw(2):
            others = [self.one(OTHERS)] * 8
        return text + "\n\ndef others(m, call):\n" + "".join(
            f"    if call == {call}:\n        {other}\n" for call, other in enumerate(others)
        )


def fixed(count):
    """Texts of programs, the same ones each time."""
    writers = [NumberWriter(random.Random(seed).randrange) for seed in range(count)]
    return [writer.program(1 + k % 4) for k, writer in enumerate(writers)]
