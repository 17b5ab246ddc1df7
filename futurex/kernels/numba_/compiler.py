"""LLVM IR to machine code, once per text: in this process, and on disk for all processes of the user."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import time
import warnings
from collections.abc import Callable
from typing import Any

from futurex.kernels import store
from futurex.kernels.compiling import background, is_put_off, working
from futurex.kernels.numba_ import lanes
from futurex.kernels.numba_.code import WRITTEN_OUT
from futurex.kernels.numba_.team import Share, team
from futurex.kernels.numba_.tickets import HELP, RUN
from futurex.kernels.steps import PLAYER, Step

_entries: dict[str, Entry] = {}
_RUNNERS = PLAYER, RUN, HELP
"""What runs kernels: one after the other, and on several threads."""
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)


@functools.cache
def llvm() -> Any:
    """LLVM, loaded when the first kernel is claimed: it takes longer to load than all of futurex."""
    with working:  # a child of a fork would wait for the thread of its parent that loads it
        background.go_on()
        import llvmlite.binding

        background.go_on()
    return llvmlite.binding


class Counts:
    """What compiling has cost this process."""

    compiled = 0
    loaded = 0
    seconds = 0.0


class Entry:
    """A kernel, compiled or to be: called with its packed block (bytes, or a buffer that it writes to), in this thread
    or on several.

    ``ready``: it can be called, and always can from then on. ``error``: what the compiler said when it refused.
    """

    __slots__ = ("_address", "_function", "_key", "_text", "error", "ready", "submitted")

    def __init__(self, key: str, text: str) -> None:
        self._key, self._text = key, text
        self.ready = self.submitted = False
        self.error: Exception | None = None

    def __call__(self, block: Any) -> None:
        self._function(block, 0, 1)

    def on_threads(self, block: Any, share: Share) -> None:
        """A call whose outermost loop is shared."""
        team().run(self._address, block, share)

    def step(self, block: int, share: Share) -> Step:
        """The call with a block at this address."""
        if share.threads == 1:
            return self.address, block, 0, 1, 0, 0
        return team().step(self._address, block, share)

    @property
    def address(self) -> int:
        """Where the code of a kernel that is ready lies, for other code to call it."""
        return int(self._address)

    def build(self) -> None:
        """Compile, unless that was done before. A refusal is a warning: whoever asked goes on without."""
        with working:
            if self.ready or self.error is not None:
                return
            start = time.perf_counter()
            try:
                stored = store.read(self._key)
                self._link(stored if stored is not None else self._compiled())
                Counts.loaded += stored is not None
            except Exception as error:
                self.error = error
            Counts.seconds += time.perf_counter() - start
        if self.error is not None:
            what = str(self.error).partition("\n")[0]
            warnings.warn(f"a kernel was not compiled and runs as NumPy: {what}", RuntimeWarning, stacklevel=2)

    def load(self) -> bool:
        """Take what is on disk, if that can be done at once."""
        if not working.acquire(blocking=False):
            return False
        try:
            stored = store.read(self._key)
            if stored is not None and not self.ready:
                self._link(stored)
                Counts.loaded += 1
            return self.ready
        except Exception:  # build() will meet it again
            return False
        finally:
            working.release()

    def _compiled(self) -> bytes:
        code = _compile(self._text.replace("@region(", f"@region_{self._key}("))
        Counts.compiled += 1
        store.write(self._key, code)
        return code

    def _link(self, code: bytes) -> None:
        engine = _engine()
        engine.add_object_file(llvm().ObjectFileRef.from_data(code))
        engine.finalize_object()
        self._address = engine.get_function_address(f"region_{self._key}")
        self._function: Callable[..., None] = _KERNEL(self._address)
        self._text = ""  # kept for nothing any more
        self.ready = True


def compiled(text: str, *, wait: bool = True) -> Entry:
    """The kernel ``@region`` of an IR text as a function of its packed block; it releases the GIL while it runs.

    Without ``wait`` it may not be ``ready`` yet: a thread of its own compiles it.
    """
    meant = lanes.definitions(lanes.used(text))
    key = hashlib.sha256(f"{_machine_name()}\n{text}{meant}".encode()).hexdigest()
    entry = _entries.setdefault(key, Entry(key, text))
    if entry.ready:
        return entry
    if wait:
        entry.build()
    elif not (entry.submitted or entry.load() or is_put_off(lambda: compiled(text, wait=False))):
        entry.submitted = True
        if text not in _RUNNERS:  # behind what they run they would be waited for
            for each in _RUNNERS:
                compiled(each, wait=False)
        background.submit(entry.build)
    return entry


@functools.cache
def _target() -> Any:
    llvm().initialize_native_target()
    llvm().initialize_native_asmprinter()
    return llvm().Target.from_default_triple()


@functools.cache
def _host() -> tuple[str, str]:
    """What LLVM calls the processor, and what that can do."""
    with working:  # llvmlite has a lock of its own, which a child of a fork would find taken
        return str(llvm().get_host_cpu_name()), str(llvm().get_host_cpu_features().flatten())


@functools.cache
def features() -> str:
    """Those of the processor. LLVM keeps to half vectors on Intel's, for the clocks of the first that had whole ones;
    those that came after (from Ice Lake on, which VBMI2 tells) hardly slow down, and do twice the work a cycle."""
    features = _host()[1]
    return f"{features},-prefer-256-bit" if "+avx512vbmi2," in f"{features}," else features


def has_fma() -> bool:
    """Does the processor round a product and a sum together? Formulas of functions rely on it."""
    return platform.machine() in ("aarch64", "arm64") or "+fma," in f"{features()},"


def has_scale() -> bool:
    """Has the processor AVX-512: one instruction multiplies by powers of two, and the others of :mod:`.lanes`?"""
    return "+avx512f," in f"{features()},"


def has_masks() -> bool:
    """Does one instruction read or write any elements of a vector, of one byte, too?"""
    return all(f"+{name}," in f"{features()}," for name in ("avx512f", "avx512bw", "avx512vl"))


def is_amd() -> bool:
    """Is the processor one of AMD's, which LLVM names after their cores?"""
    return _host()[0].startswith("znver")


