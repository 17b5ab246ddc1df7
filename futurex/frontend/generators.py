"""The traced random generator: a storage cell that holds a state, which every draw replaces."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.errors import Escape
from futurex.frontend.held import Guard
from futurex.frontend.trace import current, emit_many
from futurex.frontend.tracer import Tracer, extent_of, fresh, new_array, node_of
from futurex.ops.draws import METHODS
from futurex.ops.streams import (
    BIT_GENERATORS,
    GENERATORS,
    STATE,
    Unsupported,
    bits_of,
    state_of,
)
from futurex.tree.dims import Dim
from futurex.tree.node import Node, param

_OPTIONS = frozenset({"size", "dtype", "axis", "replace", "shuffle", "endpoint", "method", "check_valid"})
_ABSENT = frozenset({"size", "out", "high"})  # parameters whose default is None
_ABSENT_TOO = {"choice": "p", "permuted": "axis"}
ENTROPY = "entropy"
"""The key of the capture that seeds what the program does not seed: another generator at every call."""


class TracedGenerator:
    """Stands for a Generator or RandomState while a function is traced; so ``isinstance`` answers for that."""

    __fx_traced__ = True
    __slots__ = ("_bits", "_cell", "_legacy")

    def __init__(self, cell: Cell, bits: str, legacy: bool = False) -> None:
        self._cell = cell
        self._bits = bits
        self._legacy = legacy

    @classmethod
    def of(cls, generator: Any, name: str) -> TracedGenerator:
        """A generator that the program was given. Raises Escape for kinds that are not NumPy's own."""
        try:
            state_of(generator)
        except Unsupported as error:
            raise Escape(f"a random generator: {error}", "its state is not known to the tracer") from None
        cell = Cell(param(STATE, name), is_array=False)
        legacy = type(generator) is np.random.RandomState
        if legacy and generator is GLOBAL:
            current().guards["the global generator"] = _global_guard()
        return cls(cell, type(bits_of(generator)).__name__, legacy)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return np.random.RandomState if self._legacy else np.random.Generator

    def __repr__(self) -> str:
        raise Escape("the text of a random generator", "plain Python needs it here")

    def __getattr__(self, name: str) -> Any:
        from futurex.frontend.random_calls import CALLS

        if name == "bit_generator" and not self._legacy:
            return TracedBits(self._cell, self._bits)
        if (self._legacy, name) in CALLS:
            return TracedMethod(functools.partial(CALLS[self._legacy, name], self))
        if name in METHODS[self._legacy]:
            return TracedMethod(functools.partial(drawn, self, name))
        raise Escape(f"the attribute {name!r} of a random generator", "it is not traced")

    def draw(self, method: str, values: dict[str, Any], options: dict[str, Any]) -> Node:
        """The sample of one call; the cell holds the state after it."""
        nodes = {name: node_of(value) for name, value in values.items()}
        after, sample = emit_many(
            "draw", self._cell.value, *nodes.values(), method=method, legacy=self._legacy, names=tuple(nodes),
            options=tuple(sorted(options.items())),
        )  # fmt: skip
        self._cell.write(after)
        return sample

    def copy(self) -> TracedGenerator:
        return TracedGenerator(Cell(self._cell.value, is_array=False), self._bits, self._legacy)


