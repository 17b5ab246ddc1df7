"""Draws by NumPy's own functions in C, which generated code calls with the generator's bits: a hundredth of the time
that a call of a method takes.

They are those that the methods call, so samples are NumPy's. Methods look at their parameters first: where one would be
refused, or where it is not certain that it would not, the code fails, and whoever runs the loop then asks the method.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import streams
from futurex.kernels.loops.arrays import Array
from futurex.kernels.loops.streams import Stream
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, constant
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_NEXT_DOUBLE = 3
"""The word of NumPy's ``bitgen_t`` with the function that gives the next number from 0 to 1; the first one is what that
is given."""
_MOST = 4096
"""Numbers of one draw: more are drawn by one call of the method, which takes no longer then, and can be waited for."""
_ANY, _SIGNLESS, _POSITIVE, _MEAN = "any", "signless", "positive", "mean"
"""What NumPy takes as a parameter: anything; what has no sign; what is more than zero; a mean of counts."""
_LARGEST_MEAN = 1e18
_NEEDED = None


@dataclass(frozen=True)
class _Function:
    """A function of NumPy's: what it gives, and for each parameter its default and what it may be."""

    name: str
    dtype: np.dtype[Any]
    parameters: tuple[tuple[float | None, str], ...] = ()


def _floats(name: str, *parameters: tuple[float | None, str]) -> _Function:
    return _Function(f"random_{name}", _FLOAT, parameters)


_FUNCTIONS = {
    "beta": _floats("beta", (_NEEDED, _POSITIVE), (_NEEDED, _POSITIVE)),
    "chisquare": _floats("chisquare", (_NEEDED, _POSITIVE)),
    "exponential": _floats("exponential", (1.0, _SIGNLESS)),
    "gamma": _floats("gamma", (_NEEDED, _SIGNLESS), (1.0, _SIGNLESS)),
    "gumbel": _floats("gumbel", (0.0, _ANY), (1.0, _SIGNLESS)),
    "laplace": _floats("laplace", (0.0, _ANY), (1.0, _SIGNLESS)),
    "logistic": _floats("logistic", (0.0, _ANY), (1.0, _SIGNLESS)),
    "lognormal": _floats("lognormal", (0.0, _ANY), (1.0, _SIGNLESS)),
    "normal": _floats("normal", (0.0, _ANY), (1.0, _SIGNLESS)),
    "poisson": _Function("random_poisson", _INT, ((1.0, _MEAN),)),
    "standard_exponential": _floats("standard_exponential"),
    "standard_gamma": _floats("standard_gamma", (_NEEDED, _SIGNLESS)),
    "standard_normal": _floats("standard_normal"),
}
"""Of a ``Generator``. Of the older ``RandomState`` only what is common to both is at hand: its normal numbers come in
pairs, the second of which waits where nobody else sees it."""
_UNIFORM, _WHOLE = ("random", "random_sample"), ("integers", "randint")


@dataclass(frozen=True)
class Bits:
    """The address of a generator's bits stands in a word."""

    word: int
    stream: int

    def armed(self, generator: Any) -> tuple[Any, int]:
        interface = _bits(generator).ctypes
        return interface, int(interface.bit_generator.value)


def _bits(generator: Any) -> Any:
    return generator._bit_generator if isinstance(generator, np.random.RandomState) else generator.bit_generator


@functools.cache
def _address(name: str) -> int | None:
    """Where NumPy has a function; None where it does not tell."""
    try:
        library = ctypes.CDLL(np.random._generator.__file__)
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None


def direct(e: Emitter, node: Node, stream: Any, operands: Sequence[Any]) -> list[Any]:
    """A draw of a number, or of a few, by a function of NumPy's. Raises Unsupported for others."""
    aval, attrs = node.aval[1], node.attrs
    size, method = dict(attrs["options"]).get("size"), attrs["method"]
    if not isinstance(stream, Stream) or {*dict(attrs["options"])} - {"size"} or "dims" in attrs:
        raise Unsupported("a draw with options")
    if not all(isinstance(value, Scalar) and value.dtype in (_INT, _FLOAT) for value in operands):
        raise Unsupported("a draw with parameters that are no numbers")
    if not streams.in_order(attrs) or (size is not None and aval.shape == ()):
        raise Unsupported("a draw with parameters that are not in order")
    if not all(type(extent) is int for extent in aval.shape) or math.prod(aval.shape) > _MOST:
        raise Unsupported("a draw of many numbers")
    drawn = _Drawn(e, stream, attrs["legacy"])
    if method in _UNIFORM and not operands:
        made: Any = drawn.uniform(aval)
    elif method == "uniform":
        made = drawn.between(aval, operands)
    elif method in _WHOLE:
        made = drawn.whole(aval, operands)
    elif method in _FUNCTIONS and not attrs["legacy"]:
        made = drawn.by(_FUNCTIONS[method], aval, operands)
    else:
        raise Unsupported(f"draws by {method}")
    return [streams.drawn(e, stream), made]


