"""Products in narrow formats: the rounding of each format, what is rounded and what is not, on host and device."""

import numpy as np
import pytest
from local_group import thread_group

import futurex as fx
from futurex.models import mlp
from futurex.ops.precision import STORAGE
from futurex.tree import record

FORMATS = pytest.mark.parametrize("dtype", STORAGE)
BITS = {"float16": 11, "bfloat16": 8, "tfloat32": 11}


def rounded(x, dtype):
    return record("widen")(record("narrow")(x, to=dtype), to=dtype)


def singles(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@FORMATS
def test_rounding_is_to_the_nearest_and_ties_go_to_even(dtype):
    ulp = 2.0 ** (1 - BITS[dtype])
    x = np.array([1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.51 * ulp, -1 - ulp / 2, np.inf, -np.inf, 0.0, -0.0], np.float32)
    expected = np.array([1, 1 + 2 * ulp, 1 + ulp, -1, np.inf, -np.inf, 0.0, -0.0], np.float32)
    result = rounded(x, dtype)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
    assert np.isnan(rounded(np.array([np.nan, -np.nan], np.float32), dtype)).all()
    assert record("narrow")(x, to=dtype).dtype == STORAGE[dtype]


@FORMATS
def test_every_number_is_within_half_a_unit(dtype):
    x = (singles(10_000) * 10.0 ** np.random.default_rng(1).uniform(-4, 4, 10_000)).astype(np.float32)
    x = x[np.abs(x) > 1e-4]  # halves have fewer bits below
    result = rounded(x, dtype)
    assert (np.abs(result - x) <= 2.0 ** -BITS[dtype] * np.abs(x)).all()
    np.testing.assert_array_equal(rounded(result, dtype), result)


def test_bfloat16_agrees_with_the_package_of_that_name():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
        expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(rounded(x, "bfloat16"), expected)


@FORMATS
def test_products_round_operands_and_result_and_add_in_single_precision(dtype):
    x, y = singles(9, 700), singles(700, 5, seed=1)
    result = np.asarray(fx.autocast(lambda x, y: np.exp(x[0, 0]) * (x @ y), dtype)(x, y))
    expected = np.exp(x[0, 0]) * rounded(rounded(x, dtype) @ rounded(y, dtype), dtype)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=2.0 ** (1 - BITS[dtype]))
    assert np.abs(result - np.exp(x[0, 0]) * (x @ y)).max() > 0


def test_double_precision_and_integers_are_left_alone():
    function = fx.autocast(lambda x, n: (x @ x, n @ n), "bfloat16")
    x, n = np.random.default_rng(0).normal(size=(6, 6)), np.arange(36).reshape(6, 6)
    for result, expected in zip(function(x, n), (x @ x, n @ n), strict=True):
        np.testing.assert_array_equal(result, expected)


@FORMATS
def test_derivatives_and_loops_are_lowered_too(dtype):
    params = mlp.init(np.random.default_rng(0), (12, 16, 5))
    x, labels = singles(8, 12), np.arange(8) % 5

    def loss(params, x, labels):
        return fx.nn.softmax_cross_entropy(mlp.apply(params, x), labels).mean()

    step = fx.value_and_grad(loss)
    lowered = fx.autocast(step, dtype)
    kinds = [node.op for node in lowered.graph(params, x, labels).nodes]
    assert kinds.count("narrow_product") >= 5
    assert "matmul" not in kinds
    (value, grads), (expected, reference) = lowered(params, x, labels), step(params, x, labels)
    np.testing.assert_allclose(value, expected, rtol=0.05)
    for mine, theirs in zip(grads, reference, strict=True):
        np.testing.assert_allclose(mine["w"], theirs["w"], atol=0.1 * np.abs(theirs["w"]).max())
        assert np.asarray(mine["w"]).dtype == np.float32


def test_what_came_out_of_a_product_is_not_rounded_twice():
    graph = fx.autocast(lambda x: x @ x @ x, "bfloat16").graph(singles(4, 4))
    assert [node.op for node in graph.nodes].count("narrow") == 1


