"""Functions alone: which are kernels, how their loops are made where registers are few, and how extremes are stored."""

import platform
import re

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.numba_ import NumbaBackend, compiler, emit
from futurex.kernels.numba_.element import helds_of
from futurex.kernels.numba_.rowwise import PIECES
from futurex.ops import fusion
from futurex.passes.fuse import ALONE_ELEMENTS, FEWEST_ELEMENTS, fuse
from futurex.tree import Aval, Graph, apply, param

F4 = np.dtype("f4")


def lone(name, size, few=None, dtype=F4):
    x = param(Aval((size,), dtype))
    node = apply("ufunc_call", x, ufunc="scipy.special.erf") if name == "erf" else apply(name, x)
    return fuse(Graph([x], [node]), few).outs[0].op


def region(make, *shapes):
    inside, outside = ([param(Aval(shape, F4)) for shape in shapes] for _ in range(2))
    return NumbaBackend().claim(apply("fused", *outside, graph=Graph(inside, [make(*inside)], "region")), 1).call.text


@pytest.mark.parametrize("wide", [False, True])
def test_functions_that_numpy_computes_one_by_one_are_regions_from_few_elements_on(wide, monkeypatch):
    monkeypatch.setattr(fusion, "_in_wide_registers", lambda: frozenset(["cbrt"] if wide else []))
    assert lone("cbrt", FEWEST_ELEMENTS) == ("cbrt" if wide else "fused")
    assert lone("erf", FEWEST_ELEMENTS) == "fused"
    assert lone("erf", FEWEST_ELEMENTS - 1) == "ufunc_call"
    assert lone("sqrt", FEWEST_ELEMENTS) == "sqrt"
    assert lone("cbrt", ALONE_ELEMENTS) == "fused"
    assert lone("exp", FEWEST_ELEMENTS, few=2) == "exp"  # on a device, where NumPy's speed does not matter


def test_so_are_those_for_which_numpy_takes_longer_in_wide_registers(monkeypatch):
    monkeypatch.setattr(fusion, "_in_wide_registers", lambda: frozenset(["exp", "sin", "cbrt"]))
    assert lone("exp", FEWEST_ELEMENTS) == "fused"
    assert lone("exp", FEWEST_ELEMENTS - 1) == "exp"
    assert [lone("sin", FEWEST_ELEMENTS, dtype=np.dtype(kind)) for kind in "df"] == ["fused", "sin"]


def test_numpy_tells_which_of_its_functions_are_in_wide_registers():
    known = fusion._in_wide_registers()
    assert known <= fusion.APPROXIMATE | fusion.OF_TWO
    assert not known & {"erf", "expit", "hypot"}  # which have one loop on all processors
    features = np._core._multiarray_umath.__cpu_features__
    assert ("expm1" in known) == bool(features.get("X86_V4"))


def chain(x, length):
    for k in range(length):
        x = x * (1.5 + k)
    return x


def test_loops_of_functions_and_of_long_chains_take_vectors_side_by_side():
    note = '"llvm.loop.interleave.count"'
    assert note in region(lambda x: apply("tanh", x), (1000,))
    assert note not in region(lambda x: apply("tanh", x), (200,))
    assert note not in region(lambda x: apply("square", x), (1000,))
    assert note in region(lambda x: chain(x, 20), (1000,))
    assert note not in region(lambda x: sum(chain(x + k, 20) for k in range(8)), (1000,))  # which keep it busy


SUMS = [("exp", 20_000, True), ("square", 20_000, False), ("square", 200_000, True)]


@pytest.mark.parametrize(("op", "size", "shared"), SUMS)
def test_sums_of_functions_are_shared_by_threads(op, size, shared):
    x, outside = (param(Aval((size,), np.dtype("f8"))) for _ in range(2))
    graph = Graph([x], [apply("sum", apply(op, x), axis=(0,), keepdims=False, dtype=None)], "region")
    kernel = NumbaBackend().claim(apply("fused_reduction", outside, graph=graph), 2)
    assert (kernel.call.program.numbers[0] == PIECES) == shared


