"""``futurex doctor``: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import futurex
from futurex.kernels import cupy_, onednn, store
from futurex.kernels.backends import default_backends
from futurex.runtime import config
from futurex.runtime.transport import ucx_library

PACKAGES = ("numba", "dask", "distributed")
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "train": ("rich", "safetensors"),
    "har": ("seglearn", "scikit-learn"),
    "dashboard": ("bokeh",),
    "fft": ("ducc0",),
    "notebook": ("jupyterlab",),
    "cuda12": ("cupy-cuda12x", "nvidia-cudnn-cu12"),
    "cuda13": ("cupy-cuda13x", "nvidia-cudnn-cu13"),
}


def run(options: argparse.Namespace) -> int:
    """Print the findings, one a line; returns 0, or 1 if something that is always needed is missing or wrong."""
    failed = False
    for name, value in itertools.chain(facts(), _cluster(options.scheduler)):
        print(f"{name:<14} {value}", flush=True)
        failed = failed or value.startswith("problem") or (name in PACKAGES and value.startswith("missing"))
    return int(failed)


def _cluster(scheduler: str | None) -> Iterator[tuple[str, str]]:
    if scheduler is not None:
        from futurex.runtime.cluster.checkup import checkup  # Dask is loaded for those who ask about a cluster

        yield from checkup(scheduler)


def facts() -> Iterator[tuple[str, str]]:
    """What matters of this installation, as (name, finding).

    >>> next(iter(facts()))[0]
    'futurex'
    """
    yield "futurex", f"{futurex.__version__} in {os.path.dirname(futurex.__file__)}"
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    yield "threads", f"{config.threads()} (FUTUREX_THREADS changes it), {os.cpu_count()} processors"
    yield "numpy", f"{np.__version__}, BLAS {_blas()}"
    yield "onednn", _onednn()
    yield "kernels", _kernels()
    yield "convolutions", _convolutions()
    yield "backends", ", ".join(backend.name for backend in default_backends())
    yield "ucx", _ucx()
    yield "transports", ", ".join(_transports())
    yield "shared memory", _shared_memory()
    yield "loopback", _loopback()
    yield "ports", _ports()
    yield "clock", _clock()
    yield from (("gpu", each) for each in cupy_.findings())
    for package in PACKAGES:
        yield package, _version(package) or "missing: pip install futurex"
    for extra, packages in EXTRAS.items():
        yield f"[{extra}]", _extra(extra, packages)


def _blas() -> str:
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()


def _onednn() -> str:
    if not onednn.available():
        return f"not used: {onednn.why_not()}"
    return f"{'.'.join(map(str, onednn.version()))} from {onednn.library_path()}"


def _kernels() -> str:
    used = store.usage()
    limit = f"{store.bound() // 10**6} MB (FUTUREX_CACHE_MB)"
    return f"{used.files} compiled, {used.nbytes / 1e6:.1f} of at most {limit}, in {store.folder()} (FUTUREX_CACHE)"


def _convolutions() -> str:
    """Who computes them: the first of the backends that do."""
    names = [backend.name for backend in default_backends()]
    if "onednn" in names:
        return "oneDNN in float32, NumPy's BLAS in float64" if "blas" in names else "oneDNN in float32"
    return "NumPy's BLAS (float32 steps take up to 1.5 times as long as with oneDNN)" if "blas" in names else "NumPy"


def _ucx() -> str:
    try:
        ucx_library.load()
    except (ImportError, OSError) as error:
        return f"not usable: {error}"
    return "usable (transport='ucx')"


def _transports() -> Iterator[str]:
    """Those that localities on this machine can use."""
    if hasattr(os, "memfd_create") and hasattr(os, "eventfd"):
        yield "local"
    yield "tcp"
    if _ucx().startswith("usable"):
        yield "ucx"


def _shared_memory() -> str:
    """Of the kind that localities of a host share: anonymous, so bound by what the machine has free."""
    if not hasattr(os, "memfd_create"):
        return "missing: Linux only; localities exchange arrays over TCP"
    descriptor = os.memfd_create("futurex-doctor")
    try:
        os.ftruncate(descriptor, 1 << 20)
        os.pwrite(descriptor, b"1", (1 << 20) - 1)
    except OSError as error:
        return f"problem: {error}; localities of this machine need transport='tcp'"
    finally:
        os.close(descriptor)
    from futurex.runtime.transport.arena import room  # of systems that have such memory

    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    nbytes, why = room(2)
    bound = f"; each of two localities may have {nbytes / 1e9:.1f} GB, by {why}" if why else ""
    return f"anonymous, up to {free / 1e9:.1f} GB free now (the size of /dev/shm does not matter){bound}"


def _loopback() -> str:
    """Can this machine talk to itself, as the processes of an embedded cluster do?"""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5.0).close()
    except OSError as error:
        return f"problem: no connection to 127.0.0.1 ({error}); embedded clusters need one"
    return "connections to 127.0.0.1 work"


def _ports() -> str:
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return "localities listen at ports that the system chooses"
    return f"localities listen at ports that the system chooses: {low} to {high}; let them pass between the hosts"


def _clock() -> str:
    about = time.get_clock_info("perf_counter")
    return f"{about.implementation}, resolution {about.resolution:.0e} s"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extra(extra: str, packages: tuple[str, ...]) -> str:
    versions = {package: _version(package) for package in packages}
    missing = [package for package, version in versions.items() if version is None]
    found = ", ".join(f"{package} {version}" for package, version in versions.items() if version)
    if not missing:
        return found
    return f"{found + '; ' if found else ''}without {', '.join(missing)}: pip install 'futurex[{extra}]'"
