"""Control flow as instructions: the kernels of ``cond``, ``loop`` and ``scan`` run plans of their sub-graphs.

They are called as ``call(None, communicator, *inputs)``, so that collectives inside a branch or a body find their
group. Their results are arrays of their own: never an input, never memory of the plan that is used again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from futurex.kernels.interrupts import look
from futurex.kernels.registry import Backend, Kernel, Late
from futurex.ops.tapes import collector
from futurex.tree.dims import is_static
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

STRUCTURED = frozenset({"cond", "loop", "scan"})
WRITTEN_BYTES = 1 << 18
"""Size from which an array that a loop stores into is written in place; smaller ones are copied by a quicker plan."""
PATIENCE = 20e-3  # seconds that a loop runs round by round while its code is made


class Runnable(Protocol):
    """A compiled sub-graph."""

    graph: Graph

    def run(self, args: Sequence[Any], communicator: Any = None, *, outs: Sequence[Any] | None = None) -> list[Any]:
        """Results for ``args``; ``outs`` are arrays that may be overwritten with them."""
        ...

    def prepare(self, *, wait: bool) -> None:
        """Begin to compile its kernels; be done when this returns, if ``wait``."""
        ...

    @property
    def ready(self) -> bool:
        """Are all its kernels compiled that will be?"""
        ...

    @property
    def threads(self) -> int:
        """How many its kernels use at most."""
        ...

    @property
    def interpreted(self) -> int:
        """How often NumPy computed what was not compiled yet."""
        ...


Compile = Callable[..., Runnable]
"""``compile_sub(graph, donate)``: a plan; ``donate`` maps results to arguments that they may be written into."""


class _Inside:
    """The kernels of sub-graphs, as part of the node that holds them."""

    def __init__(self, plans: Sequence[Runnable]) -> None:
        self._plans = plans

    @property
    def interpreted(self) -> int:
        return sum(plan.interpreted for plan in self._plans)

    @property
    def ready(self) -> bool:
        return all(plan.ready for plan in self._plans)

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        for plan in self._plans:
            plan.prepare(wait=wait)


def structured_kernel(node: Node, compile_sub: Compile, backends: Sequence[Backend], threads: int) -> Kernel:
    """The kernel of a structured node: a backend's, where one claims it, or plans of its sub-graphs."""
    if node.op == "loop":
        claims = (backend.claim(node, threads) for backend in backends if backend.name != "numpy")
        whole = next((kernel for kernel in claims if kernel is not None), None)
        if whole is not None:
            return replace(whole, call=_compiled(whole, node, compile_sub))
    return _planned(node, compile_sub, grows=bool(backends))


def _compiled(whole: Kernel, node: Node, compile_sub: Compile) -> Callable[..., Any]:
    """A compiled loop. It is run by plans until it is compiled, which may be between two rounds if these do not change
    shapes, and where it gives up: they raise what there is to raise, at its line."""
    late, body = whole.late, node.attrs["body"]
    # The code is made for the shapes that the loop begins with.
    may_take_over = all(each.is_static for each in body.params)
    written = _stored_into(body, ())
    body, growing = _adding_rows(body, ())

    @functools.cache
    def plans() -> tuple[Runnable, Runnable]:
        return compile_sub(node.attrs["test"]), compile_sub(body, written)

    def call(out: Sequence[Any] | None, communicator: Any, *inputs: Any) -> Any:
        coming = whole if may_take_over and late is not None and not late.ready else None
        results = whole.call(out, *inputs)
        if results is not None:
            return results
        results = _loop(*plans(), (), written, growing, coming)(None, communicator, *inputs)
        return results if out is None else tuple(map(_delivered, results, out))

    return call


def _delivered(result: Any, out: Any) -> Any:
    """A result in the memory that was set aside for it; numbers have none."""
    if out is None:
        return result
    if result is not out:
        np.copyto(out, result)
    return out


def _planned(node: Node, compile_sub: Compile, grows: bool) -> Kernel:
    """The kernel that runs plans of the sub-graphs; they are compiled once, here. ``grows``: arrays are NumPy's, and
    may get room for rows that rounds add."""
    graphs = {name: value for name, value in node.attrs.items() if isinstance(value, Graph)}
    written: dict[int, int] = {}
    growing: frozenset[int] = frozenset()
    if node.op == "loop":
        written = _stored_into(graphs["body"], node.attrs["tape"])
        if grows:
            graphs["body"], growing = _adding_rows(graphs["body"], node.attrs["tape"])
    plans = {name: compile_sub(value, written if name == "body" else None) for name, value in graphs.items()}
    every = tuple(plans.values())
    used = max((plan.threads for plan in every), default=1)
    common: dict[str, Any] = {"threads": used, "late": _Inside(every), "plans": every}
    if node.op == "cond":
        return Kernel(_cond(plans["then"], plans["orelse"]), "structured", **common)
    if node.op == "loop":
        call = _loop(plans["test"], plans["body"], node.attrs["tape"], written, growing)
        return Kernel(call, "structured", **common)
    attrs = {name: value for name, value in node.attrs.items() if name != "body"}
    return Kernel(_scan(plans["body"], **attrs), "structured", **common)


def _cond(then: Runnable, orelse: Runnable) -> Callable[..., tuple[Any, ...]]:
    def call(out: None, communicator: Any, pred: Any, *inputs: Any) -> tuple[Any, ...]:
        return tuple((then if bool(pred) else orelse).run(inputs, communicator))

    return call


