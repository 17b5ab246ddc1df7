"""CUDA C++ of one element: each operation as NumPy's loop of the same dtype computes it.

Integers wrap around, which C++ leaves undefined for signed ones, so they are computed unsigned. Integer division is
guarded as NumPy guards it. Products and sums must not become one rounding: compile with ``--fmad=false``; nor numbers
next to zero become zeros: compile without ``--ftz=true``. Functions
such as ``exp`` are CUDA's own, within one or two units in the last place (CUDA C++ Programming Guide, appendix on
mathematical functions). Half precision lies in memory as bits, without CUDA's header for it; in registers it is single
precision, rounded after every operation, as NumPy has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.ops import casts

Dtype = np.dtype[Any]
HALF = np.dtype(np.float16)

_INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long long"}


def c_type(dtype: Dtype) -> str:
    """The C++ type of one value; booleans are bytes of their own, halves are held in single precision.

    >>> c_type(np.dtype("uint16")), c_type(np.dtype("float32")), c_type(np.dtype(bool))
    ('unsigned short', 'float', 'bool')
    """
    if dtype.kind == "b":
        return "bool"
    if dtype.kind == "f":
        return "double" if dtype.itemsize == 8 else "float"
    return f"{'signed' if dtype.kind == 'i' else 'unsigned'} {_INTEGERS[dtype.itemsize]}"


def memory_type(dtype: Dtype) -> str:
    """The C++ type of one array element.

    >>> memory_type(np.dtype("float16")), memory_type(np.dtype("float32"))
    ('unsigned short', 'float')
    """
    return "unsigned short" if dtype == HALF else c_type(dtype)


def loaded(dtype: Dtype, element: str) -> str:
    """The value of an array element."""
    return f"widened_half({element})" if dtype == HALF else element


def stored(dtype: Dtype, value: str) -> str:
    """What lies in memory for a value."""
    return f"narrowed_half({value})" if dtype == HALF else value


def rounded(dtype: Dtype, value: str) -> str:
    """A number of single or double precision as one of ``dtype``."""
    return loaded(dtype, stored(dtype, value))


def cast(value: str, source: Dtype, target: Dtype) -> str:
    """NumPy's conversion; floats to integers by way of the registers of :mod:`futurex.ops.casts`."""
    if source == target:
        return value
    if source.kind == "f" and target.kind in "iu":
        name = "upper_truncated" if target == np.dtype(np.uint64) else f"truncated_{casts.register_bits(target)}"
        return f"({c_type(target)}){name}({value})"
    if target == HALF:
        return rounded(HALF, value if source.kind == "f" else f"(float)({value})")
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
#ifndef INDEX
#define INDEX signed long long
#endif
#define INFINITY_ __longlong_as_double(0x7ff0000000000000LL)
template <typename T> struct Unsigned { typedef unsigned int type; };
template <> struct Unsigned<signed long long> { typedef unsigned long long type; };
template <> struct Unsigned<unsigned long long> { typedef unsigned long long type; };
typedef Unsigned<INDEX>::type Count;
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
template <typename T> __device__ inline T signed_fmod(T a, T b) { return b == 0 || b == (T)-1 ? (T)0 : (T)(a % b); }
template <typename T> __device__ inline T unsigned_fmod(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); }
template <typename T> __device__ inline T float_fmod(T a, T b) { return fmod(a, b); }
template <typename T> __device__ inline T float_remainder(T a, T b) {
    T r = fmod(a, b);
    if (b == 0) return r;
    return r == 0 ? copysign((T)0, b) : (r < 0) != (b < 0) ? r + b : r; }
template <typename T> __device__ inline T float_floor_divide(T a, T b) {
    if (b == 0) return a / b;
    T r = fmod(a, b), q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= (T)1;
    if (q == 0) return copysign((T)0, a / b);
    T whole = floor(q);
    return q - whole > (T)0.5 ? whole + (T)1 : whole; }
template <typename T> __device__ inline T left_shift(T a, T b) {
    typedef typename Unsigned<T>::type U; return (U)b < 8 * sizeof(T) ? (T)((U)a << b) : (T)0; }
