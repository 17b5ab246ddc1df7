"""Functions of ``math`` and powers in generated code, with Python's bits: by the C library where Python calls it, by
instructions where they are exact, else by Python's own function, which the code calls with numbers in registers.

What Python raises for fails: the run is made another way, and raises there.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.interrupts import FUNCTIONS
from futurex.kernels.loops import looking, values
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, checked, constant, converted
from futurex.kernels.numba_.real import Real, format_of
from futurex.kernels.numba_.scalar import operate, parts, register_type
from futurex.ops.mathematics import KINDS
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
_INT, _FLOAT, _COMPLEX = np.dtype(np.int64), np.dtype(np.float64), np.dtype(complex)
_POWERS = {_FLOAT: "pow", np.dtype(np.float32): "powf"}
_LEAST = np.iinfo(_INT).min
_LIBRARY = {
    **dict.fromkeys(
        ("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
         "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc"), 1
    ),
    **dict.fromkeys(("atan2", "fmod", "pow"), 2),
}  # fmt: skip
"""Functions that are the C library's of the same name, and of how many numbers."""
_MOST_FACTORS = 4  # of a power that is multiplied out
_MOST_SQUARES = 7  # of a power of complex numbers: to 127
_FUNCTIONS = {
    **{name: getattr(math, name) for name in KINDS if hasattr(math, name)},
    **dict.fromkeys(("round", "rounded"), builtins.round),
}  # fmt: skip
"""Python's own, by the names that nodes have for them: alive for as long as code may call them."""


def of_math(e: Emitter, node: Node, operands: Sequence[Scalar]) -> str:
    """``math.exp(x)`` and its kin."""
    name, f = node.attrs["function"], e.function
    options = dict(node.attrs.get("options", ()))
    if any(value.dtype.kind not in "if" for value in operands) or (options and name != "isclose"):
        raise Unsupported(f"math.{name}")
    whole = all(value.dtype == _INT for value in operands)
    if _LIBRARY.get(name) == len(operands):
        return _by_library(f, name, [_as_float(f, value) for value in operands])
    if name in _ROUNDINGS and len(operands) == 1:
        return operands[0].register if whole else _rounded(f, _ROUNDINGS[name], operands[0])
    if name == "log" and len(operands) == 2:
        above, below = (_by_library(f, "log", [_as_float(f, value)]) for value in operands)
        f.fail_if(f.emit(f"fcmp oeq double {below}, 0.0"))
        return f.emit(f"fdiv double {above}, {below}")
    if name == "isclose":
        one, other = (_as_float(f, value) for value in operands)
        return _is_close(f, one, other, **options)
    if name == "gcd" and whole and len(operands) == 2:
        return _divisor(f, *(value.register for value in operands))
    if name in _EXACT and _EXACT[name][0] == len(operands):
        return _EXACT[name][1](f, *(_as_float(f, value) for value in operands))
    return _by_python(e, _FUNCTIONS[name], operands, node.dtype)


def _as_float(function: Function, value: Scalar) -> str:
    return function.cast(value.register, value.dtype, _FLOAT)


def _by_library(f: Function, name: str, operands: Sequence[str]) -> str:
    """Python raises for a NaN that is made of none, and for an infinity that is made of none."""
    f.declare(f"declare double @{name}({', '.join(['double'] * len(operands))})")
    found = f.emit(f"call double @{name}({', '.join(f'double {each}' for each in operands)})")
    given = f.emit(f"fcmp ord double {operands[0]}, {operands[-1]}")
    f.fail_if(f.emit(f"and i1 {f.emit(f'fcmp uno double {found}, {found}')}, {given}"))
    huge = operate(f, "isinf", _FLOAT, [found])
    for each in operands:
        huge = f.emit(f"and i1 {huge}, {operate(f, 'isfinite', _FLOAT, [each])}")
    f.fail_if(huge)
    return found


_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint"}


def _rounded(f: Function, name: str, value: Scalar) -> str:
    """A float as an int."""
    found = operate(f, name, _FLOAT, [value.register])
    return values.truncated(f, Scalar(found, _FLOAT, True), _INT)


