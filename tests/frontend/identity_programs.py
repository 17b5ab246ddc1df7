"""Random programs in which names of lists, dicts and dataclasses come to mean the same object, in some runs only."""

HEAD = '''
import dataclasses
import numpy as np


@dataclasses.dataclass
class Pair:
    u: float
    v: float


def inputs(seed):
    x = np.random.default_rng(seed).uniform(-1, 1, 24)
    x[-1] = -1
    return (x,)


def program(x):
'''
KINDS = {
    "list": ("[{}, {}]", "{}[0]", "{}[1]"),
    "dict": ("{{'u': {}, 'v': {}}}", "{}['u']", "{}['v']"),
    "Pair": ("Pair({}, {})", "{}.u", "{}.v"),
}
NAMES = "abc"


class IdentityWriter:
    """``draw(n)`` is a number below n."""

    def __init__(self, draw):
        self.draw = draw
        self.make, *self.places = KINDS[self.one(list(KINDS))]
        self.loops = 0

    def one(self, values):
        return values[self.draw(len(values))]

    def number(self):
        return self.one([f"x[{self.draw(20)}]", "1.0", self.place(), f"{self.place()} * 0.5 + x[{self.draw(20)}]"])

    def place(self):
        return self.one(self.places).format(self.one(NAMES))

    def new(self):
        return self.make.format(self.number(), self.number())

    def test(self):
        return self.one([f"x[{self.draw(20)}] > {self.one(['0', '0.4', '-0.4'])}", f"{self.place()} > 0.2"])

    def statement(self, depth):
        kind = self.draw(9 if depth else 6)
        name, other = self.one(NAMES), self.one(NAMES)
        if kind < 2:
            return [f"{self.place()} = {self.number()}"]
        if kind == 2:
            return [f"{name} = {other}"]
        if kind == 3:
            return [f"{name} = {self.new()}"]
        if kind == 4:
            return [f"{name}, {other} = {other}, {name}"]
        if kind == 5:
            return [f"{name} = {self.one(NAMES)} if {self.test()} else {self.one([other, self.new()])}"]
        body = ["    " + line for _ in range(1 + self.draw(2)) for line in self.statement(depth - 1)]
        if kind == 6:
            return [f"if {self.test()}:", *body]
        if kind == 7:
            more = ["    " + line for line in self.statement(depth - 1)]
            return [f"if {self.test()}:", *body, "else:", *more]
        self.loops += 1
        counter = f"k{self.loops}"
        return [f"{counter} = {self.draw(15)}", f"while x[{counter}] > -0.3:", *body, f"    {counter} += 1"]

    def program(self, length):
        lines = [f"{name} = {self.new() if name == 'a' else self.make.format(f'x[{k}]', '2.0')}"
                 for k, name in enumerate("bca")]  # fmt: skip
        for _ in range(length):
            lines += self.statement(2)
        ends = [place.format(name) for name in NAMES for place in self.places]
        return HEAD + "".join(f"    {line}\n" for line in [*lines, f"return {', '.join(ends)}"])


class MovingWriter(IdentityWriter):
    """Lists that grow and shrink by data, and change their names."""

    def __init__(self, draw):
        self.draw, self.loops = draw, 0

    def number(self):
        return self.one([f"x[{self.draw(20)}]", f"float(len({self.one(NAMES)}))", "x[k]", f"x[k] + x[{self.draw(20)}]"])

    def test(self):
        name = self.one(NAMES)
        return self.one([f"x[{self.draw(20)}] > 0", "x[k] > 0.1", f"len({name}) > 3", f"{name}", f"not {name}"])

    def statement(self, depth):
        kind = self.draw(14 if depth else 8)
        name, other = self.one(NAMES), self.one(NAMES)
        if kind < 3:
            return [f"{name}.append({self.number()})"]
        if kind == 3:
            return [f"if {name}:", f"    total = total * 0.5 + {name}.pop({self.one(['', '0', '-1'])})"]
        if kind == 4:
            new = ["[]", f"[{self.number()}]", f"{other}[:]", f"list({other})", f"{other} + {name}"]
            return [f"{name} = {self.one(new)}"]
        if kind == 5:
            return [f"{name} = {other}"]
        if kind == 6:
            return [f"{name}, {other} = {other}, {self.one([name, '[]'])}"]
        if kind == 7:
            return [f"{name} = {self.one([name, other, '[]'])} if {self.test()} else {other}"]
        body = ["    " + line for _ in range(1 + self.draw(2)) for line in self.statement(depth - 1)]
        if kind < 11:
            return [f"if {self.test()}:", *body]
        if kind == 11:
            other = next(each for each in NAMES if each != name)
            return [f"for v in {name}[:]:", "    total = total * 0.5 + v", f"    if v > 0 and len({other}) < 9:",
                    f"        {other}.append(v)"]  # fmt: skip
        return [f"if {self.test()}:", *body, "else:", *("    " + line for line in self.statement(depth - 1))]

    def program(self, length):
        lines = [f"{name} = {self.one(['[]', '[1.0]', f'[x[{k}], 2.0]'])}" for k, name in enumerate(NAMES)]
        loops = ["while x[k] > -0.6:", "for k in range(20):", "while k < 18 and (a or b):"]
        lines += ["total, k = 0.0, 0", self.one(loops)]
        lines += ["    " + line for _ in range(length) for line in self.statement(2)]
        lines += ["    k += 1"]
        ends = ", ".join(f"len({name}), ({name}[-1] if {name} else 0.0)" for name in NAMES)
        return HEAD + "".join(f"    {line}\n" for line in [*lines, f"return total, k, {ends}"])
