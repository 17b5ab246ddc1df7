"""The functions of ``heapq``, as they are staged: Python's own order of entries after each of them.

Source: J. W. J. Williams, Algorithm 232 (1964), in the form of CPython's ``heapq``, which lets an entry sink to a leaf
by the smaller children and then rise.
"""

from __future__ import annotations

import heapq
from typing import Any

from futurex.frontend.calls import call_rewritten, special
from futurex.frontend.errors import Escape
from futurex.frontend.lists import TracedList


def _rise(heap: Any, first: int, place: Any) -> None:
    entry = heap[place]
    while place > first:
        above = (place - 1) >> 1
        if not entry < heap[above]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = entry


def _sink(heap: Any, place: Any) -> None:
    first, end, entry = place, len(heap), heap[place]
    below = 2 * place + 1
    while below < end:
        if below + 1 < end and not heap[below] < heap[below + 1]:
            below += 1
        heap[place] = heap[below]
        place = below
        below = 2 * place + 1
    heap[place] = entry
    _rise(heap, first, place)


def _push(heap: Any, entry: Any) -> None:
    heap.append(entry)
    _rise(heap, 0, len(heap) - 1)


def _pop(heap: Any) -> Any:
    last = heap.pop()
    if not heap:
        return last
    smallest = heap[0]
    heap[0] = last
    _sink(heap, 0)
    return smallest


def _replace(heap: Any, entry: Any) -> Any:
    smallest = heap[0]
    heap[0] = entry
    _sink(heap, 0)
    return smallest


def _push_and_pop(heap: Any, entry: Any) -> Any:
    if not heap or not heap[0] < entry:
        return entry
    smallest = heap[0]
    heap[0] = entry
    _sink(heap, 0)
    return smallest


def _heapify(heap: Any) -> None:
    for place in reversed(range(len(heap) // 2)):
        _sink(heap, place)


def _staged(function: Any, written: Any) -> None:
    @special(function)
    def run(heap: Any, *given: Any) -> Any:
        if type(heap) is not list and not (isinstance(heap, TracedList) and not heap.is_deque):
            raise Escape(f"{function.__name__}() of what is no list", "heaps are lists")
        return call_rewritten(written, (heap, *given), {})


for _function, _written in (
    (heapq.heappush, _push), (heapq.heappop, _pop), (heapq.heapreplace, _replace),
    (heapq.heappushpop, _push_and_pop), (heapq.heapify, _heapify), (_rise, _rise), (_sink, _sink),
):  # fmt: skip
    _staged(_function, _written)
