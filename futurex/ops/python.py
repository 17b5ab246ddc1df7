"""What Python itself does with values: conversions to Python scalars and printing."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op, record

_KINDS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_DTYPES = {
    "b": np.dtype(bool),
    "i": np.dtype(np.int64),
    "u": np.dtype(np.int64),
    "f": np.dtype(float),
    "c": np.dtype(complex),
}


def _python_scalar_rule(g: Node, out: Node, x: Node, kind: str) -> tuple[Node | None]:
    return (apply("cast", g, dtype=x.dtype) if kind in "fc" and x.dtype.kind in "fc" else None,)


op(
    "python_scalar", lambda x, kind: _KINDS[kind](x), aval=lambda x, kind: Aval((), _DTYPES[kind], weak=True),
    vjp=_python_scalar_rule, batch=batching.python_scalar, fails=True,
    samples=lambda rng: [
        Sample((np.float64(1.5),), {"kind": "f"}, order=1),
        Sample((np.float64(1.5),), {"kind": "i"}, order=0),
        Sample((np.bool_(True),), {"kind": "b"}, order=0),
    ],
)  # fmt: skip


def _element(value: Any, dtype: Any) -> Any:
    holder = np.zeros((), dtype)
    holder[()] = value[()] if isinstance(value, np.ndarray) else value
    return holder[()]


op(
    "element", _element, aval=lambda value, dtype: Aval((), np.dtype(dtype)), fails=True, factors=" -> ",
    vjp=lambda g, out, value, dtype: (None,),
    samples=lambda rng: [
        Sample((np.int64(7),), {"dtype": np.dtype(np.int8)}, order=0),
        Sample((2.5,), {"dtype": np.dtype(np.uint8)}, order=0),
    ],
)  # fmt: skip


def may_refuse(source: Aval, target: np.dtype[Any]) -> bool:
    """Does NumPy look at the value of such a scalar before it becomes an element? Then it goes by way of Python's ints.

    Arrays without dimensions are cast like all arrays: what does not fit wraps.
    """
    if source.weak and source.dtype.kind == "c":
        return target.kind in "iuf"
    return target.kind in "iu" and source.dtype.kind in "iufc" and not np.can_cast(source.dtype, target, "safe")


_COMPLEX = (complex, np.complexfloating)


def _scalar_power(x: Any, y: Any) -> Any:
    """``x ** y`` of scalars, which NumPy and Python compute with another function than arrays."""
    x, y = (value[()] if isinstance(value, np.ndarray) else value for value in (x, y))
    result = x**y
    if isinstance(result, _COMPLEX) and not isinstance(x, _COMPLEX) and not isinstance(y, _COMPLEX):
        raise ValueError(
            "a negative Python float to a fractional power is complex; take np.power for NaN, or complex(x)"
        )
    return result


def _scalar_power_aval(x: Aval, y: Aval) -> Aval:
    return record("power").infer((x, y), (None, None), {})  # type: ignore[return-value]


def _scalar_power_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((np.float64(rng.uniform(0.5, 2)), np.float64(rng.uniform(0.5, 2)))),
        Sample((np.float64(rng.uniform(0.5, 2)), 2)),
        Sample((np.float32(1.5), 3), order=0),
        Sample((np.int64(3), np.int64(4)), order=0),
        Sample((1.5, 2.5), order=0),
    ]


op(
    "scalar_power", _scalar_power, aval=_scalar_power_aval, vjp=record("power").vjp, fails=True,
    samples=_scalar_power_samples,
    cost=lambda x, y: Cost(20.0, 24.0),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Value:
    """A value that a text or an exception waits for, as Python has it: ``number``, NumPy ``scalar`` or ``array``.

    A ``spec`` with ``conversion`` "%" is that of the operator ``%``.
    """

    kind: str
    conversion: str = ""
    spec: str = ""

    def of(self, value: Any) -> Any:
        """The value as the user's program would have it."""
        array = np.asarray(value)
        return array if self.kind == "array" else array[()] if self.kind == "scalar" else array.item()

    def text(self, value: Any) -> str:
        value = self.of(value)
        if self.conversion == "%":
            return self.spec % (value,)
        converted = {"": value, "s": str, "r": repr, "a": ascii}[self.conversion]
        return format(converted(value) if self.conversion else value, self.spec)

    def __repr__(self) -> str:
        """Text that printed graphs are executed with."""
        return f"ops.python.Value{dataclasses.astuple(self)!r}"


