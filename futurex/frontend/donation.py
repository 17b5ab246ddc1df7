"""Arguments given away: a run writes its results into their memory, and who reads them afterwards is told.

Only futures can be given away, because only a future can refuse: an ndarray of the caller's is copied, as always, and
stays what it was. Memory that somebody else can see, by an ndarray or as argument of another run, is copied, too.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.kernels.recycling import is_kept, kept
from futurex.runtime.futures import Future, Resident
from futurex.tree.graph import Graph

_NOTHING: Mapping[int, Any] = MappingProxyType({})


def parameters(function: Callable[..., Any], donate: Any) -> tuple[str, ...]:
    """The names in ``donate``, a name or several. Raises TypeError or ValueError where the function has no such one."""
    names = tuple(donate) if isinstance(donate, Iterable) and not isinstance(donate, str) else (donate,)
    known = [
        each.name for each in inspect.signature(function).parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]  # fmt: skip
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"donate takes names of parameters, not {name!r}")
        if name not in known:
            raise ValueError(f"donate={name!r}: the function has no such parameter; it has: {', '.join(known)}")
    return names


def belongs(path: str, names: Iterable[str]) -> bool:
    """Is the argument leaf at ``path`` part of one of these parameters?

    >>> belongs("params/w", ("params",)), belongs("params2", ("params",))
    (True, False)
    """
    return path.split("/", 1)[0] in names


def matched(graph: Graph, inputs: Sequence[int]) -> dict[int, int]:
    """Outputs that take over the memory of ``inputs``: each the first that is left of its shape and dtype."""
    free = [k for k in inputs if graph.params[k].ndim and graph.params[k].is_static]
    outs = list(graph.outs)
    chosen: dict[int, int] = {}
    for number, out in enumerate(outs):
        fits = next((k for k in free if graph.params[k].aval == out.aval), None)
        if fits is None or out.op == "param" or outs.count(out) > 1:
            continue
        chosen[number] = fits
        free.remove(fits)
    return chosen


def surrendered(inputs: Sequence[Any], donated: Iterable[int]) -> dict[int, Any]:
    """What a run is given in the place of donated inputs: arrays, or futures of arrays, that it may write into."""
    often = Counter(id(each._future) for each in inputs if type(each) is Array)
    return {k: _surrendered(inputs[k], often) for k in donated}


def give_away(inputs: Sequence[Any], donated: Mapping[int, str], given: Mapping[int, Any] = _NOTHING) -> None:
    """From now on the futures among these inputs, which have names, tell whoever reads them what became of them.

    ``given`` is what the run has in their place: the value, or a future that has still to give it.
    """
    for k, name in donated.items():
        if type(inputs[k]) is Array:
            inputs[k]._future.give_away(name, taken=not isinstance(given.get(k), Future))


def _surrendered(value: Any, often: Mapping[int, int]) -> Any:
    if type(value) is not Array:
        return kept(np.array, value)  # on huge pages where it is large, for later calls write into this memory, too
    future = value._future
    alone = value._view is None and often[id(future)] == 1 and not future.read() and future.private()
    given = value._pending()
    if isinstance(given, Future):
        return given if alone else _copy_of(given)
    if isinstance(given, Resident):
        return given if alone else given.copy()
    owned = type(given) is np.ndarray and given.base is None and given.flags.carray
    return given if alone and owned and is_kept(given) else kept(np.array, given)


def _copy_of(future: Future[Any]) -> Future[Any]:
    copied: Future[Any] = Future()

    def deliver(done: Any) -> None:
        try:
            value = done.result()
            copied.set_result(value.copy() if isinstance(value, Resident) else np.array(value))
        except BaseException as error:
            copied.set_exception(error)

    future.add_done_callback(deliver)
    return copied
