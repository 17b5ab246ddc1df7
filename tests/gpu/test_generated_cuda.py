"""Generated CUDA: its values on the processor for every operation, dtype and form of operand, and that it compiles."""


import numpy as np
import pytest

from futurex.kernels.cuda_ import Operand, emulation, region_source
from futurex.kernels.cuda_.scalar import EXPRESSIONS
from futurex.kernels.cupy_ import reductions
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.emulated import NAMESPACE
from futurex.kernels.cupy_.reductions import Reduction
from futurex.kernels.cupy_.regions import Region, collapse
from futurex.ops.fusion import APPROXIMATE, CORRECTLY_ROUNDED, HALF, OF_TWO, SUPPORTED, loop_of
from futurex.tree import Aval, Graph, apply, param, record
from futurex.tree.aval import aval_of

compiles = pytest.mark.skipif(emulation.compiler() is None, reason="no C++ compiler is on the path")
EMULATED = Device(NAMESPACE, "emulated")
REDUCIBLE = sorted(SUPPORTED, key=str)
DTYPES = [*REDUCIBLE, HALF]


def edges(dtype, rng, count=300):
    """Values of a dtype: its ends, the special ones, and some in between."""
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        special = [0, 1, info.min, info.max, info.max - 1, *([-1, -2, info.min + 1] if dtype.kind == "i" else [2])]
        values = rng.integers(max(info.min, -20), min(info.max, 20), count).astype(dtype)
    else:
        tiny, top = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
        special = [0.0, -0.0, np.nan, np.inf, -np.inf, tiny, -tiny, top, -top, 0.5, 1.5, 2.5, -0.5, -1.5, 1.0]
        values = (rng.normal(size=count) * 10 ** rng.uniform(-3, 3, count)).astype(dtype)
    places = rng.permutation(count)[: len(special)]
    values[places] = special
    return values


def operations(dtype, params):
    """Every operation that can be generated for operands of a dtype."""
    for name in sorted((CORRECTLY_ROUNDED | APPROXIMATE | OF_TWO) - {"expit", "erf", "cast"}):
        count = 3 if name == "where" else record(name).kernel.nin
        operands = [apply("greater", params[0], params[1]), *params[:2]] if name == "where" else params[:count]
        try:
            node = apply(name, *operands)
        except TypeError:
            continue  # NumPy has no such loop
        if loop_of(node) is not None and name in EXPRESSIONS:
            yield node


@compiles
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_operation_has_numpys_bits(dtype):
    rng = np.random.default_rng(3)
    args = [edges(dtype, rng), edges(dtype, rng)]
    params = [param(aval_of(value)) for value in args]
    nodes = list(operations(dtype, params))
    graph = Graph(params, nodes, "all")
    assert len(nodes) > (10 if dtype.kind == "b" else 20)
    results = Region(EMULATED, graph)(*map(EMULATED.to_device, args))
    for node, result, expected in zip(nodes, results, graph(*args), strict=True):
        result = EMULATED.to_host(result)
        assert result.dtype == expected.dtype, node
        if node.op in APPROXIMATE | OF_TWO:
            eps = np.finfo(expected.dtype).eps
            np.testing.assert_allclose(result, expected, rtol=4 * eps, atol=0, err_msg=node.op)
            continue
        np.testing.assert_array_equal(result, expected, err_msg=node.op)
        if expected.dtype.kind == "f" and node.op not in ("maximum", "minimum", "sign"):
            signs = np.signbit(result) == np.signbit(expected)
            assert (signs | np.isnan(expected)).all(), node.op


@compiles
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_cast_is_numpys():
    rng = np.random.default_rng(0)
    args = [edges(dtype, rng) for dtype in DTYPES]
    params = [param(aval_of(value)) for value in args]
    nodes = [apply("cast", source, dtype=target) for source in params for target in DTYPES]
    nodes = [node for node in nodes if loop_of(node) is not None]
    graph = Graph(params, nodes, "casts")
    assert len(nodes) > 90
    for node, result, expected in zip(nodes, Region(EMULATED, graph)(*map(EMULATED.to_device, args)), graph(*args),
                                      strict=True):  # fmt: skip
        np.testing.assert_array_equal(EMULATED.to_host(result), expected, err_msg=repr(node))


