"""Kernels on a GPU through CuPy: reference kernels run with CuPy's functions, explicit kernels where CuPy's differ from
NumPy's, and NumPy itself, on a copy in the host's memory, for the rest."""

from futurex.kernels.cupy_.backend import CupyBackend
from futurex.kernels.cupy_.devices import Device, device, findings, why_not

__all__ = ["CupyBackend", "Device", "device", "findings", "why_not"]
