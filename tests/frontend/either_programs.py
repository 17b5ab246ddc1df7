"""Random loops over numbers that are Python's or NumPy's, None or a text, as the data tells."""

from __future__ import annotations

import random
import re

HEAD = "import numpy as np\n\n"
_STARTS = [
    "0", "0.0", "1", "2", "0.1", "-0.0", "-1e9", "1e30", 'float("inf")', "-np.inf", "x[0]", "True", "None", "None",
    '"s"',
]  # fmt: skip
_NUMBERS = ["1", "2", "0.5", "0.1", "3", "i", "x.sum()", "np.float32(0.3)"]
_LOOPS = [
    ["for i, v in enumerate(x):"],
    ["for i in range(len(x)):", "    v = x[i]"],
    ["i = -1", "while i < len(x) - 1:", "    i += 1", "    v = x[i]"],
]


class Writer:
    """Writes the function ``program(x)`` of a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.starts = {name: self.draw.choice(_STARTS) for name in "abc"}
        self.numbers = [name for name, start in self.starts.items() if start != '"s"']
        self.texts = [name for name in self.starts if name not in self.numbers]
        self.may_be_none = {name for name, start in self.starts.items() if start == "None"}

    def program(self) -> str:
        lines = [f"{name} = {start}" for name, start in self.starts.items()]
        lines += [*self.draw.choice(_LOOPS), *indented(self.block(0))]
        return "\n".join([HEAD, "def program(x):", *indented([*lines, *self.end()])]) + "\n"

    def end(self) -> list[str]:
        name = self.draw.choice(self.numbers or self.texts)
        if name in self.texts or self.draw.random() < 0.6:
            return [self.draw.choice(["return a, b, c", f"return {name}", f"return [b, {name}]"])]
        return [f"if {name} is None:", "    return -1", f"return {name} * 2"]

    def block(self, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.draw.randint(1, 3)):
            lines += self.statement(depth)
            if lines[-1] in ("break", "continue"):
                break
        return lines

    def statement(self, depth: int) -> list[str]:
        kind = self.draw.random()
        if depth < 3 and kind < 0.3:
            lines = [f"if {self.guarded(self.test())}:", *indented(self.block(depth + 1))]
            return lines + (["else:", *indented(self.block(depth + 1))] if self.draw.random() < 0.4 else [])
        if kind < 0.4 and self.may_be_none:
            name = self.draw.choice(sorted(self.may_be_none))
            value = self.draw.choice(["v", "x[i]", "v * 2", "i"])
            return [f"if {name} is None or v < {name}:", f"    {name} = {value}"]
        if kind < 0.5 and self.texts:
            name = self.texts[0]
            if depth < 3 and self.draw.random() < 0.5:
                return [f'if {name} == "t":', *indented(self.block(depth + 1))]
            value = self.draw.choice(['"s"', '"t"'])
            return [f"{name} = {value}"]
        if depth and kind < 0.53:
            return [self.draw.choice(["break", "continue"])]
        return self.assignment()

    def assignment(self) -> list[str]:
        if not self.numbers:
            return ["pass"]
        name, value = self.draw.choice(self.numbers), self.value()
        adds = self.draw.random() < 0.5
        line = f"{name} {self.draw.choice(['+=', '-=', '*='])} {value}" if adds else f"{name} = {value}"
        needed = self.needed(f"{name} {value}" if adds else value)
        return [f"if {needed}:", f"    {line}"] if needed else [line]

    def value(self) -> str:
        one, other = self.operand(), self.operand()
        forms = [
            one, f"{one} + {other}", f"{one} - {other}", f"{one} * {other}", f"max({one}, {other})",
            f"min({one}, {other})", f"abs({one})", f"-{one}", f"{one} / 3",
        ]  # fmt: skip
        return self.draw.choice(forms)

    def operand(self) -> str:
        return self.draw.choice([*self.numbers, *self.numbers, "v", "v", "x[i]", self.draw.choice(_NUMBERS)])

    def test(self) -> str:
        forms = [
            f"v > {self.draw.choice(['0', '0.3', '-0.5', 'i'])}", f"i % {self.draw.choice('23')} == 0",
            f"{self.operand()} {self.draw.choice(['<', '>', '<=', '==', '!='])} {self.operand()}",
        ]  # fmt: skip
        return self.draw.choice(forms)

    def guarded(self, text: str) -> str:
        return " and ".join(filter(None, [self.needed(text), text]))

    def needed(self, text: str) -> str:
        """That the names in it are no None."""
        used = [name for name in sorted(self.may_be_none) if re.search(rf"(?<![\w.]){name}(?!\w)", text)]
        return " and ".join(f"{name} is not None" for name in used)


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
