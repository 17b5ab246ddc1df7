"""What communication costs here, and which algorithm is cheapest: calibrated when a cluster starts.

A message of m bytes takes ``latency + m * per_byte`` seconds (Hockney, *The communication challenge for MPP*, Parallel
Computing 1994); adding it to what is there, and keeping a copy where an algorithm needs one, costs what memory costs.
All ranks use the same figures, so that they choose alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_MOST_LATENCY = 0.1  # of a bucket's time may go into latency
_WAIT = 4e-3  # seconds that may pass before what is urgent overtakes
_LEAST_UNSENT, _MOST_UNSENT = 128 << 10, 64 << 20
_MEMORY = 0.2e-9  # seconds a byte, to add it or to copy it
_PIECE_LATENCIES = 8  # a piece takes as long as this many messages of nothing
_SMALLEST_PIECE, _LARGEST_PIECE = 64 << 10, 2 << 20
_SMALLEST_BUCKET, _LARGEST_BUCKET = 1 << 20, 64 << 20


@dataclass(frozen=True)
class Model:
    """Seconds a message takes before its first byte, and for each further one.

    >>> Model(20e-6, 1e-9).all_reduce(6, 1000), Model(20e-6, 1e-9).all_reduce(6, 100_000_000)
    ('doubling', 'ring')
    """

    latency: float = 60e-6
    per_byte: float = 0.5e-9

    def all_reduce(self, ranks: int, nbytes: int, hosts: int = 1) -> str:
        """Return the name of the fastest all-reduce; between hosts with several ranks each it is the hierarchical one.

        >>> Model().all_reduce(2, 1000), Model().all_reduce(2, 100_000_000)  # as many bytes, but twice the additions
        ('doubling', 'halving')
        >>> Model().all_reduce(8, 100_000_000, hosts=2)
        'hierarchical'
        """
        if 1 < hosts < ranks:
            return "hierarchical"
        rounds = math.ceil(math.log2(ranks)) if ranks > 1 else 0
        extra = 2 if ranks & (ranks - 1) else 0  # ranks above a power of two hand over everything, twice
        whole, part = nbytes * self.per_byte, (ranks - 1) / ranks * nbytes
        shared = 2 * part * self.per_byte + part * _MEMORY
        seconds = {
            "doubling": (rounds + extra) * (self.latency + whole) + rounds * 2 * nbytes * _MEMORY,
            "halving": (2 * rounds + extra) * self.latency + shared + extra * whole,
            "ring": 2 * (ranks - 1) * self.latency + shared,
        }
        return min(seconds, key=seconds.__getitem__)

    def rounded(self) -> Model:
        """Return figures rounded to powers of four, so that clusters alike choose alike, and sum in the same order.

        >>> Model(61e-6, 0.2e-9).rounded() == Model(70e-6, 0.3e-9).rounded()
        True
        """
        latency, per_byte = (4.0 ** round(math.log(max(figure, 1e-12), 4)) for figure in (self.latency, self.per_byte))
        return Model(latency, per_byte)

    def all_gather(self, ranks: int, nbytes: int) -> str:
        """Return the name of the fastest all-gather of `nbytes` in all."""
        return "dissemination" if nbytes * self.per_byte < ranks * self.latency else "ring"

    @property
    def piece_bytes(self) -> int:
        """Return in how large pieces a large array is sent: between them something more urgent may go.

        >>> Model(60e-6, 0.25e-9).piece_bytes, Model(60e-6, 8e-9).piece_bytes
        (1920000, 65536)
        """
        nbytes = _PIECE_LATENCIES * self.latency / max(self.per_byte, 1e-12)
        return int(min(max(nbytes, _SMALLEST_PIECE), _LARGEST_PIECE))

    @property
    def small_bytes(self) -> int:
        """Return up to which size a message costs more than its bytes, by far: such are better sent together.

        >>> Model(60e-6, 0.25e-9).small_bytes
        24000
        """
        return int(_MOST_LATENCY * self.latency / max(self.per_byte, 1e-12))

    @property
    def unsent_bytes(self) -> int:
        """Return how much may wait in the system's own queues, behind which what is urgent must wait too.

        >>> Model(60e-6, 0.25e-9).unsent_bytes, Model(60e-6, 8e-9).unsent_bytes
        (16000000, 500000)
        """
        return int(min(max(_WAIT / max(self.per_byte, 1e-12), _LEAST_UNSENT), _MOST_UNSENT))

    def bucket_bytes(self, ranks: int) -> int:
        """Return how large a bucket of gradients must be for its latency to matter little."""
        latency = 2 * (ranks - 1) * self.latency
        nbytes = latency / _MOST_LATENCY / max(self.per_byte, 1e-12)
        return int(min(max(nbytes, _SMALLEST_BUCKET), _LARGEST_BUCKET))
