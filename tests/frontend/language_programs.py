"""Random programs of Python's constructs: names that change type, lists, objects, exceptions, exits of all kinds.

Run as a script for a longer search: ``python language_programs.py 2000 [first seed]``.
"""

import importlib.util
import random
import sys
import tempfile
from pathlib import Path

HEAD = """import contextlib

import numpy as np


class Box:
    def __init__(self, value):
        self.value = value
        self.count = 0

    def add(self, other):
        self.value = self.value + other
        return self.value


class Guard:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append("out")
        return kind is KeyError


def first(values, limit):
    for value in values:
        if value is None:
            continue
        if value > limit:
            return value
    return None


"""
NAMES = ["u", "v", "w"]
RETURN = "return x * 1.0, sum(parts), float(total), 1.0 if w is None else 2.0, 1.0 * len(log)"


class Writer:
    """Writes one program from a stream of random numbers."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.lines = []
        self.loops = 0
        self.fresh = 0

    def one(self, *choices):
        return self.rng.choice(choices)

    def number(self):
        """An expression that is a number, known or traced."""
        return self.one(
            "x[0]", "x[1]", "y[2]", "x.sum()", "0.5", "2", "n", "len(parts)", "box.count", "a", "float(x[1])",
            "(x * y).max()", "parts[0][0]", "table['s']",
        )  # fmt: skip

    def value(self):
        """An expression of any type."""
        return self.one(
            self.number(), self.number(), "x * 2", "y + 1", "x[:2]", "None", '"text"', "x.astype(np.float32)", "[x, y]",
            "parts[-1]", "box.value", f"({self.number()}, {self.number()})", f"{self.number()} + {self.number()}",
            f"({self.one(*NAMES)} if {self.test()} else {self.number()})",
        )  # fmt: skip

    def test(self):
        number = self.number
        return self.one(
            f"{number()} > {number()}", f"{number()} > {number()}", f"{number()} <= {number()} < {number()}",
            f"{self.one(*NAMES)} is None", f"{self.one(*NAMES)} is not None and {number()} > 0", "n > 2",
            f"{number()} > 0 or {number()} < 0", f"not {number()} > 1", f"isinstance({self.one(*NAMES)}, str)",
            f"{number()} in (1, 2.0, 0.5)", f"(k := {number()}) > 0.3",
        )  # fmt: skip

    def emit(self, depth, text):
        self.lines.append("    " * depth + text)

    def block(self, depth, budget):
        for _ in range(self.rng.randint(1, 3)):
            self.statement(depth, budget - 1)

    def simple(self, depth):
        name = self.one(*NAMES)
        self.emit(depth, self.one(
            f"{name} = {self.value()}", f"{name} = {self.value()}", f"parts.append({self.one('x * 3', 'y', 'x + n')})",
            "parts.pop() if len(parts) > 1 else None", f'table["{self.one("s", "t")}"] = {self.number()}',
            f"box.value = {self.one('x * 2', 'y', 'box.value + 1')}", f"box.add({self.number()})", "x[0] += 1",
            f"y[{self.one('0', '1', ':2')}] = {self.number()}", f"a = {self.number()}", "n += 1", "bump(1)",
            f"{name} = first([{self.value()}, {self.number()}], {self.number()}) if n > 100 else {name}",
            f"total = total + {self.number()}", "x = x * 0.5", "x, y = y, x",
            f"{name}, *_ = [{self.value()}, {self.value()}]", f"log.append({self.one('n', '1')})",
        ))  # fmt: skip

    def statement(self, depth, budget):
        kind = self.rng.random()
        if budget <= 0 or kind < 0.45:
            self.simple(depth)
        elif kind < 0.68:
            self.emit(depth, f"if {self.test()}:")
            self.block(depth + 1, budget)
            if self.rng.random() < 0.5:
                self.emit(depth, "else:")
                self.block(depth + 1, budget)
        elif kind < 0.8 and self.loops < 2:
            self.loop(depth, budget)
        elif kind < 0.86:
            self.emit(depth, "try:")
            self.block(depth + 1, budget)
            if self.rng.random() < 0.6:
                self.emit(depth + 1, self.one('raise ValueError("no")', '{"a": 1}["b"]'))
            self.emit(depth, f"except {self.one('(ValueError, KeyError)', 'KeyError', 'Exception')}:")
            self.block(depth + 1, budget)
            if self.rng.random() < 0.4:
                self.emit(depth, "finally:")
                self.simple(depth + 1)
        elif kind < 0.91:
            self.emit(depth, f"with {self.one('Guard(log)', 'contextlib.nullcontext()')}:")
            self.block(depth + 1, budget)
        elif kind < 0.95:
            self.emit(depth, f"match {self.one('n', 'len(parts)', 'int(x[1] > 0)')}:")
            self.emit(depth + 1, "case 1:")
            self.block(depth + 2, budget)
            self.emit(depth + 1, "case _:")
            self.block(depth + 2, budget)
        elif kind < 0.98:
            self.emit(depth, f"if {self.test()}:")
            self.emit(depth + 1, self.one(RETURN, 'raise ArithmeticError("end")', RETURN))
        else:
            self.emit(depth, f'assert {self.number()} > -50, f"{{{self.number()}}}"')

    def loop(self, depth, budget):
        self.loops += 1
        self.fresh += 1
        index = f"i{self.fresh}"
        head = self.one(
            f"for {index} in range({self.one('3', '20', 'n')}):", f"for {index} in x:", f"for {index} in parts[:2]:",
            f"for {index}, _e in enumerate(y):", f"for {index}, _e in zip(range(25), range(25)):",
        )  # fmt: skip
        self.emit(depth, head)
        self.block(depth + 1, budget)
        if self.rng.random() < 0.5:
            self.emit(depth + 1, f"if {self.test()}:")
            self.emit(depth + 2, self.one("break", "continue", RETURN, "break"))
            self.simple(depth + 1)
        if self.rng.random() < 0.3:
            self.emit(depth, "else:")
            self.simple(depth + 1)
        self.loops -= 1

    def program(self):
        self.lines = [
            "def program(x, y, a, n, table, box):",
            "    parts, log, total, k = [x, y * 2], [], 0.0, 0.0",
            "    u, v, w = None, x, 1",
            "",
            "    def bump(by):",
            "        nonlocal n, total",
            "        n = n + by",
            "        total = total + by",
            "",
        ]
        for _ in range(self.rng.randint(3, 6)):
            self.statement(1, 3)
        self.emit(1, RETURN)
        return HEAD + "\n".join(self.lines) + "\n"


def load(source):
    """The program's function, from a file as a user's would be."""
    path = Path(tempfile.mkdtemp()) / "program.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("language_program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(module, seed):
    """Arguments that take different paths."""
    import numpy as np

    rng = np.random.default_rng(seed)
    box = module.Box(rng.normal(size=3))
    return rng.normal(size=3), rng.normal(size=3), float(rng.normal()), 2, {"s": 1.5, "t": 0.5}, box


def disagreement(seed, observed, futurize):
    """Compare one program with plain Python on three sets of arguments; a text if it differs."""
    source = Writer(seed).program()
    module = load(source)
    futurized = futurize(module.program)
    for case in range(3):
        args = arguments(module, seed * 3 + case)
        expected, actual = observed(module.program, args), observed(futurized, args)
        if actual != expected:
            return f"seed {seed}\n{source}\nexpected {expected}\n     got {actual}\n{futurized.explain()}"
    return ""


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from test_language import observed

    import futurex as fx

    count, start = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for number in range(start, start + count):
        text = disagreement(number, observed, fx.futurize)
        if text:
            print(text)
            sys.exit(1)
    print(count, "programs agree")
