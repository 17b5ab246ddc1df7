"""Operands that lie the other way round are read in squares: NumPy's bits, no copies, and copies that are turned."""

import itertools
import re

import numpy as np
import pytest
from compare import bits
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels import copies
from futurex.kernels.copies import in_c_order
from futurex.kernels.numba_ import NumbaBackend, past, squares
from futurex.kernels.numba_.squares import turned
from futurex.ops.strides import lies_in_rows, turned_along
from futurex.runtime.plan import compile_plan
from futurex.tree import Aval, Graph, apply, param

pytestmark = pytest.mark.usefixtures("compiled_at_once")

DTYPES = ["?", "u1", "i2", "f2", "f4", "i4", "f8", "i8", "c8", "c16"]


def filled(shape, dtype, seed=0):
    """Bytes of all kinds, NaN among them; truth values are 0 and 1."""
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    return (raw % 2 if dtype.kind == "b" else raw).view(dtype).reshape(shape)


@pytest.mark.parametrize(
    ("element", "lanes"),
    [("i8", 16), ("i8", 64), ("i16", 8), ("half", 32), ("i32", 8), ("float", 16), ("i64", 4), ("double", 8),
     ("float", 4), ("double", 2), ("<2 x i64>", 1)],
)  # fmt: skip
def test_a_square_of_registers_is_turned(element, lanes):
    """As instructions say it, of vectors of any width."""
    held = {f"%r{k}": [(k, j) for j in range(lanes)] for k in range(lanes)}

    def emit(text):
        first, second = re.findall(r"> (%\w+)", text)
        order = [int(each) for each in re.findall(r"i32 (\d+)", text)]
        both = held[first] + held[second]
        held[f"%v{len(held)}"] = [both[each] for each in order]
        return f"%v{len(held) - 1}"

    found = turned(emit, list(held), element)
    assert [held[each] for each in found] == [[(j, k) for j in range(lanes)] for k in range(lanes)]


def region(out, sources, shape, threads):
    """The kernel of a region that reads views of dense arrays."""
    params = [param(Aval(each.shape, each.dtype), f"a{k}") for k, each in enumerate(sources)]
    node = apply("fused", *sources, graph=Graph(params, [out(*params)], "region"))
    assert node.shape == shape
    return NumbaBackend().claim(node, threads)


def view_of(array, axes, cuts):
    """A view of an array, and the node that it is of a dense one."""
    x = param(Aval(array.shape, array.dtype), "x")
    found, node = array.transpose(axes)[cuts], apply("load", x, chain=(("transpose", tuple(axes)), ("index", tuple(
        ("s", each.start, each.stop, each.step) for each in cuts
    ))))  # fmt: skip
    assert node.shape == found.shape
    return found, node


CUTS = st.sampled_from([slice(None), slice(None), slice(None, None, -1), slice(1, None), slice(None, -3, 2)])


