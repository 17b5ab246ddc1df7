"""Looking at a Dask cluster that is already running, before anything is trained on it."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from distributed import Client, Worker
from distributed.comm import get_address_host

from futurex.runtime.cluster.asking import ask_workers, greet
from futurex.runtime.cluster.errors import ClusterUnreachable
from futurex.runtime.cluster.membership import workers_of
from futurex.runtime.transport import ucx_library

PACKAGES = ("futurex", "numpy", "numba", "dask", "distributed")
Finding = tuple[str, str]
_ROUNDS = 5


def checkup(address: str, timeout: float = 10.0) -> Iterator[Finding]:
    """What matters of a cluster, as (name, finding); a finding that begins with "problem" needs something done.

    Workers, versions that differ from the driver's or each other's, which workers cannot open connections to which,
    how far clocks are apart, and what transport to choose. Raises ClusterUnreachable where no scheduler answers.
    """
    try:
        greet(address, timeout)
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise ClusterUnreachable(f"no Dask scheduler answers at {address} within {timeout:g} s: {why}") from None
    with client:
        workers = sorted(workers_of(client))
        yield "scheduler", f"{client.scheduler.address}, dashboard {client.dashboard_link}"
        if not workers:
            yield "workers", "problem: none; start some with `dask worker ADDRESS`"
            return
        able: dict[str, Any] = {}
        for worker in workers:
            try:
                able |= ask_workers(client, _describe, workers=[worker], seconds=timeout)
            except ClusterUnreachable:
                yield "worker", f"problem: {worker} does not answer within {timeout:g} s: is it stopped?"
            except Exception as error:
                yield "worker", f"problem: {worker} cannot run futurex: {error!r}; install it there"
        yield "workers", f"{len(workers)} on {len({each['host'] for each in able.values()})} hosts"
        yield from _versions(able)
        yield from _reachable(client, list(able), timeout)
        yield from _clocks(client, list(able), timeout)
        yield from _transports(able)


def versions() -> dict[str, str]:
    """Of Python and the packages whose versions must be equal everywhere."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _describe(dask_worker: Worker) -> dict[str, Any]:
    try:
        ucx_library.load()
        ucx = True
    except (ImportError, OSError):
        ucx = False
    return {
        "versions": versions(), "host": platform.node(), "user": os.getuid(), "ucx": ucx,
        "address": dask_worker.address,
    }  # fmt: skip


def _versions(workers: Mapping[str, Any]) -> Iterator[Finding]:
    here = versions()
    differing = False
    for package, mine in here.items():
        others: dict[str, list[str]] = {}
        for worker, about in workers.items():
            theirs = about["versions"].get(package, "none")
            if theirs != mine:
                others.setdefault(theirs, []).append(worker)
        for theirs, where in others.items():
            differing = True
            yield "versions", f"problem: {package} is {mine} here and {theirs} on {', '.join(where)}"
    if workers and not differing:
        yield "versions", "equal here and on all workers: " + ", ".join(f"{name} {each}" for name, each in here.items())


def _reachable(client: Client, workers: Sequence[str], timeout: float) -> Iterator[Finding]:
    """Have every worker open a port, as localities do over TCP, and every other one connect to it."""
    places = ask_workers(client, _open_port, workers=workers, seconds=timeout)
    try:
        failed = ask_workers(client, _unreachable, places, timeout, workers=workers, seconds=2 * timeout)
    finally:
        ask_workers(client, _close_port, workers=workers, seconds=timeout)
    problems = [f"{worker} cannot reach {each}" for worker, them in failed.items() for each in them]
    for problem in problems:
        yield "connections", f"problem: {problem}; a firewall? localities connect to ports that the system chooses"
    if not problems:
        yield "connections", "every worker reaches every other one at ports that the system chooses"


async def _open_port(dask_worker: Worker) -> tuple[str, int]:
    async def welcome(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(welcome, get_address_host(dask_worker.address), 0)
    dask_worker.futurex_checkup = server
    host, port = server.sockets[0].getsockname()[:2]
    return host, port


async def _unreachable(places: dict[str, tuple[str, int]], timeout: float, dask_worker: Worker) -> list[str]:
    async def fails(place: tuple[str, int]) -> bool:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(*place), timeout)
        except (OSError, TimeoutError):
            return True
        writer.close()
        return False

    others = {worker: place for worker, place in places.items() if worker != dask_worker.address}
    found = await asyncio.gather(*map(fails, others.values()))
    return [f"{worker} at port {others[worker][1]}" for worker, bad in zip(others, found, strict=True) if bad]


def _close_port(dask_worker: Worker) -> None:
    dask_worker.futurex_checkup.close()
    del dask_worker.futurex_checkup


def _clocks(client: Client, workers: Sequence[str], timeout: float) -> Iterator[Finding]:
    """Wall clocks, by round trips over Dask; runs measure more closely by themselves."""
    for worker in workers:
        best = (float("inf"), 0.0)
        for _ in range(_ROUNDS):
            asked = time.time()
            theirs = ask_workers(client, time.time, workers=[worker], seconds=timeout)[worker]
            answered = time.time()
            best = min(best, ((answered - asked) / 2, theirs - (asked + answered) / 2))
        error, offset = best
        apart = f"{worker} is {offset * 1e3:+.1f} ms from here, to within {error * 1e3:.1f} ms"
        yield "clock", apart if abs(offset) <= error + 1.0 else f"problem: {apart}; do the machines run NTP?"


def _transports(workers: Mapping[str, Any]) -> Iterator[Finding]:
    about = workers.values()
    usable = ["auto", "tcp"]
    if len({(each["host"], each["user"]) for each in about}) == 1:
        usable.insert(1, "local")
    encrypted = any(each["address"].startswith("tls://") for each in about)
    if all(each["ucx"] for each in about) and not encrypted:
        usable.append("ucx")
    channel = "encrypted, as Dask's own" if encrypted else "authenticated, not encrypted: Dask's own are not"
    yield "transports", f"{', '.join(usable)}; connections between localities are {channel}"
