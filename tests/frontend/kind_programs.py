"""Random programs over numbers that are Python's in one run or round and NumPy's in another, by data.

Which of the two a number is shows in its type, in the precision of what is computed with it and in what is raised.
"""

_INPUTS = """

def inputs(seed):
    rng = np.random.default_rng(seed)
    c = rng.normal(size={4: 30}.get(seed, 6)).round(3)
    c = {2: -abs(c), 3: abs(c)}.get(seed, c)
    return round(float(abs(rng.normal())), 3), c
"""


class _Writer:
    """``draw(n)`` gives a number below n, from a seed or from Hypothesis."""

    def __init__(self, draw):
        self.draw, self.loops = draw, 0

    def one(self, *choices):
        choice = choices[self.draw(len(choices))]
        return choice() if callable(choice) else choice

    def returned(self, results):
        left = [results[self.draw(len(results))] for _ in range(1 + self.draw(3))]
        return f"    return {', '.join(left)}\n"


def _indented(lines):
    return ["    " + line for line in lines]


class KindWriter(_Writer):
    """Numbers in names, tuples, dicts and objects, bound in branches and rounds and by a function with two returns."""

    HEAD = "import numpy as np\n\n\nclass Box:\n    pass\n"
    RESULTS = (
        "t", "u", "a", "q", "d", "o.w", "n", "m", "s32", "[t, u]", "t + u", "f'{t:.3f}'", "np.float32(2) * a",
        "(t, n)", "g(t, u)", "[a, q[0]]", "np.array([t, a])", "max(t, u)", "isinstance(t, np.generic)", "t > 0",
    )  # fmt: skip

    def real(self, deep=2):
        f, i, leaf = lambda: self.real(deep - 1), lambda: self.whole(deep - 1), lambda: self.one(
            "v", "x0", "0.0", "1.5", "t", "u", "a", "q[0]", "d['a']", "o.w", "c[1]", "s32", "2.0"
        )  # fmt: skip
        if deep <= 0 or not self.draw(3):
            return leaf()
        return self.one(
            lambda: f"({f()} {self.one('+', '-', '*')} {f()})", lambda: f"({f()} {self.one('+', '-', '*')} {f()})",
            lambda: f"({f()} / {self.one('2', '2.0')})", lambda: f"({f()} / (1 + abs({f()})))",
            lambda: f"{self.one('min', 'max')}({f()}, {f()})", lambda: f"abs({f()})", lambda: f"float({f()})",
            lambda: f"np.{self.one('sqrt', 'exp', 'float64')}({self.one('abs', 'float')}({f()}) % 3)",
            lambda: f"({f()} if {self.test(deep - 1)} else {f()})", lambda: f"g({f()}, {f()})", lambda: f"({f()} ** 2)",
            lambda: f"round({f()}, 2)", lambda: f"(-{f()})", lambda: f"sum(({f()}, {f()}))", lambda: f"({f()} + {i()})",
            lambda: f"np.where({self.test(deep - 1)}, {f()}, {f()})", lambda: f"c[{i()} % 6]",
        )  # fmt: skip

    def whole(self, deep=2):
        i = lambda: self.whole(deep - 1)  # noqa: E731
        leaf = lambda: self.one("n", "k", "0", "3", "len(c)", "np.int64(2)", "m", "int(v)", "np.argmax(c)")  # noqa: E731
        if deep <= 0 or not self.draw(3):
            return leaf()
        return self.one(
            lambda: f"({i()} {self.one('+', '-', '*', '//', '%')} {self.one('3', '2', 'np.int64(3)')})",
            lambda: f"({i()} + {i()})", lambda: f"({i()} if {self.test(deep - 1)} else {i()})",
            lambda: f"{self.one('min', 'max')}({i()}, {i()})", lambda: f"abs({i()})",
            lambda: f"int({self.real(deep - 1)} > 0.2)",
        )  # fmt: skip

    def test(self, deep=1):
        kind = self.one("float", "np.floating", "np.generic")
        return self.one(
            lambda: f"{self.real(deep - 1)} {self.one('<', '>', '<=', '>=')} {self.real(deep - 1)}",
            lambda: f"{self.whole(deep - 1)} {self.one('<', '==', '>')} {self.whole(deep - 1)}",
            lambda: f"{self.one('v', 't', 'c[0]')} > 0",
            lambda: f"isinstance({self.one('t', 'u', 'a', 'v', 'q[0]', 'o.w')}, {kind})",
            lambda: f"(v > 0 and {self.test(deep - 1)})" if deep > 0 else "not t < 1",
        )

    def block(self, deep):
        return _indented(line for _ in range(1 + self.draw(3)) for line in self.statement(deep - 1))

    def statement(self, deep):
        f = self.real
        kind = self.draw(12 if deep > 0 else 9)
        if kind == 0:
            return [f"{self.one('t', 'u', 'a')} {self.one('=', '+=', '*=')} {f()}"]
        if kind == 1:
            return [f"{self.one('t', 'u', 'a')} = {f()}"]
        if kind == 2:
            return [f"{self.one('n', 'm')} = {self.whole()}"]
        if kind == 3:
            return [f"q = ({f()}, {f()})"]
        if kind == 4:
            return [f"{self.one(repr('a'), repr('b')).join(('d[', ']'))} = {f()}"]
        if kind == 5:
            return [f"o.w = {f()}"]
        if kind == 6:
            return [self.one(f"t, u = {f()}, {f()}", f"a = q[{self.draw(2)}]")]
        if kind == 7:
            return [f"w = [{f()} for z in c[:3]]", f"t = w[{self.one('0', '-1', 'k % 3')}]"]
        if kind == 8:
            return [f"s32 = np.float32(1) * {self.one('t', 'a', 'u', 'o.w', 'q[1]')}"]
        if kind == 9:
            otherwise = ["else:", *self.block(deep)] if self.draw(2) else []
            return [f"if {self.test()}:", *self.block(deep), *otherwise]
        if kind == 10:
            head = self.one("for v in c:", "for k, v in enumerate(c):", "for k in range(4):", "for v in c[::2]:")
            leave = [f"    if {self.test()}:", f"        {self.one('break', 'continue', 'return t, q')}"]
            return [head, *self.block(deep), *leave * (not self.draw(3))]
        loops = self.loops = self.loops + 1
        return [
            f"j{loops} = 0", f"while j{loops} < 5 and {self.test()}:", f"    j{loops} += 1", *self.block(deep)
        ]  # fmt: skip

    def program(self, length):
        lines = ["n, k, m, t, u, a, v = 2, 0, np.int64(1), x0, c[0], 0.5, c[2]"]
        lines += ["q, d, o, s32 = (x0, c[1]), {'a': 1.0, 'b': c[0]}, Box(), np.float32(0.5)"]
        lines += [f"o.w = {self.one('0.0', 'c[3]', 'x0')}"]
        for _ in range(length):
            lines += self.statement(2)
        helper = (
            f"\n\ndef g(y, z):\n    if {self.one('y > z', 'y > 0', 'z > 1')}:\n"
            f"        return {self.one('y', 'z', '0.5', 'y * z', 'float(y)')}\n"
            f"    return {self.one('y', 'z', '0.25', 'y + z', 'np.sqrt(abs(z))', 'np.float64(z)')}\n"
        )
        program = "\n\ndef program(x0, c):\n" + "".join(f"{line}\n" for line in _indented(lines))
        return self.HEAD + _INPUTS + helper + program + self.returned(self.RESULTS)


