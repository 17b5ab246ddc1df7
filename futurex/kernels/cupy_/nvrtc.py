"""CUDA C++ compiled for the device by NVRTC with the options that it wants, and kept on disk.

CuPy's ``RawKernel`` adds ``-ftz=true`` to them, behind all others: numbers of single precision below 2**-126 would be
zeros, even where they are only compared. So CuPy is asked for the machine code alone.
"""

from __future__ import annotations

import hashlib
import importlib
from typing import Any

from futurex.kernels import store
from futurex.kernels.cupy_.devices import EMULATED, Device


def kernel(device: Device, text: str, name: str, options: tuple[str, ...]) -> Any:
    """The kernel of a text, ready to be launched: ``kernel(grid, block, args, shared_mem=0)``. Raises what the compiler
    raises."""
    if device.kind == EMULATED:
        return device.xp.RawKernel(text, name, options=options)
    cuda = device.xp.cuda
    made_by = cuda.nvrtc.getVersion(), device.xp.__version__, cuda.Device().compute_capability
    key = hashlib.sha256(repr((text, options, made_by)).encode()).hexdigest()
    code = store.read(key)
    if code is None:
        compiler = importlib.import_module("cupy.cuda.compiler")
        code, _ = compiler.compile_using_nvrtc(text, options, cache_in_memory=True)
        store.write(key, code)
    module = importlib.import_module("cupy.cuda.function").Module()
    module.load(code)
    return module.get_function(name)
