"""Where a worker process is that has fallen silent.

Its own threads cannot say: one of them may keep Python's lock. A signal is answered by whichever thread it meets, in C,
with the Python frames of all threads, into memory that another process of the user may read. Nothing runs before that.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

_NAME = "futurex-stacks"
_SECONDS, _QUIET = 2.0, 0.2  # for the first line, and without another one until the answer counts as whole
_STATES = {"R": "running", "S": "asleep", "D": "in the system, not to be interrupted", "T": "stopped", "Z": "ended"}


class Ear(NamedTuple):
    """The process that listens, its signal, and its descriptor of the memory for the answers."""

    process: int
    signal: int
    descriptor: int


@functools.cache
def listen() -> Ear | None:
    """Have this process answer from now on; None where no signal is free, or the system has no such memory."""
    if not hasattr(os, "memfd_create") or not hasattr(signal, "SIGRTMIN"):
        return None
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
            faulthandler.register(number, descriptor, all_threads=True)
            return Ear(os.getpid(), number, descriptor)
    return None


def whereabouts(ear: Ear) -> str:
    """What a process of this machine is doing, as its threads' Python frames, the innermost first.

    A process that is stopped does not answer; what its threads wait for is told then.
    """
    place = Path(f"/proc/{ear.process}/fd/{ear.descriptor}")
    try:
        if _NAME not in os.readlink(place):  # the number is another process's by now
            return f"process {ear.process} has ended"
        with place.open("rb") as file:
            begun = file.seek(0, os.SEEK_END)
            os.kill(ear.process, ear.signal)
            end, seen = time.monotonic() + _SECONDS, begun
            while time.monotonic() < end:
                time.sleep(_QUIET)
                size = file.seek(0, os.SEEK_END)
                if size == seen > begun:
                    break
                seen = size
            file.seek(begun)
            answer = file.read().decode(errors="replace").rstrip()
        states = _states(ear.process)
    except OSError as error:
        return f"process {ear.process} cannot be asked: {error}"
    return f"process {ear.process}, threads {states}\n{answer or 'it does not answer a signal'}"


def _states(process: int) -> str:
    found: Counter[str] = Counter()
    for thread in Path(f"/proc/{process}/task").iterdir():
        try:
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has ended
            continue
        found[_STATES.get(state, state)] += 1
    return ", ".join(f"{count} {state}" for state, count in found.items())
