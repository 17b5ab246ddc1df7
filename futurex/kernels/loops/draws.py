"""Draws by NumPy's own functions in C, which generated code calls with the generator's bits: a hundredth of the time
that a call of a method takes.

They are those that the methods call, so samples are NumPy's. Methods look at their parameters first: where one would be
refused, or where it is not certain that it would not, the code fails, and whoever runs the loop then asks the method.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, elementwise, streams
from futurex.kernels.loops.arrays import Array
from futurex.kernels.loops.searching import behind, element
from futurex.kernels.loops.streams import Stream
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, constant
from futurex.tree.aval import Aval
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
_COUNTED = {"choice": "a", "permutation": "x"}
"""What is drawn of so many numbers from 0 on, and the name of how many."""
_MOST_COMPARED, _MOST_SHUFFLED = 256, 10000
"""Numbers of a sample, each of which is compared with those before it; and of how many NumPy may take others."""
_CLOSE = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 3e-4}
"""How far from 1 NumPy certainly lets probabilities of these types be in all."""


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


@functools.cache
def chooses_alike() -> bool:
    """Are this NumPy's choices, permutations and samples those that the code makes of its functions?"""
    one, two = _address("random_interval"), _address("random_bounded_uint64")
    if one is None or two is None:
        return False
    word, p = ctypes.c_uint64, np.array([0.2, 0.0, 0.5, 0.3])
    interval = ctypes.CFUNCTYPE(word, ctypes.c_void_p, word)(one)
    bounded_between = ctypes.CFUNCTYPE(word, ctypes.c_void_p, word, word, word, ctypes.c_bool)(two)

    def bounded(bits: Any, last: int) -> int:
        return bounded_between(bits, 0, last, 0, False)

    def shuffled(values: list[int], drawn: Callable[[int], int]) -> list[int]:
        for last in reversed(range(1, len(values))):
            other = drawn(last)
            values[last], values[other] = values[other], values[last]
        return values

    for make in (np.random.default_rng, np.random.RandomState):
        ours, numpys = make(1), make(1)
        bits = _bits(ours).ctypes.bit_generator
        uniform = [ours.random() for _ in range(9)]
        places = np.searchsorted(p.cumsum() / p.cumsum()[-1], uniform, side="right").tolist()
        if numpys.choice(4, size=9, p=p).tolist() != places:
            return False
        if numpys.permutation(17).tolist() != shuffled(list(range(17)), functools.partial(interval, bits)):
            return False
        if make is np.random.default_rng:
            found: list[int] = []
            for last in range(13, 20):
                number = bounded(bits, last)
                found.append(last if number in found else number)
            expected = shuffled(found, functools.partial(bounded, bits))
        else:
            expected = shuffled(list(range(20)), functools.partial(interval, bits))[:7]
        if numpys.choice(20, 7, replace=False).tolist() != expected:
            return False
        if numpys.random() != ours.random():
            return False
    return True


