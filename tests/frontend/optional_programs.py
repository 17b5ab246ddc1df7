"""Random programs over names that are None or an array, a tuple, a dict or a list, as functions and rounds leave them.

What comes back must be the same values, the same arrays and the same objects at the same places, and what the program
was given must have been changed in the same way.
"""

from dataclasses import dataclass

import numpy as np
from program_search import load

import futurex as fx
from futurex.tree.pytree import flatten, placed_containers


@dataclass(frozen=True)
class Family:
    """How such things are made, anew or of one that is there (``{o}``), a number and an array in one, and writes."""

    new: tuple
    of_one: tuple
    number: str
    array: str
    writes: tuple
    returned: tuple


FAMILIES = [
    Family(
        ("x[{i}:][:4] * 2.0", "x[{i}:][:4]", "a", "a.copy()", "b + 1.0", "np.full(4, s)"), ("a + {o}",), "{o}[{j}]",
        "{o}", ("{o}[{j}] = s", "{o} += 1.0", "{o}[:2] = b[:2]"), ("a * c", "b", "x[3:7]"),
    ),
    Family(
        ("(s, a)", "(t, a.copy())", "(x[{i}], b)", "(1.0, x[{i}:][:4])"), ("({o}[0] + 1.0, b)", "(s, {o}[1])"),
        "{o}[0]", "{o}[1]", ("{o}[1][{j}] = s", "q, a = {o}"), ("(c, a)", "(1.0, b)", "(c, b * 2.0)"),
    ),
    Family(
        ("{{'u': s, 'v': a.copy()}}", "{{'u': t, 'v': a}}", "{{'u': x[{i}], 'v': b + s}}"),
        ("dict({o})", "{{**{o}, 'u': s}}"), "{o}['u']", "{o}['v']", ("{o}['u'] = s", "{o}['v'][{j}] = s"),
        ("{'u': c, 'v': b * 1.0}", "{'u': c, 'v': a}"),
    ),
    Family(
        ("[s, a]", "[t, a.copy()]", "[x[{i}], b + 1.0]"), ("list({o})",), "{o}[0]", "{o}[1]",
        ("{o}[0] = s", "{o}[1][{j}] = t"), ("[c, b + 0.0]", "[c, a]"),
    ),
    Family(
        ("Pair(s, a)", "Pair(t, a.copy())", "Pair(x[{i}], b)"), ("{o}._replace(u=s)", "Pair({o}.u, b)"), "{o}.u",
        "{o}.v", ("{o}.v[{j}] = s", "q, a = {o}"), ("Pair(c, a)", "Pair(1.0, b)"),
    ),
    Family(
        ("Best(s, a)", "Best(t, a.copy())", "Best(x[{i}], b + s)"), ("Best({o}.u, b)", "replace({o}, u=s)"), "{o}.u",
        "{o}.v", ("{o}.u = s", "{o}.v[{j}] = s"), ("Best(c, a)", "Best(c, b * 1.0)"),
    ),
    Family(
        ("(s, a)", "(s, 1.0, b)", "a * 2.0"), (), "np.sum({o}[0])", "(np.sum({o}[0]) + a)", ("q = {o}",),
        ("(c, a)", "b * 2.0"),
    ),
]  # fmt: skip
NAMES = ("o1", "o2", "o3")
HEAD = """import collections
from dataclasses import dataclass, replace

import numpy as np

Pair = collections.namedtuple("Pair", "u v")


@dataclass
class Best:
    u: float
    v: np.ndarray


class Holder:
    found = None


"""


