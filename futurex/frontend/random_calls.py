"""``numpy.random`` in staged code: making generators, seeding them, and the methods that order or select elements.

Those draw positions and then take elements by them, which is what NumPy does, swap by swap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.calls import SPECIAL, call, special
from futurex.frontend.cells import Cell
from futurex.frontend.errors import Escape
from futurex.frontend.generators import (
    GLOBAL,
    TracedBits,
    TracedGenerator,
    bound,
    count_of,
    drawn,
    entropy,
    is_c_contiguous,
    known_int,
    sampled,
)
from futurex.frontend.numpy_api.memory import laid_out
from futurex.frontend.numpy_api.ufuncs import one_axis
from futurex.frontend.outside import any_traced, own_container
from futurex.frontend.trace import current, emit, emit_many
from futurex.frontend.tracer import Tracer, as_tracer, entered, fresh, new_array, node_of
from futurex.ops.draws import METHODS
from futurex.ops.streams import BIT_GENERATORS, sequenced
from futurex.tree.node import Node

CALLS: dict[tuple[bool, str], Callable[..., Any]] = {}


def _method(name: str, *kinds: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a method of Generator (False) or RandomState (True)."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for legacy in kinds or (False, True):
            CALLS[legacy, name] = functools.partial(_called, function, name, legacy)
        return function

    return register


def _called(function: Any, name: str, legacy: bool, generator: TracedGenerator, *args: Any, **kwargs: Any) -> Any:
    if name in METHODS[legacy]:
        return function(generator, **bound(legacy, name, args, kwargs))
    return function(generator, *args, **kwargs)


# -- order and selection -----------------------------------------------------------------------------------------------


def _positions(generator: TracedGenerator, n: Any) -> Tracer:
    return new_array(generator.draw("permutation", {}, {"x": n}))


def _array(value: Any, what: str) -> Tracer:
    array = as_tracer(value)
    if array.ndim == 0:
        raise Escape(f"{what} of a number that is not known before the run", "it says how large the result is")
    return array


def _take(array: Tracer, index: Tracer, axis: int) -> Tracer:
    return call(np.take, (array, index), {"axis": axis})


@_method("permutation")
def _permutation(generator: TracedGenerator, x: Any, axis: Any = 0) -> Tracer:
    n = count_of(x)
    if n is not None:
        positions = _positions(generator, n)
        return positions.astype(float) if _is_uint64(x) else positions  # as np.arange makes of them
    array = _array(x, "a permutation")
    axis = one_axis(axis, array.ndim)
    return _take(array, _positions(generator, array.shape[axis]), axis)


def _is_uint64(number: Any) -> bool:
    return isinstance(number, np.uint64) or (isinstance(number, Tracer) and number.dtype == np.uint64)


@_method("shuffle")
def _shuffle(generator: TracedGenerator, x: Any, axis: Any = 0) -> None:
    if not isinstance(x, Tracer) or x.ndim == 0:
        raise Escape(f"a shuffled {type(x).__name__}", "only arrays are shuffled in the tree")
    axis = one_axis(axis, x.ndim)
    order = _positions(generator, x.shape[axis])
    x._write(_take(x, order, axis))


@_method("permuted", False)
def _permuted(generator: TracedGenerator, x: Any, axis: Any = None, out: Any = None) -> Tracer:
    array = _array(x, "a permutation")
    if out is not None and (not isinstance(out, Tracer) or out.dtype != array.dtype or out.shape != array.shape):
        raise Escape("permuted with this out=", "NumPy may refuse it")
    if axis is None:
        if array.ndim > 1 and not all(is_c_contiguous(each) for each in (array, out) if each is not None):
            raise Escape("permuted over all axes", "the order follows the layout in memory", "permute x.ravel()")
        result = _take(array.ravel(), _positions(generator, array.size), 0).reshape(array.shape)
    else:
        axis = one_axis(axis, array.ndim)
        places = emit("iota", shape=array.shape, axis=axis, dtype=np.dtype(np.int64))
        order = generator.draw("permuted", {"x": fresh(places)}, {"axis": axis})
        result = laid_out(new_array(emit("take_along_axis", array._node, order, axis=axis)), array, "K")
    if out is None:
        return result
    out._write(result)
    return out


@_method("choice")
def _choice(generator: TracedGenerator, a: Any, axis: Any = 0, **given: Any) -> Any:
    n = count_of(a)
    if n is not None:
        return sampled(generator, "choice", given, a=n)
    array = _array(a, "a choice")
    if generator._legacy and array.ndim > 1:
        raise Escape("choice from an array of several dimensions", "RandomState refuses it")
    axis = one_axis(axis, array.ndim)
    index = sampled(generator, "choice", given, a=array.shape[axis])
    if array.ndim == 1 and index.is_scalar:
        return array[index]
    chosen = _take(array, index, axis)
    return chosen if chosen.ndim else new_array(chosen._node)  # of ``size=()``


# -- convenience -------------------------------------------------------------------------------------------------------


@_method("rand", True)
def _rand(generator: TracedGenerator, *shape: Any) -> Any:
    return drawn(generator, "random_sample", *([shape] if shape else []))


@_method("randn", True)
def _randn(generator: TracedGenerator, *shape: Any) -> Any:
    return drawn(generator, "standard_normal", *([shape] if shape else []))


@_method("spawn", False)
def _spawn(generator: TracedGenerator, n_children: Any) -> list[TracedGenerator]:
    n = known_int(n_children)
    if n is None or n < 0:
        raise Escape("spawn of a number that is not known before the run", "it says how many generators there are")
    parent, *children = emit_many("spawned", generator._cell.value, n=n)
    generator._cell.write(parent)
    return current().remember([TracedGenerator(_cell(child), generator._bits) for child in children])


@_method("seed", True)
def _seed(generator: TracedGenerator, seed: Any = None) -> None:
    if generator._bits != "MT19937":
        raise Escape(f"seed of a RandomState of {generator._bits}", "NumPy refuses it")
    generator._cell.write(_seeded(seed, "MT19937", legacy=True))


# -- making generators -------------------------------------------------------------------------------------------------


def _cell(state: Node) -> Cell:
    return Cell(state, is_array=False)


def _seeded(seed: Any, bits: str, *, legacy: bool = False) -> Node:
    """The state after seeding. A sequence of seeds is part of the program; without a seed there is fresh entropy."""
    if type(seed) is TracedSeeds and not legacy:
        return emit("seeded", bits=bits, legacy=False, sequence=sequenced(seed.sequence))
    if seed is None:
        seed = drawn(entropy(), "integers", 0, 2**32, size=8, dtype=np.uint32)
    node = node_of(seed)
    of_array = isinstance(seed, np.ndarray) or (isinstance(seed, Tracer) and not seed.is_scalar)
    if legacy and isinstance(seed, list | tuple) and len(seed) == 1:
        raise Escape("a random seed that is a list of one number", "NumPy takes an array of one for the number")
    if node.dtype.kind not in "iu" or node.ndim > 1 or (of_array and not node.ndim):
        raise Escape("a random seed that is neither an integer nor a vector of some", "NumPy refuses most of them")
    return emit("seeded", node, bits=bits, legacy=legacy)


def _bits(name: str) -> Callable[..., TracedBits]:
    return lambda seed=None: TracedBits(_cell(_seeded(seed, name)), name)


for _name, _kind in BIT_GENERATORS.items():
    SPECIAL[_kind] = _bits(_name)


@special(np.random.Generator)
def _generator(bit_generator: Any) -> TracedGenerator:
    if type(bit_generator) is not TracedBits:
        raise Escape("a Generator of a bit generator from outside", "others may draw from it too")
    return TracedGenerator(bit_generator.cell, bit_generator.name)


@special(np.random.default_rng)
def _default_rng(seed: Any = None) -> TracedGenerator:
    seed = entered(seed)
    if type(seed) is TracedGenerator and not seed._legacy:
        return seed
    if type(seed) is TracedBits:
        return _generator(seed)
    return TracedGenerator(_cell(_seeded(seed, "PCG64")), "PCG64")


@special(np.random.RandomState)
def _random_state(seed: Any = None) -> TracedGenerator:
    return TracedGenerator(_cell(_seeded(seed, "MT19937", legacy=True)), "MT19937", legacy=True)


class TracedSeeds:
    """Stands for a SeedSequence that the function makes; it is part of the program."""

    __fx_traced__ = True
    __slots__ = ("sequence",)

    def __init__(self, sequence: np.random.SeedSequence) -> None:
        self.sequence = current().remember(sequence)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return np.random.SeedSequence

    def spawn(self, n_children: Any) -> list[TracedSeeds]:
        """The next children; spawning changes the sequence, so not inside branches and loops that others may run."""
        own_container(self.sequence, "the number of children of a SeedSequence")
        return current().remember([TracedSeeds(child) for child in self.sequence.spawn(n_children)])

    def __getattr__(self, name: str) -> Any:
        raise Escape(f"the attribute {name!r} of a SeedSequence", "it is not traced")


@special(np.random.SeedSequence)
def _seed_sequence(entropy: Any = None, **options: Any) -> TracedSeeds:
    if entropy is None or any_traced([entropy, *options.values()]):
        raise Escape("a SeedSequence of data, or of fresh entropy", "its children would be made once")
    return TracedSeeds(np.random.SeedSequence(entropy, **options))


# -- the functions of the module ---------------------------------------------------------------------------------------


@special(np.random.seed)
def _seed_global(seed: Any = None) -> None:
    entered(GLOBAL).seed(seed)


@special(np.random.ranf, np.random.sample)
def _sample_global(*args: Any, **kwargs: Any) -> Any:
    return entered(GLOBAL).random_sample(*args, **kwargs)