def _with_sign(f: Function, x: str, y: str) -> str:
    f.declare("declare double @llvm.copysign.f64(double, double)")
    return f.emit(f"call double @llvm.copysign.f64(double {x}, double {y})")


def _times(factor: float) -> Callable[..., str]:
    literal = constant(factor, _FLOAT, True).register
    return lambda f, x: f.emit(f"fmul double {x}, {literal}")


def _plainly(name: str) -> Callable[..., str]:
    return lambda f, x: operate(f, name, _FLOAT, [x])


_EXACT: dict[str, tuple[int, Callable[..., str]]] = {
    "fabs": (1, _plainly("absolute")),
    "isnan": (1, _plainly("isnan")),
    "isinf": (1, _plainly("isinf")),
    "isfinite": (1, _plainly("isfinite")),
    "copysign": (2, _with_sign),
    "degrees": (1, _times(180.0 / math.pi)),
    "radians": (1, _times(math.pi / 180.0)),
}
"""Functions of floats that are instructions, of how many numbers, and these."""


def _is_close(f: Function, x: str, y: str, rel_tol: float = 1e-09, abs_tol: float = 0.0) -> str:
    if not (rel_tol >= 0 and abs_tol >= 0):
        raise Unsupported("a tolerance that Python refuses")
    form = format_of(_FLOAT)
    one, other = Real(f, form, x), Real(f, form, y)
    apart = abs(other - one)
    near = apart.compare("ole", float(abs_tol))
    for each in (other, one):
        near = f.emit(f"or i1 {near}, {apart.compare('ole', abs(each * float(rel_tol)))}")
    finite = operate(f, "isfinite", _FLOAT, [x]), operate(f, "isfinite", _FLOAT, [y])
    near = f.emit(f"and i1 {near}, {f.emit('and i1 {}, {}'.format(*finite))}")
    return f.emit(f"or i1 {near}, {one.compare('oeq', other)}")


def _divisor(f: Function, x: str, y: str) -> str:
    """The greatest common divisor, by Euclid."""
    one, other = f.variable("i64"), f.variable("i64")
    for value, place in ((x, one), (y, other)):
        f.fail_if(f.emit(f"icmp eq i64 {value}, {_LEAST}"))
        f.do(f"store i64 {operate(f, 'absolute', _INT, [value])}, ptr {place}, align 8")
    head, body, done = f.label(), f.label(), f.label()
    f.jump(head)
    f.place(head)
    rest = f.emit(f"load i64, ptr {other}, align 8")
    f.branch(f.emit(f"icmp ne i64 {rest}, 0"), body, done)
    f.place(body)
    whole = f.emit(f"load i64, ptr {one}, align 8")
    f.do(f"store i64 {f.emit(f'urem i64 {whole}, {rest}')}, ptr {other}, align 8")
    f.do(f"store i64 {rest}, ptr {one}, align 8")
    f.jump(head)
    f.place(done)
    return f.emit(f"load i64, ptr {one}, align 8")


# -- powers ----------------------------------------------------------------------------------------------------------


def power(f: Function, x: Scalar, y: Scalar, result: Dtype, weak: bool) -> str:
    """``x ** y`` of scalars: by the C library's ``pow`` or ``powf``, as Python and NumPy compute it, or by products."""
    if result.kind in "iu" and y.dtype.kind in "iu":
        return _whole_power(f, x, y, result, weak)
    if weak and result == _COMPLEX:
        return _complex_power(f, x, y)
    if result not in _POWERS:
        raise Unsupported(f"powers of dtype {result}")
    kind, name = register_type(result), _POWERS[result]
    base, exponent = (converted(f, value, result) for value in (x, y))
    f.declare(f"declare {kind} @{name}({kind}, {kind})")
    zero = f.emit(f"fcmp oeq {kind} {base}, 0.0")
    f.fail_if(f.emit(f"and i1 {zero}, {f.emit(f'fcmp olt {kind} {exponent}, 0.0')}"))
    found = f.emit(f"call {kind} @{name}({kind} {base}, {kind} {exponent})")
    made = f.emit(f"fcmp uno {kind} {found}, {found}")
    given = f.emit(f"fcmp uno {kind} {base}, {exponent}")
    f.fail_if(f.emit(f"and i1 {made}, {f.emit(f'xor i1 {given}, true')}"))
    if weak:  # Python raises OverflowError
        f.fail_if(operate(f, "isinf", _FLOAT, [found]))
    return found


