"""Where a graph runs: on this machine's processors, or on its GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from futurex.runtime import config
from futurex.runtime.plan import Plan, compile_plan
from futurex.tree.graph import Graph

if TYPE_CHECKING:
    from futurex.runtime.device import DevicePlan

AnyPlan: TypeAlias = "Plan | DevicePlan"

DEVICES = ("cpu", "gpu")


def ask_for(device: str) -> None:
    """Raise MissingExtra, which names the extra and the reason, if the device is not to be had."""
    if device == "gpu":
        from futurex.kernels import cupy_

        cupy_.device()


def compiled(
    graph: Graph, device: str, *, donate: Mapping[int, int], resident: bool, limit: int | None = None
) -> AnyPlan:
    """A plan of the graph for a device.

    ``donate`` is :func:`futurex.runtime.plan.compile_plan`'s; on a GPU nothing is written in place.
    ``resident``: results of a GPU stay there until they are looked at. ``limit``: the bytes that a run may take on the
    host. Raises MissingExtra where there is no GPU, MemoryError where the limit is too low.
    """
    if limit is not None:
        from futurex.runtime.remat import within

        return within(graph, limit, threads=config.threads(), donate=donate, background=config.background())
    if device == "cpu":
        return compile_plan(graph, threads=config.threads(), donate=donate, background=config.background())
    from futurex.runtime.device import DevicePlan

    return DevicePlan(graph, resident=resident)
