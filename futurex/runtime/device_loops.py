"""Loops of a plan for a GPU: over scalars and small arrays compiled for the host, others by plans on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.kernels.registry import Kernel
from futurex.tree.node import Node


def on_host(whole: Callable[..., Any], planned: Kernel, place: Device) -> Callable[..., Any]:
    """A loop over scalars and small arrays as the host's compiled function; by plans on the device if it gives up."""

    def call(out: None, *inputs: Any) -> Any:
        results = whole(None, *(_dense(place.to_host(value)) for value in inputs))
        if results is None:
            return planned.call(None, None, *inputs)
        return tuple(map(place.to_device, results))

    return call


def _dense(value: Any) -> Any:
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) and value.ndim else value


def scan(body: Any, place: Device, node: Node) -> Callable[..., Any]:
    """Like the kernel of :mod:`futurex.runtime.structured`, with sequences stacked on the device at the end."""
    attrs = node.attrs
    n_carry, n_xs, length, tape = attrs["n_carry"], attrs["n_xs"], attrs["length"], attrs["tape"]
    made = [each.aval for each in (*body.graph.outs[n_carry:], *(body.graph.params[k] for k in tape))]

    def call(out: None, communicator: None, *inputs: Any) -> tuple[Any, ...]:
        carry, xs, consts = list(inputs[:n_carry]), inputs[n_carry : n_carry + n_xs], inputs[n_carry + n_xs :]
        rounds = range(len(xs[0]) if length is None else length)
        sequences: list[list[Any]] = [[None] * len(rounds) for _ in made]
        for i in reversed(rounds) if attrs["reverse"] else rounds:
            results = body.run((*carry, *(x[i] for x in xs), *consts))
            before, carry = carry, results[:n_carry]
            for steps, value in zip(sequences, [*results[n_carry:], *(before[k] for k in tape)], strict=True):
                steps[i] = value
        if length is None:
            return (*carry, *sequences)
        return (*carry, *(_stacked(place, steps, aval) for steps, aval in zip(sequences, made, strict=True)))

    return call


def _stacked(place: Device, steps: list[Any], aval: Any) -> Any:
    xp = place.xp
    if not steps:
        return xp.zeros((0, *aval.shape), aval.dtype)
    return xp.stack([xp.asarray(value) for value in steps]).astype(aval.dtype, copy=False)
