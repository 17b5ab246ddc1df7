"""Prints what a benchmark found, and writes it as JSON and as a Markdown table."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.harness import FOREIGN_LIMIT, Comparison, Round, Spread

RESULTS = Path(__file__).resolve().parent / "results"


def duration(seconds: float) -> str:
    """Return ``seconds`` with three digits in the unit that suits.

    >>> duration(0.0123)
    '12.3 ms'
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def comparison_rows(one: Comparison) -> list[list[str]]:
    """Return the table rows of one comparison: case, CPUs, stack, time per step, subject / stack, threads that want a
    processor at once (half of the time and for a quarter of it), rounds."""
    ratios = one.ratios()
    runnable = one.remarks.get("runnable_threads", {})
    rounds = f"{len(one.kept())} of {len(one.rounds)}" + (" (noisy)" if one.noisy else "")
    rows = []
    for name, spread in one.seconds().items():
        ratio = ratios.get(name)
        mine = "1" if name == one.subject else _ratio(ratio) if ratio else "–"
        threads = "{median:g} to {high:g}".format(**runnable[name]) if name in runnable else ""
        rows.append([one.case, str(one.threads), name, _time(spread), mine, threads, rounds])
    if "best peer" in ratios:
        rows.append([one.case, str(one.threads), "**best peer**", "", f"**{_ratio(ratios['best peer'])}**", "", rounds])
    for name in one.missing:
        rows.append([one.case, str(one.threads), name, "missing", "–", "", ""])
    return rows


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    """Return the Markdown table of several comparisons that have the same subject."""
    subject = comparisons[0].subject if comparisons else "subject"
    spread = "median [quartiles]"
    head = ["case", "CPUs", "stack", f"time per step: {spread}", f"{subject} / stack: {spread}", "threads", "rounds"]
    rows = [row for one in comparisons for row in comparison_rows(one)]
    quiet = f"Rounds in which other processes used more than {FOREIGN_LIMIT:.0%} of the machine are left out"
    return f"{table(head, rows)}\n\n{quiet} where enough others exist."


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are padded, so that it also reads in a terminal."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)])


def comparison_record(one: Comparison) -> dict[str, Any]:
    """Return one comparison as JSON-able data: every round, the spreads and the ratios."""
    return {
        "case": one.case,
        "subject": one.subject,
        "cpus": one.threads,
        "seconds": {name: vars(spread) for name, spread in one.seconds().items()},
        "ratios": {name: vars(spread) for name, spread in one.ratios().items()},
        "noisy": one.noisy,
        "missing": one.missing,
        "remarks": one.remarks,
        "rounds": [{"seconds": each.seconds, "foreign_share": round(each.foreign, 4)} for each in one.rounds],
    }


def comparison_of(record: dict[str, Any], enough: int) -> Comparison:
    """Return the comparison of a record; ``enough`` quiet rounds leave the others out."""
    rounds = [Round(each["seconds"], each["foreign_share"]) for each in record["rounds"]]
    return Comparison(
        record["case"], record["subject"], frozenset(), record["cpus"], rounds, enough, record["missing"],
        record["remarks"],
    )  # fmt: skip


def earlier(name: str, folder: Path | None) -> dict[str, Any]:
    """Return what :func:`publish` wrote today of the same commit, or nothing."""
    path = folder / f"{name}-{_today()}.json" if folder is not None else None
    if path is None or not path.exists():
        return {}
    found = json.loads(path.read_text())
    return found if found["versions"] == machine.versions() else {}


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def publish(
    name: str, title: str, body: str, data: dict[str, Any], folder: Path | None, *, final: bool = True
) -> None:  # fmt: skip
    """Print ``body``; where ``folder`` is given write ``<name>-<date>.json`` and ``.md`` into it.

    What is not ``final`` is written and not printed: a run that ends early has left what it found so far.
    """
    date = _today()
    record = {"name": name, "date": date, "machine": machine.describe(), "versions": machine.versions(), **data}
    described = ", ".join(f"{key} {value}" for key, value in record["versions"].items())
    about = record["machine"]
    facts = (
        f"{date}; {about['cpu']} ({', '.join(about['vector_units'])}), {about['cpus']} CPUs, "
        f"{about['memory_gib']} GiB, {about['kernel']}, Python {about['python']}\n\n{described}"
    )
    page = f"# {title}\n\n{facts}\n\n{body}\n"
    if final:
        print(f"\n{page}", flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-{date}.json").write_text(json.dumps(record, indent=1) + "\n")
        (folder / f"{name}-{date}.md").write_text(page)
        print(f"written: {name}-{date}.json and .md")


def _time(spread: Spread) -> str:
    return f"{duration(spread.median)} [{duration(spread.low)}, {duration(spread.high)}]"


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.3f} [{spread.low:.3f}, {spread.high:.3f}]"
