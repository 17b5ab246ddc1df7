"""Where a graph runs: on this machine's processors, or on its GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from futurex.runtime import config
from futurex.runtime.futures import Resident
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


def put(array: Any, device: str) -> Any:
    """An array where programs for a device read it without a copy; what is no array, or on the host, as it is."""
    if device == "cpu" or not isinstance(array, np.ndarray):
        return array
    from futurex.kernels import cupy_
    from futurex.runtime.residence import Home

    return Home(cupy_.device()).put(array)


def fetched(value: Any) -> Any:
    """What a program left on a device, on the host; everything else as it is."""
    if not isinstance(value, Resident):
        return value
    array = value.host()
    return array if array.ndim else array[()]


def compiled(
    graph: Graph, device: str, *, donate: Mapping[int, int], resident: bool, limit: int | None = None,
    intact: bool = False,
) -> AnyPlan:  # fmt: skip
    """A plan of the graph for a device.

    ``donate`` is :func:`futurex.runtime.plan.compile_plan`'s, and so is ``intact``, which a ``limit`` forgoes.
    ``resident``: results of a GPU stay there until they are looked at. ``limit``: the bytes that a run may take on the
    host. Raises MissingExtra where there is no GPU, MemoryError where the limit is too low.
    """
    if limit is not None:
        from futurex.runtime.remat import within

        return within(graph, limit, threads=config.threads(), donate=donate, background=config.background())
    if device == "cpu":
        threads, background = config.threads(), config.background()
        return compile_plan(graph, threads=threads, donate=donate, background=background, intact=intact)
    from futurex.runtime.device import DevicePlan

    return DevicePlan(graph, donate=donate, resident=resident)
