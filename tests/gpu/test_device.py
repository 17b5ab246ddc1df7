"""``device="gpu"`` is the only change: whole programs, training steps, writes, errors, and where results live."""

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from compare import agree, outcome

import futurex as fx
from futurex.errors import MissingExtra
from futurex.kernels.cupy_ import devices
from futurex.kernels.cupy_.streams import lane, placing
from futurex.models import har_cnn
from futurex.runtime.device import DevicePlan
from futurex.runtime.futures import Resident

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
sys.path.insert(0, str(PROGRAMS))
NAMES = sorted(path.stem for path in PROGRAMS.glob("[a-z]*.py") if not path.stem.startswith("test_"))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_program_means_the_same(name, device):
    """To rounding, and on a GPU to what roundings in another order grow to where elements cancel."""
    module = importlib.import_module(name)
    function = getattr(module, name)
    args = module.example(np.random.default_rng(0))
    expected, actual = outcome(function, args), outcome(fx.futurize(function, device="gpu"), args)
    assert expected[0][0] == "value", expected
    loosely = {"rounding": {"<f8": 1e-7, "<f4": 1e-2, "<f2": 0.1}, "near": 1e-9}
    assert agree(actual, expected, **(loosely if device.kind == "cuda" else {}))


def mse(w, x, y):
    return ((np.tanh(x @ w) - y) ** 2).mean()


@pytest.fixture
def descend():
    return fx.futurize(lambda w, x, y: (w - 0.1 * fx.grad(mse)(w, x, y), mse(w, x, y)), device="gpu")


@pytest.fixture
def regression():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 5)), rng.normal(size=(400, 30)), rng.normal(size=(400, 5))


def test_a_loop_of_steps_leaves_its_parameters_on_the_device(descend, regression):
    w, x, y = regression
    theirs, host = w, descend.moved("cpu")
    for _ in range(5):
        w, loss = descend(w, x, y)
        theirs, expected = host(theirs, x, y)
        np.testing.assert_allclose(loss, expected, rtol=1e-12)
        assert w.exception(timeout=60) is None  # a run gives out its results one after the other
        assert isinstance(w._pending(), Resident)
    np.testing.assert_allclose(np.asarray(w), np.asarray(theirs), rtol=1e-12)


def test_a_result_comes_to_the_host_once_somebody_looks(descend, regression):
    w, loss = descend(*regression)
    assert float(loss) > 0
    assert isinstance(w._pending(), Resident)
    assert w.result() is w.result()
    w.result()[...] = 7.0
    np.testing.assert_array_equal(w.result(), np.full((30, 5), 7.0))
    np.testing.assert_array_equal(fx.futurize(lambda a: a + 1, device="gpu")(w), np.full((30, 5), 8.0))


def test_results_of_the_device_go_to_functions_of_the_host_and_back(descend, regression):
    w, _ = descend(*regression)
    doubled = fx.futurize(lambda a: a * 2)(w)
    again = fx.futurize(lambda a: (a / 2).sum(), device="gpu")(doubled)
    np.testing.assert_allclose(float(again), w.result().sum(), rtol=1e-12)


def test_a_training_step_of_the_network_agrees_with_the_host():
    rng = np.random.default_rng(0)
    params = har_cnn.init(rng, channels=3, classes=6)
    x, labels = rng.normal(size=(4, 80, 3)).astype(np.float32), rng.integers(0, 6, 4)

    def loss(params, x, labels):
        return fx.nn.softmax_cross_entropy(har_cnn.apply(params, x), labels).mean()

    host, there = (fx.futurize(fx.value_and_grad(loss), device=device) for device in ("cpu", "gpu"))
    (value, grads), (expected, reference) = there(params, x, labels), host(params, x, labels)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for name, layer in reference.items():
        for key, gradient in layer.items():
            np.testing.assert_allclose(grads[name][key], gradient, rtol=2e-3, atol=1e-5)
    assert not any("host" in row.backend for row in there.profile()), "nothing of a training step leaves the device"


