"""NumPy's own random streams: a generator's state is a value, and a draw makes the next state and a sample of it.

So the numbers are NumPy's, bit for bit, and whoever runs a draw twice (a derivative, another locality) gets them twice.
The draws themselves are in :mod:`futurex.ops.draws`.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.ops.twister import bits_now, bring
from futurex.tree.aval import Aval
from futurex.tree.record import Sample, op

STATE = Aval((), np.dtype(object))
BIT_GENERATORS: dict[str, type[np.random.BitGenerator]] = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
GENERATORS = (np.random.Generator, np.random.RandomState)
Sequenced = tuple[Any, tuple[int, ...], int, int]  # entropy, spawn key, pool size, children spawned


class Unsupported(TypeError):
    """A generator whose state NumPy does not give as a value: a subclass, or a foreign bit generator."""


@dataclass(frozen=True, eq=False, slots=True)
class State:
    """What a generator will draw: the state of its bits, and for ``spawn`` what they were seeded with."""

    legacy: bool
    bits: dict[str, Any]
    seed: Sequenced | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._text() == other._text()

    def __hash__(self) -> int:
        return hash(self._text())

    def _text(self) -> str:
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            return repr((self.legacy, self.bits, self.seed))


def bits_of(generator: Any) -> np.random.BitGenerator:
    """The bit generator of a Generator or RandomState."""
    return generator._bit_generator if isinstance(generator, np.random.RandomState) else generator.bit_generator


def state_of(generator: Any) -> State:
    """The state of a NumPy generator now. Raises Unsupported for kinds that are not NumPy's own."""
    if type(generator) is np.random.RandomState:
        if type(generator._bit_generator) not in BIT_GENERATORS.values():
            raise Unsupported(f"a {type(generator._bit_generator).__qualname__}")
        return State(True, bits_now(generator))
    if type(generator) is not np.random.Generator or type(generator.bit_generator) not in BIT_GENERATORS.values():
        raise Unsupported(f"a {type(generator).__qualname__} of a {type(bits_of(generator)).__qualname__}")
    sequence = generator.bit_generator.seed_seq
    return State(False, dict(generator.bit_generator.state), sequenced(sequence))


def sequenced(sequence: Any) -> Sequenced | None:
    """What a seed sequence was made of, as a value; None for foreign ones."""
    if type(sequence) is not np.random.SeedSequence:
        return None
    entropy: Any = sequence.entropy
    entropy = int(entropy) if isinstance(entropy, int | np.integer) else tuple(map(int, entropy))
    return entropy, tuple(sequence.spawn_key), sequence.pool_size, sequence.n_children_spawned


def restore(generator: Any, state: State) -> None:
    """Bring a NumPy generator to a state, including the number of children it spawned."""
    if state.legacy:
        bring(generator, state.bits)
        return
    generator.bit_generator.state = state.bits
    if state.seed is not None:
        spawned = state.seed[3] - generator.bit_generator.seed_seq.n_children_spawned
        if spawned > 0:
            generator.bit_generator.seed_seq.spawn(spawned)


def generator_of(state: State) -> Any:
    """A new NumPy generator in the given state."""
    kind = BIT_GENERATORS[state.bits["bit_generator"]]
    if state.legacy:
        legacy = np.random.RandomState(kind(0))
        bring(legacy, state.bits)
        return legacy
    bits = kind(_sequence(state.seed) if state.seed is not None else 0)
    bits.state = state.bits
    return np.random.Generator(bits)


def _sequence(seed: Sequenced) -> np.random.SeedSequence:
    entropy, spawn_key, pool_size, spawned = seed
    return np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=spawned)


# -- seeding -----------------------------------------------------------------------------------------------------------


def plain_scalar(value: Any) -> Any:
    """A plan may keep a NumPy scalar as an array without dimensions, which some methods refuse."""
    return value[()] if isinstance(value, np.ndarray) else value


def _seeded(*seed: Any, bits: str, legacy: bool, sequence: Sequenced | None = None) -> State:
    if legacy:
        return _seeded_anew(*map(plain_scalar, seed))
    source = _sequence(sequence) if sequence is not None else plain_scalar(seed[0])
    return state_of(np.random.Generator(BIT_GENERATORS[bits](source)))


class _Own(threading.local):
    """A RandomState of this thread: seeding it is a hundredth of the work of making one."""

    def __init__(self) -> None:
        self.generator: Any = None


_own = _Own()


def _seeded_anew(*seed: Any) -> State:
    """The state of ``RandomState(*seed)``."""
    if len(seed) != 1 or seed[0] is None or hasattr(seed[0], "capsule"):  # that of a bit generator
        return state_of(np.random.RandomState(*seed))
    if _own.generator is None:
        _own.generator = np.random.RandomState(0)
    _own.generator.seed(*seed)
    return state_of(_own.generator)


op(
    "seeded", _seeded, fails=True, aval=lambda *seed, bits, legacy, sequence=None: STATE,
    samples=lambda rng: [
        Sample((5,), {"bits": "PCG64", "legacy": False}, order=0),
        Sample((np.arange(3),), {"bits": "MT19937", "legacy": False}, order=0),
        Sample((5,), {"bits": "MT19937", "legacy": True}, order=0),
        Sample((), {"bits": "Philox", "legacy": False, "sequence": (7, (0, 1), 4, 2)}, order=0),
    ],
)  # fmt: skip


def _spawned(state: State, n: int) -> tuple[State, ...]:
    """Children as ``Generator.spawn`` makes them."""
    if state.seed is None:
        raise Unsupported("a generator without a seed sequence cannot spawn")
    kind = BIT_GENERATORS[state.bits["bit_generator"]]
    children = _sequence(state.seed).spawn(n)
    parent = replace(state, seed=(*state.seed[:3], state.seed[3] + n))
    return parent, *(state_of(np.random.Generator(kind(child))) for child in children)


def example(seed: int = 3, legacy: bool = False) -> State:
    """A state for samples."""
    return _seeded(seed, bits="PCG64", legacy=legacy)


op(
    "spawned", _spawned, fails=True, aval=lambda state, n: (STATE,) * (n + 1),
    samples=lambda rng: [Sample((example(),), {"n": 2}, order=0)],
)  # fmt: skip