template <typename T> __device__ inline T right_shift(T a, T b) {
    typedef typename Unsigned<T>::type U; return (U)b < 8 * sizeof(T) ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0; }
template <typename T> __device__ inline int truncated_32(T x) {
    return fabs(x) < (T)2147483648.0 ? (int)x : (int)0x80000000u; }
template <typename T> __device__ inline long long truncated_64(T x) {
    return fabs(x) < (T)9223372036854775808.0 ? (long long)x : (long long)0x8000000000000000ULL; }
template <typename T> __device__ inline unsigned long long upper_truncated(T x) {
    if (!(x >= (T)9223372036854775808.0)) return (unsigned long long)truncated_64(x);
    return (unsigned long long)truncated_64(x - (T)9223372036854775808.0) ^ 0x8000000000000000ULL; }
template <typename T> __device__ inline T float_maximum(T a, T b) { return a > b || a != a ? a : b; }
template <typename T> __device__ inline T float_minimum(T a, T b) { return a < b || a != a ? a : b; }
template <typename T> __device__ inline T float_fmax(T a, T b) { return a > b || b != b ? a : b; }
template <typename T> __device__ inline T float_fmin(T a, T b) { return a < b || b != b ? a : b; }
template <typename T> __device__ inline bool signbit_(T x) { return copysign((T)1, x) < 0; }
template <typename T> __device__ inline T heaviside_(T x, T middle) {
    return x != x ? x : x == 0 ? middle : x < 0 ? (T)0 : (T)1; }
template <typename T> __device__ inline T spacing_(T x) {
    T size = fabs(x), step = nextafter(size, (T)INFINITY_) - size;
    return x < 0 ? -step : step; }
__device__ inline unsigned char bits_of(unsigned long long x) {
    unsigned char count = 0;
    for (; x; x &= x - 1) count++;
    return count; }
template <typename T> __device__ inline T expit_(T x) { return (T)1 / ((T)1 + exp(-x)); }
template <typename T> __device__ inline T logaddexp_(T a, T b) {
    if (a == b) return a + (T)0.693147180559945309417232121458176568;
    T d = a - b;
    return d > 0 ? a + log1p(exp(-d)) : d <= 0 ? b + log1p(exp(d)) : d; }
template <typename T> __device__ inline T logaddexp2_(T a, T b) {
    if (a == b) return a + (T)1;
    T d = a - b, scale = (T)1.44269504088896340735992468100189214;
    return d > 0 ? a + scale * log1p(exp2(-d)) : d <= 0 ? b + scale * log1p(exp2(d)) : d; }
template <typename T> __device__ inline T integer_power(T base, unsigned long long exponent) {
    typedef typename Unsigned<T>::type U;
    U result = 1, factor = (U)base;
    for (; exponent; exponent >>= 1) { if (exponent & 1) result *= factor; factor *= factor; }
    return (T)result; }
#ifndef EMULATED_
__device__ inline unsigned short narrowed_half(float x) {
    unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
__device__ inline unsigned short narrowed_half(double x) {
    unsigned short h; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(x)); return h; }
