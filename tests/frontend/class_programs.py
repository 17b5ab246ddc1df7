"""Random programs whose numbers, arrays and lists are held by objects of small classes, defined outside of the function
or inside: methods that branch, operators, properties, inheritance, and names that are one object or another."""

from kind_programs import _INPUTS, _indented, _Writer


class ClassWriter(_Writer):
    """``A`` and ``B(A)``, with random methods; ``a``, ``b`` and ``objects`` in the program."""

    HEAD = "import numpy as np\nfrom collections import deque\n\n\n"
    RESULTS = (
        "t", "a.s", "b.s", "b.n", "a.v", "list(a.h)", "[o.s for o in objects]", "(a + b).s", "len(b)", "a.p", "b[1]",
        "sum(o.n for o in objects)", "type(a).__name__", "isinstance(a, B)", "objects[0].v + b.v", "b.q", "A.k",
        "a is b",
    )  # fmt: skip

    def real(self, own, deep=2):
        """``own``: the names of what has attributes here."""
        f = lambda: self.real(own, deep - 1)  # noqa: E731
        names = [f"{each}.{name}" for each in own for name in ("s", "n", "p", "v[1]", "v[n % 3]", "v.sum()")]
        leaf = [*(name.replace("n %", f"{own[0]}.n %") for name in names), "y", "y", "0.5", "2.0", "1"]
        if deep <= 0 or self.draw(2):
            return self.one(*leaf)
        return self.one(
            lambda: f"({f()} {self.one('+', '-', '*')} {f()})", lambda: f"abs({f()})", lambda: f"max({f()}, {f()})",
            lambda: f"np.sin({f()})", lambda: f"({f()} if {self.test(own, 0)} else {f()})", lambda: f"({f()} / 2)",
        )  # fmt: skip

    def test(self, own, deep=1):
        return self.one(
            f"{self.real(own, deep)} > {self.real(own, deep)}", f"{self.real(own, deep)} > 0", f"{own[0]}.n % 2 == 0",
            f"len({own[0]}.h) > 2",
        )  # fmt: skip

    def change(self, own):
        me, value = self.one(*own), self.real(own)
        return self.one(
            f"{me}.s = {value}", f"{me}.s += {value}", f"{me}.n += 1", f"{me}.v[{self.draw(3)}] = {value}",
            f"{me}.v = {me}.v * 0.5 + {value}", f"{me}.h.append({value})", f"{me}.p = {value}",
            f"if len({me}.h) > 1: {me}.h.pop()", f"{me}.v += {value}", f"{me}.s, {me}.n = {value}, {me}.n + 2",
            f"setattr({me}, 's', {value})", f"{me}.q = {value}",
        )  # fmt: skip

    def changes(self, own, most=3):
        lines = []
        for _ in range(1 + self.draw(most)):
            kind = self.draw(6)
            if kind < 3:
                lines.append(self.change(own))
            elif kind == 3:
                lines += [f"if {self.test(own)}:", *_indented([self.change(own)])]
            elif kind == 4:
                lines += [f"if {self.test(own)}:", *_indented([self.change(own)]), "else:"]
                lines += _indented([self.change(own)])
            else:
                lines += [f"for i in range({self.one(2, 3)}):", *_indented([self.change(own).replace("y", "i")])]
        return lines

    def method(self, name, *given, own=("self",), back=None):
        lines = [] if back and "property" in name else self.changes(own)
        if not back and self.draw(3) == 0:
            lines += [f"if {self.test(own)}:", *_indented([f"return {self.real(own)}"])]
        lines.append(f"return {back or self.real(own)}")
        head = f"def {name}({', '.join(['self', *given])}):"
        start = [] if "y" in given else ["y = 0.25"]
        return [head, *_indented([*start, *lines])]

    def classes(self):
        held = self.one("[]", "deque()", "deque(maxlen=3)")
        private = self.draw(3) == 0
        a = [
            "class A:", "    k = 0.25", "    q = 1.5", "    def __init__(self, s, n=0):",
            "        self.s, self.n = s, n",
            "        self.v = np.array([0.5, -1.0, 2.0])", f"        self.h = {held}",
            *_indented(self.method("step", "y")),
            *_indented(self.method("__call__", "y")),
            "    @property", "    def p(self):", f"        return self.s * {self.one('2', '0.5', 'self.k', 'self.n')}",
            "    @p.setter", "    def p(self, y):",
            *_indented(_indented([f"if {self.one('y > 0', 'self.n < 3', 'y < self.s')}:", "    self.s = y"])),
            "    def __add__(self, other):",
            f"        return A({self.one('self.s + other.s', 'self.s * other.n')}, self.n)",
            "    def __len__(self):", f"        return {self.one('len(self.h)', '2', 'len(self.v)')}",
            "    def __getitem__(self, i):", f"        return {self.one('self.v[i]', 'self.v[i] + self.s')}",
            "    def __lt__(self, other):", f"        return {self.one('self.s < other.s', 'self.n < other.n')}",
            "    def each(self):", "        for e in self.v:", f"            yield e * {self.one('2', 'self.s', '1')}",
            "    @staticmethod", "    def half(y):", "        return y / 2 if y > 1 else y",
        ]  # fmt: skip
        if private:
            a = [line.replace("self.s", "self.__s").replace("other.s", "other.__s") for line in a]
            a += ["    @property", "    def s(self):", "        return self.__s"]
            a += ["    @s.setter", "    def s(self, y):", "        self.__s = y"]
        if self.draw(2):
            a += _indented(self.method("__bool__", back=self.one("bool(self.s > 0)", "self.n % 2 == 1")))
        b = ["class B(A):"]
        if self.draw(2):
            b += ["    def __init__(self, s):", "        super().__init__(s, 1)", "        self.s = s + 1"]
        if self.draw(2):
            more = self.changes(("self",), 2)
            more += [f"return super().step(y) + {self.real(('self',))}"]
            b += ["    def step(self, y):", *_indented(_indented(more))]
        if self.draw(2):
            b += _indented(self.method("__call__", "y"))
        if self.draw(2):
            b += ["    k = 0.75"]
        return [*a, *(b if len(b) > 1 else ["class B(A):", "    pass"])]

    def use(self):
        me, other = self.one("a", "b", "objects[0]"), self.one("a", "b")
        return self.one(
            f"t = {me}.step(y)", f"t += {me}.step({other}.s)", f"t = {me}(t)", f"t += ({me} + {other}).s",
            f"t += len({me})", f"t += {me}[{self.draw(3)}]", f"t += sum({me}.each())", f"{me}.p = t",
            f"t = t + {me}.half(y)", "t += sum(o.s for o in objects)", f"t += min({me}, {other}).s",
            f"step = {me}.step", "t += step(0.5)", f"t += sum(map({me}, c[:2]))", f"t += getattr({me}, 's')",
            f"if hasattr({me}, 'q'): t += {me}.q", f"{me}.k = 0.5", f"t += {me}.k", lambda: self.change(("a", "b")),
            lambda: self.change(("a", "b")), lambda: self.change(("a",)),
        )  # fmt: skip

    def bind(self):
        return self.one(
            "a, b = b, a", "a = A(y)", "b = B(t)", "objects = [b, a]", "objects.reverse()", "a = objects[-1]",
            "step = b",
        )

    def statement(self, deep=1):
        kind = self.draw(10)
        if kind < 5 or deep < 0:
            return [self.use()]
        if kind == 5:
            return [self.bind()]
        body = _indented([line for _ in range(1 + self.draw(2)) for line in self.statement(deep - 1)])
        if kind < 8:
            test = self.one(lambda: self.test(("a", "b")), "a < b", "t > 0", "y > 0.3", "a", "b")
            lines = [f"if {test}:", *body]
            return [*lines, "else:", *_indented(self.statement(deep - 1))] if self.draw(2) else lines
        return [self.one("for y in c:", "for y in c[:3]:", "for o in objects:"), *body]

    def program(self, length):
        start = ["y, t = c[0], 0.0", "a, b = A(x0), B(c[1])", "objects, step = [a, b], a.step"]
        lines = [line for _ in range(length) for line in self.statement()]
        classes = self.classes()
        body = [*start, *lines]
        local = self.draw(2)
        text = self.HEAD + ("" if local else "".join(f"{line}\n" for line in classes) + "\n\n")
        body = [*classes, *body] if local else body
        program = "def program(x0, c):\n" + "".join(f"{line}\n" for line in _indented(body))
        return text + program + self.returned(self.RESULTS) + _INPUTS
