"""Cases that are computed in several stacks, each a class of one module that takes a case by its name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from benchmarks import report
from benchmarks.harness import Comparison, Effort, Peer, cases_of, compare, effort_of


def measured(
    arguments: argparse.Namespace, place: str, titles: Mapping[str, str], stacks: Mapping[str, str]
) -> list[Comparison]:
    """Compare the stacks, the first of which is the subject, on each case and number of processors that is asked for.

    ``titles``: of all cases; ``stacks``: the name of the class in the module ``place`` for each stack.
    """
    effort = effort_of(arguments, turn_seconds=0.2)
    cases = cases_of(arguments, titles)
    return [_one(case, titles[case], place, stacks, each, effort) for each in arguments.threads for case in cases]


def _one(
    case: str, title: str, place: str, stacks: Mapping[str, str], threads: int, effort: Effort
) -> Comparison:
    print(f"{title}, {threads} CPU(s)", flush=True)
    peers = [Peer(name, f"{place}:{factory}", {"case": case}, threads) for name, factory in stacks.items()]
    found = compare(title, next(iter(stacks)), peers, effort, check={})
    answers = list(found.remarks["check"].values())
    found.remarks["largest_disagreement"] = max(answers) / min(answers) - 1 if answers else 0.0
    return found


def published(
    arguments: argparse.Namespace, name: str, title: str, found: Sequence[Comparison], agreement: float, note: str = ""
) -> int:
    """Print and write the table; return 1 where results differ by more than ``agreement`` or the subject is missing."""
    data = {"comparisons": [report.comparison_record(one) for one in found]}
    body = "\n\n".join(filter(None, [report.comparison_table(found), note]))
    report.publish(name, title, body, data, arguments.out)
    return int(any(one.subject in one.missing or one.remarks["largest_disagreement"] > agreement for one in found))
