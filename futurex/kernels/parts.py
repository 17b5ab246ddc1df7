"""One long call of a NumPy function as a call for each thread, on parts along an axis on which nothing meets.

Which axes those are the op's tiling rule says, the one that partitioning goes by. A part of the result is what the
whole call would have put there, to the bit: each row is transformed, sorted or factorised for itself.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from futurex.kernels.contest import Contest
from futurex.kernels.helpers import together
from futurex.kernels.recycling import maker
from futurex.kernels.registry import Kernel
from futurex.partition.factors import recipe_of
from futurex.tree.aval import Aval
from futurex.tree.node import Node

Cut = tuple[int | None, ...]
"""For each array the axis along which it is cut; None where every part has all of it."""
POSSIBLE, LEAST = 100e-6, 500e-6
"""Seconds, as estimated, from which a call may be cut, and from which it is cut until both ways have been measured: a
helper is there after 30 to 100 µs."""
_NANOSECONDS = {
    "fft": 8.0, "ifft": 8.0, "rfft": 2.0, "irfft": 2.0, "sort": 2.5, "argsort": 8.0, "partition": 1.4, "quantile": 10.0,
    "interp": 30.0,
    "inv": 12.0, "solve": 8.0, "cholesky": 4.0, "det": 7.0, "slogdet": 7.0, "eigh": 60.0, "eigvalsh": 35.0,
    "svd": 100.0, "svdvals": 50.0, "qr": 20.0,
}  # fmt: skip
"""What one element of the largest operand takes, measured, of functions that let go of Python's lock."""
_OF_COMPLEX = {"exp": 14.0, "log": 20.0, "sqrt": 20.0, "sin": 25.0, "cos": 25.0, "tanh": 25.0, "power": 40.0}
_OF_FLOATS = {"remainder": 25.0, "floor_divide": 25.0, "fmod": 6.0}
"""The same of elementwise functions whose loops in NumPy know one element only; in a region it takes a fraction."""
_MATRICES = frozenset(("inv", "solve", "cholesky", "det", "slogdet", "eigh", "eigvalsh", "svd", "svdvals", "qr"))
LARGEST_MATRIX = 256
"""Larger ones BLAS cuts itself; of smaller ones it gains next to nothing by its threads, which turn round for 20 ms
behind each call beside ours, from :data:`_LEAST_MATRIX` rows on."""
LARGEST_SHARED = 64
"""The same of single matrices where several threads take 0.65 to 0.9 of the time."""
_LEAST_MATRIX = 32
_FACTORISING = _MATRICES | {"eig", "eigvals", "pinv", "lstsq", "cofactor", "cholesky_grad", "attempted"}


def in_parts(node: Node, kernel: Kernel, threads: int, step: int = 1) -> Kernel:
    """The kernel as one that may use several threads, if it can be cut and may be long enough; else as it is. Each
    part but the last is a multiple of ``step``."""
    estimate = seconds(node)
    if threads == 1 or estimate < POSSIBLE:
        return kernel
    cuts = _cuts(node, threads * step)
    if cuts is None:
        return kernel
    contest = Contest(int(estimate >= LEAST))
    call = _Parts(node, kernel, cuts, threads, step, contest)
    return replace(kernel, call=call, threads=threads, ufunc=None, parts=threads, contest=contest)


def seconds(node: Node) -> float:
    """What a call is estimated to take; nothing, where it is not known to let go of Python's lock."""
    avals = [source.aval for source in node.inputs]
    if not avals or not node.is_static or not all(isinstance(aval, Aval) and aval.static for aval in avals):
        return 0.0
    if node.op in _MATRICES and max(avals[0].shape[-2:]) > LARGEST_MATRIX:
        return 0.0
    if node.op == "quantile" and node.attrs["function"].startswith("nan"):
        return 0.0
    elementwise = {"c": _OF_COMPLEX, "f": _OF_FLOATS}.get(node.dtype.kind, {}) if node.record.elementwise else {}
    each = elementwise.get(node.op, 0.0) if node.record.elementwise else _NANOSECONDS.get(node.op, 0.0)
    return each * 1e-9 * max(aval.size for aval in avals)


def factorises(node: Node) -> bool:
    """Does it factorise matrices of a known size, of which one thread makes as much as several?"""
    if node.op not in _FACTORISING or not node.inputs[0].is_static:
        return False
    *stack, rows, columns = node.inputs[0].shape
    largest = LARGEST_SHARED if node.op in ("eigh", "inv") and math.prod(stack) == 1 else LARGEST_MATRIX
    return _LEAST_MATRIX <= max(rows, columns) <= largest


def _cuts(node: Node, least: int) -> tuple[Cut, Cut] | None:
    """The axes of operands and of results along which the first dimension that can be cut lies, of this extent at
    least."""
    recipe = recipe_of(node)
    outs: tuple[Aval, ...] = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    if recipe is None:
        return None
    for axis, name in enumerate(recipe.outs[0]):
        if not recipe.shardable(name) or outs[0].shape[axis] < least:
            continue
        if all(name in term for term in recipe.outs):
            inputs = (term.index(name) if name in term else None for term in recipe.inputs)
            return tuple(inputs), tuple(term.index(name) for term in recipe.outs)
    return None


class _Parts:
    """The kernel of one node, called once for each part, or for all at once where that is measured to be faster."""

    def __init__(
        self, node: Node, kernel: Kernel, cuts: tuple[Cut, Cut], threads: int, step: int, contest: Contest
    ) -> None:
        self._call, self._into = kernel.call, kernel.into
        self._contest = contest
        self._cut_inputs, self._cut_outs = cuts
        self._several = isinstance(node.aval, tuple)
        self._avals: tuple[Aval, ...] = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        extent = self._avals[0].shape[cuts[1][0] or 0]
        bounds = [*(extent * k // threads // step * step for k in range(threads)), extent]
        self._bounds = list(itertools.pairwise(bounds))

    def __call__(self, out: Any, *inputs: Any) -> Any:
        arrays = [each for each in inputs if isinstance(each, np.ndarray)]
        if not all(each.flags.c_contiguous for each in arrays):  # whose result NumPy lays out in another order
            return self._call(out, *inputs)
        way = self._contest.next()
        start = time.perf_counter()
        result = self._in_parts(out, inputs) if way else self._call(out, *inputs)
        self._contest.took(way, time.perf_counter() - start)
        return result

    def _in_parts(self, out: Any, inputs: Sequence[Any]) -> Any:
        made = out if self._into else tuple(maker(aval.nbytes)(aval.shape, aval.dtype) for aval in self._avals)
        outs = made if isinstance(made, tuple) else (made,)
        together([self._part(bounds, outs, inputs) for bounds in self._bounds])
        return made if self._several else outs[0]

    def _part(self, bounds: tuple[int, int], outs: Sequence[Any], inputs: Sequence[Any]) -> Callable[[], None]:
        def run() -> None:
            operands = [_cut(value, axis, bounds) for value, axis in zip(inputs, self._cut_inputs, strict=True)]
            targets = [_cut(value, axis, bounds) for value, axis in zip(outs, self._cut_outs, strict=True)]
            if self._into:
                self._call(tuple(targets) if self._several else targets[0], *operands)
                return
            found = self._call(None, *operands)
            for target, value in zip(targets, found if self._several else (found,), strict=True):
                np.copyto(target, value)

        return run


def _cut(value: Any, axis: int | None, bounds: tuple[int, int]) -> Any:
    return value if axis is None else value[(slice(None),) * axis + (slice(*bounds),)]