@st.composite
def views(draw, dtypes=DTYPES):
    shape = draw(st.lists(st.integers(8, 150), min_size=2, max_size=4))
    while np.prod(shape) > 60_000:
        shape[shape.index(max(shape))] = max(8, max(shape) // 2)
    axes = draw(st.permutations(range(len(shape))))
    return filled(shape, draw(st.sampled_from(dtypes))), axes, tuple(draw(CUTS) for _ in shape)


@given(views(), st.sampled_from([1, 2]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_copies_of_views_are_numpys(case, threads, far):
    """Also past the caches."""
    found, node = view_of(*case)
    told = past.told_cache
    past.told_cache = (lambda: 1) if far else told
    try:
        kernel = region(lambda a: a, [node], found.shape, threads)
        out = np.empty(found.shape, found.dtype)
        kernel.call(out, found if 0 in kernel.rows else np.ascontiguousarray(found))
    finally:
        past.told_cache = told
    assert out.tobytes() == found.tobytes()


@given(views(["i4", "u1", "f8", "c8"]), st.sampled_from([1, 2]))
@settings(max_examples=40, deadline=None)
def test_regions_of_views_and_dense_arrays_are_numpys(case, threads):
    whole, axes, cuts = case
    found, node = view_of(np.nan_to_num(whole), axes, cuts)
    dense = np.ascontiguousarray(found)[::-1].copy()
    row = param(Aval(found.shape[-1:], found.dtype), "row")
    kernel = region(
        lambda a, b, c: apply("subtract", apply("add", b, a), c),
        [node, param(Aval(dense.shape, dense.dtype), "y"), row], found.shape, threads,
    )  # fmt: skip
    out = np.empty(found.shape, found.dtype)
    given_ = found if 0 in kernel.rows else np.ascontiguousarray(found)
    with np.errstate(all="ignore"):
        kernel.call(out, given_, dense, dense[(0,) * (dense.ndim - 1)].copy())
        expected = dense + found - dense[(0,) * (dense.ndim - 1)]
    assert bits(out) == bits(np.ascontiguousarray(expected))


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "c16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_turned_operand_is_not_copied(dtype, threads):
    x = np.arange(512 * 512).reshape(512, 512).astype(dtype)
    plan = compile_plan(fx.lower(lambda x: x + x.T, x).graph, threads=threads)
    (each,) = (each for each in plan.instructions if each.node.op == "fused")
    assert each.kernel.backend == "numba"
    assert each.kernel.rows
    assert plan.memory.unplanned == 0
    np.testing.assert_array_equal(plan.run([x])[0], x + x.T)


def symmetric(x):
    return (x - x.T) / 2


def masked(x):
    return np.where(x > 0, x.T, x)


def of_two(x):
    return np.tril(x.T) + np.rot90(x) * x[:, :1]


def summed(x):
    return (x * x.T).sum(axis=1)


def rounds(x):
    for _ in range(3):
        x = x + x.T
    return x


def over_itself(x):
    y = x * 2
    return y + y.T


def into_a_view(x):
    y = x + 1
    y[1:-1] = y.T[1:-1] + y[1:-1]
    return y


def into_itself(x):
    y = x * 2
    y[:] = y.T
    return y


def joined(x):
    return np.concatenate([x.T, x + x.T], axis=1)


def converted(x):
    return x.T.astype(np.float32) * x


FUNCTIONS = [
    symmetric, masked, of_two, summed, rounds, over_itself, into_a_view, into_itself, joined, converted
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("size", [300, 512])
def test_functions_of_turned_views_give_numpys_bits(function, size):
    whole = np.random.default_rng(size).integers(-9, 9, (size, size)).astype(float)  # of sums any order gives the bits
    wide = np.zeros((size, size + 7))
    wide[:, 3:-4] = whole
    futurized = fx.futurize(function)
    for x in (whole, np.asfortranarray(whole), wide[:, 3:-4], whole[::-1]):
        before = x.copy()
        for _ in range(2):
            assert np.asarray(futurized(x)).tobytes() == function(x).tobytes()
        np.testing.assert_array_equal(x, before)


COPIES = {
    "the transpose": lambda x: x.T.copy(),
    "dense": lambda x: np.ascontiguousarray(x.T),
    "planes": lambda x: np.swapaxes(x.reshape(4, -1, x.shape[1]), 1, 2).copy(),
    "channels last": lambda x: x.reshape(-1, 8, 8, x.shape[1]).transpose(0, 3, 1, 2).copy(),
    "channels first": lambda x: x.reshape(2, 40, -1, 16).transpose(0, 2, 3, 1).copy(),
    "turned by a right angle": lambda x: np.rot90(x).copy(),
    "upside down": lambda x: x[::-1].T.copy(),
    "every second": lambda x: x[:, ::2].copy(),
    "backwards": lambda x: x[:, ::-1].copy(),
    "pixels by channels": lambda x: x.reshape(320, -1, 4).transpose(2, 0, 1).copy(),
    "mirrored pixels": lambda x: x.reshape(320, -1, 5)[:, ::-1].copy(),
    "other channels": lambda x: x.reshape(320, -1, 5)[..., ::-1].copy(),
    "some channels": lambda x: x.reshape(320, -1, 5)[..., 1:4].copy(),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("backends", ["", "numpy"])
def test_results_that_are_turned_views_are_copies_of_ones_own(name, backends, monkeypatch):
    monkeypatch.setenv("FUTUREX_BACKENDS", backends)
    x = filled((320, 640), "i4")
    plan = compile_plan(fx.lower(COPIES[name], x).graph)
    (found,) = plan.run([x])
    assert found.tobytes() == COPIES[name](x).tobytes()
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert not np.may_share_memory(found, x)
    if not backends:
        assert "numba" in {each.kernel.backend for each in plan.instructions}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(COPIES)[-6:])
def test_copies_of_elements_of_any_size(name, dtype):
    x = filled((320, 640), dtype)
    plan = compile_plan(fx.lower(COPIES[name], x).graph)
    assert plan.run([x])[0].tobytes() == COPIES[name](x).tobytes()
    assert "numba" in {each.kernel.backend for each in plan.instructions}


def test_what_a_run_computes_is_given_turned_as_it_lies():
    """As NumPy gives it."""
    x = np.random.default_rng(1).standard_normal((400, 300))
    plan = compile_plan(fx.lower(lambda x: x.T + 1, x).graph)
    (found,) = plan.run([x])
    assert [each.node.op for each in plan.instructions] == ["fused"]
    assert found.flags.f_contiguous
    np.testing.assert_array_equal(found, x.T + 1)


@given(views([*DTYPES, "M8[s]", ">f4", "V3"]))
@settings(max_examples=60, deadline=None)
def test_what_lies_in_any_way_is_copied_to_c_order(case):
    found, _ = view_of(*case) if case[0].dtype.kind not in "MV" else (case[0].transpose(case[1])[case[2]], None)
    least, copies._LEAST = copies._LEAST, 1
    try:
        for _ in range(2):
            out = in_c_order(found)
            made = copies._turning(found.shape, found.strides, found.itemsize)
            if made is not None:
                made[0].build()
            assert out.flags.c_contiguous
            assert (out.dtype, out.tobytes()) == (found.dtype, found.tobytes())
            assert not np.may_share_memory(out, found)
    finally:
        copies._LEAST = least


def test_complex_numbers_may_lie_between_lines():
    """Eight bytes behind what sixteen of them would want."""
    whole = np.arange(2 * 300 * 300 + 1.0)
    x = whole[1:].view(complex).reshape(300, 300)
    y = np.ones((300, 300), complex)
    view = apply("load", param(Aval(x.shape, x.dtype), "x"), chain=(("transpose", (1, 0)),))
    kernel = region(lambda a, b: a + b, [view, param(Aval(y.shape, y.dtype), "y")], x.shape, 1)
    for place in (x, whole[:-1].view(complex).reshape(300, 300)):
        out = np.empty_like(y)
        kernel.call(out, place.T, y)
        np.testing.assert_array_equal(out, place.T + y)


def test_what_is_read_in_squares():
    def along(shape, axes, dtype="f4"):
        found = turned_along(apply("load", param(Aval(shape, np.dtype(dtype)), "x"), chain=(("transpose", axes),)))
        return None if found is None else found[0]

    assert along((100, 100), (1, 0)) == -2
    assert along((8, 32, 20, 20), (0, 2, 3, 1)) == -2
    assert along((8, 20, 20, 32), (0, 3, 1, 2)) == -3
    assert along((20, 30, 40), (1, 0, 2)) is None  # whose rows are dense
    assert along((20, 20), (1, 0)) is None
    assert along((9000, 3), (1, 0)) is None  # of whose columns elements are three apart
    assert along((3, 9000), (1, 0)) is None


def test_what_lies_in_any_way():
    a = np.zeros((8, 32, 20, 20)).transpose(0, 2, 3, 1)
    assert lies_in_rows(a, (-2,))
    assert lies_in_rows(a, ())
    assert lies_in_rows(np.ascontiguousarray(a), (-3, -2, -1))
    assert not lies_in_rows(a[:, :, 1:], (-2,))
    assert not lies_in_rows(np.zeros(49, np.uint8)[1:].view(float)[None], ())


def test_tiles_share_lines_of_memory_and_fit_into_blocks():
    for size in (1, 2, 4, 8, 16):
        rows, columns = squares.sides(size)
        assert rows & (rows - 1) == 0
        assert squares.block(size) % rows == 0 == squares.block(size) % columns
        assert (rows * size) % 64 == 0 == (columns * size) % 64


def test_every_order_of_four_axes():
    x = filled((9, 20, 17, 33), "i2")
    for axes in itertools.permutations(range(4)):
        function = fx.futurize(lambda x, y, axes=axes: x.transpose(axes) + y)
        y = np.ascontiguousarray(x.transpose(axes))[::-1].copy()
        np.testing.assert_array_equal(np.asarray(function(x, y)), x.transpose(axes) + y)
