"""Generated CUDA run on the processor: the text compiled as C++ with a header that stands for CUDA.

Blocks run one after the other. The threads of a block are coroutines that take turns at ``__syncthreads``, so kernels
with shared memory run as they are. From turn to turn they go forwards and backwards: a kernel that lacks a
``__syncthreads`` reads what is not there yet, one way or the other. For tests and for emulated devices; it needs a C++
compiler.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from futurex.kernels import store

_HEADER = r"""
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <setjmp.h>
#include <ucontext.h>
using std::exp; using std::exp2; using std::expm1; using std::log; using std::log2; using std::log10; using std::log1p;
using std::tanh; using std::sinh; using std::cosh; using std::sin; using std::cos; using std::tan; using std::sqrt;
using std::floor; using std::ceil; using std::trunc; using std::rint; using std::fabs;
using std::fmod; using std::copysign; using std::cbrt; using std::nextafter;
#define EMULATED_
#define __global__
#define __device__
#define __shared__
struct Place { unsigned int x; };
static Place blockIdx, blockDim, gridDim, threadIdx;
static double __longlong_as_double(long long bits) { double value; std::memcpy(&value, &bits, 8); return value; }
static unsigned int __float_as_uint(float value) { unsigned int bits; std::memcpy(&bits, &value, 4); return bits; }
static float __uint_as_float(unsigned int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
static unsigned short narrowed_half(double x) {  // the result is ``count`` steps of its last bit, which is 2**unit
    unsigned int sign = std::signbit(x) ? 0x8000u : 0u;
    double size = fabs(x);
    if (!(size < 65520.0)) return (unsigned short)(sign | (x != x ? 0x7e00u : 0x7c00u));
    int power; std::frexp(size, &power);
    int unit = (size == 0 || power < -13 ? -14 : power - 1) - 10;
    return (unsigned short)(sign | (((unsigned int)(unit + 24) << 10) + (unsigned int)rint(std::ldexp(size, -unit))));
}
static unsigned short narrowed_half(float x) { return narrowed_half((double)x); }
static float widened_half(unsigned short h) {
    int power = h >> 10 & 31, digits = h & 1023;
    float size = power == 31 ? (digits ? NAN : INFINITY)
        : power ? std::ldexp((float)(1024 + digits), power - 25) : std::ldexp((float)digits, -24);
    return h & 0x8000 ? -size : size;
}
static double shared_memory[1 << 14];
static unsigned int atomicAdd(unsigned int* place, unsigned int value) {
    unsigned int before = *place; *place += value; return before;
}
struct Coroutine { ucontext_t begin; jmp_buf at; char* stack; bool begun, done; };
static Coroutine* threads_;
static ucontext_t origin_;
static jmp_buf scheduler_;
static void __syncthreads() { if (!_setjmp(threads_[threadIdx.x].at)) _longjmp(scheduler_, 1); }
"""
_LAUNCHER = r"""
static void** arguments_;
static void thread_() {
    call_(arguments_);
    threads_[threadIdx.x].done = true;
    _longjmp(scheduler_, 1);
}
static void turn_(Coroutine& thread) {
    if (_setjmp(scheduler_)) return;
    if (thread.begun) _longjmp(thread.at, 1);
    thread.begun = true;
    getcontext(&thread.begin);
    thread.begin.uc_stack.ss_sp = thread.stack; thread.begin.uc_stack.ss_size = STACK;
    makecontext(&thread.begin, thread_, 0);
    swapcontext(&origin_, &thread.begin);
}
extern "C" void launch(unsigned int blocks, unsigned int threads, void** arguments) {
    char* stacks = new char[THREADED ? STACK * threads : 1];
    threads_ = new Coroutine[threads];
    gridDim.x = blocks; blockDim.x = threads; arguments_ = arguments;
    for (unsigned int b = 0; b < blocks; b++) {
        blockIdx.x = b;
        if (!THREADED) {
            for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) call_(arguments);
            continue;
        }
        for (unsigned int t = 0; t < threads; t++) {
            threads_[t].stack = stacks + t * STACK; threads_[t].begun = threads_[t].done = false;
        }
        unsigned int left = threads;
        for (unsigned int round = b; left; round++) {
            unsigned int waiting = 0;
            for (unsigned int k = 0; k < threads; k++) {
                unsigned int t = round & 1 ? threads - 1 - k : k;
                if (threads_[t].done) continue;
                threadIdx.x = t;
                turn_(threads_[t]);
                waiting += !threads_[t].done;
            }
            if (waiting && waiting != left) abort();  // some wait for threads that have ended
            left = waiting;
        }
    }
    delete[] stacks; delete[] threads_;
}
"""
_OPTIONS = ("-std=c++11", "-O0", "-shared", "-fPIC", "-ffp-contract=off", "-w", "-x", "c++", "-")
_launching = threading.Lock()
"""A library keeps the number of the thread that it plays where the whole process sees it."""


def compiler() -> str | None:
    """The C++ compiler, or None."""
    return next((found for name in ("g++", "c++", "clang++") if (found := shutil.which(name))), None)


_TYPES = {
    np.dtype(name): kind for name, kind in (
        ("?", "bool"), ("f4", "float"), ("f8", "double"), ("i1", "signed char"), ("u1", "unsigned char"),
        ("i2", "signed short"), ("u2", "unsigned short"), ("i4", "signed int"), ("u4", "unsigned int"),
        ("i8", "signed long long"), ("u8", "unsigned long long"), ("f2", "unsigned short"),
    )
}  # fmt: skip

_LONG = {"long long": "signed long long"}


@functools.cache
def _kinds(text: str, name: str) -> list[str]:
    """The C++ types of a kernel's parameters."""
    found = re.search(rf"void {name}\((.*?)\) {{", text, re.S)
    if found is None:
        raise ValueError(f"the text has no kernel {name!r}")
    return [re.sub(r"\s*\w+$", "", each.replace("__restrict__", "")).strip() for each in found[1].split(",")]


