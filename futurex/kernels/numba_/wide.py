"""LLVM IR of one element as that of a whole vector of elements: the same words with other types."""

from __future__ import annotations

import re

from futurex.kernels.numba_.channels import splat
from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.scalar import Body, Dtype, register_type

_WORD = re.compile(r"\b(?P<kind>float|i1|i8|i32)\b|(?<=[ ,])(?P<number>-?[0-9][0-9.e+]*|0x[0-9A-F]+|true|false)(?=,|$)")


class Wide(Body):
    """Collects instructions on vectors of ``lanes`` elements, given those on one."""

    def __init__(self, code: Code, lanes: int) -> None:
        super().__init__()
        self.code, self.lanes = code, lanes

    def kind(self, element: str) -> str:
        return f"<{self.lanes} x {element}>"

    def emit(self, instruction: str) -> str:
        element = ""

        def widened(found: re.Match[str]) -> str:
            nonlocal element
            element = found["kind"] or element
            return splat(self.kind(element), found["number"]) if found["number"] else self.kind(element)

        return self.code.do(_WORD.sub(widened, instruction))

    def constant(self, element: str, value: str) -> str:
        """A register that holds the same number everywhere."""
        kind = self.kind(element)
        return self.code.do(f"bitcast {kind} {splat(kind, value)} to {kind}")

    def intrinsic(self, name: str, dtype: Dtype, value: str) -> str:
        kind = self.kind(register_type(dtype))
        function = f"@llvm.{name}.v{self.lanes}f{dtype.itemsize * 8}"
        self.intrinsics.add(f"declare {kind} {function}({kind})")
        return self.code.do(f"call {kind} {function}({kind} {value})")
