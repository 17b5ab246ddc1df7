"""The transport inside a host: local sockets for messages, and memory that the ranks share for what is large.

Once two ranks have authenticated they hand each other their arena and a doorbell.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from futurex.runtime.transport.arena import Arena, PeerMemory
from futurex.runtime.transport.doors import Door, LocalDoor
from futurex.runtime.transport.errors import AuthenticationError, PeerLost, TransportError
from futurex.runtime.transport.message import Limits
from futurex.runtime.transport.stream import StreamEndpoint

BOARD_BYTES = 4 << 20  #: at the beginning of every arena, for those who coordinate through it


class LocalEndpoint(StreamEndpoint):
    """A rank whose peers run on the same host, as the same user.

    `memory` is its arena; `peer_memory` holds those of the peers, by rank. `machines[r]` numbers the machine of rank r.
    """

    def __init__(
        self, rank: int, size: int, secret: bytes, limits: Limits, kind: str = "local", doors: Sequence[Door] = ()
    ) -> None:
        super().__init__(kind, rank, size, secret, limits, [LocalDoor(size + limits.max_guests), *doors])
        self.machines: tuple[int, ...] = (0,) * size
        self.memory = Arena(BOARD_BYTES, size)
        self.peer_memory: dict[int, PeerMemory] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._bells: dict[int, int] = {}
        self._bells_lock = threading.Lock()  # a number may stand for another descriptor once it is closed
        self._ringing: list[Callable[[], object]] = []
        self._selector.register(self._bell, selectors.EVENT_READ, self._rung)
        self._thread.start()

    def ring(self, peer: int) -> None:
        """Have the callbacks of `on_ring` run on the progress thread of `peer`; costs one system call."""
        with self._bells_lock, suppress(OSError, KeyError):  # it is full, and so rings anyway; the peer is lost
            os.eventfd_write(self._bells[peer], 1)

    def on_ring(self, callback: Callable[[], object]) -> None:
        """Call `callback()` on the progress thread when a peer has rung; rings that come together count once."""
        self._ringing.append(callback)

    def _rung(self, _: int) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        for callback in self._ringing:
            callback()

    def _gifts(self) -> list[int]:
        return [self.memory.descriptor, self._bell]

    def _given(self, peer: int, gifts: list[int]) -> None:
        try:
            memory, bell = gifts
            self.peer_memory[peer] = PeerMemory(memory)
            self._bells[peer] = os.dup(bell)
        except (OSError, ValueError, TransportError) as error:
            raise AuthenticationError(f"rank {peer} handed over something else than memory and a bell") from error
        finally:
            for descriptor in gifts:
                os.close(descriptor)

    def _disconnect(self, peer: int, error: PeerLost) -> None:
        super()._disconnect(peer, error)
        with self._bells_lock:
            if peer in self._bells:
                os.close(self._bells.pop(peer))

    def _release(self) -> None:
        super()._release()
        with self._bells_lock:
            for descriptor in (self._bell, *self._bells.values()):
                os.close(descriptor)
            self._bells.clear()
        self.memory.close()

