"""The errors of the transport layer."""

from futurex.errors import FuturexError


class TransportError(FuturexError):
    """A message could not be sent, received or understood; the text says which, where and why."""


class TransportTimeout(TransportError, TimeoutError):
    """A deadline passed while waiting for a peer."""


class ProtocolError(TransportError):
    """A peer sent something that the protocol does not allow; its connection ends."""


class AuthenticationError(TransportError):
    """A peer could not prove that it knows the shared secret, or is not the rank it was taken for."""


class StaleGeneration(TransportError):
    """The message belongs to a generation that has ended."""


class PeerLost(TransportError):
    """A peer can no longer be reached: it died, closed its endpoint, or broke the protocol.

    `rank` is its rank, `address` its address as readable text, `reason` what was observed.
    """

    def __init__(self, rank: int, address: str, reason: str) -> None:
        super().__init__(f"rank {rank} at {address} was lost: {reason}")
        self.rank = rank
        self.address = address
        self.reason = reason

    def __reduce__(self) -> tuple[type["PeerLost"], tuple[int, str, str]]:
        return PeerLost, (self.rank, self.address, self.reason)
