"""What memory does a training step take: predicted, measured, within a limit, and beside PyTorch?"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.harness import Child, Peer, PeerAbsent, PeerSilent, cases_of
from benchmarks.workloads import first_memory, networks
from benchmarks.workloads.array_programs import PROGRAMS
from benchmarks.workloads.cases import CASES
from benchmarks.workloads.memory_side import GIVEN_AWAY
from benchmarks.workloads.programs_side import names as judged

TITLES = {name: each.title for table in (CASES, networks.NETWORKS, PROGRAMS) for name, each in table.items()}
JUDGED = "judged"
"""The case of all programs of ``tests/programs``."""
FIRST = "first"
"""The case of first calls in fresh processes."""
DEFAULT_CASES = ("har-adam", "mlp-sgd", "mlp-adam", "logistic-sgd", *networks.NETWORKS, *PROGRAMS, JUDGED, FIRST)
FLOOR = 64 * 1024
"""Bytes by which a prediction may be off: what Python's own objects take."""
LIMITS = (0.8, 0.6)
HEAD = ["step", "arguments", "given away", "limit", "predicted peak", "measured peak", "ratio", "page faults a step"]
GROWN_HEAD = ["function", "arguments", "predicted peak", "growth of resident memory", "predicted / growth"]
CALLED_HEAD = ["program", "predicted peak", "measured peak", "ratio", "arrays of unknown size", "page faults a call"]
FIRST_HEAD = ["program", "predicted peak", "predicted of a first call", "growth", "ratio", "growth, plain NumPy"]
OWN_HEAD = ["step", "futurex", "torch eager", "torch eager, channels last", "futurex / the least of torch"]
SIDE = "benchmarks.workloads.memory_side"


def peers_for(name: str, weights: str, threads: int) -> Iterator[Peer]:
    """Yield futurex and PyTorch, whose processes' memory is compared."""
    if name in networks.NETWORKS:
        own, torch_ = (f"benchmarks.workloads.networks_{stack}:TrainingStep" for stack in ("futurex", "torch"))
        options: dict[str, Any] = {"name": name, "weights": weights}
    else:
        own, torch_ = (f"benchmarks.workloads.{stack}_side:TrainingStep" for stack in ("futurex", "torch"))
        options = {"case": name}
    images = name in networks.NETWORKS and networks.NETWORKS[name].images
    made = [("futurex", own, options), ("torch eager", torch_, options)]
    made += [("torch eager, channels last", torch_, {**options, "channels_last": True})] if images else []
    for title, factory, each in made:
        yield Peer(title, f"{SIDE}:Resident", {"factory": factory, "options": each}, threads)


def residents(name: str, weights: str, threads: int, steps: int) -> dict[str, tuple[int, int]]:
    """Return the peak of each stack's resident memory: without what it holds before it makes the network, and all."""
    found = {}
    for peer in peers_for(name, weights, threads):
        try:
            child = Child(peer)
        except PeerAbsent as error:
            print(error)
            continue
        try:
            found[peer.name] = tuple(child.call("peak", steps=steps))
        finally:
            child.close()
    return found


def plans(name: str, weights: str, threads: int, steps: int, limits: tuple[float, ...]) -> list[dict[str, Any]]:
    """Return what is predicted and measured, with nothing given away, parameters and state given away, and limits."""
    child = Child(Peer("futurex", f"{SIDE}:Planned", {"name": name, "weights": weights}, threads))
    found: list[dict[str, Any]] = []
    try:
        for donate, share in [((), 1.0), (GIVEN_AWAY, 1.0), *((GIVEN_AWAY, share) for share in limits)]:
            figures = child.call("figures", donate=donate, share=share, steps=steps)
            found.append({"case": name, "donate": donate, "share": share, **figures})
    except PeerSilent as error:  # the search for a plan within a limit took too long
        print(error)
    finally:
        child.close()
    return found


def first(name: str, threads: int) -> dict[str, Any]:
    """Return what is predicted of a first call, and how much fresh processes grow by one, staged and plain."""
    found: dict[str, Any] = {"case": name}
    for key, options in {"predicted": None, "grown": {"plain": False}, "plain": {"plain": True}}.items():
        if name in first_memory.STEPS and key == "plain":
            continue  # its derivative is no NumPy function
        with tempfile.TemporaryDirectory() as folder:
            kept = {"FUTUREX_CACHE": folder, "FUTUREX_COMPILE": "background"}
            child = Child(Peer("futurex", "benchmarks.workloads.first_memory:FirstCall", {"name": name}, threads, kept))
            try:
                found[key] = child.call("predicted") if options is None else child.call("grown", **options)
            finally:
                child.close()
    return found


def first_line(one: dict[str, Any]) -> list[str]:
    """Return the table row of a first call."""
    sizes = [f"{each / 1e6:.1f} MB" for each in (*one["predicted"], one["grown"])]
    plain = f"{one['plain'] / 1e6:.1f} MB" if "plain" in one else "–"
    return [first_memory.TITLES[one["case"]], *sizes, f"{one['predicted'][1] / one['grown']:.2f}", plain]


def called(name: str, threads: int) -> dict[str, Any]:
    """Return what is predicted and measured of a judged program's calls."""
    child = Child(Peer("futurex", f"{SIDE}:Called", {"name": name, "weights": ""}, threads))
    try:
        return {"case": name, **child.call("figures")}
    finally:
        child.close()


