"""Runs peers on the same work, interleaved, each in its own warm process, and compares them round by round."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, Watch

FOREIGN_LIMIT = 0.06
SETTLE_SECONDS = 0.06  # longer than an OpenMP pool spins after its last parallel region
START_SECONDS = 900.0  # a cold torch.compile takes most of a minute on a busy machine
CALL_SECONDS = 600.0
LOOK_SECONDS = 0.003


class PeerFailed(RuntimeError):
    """A peer did not start, raised, ended, or gave no answer within its time."""


class PeerAbsent(PeerFailed):
    """A peer is not installed here."""


class PeerSilent(PeerFailed):
    """A peer gave no answer within its time."""


@dataclass(frozen=True)
class Peer:
    """One stack on one workload, built by ``factory`` (``"module:callable"``) from ``options`` in the child process.

    ``threads`` is how many CPUs the process and whatever it starts may use, and the size of its thread pools unless
    ``environment`` says otherwise. An ``own`` peer is a variant of the subject,
    or code of another kind that is shown beside it: it is never the best peer.
    """

    name: str
    factory: str
    options: Mapping[str, Any]
    threads: int
    environment: Mapping[str, str] = field(default_factory=dict)
    own: bool = False


@dataclass(frozen=True)
class Effort:
    """How long to measure: ``rounds`` quiet rounds, at most ``most_rounds``, each turn about ``turn_seconds`` long."""

    rounds: int = 9
    most_rounds: int = 18
    turn_seconds: float = 0.5
    warm_steps: int = 5


QUICK = Effort(rounds=2, most_rounds=2, turn_seconds=0.05, warm_steps=2)


def effort_of(arguments: argparse.Namespace, **details: Any) -> Effort:
    """Return what the command line asks for; ``details`` are the fields of Effort that a benchmark sets itself."""
    return QUICK if arguments.quick else Effort(arguments.rounds, 2 * arguments.rounds, **details)


def cases_of(arguments: argparse.Namespace, known: Iterable[str], usual: Iterable[str] | None = None) -> list[str]:
    """The cases that the command line asks for, or the usual ones: all that are known, unless said otherwise."""
    there = list(known)
    wrong = [each for each in arguments.cases or () if each not in there]
    if wrong:
        sys.exit(f"{arguments.name}: there is no case {', '.join(map(repr, wrong))}; --cases takes {', '.join(there)}")
    return list(arguments.cases or (there if usual is None else usual))


def thread_environment(threads: int) -> dict[str, str]:
    """Return the variables that bound every thread pool a stack may start to ``threads``."""
    names = ("OMP", "MKL", "OPENBLAS", "NUMBA", "NUMEXPR")
    return {f"{name}_NUM_THREADS": str(threads) for name in names} | {
        "FUTUREX_THREADS": str(threads),
        "NPROC": str(threads),
        "FUTUREX_COMPILE": "wait",  # what is measured is the steady state
        "JAX_PLATFORMS": "cpu",
    }


def scrub(text: str) -> str:
    """Return ``text`` without the places that name this machine's folders and user."""
    places = {str(ROOT): ".", sys.prefix: "<venv>", sys.base_prefix: "<python>", str(Path.home()): "~"}
    for place, name in places.items():
        text = text.replace(place, name) if len(place) > 1 else text
    return text


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of a list of numbers."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of ``values`` (at least one).

        >>> Spread.of([1.0, 2.0, 3.0])
        Spread(median=2.0, low=1.5, high=2.5)
        """
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


class Child:
    """The process of one peer; every call has a deadline, and ``close`` ends it and whatever it started."""

    def __init__(self, peer: Peer, patience: float | None = None, deadline: float | None = None) -> None:
        """``patience``: seconds for the start and for every answer, where it is not the usual; ``deadline``: on the
        monotonic clock, after which nothing is waited for."""
        self.peer = peer
        self._patience, self._deadline = patience, deadline
        self._silent = False  # it has not answered yet, and hears nothing before it does
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process; close() closes it
        self._unread = b""
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", str(peer.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env={**os.environ, **thread_environment(peer.threads), **peer.environment, "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            command = {"do": "start", "factory": peer.factory, "options": dict(peer.options)}
            self._ask(command, patience or START_SECONDS)
        except PeerFailed:
            self.close()
            raise

    def call(self, method: str, timeout: float | None = None, **arguments: Any) -> Any:
        """Return what ``method`` of the workload returns (JSON-able)."""
        timeout = timeout or self._patience or CALL_SECONDS
        return self._ask({"do": "call", "method": method, "arguments": arguments}, timeout)

    def time(self, repetitions: int) -> list[float]:
        """Return the seconds of each of ``repetitions`` steps."""
        return self._ask({"do": "time", "repetitions": repetitions}, self._patience or CALL_SECONDS)

    def runnable(self, repetitions: int) -> Spread:
        """Return how many threads want a processor at once while steps run, looked at every few milliseconds."""
        seen: list[float] = []
        self._ask({"do": "time", "repetitions": repetitions}, CALL_SECONDS, lambda: seen.append(self._count_runnable()))
        return Spread.of(seen or [0.0])

    def _count_runnable(self) -> int:
        count = 0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                count += (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
        return count

    def close(self) -> None:
        """End the process and its descendants; quietly if it already ended."""
        if self._process.poll() is None and not self._silent:
            with contextlib.suppress(PeerFailed, subprocess.TimeoutExpired):
                self._ask({"do": "stop"}, 30.0)
                self._process.wait(10.0)
        with contextlib.suppress(ProcessLookupError):  # nothing of the group may be left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # a command that the process did not live to read
                    stream.close()

    def _ask(self, command: dict[str, Any], timeout: float, meanwhile: Callable[[], None] | None = None) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("ended before it was asked") from None
        reply = json.loads(self._line(command["do"], timeout, meanwhile))
        if "absent" in reply:
            raise PeerAbsent(f"{self.peer.name}: {scrub(reply['absent'])}")
        if "error" in reply:
            raise self._failure(f"{command['do']} raised {reply['error']}")
        return reply["value"]

    def _line(self, command: str, timeout: float, meanwhile: Callable[[], None] | None) -> bytes:
        assert self._process.stdout is not None
        descriptor, deadline = self._process.stdout.fileno(), time.monotonic() + timeout
        if self._deadline is not None and command != "stop":
            deadline = min(deadline, self._deadline)
        while b"\n" not in self._unread:
            remaining = deadline - time.monotonic()
            if meanwhile is not None and not select.select([descriptor], [], [], LOOK_SECONDS)[0]:
                meanwhile()
                continue
            if remaining <= 0 or not select.select([descriptor], [], [], remaining)[0]:
                self._silent = True
                within = "the time that was left" if deadline == self._deadline else f"{timeout:.0f} s"
                raise self._failure(f"gave no answer to {command!r} within {within}", PeerSilent)
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise self._failure(f"ended during {command!r}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _failure(self, what: str, kind: type[PeerFailed] = PeerFailed) -> PeerFailed:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 1500))
        tail = self._log.read().decode(errors="replace").strip()
        return kind(scrub(f"{self.peer.name}: {what}" + (f"\n{tail}" if tail else "")))


@dataclass
class Round:
    """One turn of every peer: median seconds of each, and the share of the machine that others used meanwhile."""

    seconds: dict[str, float]
    foreign: float


@dataclass
class Comparison:
    """What one case gave: all rounds, the peers that are missing and why, and free remarks (first losses and so on)."""

    case: str
    subject: str
    own: frozenset[str]
    threads: int
    rounds: list[Round]
    enough: int
    missing: dict[str, str]
    remarks: dict[str, Any]

    def kept(self) -> list[Round]:
        """Return the quiet rounds where there are enough of them, otherwise all."""
        quiet = [one for one in self.rounds if one.foreign <= FOREIGN_LIMIT]
        return quiet if len(quiet) >= self.enough else self.rounds

    @property
    def noisy(self) -> bool:
        """Whether rounds had to be kept in which others used more than the limit."""
        return any(one.foreign > FOREIGN_LIMIT for one in self.kept())

    def seconds(self) -> dict[str, Spread]:
        """Return the seconds per step of each peer over the kept rounds."""
        kept = self.kept()
        return {name: Spread.of([one.seconds[name] for one in kept]) for name in (kept[0].seconds if kept else ())}

    def ratios(self) -> dict[str, Spread]:
        """Return subject / peer per round, for each peer and for the fastest of the round (``"best peer"``)."""
        kept = self.kept()
        if not kept or self.subject not in kept[0].seconds:
            return {}
        peers = [name for name in kept[0].seconds if name != self.subject]
        mine = [one.seconds[self.subject] for one in kept]
        found = {
            name: Spread.of([own / one.seconds[name] for own, one in zip(mine, kept, strict=True)]) for name in peers
        }
        others = [name for name in peers if name not in self.own]
        if others:
            best = [min(one.seconds[name] for name in others) for one in kept]
            found["best peer"] = Spread.of([own / other for own, other in zip(mine, best, strict=True)])
        return found


def start_all(
    peers: Sequence[Peer], patience: float | None = None, together: bool = False, deadline: float | None = None
) -> tuple[dict[str, Child], dict[str, str]]:
    """Start each peer; return the children that run and the reason for each that does not.

    ``together``: all at once, where a start measures nothing.
    """

    def started(peer: Peer) -> Child | PeerFailed:
        try:
            return Child(peer, patience, deadline)
        except PeerFailed as error:
            return error

    children, missing = {}, {}
    with concurrent.futures.ThreadPoolExecutor(len(peers) if together else 1) as pool:
        for peer, found in zip(peers, pool.map(started, peers), strict=True):
            if isinstance(found, Child):
                children[peer.name] = found
            else:
                missing[peer.name] = str(found).splitlines()[0]
                print(f"  without {found}", flush=True)
    return children, missing


def compare(
    case: str,
    subject: str,
    peers: Sequence[Peer],
    effort: Effort,
    check: Mapping[str, Any] | None = None,
    around: tuple[str, str] | None = None,
    tells: str | None = None,
    patience: float | None = None,
    together: bool = False,
    deadline: float | None = None,
) -> Comparison:
    """Time ``peers`` in turn (A B C A B C ...) on one case and return the comparison.

    ``check`` holds arguments for the workloads' ``check`` method; the answers are kept in ``remarks["check"]``.
    ``around`` names two methods, called before the rounds and after them; what the second answers is a remark.
    ``tells`` names one that only the subject and its variants have: what it answers once they are warm is a remark.
    ``patience`` bounds the seconds that a peer may take for its start and for every answer; ``together``: they start at
    once. ``deadline``, on the monotonic clock, bounds all of it: what is not timed then is done side by side, and as
    many rounds are made as fit. A peer that fails is left out with its reason; the others go on.
    """
    children, missing = start_all(peers, patience, together, deadline)
    aside = deadline is not None
    remarks: dict[str, Any] = {}
    rounds: list[Round] = []
    try:
        if check is not None:
            remarks["check"] = _each(children, missing, lambda child: child.call("check", **check), aside)
        _each(children, missing, lambda child: child.time(effort.warm_steps), aside)
        if tells is not None:
            mine = {peer.name for peer in peers if peer.own or peer.name == subject}
            told = _each(children, missing, lambda child: child.call(tells) if child.peer.name in mine else None, aside)
            remarks[tells] = {name: answer for name, answer in told.items() if name in mine}
        repetitions = _each(children, missing, lambda child: _repetitions(child, effort))
        remarks["repetitions"] = repetitions
        if around is not None:
            _each(children, missing, lambda child: child.call(around[0]))
        longest = 0.0
        while children and not _finished(rounds, effort):
            start = time.monotonic()
            if rounds and deadline is not None and start + 2 * longest > deadline:
                break
            rounds.append(_round(children, repetitions, missing))
            longest = max(longest, time.monotonic() - start)
        if deadline is None:
            remarks["runnable_threads"] = _each(
                children, missing, lambda child: vars(child.runnable(repetitions[child.peer.name]))
            )
        if around is not None:
            remarks[around[1]] = _each(children, missing, lambda child: child.call(around[1]))
    finally:
        for child in children.values():
            child.close()
    complete = [
        Round({name: one.seconds[name] for name in children}, one.foreign)
        for one in rounds
        if children.keys() <= one.seconds.keys()
    ]
    own = frozenset(peer.name for peer in peers if peer.own)
    return Comparison(case, subject, own, peers[0].threads, complete, effort.rounds, missing, remarks)


def _each(children: dict[str, Child], missing: dict[str, str], action: Any, aside: bool = False) -> dict[str, Any]:
    """Return ``action(child)`` per peer, one after the other or all side by side; a peer that fails is closed and moved
    to ``missing``."""

    def acted(child: Child) -> Any:
        try:
            return action(child)
        except PeerFailed as error:
            child.close()
            return error

    found = {}
    with concurrent.futures.ThreadPoolExecutor(max(1, len(children) if aside else 1)) as pool:
        for name, result in zip(list(children), pool.map(acted, children.values()), strict=True):
            if not isinstance(result, PeerFailed):
                found[name] = result
                continue
            print(f"  without {result}", flush=True)
            missing[name] = str(result).splitlines()[0]
            del children[name]
    return found


def _repetitions(child: Child, effort: Effort) -> int:
    """Return how many repetitions fill one turn of a warm peer."""
    typical = statistics.median(child.time(effort.warm_steps))
    return max(1, min(1000, round(effort.turn_seconds / max(typical, 1e-6))))


def _finished(rounds: Sequence[Round], effort: Effort) -> bool:
    quiet = sum(one.foreign <= FOREIGN_LIMIT for one in rounds)
    return quiet >= effort.rounds or len(rounds) >= effort.most_rounds


def _round(children: dict[str, Child], repetitions: Mapping[str, int], missing: dict[str, str]) -> Round:
    watch = Watch()

    def turn(child: Child) -> float:
        time.sleep(SETTLE_SECONDS)
        return statistics.median(child.time(repetitions[child.peer.name]))

    seconds = _each(children, missing, turn)
    return Round(seconds, watch.foreign_share())
