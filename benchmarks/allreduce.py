"""Is futurex's all-reduce between processes of one machine faster than gloo's and MPICH's?"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of, thread_environment

SIZES = {"4KiB": 4 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20, "25MiB": 25 << 20, "100MiB": 100 << 20}
PROCESSES = (2, 4)
LARGE = 25 << 20  # bytes from which arrays are in memory, not in caches
_COPIED, _COPIES = 64 << 20, 8
GROUP = "benchmarks.workloads.group:Group"
FUTUREX = "benchmarks.workloads.futurex_rank:FuturexRank"
GLOO = "benchmarks.workloads.gloo_rank:GlooRank"
MPICH = "benchmarks.workloads.mpich_group:MpichGroup"
SUBJECTS: dict[str, dict[str, object]] = {
    "futurex local": {"kind": "local"},
    "futurex local, copied": {"kind": "local", "apart": True},
    "futurex ucx": {"kind": "ucx"},
    "futurex tcp": {"kind": "tcp"},
}
REQUIRED = ("futurex local", "futurex tcp")


def peers_for(size: str, processes: int) -> list[Peer]:
    """Return the groups that take part in one comparison; each rank has one thread per pool."""
    cpus = len(os.sched_getaffinity(0))
    common = {"size": processes, "elements": SIZES[size] // 4}
    groups = [
        Peer(name, GROUP, {**common, "rank": FUTUREX, "options": options}, cpus, thread_environment(1), own=True)
        for name, options in SUBJECTS.items()
    ]
    gloo = Peer("torch gloo", GROUP, {**common, "rank": GLOO}, cpus, thread_environment(1))
    return [*groups, gloo, Peer("MPICH", MPICH, common, cpus, thread_environment(1))]


def copy_bandwidth() -> float:
    """Return the bytes a second that threads on all processors read and write together, copying large arrays."""
    cpus = len(os.sched_getaffinity(0))
    pairs = [(np.ones(_COPIED, np.uint8), np.ones(_COPIED, np.uint8)) for _ in range(cpus)]

    def copy(pair: tuple[np.ndarray, np.ndarray]) -> None:
        for _ in range(_COPIES):
            np.copyto(pair[1], pair[0])

    with ThreadPoolExecutor(cpus) as pool:
        spans = []
        for _ in range(3):
            start = time.perf_counter()
            list(pool.map(copy, pairs))
            spans.append(time.perf_counter() - start)
    return 2 * _COPIED * _COPIES * cpus / min(spans)


def measure(size: str, processes: int, effort: Effort) -> Comparison:
    """Compare the groups on one size and number of processes."""
    print(f"all-reduce of {size} over {processes} processes", flush=True)
    case = f"{size}, {processes} processes"
    return compare(case, next(iter(SUBJECTS)), peers_for(size, processes), effort, check={})


def bandwidth_rows(size: str, processes: int, one: Comparison, memory: float) -> list[list[str]]:
    """Return case, stack, bytes of the array over seconds in GB/s, and the share of what memory allows, if it counts.

    Every rank's array is read and every rank's copy of the sum is written, at ``memory`` bytes a second.
    """
    least = 2 * processes * SIZES[size] / memory
    return [
        [
            one.case, name, f"{SIZES[size] / each.median / 1e9:.2f}",
            f"{least / each.median:.0%}" if SIZES[size] >= LARGE else "",
        ]
        for name, each in one.seconds().items()
    ]  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Run all sizes, print and write the tables; return 1 where a sum was wrong or a transport is missing."""
    effort = effort_of(arguments)
    sizes = cases_of(arguments, SIZES, ["64KiB"] if arguments.quick else None)
    processes = PROCESSES[:1] if arguments.quick else PROCESSES
    found = {(size, count): measure(size, count, effort) for count in processes for size in sizes}
    memory = copy_bandwidth()
    bandwidth = [row for (size, count), one in found.items() for row in bandwidth_rows(size, count, one, memory)]
    body = (
        report.comparison_table(list(found.values()))
        + "\n\nThe time of an operation is that of its slowest rank; every rank ends with its own copy of the sum. "
        "What memory allows: n ranks must read n arrays and write n copies of the sum, 2 n times the bytes of the "
        f"array; copying moves {memory / 1e9:.1f} GB/s here (read and written, all processors).\n\n"
        + report.table(["case", "stack", "GB/s (bytes of the array / time)", "of what memory allows"], bandwidth)
    )
    data = {"comparisons": [report.comparison_record(one) for one in found.values()]}
    report.publish("allreduce", "All-reduce of float32 on one machine", body, data, arguments.out)
    wrong = [
        f"{one.case}, {name}" for one in found.values() for name, error in one.remarks["check"].items() if error[0]
    ]
    if wrong:
        print(f"wrong sums: {'; '.join(wrong)}")
    return 1 if wrong or any(one.missing.keys() & set(REQUIRED) for one in found.values()) else 0
