"""Every sample of every op record, as a graph of one node with the arrays to run it on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import futurex.ops
from futurex.ops.comm import COMMUNICATION
from futurex.tree import Graph, Node, Op, Sample, apply, item, param, record, records
from futurex.tree.aval import aval_of

assert futurex.ops  # importing it registers the records

# Ops whose meaning needs something that a sample cannot hold.
WITHOUT_SAMPLES = {
    "param": "an input has no kernel",
    "const": "its value is an attribute; every graph with a literal runs it",
    "item": "takes a tuple apart; every op with several results runs it",
    "add_tapes": "takes tapes, which only loops record; derivatives of loops run it",
    "zero_tape": "takes a tape, which only loops record; derivatives of loops run it",
    **dict.fromkeys(sorted(COMMUNICATION), "communicates: it needs the other ranks"),
    "fragment": "runs the user's code; the tests of fragments run it",
    "warning": "warns; the tests of warnings run it",
    "lu": "leaves factors that the kernels beside it alone can read; systems with one matrix run it",
    "recur": "is made into a loop before anything runs; the tests of recursions run that",
}


@dataclass(frozen=True)
class Case:
    """One sample of one op."""

    name: str
    number: int
    sample: Sample

    @property
    def record(self) -> Op:
        return record(self.name)

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self.sample.inputs

    @cached_property
    def graph(self) -> Graph:
        return graph_of(self.name, self.inputs, self.sample.attrs)

    @cached_property
    def node(self) -> Node:
        out = self.graph.outs[0]
        return out.inputs[0] if out.op == "item" else out

    @cached_property
    def results(self) -> list[Any]:
        """What the reference kernel gives, one entry per result of the op."""
        result = self.record.kernel(*copies(self.inputs), **self.sample.attrs)
        return list(result) if isinstance(self.node.aval, tuple) else [result]

    def __str__(self) -> str:
        return f"{self.name}-{self.number}"


def graph_of(name: str, inputs: Sequence[Any], attrs: Any) -> Graph:
    """The graph that applies one op to inputs like these."""
    params = [param(aval_of(value), f"x{k}") for k, value in enumerate(inputs)]
    node = apply(name, *params, **attrs) if params else record(name)(**attrs)
    outs = [item(node, k) for k in range(len(node.aval))] if isinstance(node.aval, tuple) else [node]
    return Graph(params, outs, name)


def copies(values: Sequence[Any]) -> list[Any]:
    """The values, arrays copied, so that a kernel that wrote into one would be seen."""
    return [np.array(value) if isinstance(value, np.ndarray) else value for value in values]


def generator(name: str) -> np.random.Generator:
    """The random numbers of an op's tests, the same on every process."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def cases() -> list[Case]:
    """All samples of all records."""
    return [
        Case(rec.name, number, sample)
        for rec in records()
        if rec.samples is not None
        for number, sample in enumerate(rec.samples(generator(rec.name)))
    ]


def same_bits(first: Any, second: Any) -> bool:
    """Equal shape, dtype and bytes (Python scalars: equal type and value)."""
    first_array, second_array = np.asarray(first), np.asarray(second)
    described = first_array.shape == second_array.shape and first_array.dtype == second_array.dtype
    return described and first_array.tobytes() == second_array.tobytes()