class _Drawn:
    """The draws of one node. What cannot be drawn is refused before anything is emitted."""

    def __init__(self, e: Emitter, stream: Stream, legacy: bool) -> None:
        self.e, self.f, self.stream, self.legacy = e, e.function, stream, legacy

    def uniform(self, aval: Any) -> Any:
        """From 0 to 1: the generator's own function."""
        self._suits(aval, _FLOAT)
        f, bits = self.f, self._bits()
        state = f.emit(f"load ptr, ptr {bits}, align 8")
        place = f.emit(f"getelementptr ptr, ptr {bits}, i64 {_NEXT_DOUBLE}")
        function = f.emit(f"load ptr, ptr {place}, align 8")
        return self._filled(aval, f"call double {function}(ptr {state})")

    def by(self, function: _Function, aval: Any, operands: Sequence[Scalar]) -> Any:
        self._suits(aval, function.dtype)
        given = list(operands)
        for default, _ in function.parameters[len(given) :]:
            if default is _NEEDED:
                raise Unsupported("a draw without one of its parameters")
            given.append(constant(default, _FLOAT, True))
        if len(given) > len(function.parameters):
            raise Unsupported("a draw with more parameters than it has")
        address = self._function(function.name)
        numbers = [self.f.cast(value.register, value.dtype, _FLOAT) for value in given]
        for number, (_, kind) in zip(numbers, function.parameters, strict=True):
            self._allow(number, kind)
        return self._called(address, function.dtype, aval, numbers)

    def between(self, aval: Any, operands: Sequence[Scalar]) -> Any:
        """Uniform numbers from a lowest one on: NumPy's function takes that and the range."""
        self._suits(aval, _FLOAT)
        if len(operands) > 2:
            raise Unsupported("a draw with more parameters than it has")
        address = self._function("random_uniform")
        defaults = (constant(0.0, _FLOAT, True), constant(1.0, _FLOAT, True))
        given = (*operands, *defaults[len(operands) :])
        low, high = (self.f.cast(value.register, value.dtype, _FLOAT) for value in given)
        extent = self.f.emit(f"fsub double {high}, {low}")
        self._allow(extent, _SIGNLESS)
        self.f.fail_if(self.f.emit(f"fcmp uno double {self.f.emit(f'fsub double {extent}, {extent}')}, 0.0"))
        return self._called(address, _FLOAT, aval, [low, extent])

    def whole(self, aval: Any, operands: Sequence[Scalar]) -> Any:
        """Integers of 64 bits: NumPy's function lays down as many as there are."""
        self._suits(aval, _INT)
        if not 1 <= len(operands) <= 2 or any(value.dtype != _INT for value in operands):
            raise Unsupported("integers from no integer to another")
        f, address = self.f, self._function("random_bounded_uint64_fill")
        low, high = ("0", operands[0].register) if len(operands) == 1 else (each.register for each in operands)
        f.fail_if(f.emit(f"icmp sge i64 {low}, {high}"))
        extent = f.emit(f"sub i64 {f.emit(f'sub i64 {high}, {low}')}, 1")
        out = self.e.fresh(aval.shape, _INT)
        pointer, count = out.pointer(f), math.prod(aval.shape)
        passed = f"ptr {self._bits()}, i64 {low}, i64 {extent}, i64 {count}, i1 zeroext {int(self.legacy)}"
        if count:
            f.do(f"call void {address}({passed}, ptr {pointer})")
        return out if aval.shape else Scalar(f.load(_INT, pointer), _INT, aval.weak)

    def _suits(self, aval: Any, dtype: np.dtype[Any]) -> None:
        if aval.dtype != dtype:
            raise Unsupported(f"draws of dtype {aval.dtype}")

    def _allow(self, number: str, kind: str) -> None:
        f = self.f
        if kind == _SIGNLESS:
            f.fail_if(f.emit(f"icmp slt i64 {f.emit(f'bitcast double {number} to i64')}, 0"))
        elif kind == _POSITIVE:
            f.fail_if(f.emit(f"fcmp ule double {number}, 0.0"))
        elif kind == _MEAN:
            f.fail_if(f.emit(f"fcmp ult double {number}, 0.0"))
            f.fail_if(f.emit(f"fcmp ugt double {number}, {constant(_LARGEST_MEAN, _FLOAT, True).register}"))

    def _bits(self) -> str:
        """The address of the generator's bits."""
        word = self.e.memory.word()
        self.e.drawers.append(Bits(word, self.stream.index))
        return self._word(word)

    def _function(self, name: str) -> str:
        """The address of one of NumPy's functions."""
        address = _address(name)
        if address is None:
            raise Unsupported(f"{name}, which this NumPy does not tell of")
        word = self.e.memory.word()
        self.e.memory.fixed[word] = address
        return self._word(word)

    def _word(self, word: int) -> str:
        place = self.f.emit(f"getelementptr i64, ptr %block, i64 {word}")
        return self.f.emit(f"load ptr, ptr {place}, align 8")

    def _called(self, address: str, dtype: np.dtype[Any], aval: Any, numbers: Sequence[str]) -> Any:
        passed = ", ".join([f"ptr {self._bits()}", *(f"double {number}" for number in numbers)])
        return self._filled(aval, f"call {'double' if dtype == _FLOAT else 'i64'} {address}({passed})")

    def _filled(self, aval: Any, call: str) -> Any:
        """One number, or an array of them, drawn in the order of its elements."""
        f, dtype = self.f, aval.dtype
        if not aval.shape:
            return Scalar(f.emit(call), dtype, aval.weak)
        out: Array = self.e.fresh(aval.shape, dtype)
        start = out.pointer(f)
        with f.counted(math.prod(aval.shape)) as k:
            kind = "double" if dtype == _FLOAT else "i64"
            f.store(dtype, f.emit(call), f.emit(f"getelementptr {kind}, ptr {start}, i64 {k}"))
        return out
