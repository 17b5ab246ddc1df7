"""What a training step takes of memory: what is predicted, what its plan allocates, and what the process holds."""

from __future__ import annotations

import copy
import ctypes
import gc
import importlib
import resource
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import cases, networks, programs_side
from benchmarks.workloads.array_programs import PROGRAMS
from futurex.runtime import config
from futurex.runtime.arenas import HUGE_PAGE
from futurex.runtime.counters import HOT
from futurex.runtime.plan import compile_plan

GIVEN_AWAY = ("params", "running", "moments")
CALLS = 100
"""Calls whose page faults are counted."""


def resident() -> int:
    """Return the bytes of memory that are resident now."""
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024


class Resident:
    """A stack's training step in a process of its own; counted from when the stack itself has been imported."""

    def __init__(self, factory: str, options: Mapping[str, Any]) -> None:
        module, _, name = factory.partition(":")
        made = getattr(importlib.import_module(module), name)
        self._before = resident()
        self._workload = made(**options)

    def peak(self, steps: int) -> tuple[int, int]:
        """Return the most bytes that were resident while steps ran: more than before the network was made, and all."""
        for _ in range(3):
            self._workload.step()
        networks.forget_peak()
        for _ in range(steps):
            self._workload.step()
        whole = networks.peak()
        return whole - self._before, whole


def training_step(name: str, weights: str) -> tuple[Callable[..., Any], list[Any], tuple[Any, Any]]:
    """Return ``step(params, running, moments, x, y, key)`` of a case or a network, its first three, and a batch."""
    import futurex as fx
    from benchmarks.workloads import futurex_side, networks_futurex

    if name in networks.NETWORKS:
        step, optimizer = networks_futurex.training_step(name, networks.NETWORKS[name].dropout)
        return step, networks_futurex.initial(name, weights, optimizer), networks.batch(name)
    case = cases.CASES[name]
    loss_and_gradient = fx.value_and_grad(futurex_side.loss_of(case.model, cases.DROPOUT[case.model]))
    optimizer = futurex_side.optimizer_for(case.optimizer, case.rate)

    def train(params: Any, running: Any, moments: Any, x: Any, y: Any, key: Any) -> Any:
        loss, gradient = loss_and_gradient(params, x, y, key)
        params, moments = optimizer.update(params, gradient, moments)
        return params, running, moments, loss

    params = cases.weights(case.model)
    return train, [params, (), optimizer.init(params)], cases.batch(case.model)


def arenas(plan: Any) -> list[int]:
    """Return the bytes of each arena that a plan and those inside it keep between runs."""
    own = [each.arena.nbytes for each in plan._instances if each.arena is not None]
    return own + [size for each in plan.instructions for inner in each.kernel.plans for size in arenas(inner)]


def in_arrays() -> int:
    """Return the bytes of the arrays that live, of those made since tracemalloc was started."""
    arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    return sum(each.size for each in tracemalloc.take_snapshot().filter_traces([arrays]).traces)


