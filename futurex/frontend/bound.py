"""Futurized functions on a cluster: ``f.on(cluster)(...)``."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.keys import Untraceable, argument_paths, leaf_key
from futurex.frontend.program import Program, lower
from futurex.frontend.tracebacks import folds
from futurex.partition.mesh import Replicate, Shard
from futurex.runtime.futures import Future
from futurex.runtime.group import SpmdRun, group_of, run_program
from futurex.tree.given import of_dask
from futurex.tree.pytree import Structure, flatten, unflatten

PROGRAMS = 32  # programs kept for one function


class Bound:
    """A function whose calls run on every locality of a cluster, each on its shards of tiled arguments.

    Results are whole arrays (:class:`fx.Array`, futures), equal to those on this machine up to the order of summation.
    """

    def __init__(self, function: Any, group: Any, limit: int | None = None, device: str = "cpu") -> None:
        """``limit``: bytes that a run may take on each locality; ``device``: where it runs there."""
        self._function, self._limit, self._device = function, limit, device
        self._group = group_of(group)
        self._programs: OrderedDict[Any, Program] = OrderedDict()

    @folds
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        try:
            key = structure, tuple(_tiled_key(leaf) for leaf in leaves)
        except Untraceable as error:
            raise error.as_error() from None
        program = self._programs.get(key)
        if program is None or not program.valid():
            self._refuse_dask(leaves, structure)
            stand_args, stand_kwargs = unflatten(structure, [_stand_in(leaf) for leaf in leaves])
            program = self._programs[key] = lower(self._function, *stand_args, **stand_kwargs)
            while len(self._programs) > PROGRAMS:
                self._programs.popitem(last=False)
        traced = [leaves[position] for position in program.traced]
        placements = [Shard(leaf.axis) if _is_tiled(leaf) else Replicate() for leaf in traced]
        values = [leaf.result() if isinstance(leaf, Array) else leaf for leaf in traced]
        device = next((leaf.device for leaf in traced if _is_tiled(leaf) and leaf.device != "cpu"), self._device)
        run = self._group.spmd(
            run_program, program.graph, placements, values, self._limit, device, name=program.graph.name
        )
        return _results(program, run)

    def _refuse_dask(self, leaves: list[Any], structure: Structure) -> None:
        """A trace would go on in Dask's own code, and say what it does not know of that."""
        for place, leaf in enumerate(leaves):
            if instead := of_dask(leaf):
                path = argument_paths(getattr(self._function, "plain", self._function), structure)[place]
                raise TypeError(f"{path} is {instead}")

    def __repr__(self) -> str:
        return f"<{self._function!r} on {self._group!r}>"


def _results(program: Program, run: SpmdRun) -> Any:
    futures: list[Future[Any]] = [Future() for _ in range(program.n_results)]

    def deliver(done: SpmdRun) -> None:
        error = done.exception()
        values = done.result()[0] if error is None else []
        for number, future in enumerate(futures):
            if not future.set_running_or_notify_cancel():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(values[number])

    run.add_done_callback(deliver)
    nodes = program.graph.outs[: program.n_results]
    return program.unflatten([Array(future, node.aval) for future, node in zip(futures, nodes, strict=True)])


def _is_tiled(leaf: Any) -> bool:
    return hasattr(type(leaf), "__fx_tiled__")


def _tiled_key(leaf: Any) -> Any:
    return ("tiled", leaf.dtype, leaf.shape, leaf.axis) if _is_tiled(leaf) else leaf_key(leaf)


def _stand_in(leaf: Any) -> Any:
    return np.empty(leaf.shape, leaf.dtype) if _is_tiled(leaf) else leaf
