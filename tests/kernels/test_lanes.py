"""Instructions of AVX-512 in generated loops: what is declared for one element becomes whole vectors, and no call."""

import re

import numpy as np
import pytest

from futurex.kernels.numba_ import NumbaBackend, compiler, lanes
from futurex.tree import Aval, Graph, apply, param

pytestmark = pytest.mark.skipif(not compiler.has_scale(), reason="the processor has no AVX-512")
F4, F8 = np.dtype("f4"), np.dtype("f8")


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    """Kernels of the tests do not fill the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUTUREX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


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
