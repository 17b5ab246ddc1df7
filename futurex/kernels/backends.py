"""The backends of this machine, in the order in which they are asked."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

from futurex.kernels.compiling import working
from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import Backend


def _gemm(alone: bool = False) -> Backend | None:
    if importlib.util.find_spec("llvmlite") is None:
        return None
    from futurex.kernels.gemm import GemmBackend

    return GemmBackend(alone=alone)


def _onednn() -> Backend | None:
    from futurex.kernels.onednn_backend import OneDNNBackend

    return OneDNNBackend.if_available()


def _blas() -> Backend | None:
    from futurex.kernels.blas import BlasBackend

    return BlasBackend()


def _numba() -> Backend | None:
    if importlib.util.find_spec("llvmlite") is None:
        return None
    from futurex.kernels.numba_ import NumbaBackend

    return NumbaBackend()


def _loops() -> Backend | None:
    if importlib.util.find_spec("llvmlite") is None:
        return None
    from futurex.kernels.loops import LoopBackend

    return LoopBackend()


def _ducc() -> Backend | None:
    from futurex.kernels.ducc import DuccBackend

    return DuccBackend.if_available()


_MAKERS: dict[str, Callable[[], Backend | None]] = {
    "gemm": _gemm, "onednn": _onednn, "blas": _blas, "numba": _numba, "loops": _loops, "ducc": _ducc,
    "numpy": NumpyBackend,
}  # fmt: skip

_loaded: set[str] = set()


def _made(name: str) -> Backend | None:
    """A backend. A fork waits while its modules are loaded: in a child they would be for ever, by a thread that is not
    there."""
    if name in _loaded:
        return _MAKERS[name]()
    with working:
        backend = _MAKERS[name]()
    _loaded.add(name)
    return backend


def default_backends() -> tuple[Backend, ...]:
    """The backends named by FUTUREX_BACKENDS (a comma list; default ``gemm,onednn,blas,numba,loops,ducc,numpy``),
    those whose libraries are there.

    NumPy stands at the end whatever is named: it runs what no other claims. Raises ValueError for an unknown name.

    >>> [backend.name for backend in default_backends()][-1]
    'numpy'
    """
    wished = os.environ.get("FUTUREX_BACKENDS", "") or ",".join(_MAKERS)
    names = [name.strip() for name in wished.split(",") if name.strip()]
    for name in names:
        if name not in _MAKERS:
            raise ValueError(f"FUTUREX_BACKENDS names {name!r}, which is no backend; choose among {', '.join(_MAKERS)}")
    made = (_made(name) for name in dict.fromkeys([*(name for name in names if name != "numpy"), "numpy"]))
    found = tuple(backend for backend in made if backend is not None)
    names = [backend.name for backend in found]
    if "onednn" not in names:
        found = tuple(_gemm(alone=True) or each if each.name == "gemm" else each for each in found)
    return found
