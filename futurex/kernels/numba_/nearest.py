"""What kernels are told of the size of a core's nearest cache."""

from __future__ import annotations

import functools
from pathlib import Path

from futurex.kernels.numba_ import compiler

_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index0/size")
_SMALL = 32 * 1024


@functools.cache
def small() -> bool:
    """Has the nearest cache at most 32 KB? No where the system does not say.

    An EPYC of Zen 4 has so much, and is what was measured; Xeons and an EPYC of Zen 5 have 48 KB.
    """
    told = size_of(_CACHE)
    return told is not None and told <= _SMALL


def wide() -> bool:
    """Is the processor one of AMD's that has more, and loads whole vectors of AVX-512: Zen 5, or what follows it?

    Many lines may be on their way to its nearest cache, so that kernels ask for them far ahead.
    """
    return compiler.is_amd() and compiler.has_scale() and not small()


def size_of(cache: Path) -> int | None:
    """Bytes of a cache that the system describes there, if it does."""
    try:
        return int(cache.read_text().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return None