@dataclass(frozen=True, repr=False)
class Text:
    """Text with values in it, as an f-string has them."""

    parts: tuple[str | Value, ...]

    def fill(self, values: Iterator[Any]) -> str:
        return "".join(part if isinstance(part, str) else part.text(next(values)) for part in self.parts)

    def __repr__(self) -> str:
        """Text that printed graphs are executed with."""
        return f"ops.python.Text({self.parts!r})"

    def __stable__(self) -> str:
        return f"Text{[part if isinstance(part, str) else dataclasses.astuple(part) for part in self.parts]!r}"


def filled(parts: Iterable[Any], values: Iterator[Any]) -> list[Any]:
    """Parts with their values: None takes a value as it is."""
    out = []
    for part in parts:
        if part is None:
            out.append(next(values))
        elif isinstance(part, Value):
            out.append(part.of(next(values)))
        else:
            out.append(part.fill(values) if isinstance(part, Text) else part)
    return out


def _scalar_compare(x: Any, y: Any, operator: str) -> Any:
    x, y = (value[()] if isinstance(value, np.ndarray) else value for value in (x, y))
    return np.bool_(_ORDERS[operator](x, y))


_ORDERS = {"less": lt, "less_equal": le, "greater": gt, "greater_equal": ge}

op(
    "scalar_compare", _scalar_compare, aval=lambda x, y, operator: Aval((), np.dtype(bool)), factors=", -> ",
    samples=lambda rng: [Sample((np.complex128(1 + 2j), np.complex128(1 + 3j)), {"operator": "less"}, order=0)],
)  # fmt: skip


def _scalar_absolute(x: Any) -> Any:
    return abs(x[()] if isinstance(x, np.ndarray) else x)


op(
    "scalar_absolute", _scalar_absolute, aval=lambda x: Aval((), np.zeros((), x.dtype).real.dtype, x.weak),
    vjp=record("absolute").vjp, factors=" -> ",
    samples=lambda rng: [Sample((np.complex128(0.6 - 0.8j),), order=1), Sample((1 - 5j,), order=0)],
)  # fmt: skip


def _scalar_multiply(x: Any, y: Any) -> Any:
    """``x * y`` of complex scalars, whose sums and products are rounded one by one; arrays fuse them."""
    x, y = (value[()] if isinstance(value, np.ndarray) else value for value in (x, y))
    return x * y


def _scalar_divide(x: complex, y: complex) -> complex:
    """``x / y`` of Python's complex numbers, or of its ints: NumPy would round these to floats first. A check that ints
    are not divided by zero stands beside it."""
    return math.nan if type(y) is int and not y else x / y


op(
    "scalar_multiply", _scalar_multiply, aval=lambda x, y: record("multiply").infer((x, y), (None, None), {}),
    vjp=record("multiply").vjp, factors=", -> ",
    samples=lambda rng: [
        Sample((np.complex128(0.6 - 0.8j), np.complex128(1.5 + 2j)), order=1),
        Sample((np.complex64(0.6 - 0.8j), 1.5), order=0),
        Sample((0.3 + 0.1j, 2.5 - 1j), order=0),
    ],
)  # fmt: skip
op(
    "scalar_divide", _scalar_divide, aval=lambda x, y: record("divide").infer((x, y), (None, None), {}),
    vjp=record("divide").vjp, factors=", -> ", fails=lambda node: node.dtype.kind == "c",
    samples=lambda rng: [
        Sample((np.complex128(0.6 - 0.8j), np.complex128(1.5 + 2j)), order=1),
        Sample((0.3 + 0.1j, 2.5 - 1j), order=0),
        Sample((779722162146334734, 3), order=0),
    ],
)  # fmt: skip


def _python_complex_rule(g: Node, out: Node, x: Node, y: Node) -> tuple[Node, Node]:
    return apply("real", g), apply("imag", apply("conjugate", g))


op(
    "python_complex", lambda x, y: complex(float(x), float(y)), aval=lambda x, y: Aval((), _DTYPES["c"], weak=True),
    vjp=_python_complex_rule, factors=", -> ", fails=True,
    samples=lambda rng: [Sample((np.float64(0.5), np.float64(-2)), order=1), Sample((0.5, 2), order=0)],
)  # fmt: skip


class _Printed(threading.local):
    count = 0


printed = _Printed()
"""How many characters graphs have printed in this thread."""


def _print(*values: Any, parts: tuple[str | Text | None, ...], sep: str, end: str) -> Any:
    text = sep.join(map(str, filled(parts, iter(values)))) + end
    print(text, end="")
    printed.count += len(text)
    return np.True_


op(
    "print", _print, aval=lambda *values, parts, sep, end: Aval((), np.dtype(bool)), effect=True, acts=True,
    samples=lambda rng: [Sample((np.arange(3),), {"parts": ("x =", None), "sep": " ", "end": "\n"}, order=0)],
)  # fmt: skip
