"""Collectives of arrays that lie on a GPU: by NCCL where every rank has a GPU of its own, else through the host.

The ranks agree once a generation: each tells which GPU it has and whether it has NCCL, and if all differ they make a
ring, or keep the one that they have. A lost peer, another generation or a missed deadline aborts the ring, which ends
what is under way on the device; the next generation makes another.
"""

from __future__ import annotations

import hashlib
import math
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.cupy_ import nccl
from futurex.kernels.cupy_.devices import EMULATED, Device
from futurex.runtime import config
from futurex.runtime.collectives.device_topk import Largest, codec_for
from futurex.runtime.collectives.operation import CollectiveError, CollectiveTimeout
from futurex.runtime.transport import StaleGeneration
from futurex.tree.aval import Aval
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.runtime.collectives.communicator import Communicator

_NAME = 32  # bytes that tell GPUs apart
_POLL = 50e-6


class DeviceCollectives:
    """What a plan's communication nodes talk to if their arrays lie on a device: one rank's side of it.

    ``reason`` says why it goes through the host; None where NCCL is used. ``library``: CuPy's module ``nccl``.
    """

    def __init__(self, device: Device, library: Any = None, name: bytes | None = None) -> None:
        self.device = device
        self.reason: str | None = "the ranks have not agreed yet"
        self._library = library if library is not None else nccl.library(device)
        self._name = _gpu(device) if name is None else name
        self._ring: nccl.Ring | None = None
        self._lock = threading.Lock()
        self._broken: BaseException | None = None
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._generation = -1
        self._largest = Largest(device)
        self._under_way: list[tuple[Any, Any]] = []  # events, and the arrays that must live until they are over

    # -- agreeing --------------------------------------------------------------------------------------------------

    def agree(self, communicator: Communicator) -> None:
        """Have a ring, or a reason for none; every rank calls this at the same point of the same step."""
        if self._generation == communicator.generation:
            return
        self._generation = communicator.generation
        self._largest = Largest(self.device)
        self._watch(communicator)
        mine = bytes([self._library is not None, self._ring is not None]) + self._name
        names = communicator.gathered(np.frombuffer(mine, np.uint8))
        if not all(name[0] for name in names):
            self.reason = f"NCCL is missing on rank {next(k for k, name in enumerate(names) if not name[0])}"
        elif len({name[2:].tobytes() for name in names}) < len(names):
            self.reason = "two ranks have the same GPU"
        elif not all(name[1] for name in names):
            self._make(communicator)
        else:
            self.reason = None

    def _make(self, communicator: Communicator) -> None:
        if self._ring is not None:
            self._ring.destroy()
            self._ring = None
        first = communicator.rank == 0
        identity = nccl.Ring.identity(self._library) if first else bytes(nccl.IDENTITY)
        identity = communicator.gathered(np.frombuffer(identity, np.uint8))[0].tobytes()
        self._ring, self._broken = self._made(communicator, identity), None
        self.reason = None

    def _made(self, communicator: Communicator, identity: bytes) -> nccl.Ring:
        """The ring; NCCL itself knows no deadline while it waits for the others."""
        found: list[Any] = []

        def make() -> None:
            try:
                found.append(nccl.Ring(self.device, self._library, communicator.size, communicator.rank, identity))
            except Exception as error:  # NCCL's own type lives in a module that may be missing
                found.append(error)

        thread = threading.Thread(target=make, name="futurex-nccl", daemon=True)
        thread.start()
        end = time.monotonic() + config.deadline()
        while thread.is_alive():
            thread.join(0.05)
            self._check(communicator, "the making of an NCCL ring", end)
        [made] = found
        if isinstance(made, Exception):
            raise CollectiveError(f"rank {communicator.rank} has no NCCL ring: {made}") from made
        return made

    def _watch(self, communicator: Communicator) -> None:
        endpoint = communicator.endpoint
        if endpoint not in self._watched:
            self._watched.add(endpoint)
            endpoint.on_peer_lost(self._fail)
            endpoint.on_generation(self._generation_began)

    def _generation_began(self, generation: int) -> None:
        if self._under_way and generation != self._generation:
            self._fail(StaleGeneration(f"generation {generation} began"))

    def _fail(self, reason: BaseException) -> None:
        """End what is under way, from any thread; the run says why."""
        with self._lock:
            self._broken = self._broken or reason
            ring, self._ring = self._ring, None
        if ring is not None:
            ring.abort()

    # -- exchanging ------------------------------------------------------------------------------------------------

    def start(self, communicator: Communicator, node: Node, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
        """Begin a communication node: its results, and the event after which they are there, or None if they are."""
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        self.agree(communicator)
        if (codec := codec_for(node)) is not None:
            return self._largest.all_reduce(communicator, codec, node, arrays), None
        ring, narrow = self._ring, bool(node.attrs.get("codec"))
        there = all(map(self.device.holds, arrays)) and nccl.carries(node.op, arrays) and not narrow
        if self.reason is None and ring is None:
            raise self._error(communicator, f"{node.op} (tag {node.attrs['tag']})")
        if self.reason is not None or ring is None or not there:
            return self._through_the_host(communicator, node, arrays, avals), None
        outs = [self.device.xp.empty(aval.shape, aval.dtype) for aval in avals]
        event, made = ring.start(node.op, node.attrs, arrays, outs)
        self._under_way.append((event, (arrays, outs, made)))
        communicator.exchanged(sum(array.nbytes for array in arrays))
        return outs, event

    def _through_the_host(
        self, communicator: Communicator, node: Node, arrays: Sequence[Any], avals: Sequence[Aval]
    ) -> list[Any]:
        here = [np.ascontiguousarray(self.device.to_host(array)) for array in arrays]
        outs = [np.empty(aval.shape, aval.dtype) for aval in avals]
        communicator.start(node.op, node.attrs, here, outs).result()
        return [self.device.to_device(out) for out in outs]

    def settle(self, communicator: Communicator) -> None:
        """Wait until what was begun is over on the device; raise what it failed with."""
        end = time.monotonic() + config.deadline()
        under_way, self._under_way = self._under_way, []
        for event, _ in under_way:
            while not event.done:
                self._check(communicator, "a collective by NCCL", end)
                time.sleep(_POLL)
        if under_way:
            self._check(communicator, "a collective by NCCL", math.inf)

    def _check(self, communicator: Communicator, what: str, end: float) -> None:
        if self._broken is None and self._ring is not None and (error := self._ring.error()) is not None:
            self._fail(error)
        if self._broken is None and time.monotonic() > end:
            self._fail(CollectiveTimeout(f"{what} on rank {communicator.rank} missed its deadline"))
        if self._broken is not None:
            raise self._error(communicator, what)

    def _error(self, communicator: Communicator, what: str) -> CollectiveError:
        reason = self._broken
        if isinstance(reason, CollectiveError):
            return reason
        error = CollectiveError(f"{what} on rank {communicator.rank} failed: {reason}")
        error.__cause__ = reason
        return error


def _gpu(device: Device) -> bytes:
    """What tells this GPU from all others: its place on the bus of this host."""
    place = "emulated"
    if device.kind != EMULATED:
        runtime = device.xp.cuda.runtime
        place = str(runtime.deviceGetPCIBusId(runtime.getDevice()))
    return hashlib.sha256(f"{uuid.getnode()} {socket.gethostname()} {place}".encode()).digest()[:_NAME]
