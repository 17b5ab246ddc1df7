"""The leaves of a call as they enter its trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.argument_lists import entered_list
from futurex.frontend.array import Array
from futurex.frontend.cells import Cell
from futurex.frontend.errors import AS_NUMBERS, ONLY_NUMBERS, Escape
from futurex.frontend.generators import TracedGenerator
from futurex.frontend.layout import c_strides
from futurex.frontend.number_lists import array_of, copy_of, numbers_of
from futurex.frontend.outside import check_state
from futurex.frontend.tracer import Tracer
from futurex.ops.streams import GENERATORS
from futurex.tree.aval import Aval, aval_of
from futurex.tree.node import Node, const, param


def is_traced_leaf(leaf: Any) -> bool:
    """Is a leaf of a call an input of its tree, whatever it is?"""
    if type(leaf) is list:
        return (found := numbers_of(leaf)) is not None and found[0] is float
    return isinstance(leaf, Array | np.ndarray | np.generic) or type(leaf) in (float, complex, *GENERATORS)


@dataclass
class Arguments:
    """Argument leaves as they enter a trace."""

    values: list[Any]
    params: list[Node]
    positions: dict[Cell, int]

    def add_list(self, leaf: list[Any], position: int, path: str, aval: Aval | None) -> None:
        """A long list of numbers, which is one array."""
        if aval is None:
            kind, shape = numbers_of(leaf) or (float, ())
            aval = Aval(shape, np.dtype(kind))
        self.params.append(param(aval, path.replace("/", "_")))
        self.positions[Cell(self.params[-1], None, is_array=True, strides=c_strides(aval))] = position
        self.values.append(entered_list(self.params[-1], path))


def enter_arguments(
    leaves: list[Any], paths: Sequence[str], *, share: bool, opened: Mapping[int, Aval] | None = None
) -> Arguments:
    """Cells and tracers for the leaves that are traced. Raises Escape for dtypes that are not.

    ``share``: an array that is passed twice is one storage (the trace then holds for such calls only). ``opened``:
    abstract values with symbols for some of the leaves.
    """
    opened = opened or {}
    entered = Arguments([], [], {})
    same: dict[int, Any] = {}
    for position, leaf in enumerate(leaves):
        if not is_traced_leaf(leaf) and position not in opened:
            check_state(leaf, f"argument {paths[position]}")
            entered.values.append(_known_list(leaf, paths[position]) if type(leaf) is list else leaf)
            continue
        if type(leaf) is list:
            entered.add_list(leaf, position, paths[position], opened.get(position))
            continue
        if share and isinstance(leaf, np.ndarray | np.random.Generator | np.random.RandomState) and id(leaf) in same:
            entered.values.append(same[id(leaf)])
            continue
        if type(leaf) in GENERATORS:
            generator = TracedGenerator.of(leaf, paths[position].replace("/", "_"))
            entered.params.append(generator._cell.value)
            entered.positions[generator._cell] = position
            entered.values.append(generator)
            same[id(leaf)] = generator
            continue
        aval = opened[position] if position in opened else leaf.aval if isinstance(leaf, Array) else aval_of(leaf)
        if aval.dtype.kind not in "biufc" or not aval.dtype.isnative:
            raise Escape(f"an argument of dtype {aval.dtype}", ONLY_NUMBERS, AS_NUMBERS)
        entered.params.append(param(aval, paths[position].replace("/", "_")))
        origin = leaf if isinstance(leaf, np.ndarray) else None
        is_array = origin is not None or (isinstance(leaf, Array) and leaf._is_array)
        cell = Cell(entered.params[-1], origin, is_array=is_array, strides=() if aval.ndim == 0 else None)
        if not aval.static:
            cell.strides = c_strides(aval)
        entered.positions[cell] = position
        entered.values.append(Tracer(cell))
        same[id(leaf)] = entered.values[-1]
    return entered


def _known_list(leaf: list[Any], path: str) -> Any:
    """A long list of ints that are part of the call's kind."""
    try:
        array = array_of(leaf)
    except OverflowError:  # they are larger than those of arrays
        return copy_of(leaf)
    return entered_list(const(array), path, copy_of(leaf))