def test_rows_with_divisions_end_in_a_vector_with_a_mask(monkeypatch):
    note = '"llvm.loop.vectorize.predicate.enable"'
    for known in (True, False):
        monkeypatch.setattr(emit, "has_masks", lambda known=known: known)
        assert (note in region(lambda x, y: x / y, (100, 23), (100, 1))) == known
        assert note not in region(lambda x, y: x / y, (100, 32), (100, 1))
        assert note not in region(lambda x, y: x * y, (100, 23), (100, 1))


@pytest.mark.parametrize(("dtype", "least"), [("f4", -110.0), ("f8", -760.0)])
def test_exponentials_below_the_largest_of_a_row_are_close_down_to_the_smallest_number(dtype, least):
    x = np.linspace(least, 0.0, 64 * 1024).astype(dtype).reshape(64, 1024)
    x[:, -1], x[3, 5], x[4, 6] = 0.0, -np.inf, np.nan
    source, outside = (param(Aval(x.shape, x.dtype)) for _ in range(2))
    peak = apply("free_max", source, axis=(1,), keepdims=True)
    graph = Graph([source], [apply("exp", apply("subtract", source, peak))], "region")
    kernel = NumbaBackend().claim(apply("fused_reduction", outside, graph=graph), 1)
    found = kernel.call(np.empty_like(x), x)
    true = np.exp(x.astype(np.longdouble))
    known = ~np.isnan(x)
    assert np.isnan(found[~known]).all()
    units = np.abs(found - true)[known] / np.spacing(true.astype(dtype))[known]
    assert units.max() <= 2.5


@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_sums_and_integers_are_joined_as_they_lie(dtype):
    """LLVM adds up what does not move in registers, unless it is frozen."""
    x, outside = (param(Aval((10_000, 7), np.dtype(dtype))) for _ in range(2))
    for op in ("sum", "max"):
        graph = Graph([x], [apply(op, apply("square", x), axis=(0,), keepdims=False)], "region")
        text = NumbaBackend().claim(apply("fused_reduction", outside, graph=graph), 1).call.text
        assert ("freeze" in text) == (op == "max" and dtype == "f4")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="instructions of x86")
@pytest.mark.parametrize(("op", "axis"), [("max", 0), ("min", 0), ("free_max", 1)])
def test_extremes_are_stored_whole(op, axis):
    """LLVM would store only where another one is larger, which some processors take 40 instructions for."""
    x = param(Aval((512, 1024), F4))
    outside = param(Aval((512, 1024), F4))
    peak = apply(op, x, axis=(axis,), keepdims=True)
    graph = Graph([x], [apply("exp", apply("subtract", x, peak)) if axis else peak], "region")
    node = apply("fused_reduction", outside, graph=graph)
    machine, module = compiler.optimised(NumbaBackend().claim(node, 1).call.text)
    code = machine.emit_assembly(module)
    assert re.search(r"v(max|min|cmp\w+)ps", code)
    assert not re.search(r"vmaskmovps\s+%ymm\d+, %ymm\d+, [-\w]*\(", code)


def test_a_python_number_is_as_true_as_it_is_in_numpy():
    """A loop of truths takes it as it is: copied into the kernel's block by machine code, and compared there."""
    number = param(Aval((), np.dtype(float), weak=True))
    assert helds_of(apply("logical_and", param(Aval((20,), F4)), number)) == (F4, np.dtype(float))

    def both(x, c):
        return np.logical_and(x, c), np.logical_xor(x > 0, c)

    staged, x = fx.futurize(both), np.arange(-300.0, 300.0).reshape(20, 30)
    for c in (0.5, 0.0, -0.0, float("nan"), 1e-320, True, False, 3, 0, np.float32(0.25), np.int8(0)):
        for found, expected in zip(staged(x, c), both(x, c), strict=True):
            np.testing.assert_array_equal(found, expected)