class GrowingWriter(_Writer):
    """Lists that grow and shrink by data, of such numbers or of pairs of them."""

    RESULTS = (
        "xs", "xs[-1]", "xs[0]", "len(xs)", "t", "n", "s", "ys", "np.array(xs)", "xs[1:]", "zs[-1]", "len(ys)",
        "[x for x in xs]", "f'{xs[-1]}'", "tuple(xs)", "{'a': xs[-1]}", "sum(ys)",
    )  # fmt: skip
    OF_NUMBERS = ("sum(xs)", "max(xs)", "[x * 2 for x in xs]", "xs[0] / 3", "t in xs", "np.float32(1) * xs[0]")
    OF_PAIRS = ("xs[0][0]", "[x for x, y in xs]", "list(zip(*xs))", "np.float32(1) * xs[0][0]")

    def __init__(self, draw):
        super().__init__(draw)
        self.pairs, self.wholes, self.heaps = not self.draw(3), not self.draw(4), not self.draw(3)

    def real(self):
        last, first = ("xs[-1][0]", "xs[0][0]") if self.pairs else ("xs[-1]", "xs[0]")
        return self.one(
            "v", "v * 2", "x0", "0.0", "1.5", "float(v)", "t", "t + v", "t * 0.5", last, f"{first} + v", "min(v, 0.5)",
            "v if v > 0.3 else 0.25", "abs(v)", "np.sqrt(abs(v))", f"max({first}, 0.1)", "ys[-1] if ys else 0.5",
        )  # fmt: skip

    def whole(self):
        last = "xs[-1][1]" if self.pairs else "xs[-1]" if self.wholes else "len(ys)"
        return self.one("n", "0", "1", "int(v * 3)", "np.int64(v * 4)", "k", last, "len(xs)", "n if v > 0 else 7")

    def entry(self):
        if self.pairs:
            return self.one(lambda: f"({self.real()}, {self.whole()})", "xs[-1]", "xs[0]")
        return self.whole() if self.wholes else self.real()

    def anew(self):
        """The list is another one from here on."""
        entry = self.entry
        return self.one(
            "xs = xs[-3:]", "xs = list(xs)", "xs = xs.copy()", "xs = [x for x in xs]", "xs = zs + xs[1:]",
            lambda: f"xs = xs + [{entry()}]", lambda: f"xs = [{entry()}] * 2", lambda: f"xs = [{entry()} for v in c]",
        )  # fmt: skip

    def number(self):
        return self.whole() if self.wholes and not self.pairs else self.real()

    def statement(self, deep):
        kind = self.draw(13 if deep else 11)
        if self.heaps and not self.draw(4):
            push = f"heapq.{self.one('heappush', 'heappush', 'heappushpop', 'heapreplace')}(xs, {self.entry()})"
            return self.one([push], ["if len(xs) > 1:", f"    {'t, n' if self.pairs else 't'} = heapq.heappop(xs)"],
                            ["heapq.heapify(xs)"])  # fmt: skip
        popped = "t, n" if self.pairs else "t"
        if kind < 2:
            return [f"xs.append({self.entry()})"]
        if kind == 2:
            return [f"ys.append({self.number()})"]
        if kind == 3:
            return ["if len(xs) > 1:", f"    {popped} = xs.pop({self.one('', '', '0')})"]
        if kind == 4:
            return [f"xs[{self.one('0', '-1', 'len(xs) - 1')}] = {self.entry()}"]
        if kind == 5:
            return [self.one(lambda: f"xs.insert({self.draw(2)}, {self.entry()})", "xs, zs = zs, xs", self.anew)]
        if kind == 6:
            return [f"t = {self.number()}"]
        if kind == 7:
            asked = f"isinstance({'xs[-1][0]' if self.pairs else 'xs[-1]'}, np.generic)"
            return [f"n += {self.one('1', 'k', 'len(xs)', 'isinstance(t, float)', asked)}"]
        if kind == 8:
            return [f"xs.extend([{self.entry()}, {self.entry()}])"]
        if kind == 9:
            return self.one(["xs.reverse()"], ["ys = list(ys)"], ["if ys:", "    t = ys.pop()"])
        if kind == 10:
            asked = "y > 1" if self.pairs else "len(ys) > 1"
            return [f"for {'x, y' if self.pairs else 'x'} in xs:", f"    t = x if {asked} else t"]
        first = "xs[0][0]" if self.pairs else "xs[0]"
        test = self.one("v > 0", "v < -0.5", f"{first} > 0.4", "len(xs) < 5", "t > 0.2", "k % 2 == 0", "n > 3", "ys")
        otherwise = ["else:", *_indented(self.statement(deep - 1))] if self.draw(2) else []
        return [f"if {test}:", *_indented(self.statement(deep - 1)), *otherwise]

    def program(self, length):
        number = ("0", "1", "np.int64(2)") if self.wholes and not self.pairs else ("x0", "0.0", "c[0]", "1.0")
        first = f"({self.one(*number)}, {self.one('0', '1', 'np.int64(2)')})" if self.pairs else self.one(*number)
        lines = [f"n, s, k, t = 2, 0, 0, {self.one(*number)}", "v = c[0]", f"xs, zs = [{first}], [{first}]"]
        lines += [f"ys = {self.one('[]', f'[{number[0]}]')}"]
        lines += [self.anew()] * (not self.draw(3))
        for _ in range(1 + self.draw(2)):
            head, *rest = self.one(
                ("for v in c:",), ("for k, v in enumerate(c):",),
                ("while len(xs) < 9 and k < 8:", "    v = c[k % 6]", "    k += 1"),
            )  # fmt: skip
            body = [line for _ in range(1 + length // 2) for line in self.statement(2)]
            lines += [head, *rest, *_indented(body)]
        results = self.RESULTS + (self.OF_PAIRS if self.pairs else self.OF_NUMBERS)
        program = "\n\ndef program(x0, c):\n" + "".join(f"{line}\n" for line in _indented(lines))
        return "import heapq\n\nimport numpy as np\n" + _INPUTS + program + self.returned(results)
