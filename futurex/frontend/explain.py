"""What a futurized function says of its traces."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from futurex.frontend import layouts
from futurex.frontend.array import Array
from futurex.frontend.errors import Signal
from futurex.frontend.fragments import Fragments
from futurex.frontend.variants import Variant
from futurex.runtime.plan import Instruction, Plan
from futurex.tree.dims import Symbol, dims_in


class Text(str):
    """Several lines that a prompt and a notebook show as they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


MOST_KINDS = 3
"""Kinds of arguments that are named of traces which were given up for the same reason."""


def paragraphs(traces: Iterable[Variant]) -> list[str]:
    """A paragraph for each trace; those that were given up at the same line for the same reason share one."""
    found: dict[int | tuple[str, ...], list[Variant]] = {}
    for variant in traces:
        staged = variant.escape is None and variant.error is None
        found.setdefault(id(variant) if staged else tuple(lines_of(variant)), []).append(variant)
    lines = []
    for alike in found.values():
        kinds = list(dict.fromkeys(map(leaves_of, alike)))
        if len(kinds) > MOST_KINDS + 1:
            kinds[MOST_KINDS:] = [f"and {len(kinds) - MOST_KINDS} more kinds of arguments"]
        if len(alike) > 1:
            kinds[-1] += f" ({len(alike)} traces)"
        lines += [f"- {kind}" for kind in kinds]
        lines += [f"    {line}" for line in lines_of(alike[0])]
    return lines


def leaves_of(variant: Variant) -> str:
    """The arguments that a trace is for."""
    parts = []
    names: dict[Symbol, str] = {}
    for place, (kind, *values) in enumerate(variant.leaves):
        aval = variant.opened.get(place)
        if aval is not None:
            for dim in dims_in(aval.shape):
                names.update((symbol, f"n{len(names)}") for symbol in dim.symbols if symbol not in names)
            text = "any int" if aval.weak else aval.text(names)
            parts.append(f"list of {text}" if kind is list else text)
        elif kind in (np.ndarray, Array):
            future = "future " if kind is Array else ""  # as the key has it: results of calls make a trace of their own
            parts.append(f"{future}{values[0].name}[{','.join(map(str, values[1]))}]")
        elif kind is list:
            parts.append(f"list of {values[0].__name__}[{','.join(map(str, values[1]))}]")
        else:
            parts.append(repr(values[0]) if kind in (bool, int, str, bytes) else kind.__name__)
    return (", ".join(parts) or "no arguments") + (": one trace for all sizes" if variant.opened else "")


def not_traced_yet(fragments: Fragments | None) -> list[str]:
    """Why there is no trace after a call."""
    found = list(fragments.opaque.values()) if fragments is not None else []
    if not found:
        return []
    lines = [line for escape in found for line in escape.explain().splitlines()]
    return [
        "- the next call is traced; this one ran as plain NumPy, to see what comes back from",
        *(f"    {line}" for line in lines),
    ]


def _of_loop(instruction: Instruction) -> str | None:
    """How a loop runs."""
    kernel, node = instruction.kernel, instruction.node
    if node.op not in ("loop", "scan"):
        return None
    where = f"the loop at {node.src}" if node.src is not None else "a loop"
    if kernel.backend != "loops":
        return f"{where} runs round by round"
    parts, threads = getattr(kernel.late, "parts", 1), getattr(kernel.late, "threads", 1)
    shared = f", its rows in {parts} parts on {threads} thread{'s' * (threads > 1)}" if parts > 1 else ""
    return f"{where} is compiled whole{shared}"


def _of_parts(instruction: Instruction) -> str | None:
    """Whether a long call is cut."""
    kernel = instruction.kernel
    if kernel.contest is None:
        return None
    return f"{instruction.node.op} runs {kernel.contest.text('whole', f'in {kernel.parts} parts at once')}"


def _said(error: BaseException) -> str:
    """What an error says; its kind alone where that would tell values of the run, or the program's own text fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except (Exception, Signal):
        return type(error).__name__


def lines_of(variant: Variant) -> list[str]:
    """What was staged, what it depends on, and what was not staged and why."""
    inside = ["what is futurized in it is plain as well, which is faster"] * (
        variant.lane is not None and bool(variant.lane.within.plain)
    )
    if variant.escape is not None:
        return ["runs as plain NumPy:", *variant.escape.explain().splitlines(), *inside]
    if variant.error is not None:
        return [f"runs as plain NumPy: tracing raised {_said(variant.error)}", *inside]
    assert variant.graph is not None
    out = [f"staged: {len(variant.graph.nodes)} nodes, tree {variant.graph.hash[:12]}"]
    guards = [guard.name for guard in variant.guards if guard.expected[0] not in ("object", "method")]
    if guards:
        out.append(f"traced again when these change: {', '.join(guards)}")
    if variant.captures:
        out.append(f"{len(variant.captures)} array(s) from outside, read at every call")
    tasks = variant._plan.as_tasks() if isinstance(variant._plan, Plan) else None
    if tasks is not None:
        width = tasks.cost / tasks.critical
        out.append(f"independent operations run beside each other: {width:.1f} times the work of the longest path")
        contest = variant._plan.contest if isinstance(variant._plan, Plan) else None
        if contest is not None:
            out[-1] = f"independent operations, {width:.1f} times the work of the longest path, run " + contest.text(
                "one after the other", "beside each other"
            )
    if variant.meanwhile is not None:
        out.append("its code is being made; until it is there calls run as plain NumPy")
    elif variant._plan is not None and not variant._plan.ready:
        out.append("NumPy computes some kernels that are not compiled: f.profile() counts such runs as interpreted")
    if isinstance(variant._plan, Plan):
        out += [text for each in variant._plan.instructions if (text := _of_loop(each)) is not None]
        out += list(dict.fromkeys(text for each in variant._plan.instructions if (text := _of_parts(each)) is not None))
    steps = getattr(variant._plan, "instructions", None)
    if steps is not None and (text := layouts.text_of(variant.graph, steps)) is not None:
        out.append(text)
    whole = getattr(variant._plan, "whole", None)
    if whole is not None and (text := whole.text()) is not None:
        out.append(text)
    choice = variant.lane.choice if variant.lane is not None else None
    if choice is not None and (text := choice.text()) is not None:
        out.append(text)
    return out + variant.notes
