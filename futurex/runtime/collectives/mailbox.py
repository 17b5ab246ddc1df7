"""Messages from one rank to another, outside of the collectives: each waits in a box until somebody takes it."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.runtime import config
from futurex.runtime.collectives.operation import CollectiveError, CollectiveTimeout
from futurex.runtime.transport import Endpoint, Header, PeerLost, ProtocolError, StaleGeneration, TransportError

HANDLER = 18
_PIECE = 16 << 20  # bytes of a letter that travel in one message
_MOST = 1 << 36  # bytes of a letter; what announces more is no letter
Letter = tuple[int, np.ndarray]
_Box = queue.SimpleQueue[Letter | BaseException]


class Mailbox:
    """One rank's boxes, by tag. Create it before the endpoint connects.

    A letter is a vector of bytes; those of one sender arrive in the order in which they were posted. When a peer is
    lost or a generation ends, whoever waits is told. What bounds the letters under way is that ranks answer each other.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._boxes: defaultdict[tuple[int, int], _Box] = defaultdict(queue.SimpleQueue)
        self._arriving: dict[tuple[int, int, int], np.ndarray] = {}
        endpoint.register(HANDLER, self._arrived)
        endpoint.on_peer_lost(self._peer_lost)
        endpoint.on_generation(self._began)

    def post(self, peer: int, generation: int, tag: int, letter: np.ndarray, timeout: float) -> None:
        """Send a vector of bytes, which may be overwritten when this returns; also to oneself.

        Raises CollectiveError where the peer is lost, the generation has ended, or it took more than ``timeout`` s.
        """
        if peer == self.endpoint.rank:
            self._box(generation, tag).put((peer, letter.copy()))
            return
        try:
            sent = [
                self.endpoint.send(
                    peer, HANDLER, letter[start : start + _PIECE], generation=generation, step=letter.size, tag=tag,
                    part=start, timeout=timeout,
                )
                for start in range(0, letter.size, _PIECE)
            ]  # fmt: skip
            for each in sent:
                each.wait(timeout)
        except TransportError as error:
            raise CollectiveError(f"rank {self.endpoint.rank} cannot write to rank {peer}: {error}") from error

    def take(self, generation: int, tag: int, timeout: float, what: str) -> Letter:
        """Wait for a letter and return it with its sender; ``what`` is named where none comes.

        Raises CollectiveTimeout after ``timeout`` seconds, CollectiveError where a peer is lost or the generation ends.
        """
        try:
            found = self._box(generation, tag).get(timeout=timeout)
        except queue.Empty:
            raise CollectiveTimeout(
                f"rank {self.endpoint.rank} has waited {timeout:g} s for {what}: another locality hangs, or "
                "FUTUREX_DEADLINE is too short"
            ) from None
        if isinstance(found, BaseException):
            raise CollectiveError(f"rank {self.endpoint.rank} waits for {what} in vain: {found}") from found
        return found

    def fail(self, generation: int, tag: int, error: BaseException) -> None:
        """Tell whoever waits at a box here that nothing will come."""
        self._box(generation, tag).put(error)

    def _box(self, generation: int, tag: int) -> _Box:
        with self._lock:
            box = self._boxes[generation, tag]
        for error in tuple(self.endpoint.lost.values()):
            box.put(error)
        if generation < self.endpoint.generation:
            box.put(StaleGeneration(f"generation {self.endpoint.generation} began"))
        return box

    def _arrived(self, header: Header, payload: memoryview) -> None:
        key = header.source, header.generation, header.tag
        if header.step > _MOST or header.part + header.nbytes > header.step:
            raise ProtocolError(f"rank {header.source} sent a piece of a letter that does not fit in it")
        if header.part == 0:
            self._arriving[key] = np.empty(header.step, np.uint8)
        letter = self._arriving.get(key)
        if letter is None or letter.size != header.step:
            raise ProtocolError(f"rank {header.source} sent a piece of a letter that it has not begun")
        letter[header.part : header.part + header.nbytes] = np.frombuffer(payload, np.uint8)
        if header.part + header.nbytes == header.step:
            del self._arriving[key]
            with self._lock:
                self._boxes[header.generation, header.tag].put((header.source, letter))

    def _peer_lost(self, error: PeerLost) -> None:
        self._tell(lambda generation: True, error)

    def _began(self, generation: int) -> None:
        self._arriving.clear()
        self._tell(lambda older: older < generation, StaleGeneration(f"generation {generation} began"))
        with self._lock:
            for key in [key for key in self._boxes if key[0] < generation]:
                del self._boxes[key]

    def _tell(self, concerned: Any, error: TransportError) -> None:
        with self._lock:
            boxes = [box for (generation, _), box in self._boxes.items() if concerned(generation)]
        for box in boxes:
            box.put(error)


class Correspondence:
    """The letters of one rank in one generation, each with the deadline of the configuration."""

    def __init__(self, mailbox: Mailbox, generation: int, spent: Callable[[int, float], None]) -> None:
        self._mailbox, self._generation = mailbox, generation
        self.spent = spent
        """``spent(nbytes, seconds)`` counts an exchange by letters, beside which nothing went on."""

    def post(self, peer: int, tag: int, letter: np.ndarray) -> None:
        """Send a letter; see :class:`Mailbox`."""
        self._mailbox.post(peer, self._generation, tag, letter, config.deadline())

    def take(self, tag: int, what: str) -> Letter:
        """Wait for a letter; see :class:`Mailbox`."""
        return self._mailbox.take(self._generation, tag, config.deadline(), what)

    def fail(self, tag: int, error: BaseException) -> None:
        """Tell whoever waits at a box here that nothing will come."""
        self._mailbox.fail(self._generation, tag, error)
