"""How long does a futurized call of a plain NumPy program take, beside NumPy itself and other compilers?"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.harness import Comparison, Peer, cases_of, compare, effort_of
from benchmarks.workloads.programs_side import LARGE, names

PROGRAM = "benchmarks.workloads.programs_side:Program"
SUBJECT, NUMPY, NUMBA, JAX = "futurized", "NumPy", "numba.njit", "jax.jit"
PATIENCE = 60.0  # seconds that a stack may take to compile a program
_WAYS = {SUBJECT: "futurized", NUMPY: "numpy", NUMBA: "numba", JAX: "jax"}


def peers_for(case: str, cpus: int) -> list[Peer]:
    """Return the program futurized, as it is, and as other stacks compile it where they can.

    JAX unrolls Python's loops: thousands of rounds take it minutes to compile, so it does not get the large cases.
    """
    ways = {name: way for name, way in _WAYS.items() if name != JAX or "," not in case}
    return [Peer(name, PROGRAM, {"case": case, "way": way}, cpus) for name, way in ways.items()]


def row(one: Comparison) -> list[str]:
    """Return case, how it runs, first call, time per call of all, and the ratio to NumPy."""
    seconds, ratio = one.seconds(), one.ratios()[NUMPY]
    check = one.remarks["check"]
    return [
        one.case,
        "one graph" if check[SUBJECT]["staged"] else "with plain parts",
        report.duration(check[SUBJECT]["first_call"]),
        *(report.duration(seconds[name].median) if name in seconds else "-" for name in _WAYS),
        f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]",
    ]


def _mean(title: str, found: Sequence[Comparison], peer: str = NUMPY) -> str:
    """One line: how many times faster than a peer, in the geometric mean."""
    ratios = [one.ratios()[peer].median for one in found if peer in one.ratios()]
    if not ratios:
        return f"| {title} | 0 | - | - |"
    slower = sum(each > 1 for each in ratios)
    return f"| {title} | {len(ratios)} | {1 / statistics.geometric_mean(ratios):.2f} | {slower} |"


def main(arguments: argparse.Namespace) -> int:
    """Run the programs, and write the table after each; return 1 where one is missing.

    What was measured earlier today of the same commit stays in the table, so the whole can be run in parts
    (``--cases``).
    """
    effort = effort_of(arguments, turn_seconds=0.1)
    cpus = len(os.sched_getaffinity(0))
    cases = cases_of(arguments, names(), names()[: 3 if arguments.quick else None])
    before = report.earlier("programs", arguments.out).get("comparisons", ())
    found = {one["case"]: report.comparison_of(one, effort.rounds) for one in before}
    for case in cases:
        print(case, flush=True)
        found[case] = compare(case, SUBJECT, peers_for(case, cpus), effort, {}, patience=PATIENCE, together=True)
        _publish(list(found.values()), arguments.out, whole=case == cases[-1])
    return 1 if any({SUBJECT, NUMPY} & found[case].missing.keys() for case in cases) else 0


def _publish(found: Sequence[Comparison], out: Path | None, *, whole: bool) -> None:
    """Write the table so far; print it when it is whole."""
    complete = [one for one in found if one.rounds and not {SUBJECT, NUMPY} & one.missing.keys()]
    complete.sort(key=lambda one: -one.ratios()[NUMPY].median)
    head = ["program", "runs as", "first call", *_WAYS, "futurized / NumPy: median [quartiles]"]
    noisy = sum(one.noisy for one in complete)
    staged = [one for one in complete if one.remarks["check"][SUBJECT]["staged"]]
    scalar = [one for one in complete if one.case.partition(",")[0] in LARGE]
    means = "\n".join([
        "| geometric mean of speed | cases | times as fast | slower in |",
        "|---|---|---|---|",
        _mean("all, beside NumPy", complete),
        _mean("those that are one graph, beside NumPy", staged),
        _mean("loops over single numbers, beside NumPy", [one for one in scalar if "," not in one.case]),
        _mean("the same on larger arguments, beside NumPy", [one for one in scalar if "," in one.case]),
        _mean("those that numba.njit runs, beside it", complete, NUMBA),
        _mean("those that jax.jit runs, beside it", complete, JAX),
    ])  # fmt: skip
    body = (
        f"{report.table(head, [row(one) for one in complete])}\n\n{means}\n\n"
        f"{noisy} were measured while others used the machine. `-`: that stack does not run the program as it stands, "
        f"gives other results, or took more than {PATIENCE:.0f} s to compile it.\n\n"
        "Arrays are small, as the examples of the programs are. The floor is what a futurized call of nothing takes, "
        "about 3 µs; programs that write into their arguments get copies of them, on all sides, which is part of the "
        "time. What is one graph of small arrays is "
        "compiled as one function after some 20 ms of runs; the times are those after that. What has plain parts, or "
        "is one call of LAPACK or of a Fourier transform, takes NumPy's time and what a call costs."
    )
    data: dict[str, Any] = {"comparisons": [report.comparison_record(one) for one in found]}
    if whole or out is not None:
        with contextlib.nullcontext() if whole else contextlib.redirect_stdout(io.StringIO()):
            report.publish("programs", "Plain NumPy programs, futurized", body, data, out)