def test_a_device_gives_what_the_host_gives(monkeypatch):
    from futurex.kernels.cupy_ import devices

    if devices._missing() is not None:
        monkeypatch.setenv("FUTUREX_GPU", "emulated")
    x, w = singles(6, 20, 8), singles(3, 8, 4, seed=1)

    def program(x, w):
        return fx.nn.conv(x, w) + (x @ w[0])[:, 1:-1]

    for dtype in STORAGE:
        host = fx.autocast(program, dtype)
        there = host.moved("gpu")
        np.testing.assert_allclose(there(x, w), host(x, w), rtol=2.0 ** (2 - BITS[dtype]), atol=1e-2)
        assert not any("host" in row.backend for row in there.profile())


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="'float8' is not one of 'float16', 'bfloat16', 'tfloat32'"):
        fx.autocast(lambda x: x, "float8")
    inner = fx.autocast(lambda x: x @ x)
    with pytest.raises(TypeError, match=r"give that one to fx\.autocast"):
        fx.grad(lambda x: inner(x).sum())(singles(3, 3))


def _loss(params, x, labels):
    return fx.nn.softmax_cross_entropy(mlp.apply(params, x), labels).mean()


def _fitted(loss, **options):
    """The weights behind three steps with all of the examples."""
    params = mlp.init(np.random.default_rng(0), (12, 16, 5))
    data = singles(24, 12), np.arange(24) % 5
    taken = {"optimizer": fx.optim.sgd(0.1), "epochs": 3, "batch_size": 24, "progress": False, **options}
    run = fx.fit(loss, params, data, **taken)
    return run.result(timeout=60), run.history


def _apart(some, others):
    """How far weights lie apart."""
    return max(np.abs(one["w"] - other["w"]).max() for one, other in zip(some, others, strict=True))


@FORMATS
def test_fit_takes_its_products_narrow(dtype):
    @fx.futurize
    def step(params, x, labels):
        optimizer = fx.optim.sgd(0.1)
        return optimizer.update(params, fx.grad(_loss)(params, x, labels), optimizer.init(params))[0]

    wanted = mlp.init(np.random.default_rng(0), (12, 16, 5))
    for _ in range(3):
        wanted = fx.autocast(step, dtype)(wanted, singles(24, 12), np.arange(24) % 5)
    (found, history), (single, other) = _fitted(fx.autocast(_loss, dtype)), _fitted(_loss)
    assert all(layer["w"].dtype == np.float32 for layer in found)
    assert 5 * _apart(found, wanted) < _apart(single, wanted)
    np.testing.assert_allclose(history[-1]["loss"], other[-1]["loss"], rtol=0.02)


OPTIONS = [
    {}, {"accumulate": 2}, {"strategy": fx.strategy.zero(stage=2)}, {"strategy": fx.strategy.cross_barrier()},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_localities_take_their_products_narrow(options):
    alone, single = _fitted(fx.autocast(_loss, "bfloat16"))[0], _fitted(_loss)[0]
    with thread_group(2) as group:
        found = _fitted(fx.autocast(_loss, "bfloat16"), on=group, **options)[0]
        plain = _fitted(_loss, on=group, **options)[0]
    assert _apart(plain, single) < 1e-6 < 1e-4 < _apart(found, plain)
    assert _apart(found, alone) < 2 * _apart(alone, single)  # each rounds its share of a sum


def test_a_device_trains_so_too(monkeypatch):
    from futurex.kernels.cupy_ import devices

    if devices._missing() is not None:
        monkeypatch.setenv("FUTUREX_GPU", "emulated")
    loss = fx.autocast(_loss, "bfloat16")
    assert 5 * _apart(_fitted(loss, device="gpu")[0], _fitted(loss)[0]) < _apart(_fitted(loss)[0], _fitted(_loss)[0])


def test_a_lowered_program_has_narrow_products():
    program = fx.lower(fx.autocast(lambda x: x @ x, "bfloat16"), singles(4, 4))
    assert "narrow_product" in [node.op for node in program.graph.nodes]