def test_writes_into_an_argument_happen_before_the_call_returns():
    @fx.futurize(device="gpu")
    def bump(x):
        x[2:5] += 1
        return x.sum()

    x = np.zeros(10)
    assert float(bump(x)) == 3.0
    assert x.tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("fault, error", [
    (lambda x: x[np.array([1, 50])], IndexError),
    (lambda x: np.linalg.inv(np.zeros((3, 3)) * x[0]), np.linalg.LinAlgError),
    (lambda x: np.arange(3) ** (x[:3].astype(int) - 9), ValueError),
])  # fmt: skip
def test_errors_are_those_of_numpy_at_the_users_line(fault, error):
    with pytest.raises(error) as caught:
        fx.futurize(fault, device="gpu")(np.ones(10)).result()
    assert "test_device.py" in "".join(caught.value.__notes__)


def test_values_that_cupy_would_get_wrong():
    """Repeated indices, indices from the end, floats that fit no integer, NaN among the largest."""
    x = np.array([3.0, np.nan, -1.0, np.nan, 2.0])

    def program(x, places, values):
        board = np.zeros(4)
        board[places] = values
        counts = np.zeros(4, int)
        np.add.at(counts, places, 1)
        return board, counts, np.argmax(x), (x * 1e30).astype(np.int32), x[places - 4], 7.5 // (x[0] / 30)

    args = x, np.array([1, 3, 1, 1]), np.arange(4.0)
    with np.errstate(invalid="ignore"):
        assert agree(outcome(fx.futurize(program, device="gpu"), args), outcome(program, args))


@pytest.mark.parametrize("dtype", ["f4", "c8"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_nan_is_the_extreme(name, dtype):
    x = np.arange(12.0).reshape(3, 4).astype(dtype)
    x[1, [1, 3]] = x[2, 2] = np.nan
    for axis in (None, 0, 1):
        found = fx.futurize(lambda x, axis=axis: getattr(np, name)(x, axis=axis), device="gpu")(x)
        np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(x, axis=axis))


ALONE = {
    "above": lambda x: x > 0, "sign": np.sign, "half": lambda x: x * np.float32(0.5), "true": lambda x: x.astype(bool),
    "quotient": lambda x: x // np.float32(1e-40), "next": lambda x: np.nextafter(x, np.float32(1)),
    "half precision": lambda x: x.astype(np.float16), "whole": lambda x: (x * np.float32(0) + 3).astype(np.int16),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_an_operation_alone_has_numpys_bits_next_to_zero(name):
    """CuPy's kernels have the smallest numbers of single precision be zeros, and wait before floats become integers."""
    x = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-39, 1e-38, 2e-38, 6e-8, 1.0], np.float32)
    f = fx.futurize(lambda x: ALONE[name](x), device="gpu")
    for k in range(3):
        found, expected = np.asarray(f(x * np.float32(1 + k))), ALONE[name](x * np.float32(1 + k))
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected)) if found.dtype.kind == "f" else None


def test_precision_is_lost_once_on_the_way_to_half_precision(device):
    x = np.array([1 + 2.0**-11 + 2.0**-40, 3.0, -1 - 2.0**-11 - 2.0**-40])
    found = fx.futurize(lambda x: x.astype(np.float16), device="gpu")(x)
    np.testing.assert_array_equal(np.asarray(found), x.astype(np.float16))


def test_loops_and_branches_run_there(regression):
    def program(x, n):
        total = np.zeros(x.shape[1])
        for row in x:
            if row[0] > 0:
                total = total + row
            else:
                total = total * 0.5
        while total.sum() > n:
            total = total / 2
        return total

    args = regression[1], 3.0
    assert agree(outcome(fx.futurize(program, device="gpu"), args), outcome(program, args))


def test_derivatives_of_loops_run_there():
    def loss(w, x):
        h = np.zeros(8)
        for row in x:
            h = np.tanh(w @ h + row)
        return (h**2).sum()

    rng = np.random.default_rng(0)
    args = rng.normal(size=(8, 8)), rng.normal(size=(40, 8))
    expected = fx.grad(loss)(*args)
    np.testing.assert_allclose(fx.futurize(fx.grad(loss), device="gpu")(*args), expected, rtol=1e-10)


