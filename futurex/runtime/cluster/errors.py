"""What can go wrong with a cluster."""

from __future__ import annotations

from futurex.errors import FuturexError


class ClusterUnreachable(FuturexError, ConnectionError):
    """No scheduler answered, or it has no workers; the message says what to start."""


def scheduler_lost(run: str, why: str) -> ClusterUnreachable:
    """The error of a run whose scheduler is gone: nobody can say what became of its workers."""
    return ClusterUnreachable(
        f"the scheduler of run {run!r} does not answer any more ({why}), and the run with it; start a cluster and make "
        "a new fx.Cluster. fx.fit with the same arguments and resume=True goes on from its last checkpoint"
    )


class TooFewWorkers(FuturexError, TimeoutError):
    """An elastic run waited for workers that did not come. ``least`` is how many it needs."""

    def __init__(self, run: str, least: int, missing: int, waited: float) -> None:
        super().__init__(
            f"run {run!r} needs {least} workers, and {missing} of them did not come within {waited:g} s. "
            "Start more workers, or lower min_workers, and go on from the last checkpoint with resume=True"
        )
        self.run, self.least, self.missing, self.waited = run, least, missing, waited

    def __reduce__(self) -> tuple[object, ...]:
        return TooFewWorkers, (self.run, self.least, self.missing, self.waited)


class LocalityLost(FuturexError, ConnectionError):
    """A locality died or hung while others needed it. ``rank`` and ``address`` say which."""

    def __init__(self, rank: int, address: str, during: str) -> None:
        super().__init__(
            f"locality {rank} ({address}) was lost during {during}; its worker died or was removed. "
            "Make a new fx.Cluster and start again from the last checkpoint; "
            "fx.fit(..., commit_every=10, min_workers=1) goes on without it"
        )
        self.rank, self.address, self.during = rank, address, during

    def __reduce__(self) -> tuple[object, ...]:
        return LocalityLost, (self.rank, self.address, self.during)
