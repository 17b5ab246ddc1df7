"""CUDA C++ of one element: each operation as NumPy's loop of the same dtype computes it.

Integers wrap around, which C++ leaves undefined for signed ones, so they are computed unsigned. Integer division is
guarded as NumPy guards it. Products and sums must not become one rounding: compile with ``--fmad=false``. Functions
such as ``exp`` are CUDA's own, within one or two units in the last place (CUDA C++ Programming Guide, appendix on
mathematical functions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Dtype = np.dtype[Any]

_INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long long"}


def c_type(dtype: Dtype) -> str:
    """The C++ type of one element; booleans are bytes of their own.

    >>> c_type(np.dtype("uint16")), c_type(np.dtype("float32")), c_type(np.dtype(bool))
    ('unsigned short', 'float', 'bool')
    """
    if dtype.kind == "b":
        return "bool"
    if dtype.kind == "f":
        return "float" if dtype.itemsize == 4 else "double"
    return f"{'signed' if dtype.kind == 'i' else 'unsigned'} {_INTEGERS[dtype.itemsize]}"


def cast(value: str, source: Dtype, target: Dtype) -> str:
    """NumPy's conversion; floats do not become integers here."""
    if source == target:
        return value
    return f"({value} != 0)" if target.kind == "b" else f"({c_type(target)})({value})"


def literal(value: Any, dtype: Dtype) -> str:
    """A value as C++ text: identities of reductions, and nothing that differs from run to run."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "f":
        if not np.isfinite(value):
            return f"({c_type(dtype)})({'-' if value < 0 else ''}INFINITY_)"
        return f"({c_type(dtype)})({float(value)!r})"
    if dtype.itemsize < 8:
        return f"({c_type(dtype)})({int(value)}LL)"
    return f"({c_type(dtype)})(0x{int(value) & (2**64 - 1):x}ULL)"


PRELUDE = r"""
#define INFINITY_ __longlong_as_double(0x7ff0000000000000LL)
template <typename T> struct Unsigned { typedef unsigned int type; };
template <> struct Unsigned<signed long long> { typedef unsigned long long type; };
template <> struct Unsigned<unsigned long long> { typedef unsigned long long type; };
template <typename T> __device__ inline T wrap_add(T a, T b) {
    typedef typename Unsigned<T>::type U; return (T)((U)a + (U)b); }
template <typename T> __device__ inline T wrap_subtract(T a, T b) {
    typedef typename Unsigned<T>::type U; return (T)((U)a - (U)b); }
template <typename T> __device__ inline T wrap_multiply(T a, T b) {
    typedef typename Unsigned<T>::type U; return (T)((U)a * (U)b); }
template <typename T> __device__ inline T wrap_negative(T a) {
    typedef typename Unsigned<T>::type U; return (T)((U)0 - (U)a); }
template <typename T> __device__ inline T signed_floor_divide(T a, T b) {
    if (b == 0) return 0;
    if (b == (T)-1) return wrap_negative(a);
    T q = (T)(a / b);
    return (T)(a % b != 0 && ((a % b < 0) != (b < 0)) ? q - 1 : q); }
template <typename T> __device__ inline T signed_remainder(T a, T b) {
    if (b == 0 || b == (T)-1) return 0;
    T r = (T)(a % b);
    return (T)(r != 0 && ((r < 0) != (b < 0)) ? r + b : r); }
template <typename T> __device__ inline T unsigned_floor_divide(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }
template <typename T> __device__ inline T unsigned_remainder(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); }
template <typename T> __device__ inline T float_maximum(T a, T b) { return a > b || a != a ? a : b; }
template <typename T> __device__ inline T float_minimum(T a, T b) { return a < b || a != a ? a : b; }
template <typename T> __device__ inline T expit_(T x) { return (T)1 / ((T)1 + exp(-x)); }
"""
"""What the expressions call."""


def _infix(symbol: str) -> Callable[..., str]:
    return lambda dtype, x, y: f"({x} {symbol} {y})"


def _wrapping(name: str, symbol: str, boolean: str = "") -> Callable[..., str]:
    def build(dtype: Dtype, x: str, y: str) -> str:
        if dtype.kind == "b":
            return f"({x} {boolean} {y})"
        return f"({x} {symbol} {y})" if dtype.kind == "f" else f"wrap_{name}({x}, {y})"

    return build


def _guarded(name: str) -> Callable[..., str]:
    return lambda dtype, x, y: f"{'signed' if dtype.kind == 'i' else 'unsigned'}_{name}({x}, {y})"


def _extreme(name: str, symbol: str) -> Callable[..., str]:
    def build(dtype: Dtype, x: str, y: str) -> str:
        return f"float_{name}({x}, {y})" if dtype.kind == "f" else f"({x} {symbol} {y} ? {x} : {y})"

    return build


def _called(name: str) -> Callable[..., str]:
    """One of CUDA's functions; their C++ overloads compute single precision in single precision."""
    return lambda dtype, x: f"{name}({x})"