def _caller(text: str, name: str) -> str:
    """C++ that calls the kernel with arguments behind an array of addresses."""
    passed = ", ".join(f"*({kind}*)arguments[{k}]" for k, kind in enumerate(_kinds(text, name)))
    return f"static void call_(void** arguments) {{ {name}({passed}); }}\n"


def check(text: str, name: str, arguments: Sequence[Any]) -> None:
    """Raise TypeError where a GPU would read other bytes than were meant, ValueError where it would fault.

    ``arguments``: arrays, with ``dtype`` and ``data.ptr``, and NumPy scalars. A driver copies as many bytes of each as
    the parameter has, and elements must lie at multiples of their size.
    """
    kinds = _kinds(text, name)
    if len(kinds) != len(arguments):
        raise TypeError(f"{name} has {len(kinds)} parameters, not {len(arguments)}")
    for k, (kind, value) in enumerate(zip(kinds, arguments, strict=True)):
        is_array, wanted = not isinstance(value, np.generic), kind.removeprefix("const ")
        given = {_TYPES[value.dtype]} | ({_TYPES[np.dtype(f"u{value.itemsize}")]} if is_array else set())  # for bits
        if is_array != wanted.endswith("*") or _LONG.get(wanted, wanted).removesuffix("*") not in given:
            raise TypeError(f"argument {k} of {name} is {value.dtype}, the parameter {kind}")
        if is_array and value.data.ptr % value.itemsize:
            raise ValueError(f"argument {k} of {name} lies at {value.data.ptr:#x}, no multiple of {value.itemsize}")


@functools.cache
def _library(text: str, name: str) -> Any:
    found = compiler()
    if found is None:
        raise OSError("no C++ compiler is on the path: kernels for a GPU cannot be emulated")
    body = text.replace("extern __shared__ double shared_memory[];", "")
    threaded = "true" if "__syncthreads" in text else "false"
    whole = f"{_HEADER}\n{body}\n{_caller(text, name)}\n#define THREADED {threaded}\n#define STACK 65536\n{_LAUNCHER}"
    key = hashlib.sha256(whole.encode()).hexdigest()
    with tempfile.TemporaryDirectory() as aside:
        made = Path(aside) / "kernel.so"
        code = store.read(key)
        if code is None:
            command = [found, *_OPTIONS, "-o", str(made)]
            subprocess.run(command, input=whole, text=True, check=True, capture_output=True, timeout=120)
            store.write(key, made.read_bytes())
        else:
            made.write_bytes(code)
        return ctypes.CDLL(str(made))


def launch(text: str, name: str, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
    """Run the kernel ``name`` of ``text``; ``arguments`` are addresses (ints, for pointers) and NumPy scalars.

    Raises OSError without a compiler, subprocess.CalledProcessError for text that is no C++.
    """
    library = _library(text, name)
    held = [np.array(each, np.uint64 if type(each) is int else None) for each in arguments]
    places = (ctypes.c_void_p * len(held))(*(each.ctypes.data for each in held))
    with _launching:
        library.launch(ctypes.c_uint(blocks), ctypes.c_uint(threads), places)
