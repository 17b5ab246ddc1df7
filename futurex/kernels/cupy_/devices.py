"""The device of this process: CuPy on a GPU, or the emulation; copies to it and back."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from futurex.errors import MissingExtra

EMULATED = "emulated"
_ON_DEVICE = "biufc"


class Device:
    """An array module and what it takes to use it.

    ``xp`` is CuPy or what stands for it; ``kind`` says which: ``"cuda"`` or ``"emulated"``.
    """

    def __init__(self, xp: Any, kind: str) -> None:
        self.xp, self.kind = xp, kind
        self._thread = threading.local()

    def holds(self, value: Any) -> bool:
        """Does ``value`` live on the device?"""
        return isinstance(value, self.xp.ndarray)

    def to_device(self, value: Any) -> Any:
        """A host array as one of the device, C-contiguous; scalars, texts and the device's own arrays as they are.

        Arrays without dimensions stay on the host as scalars: kernels take those by value.
        """
        if not isinstance(value, np.ndarray) or value.dtype.kind not in _ON_DEVICE:
            return value
        return self.xp.asarray(np.ascontiguousarray(value)) if value.ndim else value[()]

    def to_host(self, value: Any) -> Any:
        """A device array as a NumPy array; everything else as it is."""
        return self.xp.asnumpy(value) if self.holds(value) else value

    def linalg_errors(self) -> contextlib.AbstractContextManager[Any]:
        """Factorisations of singular matrices raise inside, as NumPy's do."""
        if self.kind == EMULATED:
            return self.xp.linalg_errors()
        return importlib.import_module("cupyx").errstate(linalg="raise")

    @contextlib.contextmanager
    def transforms(self) -> Iterator[None]:
        """Fourier transforms are launched inside, after those of the calling thread on other streams.

        CuPy keeps a plan of cuFFT for each shape and thread, and with it the memory that it works in. So transforms of
        two streams must not run at once, and a graph, which would use that memory at any time, holds none.
        """
        if self.capturing:
            raise NotImplementedError("a plan of cuFFT shares the memory that it works in with other runs")
        stream = self.xp.cuda.get_current_stream()
        before, event = getattr(self._thread, "transformed", (stream, None))
        if before is not stream:
            stream.wait_event(event)
        try:
            yield
        finally:
            self._thread.transformed = stream, stream.record()

    @property
    def solve_triangular(self) -> Callable[..., Any]:
        """``scipy.linalg.solve_triangular`` on arrays of the device, of stacks too. Raises ImportError."""
        if self.kind == EMULATED:
            return self.xp.solve_triangular
        return importlib.import_module("cupyx.scipy.linalg").solve_triangular

    @contextlib.contextmanager
    def captures(self) -> Iterator[None]:
        """The calling thread captures a graph inside: what fails there says nothing about other runs."""
        self._thread.captures = True
        try:
            yield
        finally:
            self._thread.captures = False

    @property
    def capturing(self) -> bool:
        """Does the calling thread capture a graph?"""
        return getattr(self._thread, "captures", False)

    def synchronize(self) -> None:
        """Wait until all that the calling thread asked of the device is done."""
        if self.kind != EMULATED:
            self.xp.cuda.get_current_stream().synchronize()

    @functools.cached_property
    def processors(self) -> int:
        """Multiprocessors: how many blocks run at once, at least."""
        return 1 if self.kind == EMULATED else int(self.xp.cuda.Device().attributes["MultiProcessorCount"])


def why_not() -> str | None:
    """Why no GPU can be used here, in one sentence; None if one can be.

    ``FUTUREX_GPU=emulated`` puts NumPy behind CuPy's rules in its place: slow, for programs and tests without a GPU.
    """
    wish = os.environ.get("FUTUREX_GPU", "")
    if wish not in ("", EMULATED):
        return f"FUTUREX_GPU={wish!r} is not a choice: leave it empty for the GPU, or say {EMULATED!r}"
    return None if wish == EMULATED else _missing()


@functools.cache
def _missing() -> str | None:
    try:
        import cupy
    except ImportError as error:
        return f"CuPy cannot be imported ({error})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy's error type lives in a private module
        return f"CuPy {cupy.__version__} finds no usable driver ({error})"
    return None if count else f"CuPy {cupy.__version__} finds no GPU"


def device() -> Device:
    """The device. Raises MissingExtra, which names the extra and the reason, where there is none."""
    reason = why_not()
    if reason is not None:
        raise MissingExtra(
            f"device='gpu' needs an NVIDIA GPU, its driver and CuPy, but {reason}; CuPy comes with an extra: "
            "pip install 'futurex[gpu]' (or futurex[cuda13] for CUDA 13)"
        )
    return _emulated() if os.environ.get("FUTUREX_GPU") == EMULATED else _cuda()


@functools.cache
def _cuda() -> Device:
    return Device(importlib.import_module("cupy"), "cuda")


@functools.cache
def _emulated() -> Device:
    from futurex.kernels.cupy_.emulated import NAMESPACE

    return Device(NAMESPACE, EMULATED)


def findings() -> Iterator[str]:
    """What there is of a GPU and its libraries, or why there is none.

    >>> next(findings()) != ""
    True
    """
    reason = why_not()
    if reason is not None:
        yield f"none: {reason}"
        return
    here = device()
    if here.kind == EMULATED:
        yield "emulated on the processor (FUTUREX_GPU)"
        return
    runtime = here.xp.cuda.runtime
    for number in range(runtime.getDeviceCount()):
        found = runtime.getDeviceProperties(number)
        capability = f"{found['major']}.{found['minor']}"
        yield f"{found['name'].decode()}, {found['totalGlobalMem'] >> 30} GiB, compute capability {capability}"
    yield f"driver for CUDA {_version(runtime.driverGetVersion())}, runtime {_version(runtime.runtimeGetVersion())}"
    nvrtc = _told(lambda: "{}.{}".format(*here.xp.cuda.nvrtc.getVersion()))
    yield f"CuPy {here.xp.__version__}, NVRTC {nvrtc}"
    yield f"kernels of CuPy {_told(lambda: _tried(here.xp))}"
    yield f"cuDNN {_told(lambda: str(importlib.import_module('cudnn').backend_version_string()))}"


@functools.cache  # once: who tells of the device again does not wait for it
def _tried(xp: Any) -> str:
    """Whether CuPy's kernels run: that takes headers of CUDA, which a package of CuPy alone has not."""
    return "compile" if float(xp.arange(3.0).sum()) == 3 else "give wrong numbers"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _told(ask: Callable[[], str]) -> str:
    """A library's version, or why there is none."""
    try:
        return ask()
    except Exception as error:  # a missing package, or one whose library does not load
        return f"not usable: {error}"
