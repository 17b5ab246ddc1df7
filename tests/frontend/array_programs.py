"""Random programs over NumPy's breadth: every statement is tried on real arrays while the program is written.

Trying tells which operands fit, so that any function, index or dtype can be drawn without a grammar of shapes.
"""

import contextlib
import re
import warnings

import numpy as np
from program_words import ALL, HEAD, LARGE, METHODS, RARE_EXPRESSIONS, RARE_STATEMENTS, REDUCE, SMOOTH, TESTS

PLACES = re.compile(r"\{(\w)\}")
ROUNDS = 160


class ArrayWriter:
    """Writes one program. ``pick(n)`` gives a number below n, from a seed or from Hypothesis."""

    vocabulary = ALL
    largest = 160  # elements of an array

    def __init__(self, pick):
        self.pick = pick
        self.lines, self.depth, self.loops, self.fresh = [], 0, 0, 0
        self.environment = {}
        self.names = []
        self.rare = self.vocabulary is ALL and pick(2) == 0  # half of the programs use only what is common
        exec(HEAD, self.environment)

    def one(self, choices):
        return choices[self.pick(len(choices))]

    def usable(self, value):
        return usable(value, self.largest)

    # -- arguments ---------------------------------------------------------------------------------------------------

    def arguments(self):
        """Text of the function that makes arguments: arrays of any kind, views of each other, numbers."""
        lines, names = [], []
        for k in range(1 + self.pick(3)):
            name, shape = "abc"[k], self.one(self.vocabulary.shapes)
            made = f"{self.one(self.vocabulary.makers)}(rng, {shape}, '{self.one(self.vocabulary.dtypes)}')"
            if names and self.pick(4) == 0:
                view = self.one(
                    ("", ".T", "[...]", ".reshape(-1)", ".reshape(-1)[1:]", ".reshape(-1)[::-1]", ".reshape(-1)[:2]")
                )
                made = self.one(names) + view
            lines.append(f"{name} = {made}")
            names.append(name)
        lines.append(f"s = {self.one(self.vocabulary.numbers)}")
        return [*names, "s"], "".join(f"    {line}\n" for line in lines)

    # -- text --------------------------------------------------------------------------------------------------------

    def fill(self, template, deep):
        return (
            PLACES.sub(lambda place: self.place(place[1], deep), template.replace("{{", "\0").replace("}}", "\1"))
            .replace("\0", "{")
            .replace("\1", "}")
        )

    def of_kind(self, wanted):
        names = [name for name in self.names if wanted(self.environment.get(name))]
        return self.one(names) if names else "TABLE"

    def place(self, kind, deep):
        match kind:
            case "e":
                return self.expression(deep - 1)
            case "s":
                return self.expression(deep - 1, self.vocabulary.scalars)
            case "t":
                return self.fill(self.one(TESTS), 0)
            case "x":
                return self.fill(self.one(self.vocabulary.indices), 0)
            case "v":
                return self.of_kind(lambda value: isinstance(value, np.ndarray | np.generic))
            case "A":
                return self.of_kind(lambda value: isinstance(value, np.ndarray))
            case "S":
                return self.of_kind(lambda value: isinstance(value, np.generic | int | float)) if self.pick(3) else "s"
            case "I":
                return self.of_kind(lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "iu")
            case "m":
                mask = self.of_kind(lambda value: isinstance(value, np.ndarray) and value.dtype == bool)
                return mask if mask != "TABLE" and self.pick(2) else self.fill(self.one(self.vocabulary.masks), 0)
            case "n":
                if self.names and self.pick(3) == 0:
                    return self.one(self.names)
                self.fresh += 1
                return f"v{self.fresh}"
            case "k":
                return self.one(("0", "0", "1", "-1", "None", "(0, 1)"))
            case "i":
                return str(self.pick(4))
            case "d":
                return f"np.{self.one(self.vocabulary.dtypes)}"
        words = self.vocabulary
        return self.one(
            {"u": words.unary, "b": words.binary, "r": REDUCE, "o": words.operators, "M": METHODS, "p": words.updates}[
                kind
            ]
        )

    # -- trying ------------------------------------------------------------------------------------------------------

    def run(self, text):
        """Run a statement on the arrays so far; the exception if it fails."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(text, self.environment)
            except Exception as error:
                return error
        return None

    def expression(self, deep, templates=None):
        """An expression that works on the arrays so far."""
        words = self.vocabulary
        templates = templates or words.expressions
        for _ in range(8):
            if templates is words.expressions and self.rare and self.pick(4) == 0:
                text = self.fill(self.one(RARE_EXPRESSIONS), deep)
            else:
                text = self.fill(self.one(templates if deep > 0 else ("{v}", *words.scalars)), deep)
            if self.run(f"_ = {text}") is None and self.usable(self.environment["_"]):
                return text
        return self.of_kind(lambda value: isinstance(value, np.ndarray))

    def statement(self):
        compound = (self.branch, self.loop, self.while_loop, self.function, self.attempt, self.error_state)
        choice = self.pick(24)
        if choice < (6 if self.vocabulary is ALL else 3) and self.depth < 3:
            return compound[choice]()
        if choice < 8 and self.depth:
            return self.leave()
        return self.simple()

    def simple(self):
        """A statement without a block, tried until one works; now and then one that fails is kept."""
        for _ in range(12):
            text = self.fill(
                self.one(RARE_STATEMENTS if self.rare and self.pick(4) == 0 else self.vocabulary.statements), 2
            )
            before = dict(self.environment)
            error = self.run(text)
            made = [name for name in self.environment if re.fullmatch(r"v\d+", name)]
            now = {name: self.environment[name] for name in {*made, *self.names} & self.environment.keys()}
            fine = error is None and all(map(self.usable, now.values()))
            if fine and self.depth:  # a loop must not double an array
                fine = all(np.size(now[name]) <= np.size(before[name]) for name in now.keys() & before.keys())
            if fine:
                self.names = [name for name in dict.fromkeys([*self.names, *made]) if name in self.environment]
                self.add(text)
                return
            self.environment.clear()
            self.environment.update(before)
            if not isinstance(error, NameError | SyntaxError | AttributeError | None) and self.pick(60) == 0:
                self.add(text)
                return
        self.add("pass")

    # -- blocks ------------------------------------------------------------------------------------------------------

    def add(self, text):
        self.lines.append("    " * (self.depth + 1) + text)

    @contextlib.contextmanager
    def block(self, header, enter="pass", loop=False):
        """Statements under a header, written as if it was entered once; what they bind is forgotten afterwards."""
        self.add(header)
        names, before = list(self.names), dict(self.environment)
        self.depth, self.loops = self.depth + 1, self.loops + loop
        entered = self.run(enter) is None
        self.names += [name for name in re.findall(r"\b[qrz]\d+", enter.split("=")[0]) if entered]
        yield
        self.depth, self.loops = self.depth - 1, self.loops - loop
        self.names = [name for name in names if name in before]
        for name in self.environment.keys() - set(self.names):
            if re.fullmatch(r"[vqrz]\d+", name):
                del self.environment[name]
        for name in self.names:
            if not self.usable(self.environment.get(name)):
                self.environment[name] = before[name]

    def statements(self, most=3):
        for _ in range(1 + self.pick(most)):
            self.statement()

    def branch(self):
        with self.block(f"if {self.fill(self.one(TESTS), 0)}:"):
            self.statements()
        if self.pick(3) == 0:
            with self.block(f"elif {self.fill(self.one(TESTS), 0)}:"):
                self.statements(2)
        if self.pick(2):
            with self.block("else:"):
                self.statements(2)

    def loop(self):
        self.fresh += 1
        q, r, array = (
            f"q{self.fresh}",
            f"r{self.fresh}",
            self.of_kind(lambda value: isinstance(value, np.ndarray) and value.ndim and len(value) <= ROUNDS),
        )
        header, enter = self.one((
            (f"for {q} in range({self.one(('2', '3', '20', 'len(' + array + ')', '1, 4', '5, -1, -2'))}):", f"{q} = 1"),
            (f"for {q} in range(int(abs({self.fill('{S}', 0)})) % 4):", f"{q} = 0"),
            (f"for {r} in {array}:", f"{r} = {array}[0]"),
            (f"for {q}, {r} in enumerate({array}):", f"{q}, {r} = 0, {array}[0]"),
            (f"for {q}, {r} in zip({array}, {array}[::-1]):", f"{q}, {r} = {array}[0], {array}[-1]"),
        ))  # fmt: skip
        with self.block(header, enter, loop=True):
            self.statements()
        if self.pick(5) == 0:
            with self.block("else:"):
                self.statements(1)

    def while_loop(self):
        self.fresh += 1
        count = f"n{self.fresh}"
        self.add(f"{count} = 0")
        with self.block(
            f"while {count} < {self.one(('3', '30'))} and ({self.fill(self.one(TESTS), 0)}):", f"{count} = 0", loop=True
        ):
            self.add(f"{count} += 1")
            self.statements(2)

    def attempt(self):
        with self.block("try:"):
            self.statements(2)
        handled = self.one(("ValueError", "Exception", "(TypeError, IndexError, ValueError)", "ZeroDivisionError"))
        with self.block(f"except {handled}:"):
            self.statements(1)

    def error_state(self):
        state = self.one(("all='ignore'", "divide='ignore'", "invalid='raise'", "over='ignore'"))
        with self.block(f"with np.errstate({state}):"):
            self.statements(2)

    def function(self):
        self.fresh += 1
        name, z, array = f"f{self.fresh}", f"z{self.fresh}", self.of_kind(lambda value: isinstance(value, np.ndarray))
        loops, self.loops = self.loops, 0
        with self.block(f"def {name}({z}, y=2):", f"{z} = {array}"):
            self.statements(2)
            result = self.expression(2)
            self.add(f"return {result}")
        self.loops = loops
        target = self.place("n", 0)
        self.add(f"{target} = {name}({array})")
        self.run(f"{target} = {array}.copy()")
        if target not in self.names:
            self.names.append(target)

    def leave(self):
        self.add(f"if {self.fill(self.one(TESTS), 0)}:")
        self.depth += 1
        self.add(
            self.one(("break", "continue", "break")) if self.loops and self.pick(4) else f"return {self.results()}"
        )
        self.depth -= 1

    def results(self):
        names = self.names or ["TABLE"]
        chosen = [self.one(names) for _ in range(3)] + names[-3:]
        if self.pick(3) == 0:
            return "{" + ", ".join(f"'{k}': {name}" for k, name in enumerate(chosen)) + "}"
        return f"({', '.join(chosen)}" + (f", type({chosen[0]}).__name__)" if self.rare and self.pick(6) == 0 else ")")

    def program(self, statements):
        names, made = self.arguments()
        head = f"def inputs(seed):\n    rng = np.random.default_rng(seed)\n{made}    return {', '.join(names)}\n"
        self.run(head)
        self.run(f"{', '.join(names)} = inputs(1)")
        self.names = names
        for _ in range(statements):
            self.statement()
        self.add(f"return {self.results()}")
        return f"{HEAD}{head}\n\ndef program({', '.join(names)}):\n" + "\n".join(self.lines) + "\n"


class LargeWriter(ArrayWriter):
    """Programs over arrays of hundreds to tens of thousands of elements."""

    vocabulary = LARGE
    largest = 150_000


class SmoothWriter(ArrayWriter):
    """Programs whose result is a scalar that can be differentiated nearly everywhere."""

    vocabulary = SMOOTH

    def results(self):
        names = self.names or ["TABLE"]
        chosen = [self.one(names) for _ in range(2)] + names[-2:]
        return " + ".join(
            f"np.sum({one} * {weight})" for one, weight in zip(chosen, ("1.5", "0.5", chosen[1], "0.25"), strict=False)
        )


def usable(value, largest):
    """May a value take part in further statements? Numbers and arrays of at most ``largest`` elements."""
    if isinstance(value, np.ndarray | np.generic):
        return (
            value.dtype.kind in "biufc"
            and value.dtype.itemsize <= 16
            and value.dtype.char not in "gG"
            and value.size <= largest
            and value.ndim <= 4
        )
    if isinstance(value, bool | float | complex | str):
        return True
    return isinstance(value, int) and abs(value) < 1 << 31
