"""Products handed to cuBLAS: shapes and layouts, by a reading of its call in NumPy."""

import ctypes
import importlib

import numpy as np
import pytest

from futurex.kernels import cublas
from futurex.kernels.cuda_ import emulation
from futurex.kernels.cupy_ import blas
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.emulated import NAMESPACE
from futurex.kernels.cupy_.formats import CONVERSIONS, convert
from futurex.ops.precision import STORAGE
from futurex.tree import Aval, apply, param, record

DEVICE = Device(NAMESPACE, "emulated")
KINDS = {2: "float16", 14: "bfloat16", 0: "float32", 1: "float64"}
SUMS = {"float16": 68, "bfloat16": 68, "tfloat32": 77, "float32": 68, "float64": 70}
DTYPES = {to: STORAGE.get(to, to) for to in SUMS}
compiles = pytest.mark.skipif(emulation.compiler() is None, reason="no C++ compiler is on the path")


class Functions:
    """cuBLAS's C functions by their documentation: C = alpha op(A) op(B) + beta C, all by columns."""

    def __init__(self):
        self.sums, self.stream, self.room = [], None, 0

    def cublasCreate_v2(self, place):
        place._obj.value = 7
        return 0

    def cublasSetStream_v2(self, handle, stream):
        self.stream, self.room = stream, 0
        return 0

    def cublasSetWorkspace_v2(self, handle, place, size):
        assert place
        self.room = size
        return 0

    def cublasGemmStridedBatchedEx(
        self, handle, transa, transb, m, n, k, alpha, a, a_kind, lda, step_a, b, b_kind, ldb, step_b, beta, c, c_kind,
        ldc, step_c, count, compute, algorithm,
    ):  # fmt: skip
        assert (handle.value, algorithm) == (7, -1)
        assert (self.stream, self.room) == (NAMESPACE.cuda.get_current_stream().ptr, 99)
        factor = ctypes.c_double if compute == 70 else ctypes.c_float
        assert [factor.from_address(each).value for each in (alpha, beta)] == [1.0, 0.0]
        self.sums.append(compute)
        to = "tfloat32" if compute == 77 else KINDS[c_kind]
        for each in range(count):
            x = _by_columns(a, DTYPES[to], lda, step_a, each, (k, m) if transa else (m, k))
            y = _by_columns(b, DTYPES[to], ldb, step_b, each, (n, k) if transb else (k, n))
            out = _by_columns(c, DTYPES[to], ldc, step_c, each, (m, n))
            left, right = (widened(np.array(part), to) for part in (x, y))
            out[...] = narrowed((left.T if transa else left) @ (right.T if transb else right), to)
        return 0 if a_kind == b_kind == c_kind else 7


def narrowed(x, to):
    return record("narrow")(x, to=to) if to in STORAGE else x


def widened(x, to):
    return record("widen")(x, to=to) if to in STORAGE else x


def _by_columns(address, dtype, leading, step, number, shape):
    dtype = np.dtype(dtype)
    assert leading >= shape[0]
    size = leading * (shape[1] - 1) + shape[0]
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address + number * step * dtype.itemsize)
    strides = (dtype.itemsize, leading * dtype.itemsize)
    return np.ndarray(shape, dtype, memory, 0, strides)


SHAPES = {
    "matrices": ("matmul", (3, 4), (4, 5), None, None),
    "a stack times a matrix": ("matmul", (2, 3, 4), (4, 5), None, None),
    "stacks": ("matmul", (2, 6, 3, 4), (2, 6, 4, 5), None, None),
    "a matrix times a stack": ("matmul", (3, 4), (6, 4, 5), None, None),
    "stacks that are repeated": ("matmul", (2, 1, 3, 4), (6, 4, 5), None, None),
    "one of a stack": ("matmul", (6, 3, 4), (1, 4, 5), None, None),
    "vector times matrix": ("matmul", (4,), (4, 5), None, None),
    "vector times stack": ("matmul", (4,), (2, 4, 5), None, None),
    "matrix times vector": ("matmul", (3, 4), (4,), None, None),
    "vectors": ("dot", (4,), (4,), None, None),
    "dot": ("dot", (2, 3, 4), (4, 5), None, None),
    "left transposed": ("matmul", (3, 4), (4, 5), (1, 0), None),
    "right transposed": ("matmul", (3, 4), (4, 5), None, (1, 0)),
    "both transposed": ("matmul", (3, 4), (4, 5), (1, 0), (1, 0)),
    "heads": ("matmul", (2, 3, 7, 4), (2, 3, 4, 7), (0, 2, 1, 3), (0, 2, 3, 1)),
    "columns of one": ("matmul", (1, 4), (4, 1), (1, 0), (1, 0)),
}


