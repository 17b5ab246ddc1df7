"""Runs and their arguments: a run sees its arrays as they were when it was called, whatever the caller does next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.donation import give_away, surrendered
from futurex.kernels.copies import in_c_order
from futurex.runtime.futures import Done, Future
from futurex.runtime.habit import Call
from futurex.runtime.local import LocalExecutor
from futurex.runtime.memory import Memory
from futurex.runtime.placement import AnyPlan
from futurex.runtime.plan import Plan

SHORT = 500e-6  # seconds of a run that is not worth a hand-over and copies, which take a fifth of it
COPY_RATE = 5e9  # bytes a second
WORTH = 4.0  # a run must take this many times longer than copying its arguments, else the call waits for it

Result = Future[Any] | Done[Any]
_NOTHING: Mapping[int, Any] = MappingProxyType({})


def launched(
    executor: LocalExecutor, plan: AnyPlan, inputs: Sequence[Any], waits: bool, donated: Mapping[int, str] = _NOTHING
) -> Sequence[Result]:
    """Start a run. The caller's arrays are copied, unless the run is over when this returns.

    Results that are in nobody's hands are not: they are noted as lent. ``donated`` inputs, which have names, are given
    away.
    """
    pending, lent, given = False, {}, {}
    if donated:
        given = surrendered(inputs, donated)
    if given or any(type(value) is Array for value in inputs):
        arrays = {k: each for k, each in enumerate(inputs) if type(each) is Array and k not in given}
        lent = {k: future for k, each in arrays.items() if (future := each._future).private()}
        taken = list(inputs)
        for k, each in arrays.items():
            taken[k] = each._pending()
        for k, value in given.items():
            taken[k] = value
        give_away(inputs, donated, given)
        inputs = taken
        pending = any(isinstance(each, Future) for each in inputs)
    copied = [k for k, value in enumerate(inputs) if isinstance(value, np.ndarray) and k not in lent and k not in given]
    if not pending:
        if is_short(plan):
            return _run_here(plan, inputs)
        waits = waits or _waits(plan, sum(inputs[k].nbytes for k in copied))
        if isinstance(plan, Plan) and (waits or plan.waited_for) and executor.claim(plan):
            try:
                results = _run_here(plan, inputs)
            finally:
                executor.leave()
            if not waits:
                _watch(plan, results)
            return results
    if not waits:
        inputs = list(inputs)
        for k in copied:
            inputs[k] = in_c_order(inputs[k])
    futures = executor.submit(plan, inputs)
    for future in lent.values() if futures and not waits else ():
        future.lend(futures[-1])
    if waits:
        for future in futures:
            future.exception()
    elif isinstance(plan, Plan) and not pending:
        _watch(plan, futures)
    return futures


def run_at_once(
    executor: LocalExecutor, plan: Plan, inputs: Sequence[Any], read: int, owners: Sequence[Done[Any]],
    names: Sequence[str],
) -> tuple[list[Any], Call | None] | None:  # fmt: skip
    """The results of a run in this thread, and who wants to know when somebody asks for one; None if it is a worker's.

    The ``inputs`` are values that are known to fit, of which the run reads so many bytes that it does not own.
    Their ``owners`` tell whoever asks that they are gone, under these names, when it is certain that the run takes
    place. Raises what the run raises.
    """
    short = is_short(plan)
    waits = short or _waits(plan, read)
    if not (waits or plan.waited_for) or not (short or executor.claim(plan)):
        return None
    try:
        for owner, name in zip(owners, names, strict=True):
            owner.gone, owner.exposed, owner.value = name, False, None
        results = plan.run(inputs, checked=True)
    finally:
        if not short:
            executor.leave()
    return results, None if waits else plan.habit.called(plan.grain.seconds)


def run_quickly(plan: Plan, inputs: Sequence[Any]) -> Sequence[Any] | None:
    """The results of a short run of one compiled function, whose inputs are known to fit; None where it is none, or
    gives up. Raises what the run raises."""
    whole = plan.whole
    if whole is None or not whole.taken or plan.grain.seconds >= SHORT:
        return None
    return whole.quickly(inputs)


def _waits(plan: AnyPlan, read: int) -> bool:
    """Would copies of what a run reads take a share of its time that matters?"""
    return plan.grain.seconds < WORTH * read / COPY_RATE


def foreseen(plan: AnyPlan, inputs: Sequence[Any], waits: bool) -> Memory:
    """The memory of a call whose run reads these inputs, with the copies of arrays if it returns before it is over."""
    if not isinstance(plan, Plan):
        return plan.memory
    plan.complete()
    read = sum(value.nbytes for value in inputs if isinstance(value, np.ndarray))
    return replace(plan.memory, copies=0 if waits or is_short(plan) or _waits(plan, read) else read)


def _watch(plan: Plan, results: Sequence[Result]) -> None:
    """Have the plan learn when somebody first asks for one of these."""
    call = plan.habit.called(plan.grain.seconds)
    for each in results:
        each.call = call


def is_short(plan: AnyPlan) -> bool:
    """Would a hand-over to another thread take longer than the run?"""
    return plan.grain.seconds < SHORT and not plan.collectives


def failed(plan: AnyPlan, error: Exception) -> Sequence[Result]:
    """The results of a run that failed."""
    futures: list[Future[Any]] = [Future() for _ in plan.graph.outs]
    for future in futures:
        future.set_exception(error)
    return futures


def run_here(plan: AnyPlan, inputs: Sequence[Any]) -> Sequence[Result]:
    """Run in the calling thread, whose state (``np.errstate``, open transactions) the user's own code may look at."""
    return _run_here(plan, [value.result() if type(value) is Array else value for value in inputs])


def _run_here(plan: AnyPlan, inputs: Sequence[Any]) -> Sequence[Result]:
    """What a run in this thread gives."""
    try:
        results = plan.run(inputs)
    except Exception as error:
        return failed(plan, error)
    return [Done(value) for value in results]
