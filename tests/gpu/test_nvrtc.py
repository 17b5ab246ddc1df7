"""How kernels are compiled for a GPU: with which options, and once for all processes."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from futurex.kernels.cuda_ import OPTIONS, Operand, region_source
from futurex.kernels.cupy_ import nvrtc
from futurex.kernels.cupy_.devices import Device
from futurex.tree import Aval, Graph, param


class Module:
    """What CuPy loads machine code into; its functions are the code's bytes."""

    def load(self, code):
        self.code = code

    def get_function(self, name):
        return name, self.code


class Compiler:
    """As ``cupy.cuda.compiler``: notes what it is asked for."""

    def __init__(self):
        self.asked = []

    def compile_using_nvrtc(self, source, options=(), arch=None, filename="kern.cu", *, cache_in_memory=False):
        self.asked.append((source, options))
        return f"{source} for the machine".encode(), None


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    made = Compiler()
    monkeypatch.setitem(sys.modules, "cupy.cuda.compiler", made)
    monkeypatch.setitem(sys.modules, "cupy.cuda.function", SimpleNamespace(Module=Module))
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    return made


def gpu(capability):
    cuda = SimpleNamespace(
        nvrtc=SimpleNamespace(getVersion=lambda: (12, 9)), Device=lambda: SimpleNamespace(compute_capability=capability)
    )
    return Device(SimpleNamespace(cuda=cuda, __version__="14.2.0"), "cuda")


def test_a_kernel_is_compiled_once_for_a_kind_of_gpu(compiler):
    """By nothing that adds options: ``RawKernel``, which such a device has not, has small numbers be zeros."""
    for capability in ("90", "90", "80"):
        assert nvrtc.kernel(gpu(capability), "text", "region", OPTIONS) == ("region", b"text for the machine")
    assert compiler.asked == [("text", OPTIONS)] * 2
    nvrtc.kernel(gpu("90"), "text", "region", ())
    assert len(compiler.asked) == 3


def test_numbers_next_to_zero_stay_what_they_are(monkeypatch, tmp_path):
    """By CuPy's own compiler, which needs no GPU: nothing of a kernel in single precision flushes them to zero."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    from cupy.cuda import compiler, function

    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:
        pytest.skip(f"NVRTC is not to be had: {error}")
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", lambda arch=None: ("-arch=compute_90", "ptx"))
    monkeypatch.setattr(function, "Module", Module)
    monkeypatch.setattr(cupy.cuda, "Device", lambda: SimpleNamespace(compute_capability="90"))
    x, y = (param(Aval((8,), np.dtype("float32"))) for _ in range(2))
    text = region_source(Graph([x, y], [x * y + x, x > y]), [Operand.DENSE] * 2, 1)
    _, code = nvrtc.kernel(Device(cupy, "cuda"), text, "region", OPTIONS)
    assert b"mul.rn.f32" in code
    assert b"setp.gt.f32" in code
    assert b".ftz" not in code
    assert b"fma" not in code
