"""Training with ``fx.fit(device="gpu")``: parameters stay on the device, and only what must travels."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.cupy_ import devices
from futurex.kernels.cupy_.emulated_streams import TRAFFIC

ROWS, COLUMNS, BATCH, EPOCHS = 320, 12, 32, 3


def loss(params, x, labels):
    h = np.tanh(x @ params["w"] + params["b"])
    return fx.nn.softmax_cross_entropy(h @ params["v"], labels).mean()


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    shapes = {"w": (COLUMNS, 16), "b": (16,), "v": (16, 4)}
    params = {name: 0.3 * rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    return params, (x, (x[:, :4] @ rng.normal(size=(4, 4))).argmax(axis=1))


def trained(problem, device, **options):
    params, data = problem
    run = fx.fit(loss, params, data, optimizer=fx.optim.adam(1e-2), batch_size=BATCH, device=device, progress=False,
                 **{"epochs": EPOCHS, **options})  # fmt: skip
    return run.result(timeout=100), run.history


@pytest.mark.parametrize("options", [
    {}, {"accumulate": 4}, {"strategy": fx.strategy.zero(1)}, {"strategy": fx.strategy.local_sgd(2)},
    {"strategy": fx.strategy.cross_barrier()}, {"strategy": fx.strategy.parameter_server()},
], ids=str)  # fmt: skip
def test_a_run_ends_where_that_of_the_host_does(problem, options):
    params, history = trained(problem, "gpu", epochs=2, **options)
    expected, reference = trained(problem, "cpu", epochs=2, **options)
    for name, value in expected.items():
        assert type(params[name]) is np.ndarray
        np.testing.assert_allclose(params[name], value, rtol=2e-3, atol=1e-4, err_msg=name)
    assert [each["step"] for each in history] == [each["step"] for each in reference]
    np.testing.assert_allclose([e["loss"] for e in history], [e["loss"] for e in reference], rtol=1e-4)
    assert history[-1]["loss"] < history[0]["loss"]


def test_a_step_moves_its_batch_there_and_its_loss_back(problem):
    """Parameters and moments go there once and come back once; a replay's numbers are one more copy."""
    if devices._missing() is None:
        pytest.skip("copies are counted by the emulated device")
    params, data = problem
    held = 3 * sum(value.nbytes for value in params.values())
    before = TRAFFIC.copy()
    trained(problem, "gpu")
    moved, steps = TRAFFIC - before, EPOCHS * ROWS // BATCH
    batch = BATCH * (data[0].itemsize * COLUMNS + data[1].itemsize)
    numbers = 8 * 4
    assert moved["bytes to device"] <= held + 4096 + steps * (batch + numbers)
    assert moved["to device"] <= 3 * len(params) + 3 * (steps + 2)
    capture = held + 8  # a graph is compared once with the run beside it
    assert moved["bytes to host"] <= held + capture * 2 + steps * 8
    assert moved["to host"] <= 3 * len(params) * 3 + 2 * (steps + 2)


def test_what_is_known_of_a_run_is_whole_at_every_checkpoint(problem, tmp_path):
    pytest.importorskip("safetensors")
    options = {"checkpoint": tmp_path, "checkpoint_every": 7}
    params, history = trained(problem, "gpu", **options)
    expected, reference = trained(problem, "gpu")
    for name, value in expected.items():
        np.testing.assert_array_equal(params[name], value)
    assert [each["loss"] for each in history] == [each["loss"] for each in reference]
    again = fx.fit(loss, problem[0], problem[1], optimizer=fx.optim.adam(1e-2), batch_size=BATCH, device="gpu",
                   progress=False, epochs=EPOCHS + 1, resume=True, checkpoint=tmp_path)  # fmt: skip
    again.result(timeout=100)
    assert len(again.history) == EPOCHS + 1


def test_two_runs_at_once_do_not_share_memory(problem):
    params, data = problem
    options = {"optimizer": fx.optim.adam(1e-2), "batch_size": BATCH, "epochs": 4, "progress": False, "device": "gpu"}
    others = {name: value * 0.5 for name, value in params.items()}
    alone = [fx.fit(loss, each, data, **options).result(timeout=100) for each in (params, others)]
    runs = [fx.fit(loss, each, data, **options) for each in (params, others)]
    for run, expected in zip(runs, alone, strict=True):
        for name, value in run.result(timeout=100).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
