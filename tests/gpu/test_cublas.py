"""Products in narrow formats handed to cuBLAS: shapes and layouts, by a reading of its call in NumPy."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from futurex.kernels import cublas
from futurex.kernels.cuda_ import emulation
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.emulated import NAMESPACE
from futurex.kernels.cupy_.formats import CONVERSIONS, convert
from futurex.ops.precision import STORAGE
from futurex.tree import Aval, apply, param, record

DEVICE = Device(NAMESPACE, "emulated")
KINDS = SimpleNamespace(CUDA_R_16F=2, CUDA_R_16BF=14, CUDA_R_32F=0)
FORMATS = {2: "float16", 14: "bfloat16", 0: "tfloat32"}
compiles = pytest.mark.skipif(emulation.compiler() is None, reason="no C++ compiler is on the path")


class Reading:
    """``cublasGemmStridedBatchedEx`` by its documentation: C = alpha op(A) op(B) + beta C, all by columns."""

    CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT = 68, 77, -1

    def __init__(self):
        self.sums = []

    def gemmStridedBatchedEx(
        self, handle, transa, transb, m, n, k, alpha, a, a_kind, lda, step_a, b, b_kind, ldb, step_b, beta, c, c_kind,
        ldc, step_c, count, compute, algorithm,
    ):  # fmt: skip
        assert (handle, algorithm) == (7, -1)
        one, zero = (ctypes.c_float.from_address(each).value for each in (alpha, beta))
        assert (one, zero) == (1.0, 0.0)
        self.sums.append(compute)
        to = FORMATS[c_kind]
        for each in range(count):
            x = _by_columns(a, a_kind, lda, step_a, each, (k, m) if transa else (m, k))
            y = _by_columns(b, b_kind, ldb, step_b, each, (n, k) if transb else (k, n))
            out = _by_columns(c, c_kind, ldc, step_c, each, (m, n))
            left, right = (record("widen")(np.array(part), to=to) for part in (x, y))
            out[...] = record("narrow")((left.T if transa else left) @ (right.T if transb else right), to=to)


def _by_columns(address, kind, leading, step, number, shape):
    dtype = STORAGE[FORMATS[kind]]
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
    values = record("narrow")(rng.normal(size=shape).astype(np.float32), to=to)
    if axes is None:
        return values
    order = np.argsort(axes)
    return np.ascontiguousarray(values.transpose(axes)).transpose(order)


@compiles
@pytest.mark.parametrize("to", STORAGE)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_read_as_it_lies(shape, to):
    product, left, right, first, second = SHAPES[shape]
    rng, library = np.random.default_rng(0), Reading()
    x, y = lying(left, first, rng, to), lying(right, second, rng, to)
    node = apply("narrow_product", *(param(Aval(each.shape, each.dtype)) for each in (x, y)), product=product, to=to)
    kernel = cublas.Product(DEVICE, cublas.task_of(node), library, lambda: 7, KINDS)
    (result,) = kernel(*(NAMESPACE.ndarray(each) for each in (x, y)))
    result, expected = DEVICE.to_host(result), record("narrow_product")(x, y, product=product, to=to)
    assert (result.dtype, result.shape) == (expected.dtype, np.shape(expected))
    wide = (record("widen")(each, to=to) for each in (result, expected))
    np.testing.assert_allclose(*wide, rtol=2.0**-7 if to == "bfloat16" else 2.0**-10, atol=1e-6)
    assert library.sums == [77 if to == "tfloat32" else 68]


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
