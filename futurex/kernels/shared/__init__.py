"""Compiled sums of vectors that lie in memory shared by several processes."""

from futurex.kernels.shared.all_reduce import SCRATCH_BYTES, Control, Places, Status, kernel

__all__ = ["SCRATCH_BYTES", "Control", "Places", "Status", "kernel"]
