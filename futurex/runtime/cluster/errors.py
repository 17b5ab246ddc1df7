"""What can go wrong with a cluster."""

from __future__ import annotations

from futurex.errors import FuturexError


class ClusterUnreachable(FuturexError, ConnectionError):
    """No scheduler answered, or it has no workers; the message says what to start."""


class LocalityLost(FuturexError, ConnectionError):
    """A locality died or hung while others needed it. ``rank`` and ``address`` say which."""

    def __init__(self, rank: int, address: str, during: str) -> None:
        super().__init__(
            f"locality {rank} ({address}) was lost during {during}; its worker died or was removed. "
            "Make a new fx.Cluster and start again from the last checkpoint"
        )
        self.rank, self.address, self.during = rank, address, during

    def __reduce__(self) -> tuple[object, ...]:
        return LocalityLost, (self.rank, self.address, self.during)