class TracedMethod:
    """A method of a traced generator."""

    __fx_traced__ = True
    __slots__ = ("_function",)

    def __init__(self, function: Any) -> None:
        self._function = function

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._function(*args, **kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


class TracedBits:
    """Stands for a bit generator: what a Generator can be made of."""

    __fx_traced__ = True
    __slots__ = ("cell", "name")

    def __init__(self, cell: Cell, name: str) -> None:
        self.cell = cell
        self.name = name

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return BIT_GENERATORS[self.name]

    def __getattr__(self, name: str) -> Any:
        raise Escape(f"the attribute {name!r} of a bit generator", "it is not traced")


GLOBAL = np.random.mtrand._rand  # what the functions of the module draw from


def _global_guard() -> Guard:
    """``np.random.set_bit_generator`` changes what the global generator is made of."""
    name = type(bits_of(GLOBAL)).__name__
    return Guard("np.random", lambda: type(bits_of(GLOBAL)).__name__, name, (str, repr(name)))


def entropy() -> TracedGenerator:
    """The source of seeds for generators that the program does not seed."""
    return current().captured(np.random.default_rng(), np.random.default_rng, ENTROPY)


def drawn(generator: TracedGenerator, method: str, /, *args: Any, **kwargs: Any) -> Any:
    """A call of a method that gives a new array or number, or fills ``out``."""
    given = bound(generator._legacy, method, args, kwargs)
    out = given.pop("out", None)
    return sampled(generator, method, given) if out is None else _filled(generator, method, given, out)


def sampled(generator: TracedGenerator, method: str, given: dict[str, Any], /, **options: Any) -> Tracer:
    """One draw; ``options`` are parameters that are part of the program anyway."""
    values, known = _split(given)
    _refuse_odd_counts(generator, method, values)
    sample = generator.draw(method, values, known | options)
    return new_array(sample) if sample.ndim or "size" in known else fresh(sample)


_COUNTS = frozenset({"n", "ngood", "nbad", "nsample", "colors"})


def _refuse_odd_counts(generator: TracedGenerator, method: str, values: dict[str, Any]) -> None:
    """Escape for numbers of trials that are no integers: NumPy takes lists, numbers and arrays differently there."""
    for name in _COUNTS & values.keys():
        value, node = values[name], node_of(values[name])
        is_number = value.is_scalar if isinstance(value, Tracer) else not isinstance(value, list | tuple | np.ndarray)
        if not is_number and (node.dtype.kind not in "iu" or (generator._legacy and method == "multinomial")):
            raise Escape(f"{method} with such {name}=", "NumPy refuses it, or casts it")


def _split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters that are data, and those that are part of the program."""
    options = {name: _option(name, value) for name, value in given.items() if name in _OPTIONS}
    return {name: value for name, value in given.items() if name not in options}, options


def _filled(generator: TracedGenerator, method: str, given: dict[str, Any], out: Any) -> Tracer:
    """NumPy fills contiguous arrays of the same dtype, and refuses others."""
    values, options = _split(given)
    dtype = options.get("dtype", np.dtype(float))
    if (
        not isinstance(out, Tracer)
        or out.is_scalar
        or out.dtype != dtype
        or not is_c_contiguous(out)
        or options.get("size", out.shape) not in (out.shape, *out.shape[: out.ndim == 1])
    ):
        raise Escape(f"{method} with this out=", "NumPy may refuse it")
    out._write(generator.draw(method, values, {**options, "size": out.shape}))
    return out


def is_c_contiguous(array: Tracer) -> bool:
    """Is the array surely laid out in C order?"""
    strides, expected = array.strides_in_memory, array.dtype.itemsize
    if strides is None:
        return False
    for stride, extent in zip(reversed(strides), reversed(array.shape), strict=True):
        if stride != expected and extent > 1:
            return False
        expected *= extent
    return True


def bound(legacy: bool, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the method's parameters, in their order; what NumPy takes as absent is left out."""
    parameters = METHODS[legacy][method].parameters
    given = dict(zip(parameters, args, strict=False))
    if len(args) > len(parameters) or set(kwargs) - set(parameters) or set(kwargs) & set(given):
        raise Escape(f"{method} with these arguments", "NumPy refuses them")
    given |= kwargs
    absent = {*_ABSENT, _ABSENT_TOO.get(method)}
    return {name: given[name] for name in parameters if name in given and not (given[name] is None and name in absent)}


def _option(name: str, value: Any) -> Any:
    """A parameter that is part of the program."""
    if name == "size":
        return shape_of(value)
    if name == "dtype":
        return {int: "int", bool: "bool"}.get(value) or _dtype(value)
    if name in ("endpoint", "replace", "shuffle") and not isinstance(value, Tracer):
        return bool(value)
    if name in ("method", "check_valid") and isinstance(value, str):
        return value
    raise Escape(f"a random sample with {name}={value!r}", "it is not known to the tracer")


def _dtype(value: Any) -> np.dtype[Any]:
    if value is None or np.dtype(value).kind not in "biuf":
        raise Escape(f"a random sample with dtype={value!r}", "NumPy refuses it")
    return np.dtype(value)


def shape_of(size: Any) -> Any:
    """``size`` as an extent or a tuple of extents, which the run may have to compute."""
    shape = tuple(map(_extent, size)) if isinstance(size, tuple | list) else _extent(size)
    if any(isinstance(extent, int) and extent < 0 for extent in (shape if isinstance(shape, tuple) else (shape,))):
        raise Escape("a random sample of a negative size", "NumPy refuses it")
    return shape


def _extent(value: Any) -> Any:
    if isinstance(value, bool | float):
        raise Escape(f"a random sample of size {value!r}", "NumPy refuses it")
    return extent_of(value)


# -- calls of staged functions -----------------------------------------------------------------------------------------

_REENTRANT = type(threading.RLock())


@contextlib.contextmanager
def held(generators: Sequence[Any]) -> Iterator[None]:
    """Let nobody else draw from the generators while a call does."""
    locks = {id(bits_of(generator)): bits_of(generator).lock for generator in generators}
    with contextlib.ExitStack() as stack:
        for _, lock in sorted(locks.items()):
            if isinstance(lock, _REENTRANT):
                stack.enter_context(lock)
        yield


def share_bits(generators: Sequence[Any]) -> bool:
    """Do two of the generators draw from the same bits, or spawn from the same seeds?"""
    bits = [bits_of(generator) for generator in generators]
    seeds = [each.seed_seq for each in bits if each.seed_seq is not None]
    return len(set(map(id, bits))) < len(bits) or len(set(map(id, seeds))) < len(seeds)


def is_generator(value: Any) -> bool:
    return type(value) in GENERATORS


def count_of(value: Any) -> Any:
    """An integer as an extent, which the run may have to compute; None for anything else."""
    if isinstance(value, Tracer) and value.is_scalar and value.dtype.kind in "iu":
        value = extent_of(value)
    elif not isinstance(value, int | np.integer | Dim) or isinstance(value, bool):
        return None
    if not isinstance(value, Dim) and value < 0:
        raise Escape("a choice or permutation of a negative number", "NumPy refuses it")
    return value if isinstance(value, Dim) else int(value)


def known_int(value: Any) -> int | None:
    """The value of an integer that is known while tracing; None for anything else."""
    if isinstance(value, Tracer) and value.ndim == 0 and value._node.op == "const":
        value = value._node.value
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None