def has_half() -> bool:
    """Does the processor convert half precision? LLVM would call functions for it that need not be there."""
    return platform.machine() in ("aarch64", "arm64") or "+f16c," in f"{features()},"


@functools.cache
def _machine_name() -> str:
    with working:
        return f"{_host()[0]} {features()} {llvm().llvm_version_info}"


def _machine() -> Any:
    return _target().create_target_machine(cpu=_host()[0], features=features(), opt=3, jit=True)


def _compile(text: str) -> bytes:
    machine, module = optimised(text)
    return machine.emit_object(module)


def optimised(text: str) -> tuple[Any, Any]:
    """The machine that is compiled for, and the module of a text as its code is made of it."""
    machine = _machine()
    instructions = lanes.used(text)
    module = _parsed(machine, lanes.with_offers(text, instructions) if instructions else text)
    options = llvm().create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.loop_interleaving = options.loop_unrolling = True
    builder = llvm().create_pass_builder(machine, options)
    if text.startswith(WRITTEN_OUT):
        passes = llvm().create_new_module_pass_manager()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.add_loop_rotate_pass()
        passes.add_sroa_pass()
    else:
        passes = builder.getModulePassManager()
    _run(passes, module, builder)
    if instructions:
        module.get_global_variable(lanes.OFFERS).linkage = "internal"  # which keeps nothing any more
        module.link_in(_parsed(machine, lanes.definitions(instructions)))
        passes = llvm().create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_global_dead_code_eliminate_pass()
        passes.add_instruction_combine_pass()
        passes.add_dead_code_elimination_pass()
        _run(passes, module, builder)
    return machine, module


def _run(passes: Any, module: Any, builder: Any) -> None:
    """Run passes once, and free them: llvmlite, whose class for it stands behind an empty one, leaves 80 KB with each
    kernel that is compiled."""
    try:
        passes.run(module, builder)
    finally:
        llvm().newpassmanagers.NewPassManager._dispose(passes)
        passes.detach()


def _parsed(machine: Any, text: str) -> Any:
    module = llvm().parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return module


@functools.cache
def _engine() -> Any:
    return llvm().create_mcjit_compiler(llvm().parse_assembly(""), _machine())