class OptionalWriter:
    """Statements that bind such names, ask them for None, and use what they are."""

    def __init__(self, draw):
        self.draw, self.loops = draw, 0
        self.family = self.one(FAMILIES)
        self.writes, self.unasked = not self.draw(3), not self.draw(7)
        self.names = (*NAMES, "h.found") if not self.draw(5) else NAMES

    def one(self, values):
        return values[self.draw(len(values))]

    def filled(self, text, name=""):
        return text.format(i=self.draw(16), j=self.draw(4), o=name)

    def new(self):
        return self.filled(self.one(self.family.new))

    def test(self):
        tests = [f"x[{self.draw(20)}] > {self.one(['0', '0.4', '-0.4'])}", "s < t"]
        return self.one(tests + [f"x[k{self.loops}] > 0"] * (2 * bool(self.loops)))

    def use(self, name):
        kind, family = self.draw(4), self.family
        if kind == 0:
            return [f"s = s + {self.filled(family.number, name)}"]
        if kind == 1:
            return [f"a = a + {self.filled(family.array, name)}"]
        if kind == 2 and self.writes:
            return [self.filled(self.one(family.writes), name)]
        return [f"{self.one(self.names)} = {self.filled(self.one((*family.new, *family.of_one)), name)}"]

    def block(self, depth):
        return ["    " + line for _ in range(1 + self.draw(2)) for line in self.statement(depth - 1)]

    def statement(self, depth):
        name, other, kind = self.one(self.names), self.one(self.names), self.draw(11 if depth else 5)
        number = self.filled(self.family.number, name)
        if kind == 0:
            return [f"{name} = {self.one(['None', other, self.new()])}"]
        if kind == 1:
            given = f"x[k{self.loops}]" if self.loops else f"x[{self.draw(20)}]"
            return [f"{name} = found(x, {self.one(['s', given])}, a, {self.one('ab')})"]
        if kind == 2:
            return [f"{name} = {self.one([other, 'None', self.new()])} if {self.test()} else {self.new()}"]
        if kind == 3:
            return [self.one(["s = s + 0.25", "t = t - s", "a = a * 0.5", "b = b + t", "a, b = b, a"])]
        if kind == 4:
            asked = [] if self.unasked and not self.draw(3) else [f"if {name} is not None:"]
            return asked + ["    " * len(asked) + line for line in self.use(name)]
        if kind == 5:
            used = ["    " + line for line in [*self.use(name), *self.statement(depth - 1)]]
            return [f"if {name} is None:", *self.block(depth), "else:", *used]
        if kind == 6:
            return [f"if {name} is not None and {number} > {self.one(['s', '0'])}:", *self.block(depth)]
        if kind == 7:
            return [f"if {name} is None or {number} < t:", f"    {name} = {self.one([other, self.new()])}"]
        if kind == 8:
            return [f"if {self.test()}:", *self.block(depth), "else:", *self.block(depth)]
        loops = self.loops = self.loops + 1
        body = self.block(depth)
        self.loops -= 1
        if kind == 9:
            test = self.one([f"{name} is None", self.test()])
            ends = [f"    if {test}:", f"        {self.one(['continue', 'break'])}"] * self.draw(2)
            return [f"for k{loops} in range({self.one([3, 6, 20])}):", *ends, *body]
        return [f"k{loops} = {self.draw(15)}", f"while x[k{loops}] > -0.3:", *body, f"    k{loops} += 1"]

    def program(self, length):
        lines = ["s, t, q = x[0], 1.0, 0.0", "a, b = x[:4] * 1.0, y"]
        lines += ["h = Holder()"] * (self.names is not NAMES)
        lines += [f"{name} = {self.one(['None', 'None', self.new()])}" for name in self.names]
        for _ in range(length):
            lines += self.statement(2)
        left = [name for name in (*self.names, "s", "a", "b") if self.draw(2)]
        first, second = self.one(self.family.returned), self.one(self.family.returned)
        return (
            HEAD + "def inputs(seed):\n    x = np.random.default_rng(seed).uniform(-1, 1, 30)\n"
            "    x[20:] = -1\n    return x, np.arange(4.0)\n\n\n"
            f"def found(x, c, a, b):\n    if c > 0.1:\n        return {first}\n"
            f"    if c < -0.5:\n        return None\n    return {second}\n\n\n"
            "def program(x, y):\n" + "".join(f"    {line}\n" for line in [*lines, f"return s, {', '.join(left)}"])
        )


def _seen(function, args):
    """Values and types, which objects and arrays are one, which share memory, and what the arguments are afterwards."""
    try:
        with np.errstate(all="ignore"):
            result = function(*args)
            leaves, structure = flatten(result)
            values = [None if each is None else (np.asarray(each).dtype, np.asarray(each).tolist()) for each in leaves]
    except Exception as error:
        return type(error).__name__
    numbers = {}
    same = [(place, numbers.setdefault(id(each), len(numbers))) for place, each in placed_containers(result)]
    arrays = [each for each in (*leaves, *args) if each is not None and np.ndim(each)]
    same += [[a is b or 2 * np.shares_memory(np.asarray(a), np.asarray(b)) for b in arrays] for a in arrays]
    return repr((structure, same, values, [each.tolist() for each in args]))


def disagreement(text, folder):
    """What differs between the plain and the futurized program ("" if nothing), and whether it was staged."""
    module = load(text, folder)
    futurized = fx.futurize(module.program)
    for seed in (1, 2, 3, 4):
        wanted, found = (_seen(function, _inputs(module, seed)) for function in (module.program, futurized))
        if wanted != found:
            return f"inputs {seed}:\n{found}\nis not\n{wanted}\n{futurized.explain()}", True
    return "", "staged: " in futurized.explain()


def _inputs(module, seed):
    """Of the third ones nothing is found, and the fourth ones are NaN in places."""
    x, y = module.inputs(seed)
    if seed == 3:
        x = -np.abs(x)
    x[: 3 * (seed == 4)] = np.nan
    return x, y
