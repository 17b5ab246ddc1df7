"""Who sends what to whom: the algorithms of collective communication, as data.

A vector is cut into blocks. For every block a rank has a *timeline*: sends and receipts that happen in this order, each
chunk of the block on its own, as soon as what comes before has happened. Sender and receiver of a transfer name it by
the same hop. A receipt replaces the block or is combined with it.

Sources: ring: Patarasuk and Yuan, *Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations*, JPDC 2009.
Recursive doubling, halving with doubling, binomial trees: Thakur, Rabenseifner and Gropp, *Optimization of Collective
Communication Operations in MPICH*, IJHPCA 2005. Dissemination: Bruck et al., *Efficient Algorithms for All-to-All
Communications in Multiport Message-Passing Systems*, IEEE TPDS 1997.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

_UP, _DOWN = 1 << 17, 1 << 18  # hops inside a host


class Event(NamedTuple):
    """A transfer of one block: a send to `peer`, or a receipt from it, which may be combined with what is there."""

    hop: int
    peer: int
    send: bool
    combine: bool = False


class Schedule(NamedTuple):
    """One rank's part: a timeline for each block.

    `copies`: sends leave a copy, because what is received next may change the block before they have left.
    """

    timelines: tuple[tuple[Event, ...], ...]
    copies: bool = False


def _along(rank: int, path: Sequence[int], combining: int) -> list[Event]:
    """The events of `rank` for a block that travels along `path`, combined in the first `combining` hops."""
    events = []
    for hop, (source, target) in enumerate(itertools.pairwise(path)):
        if rank == target:
            events.append(Event(hop, source, False, hop < combining))
        if rank == source:
            events.append(Event(hop, target, True))
    return events


def _walk(start: int, steps: int, size: int) -> list[int]:
    return [(start + step) % size for step in range(steps + 1)]


@functools.lru_cache(512)
def ring_all_reduce(rank: int, size: int) -> Schedule:
    """Block b is added up from rank b on, once round; then it goes round once more."""
    return Schedule(tuple(tuple(_along(rank, _walk(b, 2 * size - 2, size), size - 1)) for b in range(size)))


@functools.lru_cache(512)
def ring_reduce_scatter(rank: int, size: int) -> Schedule:
    """Block b is added up from rank b + 1 on, once round, and so ends at rank b."""
    return Schedule(tuple(tuple(_along(rank, _walk(b + 1, size - 1, size), size - 1)) for b in range(size)))


@functools.lru_cache(512)
def ring_all_gather(rank: int, size: int) -> Schedule:
    """Block b goes round from rank b."""
    return Schedule(tuple(tuple(_along(rank, _walk(b, size - 1, size), 0)) for b in range(size)))


@functools.lru_cache(512)
def dissemination_all_gather(rank: int, size: int) -> Schedule:
    """In round k every rank gets from the one 2**k ahead the blocks that begin there, up to 2**k of them."""
    timelines = []
    for block in range(size):
        ahead = (block - rank) % size
        events, reach, hop = [], 1, 0
        while reach < size:
            if reach <= ahead < 2 * reach:
                events.append(Event(hop, (rank + reach) % size, False))
            if ahead < reach and ahead + reach < size:
                events.append(Event(hop, (rank - reach) % size, True))
            reach, hop = 2 * reach, hop + 1
        timelines.append(tuple(events))
    return Schedule(tuple(timelines))


def _folded(size: int) -> tuple[int, int]:
    """The largest power of two up to `size`, and how many ranks are above it."""
    core = 1 << (size.bit_length() - 1)
    return core, size - core


def _with_extras(rank: int, size: int, blocks: int, inner: Sequence[list[Event]], copies: bool) -> Schedule:
    """Have the ranks above a power of two give their blocks to one below before, and get the results after."""
    core, extra = _folded(size)
    last = 1 << 16
    if rank >= core:
        alone = (Event(0, rank - core, True), Event(last, rank - core, False))
        return Schedule((alone,) * blocks)
    before = [Event(0, rank + core, False, True)] if rank < extra else []
    after = [Event(last, rank + core, True)] if rank < extra else []
    return Schedule(tuple((*before, *events, *after) for events in inner), copies)


@functools.lru_cache(512)
def doubling_all_reduce(rank: int, size: int) -> Schedule:
    """In round k pairs of ranks 2**k apart give each other all they have added up: few messages, for small vectors."""
    core, _ = _folded(size)
    events = []
    for k in range(core.bit_length() - 1):
        events += [Event(k + 1, rank ^ (1 << k), True), Event(k + 1, rank ^ (1 << k), False, True)]
    return _with_extras(rank, size, 1, [events], copies=True)


@functools.lru_cache(512)
def halving_all_reduce(rank: int, size: int) -> Schedule:
    """Ranks far apart share the blocks between them, then nearer ones, until each has one; then the same backwards."""
    core, _ = _folded(size)
    inner: list[list[Event]] = [[] for _ in range(core)]
    rounds = core.bit_length() - 1
    for block in range(core if rank < core else 0):
        for k in range(rounds):
            apart = core >> (k + 1)
            if (block ^ rank) & ~(2 * apart - 1) & (core - 1):
                break  # it went to another rank before
            mine = not (block ^ rank) & apart
            inner[block].append(Event(k + 1, rank ^ apart, not mine, mine))
            if not mine:
                break
        for k in reversed(range(rounds)):
            apart = core >> (k + 1)
            if (block ^ rank) & ~(2 * apart - 1) & (core - 1):
                continue
            mine = not (block ^ rank) & apart
            inner[block].append(Event(2 * rounds - k, rank ^ apart, mine))
    return _with_extras(rank, size, core, inner, copies=False)


@functools.lru_cache(512)
def tree_broadcast(rank: int, size: int, root: int) -> Schedule:
    """A binomial tree: whoever has the vector passes it on, to twice as many each time."""
    return Schedule((tuple(_down(rank, size, root, 0)),))


@functools.lru_cache(512)
def tree_all_reduce(rank: int, size: int) -> Schedule:
    """Up a binomial tree to rank 0, and down again."""
    up = [Event(0, each.peer, not each.send, each.send) for each in reversed(_down(rank, size, 0, 0))]
    return Schedule(((*up, *_down(rank, size, 0, 1)),))


@functools.lru_cache(512)
def all_reduce_among(name: str, rank: int, ranks: tuple[int, ...]) -> Schedule:
    """The all-reduce `name` among `ranks`, of which `rank` is one."""
    schedule = ALL_REDUCE[name](ranks.index(rank), len(ranks))
    renamed = (tuple(event._replace(peer=ranks[event.peer]) for event in line) for line in schedule.timelines)
    return schedule._replace(timelines=tuple(renamed))


@functools.lru_cache(512)
def hierarchical_all_reduce(rank: int, hosts: tuple[int, ...]) -> Schedule:
    """Up a tree inside each host, round a ring of the hosts, and down again; `hosts[r]` is the host of rank r.

    Each host sends what one rank would, however many it has.
    """
    members = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    leaders = [hosts.index(host) for host in dict.fromkeys(hosts)]
    place, count = members.index(rank), len(leaders)
    down = [event._replace(peer=members[event.peer]) for event in _down(place, len(members), 0, 0)]
    up = [Event(_UP, each.peer, not each.send, each.send) for each in reversed(down)]
    timelines = []
    for block in range(count):
        across: list[Event] = []
        if place == 0:
            walk = [leaders[each] for each in _walk(block, 2 * count - 2, count)]
            across = _along(rank, walk, count - 1)
        timelines.append((*up, *across, *(event._replace(hop=_DOWN) for event in down)))
    return Schedule(tuple(timelines))


def _down(rank: int, size: int, root: int, hop: int) -> list[Event]:
    place = (rank - root) % size
    low = place & -place if place else 1 << size.bit_length()
    events = [Event(hop, (place - low + root) % size, False)] if place else []
    apart = low >> 1
    while apart:
        if place + apart < size:
            events.append(Event(hop, (place + apart + root) % size, True))
        apart >>= 1
    return events


ALL_REDUCE = {
    "ring": ring_all_reduce, "doubling": doubling_all_reduce, "halving": halving_all_reduce, "tree": tree_all_reduce,
}  # fmt: skip
ALL_GATHER = {"ring": ring_all_gather, "dissemination": dissemination_all_gather}
