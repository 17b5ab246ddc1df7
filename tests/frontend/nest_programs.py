"""Random programs that return nests of lists and dicts whose parts change places, in some runs only.

What comes back must be the same objects at the same places: ``disagreement`` compares which of them are one.
"""

import numpy as np
from identity_programs import HEAD, IdentityWriter
from program_search import load

import futurex as fx
from futurex.tree.pytree import flatten, placed_containers

# How a nest is made, its two places, and how one is put together of the parts of two others.
KINDS = [
    (
        "[{{'u': {}}}, {{'u': {}}}]", "{}[0]['u']", "{}[1]['u']", "[{p}[0], {q}[1]]", "[{p}[1], {q}[0]]",
        "[{{'u': {n}}}, {q}[0]]", "[dict({p}[0]), dict({q}[1])]", "[{{k: v for k, v in d.items()}} for d in {p}]",
    ),
    (
        "{{'s': {{'u': {}}}, 't': {{'u': {}}}}}", "{}['s']['u']", "{}['t']['u']", "{{'s': {p}['s'], 't': {q}['t']}}",
        "{{'s': {p}['t'], 't': {q}['s']}}", "{{'s': {{'u': {n}}}, 't': {q}['s']}}",
        "{{k: dict(v) for k, v in {p}.items()}}",
    ),
    ("([{}], [{}])", "{}[0][0]", "{}[1][0]", "({p}[1], {q}[0])", "([{n}], {q}[0])", "(list({p}[0]), list({q}[1]))"),
    ("[{}, {}]", "{}[0]", "{}[1]", "[{p}[0], {q}[1]]", "[{p}[1], {q}[0]]", "[{n}, {q}[0]]", "list({p})"),
]  # fmt: skip
NAMES = "abc"


class NestWriter(IdentityWriter):
    """``best`` is None before a loop, and one of the nests from some round on."""

    def __init__(self, draw):
        self.draw, self.loops = draw, 0
        self.make, first, second, *self.mixtures = self.one(KINDS)
        self.places = first, second
        self.arrays = self.draw(2)

    def number(self):
        if self.arrays:
            return self.one([f"np.full(5, x[{self.draw(20)}])", f"{self.place()} * 0.5", f"{self.place()} + x[0]"])
        return super().number()

    def mixed(self):
        return self.one(self.mixtures).format(p=self.one(NAMES), q=self.one(NAMES), n=self.number())

    def test(self):
        tests = [f"x[{self.draw(20)}] > {self.one(['0', '0.4', '-0.4'])}"]
        return self.one(tests + [f"x[k{self.loops}] > 0"] * (2 * bool(self.loops)))

    def statement(self, depth):
        kind = self.draw(9 if depth else 5)
        name, other = self.one(NAMES), self.one(NAMES)
        if kind < 2:
            return [f"{name} = {self.mixed()}"]
        if kind == 2:
            return [self.one([f"{self.place()} = {self.number()}", f"{name} = {self.new()}", f"{name} = {other}"])]
        if kind == 3:
            return [f"{name}, {other} = {other}, {name}"]
        if kind == 4:
            return [f"{name} = {self.mixed()} if {self.test()} else {self.one([other, self.new()])}"]
        loops = self.loops = self.loops + (kind > 6)
        body = ["    " + line for _ in range(1 + self.draw(2)) for line in self.statement(depth - 1)]
        if kind == 5:
            return [f"if {self.test()}:", *body]
        if kind == 6:
            return [f"if {self.test()}:", *body, "else:", *("    " + line for line in self.statement(depth - 1))]
        if kind == 7:
            ends = [f"    if x[k{loops}] < -0.8:", "        break"] * self.draw(2)
            return [f"for k{loops} in range({self.one([3, 6, 20])}):", *body, *ends]
        return [f"k{loops} = {self.draw(15)}", f"while x[k{loops}] > -0.3:", *body, f"    k{loops} += 1"]

    def program(self, length):
        every = [(f"x[{k}:][:5] * 2.0", f"x[{k}:][:5] + 1.0") if self.arrays else (f"x[{k}]", "2.0") for k in range(3)]
        lines = [f"{name} = {self.make.format(*both)}" for name, both in zip("bca", every, strict=True)]
        lines += ["best, least = None, np.inf"]
        for _ in range(length // 3):
            lines += self.statement(1)
        self.loops += 1
        counter = f"k{self.loops}"
        found = self.one([*NAMES, self.mixed(), self.new()])
        lines += [f"for {counter} in range({self.one([3, 8, 20])}):", *("    " + line for line in self.statement(1))]
        lines += [f"    if x[{counter}] < least:", f"        least, best = x[{counter}], {found}"]
        ends = ", ".join(name for name in NAMES if self.draw(2))
        return HEAD + "".join(f"    {line}\n" for line in [*lines, f"return best, least, {ends}"])


def _seen(function, args):
    """Values, types, and which of the lists and dicts that come back are one."""
    try:
        with np.errstate(all="ignore"):
            result = function(*args)
    except Exception as error:
        return type(error).__name__
    numbers = {}
    same = [(place, numbers.setdefault(id(each), len(numbers))) for place, each in placed_containers(result)]
    leaves, structure = flatten(result)
    values = [None if leaf is None else (np.asarray(leaf).dtype, np.asarray(leaf).tolist()) for leaf in leaves]
    return repr((structure, same, values))


def disagreement(text, folder):
    """What differs between the plain and the futurized program ("" if nothing), and whether it was staged."""
    module = load(text, folder)
    futurized = fx.futurize(module.program)
    for seed in (1, 2, 3):
        (x,) = module.inputs(seed)
        x[: 2 * (seed == 3)] = np.nan
        wanted, found = _seen(module.program, (x,)), _seen(futurized, (x,))
        if wanted != found:
            return f"inputs {seed}:\n{found}\nis not\n{wanted}\n{futurized.explain()}", True
    return "", "staged: " in futurized.explain()
