"""Random programs over tables (lists of lists) and lists whose numbers are of several types, by data.

Which of the types a number has, and which list a name means, shows in what is computed and returned.
"""

from kind_programs import _indented, _Writer

_INPUTS = """

def inputs(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=9).round(2)
    w = rng.integers(-4, 6, size=(7, 5))
    x = {2: -abs(x), 3: abs(x)}.get(seed, x)
    return x, w, int(rng.integers(1, 4))
"""


class TableWriter(_Writer):
    """``d`` is a list of numbers of several types, ``e`` one of Python's ints, ``t`` and ``g`` are tables."""

    HEAD = "import numpy as np\n\n\nINF = float('inf')\n"
    RESULTS = (
        "d", "e", "t", "g", "d[2]", "t[1][2]", "t[-1]", "len(t) + len(t[0])", "s", "n", "min(d)", "max(e)", "sum(e)",
        "np.array(e)", "np.array(t)", "np.array(d)", "[row[1] for row in t]", "sum(t[2])", "d[-1] * np.float32(2)",
        "sum(d)", "[max(row) for row in g]", "np.sum(g)", "list(t[0])", "t[0][1:3]", "s * np.float32(1)", "d[0] < d[1]",
        "g[n % 4]", "sorted(e)", "e.index(e[1])", "3 in e", "np.array(d, float)", "[v for v in d]", "(s, n)", "d == e",
        "np.sum(t, axis=0)", "sum(map(sum, g))", "[r[:] for r in t]", "t[1] + g[0]", "isinstance(d[1], float)",
        "tuple(g[1])", "p", "p[-1]", "len(p)", "[sum(q) for q in p]", "np.array(p)", "row",
    )  # fmt: skip

    def place(self, deep=1):
        """A position below 5, or from the end."""
        at = lambda: self.place(deep - 1)  # noqa: E731
        rare = ("n", "i") if not self.draw(6) else ()

        def leaf():
            return self.one("0", "1", "i % 5", "j % 5", "n % 5", "k", "-1", "i % 4", "2", "int(x[0] > 0)", *rare)

        if deep <= 0 or not self.draw(3):
            return leaf()
        return self.one(
            lambda: f"({at()} + {at()}) % 5", lambda: f"abs(w[i % 7, {self.one('0', '1', 'j % 5')}]) % 5",
            lambda: f"int(abs(x[{self.one('i % 9', 'j % 9', '2')}]) * 2) % 5",
            lambda: f"-1 - {self.one('i % 5', 'j % 5', '0')}",
        )  # fmt: skip

    def row(self):
        return self.one(
            "i % 4", "j % 4", "n % 4", "0", "1", "-1", "3", "abs(w[j % 7, 0]) % 4", "(i + 1) % 4", "i % 4 - 1"
        )  # fmt: skip

    def entry(self):
        return self.one(
            lambda: f"d[{self.place()}]", lambda: f"e[{self.place()}]", lambda: f"r[{self.place()}]",
            *[lambda: f"t[{self.row()}][{self.place()}]"] * 2, lambda: f"g[{self.row()}][{self.place()}]",
        )  # fmt: skip

    def number(self, deep=2):
        f = lambda: self.number(deep - 1)  # noqa: E731
        numbers = "0", "1", "INF", "0.5", "x[i % 9]", "w[i % 7, j % 5]", "s", "k", "n", "i"
        leaf = lambda: self.one(self.entry, self.entry, *numbers)  # noqa: E731
        if deep <= 0 or not self.draw(3):
            return leaf()
        return self.one(
            lambda: f"({f()} {self.one('+', '-', '*')} {f()})", lambda: f"({f()} + {f()})", lambda: f"abs({f()})",
            lambda: f"{self.one('min', 'max')}({f()}, {f()})", lambda: f"({f()} / 2)", lambda: f"(1 + {f()})",
            lambda: f"({f()} if {self.test(deep - 1)} else {f()})", lambda: f"min({f()}, {f()}, {f()})",
            lambda: f"({f()} // 2)", lambda: f"float({f()})", lambda: f"(-{f()})",
        )  # fmt: skip

    def whole(self):
        return self.one(
            "0", "1", "k", "i", "e[j % 5]", "e[i % 5] + 1", "int(x[i % 9])", "n", "len(d)", "g[i % 4][j % 5] + 1"
        )  # fmt: skip

    def test(self, deep=1):
        f = lambda: self.number(max(deep, 0))  # noqa: E731
        return self.one(
            lambda: f"{f()} {self.one('<', '>', '<=', '==', '!=')} {f()}", lambda: f"{self.entry()} < {self.entry()}",
            lambda: f"x[{self.one('i', 'j')} % 9] > 0", lambda: f"w[i % 7, j % 5] > {self.one('0', '1')}",
            lambda: f"{self.entry()} != INF", lambda: f"{self.whole()} > 1",
            lambda: f"(x[i % 9] > 0 and {self.test(deep - 1)})" if deep > 0 else "not x[1] > 0",
        )  # fmt: skip

    def block(self, deep):
        return _indented(line for _ in range(1 + self.draw(3)) for line in self.statement(deep - 1))

    def statement(self, deep):
        f, kind = self.number, self.draw(16 if deep > 0 else 11)
        if kind <= 1:
            return [f"d[{self.place()}] {self.one('=', '=', '+=')} {f()}"]
        if kind == 2:
            return [f"e[{self.place()}] {self.one('=', '+=')} {self.whole()}"]
        if kind <= 4:
            return [f"t[{self.row()}][{self.place()}] {self.one('=', '=', '+=', '-=')} {f()}"]
        if kind == 5:
            return [f"g[{self.row()}][{self.place()}] {self.one('=', '+=')} {self.whole()}"]
        if kind == 6:
            return [f"s = {f()}"]
        if kind == 7:
            return [f"n = {self.whole()}"]
        if kind == 8:
            return [self.one(f"r = t[{self.row()}]", f"r = g[{self.row()}]", "r = e", f"r = list(t[{self.row()}])")]
        if kind == 9:
            return [self.one(
                f"r[{self.place()}] = {self.whole()}", "g[i % 4].reverse()", "t[0].sort()", "t[1][1:3] = [0, s]",
                f"g[{self.row()}] = [0, 1, 2, 3, n]",
            )]  # fmt: skip
        if kind == 10:
            a, b = f"t[{self.row()}][{self.place()}]", f"t[{self.row()}][{self.place()}]"
            if not self.draw(4):
                a, b = f"t[{self.row()}]", f"t[{self.row()}]"
                return [self.one(*[f"{a}, {b} = {b}, {a}"] * 2, f"{a} = {b}", "t.reverse()")]
            exchanged = f"{a}, {b} = {b}, {a}", f"s, n = {f()}, {self.whole()}"
            return [self.one(*exchanged * 3, "t, g = g, t", "e, d = d, e")]
        if kind == 11:
            otherwise = ["else:", *self.block(deep)] if self.draw(2) else []
            return [f"if {self.test()}:", *self.block(deep), *otherwise]
        if kind == 15:
            return self.rows()
        if kind == 14:
            head = self.one(
                "for r in t:", "for i, r in enumerate(g):", "for r, j in zip(t, e):", "for v in d:",
                "for i, v in enumerate(t[1]):",
            )  # fmt: skip
            return [head, *self.block(deep)]
        name = self.one("i", "j")
        head = self.one(
            f"for {name} in range({self.one('4', '5', '9', '12', 'len(x)')}):", f"for {name} in range(1, 40):",
            f"for {name}, v in enumerate(x):",
        )  # fmt: skip
        leave = [f"    if {self.test()}:", f"        {self.one('break', 'continue')}"]
        return [head, *self.block(deep), *leave * (not self.draw(4))]

    def rows(self):
        """A table that is made row by row."""
        name, late = self.one("i", "j"), self.draw(5)
        row = self.one(
            lambda: [f"row = [{self.number(1)}] * 3"],
            lambda: ["row = []", "for k2 in range(5):", f"    row.append({self.number()})"],
            lambda: ["row = [0.0] * 4", "for k2 in range(4):", f"    row[k2] = {self.number()}"],
            lambda: [f"row = [{self.number(1)} for v in x]"], lambda: ["row = list(e)"],
        )  # fmt: skip
        after = [["row[0] += 1"], ["p[-1][0] += 1"], [f"s = p[{self.row()}][0]"], [], []][late]
        put = self.one("p.append(row)", "p.append(row)", "p.append([0] * 3)", "p += [row]")
        start = self.one("p = []", "p = []", "p = [[1] * 3]")
        back = self.one([], [], ["t = p"], [f"p[{self.row()}][1] = {self.number()}"])
        tested = [f"if {self.test()}:", f"    {put}"] if not self.draw(4) else [put]
        return [start, f"for {name} in range({self.one('4', '9', '30')}):", *_indented([*row, *tested, *after]), *back]

    def program(self, length):
        fill = lambda: self.one("0", "INF", "0.0", "1", "x[0]", "k")  # noqa: E731
        row = self.one(f"[{fill()}] * 5", f"[{fill()} for _ in range(5)]")
        lines = [
            "n, i, j, s = 2, 0, 0, 0.5", f"d = [{fill()}] * {self.one('5', '5', '12')}",
            "e = [0] * 5" if self.draw(3) else "e = [k for _ in range(5)]",
            f"t = [{row} for _ in range({self.one('4', '6')})]",
            "p, row = [[0, 1, 2]], [0]",
            f"g = [[{self.one('0', '1', 'k', 'i + j')} for j in range(5)] for i in range(4)]", "r = e",
        ]  # fmt: skip
        for _ in range(length):
            lines += self.statement(2)
        program = "\n\ndef program(x, w, k):\n" + "".join(f"{line}\n" for line in _indented(lines))
        return self.HEAD + _INPUTS + program + self.returned(self.RESULTS)
