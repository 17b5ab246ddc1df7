"""Faults at named points of real worker processes, as Horovod's elastic tests schedule them.

A schedule is a list of faults; each strikes once, in whichever process first comes to its point on its rank at its step
or later. What has struck is noted in a folder, so that a process that takes the place of a dead one knows.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client, WorkerPlugin

from futurex.runtime import points
from futurex.runtime.elastic.member import ElasticLocality
from futurex.runtime.transport.ucx import UcxEndpoint

POINTS = ("step", "all-reduce", "commit", "checkpoint")
MODES = ("kill", "stop", "exception", "socket", "exit")


class OnPurpose(RuntimeError):
    """The exception that a fault raises."""


@dataclass(frozen=True)
class Fault:
    """``rank`` counts modulo the number of localities; ``seconds`` is how long a process that is stopped stays so."""

    point: str
    step: int
    mode: str
    rank: int | None = None
    seconds: float = 0.0


class Faults(WorkerPlugin):
    """Arms a schedule in every worker, those that come later included."""

    name = "faults"

    def __init__(self, folder: str, schedule: list[Fault]) -> None:
        self.folder, self.schedule = folder, schedule

    def setup(self, worker: Any) -> None:
        points.hook = _Hook(Path(self.folder), self.schedule)

    def teardown(self, worker: Any) -> None:
        points.hook = None


def arm(client: Client, folder: Path, schedule: list[Fault]) -> None:
    """Have a schedule strike from now on. Dask cannot register anything while a worker is dying: it is asked again."""
    end = time.monotonic() + 60
    while True:
        try:
            client.register_plugin(Faults(str(folder), schedule))
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def struck(folder: Path) -> list[int]:
    """The numbers of the faults that have struck."""
    return sorted(int(path.name.partition("-")[2]) for path in folder.glob("fault-*"))


class _Hook:
    def __init__(self, folder: Path, schedule: list[Fault]) -> None:
        self._folder = folder
        self._waiting = dict(enumerate(schedule))  # by number
        self._lock = threading.Lock()
        self._locality: Any = None  # that came to the point "step" last

    def __call__(self, point: str, where: Any) -> None:
        if point == "step":
            self._locality = where if isinstance(where, ElasticLocality) else None  # other runs are let alone
        with self._lock:
            fault = self._next(point)
        if fault is not None:
            _strike(fault, self._locality)

    def _next(self, point: str) -> Fault | None:
        for number, fault in list(self._waiting.items()):
            if self._suits(fault, point):
                del self._waiting[number]
                if self._claimed(number):
                    return fault
        return None

    def _suits(self, fault: Fault, point: str) -> bool:
        locality = self._locality
        if locality is None or fault.point != point or locality.step < fault.step:
            return False
        return fault.rank is None or fault.rank % locality.size == locality.rank

    def _claimed(self, number: int) -> bool:
        try:
            os.close(os.open(self._folder / f"fault-{number}", os.O_CREAT | os.O_EXCL))
        except (FileExistsError, FileNotFoundError):  # it has struck; the trial is over, and its folder is gone
            return False
        return True


def _strike(fault: Fault, locality: Any) -> None:
    if fault.mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.mode == "exit":
        os._exit(0)
    elif fault.mode == "exception":
        raise OnPurpose(f"at {fault.point} of step {fault.step}")
    elif fault.mode == "stop":
        wake = f"sleep {fault.seconds}; kill -CONT {os.getpid()}"
        subprocess.Popen(["sh", "-c", wake], start_new_session=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.01)  # the signal may take a moment
    elif fault.mode == "socket" and locality.communicator is not None:  # otherwise it is alone, and has none
        _cut(locality.communicator.endpoint)


def _cut(endpoint: Any) -> None:
    """Close the channels to all others."""
    if isinstance(endpoint, UcxEndpoint):  # inside a host UCX has no sockets
        for peer in list(endpoint._channels):
            endpoint.post(partial(endpoint._lose, peer, "it was cut"))
        return
    for peer in list(endpoint._peers.values()):
        peer.wire.sock.shutdown(socket.SHUT_RDWR)