def lying(shape, axes, rng, to):
    """An array of this shape whose memory is in the order of ``axes``."""
    values = narrowed(rng.normal(size=shape).astype(np.float64 if to == "float64" else np.float32), to)
    if axes is None:
        return values
    order = np.argsort(axes)
    return np.ascontiguousarray(values.transpose(axes)).transpose(order)


@compiles
@pytest.mark.parametrize("to", SUMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_read_as_it_lies(shape, to, monkeypatch):
    product, left, right, first, second = SHAPES[shape]
    rng, functions = np.random.default_rng(0), Functions()
    x, y = lying(left, first, rng, to), lying(right, second, rng, to)
    params = [param(Aval(each.shape, each.dtype)) for each in (x, y)]
    node = apply("narrow_product", *params, product=product, to=to) if to in STORAGE else apply(product, *params)
    expected = node.record.run((x, y), node.attrs)
    for library in (blas.Library(DEVICE, functions, 99), blas.Reading()):
        monkeypatch.setattr(cublas, "library", lambda device, library=library: library)
        (result,) = cublas.kernel_for(DEVICE, node)(*(NAMESPACE.ndarray(each) for each in (x, y)))
        result = DEVICE.to_host(result)
        assert (result.dtype, result.shape) == (expected.dtype, np.shape(expected))
        wide = (widened(each, to) for each in (result, expected))
        rtol = {"bfloat16": 2.0**-7, "float64": 1e-13, "float32": 2e-6}.get(to, 2.0**-10)
        np.testing.assert_allclose(*wide, rtol=rtol, atol=1e-6)
    assert functions.sums == [SUMS[to]]


def test_what_cublas_refuses_is_an_error():
    functions = Functions()
    functions.cublasSetStream_v2 = lambda handle, stream: 1
    x = NAMESPACE.ones((2, 2))
    with pytest.raises(RuntimeError, match="cublasStatus_t 1"):
        blas.Library(DEVICE, functions, 99).product("float64", (0, 0), (2, 2, 2), x, 2, 4, x, 2, 4, x, 1)


def test_the_library_has_these_functions_where_it_is_installed():
    pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    try:
        importlib.import_module("cupy.cuda").cublas.getVersion
    except ImportError as error:
        pytest.skip(f"CuPy finds no cuBLAS: {str(error).splitlines()[0]}")
    try:
        c = next(ctypes.CDLL(f"libcublas.so.{major}") for major in (12, 13) if _loads(f"libcublas.so.{major}"))
    except StopIteration:
        pytest.skip("cuBLAS is not installed")
    blas.declare(c)
    made = ctypes.c_void_p()
    assert c.cublasCreate_v2(ctypes.byref(made)) in (0, 1)  # success, or no device


def _loads(name):
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("product", "shapes"),
    [("matmul", ((0, 4), (4, 5))), ("dot", ((3, 4), (2, 4, 5))), ("vecdot", ((3, 4), (3, 4)))],
    ids=str,
)
def test_what_is_not_for_cublas(product, shapes):
    inputs = [param(Aval(shape, np.dtype(np.float16))) for shape in shapes]
    assert cublas.task_of(apply("narrow_product", *inputs, product=product, to="float16")) is None


@compiles
@pytest.mark.parametrize(("name", "to"), CONVERSIONS, ids=str)
def test_conversions_have_the_bits_of_the_formats(name, to):
    bits = np.random.default_rng(0).integers(0, 2**32, 3000, dtype=np.uint32)
    bits[:8] = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3F808000, 0x3F818000]
    x = bits.view(np.float32) if name == "narrow" else (bits >> 16).astype(np.uint16)
    result = DEVICE.to_host(convert(DEVICE, name, to, DEVICE.to_device(x.reshape(60, 50))))
    expected = record(name)(x, to=to).reshape(60, 50)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