def _rounding(name: str) -> Callable[..., str]:
    return lambda dtype, x: f"{name}({x})" if dtype.kind == "f" else x


def _negative(dtype: Dtype, x: str) -> str:
    return f"(-{x})" if dtype.kind == "f" else f"wrap_negative({x})"


def _absolute(dtype: Dtype, x: str) -> str:
    if dtype.kind == "f":
        return f"fabs({x})"
    return x if dtype.kind in "ub" else f"({x} < 0 ? wrap_negative({x}) : {x})"


def _sign(dtype: Dtype, x: str) -> str:
    kind = c_type(dtype)
    below = f"{x} < 0 ? ({kind})-1 : " if dtype.kind in "if" else ""
    return f"({x} > 0 ? ({kind})1 : {below}{x} == 0 ? ({kind})0 : {x})"


def _test(float_test: str) -> Callable[..., str]:
    return lambda dtype, x: float_test.format(x=x)


def _invert(dtype: Dtype, x: str) -> str:
    return f"(!{x})" if dtype.kind == "b" else f"({c_type(dtype)})(~{x})"


def _bitwise(symbol: str, boolean: str) -> Callable[..., str]:
    def build(dtype: Dtype, x: str, y: str) -> str:
        return f"({x} {boolean} {y})" if dtype.kind == "b" else f"({c_type(dtype)})({x} {symbol} {y})"

    return build


EXPRESSIONS: dict[str, Callable[..., str]] = {
    "add": _wrapping("add", "+", "||"),
    "subtract": _wrapping("subtract", "-"),
    "multiply": _wrapping("multiply", "*", "&&"),
    "divide": _infix("/"),
    "floor_divide": _guarded("floor_divide"),
    "remainder": _guarded("remainder"),
    "negative": _negative,
    "positive": lambda dtype, x: x,
    "conjugate": lambda dtype, x: x,
    "absolute": _absolute,
    "sign": _sign,
    "sqrt": _called("sqrt"),
    "square": lambda dtype, x: _wrapping("multiply", "*", "&&")(dtype, x, x),
    "reciprocal": lambda dtype, x: f"(({c_type(dtype)})1 / {x})",
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"),
    "rint": _rounding("rint"),
    "maximum": _extreme("maximum", ">"),
    "minimum": _extreme("minimum", "<"),
    "isnan": _test("({x} != {x})"),
    "isinf": _test("(fabs({x}) == INFINITY_)"),
    "isfinite": _test("(fabs({x}) < INFINITY_)"),
    "equal": _infix("=="),
    "not_equal": _infix("!="),
    "less": _infix("<"),
    "less_equal": _infix("<="),
    "greater": _infix(">"),
    "greater_equal": _infix(">="),
    "logical_and": _infix("&&"),
    "logical_or": _infix("||"),
    "logical_xor": _infix("!="),
    "logical_not": lambda dtype, x: f"(!{x})",
    "bitwise_and": _bitwise("&", "&&"),
    "bitwise_or": _bitwise("|", "||"),
    "bitwise_xor": _bitwise("^", "!="),
    "invert": _invert,
    "where": lambda dtype, condition, x, y: f"({condition} ? {x} : {y})",
    "expit": lambda dtype, x: f"expit_({x})",
    **{name: _called(name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh",
                                        "sin", "cos", "tan", "erf")},
    **{f"arc{name}": _called(f"a{name}") for name in ("sin", "cos", "tan")},
    "arctan2": lambda dtype, y, x: f"atan2({y}, {x})",
}  # fmt: skip
"""``EXPRESSIONS[name](dtype, *operands)``: C++ of an operation on variables of the loop's dtype."""
