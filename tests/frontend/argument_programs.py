"""Random programs that are given long lists of numbers, and lists of lists, and read, change and return them."""

from table_programs import TableWriter

_INPUTS = """

SEEDS = (1, 3, 4, 6)


def inputs(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=9).round(2)
    w = rng.integers(-4, 6, size=(7, 5))
    x = {2: -abs(x), 3: abs(x)}.get(seed, x)
    n = 40 if seed < 3 else 31 + 2 * seed
    d, e = rng.normal(size=n).round(1).tolist(), rng.integers(-3, 9, size=n + seed % 2).tolist()
    t, g = rng.normal(size=(8, 5)).round(1).tolist(), rng.integers(-3, 9, size=(7, 5)).tolist()
    return x, w, int(rng.integers(1, 4)), d, e, t, g
"""


class ArgumentWriter(TableWriter):
    """``d`` is a list of floats, ``e`` one of ints, ``t`` and ``g`` are tables of these; all are the caller's."""

    RESULTS = (*TableWriter.RESULTS, "d", "e", "t", "g", "d, d", "r", "t[0]", "sorted(d)[1]", "len(d), len(e)")

    def statement(self, deep):
        if not self.draw(6):
            return self.whole_list()
        return super().statement(deep)

    def whole_list(self):
        """Something that goes over a whole list, or makes it longer or shorter."""
        f, swap = self.number, "d[i], d[i + 1] = d[i + 1], d[i]"
        return self.one(
            lambda: ["s = sum(d)"], lambda: ["for v in d:", f"    s = {self.one('s + v', 'max(s, v)', 'v')}"],
            lambda: ["for i in range(len(e)):", "    e[i] = e[i] * 2"], lambda: ["s = max(d) - min(d)"],
            lambda: ["for i, v in enumerate(d):", f"    if {self.test(0)}:", f"        d[i] = {f()}"],
            lambda: [f"d.append({f()})"], lambda: ["e.append(n)"], lambda: ["n = e.pop()"], lambda: ["d.sort()"],
            lambda: ["d.reverse()"], lambda: ["r = d"], lambda: ["r = e[1:]"], lambda: ["s = sum(v * v for v in d)"],
            lambda: ["s = sum(v * q for v, q in zip(d, e))"], lambda: ["p = [[v, v] for v in d]"],
            lambda: ["for i in range(len(d) - 1):", "    if d[i] > d[i + 1]:", f"        {swap}"],
            lambda: ["d[:3] = [s, s, s]"], lambda: ["d, e = e, d"], lambda: ["s = np.array(d).mean()"],
            lambda: ["e = list(e)"], lambda: ["d = d + [s]"], lambda: ["e.insert(0, n)"], lambda: ["t.append([s] * 5)"],
            lambda: ["s = sum(sum(q) for q in t)"], lambda: ["r = [0] * len(d)"], lambda: ["r = sorted(e)"],
            lambda: ["for q in t:", "    for v in q:", "        s += v"], lambda: ["n = e.index(max(e))"],
            lambda: ["for i in range(len(t)):", "    for j in range(len(t[0])):", "        t[i][j] = t[i][j] * s"],
        )  # fmt: skip

    def program(self, length):
        lines = ["n, i, j, s = 2, 0, 0, 0.5", "p, row = [[0, 1, 2]], [0]", "r = e"]
        for _ in range(length):
            lines += self.statement(2)
        body = "".join(f"    {line}\n" for line in lines)
        return f"{self.HEAD}{_INPUTS}\n\ndef program(x, w, k, d, e, t, g):\n{body}{self.returned(self.RESULTS)}"