__device__ inline float widened_half(unsigned short h) {
    float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
#endif
__device__ inline unsigned int rounded_bits(float x, unsigned int dropped) {
    unsigned int bits = __float_as_uint(x);
    if (x != x) return bits | 0x400000u;
    return bits + (((1u << (dropped - 1u)) - 1u) + ((bits >> dropped) & 1u)); }
__device__ inline unsigned short narrowed_bfloat16(float x) { return (unsigned short)(rounded_bits(x, 16u) >> 16); }
__device__ inline float widened_bfloat16(unsigned short h) { return __uint_as_float((unsigned int)h << 16); }
__device__ inline float narrowed_tfloat32(float x) { return __uint_as_float(rounded_bits(x, 13u) & 0xffffe000u); }
"""
"""What the expressions call, and the types of numbers of elements: INDEX counts them, Count takes one apart."""


def _infix(symbol: str) -> Callable[..., str]:
    return lambda dtype, x, y: f"({x} {symbol} {y})"


def _wrapping(name: str, symbol: str, boolean: str = "") -> Callable[..., str]:
    def build(dtype: Dtype, x: str, y: str) -> str:
        if dtype.kind == "b":
            return f"({x} {boolean} {y})"
        return f"({x} {symbol} {y})" if dtype.kind == "f" else f"wrap_{name}({x}, {y})"

    return build


def _guarded(name: str) -> Callable[..., str]:
    kinds = {"i": "signed", "u": "unsigned", "f": "float"}
    return lambda dtype, x, y: f"{kinds[dtype.kind]}_{name}({x}, {y})"


def _extreme(name: str, symbol: str) -> Callable[..., str]:
    def build(dtype: Dtype, x: str, y: str) -> str:
        return f"float_{name}({x}, {y})" if dtype.kind == "f" else f"({x} {symbol} {y} ? {x} : {y})"

    return build


def _called(name: str) -> Callable[..., str]:
    """One of CUDA's functions; their C++ overloads compute single precision in single precision."""
    return lambda dtype, x: f"{name}({x})"


def _rounding(name: str) -> Callable[..., str]:
    return lambda dtype, x: f"{name}({x})" if dtype.kind == "f" else x


def _times(single: Any, double: float) -> Callable[..., str]:
    return lambda dtype, x: f"({x} * {literal(single if dtype.itemsize < 8 else double, dtype)})"


def _unsigned(dtype: Dtype) -> Dtype:
    return np.dtype(f"u{dtype.itemsize}")


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


def _power(dtype: Dtype, x: str, y: str) -> str:
    return f"pow({x}, {y})" if dtype.kind == "f" else f"integer_power({x}, (unsigned long long){y})"


EXPRESSIONS: dict[str, Callable[..., str]] = {
    "add": _wrapping("add", "+", "||"),
    "subtract": _wrapping("subtract", "-"),
    "multiply": _wrapping("multiply", "*", "&&"),
    "divide": _infix("/"),
    "floor_divide": _guarded("floor_divide"),
    "remainder": _guarded("remainder"),
    "fmod": _guarded("fmod"),
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
    "fmax": _extreme("fmax", ">"),
    "fmin": _extreme("fmin", "<"),
    "fabs": _absolute,
    "signbit": _called("signbit_"),
    "copysign": lambda dtype, x, y: f"copysign({x}, {y})",
    "heaviside": lambda dtype, x, y: f"heaviside_({x}, {y})",
    "nextafter": lambda dtype, x, y: f"nextafter({x}, {y})",
    "spacing": _called("spacing_"),
    **dict.fromkeys(("deg2rad", "radians"), _times(np.float32(np.pi) / np.float32(180), np.pi / 180)),
    **dict.fromkeys(("rad2deg", "degrees"), _times(np.float32(180) / np.float32(np.pi), 180 / np.pi)),
    "bitwise_count": lambda dtype, x: f"bits_of(({c_type(_unsigned(dtype))}){_absolute(dtype, x)})",
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
    "left_shift": lambda dtype, x, y: f"left_shift({x}, {y})",
    "right_shift": lambda dtype, x, y: f"right_shift({x}, {y})",
    "where": lambda dtype, condition, x, y: f"({condition} ? {x} : {y})",
    "expit": lambda dtype, x: f"expit_({x})",
    **{name: _called(name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh",
                                        "cbrt", "sin", "cos", "tan", "erf")},
    **{f"arc{name}": _called(f"a{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "arctan2": lambda dtype, y, x: f"atan2({y}, {x})",
    "hypot": lambda dtype, x, y: f"hypot({x}, {y})",
    "logaddexp": lambda dtype, x, y: f"logaddexp_({x}, {y})",
    "logaddexp2": lambda dtype, x, y: f"logaddexp2_({x}, {y})",
    "power": _power,
    "float_power": _power,
}  # fmt: skip
"""``EXPRESSIONS[name](dtype, *operands)``: C++ of an operation on variables of the loop's dtype."""


def convert(name: str, to: str, value: str) -> str:
    """``narrow`` or ``widen`` of :mod:`futurex.ops.precision`: a number of single precision or its form in a format."""
    if to == "float16":
        return rounded(HALF, value) if name == "narrow" else value
    return value if (name, to) == ("widen", "tfloat32") else f"{name}ed_{to}({value})"