def direct(e: Emitter, node: Node, stream: Any, operands: Sequence[Any]) -> list[Any]:
    """A draw of a number, or of a few, by a function of NumPy's. Raises Unsupported for others."""
    aval, attrs = node.aval[1], node.attrs
    options, method = dict(attrs["options"]), attrs["method"]
    size, count = options.get("size"), _COUNTED.get(method)
    replaces = options.pop("replace", True) if method == "choice" else True
    if not isinstance(stream, Stream) or {*options} - {"size", count} or "dims" in attrs:
        raise Unsupported("a draw with options")
    if count is None and not all(isinstance(value, Scalar) and value.dtype in (_INT, _FLOAT) for value in operands):
        raise Unsupported("a draw with parameters that are no numbers")
    if (count is None and not streams.in_order(attrs)) or (size is not None and aval.shape == ()):
        raise Unsupported("a draw with parameters that are not in order")
    if not all(type(extent) is int for extent in aval.shape) or math.prod(aval.shape) > _MOST:
        raise Unsupported("a draw of many numbers")
    drawn = _Drawn(e, stream, attrs["legacy"])
    if count is not None:
        if not chooses_alike():
            raise Unsupported("choices of another NumPy")
        if attrs["names"] not in ((), ("p",)) or not isinstance(options.get(count), int | np.integer):
            raise Unsupported(f"a {method} of what only the run knows")
        kind = method if replaces else "sample"
        made: Any = getattr(drawn, kind)(aval, int(options[count]), *operands)
    elif method in _UNIFORM and not operands:
        made = drawn.uniform(aval)
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
        state, function = self._uniform()
        return self._filled(aval, f"call double {function}(ptr {state})")

    def _uniform(self) -> tuple[str, str]:
        """What the generator's function for numbers from 0 to 1 is given, and where it is."""
        f, bits = self.f, self._bits()
        place = f.emit(f"getelementptr ptr, ptr {bits}, i64 {_NEXT_DOUBLE}")
        return f.emit(f"load ptr, ptr {bits}, align 8"), f.emit(f"load ptr, ptr {place}, align 8")

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

    def choice(self, aval: Any, count: int, *given: Any) -> Any:
        """Of so many numbers, with replacement: drawn as integers are; those with probabilities by their sums."""
        if not 0 < count <= _MOST:
            raise Unsupported("a choice of none, or of many")
        if not given:
            return self.whole(aval, [constant(count, _INT, True)])
        (p,) = given
        self._suits(aval, _INT)
        if not isinstance(p, Array) or len(p.shape) != 1 or p.dtype not in _CLOSE:
            raise Unsupported("probabilities of another kind")
        e, f = self.e, self.f
        if not p.static:  # as counts of what the run knows
            f.fail_if(f.emit(f"icmp ne i64 {arrays.text(p.shape[0])}, {count}"))
        elif p.shape != (count,):
            raise Unsupported("more or fewer probabilities")
        p = elementwise.operand(e, p, _FLOAT)
        sums, first, step = e.fresh((count,), _FLOAT), p.pointer(f), p.strides[0]
        start, total = sums.pointer(f), f.variable("double")
        f.store(_FLOAT, "0.0", total)
        with f.counted(count) as k:
            each = f.load(_FLOAT, element(f, first, k, step))
            f.fail_if(f.emit(f"fcmp ult double {each}, 0.0"))
            f.store(_FLOAT, f.emit(f"fadd double {f.load(_FLOAT, total)}, {each}"), total)
            f.store(_FLOAT, f.load(_FLOAT, total), element(f, start, k))
        whole = f.load(_FLOAT, total)
        allowed = _CLOSE[given[0].dtype]
        for word, limit in (("ult", 1.0 - allowed), ("ugt", 1.0 + allowed)):
            f.fail_if(f.emit(f"fcmp {word} double {whole}, {constant(limit, _FLOAT, True).register}"))
        with f.counted(count) as k:
            place = element(f, start, k)
            f.store(_FLOAT, f.emit(f"fdiv double {f.load(_FLOAT, place)}, {whole}"), place)
        out, numbers = e.fresh(aval.shape, _INT), math.prod(aval.shape)
        told = out.pointer(f)
        state, function = self._uniform()
        with f.counted(numbers) as k:
            f.store(_INT, behind(f, start, count, f.emit(f"call double {function}(ptr {state})")), element(f, told, k))
        e.memory.hold(sums.place)
        e.memory.release(sums.place)
        return out if aval.shape else Scalar(f.load(_INT, told), _INT, aval.weak)

    def sample(self, aval: Any, count: int, *given: Any) -> Any:
        """Some of so many numbers, each once: by Floyd's algorithm, and in a random order; the older generator's are
        the first ones of a permutation."""
        self._suits(aval, _INT)
        size = math.prod(aval.shape)
        if given or not aval.shape or size > count:
            raise Unsupported("a sample with probabilities, or of a number")
        if self.legacy:
            whole = self.permutation(Aval((count,), _INT), count)
            return arrays.reshaped(self.f, replace(whole, shape=(size,), owned=False), aval.shape)
        if size > _MOST_COMPARED or count > _MOST_SHUFFLED:
            raise Unsupported("a sample of many numbers")
        f, address, out = self.f, self._function("random_bounded_uint64"), self.e.fresh(aval.shape, _INT)
        bits, start, there = self._bits(), out.pointer(f), f.variable("i64")

        def bounded(last: str) -> str:
            return f"call i64 {address}(ptr {bits}, i64 0, i64 {last}, i64 0, i1 zeroext 0)"

        with f.counted(size) as k:
            last = f.emit(f"add i64 {k}, {count - size}")
            number = f.emit(bounded(last))
            f.store(_INT, "0", there)
            with f.counted(k) as j:
                same = f.emit(f"icmp eq i64 {f.load(_INT, element(f, start, j))}, {number}")
                f.store(_INT, f.emit(f"or i64 {f.load(_INT, there)}, {f.emit(f'zext i1 {same} to i64')}"), there)
            new = f.emit(f"icmp eq i64 {f.load(_INT, there)}, 0")
            f.store(_INT, f.select(new, "i64", number, last), element(f, start, k))
        self._shuffled(start, size, bounded)
        return out

    def permutation(self, aval: Any, count: int) -> Any:
        """Of so many numbers."""
        self._suits(aval, _INT)
        if count > _MOST or aval.shape != (count,):
            raise Unsupported("a permutation of many")
        f, address, out = self.f, self._function("random_interval"), self.e.fresh(aval.shape, _INT)
        bits, start = self._bits(), out.pointer(f)
        with f.counted(count) as k:
            f.store(_INT, k, element(f, start, k))
        self._shuffled(start, count, lambda last: f"call i64 {address}(ptr {bits}, i64 {last})")
        return out

    def _shuffled(self, start: str, count: int, drawn: Callable[[str], str]) -> None:
        """From the last one on, each changes places with one that comes before it, or stays."""
        f = self.f
        with f.counted(count - 1) as k:
            last = f.emit(f"sub i64 {count - 1}, {k}")
            here, there = (element(f, start, each) for each in (last, f.emit(drawn(last))))
            one, two = f.load(_INT, here), f.load(_INT, there)
            f.store(_INT, one, there)
            f.store(_INT, two, here)

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