class _Carry:
    """What a loop carries, double-buffered: a step reads one set of arrays and writes the other."""

    def __init__(self, values: Sequence[Any], written: Collection[int] = (), growing: Collection[int] = ()) -> None:
        """``written``: places whose array every step writes into; they get one of their own. ``growing``: those whose
        array gets the rows that a step gives."""
        self._rooms: dict[int, Any] = dict.fromkeys(growing)
        self.values = [_own(value) if k in written else value for k, value in enumerate(values)]
        self._written = frozenset(written)
        self._mine = False  # the first set belongs to the caller
        self._spare: list[Any] | None = None

    def step(self, plan: Runnable, args: Sequence[Any], communicator: Any, *, keep: Sequence[int]) -> list[Any]:
        """Run ``plan``; its first results become the carry, the rest is returned. ``keep``: old values that live on."""
        n = len(self.values)
        results = plan.run(args, communicator, outs=self._spare)
        lasting = self._written.union(keep, self._rooms)
        for k in self._rooms:
            results[k] = self._with_rows(k, results[k])
        self._spare = [None if k in lasting else value for k, value in enumerate(self.values)] if self._mine else None
        self.values, self._mine = results[:n], True
        return results[n:]

    def owned(self) -> list[Any]:
        """The carry in arrays that nobody else holds."""
        if not self._mine:
            return [_own(value) for value in self.values]
        return [_own(value) if k in self._rooms else value for k, value in enumerate(self.values)]

    def _with_rows(self, k: int, rows: Any) -> Any:
        """A carried array with more rows: it lies in memory that has room for as many again."""
        before, room = self.values[k], self._rooms[k]
        used = len(before)
        needed = used + len(rows)
        if room is None or needed > len(room):
            room = self._rooms[k] = np.empty((2 * needed, *before.shape[1:]), before.dtype)
            room[:used] = before
        room[used:needed] = rows
        return room[:needed]


def _adding_rows(body: Graph, tape: Sequence[int]) -> tuple[Graph, frozenset[int]]:
    """A loop's body that gives the rows alone which it adds to the ends of carried arrays, and these arrays' places: to
    copy what is there in every round would take longer and longer."""
    outs = list(body.outs)
    for k, out in enumerate(body.outs):
        if out.op == "concatenate" and not out.attrs["axis"] and out.inputs[0] is body.params[k] and k not in tape:
            rows = out.inputs[1:]
            whole = is_static(out.shape[1:]) and out.aval.dtype == body.params[k].aval.dtype
            if whole and all(each.dtype == out.dtype and each.shape[1:] == out.shape[1:] for each in rows):
                outs[k] = rows[0] if len(rows) == 1 else apply("concatenate", *rows, axis=0)
    growing = frozenset(k for k, (mine, out) in enumerate(zip(outs, body.outs, strict=True)) if mine is not out)
    return (Graph(body.params, outs, body.name) if growing else body), growing


def _stored_into(body: Graph, tape: Sequence[int]) -> dict[int, int]:
    """The large carried arrays that a round of a loop only stores into: copying them takes longer than the round."""
    return {
        k: k
        for k, out in enumerate(body.outs)
        if out.op in ("store", "scatter") and out.inputs[0] is body.params[k] and k not in tape
        and out.is_static and out.aval == body.params[k].aval and out.size * out.dtype.itemsize >= WRITTEN_BYTES
    }  # fmt: skip


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _loop(
    test: Runnable, body: Runnable, tape: tuple[int, ...], written: Collection[int], growing: Collection[int],
    coming: Kernel | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """``written``: what the body's plan was told that it may write into; ``growing``: of what it gives rows.
    ``coming``: the whole loop as a kernel that is being compiled; once it is there it takes over what is carried."""
    n = len(body.graph.outs)

    def call(out: None, communicator: Any, *inputs: Any) -> tuple[Any, ...]:
        consts = inputs[n:]
        carry, whole, start = _Carry(inputs[:n], written, growing), coming, time.perf_counter()
        if tape:
            carry.values = carry.owned()
        tapes: list[list[Any]] = [[] for _ in tape]
        while bool(test.run((*carry.values, *consts), communicator)[0]):
            look()
            for steps, k in zip(tapes, tape, strict=True):
                steps.append(carry.values[k])
            carry.step(body, (*carry.values, *consts), communicator, keep=tape)
            if whole is not None and (whole.late is None or _is_there(whole.late, start)):
                results = whole.call(None, *carry.values, *consts)
                if results is not None:
                    return tuple(results)
                whole = None
        return (*carry.owned(), *tapes)

    return call


def _is_there(late: Late, start: float) -> bool:
    """Is the code there? A loop that has run for long without it does better to wait: its rounds and the compiler would
    take turns in Python."""
    if not late.ready and time.perf_counter() - start > PATIENCE:
        late.prepare((), wait=True)
        return True
    return late.ready


def _scan(
    body: Runnable, n_carry: int, n_xs: int, length: int | None, reverse: bool, tape: tuple[int, ...]
) -> Callable[..., tuple[Any, ...]]:
    graph = body.graph
    made = [node.aval for node in (*graph.outs[n_carry:], *(graph.params[k] for k in tape))]

    def call(out: None, communicator: Any, *inputs: Any) -> tuple[Any, ...]:
        xs, consts = inputs[n_carry : n_carry + n_xs], inputs[n_carry + n_xs :]
        carry = _Carry(inputs[:n_carry])
        if tape:
            carry.values = carry.owned()
        rounds = range(len(xs[0]) if length is None else length)
        sequences = [collector(aval, length, len(rounds)) for aval in made]
        for i in reversed(rounds) if reverse else rounds:
            look()
            before = carry.values
            args = (*before, *(x[i] for x in xs), *consts)
            ys = carry.step(body, args, communicator, keep=tape if length is None else ())
            for steps, value in zip(sequences, [*ys, *(before[k] for k in tape)], strict=True):
                steps[i] = value
        return (*carry.owned(), *sequences)

    return call