def _whole_power(f: Function, x: Scalar, y: Scalar, result: Dtype, weak: bool) -> str:
    """Of integers, by squares: Python's do not outgrow 64 bits, NumPy's wrap. Exponents are not negative."""
    kind = register_type(result)
    base, count = converted(f, x, result), converted(f, y, result)

    def times(one: str, other: str) -> str:
        return checked(f, "smul", one, other) if weak else f.emit(f"mul {kind} {one}, {other}")

    if type(y.known) is int and 1 <= y.known <= _MOST_FACTORS:
        found = base
        for _ in range(1, y.known):
            found = times(found, base)
        return found
    if result.kind == "i":
        f.fail_if(f.emit(f"icmp slt {kind} {count}, 0"))
    places = made, square, left = [f.variable(kind) for _ in range(3)]
    for place, value in zip(places, ("1", base, count), strict=True):
        f.do(f"store {kind} {value}, ptr {place}, align 8")
    head, body, odd, even, more, done = (f.label() for _ in range(6))
    f.jump(head)
    f.place(head)
    rest = f.emit(f"load {kind}, ptr {left}, align 8")
    f.branch(f.emit(f"icmp ne {kind} {rest}, 0"), body, done)
    f.place(body)
    factor = f.emit(f"load {kind}, ptr {square}, align 8")
    f.branch(f.emit(f"trunc {kind} {rest} to i1"), odd, even)
    f.place(odd)
    product = times(f.emit(f"load {kind}, ptr {made}, align 8"), factor)
    f.do(f"store {kind} {product}, ptr {made}, align 8")
    f.jump(even)
    f.place(even)
    half = f.emit(f"lshr {kind} {rest}, 1")
    f.do(f"store {kind} {half}, ptr {left}, align 8")
    f.branch(f.emit(f"icmp ne {kind} {half}, 0"), more, done)
    f.place(more)
    f.do(f"store {kind} {times(factor, factor)}, ptr {square}, align 8")
    f.jump(head)
    f.place(done)
    return f.emit(f"load {kind}, ptr {made}, align 8")


def _complex_power(f: Function, x: Scalar, y: Scalar) -> str:
    """A small whole power of Python's complex numbers, by squares as there: what begins with one is multiplied, too."""
    known = y.known
    if known is None or known != int(known.real) or not 1 <= int(known.real) < 1 << _MOST_SQUARES - 1:
        raise Unsupported("powers of complex numbers")
    count, found = int(known.real), constant(1 + 0j, _COMPLEX, True)
    square = Scalar(converted(f, x, _COMPLEX), _COMPLEX, True)
    while True:
        if count & 1:
            found = Scalar(values.product(f, (found, square), _COMPLEX), _COMPLEX, True)
        count >>= 1
        if not count:
            break
        square = Scalar(values.product(f, (square, square), _COMPLEX), _COMPLEX, True)
    for part in parts(found.register):  # Python raises OverflowError
        f.fail_if(operate(f, "isinf", _FLOAT, [part]))
    return found.register


# -- by Python -------------------------------------------------------------------------------------------------------


def _by_python(e: Emitter, function: Any, operands: Sequence[Scalar], dtype: Dtype) -> str:
    """What a function of Python's makes of numbers: it is called at a tenth of what a call of a node costs."""
    word = e.memory.word()
    e.memory.fixed[word] = id(function)
    return asked(e, word, operands, dtype)


