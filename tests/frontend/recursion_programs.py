"""Random functions that call themselves: numbers and an array go down, numbers come back."""

HEAD = """import numpy as np


def program(x, n, a):
    return helper({start}, a), a


def helper(x, n, a):
"""
TAIL = """

def inputs(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=2), rng.integers(0, 5, 2), rng.normal(size=4)
"""
STARTS = (
    "x[0], n[0]", "float(x[0]), int(n[0])", "x[0], int(n[0])", "1.5, n[0]", "float(x[1]), int(n[1]) + 1",
    "x[0], n[0] % 3",
)  # fmt: skip
ENDS = ("n <= 0", "n <= 0 or x > 2", "n < 1 or abs(x) < 0.1", "n <= 0 or a[n % 4] > 1")
NUMBERS = (
    "x", "x", "y", "z", "n", "0.5", "2", "a[n % 4]", "a[0]", "a.sum()", "float(n)", "abs(x)", "x * x", "min(x, 1.0)",
    "np.sin(x)",
)  # fmt: skip
PLACES = ("n % 4", "0", "int(abs(x)) % 4")
OPERATORS = (" + ", " - ", " * ", " + ", " / ")
TESTS = ("x > y", "n % 2 == 0", "a[0] > y", "x > 0 and n > 1", "z != y", "not n % 3")
DOWN = ("n - 1", "n - 2", "n // 2 - 1")


class RecursionWriter:
    """``choose(n)`` draws one of n; every function ends: n falls at each call, and a level makes few."""

    def __init__(self, choose):
        self.choose, self.calls = choose, 0

    def one(self, words):
        return words[self.choose(len(words))]

    def number(self, depth=0):
        if depth > 1 or not self.choose(3):
            return self.one(NUMBERS)
        return f"({self.number(depth + 1)}{self.one(OPERATORS)}{self.number(depth + 1)})"

    def call(self):
        self.calls += 1
        return f"helper({self.number()}, {self.one(DOWN)}, a)"

    def value(self):
        if self.calls < 3 and self.choose(2):
            return self.one(("{}", "{} + 1", "{} * y", "abs({})", "max({}, x)")).format(self.call())
        return self.number()

    def block(self, indent, depth):
        return [line for _ in range(1 + self.choose(2)) for line in self.statement(indent, depth)]

    def statement(self, indent, depth):
        pad, kind = "    " * indent, self.choose(9)
        if kind == 0 and depth < 2:
            return [
                f"{pad}if {self.one(TESTS)}:", *self.block(indent + 1, depth + 1),
                *([f"{pad}else:", *self.block(indent + 1, depth + 1)] if self.choose(2) else []),
            ]  # fmt: skip
        if kind == 1 and depth < 1:
            calls = self.calls
            lines = [f"{pad}for k in range({self.one(('2', 'n', '3'))}):", *self.block(indent + 1, depth + 1)]
            self.calls += 2 * (self.calls - calls)
            return [*lines, *([f"{pad}    if z > 3:", f"{pad}        break"] if not self.choose(3) else [])]
        if kind == 2:
            return [f"{pad}a[{self.one(PLACES)}] {self.one(('=', '+=', '*='))} {self.value()}"]
        if kind == 3 and not self.choose(3):
            return [f"{pad}if {self.one(TESTS)} and x > 1.5:", f"{pad}    raise ValueError(n)"]
        if kind == 4:
            return [f"{pad}if {self.one(TESTS)}:", f"{pad}    return {self.value()}"]
        if kind == 5:
            return [f"{pad}y, z = {self.number()}, {self.value()}"]
        return [f"{pad}{self.one('xyz')} {self.one(('=', '=', '+=', '-='))} {self.value()}"]

    def program(self, statements):
        lines = ["    y = z = 0.25", f"    if {self.one(ENDS)}:", f"        return {self.number()}"]
        for _ in range(statements):
            lines += self.statement(1, 0)
        while not self.calls:
            lines.append(f"    {self.one('xyz')} = {self.call()}")
        lines.append(f"    return {self.number()}")
        return HEAD.format(start=self.one(STARTS)) + "\n".join(lines) + "\n" + TAIL
