"""May kernels use several threads here?"""

from __future__ import annotations

import sys


def may_share() -> bool:
    """Is there a team of threads (:mod:`futurex.kernels.numba_.team`)? It sleeps by semaphores as Linux has them."""
    return sys.platform.startswith("linux")