def asked(e: Emitter, word: int, operands: Sequence[Scalar], dtype: Dtype) -> str:
    """The same of the function whose address stands in a word of the block. Ints and floats go in and out."""
    if any(kind not in (_INT, _FLOAT) for kind in (dtype, *(value.dtype for value in operands))):
        raise Unsupported(f"a call with numbers of other dtypes than {_INT} and {_FLOAT}")
    if len(operands) > _MOST_OPERANDS:
        raise Unsupported("a call with many numbers")
    f, count = e.function, len(operands)
    looking.allow(e)
    e.asks = True
    numbers, out = f.variable(f"[{count} x i64]"), f.variable("i64")
    floats = 0
    for k, value in enumerate(operands):
        f.store(value.dtype, value.register, f.emit(f"getelementptr i64, ptr {numbers}, i64 {k}"))
        floats |= (value.dtype == _FLOAT) << k
    place = f.emit(f"getelementptr i64, ptr %block, i64 {word}")
    called = f.emit(f"load ptr, ptr {place}, align 8")
    word_of = "@float_of_python" if dtype == _FLOAT else "@int_of_python"
    passed = f"ptr %look, ptr {called}, i64 {count}, ptr {numbers}, i64 {floats}, ptr {out}"
    f.fail_if(f.emit(f"call i1 {word_of}({passed})"))
    return f.load(dtype, out)


_MOST_OPERANDS = 8


def _asking(name: str, kind: str, lost: str, place: int) -> str:
    """A function that calls Python and takes what comes as a number; it gives true where there is none."""
    at = looking.at
    return f"""
define internal i1 @{name}(ptr %look, ptr %function, i64 %count, ptr %numbers, i64 %floats, ptr %out) noinline {{
entry:
  %objects = alloca [{_MOST_OPERANDS} x ptr], align 8
  %desk = load ptr, ptr %look, align 8
{at("%ensure", "%desk", FUNCTIONS + 1, "ptr")}
{at("%release", "%desk", FUNCTIONS + 3, "ptr")}
{at("%integer", "%desk", FUNCTIONS + 6, "ptr")}
{at("%drop", "%desk", FUNCTIONS + 8, "ptr")}
{at("%floating", "%desk", FUNCTIONS + 9, "ptr")}
{at("%call", "%desk", FUNCTIONS + 10, "ptr")}
{at("%number", "%desk", FUNCTIONS + place, "ptr")}
{at("%occurred", "%desk", FUNCTIONS + 13, "ptr")}
{at("%clear", "%desk", FUNCTIONS + 14, "ptr")}
  %state = call i32 %ensure()
  br label %boxing
boxing:
  %k = phi i64 [ 0, %entry ], [ %k.next, %boxed ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %box, label %calling
box:
  %k.next = add i64 %k, 1
  %at = getelementptr i64, ptr %numbers, i64 %k
  %bits = lshr i64 %floats, %k
  %is.float = trunc i64 %bits to i1
  br i1 %is.float, label %one, label %other
one:
  %x = load double, ptr %at, align 8
  %x.object = call ptr %floating(double %x)
  br label %boxed
other:
  %n = load i64, ptr %at, align 8
  %n.object = call ptr %integer(i64 %n)
  br label %boxed
boxed:
  %object = phi ptr [ %x.object, %one ], [ %n.object, %other ]
  %object.at = getelementptr ptr, ptr %objects, i64 %k
  store ptr %object, ptr %object.at, align 8
  br label %boxing
calling:
  %result = call ptr %call(ptr %function, ptr %objects, i64 %count, ptr null)
  br label %dropping
dropping:
  %j = phi i64 [ 0, %calling ], [ %j.next, %dropped ]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %dropped, label %looking
dropped:
  %j.next = add i64 %j, 1
  %j.at = getelementptr ptr, ptr %objects, i64 %j
  %j.object = load ptr, ptr %j.at, align 8
  call void %drop(ptr %j.object)
  br label %dropping
looking:
  %none = icmp eq ptr %result, null
  br i1 %none, label %failing, label %reading
reading:
  %value = call {kind} %number(ptr %result)
  call void %drop(ptr %result)
  store {kind} %value, ptr %out, align 8
  %maybe = {lost}
  br i1 %maybe, label %asking, label %done
asking:
  %error = call ptr %occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %done, label %failing
failing:
  call void %clear()
  br label %done
done:
  %failed = phi i1 [ false, %reading ], [ false, %asking ], [ true, %failing ]
  call void %release(i32 %state)
  ret i1 %failed
}}
"""


TEXT = _asking("float_of_python", "double", "fcmp oeq double %value, -1.0", 11) + _asking(
    "int_of_python", "i64", "icmp eq i64 %value, -1", 12
)
"""What code calls that asks Python's own functions."""
