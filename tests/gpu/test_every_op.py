"""Every sample of every record on the device equals NumPy: bit for bit where nothing is rounded, else to rounding."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ops"))

from op_cases import cases, copies

from futurex.kernels.cupy_ import CupyBackend
from futurex.kernels.cupy_.devices import EMULATED
from futurex.kernels.cupy_.rules import refusal
from futurex.runtime.phases import SAME_MEMORY
from futurex.tree import record

CASES = [case for case in cases() if not case.record.structured]
EXACT = frozenset((
    "add", "subtract", "multiply", "divide", "negative", "absolute", "square", "maximum", "minimum", "where", "cast",
    "load", "store", "gather", "reshape", "transpose", "concatenate", "pad", "sort", "argsort", "argmax", "argmin",
    "max", "min", "iota", "full", "random_bits", "random_uniform", "take_along_axis",
))  # fmt: skip

SOMETIMES = frozenset((
    "power", "round", "masked_store", "load", "store", "softmax_cross_entropy", "softmax_cross_entropy_grad", "svd",
    "svdvals", "cholesky", "pinv",
))  # fmt: skip
"""Ops with samples that are NumPy's: signs of integer exponents, bytes of elements, labels that are scalars, options
that CuPy lacks."""


FACTORS = {
    "svd": lambda u, s, vh: (u[..., : s.shape[-1]] * s[..., None, :]) @ vh[..., : s.shape[-1], :],
    "eigh": lambda w, v: (v * w[..., None, :]) @ np.conjugate(np.swapaxes(v, -1, -2)),
    "qr": lambda q, r: q @ r,
}  # fmt: skip
"""What the results of a factorisation are the factors of. Their phases are a library's own."""


def on_device(device, values):
    return [device.to_device(value) for value in copies(values)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_op_on_the_device_is_the_op(case, device):
    kernel = CupyBackend(device).claim(case.node, 1)
    results = kernel.call(None, *on_device(device, case.inputs))
    results = list(map(device.to_host, results if isinstance(case.node.aval, tuple) else (results,)))
    pairs = list(zip(results, case.results, strict=True))
    if case.name in FACTORS and case.sample.attrs.get("mode") != "raw":
        for result, expected in pairs:
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        whole = tuple(FACTORS[case.name](*factors) for factors in (results, case.results))
        values = pairs if device.kind == EMULATED else [p for p in pairs if p[1].ndim < case.inputs[0].ndim]
        pairs = [whole, *values]
    for result, expected in pairs:
        if case.name == "narrow_product":  # sums in another order may round to the neighbour
            to = case.sample.attrs["to"]
            assert result.dtype == expected.dtype
            result, expected = (record("widen")(each, to=to) for each in (result, expected))
            np.testing.assert_allclose(result, expected, rtol=2.0**-7 if to == "bfloat16" else 2.0**-10)
            continue
        if not isinstance(expected, np.ndarray | np.generic):
            assert type(result) is type(expected)
            assert result == expected
            continue
        assert result.dtype == expected.dtype
        assert np.shape(result) == np.shape(expected)
        complex_ = any(np.asarray(value).dtype.kind == "c" for value in case.inputs)  # CuPy's compiler joins roundings
        exact = expected.dtype.kind not in "fc" or (case.name in EXACT and not complex_)
        eps = 0 if exact else float(np.finfo(expected.dtype).eps)
        np.testing.assert_allclose(result, expected, rtol=100 * eps, atol=100 * eps)


@pytest.mark.parametrize("case", [case for case in CASES if refusal(case.node) is None], ids=str)
def test_an_op_that_is_said_to_run_on_the_device_does(case, device):
    inputs = on_device(device, case.inputs)
    if case.name in SOMETIMES or not (any(map(device.holds, inputs)) or case.results[0].ndim):
        return
    kernel = CupyBackend(device).claim(case.node, 1).call
    kernel(None, *inputs)
    assert not kernel.reason, kernel.reason
    assert getattr(kernel, "trips", 0) == 0




@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_may_lie_in_an_operands_memory_is_listed(case, device):
    """Plans write results over arguments that nobody reads any more; a view of one would be read then."""
    if device.kind != EMULATED:
        pytest.skip("addresses are compared on the emulated device")
    inputs = on_device(device, case.inputs)
    results = CupyBackend(device).claim(case.node, 1).call(None, *inputs)
    results = [value for value in (results if isinstance(case.node.aval, tuple) else (results,)) if device.holds(value)]
    shared = any(
        np.may_share_memory(value._host, each._host) for value in results for each in inputs if device.holds(each)
    )
    assert not shared or case.name in SAME_MEMORY
