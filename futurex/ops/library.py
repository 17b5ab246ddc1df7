"""``native``: a call of a pure NumPy function by NumPy's own code, for what has no operation of its own here.

The call stands in the tree as text, ``call="np.median(_0, axis=1)"``, where ``_k`` is the k-th input: like the rest of
a printed tree it is Python that can be executed. What the result is like is asked of NumPy, on stand-ins.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.silence import silenced
from futurex.tree.aval import PYTHON_SCALARS, Aval, aval_of
from futurex.tree.dims import Dim, Fresh, Symbol, dims_in, renamed
from futurex.tree.node import Node, apply
from futurex.tree.printer import literal
from futurex.tree.pytree import LEAF, Structure, flatten
from futurex.tree.record import Avals, Meaning, Sample, op

_LARGEST = 1 << 20  # elements of a stand-in whose values vary


class NoFixedResult(TypeError):
    """What a function returns depends on the values it is given, or shares memory with them."""


@dataclass(frozen=True)
class Result:
    """What a call returns: its leaves, how they nest, which are arrays (others are scalars) and lie in C order."""

    avals: tuple[Aval, ...]
    structure: Structure
    arrays: tuple[bool, ...]
    contiguous: bool


def spelled(value: Any) -> str:
    """Python text of a static argument. Raises TypeError for what has none."""
    if isinstance(value, list | tuple):
        inner = ", ".join(map(spelled, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{spelled(key)}: {spelled(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, np.dtype) or (isinstance(value, type) and value in _TYPES):
        return f"np.dtype({np.dtype(value).str!r})"
    if isinstance(value, slice):
        return f"slice({spelled(value.start)}, {spelled(value.stop)}, {spelled(value.step)})"
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        return literal(value)
    if type(value) in PYTHON_SCALARS:
        return literal(value)
    if isinstance(value, Hole | str | None | type(Ellipsis)):
        return repr(value)
    raise TypeError(f"a {type(value).__qualname__} has no text")


_TYPES = frozenset((bool, int, float, complex, *np.sctypeDict.values()))


@dataclass(frozen=True)
class Hole:
    """The place of an input in a call."""

    index: int

    def __repr__(self) -> str:
        return f"_{self.index}"


@functools.lru_cache(maxsize=4096)
def as_function(call: str, count: int, numpy: Any = np) -> Callable[..., Any]:
    """A call as a function of its inputs; ``numpy``: what stands for NumPy in it."""
    names = ", ".join(repr(Hole(k)) for k in range(count))
    return eval(f"lambda {names}: {call}", {"np": numpy})


def _native(*arrays: Any, call: str) -> Any:
    result = as_function(call, len(arrays))(*arrays)
    leaves, structure = flatten(result)
    return leaves[0] if structure is LEAF else tuple(leaves)


@functools.lru_cache(maxsize=4096)
def result_of(call: str, avals: tuple[Aval, ...]) -> Result:
    """What a call gives for inputs like these, found by calling it on stand-ins.

    Raises what the function raises, and NoFixedResult where no fixed description of its result is possible.
    """
    if _is_open(call):
        return _of_any_size(_on_stand_ins(call, tuple(aval.with_extents(_sized) for aval in avals)))
    if not all(aval.static for aval in avals):
        return _open_result(call, avals)
    found = _on_stand_ins(call, avals)
    if found[0] != found[-1]:
        raise NoFixedResult("the shape or type of its result depends on the values of its arguments")
    return found[0]


def _is_open(call: str) -> bool:
    """Does the function choose how much it returns by the values it is given?"""
    name = call[3 : call.index("(")]
    return name in _OPEN or (name.startswith("histogram") and "'" in call)  # the name of a rule that chooses the bins


_OPEN = frozenset({
    "bincount", "intersect1d", "setdiff1d", "setxor1d", "union1d", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "polymul",
})  # fmt: skip


def _sized(extent: Any) -> int:
    return 7 if isinstance(extent, Dim) else extent


def _of_any_size(found: list[Result]) -> Result:
    """The same result with extents that only the run knows."""
    first, numbers = found[0], itertools.count()
    if any(_kind(each) != _kind(first) for each in found):
        raise NoFixedResult("the type of its result depends on the values of its arguments")
    avals = tuple(aval.with_extents(lambda _: Fresh(next(numbers))) for aval in first.avals)
    return Result(avals, first.structure, first.arrays, first.contiguous)


def _on_stand_ins(call: str, avals: tuple[Aval, ...]) -> list[Result]:
    found: list[Result] = []
    error: Exception | None = None
    with np.errstate(all="ignore"), silenced():
        for stand_in in (_varied, _ones):
            inputs = [stand_in(aval) for aval in avals]
            try:
                found.append(_described(as_function(call, len(avals))(*inputs), inputs))
            except NoFixedResult:
                raise
            except Exception as reason:
                error = reason
    if not found:
        assert error is not None
        raise error
    return found


def _open_result(call: str, avals: tuple[Aval, ...]) -> Result:
    """What a call gives where extents are unknown: an extent of the result is a number, or that of an input and so many
    more, if it is so for stand-ins of several sizes; otherwise it is open."""
    symbols = sorted({symbol for aval in avals for dim in dims_in(aval.shape) for symbol in dim.symbols})
    try:
        trials = [_trial(call, avals, dict(zip(symbols, sizes, strict=True))) for sizes in _sizes(len(symbols))]
    except NoFixedResult:
        raise
    except Exception:  # lengths may have to agree: then nothing tells them apart
        trials = [_trial(call, avals, dict.fromkeys(symbols, size)) for (size,) in _sizes(1)]
        symbols = symbols[:1] if len(symbols) == 1 else []
    first = trials[0][1]
    if any(_kind(result) != _kind(first) for _, result in trials):
        raise NoFixedResult("the type of its result depends on the sizes of its arguments")
    numbers = itertools.count()
    outs = []
    for k, aval in enumerate(first.avals):
        rows = zip(*(result.avals[k].shape for _, result in trials), strict=True)
        shape = tuple(_extent(row, [sizes for sizes, _ in trials], symbols, numbers) for row in rows)
        outs.append(Aval(shape, aval.dtype, aval.weak))
    return Result(tuple(outs), first.structure, first.arrays, all(result.contiguous for _, result in trials))


def _sizes(count: int) -> list[list[int]]:
    """Sizes for so many symbols, three times: no symbol is always another one and so many more, nor always the larger
    of two."""
    places = range(count)
    return [
        [start + step * k for k in order]
        for start, step, order in ((5, 6, places), (16, 5, places[::-1]), (51, 7, places))
    ]


def _trial(call: str, avals: tuple[Aval, ...], sizes: dict[Symbol, int]) -> tuple[dict[Symbol, int], Result]:
    def of(extent: Any) -> Any:
        return renamed(extent, sizes) if isinstance(extent, Dim) else extent

    return sizes, result_of(call, tuple(aval.with_extents(of) for aval in avals))


def _kind(result: Result) -> Any:
    return [(aval.dtype, aval.weak, aval.ndim) for aval in result.avals], result.structure, result.arrays


def _extent(row: tuple[int, ...], sizes: list[dict[Symbol, int]], symbols: list[Symbol], numbers: Any) -> Any:
    if len(set(row)) == 1:
        return row[0]
    for symbol in symbols:
        more = {extent - size[symbol] for extent, size in zip(row, sizes, strict=True)}
        if len(more) == 1 and (change := more.pop()) >= 0:
            return Dim.of(symbol) + change
    return Fresh(next(numbers))


def _ones(aval: Aval) -> Any:
    if aval.weak:
        return aval.dtype.type(1).item()
    if aval.size > _LARGEST:
        return np.broadcast_to(np.ones((), aval.dtype), aval.shape)
    array = np.ones(aval.shape, aval.dtype)
    array.flags.writeable = False
    return array


def _varied(aval: Aval) -> Any:
    """Different numbers, zeros among them: counting what is not zero gives another number than for ones."""
    if aval.weak:
        return aval.dtype.type(0).item()
    if aval.size > _LARGEST:
        return np.broadcast_to(np.zeros((), aval.dtype), aval.shape)
    array = (np.arange(aval.size) % 5).astype(aval.dtype).reshape(aval.shape)
    array.flags.writeable = False
    return array


def _described(value: Any, inputs: list[Any]) -> Result:
    leaves, structure = flatten(value)
    for leaf in leaves:
        if not (isinstance(leaf, np.generic) or type(leaf) in (*PYTHON_SCALARS, np.ndarray)):
            raise NoFixedResult(f"it returns a {type(leaf).__qualname__}")
        if isinstance(leaf, np.ndarray) and any(_is_view(leaf, each) for each in inputs):
            raise NoFixedResult("its result is a view of an argument")
    arrays = tuple(isinstance(leaf, np.ndarray) for leaf in leaves)
    contiguous = all(leaf.flags.c_contiguous for leaf in leaves if isinstance(leaf, np.ndarray))
    return Result(tuple(map(aval_of, leaves)), structure, arrays, contiguous)


def _is_view(result: Any, of: Any) -> bool:
    """Empty arrays share no memory: what they were made of tells."""
    return np.may_share_memory(result, of) or (isinstance(of, np.ndarray) and _owner(result) is _owner(of))


def _owner(array: Any) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _native_aval(*avals: Aval, call: str) -> Avals:
    result = result_of(call, avals)
    return result.avals[0] if result.structure is LEAF else result.avals


_WEIGHTED = re.compile(r"np\.bincount\(_0, (weights=)?_1(, (minlength=)?\d+)?\)")


def _native_rule(g: Any, out: Node, *inputs: Node, call: str) -> Any:
    """Of weights that are added up at positions, whose sums :mod:`futurex.kernels.loops.groups` compiles as this call,
    and of what has a meaning; what else should have a derivative has an operation of its own."""
    if call[3 : call.index("(")] in MEANINGS:
        return Meaning(_meant)
    if not _WEIGHTED.fullmatch(call):
        return NotImplemented
    return None, apply("gather", g, inputs[0], pattern=(("d", 0),))


MEANINGS: dict[str, Callable[..., Any]] = {}
"""What functions mean in simpler operations, for their derivatives: their arguments are those of the function, nodes or
values, and so are their results, or NotImplemented."""


class _Meant:
    """Stands for NumPy in the text of a call whose meaning is asked for."""

    def __getattr__(self, name: str) -> Any:
        return MEANINGS[name] if name in MEANINGS else getattr(np, name)


_MEANT = _Meant()


def _meant(*inputs: Node, call: str) -> Any:
    rest = call.rpartition(")")[2]  # an index of one of several results
    found = as_function(call.removesuffix(rest), len(inputs), _MEANT)(*inputs)
    if found is NotImplemented:
        return NotImplemented
    leaves, structure = flatten(eval(f"found{rest}", {"found": found}))
    return leaves[0] if structure is LEAF else tuple(leaves)


def _native_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.normal(size=(3, 5)),), {"call": "np.median(_0, axis=1)"}, order=0)
    yield Sample((rng.normal(size=(4,)), np.arange(4)), {"call": "np.lexsort((_0, _1))"}, order=0)
    yield Sample((rng.normal(size=(4,)), 0.25), {"call": "np.quantile(_0, _1)"}, order=0)
    yield Sample((np.array([0.5, -0.0]),), {"call": "np.meshgrid(_0, [1, 2])"}, order=0)
    yield Sample((rng.integers(0, 4, 6),), {"call": "np.unique_counts(_0)"}, order=0)
    for call in ("np.bincount(_0, weights=_1, minlength=5)", "np.bincount(_0, _1)"):
        yield Sample((np.array([1, 0, 1, 3]), rng.normal(size=4)), {"call": call}, order=2)


op("native", _native, aval=_native_aval, vjp=_native_rule, samples=_native_samples, fails=True)
