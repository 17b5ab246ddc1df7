"""Instructions of AVX-512 in generated loops: what is declared for one element becomes whole vectors, and no call."""

import ctypes
import re

import numpy as np
import pytest

from futurex.kernels.numba_ import NumbaBackend, compiler, lanes
from futurex.tree import Aval, Graph, apply, param

pytestmark = [
    pytest.mark.skipif(not compiler.has_scale(), reason="the processor has no AVX-512"),
    pytest.mark.usefixtures("own_cache"),
]
F4, F8 = np.dtype("f4"), np.dtype("f8")


def region(make, *avals):
    params = [param(aval) for aval in avals]
    graph = Graph(params, [make(*params)], "region")
    return NumbaBackend().claim(apply("fused", *map(param, avals), graph=graph), 1)


def assembly(text):
    machine, module = compiler.optimised(text)
    return machine.emit_assembly(module)


@pytest.mark.parametrize(
    ("name", "words"),
    [("exp", ["vpermps", "vscalefps"]), ("log", ["vgetexpps", "vgetmantps"]), ("erf", ["vpermps"])],
)
def test_a_loop_is_whole_vectors_without_calls(name, words):
    def make(x):
        return apply("ufunc_call", x, ufunc="scipy.special.erf") if name == "erf" else apply(name, x)

    code = assembly(region(make, Aval((5000,), F4)).call.text)
    for word in words:
        assert re.search(rf"{word}\b.*%zmm", code), word
    assert not re.search(r"\bcall\w*\s+.*fx_", code)


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "expit", "erf"])
def test_an_element_has_the_same_bits_wherever_it_stands(name):
    """In whole vectors, in what is left behind them, and beside doubles, whose vectors are half as long."""

    def function(x):
        return apply("ufunc_call", x, ufunc=f"scipy.special.{name}") if name in ("expit", "erf") else apply(name, x)

    values = np.abs(np.random.default_rng(0).normal(size=2000) * 3).astype(F4)
    values[:6] = 0, np.inf, np.nan, 1e-42, 3e38, 1
    kernel = region(function, Aval(values.shape, F4))
    whole = kernel.call(np.empty_like(values), values)
    for first, last in ((1, 300), (700, 1031), (3, 262)):
        part = np.ascontiguousarray(values[first:last])
        kernel = region(function, Aval(part.shape, F4))
        assert np.array_equal(kernel.call(np.empty_like(part), part), whole[first:last], equal_nan=True)
    wide = np.random.default_rng(1).normal(size=2000)
    kernel = region(lambda x, y: function(x) + y, Aval(values.shape, F4), Aval(values.shape, F8))
    assert np.array_equal(kernel.call(np.empty_like(wide), values, wide), whole.astype(F8) + wide, equal_nan=True)


def test_what_is_linked_in_is_part_of_a_kernels_name(monkeypatch, tmp_path):
    """Code on disk is found by the kernel's text: which says what it calls, not what that does."""
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    text = region(lambda x: apply("exp", x), Aval((400,), F4)).call.text
    before = compiler.compiled(text, wait=True)
    other = lanes.table("powers", [1.0] * 16)
    try:
        assert compiler.compiled(text, wait=True) is not before
    finally:
        lanes.table("powers", [2.0 ** (k / 16) for k in range(16)])
    assert compiler.compiled(text, wait=True) is before
    assert other.name == "fx_powers"


def computed(instruction, width, *operands):
    """What the function of so many numbers gives, called by itself."""
    types = {"float": np.float32, "double": np.float64, "i32": np.int32}
    result, *kinds = instruction.kinds
    named = instruction.name if width == 1 else f"{instruction.name}_{width}"
    of = [kind if width == 1 else f"<{width} x {kind}>" for kind in (result, *kinds)]
    loads = [f"  %v{k} = load {kind}, ptr %p{k}, align 4" for k, kind in enumerate(of[1:])]
    passed = ", ".join(f"{kind} %v{k}" for k, kind in enumerate(of[1:]))
    pointers = "".join(f", ptr %p{k}" for k in range(len(kinds)))
    text = "\n".join([
        lanes.definitions([instruction]), f"define void @one(ptr %out{pointers}) {{", *loads,
        f"  %r = call {of[0]} @{named}({passed})", f"  store {of[0]} %r, ptr %out, align 4", "  ret void", "}",
    ])  # fmt: skip
    engine = compiler.llvm().create_mcjit_compiler(compiler.llvm().parse_assembly(text), compiler._machine())
    engine.finalize_object()
    arrays = [np.empty(width, types[result])]
    arrays += [np.asarray(each[:width], types[kind]) for each, kind in zip(operands, kinds, strict=False)]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(engine.get_function_address("one"))
    function(*(array.ctypes.data for array in arrays))
    return arrays[0]


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_each_width_is_the_instruction_for_each_number(width):
    x = np.linspace(0.4, 90, 16)
    mantissas, exponents = np.frexp(x.astype(F4))
    low = mantissas < 0.75  # from 3/4 to 3/2
    assert np.array_equal(computed(lanes.EXPONENT, width, x), (exponents - 1)[:width])
    assert np.array_equal(computed(lanes.MANTISSA, width, x), np.where(low, 2 * mantissas, mantissas)[:width])
    for kind, dtype in (("float", F4), ("double", F8)):
        powers = np.arange(16) - 8
        expected = np.ldexp(x.astype(dtype), powers)[:width]
        assert np.array_equal(computed(lanes.SCALED[kind], width, x, powers), expected)
