"""Runs take turns: on all workers in the same order, or each of two would keep some and wait for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dask._task_spec import Task, parse_input
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from distributed import Client, Future, Worker


def submit_together(
    client: Client, session: str, function: Callable[..., Any], calls: Mapping[str, tuple[str, tuple[Any, ...]]]
) -> list[Future]:
    """One call of ``function`` on each worker, by key: its address, and the arguments.

    They are one message, so that runs of other drivers come before or behind all of them, and workers begin tasks in
    the order in which the scheduler has taken them in. A worker with several threads begins the next run of a session
    when the one before has ended.
    """
    turn = {_turn(session): 1} if len(calls) > 1 else {}  # who is alone waits for nobody
    layers = {
        key: MaterializedLayer(
            {key: Task(key, function, *map(parse_input, args))},
            annotations={"workers": [address], "resources": turn},
        )
        for key, (address, args) in calls.items()
    }
    graph = HighLevelGraph(layers, {key: set() for key in layers})
    found: list[Future] = client.get(graph, list(layers), sync=False, fifo_timeout=0)
    return found


async def let_take_turns(worker: Worker, session: str) -> None:
    """Have the runs of a session follow each other on a worker."""
    await worker.set_resources(**{_turn(session): 1})


def _turn(session: str) -> str:
    """Of which a worker has one, in Dask's terms a resource."""
    return f"futurex-{session}"