FORMS = {
    "all alike": lambda rng: (rng.normal(size=(6, 5, 4)), rng.normal(size=(6, 5, 4))),
    "row and column": lambda rng: (rng.normal(size=(6, 1, 4)), rng.normal(size=(5, 1))),
    "last axis": lambda rng: (rng.normal(size=(6, 5, 4)), rng.normal(size=4)),
    "turned": lambda rng: (rng.normal(size=(4, 5, 6)).T, rng.normal(size=(6, 5, 4))),
    "strided": lambda rng: (rng.normal(size=(12, 5, 8))[::2, :, ::-2], rng.normal(size=(6, 5, 4))),
    "one element": lambda rng: (rng.normal(size=(6, 5, 4)), rng.normal(size=(1, 1))),
    "scalar of the host": lambda rng: (rng.normal(size=(6, 5, 4)), np.float64(rng.normal())),
    "python number": lambda rng: (rng.normal(size=(6, 5, 4)).astype(np.float32), 0.1),
    "of another dtype": lambda rng: (rng.normal(size=(6, 5, 4)), rng.integers(0, 9, (5, 4))),
    "nothing": lambda rng: (rng.normal(size=(0, 5, 4)), rng.normal(size=4)),
}


@compiles
@pytest.mark.parametrize("form", FORMS)
def test_operands_of_every_form(form):
    args = FORMS[form](np.random.default_rng(1))
    x, y = (param(aval_of(value)) for value in args)
    h = apply("multiply", x, y) + 1.5
    graph = Graph([x, y], [h, apply("greater", h, y)], "region")
    there = [NAMESPACE.ndarray(value) if isinstance(value, np.ndarray) else value for value in args]
    for result, expected in zip(Region(EMULATED, graph)(*there), graph(*args), strict=True):
        np.testing.assert_array_equal(EMULATED.to_host(result), expected)


def test_dimensions_that_all_operands_walk_through_alike_are_one():
    assert collapse((2, 3, 4), [(12, 4, 1)]) == ([24], [[1]])
    assert collapse((2, 3, 4), [(12, 4, 1), (4, 0, 1)]) == ([2, 3, 4], [[12, 4, 1], [4, 0, 1]])
    assert collapse((2, 1, 4), [(4, 4, 1)]) == ([8], [[1]])


REDUCED = [(reduce, dtype) for reduce in ("sum", "prod", "max", "min") for dtype in ("f4", "f8", "i4", "u1")]
REDUCED += [("any", "?"), ("all", "f8")]


