"""Every backend gives what the NumPy reference gives, on every sample of every record that it claims."""

import math

import numpy as np
import pytest

import futurex.ops as ops
from futurex.kernels import backends as backends_module
from futurex.kernels.backends import default_backends
from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import Kernel, kernel_for
from futurex.tree import Aval, Graph, Node, apply, param, records
from futurex.tree.aval import aval_of
from futurex.tree.graph import evaluate

pytestmark = pytest.mark.onednn

assert ops  # importing it registers the records
BACKENDS = {backend.name: backend for backend in default_backends()}


def cases():
    rng = np.random.default_rng(7)
    for rec in records():
        for number, sample in enumerate(rec.samples(rng) if rec.samples else ()):
            yield pytest.param(rec, sample, id=f"{rec.name}-{number}")


def node_of(rec, inputs, attrs) -> Node:
    return apply(rec.name, *(param(aval_of(value)) for value in inputs), **attrs)


def run(kernel: Kernel, node: Node, inputs):
    """Call a kernel as its contract says: into poisoned buffers where it wants them; numbers may be returned."""
    inputs = [
        np.require(x, requirements="CA") if kernel.contiguous and isinstance(x, np.ndarray) else x for x in inputs
    ]
    if not kernel.into:
        return kernel.call(None, *inputs)
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    outs = tuple(np.full(aval.shape, 77).astype(aval.dtype) for aval in avals)
    if not isinstance(node.aval, tuple):
        assert kernel.call(outs[0], *inputs) is not None
        return outs[0]
    results = kernel.call(outs, *inputs)
    assert results is not None
    return tuple(out if out.shape else given for out, given in zip(outs, results, strict=True))


def assert_close(actual, expected):
    if isinstance(expected, tuple):
        for each, other in zip(actual, expected, strict=True):
            assert_close(each, other)
        return
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=3e-4, atol=3e-5 * max(1.0, np.abs(expected).max(initial=0.0)))
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype


def as_float32(value):
    return value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value


@pytest.mark.parametrize("single, threads", [(False, 1), (True, 1), (True, 2)])
@pytest.mark.parametrize("rec, sample", list(cases()))
def test_compiled_backends_agree_with_numpy(rec, sample, single, threads):
    inputs = tuple(as_float32(value) for value in sample.inputs) if single else sample.inputs
    try:
        node = node_of(rec, inputs, sample.attrs)
    except (TypeError, ValueError):
        pytest.skip("the sample has no node of its own in float32")
    claims = [(b.claim(node, threads), b.name) for b in BACKENDS.values() if b.name != "numpy"]
    claims = [(kernel, name) for kernel, name in claims if kernel is not None]
    if not claims:
        assert kernel_for(node, [NumpyBackend()]).backend == "numpy" if not rec.structured else True
        return
    for kernel, name in claims:
        assert kernel.backend == name
        assert_close(run(kernel, node, inputs), evaluate(node, inputs))


EXPECTED = {
    "conv": ({"x": (2, 16, 6), "w": (3, 6, 8)}, {"stride": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}),
    "avg_pool": ({"x": (2, 8, 4)}, {"window": (2,), "stride": (2,), "padding": ((0, 0),)}),
    "matmul": ({"x": (128, 96), "y": (96, 80)}, {}),
}


@pytest.mark.skipif("onednn" not in BACKENDS, reason="oneDNN is not installed")
@pytest.mark.parametrize("name", EXPECTED)
def test_onednn_claims_float32_and_nothing_else(name):
    shapes, attrs = EXPECTED[name]
    for dtype, claimed in ((np.float32, True), (np.float64, False)):
        inputs = [np.random.default_rng(0).normal(size=shape).astype(dtype) for shape in shapes.values()]
        node = apply(name, *(param(aval_of(x)) for x in inputs), **attrs)
        kernel = BACKENDS["onednn"].claim(node, 1)
        assert (kernel is not None) is claimed
        if kernel is not None:
            assert_close(run(kernel, node, inputs), evaluate(node, inputs))