def test_the_profile_says_what_went_to_the_host():
    @fx.futurize(device="gpu")
    def program(x):
        return np.partition(np.exp(x), 3) * 2

    program(np.arange(10.0)).result()
    backends = {row.op: row.backend for row in program.profile()}
    assert backends["partition"] == "host (1 trips)"
    assert backends["exp"] == "cuda"
    assert backends["multiply"] == "cuda"


def test_runs_on_several_threads_wait_for_each_others_arrays(descend, regression, device):
    """A run takes its arguments' stream, whichever thread it is on; if somebody has that, each waits for the other."""
    w, x, y = regression
    plan = descend.trace(w, x, y).plan
    made, _ = plan.run([w, x, y])
    mine = made.ready.stream
    with ThreadPoolExecutor(1) as pool:
        again, _ = pool.submit(plan.run, [made, x, y]).result()
        assert again.ready.stream is mine
        with lane(device, [made.ready]):
            again, _ = pool.submit(plan.run, [made, x, y]).result()
    other = again.ready.stream
    np.testing.assert_allclose(again.host(), plan.run([made, x, y])[0].host(), rtol=1e-12)
    assert mine is not other
    if device.kind == devices.EMULATED:
        waits = [event.stream for name, event in other.log if name == "wait"]
        assert mine in waits, "the other run's stream waits for the array"
        assert other in [event.stream for name, event in mine.log if name == "wait"], "and ours until it was read"


def test_a_run_waits_until_its_constants_are_there(device):
    """Whoever compiles has another stream than the run; and nobody takes their memory while a run reads them."""
    if device.kind != devices.EMULATED:
        pytest.skip("the emulated device tells what was waited for")
    plan = DevicePlan(fx.futurize(lambda x: np.cumsum(x) * np.array([1.0, 2.0, 3.0])).trace(np.ones(3)).graph)
    [result] = plan.run([np.ones(3)])
    waited = [event.stream for name, event in result.ready.stream.log if name == "wait"]
    assert placing(device) in waited
    assert placing(device).log[-1] == ("wait", result.ready.event)
    assert result.host().tolist() == [1.0, 4.0, 9.0]


def test_runs_that_have_nothing_to_do_with_each_other_have_streams_of_their_own(device):
    plan = DevicePlan(fx.futurize(lambda x: x * 2 + 1).trace(np.ones(4)).graph)
    chains = [plan.run([np.full(4, float(k))]) for k in range(2)]
    streams = [chain[0].ready.stream for chain in chains]
    assert streams[0] is not streams[1]
    for _ in range(9):
        chains = [plan.run(chain) for chain in chains]
    assert [chain[0].ready.stream for chain in chains] == streams


def test_peak_memory_is_that_of_the_live_values():
    f = fx.futurize(lambda x: np.cumsum(np.cumsum(np.cumsum(x))).sum(), device="gpu")
    assert f.memory(np.ones(1000)).unplanned == 16_000


def test_a_missing_device_is_said_with_the_extra_and_the_reason(monkeypatch):
    if devices._missing() is None:
        pytest.skip("this machine has a GPU")
    monkeypatch.delenv("FUTUREX_GPU")
    with pytest.raises(MissingExtra, match=r"CuPy.*futurex\[gpu\]"):
        fx.futurize(lambda x: x, device="gpu")


def test_unknown_devices_and_options_are_refused_with_the_choices(monkeypatch):
    with pytest.raises(ValueError, match="'tpu' is not one of 'cpu', 'gpu'"):
        fx.futurize(lambda x: x, device="tpu")
    with pytest.raises(TypeError, match="did you mean 'device'"):
        fx.futurize(lambda x: x, devise="gpu")
    monkeypatch.setenv("FUTUREX_GPU", "pretend")
    with pytest.raises(MissingExtra, match="'pretend' is not a choice"):
        fx.futurize(lambda x: x, device="gpu")
