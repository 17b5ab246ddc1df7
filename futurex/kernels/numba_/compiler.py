"""LLVM IR to machine code, once per text: in this process, and on disk for all processes of the user."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from futurex.kernels.threads import openmp

_DIGEST = 32
_lock = threading.Lock()
_entries: dict[str, Entry] = {}


class Entry:
    """A compiled kernel: called with its packed block (bytes, or a buffer that it writes to), in this thread or on
    several."""

    __slots__ = ("_address", "_function")

    def __init__(self, address: int) -> None:
        self._address = address
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)

    def __call__(self, block: Any) -> None:
        self._function(block)

    def on_threads(self, block: bytes, count: int) -> None:
        """Each of ``count`` OpenMP threads takes its share of the outermost loop; needs libgomp."""
        library = openmp()
        assert library is not None
        library.GOMP_parallel(self._address, block, count, 0)


class Counts:
    """What compiling has cost this process."""

    compiled = 0
    loaded = 0
    seconds = 0.0


def cache_folder() -> Path:
    """Where compiled kernels lie: under FUTUREX_CACHE, or ~/.cache/futurex."""
    root = os.environ.get("FUTUREX_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "futurex")
    return Path(root, "numba", f"llvmlite-{llvmlite.__version__}")


def compiled(text: str) -> Entry:
    """The kernel ``@region`` of an IR text as a function of its packed block; it releases the GIL while it runs."""
    key = hashlib.sha256(f"{_machine_name()}\n{text}".encode()).hexdigest()
    with _lock:
        if key not in _entries:
            start = time.perf_counter()
            _entries[key] = _link(_object(text, key), key)
            Counts.seconds += time.perf_counter() - start
        return _entries[key]


def _object(text: str, key: str) -> bytes:
    path = cache_folder() / f"{key}.o"
    stored = _read(path)
    if stored is not None:
        Counts.loaded += 1
        return stored
    code = _compile(text.replace("@region(", f"@region_{key}("))
    Counts.compiled += 1
    _write(path, code)
    return code


def _read(path: Path) -> bytes | None:
    """The stored object, or None if there is none or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    code = content[_DIGEST:]
    return code if content[:_DIGEST] == hashlib.sha256(code).digest() else None


def _write(path: Path, code: bytes) -> None:
    """Written aside and renamed, so that a reader sees a whole file or none; an unwritable folder is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        os.replace(name, path)
    except OSError:
        return


@functools.cache
def _target() -> llvm.Target:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = openmp()
    if library is not None:
        for name in ("omp_get_thread_num", "omp_get_num_threads"):
            llvm.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    return llvm.Target.from_default_triple()


@functools.cache
def _features() -> str:
    return llvm.get_host_cpu_features().flatten()


@functools.cache
def _machine_name() -> str:
    return f"{llvm.get_host_cpu_name()} {_features()} {llvm.llvm_version_info}"


def _machine() -> llvm.TargetMachine:
    return _target().create_target_machine(cpu=llvm.get_host_cpu_name(), features=_features(), opt=3, jit=True)


def _compile(text: str) -> bytes:
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.loop_interleaving = options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


@functools.cache
def _engine() -> llvm.ExecutionEngine:
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())


def _link(code: bytes, key: str) -> Entry:
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Entry(engine.get_function_address(f"region_{key}"))
