"""The process's one OpenMP library: oneDNN and generated kernels share its threads, so they never compete for cores."""

from __future__ import annotations

import ctypes
import functools
import os

SPIN_COUNT = "2000"
"""How long idle OpenMP threads spin before they sleep: long enough between two kernels, too short to rob NumPy's BLAS
of its cores (left to its default, libgomp makes a product that follows a kernel several times slower)."""
_chosen = bool({"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys())  # by the user


def configure() -> None:
    """Set what libgomp reads when it is first loaded, unless the user has; call before loading what uses it."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def make_way_for_blas() -> None:
    """Idle OpenMP threads are to sleep at once, because products are NumPy's: two pools that both spin halve the speed.

    As :func:`configure`, it must come before libgomp is loaded, and leaves what the user has set.
    """
    if not _chosen:
        os.environ["GOMP_SPINCOUNT"] = "0"


@functools.cache
def openmp() -> ctypes.CDLL | None:
    """libgomp, or None where the machine has none (kernels then use one thread)."""
    configure()
    try:
        library = ctypes.CDLL("libgomp.so.1")
        library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint]
        library.GOMP_parallel.restype = None
    except (OSError, AttributeError):
        return None
    return library
