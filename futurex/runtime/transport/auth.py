"""Mutual authentication of two ranks by a shared secret, free of I/O.

The rank that dials sends a greeting, the other answers with its own; each holds a fresh nonce. Then the dialer proves
with an HMAC-SHA256 over both greetings that it knows the secret, and only after that the other side does. Four
messages, each of a fixed size, so that nothing of variable length is read from anybody who has not authenticated. The
proofs cover the ranks: a proof made for one pair of ranks, direction or connection is worthless for another.
"""

import hashlib
import hmac
import secrets
import struct

from futurex.runtime.transport.errors import AuthenticationError

_GREETING = struct.Struct("<8sHHIII32s")  # magic, version, 0, sender's rank, receiver's rank, size, nonce
_MAGIC = b"FUTUREX\0"
_VERSION = 1
_PROOF_BYTES = 32
MIN_SECRET_BYTES = 16
GREETING_BYTES = _GREETING.size


class Secret(bytes):
    """What the ranks of a session share; it never says what it is, wherever somebody prints or logs it.

    >>> Secret(b"0123456789abcdef"), str(Secret(b"0123456789abcdef"))
    (<a secret of 16 bytes>, '<a secret of 16 bytes>')
    """

    def __repr__(self) -> str:
        return f"<a secret of {len(self)} bytes>"

    __str__ = __repr__


class Handshake:
    """One side of the authentication; feed it each message of the peer and send what it returns.

    `expects` is the size in bytes of the next message, 0 once `peer` has proved who it is.

    >>> secret = b"0123456789abcdef"
    >>> dialer, acceptor = Handshake(1, 2, secret, peer=0), Handshake(0, 2, secret)
    >>> greeting = acceptor.feed(dialer.greeting())
    >>> proof = acceptor.feed(dialer.feed(greeting))
    >>> dialer.feed(proof), dialer.expects, acceptor.expects, acceptor.peer
    (b'', 0, 0, 1)
    """

    def __init__(self, rank: int, size: int, secret: bytes, *, peer: int | None = None) -> None:
        self._rank = rank
        self._size = size
        self._secret = secret
        self._dialing = peer is not None
        self._nonce = secrets.token_bytes(32)
        self._transcript = b""
        self.peer = -1 if peer is None else peer
        self.expects = _GREETING.size

    def greeting(self) -> bytes:
        """Return this side's greeting."""
        return _GREETING.pack(_MAGIC, _VERSION, 0, self._rank, self.peer, self._size, self._nonce)

    def feed(self, message: bytes) -> bytes:
        """Take a message of `expects` bytes and return the reply; raise AuthenticationError if it is not right."""
        if self.expects == 0 or len(message) != self.expects:
            raise AuthenticationError(f"a handshake message has {len(message)} bytes where {self.expects} are expected")
        if not self._transcript:
            return self._greeted(message)
        if not hmac.compare_digest(message, self._proof(b"accept" if self._dialing else b"dial")):
            raise AuthenticationError(f"rank {self.peer} does not know the shared secret")
        self.expects = 0
        return b"" if self._dialing else self._proof(b"accept")

    def token(self, *, outgoing: bool) -> int:
        """Return the 64-bit number that marks this pair's messages in one direction; only the two of them know it."""
        role = b"token of the dialer" if outgoing == self._dialing else b"token of the acceptor"
        return int.from_bytes(self._proof(role)[:8], "little")

    def _greeted(self, message: bytes) -> bytes:
        magic, version, reserved, rank, receiver, size, _ = _GREETING.unpack(message)
        if magic != _MAGIC or reserved != 0:
            raise AuthenticationError("the peer does not speak this protocol")
        if version != _VERSION:
            raise AuthenticationError(f"the peer speaks version {version} of the protocol, this side {_VERSION}")
        if receiver != self._rank or size != self._size or not 0 <= rank < size or rank == self._rank:
            raise AuthenticationError(
                f"rank {rank} of {size} greets rank {receiver}; here is rank {self._rank} of {self._size}"
            )
        if self._dialing and rank != self.peer:
            raise AuthenticationError(f"rank {rank} answers where rank {self.peer} was dialed")
        self.peer = rank
        self.expects = _PROOF_BYTES
        if self._dialing:
            self._transcript = self.greeting() + message
            return self._proof(b"dial")
        self._transcript = message + self.greeting()
        return self.greeting()

    def _proof(self, role: bytes) -> bytes:
        return hmac.digest(self._secret, role + b"|" + self._transcript, hashlib.sha256)
