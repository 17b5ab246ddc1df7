"""A coordinator and members in one process: a thread carries their messages, as a scheduler would."""

from __future__ import annotations

import collections
import queue
import secrets
import threading
import time
from functools import partial

from futurex.runtime.elastic.coordinator import (
    Alive,
    Coordinator,
    Ended,
    Form,
    Formed,
    Grant,
    How,
    Joined,
    Left,
    Note,
    Over,
    Settings,
    Start,
    Tell,
    held_of,
)
from futurex.runtime.elastic.member import Member
from futurex.runtime.transport import open_endpoint


class Bus:
    """Members by name; ``close`` ends what is left."""

    def __init__(self, settings: Settings, program, kind: str = "inproc") -> None:
        self.settings, self.program, self.kind = settings, program, kind
        self.coordinator = Coordinator(settings)
        self.members: dict[str, Member] = {}
        self.silenced: set[str] = set()  # nothing reaches these, and what they send comes late
        self.lost: set[str] = set()  # nothing comes from these, and nothing reaches them
        self.notes: list[Note] = []
        self.told: list[Tell] = []
        self.over: Over | None = None
        self.results: dict[str, bytes] = {}
        self.ended = threading.Event()
        self._addresses: dict[str, bytes] = {}
        self._secrets: dict[int, bytes] = {}
        self._inbox: queue.Queue = queue.Queue()
        self._late: collections.deque = collections.deque()
        self._hearing = threading.Lock()  # what is sent while somebody is heard again comes behind what was late
        self._thread = threading.Thread()

    def begin(self, *names: str) -> None:
        for name in names:
            self._add(name)
        self._thread = threading.Thread(target=self._carry, args=(names,), daemon=True)
        self._thread.start()

    def join(self, name: str) -> None:
        self._add(name)
        self._inbox.put((name, {"is": "joined"}))

    def lose(self, name: str) -> None:
        """A process dies: nobody hears of it again, and its channels close."""
        self.lost.add(name)
        self.members[name].close()
        self._inbox.put((name, {"is": "left"}))

    def hear_again(self) -> None:
        """Nobody is silenced any more, and what they have sent meanwhile comes."""
        with self._hearing:
            self.silenced.clear()
            while self._late:
                self._inbox.put(self._late.popleft())

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        self._inbox.put(None)
        self._thread.join(60)
        for member in self.members.values():
            assert member.join(60), "a member did not end"

    def _add(self, name: str) -> None:
        def send(message) -> None:
            with self._hearing:
                if name in self.silenced:
                    self._late.append((name, message))
                elif name not in self.lost:
                    self._inbox.put((name, message))

        open_ = partial(_open, self.kind)
        self.members[name] = Member(send, open_, self.program, threads=1, stall=self.settings.stall)

    def _carry(self, names: tuple[str, ...]) -> None:
        self._perform(self.coordinator.begin(names, time.monotonic()))
        while True:
            due = self.coordinator.deadline
            try:
                item = self._inbox.get(timeout=max(0.0, due - time.monotonic()) if due is not None else None)
            except queue.Empty:
                self._perform(self.coordinator.tick(time.monotonic()))
                continue
            if item is None:
                return
            name, message = item
            if (event := self._event(name, message)) is not None:
                self._perform(self.coordinator.handle(event, time.monotonic()), message.get("sent"))

    def _event(self, name: str, message):
        match message["is"]:
            case "joined":
                return Joined(name)
            case "left":
                return Left(name)
            case "alive":
                return Alive(name, message["generation"])
            case "formed":
                self._addresses[name] = message["address"]
                return Formed(name, message["generation"], held_of(message["held"]))
            case "ended":
                if message["result"] is not None:
                    self.results[name] = message["result"]
                how = How(message["how"])
                return Ended(name, message["generation"], how, message["step"], message["reason"])
        return None

    def _perform(self, actions, sent: float | None = None) -> None:
        for action in actions:
            match action:
                case Note():
                    self.notes.append(action)
                case Over():
                    self.over = action
                    self.ended.set()
                case Form(name, generation, rank, size):
                    secret = self._secrets.setdefault(generation, secrets.token_bytes(32))
                    self._post(name, do="form", generation=generation, rank=rank, size=size, secret=secret)
                case Start(name, generation, mark, sources):
                    addresses = [self._addresses[each] for each in self.coordinator.members]
                    self._post(name, do="start", generation=generation, addresses=addresses, mark=mark, sources=sources)
                case Grant(name, generation):
                    self._post(name, do="grant", generation=generation, sent=sent)
                case Tell(name, generation, command):
                    self._post(name, do="tell", generation=generation, command={"command": command})
                    self.told.append(action)

    def _post(self, name: str, **message) -> None:
        if name not in self.silenced | self.lost:
            self.members[name].handle(message)


def _open(kind: str, rank: int, size: int, secret: bytes):
    return open_endpoint(kind, rank, size, secret)