@compiles
@pytest.mark.parametrize("dtype", REDUCIBLE, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions_of_every_dtype_over_its_ends(dtype):
    """Integers wrap around, NaN wins, infinities of both signs are NaN, zeros of either sign are not true."""
    rng = np.random.default_rng(5)
    x = np.stack([edges(dtype, rng, 75), np.zeros(75, dtype), edges(dtype, rng, 75)])
    p = param(aval_of(x))
    for reduce in ("sum", "max", "any", "prod", "min", "all")[REDUCIBLE.index(dtype) % 3 :: 3]:
        attrs = {"axis": (1,), "keepdims": False, **({"dtype": None} if reduce in ("sum", "prod") else {})}
        out = apply(reduce, p, **attrs)
        result = EMULATED.to_host(Reduction(EMULATED, Graph([p], [p]), out, threads=32)(EMULATED.to_device(x)))
        [expected] = Graph([p], [out])(x)
        assert result.dtype == expected.dtype
        eps = np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
        finite = np.isfinite(expected) if eps else np.ones(3, bool)
        np.testing.assert_allclose(result[finite], expected[finite], rtol=200 * eps, err_msg=reduce)
        if reduce in ("max", "min"):
            np.testing.assert_array_equal(result, expected, err_msg=reduce)


def test_a_reduction_of_more_blocks_than_a_grid_has_is_refused(monkeypatch):
    """CuPy would launch as many as the lowest 32 bits of their number say."""
    monkeypatch.setattr(reductions, "MOST_BLOCKS", 3)
    p = param(Aval((4, 64), np.dtype(np.float32)))
    kernel = Reduction(EMULATED, Graph([p], [p]), apply("max", p, axis=(1,), keepdims=False))
    with pytest.raises(ValueError, match="at most 3 blocks, and this one 4"):
        kernel(EMULATED.to_device(np.ones((4, 64), np.float32)))


@compiles
@pytest.mark.parametrize("over", [((0, 0),), ((0, 0), (1, 1)), ((1, 0),)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
def test_results_written_over_operands(dtype, over):
    rng = np.random.default_rng(7)
    x, y = (rng.integers(0, 9, (6, 35)).astype(dtype) for _ in range(2))
    params = [param(aval_of(x)), param(aval_of(y))]
    graph = Graph(params, [params[0] * params[1] + params[0], params[1] - params[0]], "update")
    there = [EMULATED.to_device(each) for each in (x, y)]
    targets = dict(over)
    out = [there[targets[k]] if k in targets else None for k in range(2)]
    results = Region(EMULATED, graph)(*there, out=out)
    for k, (result, expected) in enumerate(zip(results, graph(x, y), strict=True)):
        assert (result is out[k]) == (k in targets)
        np.testing.assert_array_equal(EMULATED.to_host(result), expected)


@compiles
def test_arguments_that_a_gpu_would_read_otherwise_are_refused():
    x = param(Aval((8,), np.dtype("float32")))
    text = region_source(Graph([x], [x + 1.0]), [Operand.DENSE], 1)
    kernel = NAMESPACE.RawKernel(text, "region")
    out, one = NAMESPACE.zeros(8, np.float32), NAMESPACE.ones(8, np.float32)
    odd = NAMESPACE.zeros(33, np.uint8)[1:].view(np.float32)
    good = np.int64(8), out, one, np.float32(1)
    for k, value, message in (
        (0, np.int32(8), "is int32"), (1, NAMESPACE.zeros(8), "is float64"), (3, np.float64(1), "is float64"),
        (2, np.float32(1), "is float32, the parameter const float"), (2, odd, "no multiple of 4"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=message):
            kernel((1,), (32,), (*good[:k], value, *good[k + 1 :]))
    with pytest.raises(TypeError, match="has 4 parameters"):
        kernel((1,), (32,), good[:3])
    kernel((1,), (32,), good)
    assert out.get().tolist() == [2.0] * 8


SHIFTED = """extern "C" __global__ void region(const float* x, float* o) {
    extern __shared__ double shared_memory[];
    float* shared = (float*)shared_memory;
    long long first = (long long)blockIdx.x * blockDim.x;
    shared[threadIdx.x] = x[first + threadIdx.x];
    %s
    o[first + threadIdx.x] = shared[(threadIdx.x + %s) %% blockDim.x];
    __syncthreads();
}
"""


@compiles
@pytest.mark.parametrize("step", ["1", "blockDim.x - 1"], ids=["after it", "before it"])
def test_a_barrier_that_is_missing_is_found(step):
    """Threads take turns forwards in one block and backwards in the next: whichever neighbour is read, it is late."""
    x = np.arange(1, 65, dtype=np.float32)
    expected = np.roll(x.reshape(2, 32), -1 if step == "1" else 1, axis=1)
    for barrier in ("__syncthreads();", ""):
        out = NAMESPACE.zeros(64, np.float32)
        kernel = NAMESPACE.RawKernel(SHIFTED % (barrier, step), "region")
        kernel((2,), (32,), (EMULATED.to_device(x), out), shared_mem=128)
        assert np.array_equal(out.get().reshape(2, 32), expected) == bool(barrier)


@compiles
@pytest.mark.parametrize(
    "reduce, dtype, axis, keepdims",
    [(*each, *[(None, False), ((1,), True), ((0, 2), False)][k % 3]) for k, each in enumerate(REDUCED)],
)
def test_reductions_of_regions(reduce, dtype, axis, keepdims):
    rng = np.random.default_rng(2)
    x, y = rng.uniform(0.5, 1.5, (7, 40, 3)), rng.uniform(0.9, 1.1, (40, 1))
    args = [(value * (1 if np.dtype(dtype).kind in "fb" else 3)).astype(dtype) for value in (x, y)]
    params = [param(aval_of(value)) for value in args]
    body = apply("multiply", *params)
    attrs = {"axis": axis, "keepdims": keepdims, **({"dtype": None} if reduce in ("sum", "prod") else {})}
    out = apply(reduce, body, **attrs)
    expected = Graph(params, [out], "reduced")(*args)[0]
    kernel = Reduction(EMULATED, Graph(params, [body], "body"), out, threads=64)
    result = EMULATED.to_host(kernel(*map(EMULATED.to_device, args)))
    assert (result.dtype, result.shape) == (expected.dtype, np.shape(expected))
    eps = np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
    np.testing.assert_allclose(result, expected, rtol=50 * eps)


COLUMNS = [((300, 35), (0,)), ((3, 70, 16), (1,)), ((6, 10, 5, 20), (0, 1)), ((4, 90, 2, 40), (1,)),
           ((5, 3, 40, 33), (0, 2)), ((40, 128), (0,))]  # fmt: skip


@compiles
@pytest.mark.parametrize("processors", [1, 40])
@pytest.mark.parametrize(("shape", "axis"), COLUMNS, ids=str)
def test_reductions_of_columns(shape, axis, processors):
    rng = np.random.default_rng(4)
    device = Device(NAMESPACE, "emulated")
    device.processors = processors
    x, y = rng.uniform(0.5, 1.5, shape), rng.uniform(0.9, 1.1, shape[-1:]).astype(np.float32)
    for reduce, dtype in (("sum", "f4"), ("max", "f8"), ("sum", "i2"), ("any", "f4")):
        args = [(x * 3).astype(dtype), y.astype(dtype)]
        params = [param(aval_of(value)) for value in args]
        body = apply("multiply", *params)
        out = apply(reduce, body, axis=axis, keepdims=True, **({"dtype": None} if reduce == "sum" else {}))
        [expected] = Graph(params, [out], "reduced")(*args)
        kernel = Reduction(device, Graph(params, [body], "body"), out, threads=128)
        result = device.to_host(kernel(*map(device.to_device, args)))
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=2e-6 if dtype == "f4" else 0)


@compiles
def test_nan_wins_a_reduction_and_several_blocks_share_a_long_one():
    x = np.random.default_rng(0).normal(size=200_000)
    p = param(aval_of(x))
    for value, where in ((np.nan, 150_000), (9.0, 3)):
        x[where] = value
        for reduce in ("max", "sum"):
            attrs = {"axis": None, "keepdims": False, **({"dtype": None} if reduce == "sum" else {})}
            out = apply(reduce, p, **attrs)
            kernel = Reduction(EMULATED, Graph([p], [p * 1.0], "body"), apply(reduce, p * 1.0, **attrs), threads=32)
            result = EMULATED.to_host(kernel(EMULATED.to_device(x)))
            np.testing.assert_allclose(result, Graph([p], [out])(x)[0], rtol=1e-12)
        x[where] = 0.0


def test_what_cannot_be_generated_is_refused():
    x = param(Aval((8,), np.dtype(complex)))
    with pytest.raises(ValueError, match="cannot be part of a generated kernel"):
        region_source(Graph([x], [x * 2]), [Operand.DENSE], 1)
