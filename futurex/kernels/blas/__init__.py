"""Convolutions and products by NumPy's BLAS: what runs where oneDNN does not exist, and in double precision."""

from futurex.kernels.blas.backend import BlasBackend

__all__ = ["BlasBackend"]
