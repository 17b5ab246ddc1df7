"""When every process begins each step of a training: stamps in files, on the clock that a host's processes share."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

from distributed import WorkerPlugin

from futurex.runtime import points

_RECORD = struct.Struct("qqqd")


class Stamp(NamedTuple):
    """A locality of ``rank`` began its next step when ``step`` steps were done."""

    generation: int
    rank: int
    step: int
    time: float


class Stamps(WorkerPlugin):
    """Has every worker, those that come later included, write its stamps into a folder."""

    name = "stamps"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def setup(self, worker: Any) -> None:
        file = os.open(Path(self.folder) / f"{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def stamp(point: str, where: Any) -> None:
            if point == "step":
                os.write(file, _RECORD.pack(where.generation, where.rank, where.step, time.monotonic()))

        points.hook = stamp


def read(folder: str) -> list[Stamp]:
    """All stamps, by time."""
    found = []
    for path in Path(folder).iterdir():
        whole = path.read_bytes()
        found += [Stamp(*each) for each in _RECORD.iter_unpack(whole[: len(whole) // _RECORD.size * _RECORD.size])]
    return sorted(found, key=lambda stamp: stamp.time)
