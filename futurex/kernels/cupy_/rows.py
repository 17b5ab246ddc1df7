"""Regions with reductions along rows on arrays of the device: one generated kernel, which reads a row again from the
caches instead of launching a kernel for each reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.cuda_ import REDUCTIONS, Operand, numbered
from futurex.kernels.cuda_.rows import Does, Part, Written, rows_source
from futurex.kernels.cuda_.source import Body
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.regions import THREADS, collapse, compiled, strides_of, values_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node

LONGEST = 8192
"""Elements of a row up to which the caches hold it until it is read again."""
_SHORT = 1024
"""Elements of a row that a block takes in a few rounds, however few rows there are."""
_THREADS_EACH, _MOST_BLOCKS_EACH = 2048, 32  # that a multiprocessor holds at once


@dataclass(frozen=True)
class Task:
    """What a part does to which graph: ``leaves`` are what its parameters stand for, ``made`` what comes of it."""

    does: Does
    graph: Graph
    leaves: tuple[Node, ...]
    made: tuple[Node, ...]


class Rows:
    """The kernel of the ``tasks`` of a region whose results are ``outs``.

    ``shape`` is that of whole values, whose last axes are reduced to ``rows`` numbers. ``same`` maps numbers of a row
    to the ones that they are, in another shape. Called with the region's operands, arrays of the device and host
    scalars, it gives new arrays.
    """

    def __init__(
        self, device: Device, params: Sequence[Node], tasks: Sequence[Task], same: dict[Node, Node],
        outs: Sequence[Node], shape: tuple[int, ...], rows: int,
    ) -> None:  # fmt: skip
        self.device, self.params, self.tasks, self.same = device, tuple(params), tuple(tasks), same
        self.outs, self.shape, self.rows = tuple(dict.fromkeys(outs)), shape, rows
        self.count = math.prod(shape) // rows
        self.threads = min(THREADS, max(32, 1 << (self.count - 1).bit_length()))
        made = [node for task in self.tasks if task.does is not Does.WRITE for node in task.made]
        self._variables = {node: f"r{k}" for k, node in enumerate(made)}
        self._kernels: dict[tuple[Any, ...], tuple[list[Body], Any]] = {}
        self._room = max(node.dtype.itemsize for node in made if node.op in REDUCTIONS)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        values = dict(zip(self.params, inputs, strict=True))
        forms, calls = [], []
        for task in self.tasks:
            there = [values.get(leaf) for leaf in task.leaves]
            shape = task.graph.outs[0].shape
            form = tuple(
                self._form(leaf, value, shape) for leaf, value in zip(task.leaves, there, strict=True)
            )
            strided = [k for k, each in enumerate(form) if each is Operand.STRIDED]
            extents, walks = collapse(shape, [strides_of(there[k], shape) for k in strided])
            forms.append((form, len(extents) if strided else 1))
            calls.append((there, [*map(np.int64, extents[1:] if strided else ())],
                          [np.int64(step) for walk in walks for step in walk]))  # fmt: skip
        bodies, kernel = self._kernel(tuple(forms))
        made = {node: self.device.xp.empty(node.shape, node.dtype) for node in self.outs}
        args: list[Any] = [np.int64(self.rows), np.int64(self.count), *(made[node] for node in self._ordered())]
        for body, (form, _), (there, sizes, strides) in zip(bodies, forms, calls, strict=True):
            arrays = (v for v, each in zip(there, form, strict=True) if each not in (Operand.VALUE, Operand.ROW))
            args += [*sizes, *arrays, *strides, *values_of(body, body.graph, there)]
        each = min(_MOST_BLOCKS_EACH, _THREADS_EACH // self.threads)
        blocks = min(self.rows, self.device.processors * each)
        kernel((blocks,), (self.threads,), tuple(args), shared_mem=self.threads * self._room)
        return tuple(made[node] for node in self.outs)

    def _variable(self, node: Node) -> str | None:
        while node in self.same:
            node = self.same[node]
        return self._variables.get(node)

    def _ordered(self) -> list[Node]:
        """The results in the order of the kernel's parameters: numbers of rows, then whole values."""
        numbers = [node for node in self.outs if self._variable(node) is not None]
        return numbers + [node for task in self.tasks if task.does is Does.WRITE for node in task.made]

    def _form(self, leaf: Node, value: Any, shape: tuple[int, ...]) -> Operand:
        if self._variable(leaf) is not None:
            return Operand.ROW
        if not self.device.holds(value):
            return Operand.VALUE
        if value.size == 1:
            return Operand.ELEMENT
        return Operand.DENSE if value.shape == shape and value.flags.c_contiguous else Operand.STRIDED

    def _kernel(self, forms: tuple[tuple[tuple[Operand, ...], int], ...]) -> tuple[list[Body], Any]:
        if forms not in self._kernels:
            results = {node: f"o{k}" for k, node in enumerate(self._ordered())}
            parts = []
            for number, (task, (form, loops)) in enumerate(zip(self.tasks, forms, strict=True)):
                held = {k: name for k, leaf in enumerate(task.leaves) if (name := self._variable(leaf)) is not None}
                body = Body(task.graph, form, loops, rows=held, prefix=f"p{number}_")
                names = [results[n] if task.does is Does.WRITE else self._variables[n] for n in task.made]
                parts.append(Part(task.does, body, names, task.made[0] if task.does is Does.REDUCE else None))
            written = [
                Written(name, results[node], node) for node in self.outs if (name := self._variable(node)) is not None
            ]
            text = numbered(rows_source(parts, written), math.prod(self.shape))
            self._kernels[forms] = [part.body for part in parts], compiled(self.device, text)
        return self._kernels[forms]


def worth(device: Device, count: int, rows: int) -> bool:
    """Is a block for each row, which reads it several times, better than kernels that share rows and read them once?"""
    return count <= LONGEST and (count <= _SHORT or rows >= device.processors)