@pytest.mark.skipif("onednn" not in BACKENDS, reason="oneDNN is not installed")
@pytest.mark.parametrize("x_view", ["plain", "turned", "strided"])
@pytest.mark.parametrize("y_view", ["plain", "turned", "strided"])
@pytest.mark.parametrize("epilogue", [False, True])
def test_products_take_operands_however_they_lie(x_view, y_view, epilogue):
    rng = np.random.default_rng(3)

    def lay(shape, how):
        if how == "turned":
            return rng.normal(size=shape[::-1]).astype("f4").T
        if how == "strided":
            return rng.normal(size=(shape[0], shape[1] * 2)).astype("f4")[:, ::2]
        return rng.normal(size=shape).astype("f4")

    inputs = [lay((70, 90), x_view), lay((90, 80), y_view)]
    name = "matmul"
    if epilogue:
        inputs.append(rng.normal(size=80).astype("f4"))
        name = "matmul_epilogue"
    node = apply(name, *(param(aval_of(x)) for x in inputs))
    kernel = BACKENDS["onednn"].claim(node, 2)
    out = np.empty((70, 80), "f4")
    kernel.call(out, *inputs)
    assert_close(out, evaluate(node, inputs))


@pytest.mark.parametrize(
    "names, kept", [("numpy", ["numpy"]), ("numba,numpy", ["numba", "numpy"]), ("numba", ["numba", "numpy"])]
)
def test_the_environment_chooses_backends_and_numpy_stays_last(monkeypatch, names, kept):
    monkeypatch.setenv("FUTUREX_BACKENDS", names)
    assert [backend.name for backend in default_backends()] == kept


def test_an_unknown_backend_is_refused_with_the_choices(monkeypatch):
    monkeypatch.setenv("FUTUREX_BACKENDS", "numpyy")
    with pytest.raises(ValueError, match=r"'numpyy'.*onednn, blas, numba, loops, ducc, numpy"):
        default_backends()


def test_a_missing_library_does_not_claim(monkeypatch):
    monkeypatch.setattr(backends_module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("FUTUREX_BACKENDS", "numba,numpy")
    assert [backend.name for backend in default_backends()] == ["numpy"]


def test_numpy_runs_what_others_leave():
    x = param(Aval((4,), np.dtype(np.float32)))
    kernel = kernel_for(apply("exp", x), tuple(BACKENDS.values()))
    assert kernel.backend == "numpy"
    assert math.isclose(Graph([x], [apply("exp", x)])(np.zeros(4, "f4"))[0].sum(), 4.0)


@pytest.mark.parametrize("value", [0, 2.75, -0.0])
def test_paddings_that_are_numpys_fill_their_frames(value):
    for x in (np.arange(6.0).reshape(2, 3), np.arange(4), np.ones((2, 0)), np.zeros((1, 1), bool)):
        widths = tuple((1 + k, 2) for k in range(x.ndim))
        node = apply("pad", param(Aval(x.shape, x.dtype)), value, widths=widths)
        kernel = NumpyBackend().claim(node, 1)
        assert kernel.into
        found = kernel.call(np.full(node.shape, 77).astype(x.dtype), x, value)
        assert found.tobytes() == np.pad(x, widths, constant_values=value).tobytes()


@pytest.mark.parametrize("dtype", ["?", "f2", "f4", "f8", "c16", "M8[s]"])
@pytest.mark.parametrize("widths", [(2, 2, 2), (1, 3), (3, 1, 5), (1, 1), (31, 2), (0, 3), (40, 40)])
def test_short_rows_are_joined_as_numpy_joins_them(widths, dtype):
    rng = np.random.default_rng(0)
    for axis, shape in ((1, (700,)), (-1, (30, 20)), (1, (600, 2))):
        whole = (*shape, 1) if axis < 0 else (*shape[:1], 1, *shape[1:])
        parts = [(rng.normal(size=whole) * 3).repeat(width, axis).astype("i8").astype(dtype) for width in widths]
        inputs = [param(Aval(each.shape, each.dtype)) for each in parts]
        kernel = NumpyBackend().claim(apply("concatenate", *inputs, axis=axis % parts[0].ndim), 1)
        wanted = np.concatenate(parts, axis)
        for given in (parts, [np.asfortranarray(each) for each in parts]):
            out = np.full(wanted.shape, 1).astype(dtype)
            assert kernel.call(out, *given).tobytes() == wanted.tobytes()
