"""Is it worth to run the instructions of a plan beside each other, on workers that use one thread each?

Estimated when a plan is compiled. Where both ways have the same bits, runs measure which one is faster, and go on with
that; elsewhere the estimate decides alone: on one machine a graph is run in one way, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from futurex.kernels.numpy_ import uses_blas
from futurex.kernels.registry import LIBRARIES, threads_of
from futurex.runtime.lower import Draft, Kind, Lowering

WORTH_SHARING, MIN_WIDTH = 200e-6, 1.2  # seconds of a plan, and total time over the longest path
MOST_BYTES = 1 << 28  # of memory, none of which is used twice: reuse would make one branch wait for another
_SYNC, _FORK = 0.15, 60e-6  # what several threads lose in one kernel: a share of its time, at most so many seconds
_HAND_OVER = 15e-6
_BOOKKEEPING = 4e-6  # of each instruction, one at a time: who is ready now
_GAIN = 0.9  # of the time of kernels one after the other
_MOST = 4000  # instructions


def worth_sharing(costs: Sequence[float], path: float) -> bool:
    """Are instructions of one thread estimated to be faster on two workers than one after the other?

    ``path``: seconds of the longest chain among them.
    """
    work = sum(costs)
    return _is_wide(work, path) and _beside(costs, path, 2) < _GAIN * work


def _is_wide(work: float, path: float) -> bool:
    """Is there enough to do beside the longest path?"""
    return work > WORTH_SHARING and work > MIN_WIDTH * path


def _beside(costs: Sequence[float], path: float, workers: int) -> float:
    """Seconds of instructions that several workers share."""
    hand_overs = _HAND_OVER * sum(cost > _HAND_OVER for cost in costs) / workers
    return max(path, sum(costs) / workers) + hand_overs + _BOOKKEEPING * len(costs)


def worth_tasks(low: Lowering, threads: int) -> bool:
    """Are kernels of one thread beside each other estimated to be faster than kernels of ``threads`` one by one?

    ``low``: lowered for that many threads, its memory not planned yet.
    """
    drafts = low.drafts
    if threads == 1 or not 1 < len(drafts) <= _MOST or any(draft.communicates for draft in drafts):
        return False
    costs, path = [draft.cost for draft in drafts], longest_path(drafts)
    if not _is_wide(sum(costs), path) or any(map(_needs_blas, drafts)):
        return False
    if sum(slot.layout.nbytes for slot in low.slots if slot.kind is Kind.BUFFER) > MOST_BYTES:
        return False
    serial = sum(
        cost if threads_of(draft.kernel, threads) == 1 else cost / threads + min(_SYNC * cost, _FORK)
        for draft in drafts
        if (cost := draft.cost)
    )
    return _beside(costs, path, threads) < _GAIN * serial


def same_bits(*plans: Any) -> bool:
    """Do results not depend on how many threads a kernel has? Those of libraries' products may, in the last bits."""
    return not any(
        each.kernel.backend in LIBRARIES or not same_bits(*each.kernel.plans)
        for plan in plans
        for each in plan.instructions
    )


def longest_path(drafts: Sequence[Draft]) -> float:
    """Seconds of the longest chain of instructions that wait for each other; drafts stand in the order of the graph."""
    ends: list[float] = []
    for draft in drafts:
        ends.append(draft.cost + max((ends[source] for source in draft.after if source < len(ends)), default=0.0))
    return max(ends, default=0.0)


def _needs_blas(draft: Draft) -> bool:
    """Sums inside a product are split among the threads of OpenBLAS, so its bits depend on how many there are; and it
    would be asked by several workers at once. (Those of other products, in single
    precision, may differ in the last bits.)"""
    return draft.kernel.backend not in LIBRARIES and uses_blas(draft.node)