def called_line(one: dict[str, Any]) -> list[str]:
    """Return the table row of a judged program."""
    sizes = [f"{one[each] / 1e6:.3f} MB" for each in ("predicted", "measured")]
    ratio = f"{one['predicted'] / one['measured']:.3f}"
    return [one["case"], *sizes, ratio, str(one["unknown"]), f"{one['faults']:.2f}"]


def is_off(one: dict[str, Any]) -> bool:
    """Is a prediction off by more than five per cent, and by more than Python's objects take?"""
    return abs(one["predicted"] - one["measured"]) > max(0.05 * one["measured"], FLOOR)


def growth(name: str, weights: str, threads: int) -> dict[str, Any]:
    """Return what is predicted of a run, and how much more memory is resident for it in a fresh process."""
    child = Child(Peer("futurex", f"{SIDE}:Grown", {"name": name, "weights": weights}, threads))
    try:
        return {"case": name, **child.call("figures")}
    finally:
        child.close()


def grown_line(one: dict[str, Any]) -> list[str]:
    """Return the table row of what is resident."""
    sizes = [one[each] for each in ("arguments", "predicted", "grown")]
    ratio = one["predicted"] / one["grown"]
    return [TITLES[one["case"]], *(f"{size / 1e6:.2f} MB" for size in sizes), f"{ratio:.3f}"]


def line(one: dict[str, Any]) -> list[str]:
    """Return the table row of one plan."""
    given = "parameters, state" if one["donate"] else "nothing"
    limit = "–" if one["limit"] is None else f"{one['limit'] / 1e6:.2f} MB"
    predicted, measured = one["predicted"], one["measured"]
    shown = [f"{value / 1e6:.2f} MB" for value in (predicted, measured)]
    arguments = f"{one['arguments'] / 1e6:.2f} MB"
    return [
        TITLES[one["case"]], arguments, given, limit, *shown, f"{predicted / measured:.3f}", f"{one['faults']:.1f}"
    ]  # fmt: skip


def own_line(name: str, found: dict[str, tuple[int, int]]) -> list[str]:
    """Return the table row of what the processes hold."""
    names = ("futurex", "torch eager", "torch eager, channels last")
    sizes = {each: [size / 1e6 for size in both] for each, both in found.items()}
    shown = ["{:.1f} MB of {:.0f}".format(*sizes[each]) if each in sizes else "–" for each in names]
    peers = [size for each, size in sizes.items() if each != "futurex"]
    ratios = [f"{sizes['futurex'][k] / min(size[k] for size in peers):.2f}" if peers else "–" for k in (0, 1)]
    return [TITLES[name], *shown, " of ".join(ratios)]


def main(arguments: argparse.Namespace) -> int:
    """Run the cases, print and write the tables; return 1 where a prediction is off by more than five per cent."""
    steps, threads = (3, 1) if arguments.quick else (20, max(arguments.threads))
    rows, own, grown, calls, firsts = [], {}, [], [], []
    quick = "mlp-sgd", "transformer", "heat", JUDGED, FIRST
    for name in cases_of(arguments, [*TITLES, JUDGED, FIRST], quick if arguments.quick else DEFAULT_CASES):
        print(TITLES.get(name, name), flush=True)
        if name == JUDGED:
            calls = [called(each, threads) for each in judged()[: 2 if arguments.quick else None]]
            continue
        if name == FIRST:
            firsts = [first(each, threads) for each in list(first_memory.TITLES)[: 2 if arguments.quick else None]]
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.pickle"
            if name in networks.NETWORKS:
                networks.write_weights(name, path)
            grown.append(growth(name, str(path), threads))
            if name in PROGRAMS:
                continue
            rows += plans(name, str(path), threads, steps, LIMITS[1:] if arguments.quick else LIMITS)
            own[name] = residents(name, str(path), threads, steps)
    body = "\n\n".join([
        report.table(HEAD, [line(one) for one in rows]),
        "Measured: what NumPy allocates in a run (tracemalloc), with the plan's arenas and constants and what kernels "
        "keep between runs; arguments are part of neither figure. Page faults: of the whole process, by steps of the "
        "function after five of them.",
        report.table(GROWN_HEAD, [grown_line(one) for one in grown]),
        "Nothing given away, in a fresh process whose plan is complete: the peak of resident memory while the first "
        "two runs are made, less what was resident before. Code that is loaded with the first run counts, 1 to 7 MB, "
        "and pages that are touched in part.",
        report.table(OWN_HEAD, [own_line(name, found) for name, found in own.items()]),
        "The peak of resident memory while steps run, less what was resident before the network was made: weights, "
        "state, batch, what a step takes, and code that is loaded with the first step; and of all that is resident.",
        report.table(CALLED_HEAD, [called_line(one) for one in calls]),
        "Judged programs on their examples, whose calls have come to a steady state, with the function that a plan was "
        "compiled to. Measured: what Python and NumPy allocate, with what is kept between calls.",
        report.table(FIRST_HEAD, [first_line(one) for one in firsts]),
        "First calls, each in a fresh process that has loaded the compiler, BLAS and oneDNN, but has no code of the "
        "program in memory or on disk: the peak of resident memory until the result is there, less what was resident "
        "before; arguments are part of no figure, copies of them are.",
    ])  # fmt: skip
    data = {"steps": rows, "grown": grown, "resident": own, "called": calls, "first": firsts}
    report.publish("memory", "Memory of training steps and programs", body, data, arguments.out)
    off = [one for one in (*rows, *calls) if is_off(one)]
    for one in off:
        print(f"{TITLES.get(one['case'], one['case'])}: predicted {one['predicted']}, measured {one['measured']}")
    return 1 if off else 0
