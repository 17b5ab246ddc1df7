"""What do fusion, priority, hierarchy and compression give on a slow link between machines, each on and off?

The link is loopback, which the kernel paces: every connection between two machines gets its part of the rate
(``SO_MAX_PACING_RATE``), in each direction. Inside a machine nothing is limited. Latency stays that of loopback.
"""

from __future__ import annotations

import argparse
import os

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of, thread_environment
from benchmarks.workloads.limited_rank import FUSED, LARGE, LAYER, LAYERS, SMALL

RATES = {"1 Gbit/s": 1e9, "10 Gbit/s": 1e10}
TEAM, RANK = "benchmarks.workloads.team:Team", "benchmarks.workloads.limited_rank:LimitedRank"
WORKS: dict[str, tuple[str, str, dict[str, str]]] = {
    "fusion": (
        f"{FUSED} gradients of {SMALL * 4 >> 10} KiB, 2 machines", "ab", {"one bucket": "on", "one by one": ""}
    ),
    "priority": (
        f"{LAYERS} gradients of {LAYER * 4 >> 20} MiB, until the first layer's is there, 2 machines", "ab",
        {"most urgent first": "on", "as they come": ""},
    ),
    "hierarchy": (
        f"{LARGE * 4 >> 20} MiB, 2 machines of 2 ranks", "aabb", {"hierarchical": "on", "flat ring": ""}
    ),
    "compression": (
        f"{LARGE * 4 >> 20} MiB, 2 machines", "ab",
        {"plain": "", "bf16": "bf16", "1bit": "1bit", "topk:0.01": "topk:0.01", "powersgd:2": "powersgd:2"},
    ),
}  # fmt: skip


def measure(work: str, rate: str, effort: Effort) -> Comparison:
    """Compare one technique with its absence at one rate."""
    what, layout, variants = WORKS[work]
    case = f"{work}: {what}, {rate}"
    print(case, flush=True)
    cpus = len(os.sched_getaffinity(0))
    peers = [
        Peer(
            name, TEAM,
            {
                "rank": RANK, "size": len(layout),
                "options": {"work": work, "on": on, "rate": RATES[rate], "layout": layout},
            },
            cpus, thread_environment(1), own=True,
        )
        for name, on in variants.items()
    ]  # fmt: skip
    return compare(case, peers[0].name, peers, effort)


def floor(work: str, rate: str) -> str:
    """Return the time that the link alone needs for the plain form, for the notes."""
    nbytes = {"fusion": FUSED * SMALL * 4, "priority": LAYER * 4}.get(work, LARGE * 4)
    return f"{nbytes * 8 / RATES[rate] * 1e3:.3g} ms"


def main(arguments: argparse.Namespace) -> int:
    """Run all techniques at all rates, print and write the tables; return 1 where one did not run."""
    effort = effort_of(arguments, turn_seconds=0.5, warm_steps=2)
    works = cases_of(arguments, WORKS, ["fusion"] if arguments.quick else None)
    rates = list(RATES)[:1] if arguments.quick else list(RATES)
    found = {(work, rate): measure(work, rate, effort) for rate in rates for work in works}
    notes = [
        f"- {one.case}: two machines send each {floor(work, rate)} of the link in each direction, uncompressed"
        for (work, rate), one in found.items()
    ]
    body = "\n\n".join([str(__doc__).strip(), report.comparison_table(list(found.values())), "\n".join(notes)])
    data = {"comparisons": [report.comparison_record(one) for one in found.values()]}
    report.publish("limited_link", "Exchanges over a slow link", body, data, arguments.out)
    return 1 if any(one.missing for one in found.values()) else 0
