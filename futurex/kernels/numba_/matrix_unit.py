"""The processor's unit for products of matrices of bfloat16: Intel's AMX.

Linux gives its registers to a process that asks (``arch_prctl``; the kernel's Documentation/arch/x86/xstate.rst). There
is one unit for both halves of a core.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import threading

from futurex.kernels.numba_.compiler import features, has_scale

_ARCH_PRCTL, _REQUEST, _TILES = 158, 0x1023, 18
_STACK = 6 << 20
"""Bytes of a thread's stack that must be there: what is packed lies there."""


def is_used() -> bool:
    """Are products that are claimed now made in the unit, where that pays? FUTUREX_MATRIX_UNIT: ``on`` or ``off``, the
    default: where the other half of a core works for somebody else, the unit takes two and a half times as long, and
    vectors are faster."""
    text = os.environ.get("FUTUREX_MATRIX_UNIT") or "off"
    if text not in ("on", "off"):
        raise ValueError(f"FUTUREX_MATRIX_UNIT={text!r} must be on or off")
    return text == "on" and is_there()


@functools.cache
def is_there() -> bool:
    """Has the processor such a unit, and may this process use it?"""
    if sys.platform != "linux" or platform.machine() != "x86_64" or not has_scale():
        return False
    if not {"+amx-tile", "+amx-bf16"} <= set(features().split(",")) or not _has_stack():
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILES) == 0


def _has_stack() -> bool:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    most = _STACK if limit == resource.RLIM_INFINITY else limit
    return min(most, threading.stack_size() or most) >= _STACK


_BYTES = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])
SHAPES = f"""@shapes = internal constant [64 x i8] c"{"".join(f"{chr(92)}{each:02X}" for each in _BYTES)}", align 64"""
"""How eight registers of 16 rows of 64 bytes are told to the unit."""