def taken(plan: Any, inputs: list[Any]) -> int:
    """Return the most that a run of a plan takes, with what the plan and its kernels keep between runs.

    The plan is made anew, since what was kept before nobody has counted, and has become one function when it counts.
    """
    tracemalloc.start()
    try:
        given = plan.delivery.donated
        fresh = compile_plan(plan.graph, threads=plan.low.threads, donate=given, optimised=True, frugal=True)
        if fresh.planned != plan.planned:
            raise RuntimeError(f"measured was another plan: {fresh.planned}, not {plan.planned}")
        for _ in range(HOT + 1):
            fresh.run(inputs)
        mapped = sum(size for size in arenas(fresh) if size >= HUGE_PAGE // 2)
        kept, before = in_arrays(), tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        results = fresh.run(inputs)
        peak = tracemalloc.get_traced_memory()[1] - before
        del results
    finally:
        tracemalloc.stop()
    return peak + kept + mapped + int(fresh.memory.constants)


def in_thread(function: Callable[[], Any]) -> Any:
    """Return what a function gives in a thread of its own, which has no memory yet that kernels of a thread share."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


class Grown:
    """A function whose plan is complete and has never run: how much more memory is resident when it has?"""

    def __init__(self, name: str, weights: str) -> None:
        import futurex as fx

        if name in PROGRAMS:
            function, arguments = PROGRAMS[name].function, PROGRAMS[name].arguments()
        else:
            function, held, batch = training_step(name, weights)
            arguments = [*held, *batch, np.uint64(0)]
        program = fx.lower(function, *arguments)
        flat = program.flatten(*arguments)
        self._inputs = [np.array(each) if isinstance(each, np.ndarray) else each for each in flat]
        self._plan = compile_plan(program.graph, threads=config.threads())

    def figures(self) -> dict[str, Any]:
        """Return what is predicted, and by how much the peak of resident memory grows while two runs are made."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        before = resident()
        networks.forget_peak()
        for _ in range(2):
            self._plan.run(self._inputs)
        size = sum(np.asarray(each).nbytes for each in self._inputs)
        return {"arguments": size, "predicted": self._plan.memory.peak, "grown": networks.peak() - before}


class Planned:
    """The training step of a case or network in futurex."""

    def __init__(self, name: str, weights: str) -> None:
        self._step, self._held, self._batch = training_step(name, weights)

    def figures(self, donate: Sequence[str], share: float, steps: int) -> dict[str, Any]:
        """Return what is predicted and measured of a step that is given these parameters.

        Where ``share`` is less than one, it may take that share of what it would; or what the error says would do.
        """
        import futurex as fx
        from benchmarks.workloads.futurex_side import settle

        train = fx.futurize(self._step, donate=tuple(donate))
        held = list(self._held)
        limit = None
        if share < 1:
            limit = int(share * train.memory(*held, *self._batch, np.uint64(0)).peak)
            try:
                fx.futurize(train, memory_limit=limit).memory(*held, *self._batch, np.uint64(0))
            except MemoryError as error:
                limit = int(str(error).partition("bytes, and ")[2].split()[0])
            train = fx.futurize(train, memory_limit=limit)
        for count in range(5):
            *held[:], loss = train(*held, *self._batch, np.uint64(count))
            settle([*held, loss])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for count in range(steps):
            *held[:], loss = train(*held, *self._batch, np.uint64(count))
            settle([*held, loss])
        faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps
        plan = train.trace(*held, *self._batch, np.uint64(0)).plan
        leaves = fx.lower(train, *held, *self._batch, np.uint64(0)).flatten(*held, *self._batch, np.uint64(0))
        values = [leaf.result() if isinstance(leaf, fx.Array) else leaf for leaf in leaves]
        inputs = [np.array(value) if isinstance(value, np.ndarray) else value for value in values]
        del held, leaves, values
        measured = in_thread(lambda: taken(plan, inputs))
        size = sum(np.asarray(each).nbytes for each in inputs)
        return {
            "arguments": size, "predicted": plan.memory.peak, "measured": measured, "faults": faults, "limit": limit,
            "instructions": len(plan.instructions),
        }  # fmt: skip


class Called:
    """A judged program whose calls have come to a steady state, as they go then."""

    def __init__(self, name: str, weights: str) -> None:
        self._program = programs_side.Program(name, "futurized")

    def figures(self) -> dict[str, Any]:
        """Return what is predicted of a call, and measured."""
        program = self._program
        given = copy.deepcopy(program.args)
        plan = program.function.trace(*given).plan
        tracemalloc.start()
        try:
            before = program.function.memory(*given)
            until = time.perf_counter() + 1.0
            while time.perf_counter() < until or not (plan.whole is None or plan.whole.settled):
                program.step()
            gc.collect()
            mapped = sum(size for size in arenas(plan) if size >= HUGE_PAGE // 2)
            kept, held = in_arrays(), tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            program.step()
            peak = tracemalloc.get_traced_memory()[1] - held
        finally:
            tracemalloc.stop()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(CALLS):
            program.step()
        return {
            "predicted": before.peak, "unknown": before.unknown,
            "measured": peak + kept + mapped + int(before.constants),
            "faults": (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / CALLS,
        }  # fmt: skip
