"""Sums over ranks of what is sent in a smaller form, with error feedback.

What a form leaves out is kept and added to the next sum (Karimireddy et al., *Error Feedback Fixes SignSGD*, ICML
2019), so that over time everything arrives. Every rank gets the forms of all and adds them up in the order of the
ranks: the same bits everywhere. This is another mathematics than the plain sum's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from futurex.runtime.collectives.codecs import BLOCK, SMALLEST, Codec, LowRank, blocks, codec_of
from futurex.runtime.collectives.operation import PARTS, Collective, CollectiveError, Key
from futurex.runtime.collectives.vectors import Arrays, split
from futurex.runtime.transport import Endpoint


class Engine(Protocol):
    """What compressed sums are made of."""

    def all_reduce(self, arrays: Arrays, outs: Arrays, reduce: str, key: Key, timeout: float) -> Collective: ...

    def all_gather(self, array: np.ndarray, outs: Arrays, key: Key, timeout: float) -> Collective: ...

    def all_reduce_after(
        self, first: Collective, fill: Callable[[], None], array: np.ndarray, key: Key, timeout: float
    ) -> Collective: ...


class Compression:
    """The compressed sums of one rank in one generation, and what they have left out so far."""

    def __init__(self, engine: Engine, endpoint: Endpoint) -> None:
        self._engine = engine
        self._endpoint = endpoint
        self._left: dict[tuple[str, int, int], np.ndarray] = {}
        self._factors: dict[tuple[str, int, int], np.ndarray] = {}

    def all_reduce(self, name: str, arrays: Arrays, outs: Arrays, key: Key, timeout: float) -> Collective:
        """Begin to sum arrays over the ranks; `name` is that of the codec and, behind "#", of what is summed."""
        text, _, program = name.partition("#")
        codec = codec_of(text)
        whole = _Whole(self._endpoint, key, timeout)
        small: list[int] = []
        large: list[int] = []
        for number, array in enumerate(arrays):
            fits = array.size >= SMALLEST and (isinstance(codec, Codec) or codec.applies(array.shape))
            (large if fits else small).append(number)
        if small:
            flat = [arrays[k].reshape(-1) for k in small], [outs[k].reshape(-1) for k in small]
            whole.needs(self._engine.all_reduce(*flat, "sum", key, timeout))
        if large:
            state = [(program, key[2], number) for number in large]
            ins, results = [arrays[k] for k in large], [outs[k] for k in large]
            if isinstance(codec, Codec):
                self._gathered(codec, whole, state, ins, results, key, timeout)
            else:
                self._factored(codec, whole, state, ins, results, key, timeout)
        whole.begun()
        return whole

    def _with_rest(self, state: tuple[str, int, int], array: np.ndarray) -> np.ndarray:
        """Return a vector in single precision with what was left out before."""
        vector = self._left.pop(state, None)
        if vector is None:
            return array.reshape(-1).astype(np.float32)
        vector += array.reshape(-1)
        return vector

    def _keep(
        self, state: tuple[str, int, int], vector: np.ndarray, sent: Iterable[tuple[Any, np.ndarray]]
    ) -> None:
        """Keep what was not sent of a vector, in its place."""
        with np.errstate(invalid="ignore"):
            for places, values in sent:
                vector[places] -= values
        for part in blocks(vector.size):
            finite = np.isfinite(vector[part])
            if not finite.all():
                vector[part][~finite] = 0
        self._left[state] = vector

    def _gathered(
        self, codec: Codec, whole: _Whole, states: Sequence[Any], arrays: Arrays, outs: Arrays, key: Key, timeout: float
    ) -> None:
        payloads = []
        for state, array in zip(states, arrays, strict=True):
            vector = self._with_rest(state, array)
            payloads.append(codec.encode(vector))
            self._keep(state, vector, codec.pieces(payloads[-1], vector.size))
        sizes = [payload.size for payload in payloads]
        mine = payloads[0] if len(payloads) == 1 else np.concatenate(payloads)
        everyone = [np.empty_like(mine) for _ in range(self._endpoint.size)]

        def land() -> None:
            for number, out in enumerate(outs):
                total = np.zeros(out.size, np.float32)
                for theirs in everyone:
                    for places, values in codec.pieces(list(split(theirs, sizes))[number], out.size):
                        total[places] += values
                out[...] = total.reshape(out.shape)

        whole.needs(self._engine.all_gather(mine, everyone, _part(key, 1), timeout), land)

    def _factored(
        self, codec: LowRank, whole: _Whole, states: Sequence[Any], arrays: Arrays, outs: Arrays, key: Key,
        timeout: float,
    ) -> None:  # fmt: skip
        """Sum the left factors, make them orthonormal, sum the right factors that belong to them."""
        vectors = [self._with_rest(state, array) for state, array in zip(states, arrays, strict=True)]
        matrices = [v.reshape(codec.matrix(array.shape)) for v, array in zip(vectors, arrays, strict=True)]
        rights = [self._factors.get(state) for state in states]
        starts = [codec.start(m.shape[1]) if q is None else q for q, m in zip(rights, matrices, strict=True)]
        lefts = np.concatenate([(m @ q).reshape(-1) for m, q in zip(matrices, starts, strict=True)])
        sums = np.empty(sum(q.size for q in starts), np.float32)
        bases: list[np.ndarray] = []

        def fill() -> None:
            left_sizes = [m.shape[0] * codec.rank for m in matrices]
            for left in split(lefts, left_sizes):
                bases.append(np.linalg.qr(left.reshape(-1, codec.rank))[0])
                if not np.all(np.isfinite(bases[-1])):
                    bases[-1] = np.full_like(bases[-1], np.nan)
            mine = [m.T @ basis for m, basis in zip(matrices, bases, strict=True)]
            np.concatenate([q.reshape(-1) for q in mine], out=sums)
            for state, vector, basis, q in zip(states, vectors, bases, mine, strict=True):
                self._keep(state, vector, _product(basis, q))

        def land() -> None:
            sizes = [q.size for q in starts]
            for state, out, basis, q in zip(states, outs, bases, split(sums, sizes), strict=True):
                right = q.reshape(-1, codec.rank)
                out[...] = (basis @ right.T).reshape(out.shape)
                if np.all(np.isfinite(right)):
                    self._factors[state] = right / self._endpoint.size

        first = self._engine.all_reduce([lefts], [lefts], "sum", _part(key, 1), timeout)
        whole.needs(self._engine.all_reduce_after(first, fill, sums, _part(key, 2), timeout), land)


def _product(left: np.ndarray, right: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield (part, values) of the flat product of a matrix and another's transpose, some rows at once."""
    columns = len(right)
    rows = max(1, BLOCK // columns)
    for start in range(0, len(left), rows):
        values = (left[start : start + rows] @ right.T).reshape(-1)
        yield slice(start * columns, start * columns + values.size), values


class _Whole(Collective):
    """Done when all its parts are; the first failure is its own."""

    __slots__ = ("_missing",)

    def __init__(self, endpoint: Endpoint, key: Key, timeout: float) -> None:
        super().__init__("compressed all-reduce", endpoint, key, timeout)
        self._missing = [object()]  # for those that are still being started

    def needs(self, part: Collective, land: Callable[[], None] | None = None) -> None:
        """Wait for a part too, and run `land` when it has arrived."""
        mark = object()
        self._missing.append(mark)
        self.parts = (*self.parts, part)
        part.add_done_callback(partial(self._arrived, mark, land))

    def begun(self) -> None:
        """Every part has been started."""
        self._arrived(self._missing[0], None, None)

    def _arrived(self, mark: object, land: Callable[[], None] | None, part: Collective | None) -> None:
        try:
            if part is not None and part.error is not None:
                raise part.error
            if land is not None:
                land()
        except CollectiveError as error:
            self.finish(error)
        except Exception as error:
            self.fail(error)
        self._missing.remove(mark)
        if not self._missing:
            self.finish()


def _part(key: Key, number: int) -> Key:
    generation, step, tag = key
    return generation, step, tag + number * PARTS
