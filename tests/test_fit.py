"""Training by fit on one locality: the same steps as by hand, its handle, its records, and what it refuses."""

import asyncio
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from concurrent.futures import wait

import numpy as np
import pytest
from fit_problem import WAIT, fit, mean_square, problem
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.data import Sampler
from futurex.training.batches import kept
from futurex.training.programs import Model, Problem, step_program
from futurex.tree.pytree import flatten

pytestmark = pytest.mark.onednn

def by_hand(params, data, optimizer, epochs, batch_size, seed):
    """The definition: the gradient of every batch of the sampler, and the optimizer's update."""
    state, losses = optimizer.init(params), []
    for epoch in range(epochs):
        total = 0.0
        for chosen in Sampler(len(data[0]), batch_size, seed).epoch(epoch):
            batch = [array[chosen] for array in data]
            value, grads = fx.value_and_grad(mean_square)(params, *batch)
            params, state = optimizer.update(params, {k: np.asarray(g) for k, g in grads.items()}, state)
            total += float(value) * len(chosen)
        losses.append(total / len(data[0]))
    return params, losses


@settings(max_examples=12)
@given(
    st.integers(1, 23), st.integers(1, 9), st.integers(1, 3), st.integers(0, 3),
    st.sampled_from([fx.optim.sgd(0.05), fx.optim.sgd(0.05, 0.9, True), fx.optim.adam(0.05), fx.optim.adamw(0.05)]),
)  # fmt: skip
def test_a_run_makes_the_steps_of_its_definition(n, batch_size, epochs, seed, optimizer):
    params, data = problem(n)
    run = fit(mean_square, params, data, optimizer=optimizer, epochs=epochs, batch_size=batch_size, seed=seed)
    result = run.result(WAIT)
    expected, losses = by_hand(params, data, optimizer, epochs, batch_size, seed)
    for name in expected:
        np.testing.assert_allclose(result[name], expected[name], rtol=1e-9, atol=1e-12)
        assert type(result[name]) is np.ndarray
    np.testing.assert_allclose([record["loss"] for record in run.history], losses, rtol=1e-9)
    assert run.step == epochs * -(-n // batch_size)
    assert not params["w"].any()


def test_the_handle_is_there_at_once_and_tells_what_happens():
    params, data = problem()
    run = fit(mean_square, params, data, epochs=3, batch_size=20, name="line", validation=data)
    assert run.name == "line"
    result = run.result(WAIT)
    assert run.done()
    assert run.status == "done"
    assert run.params is result
    assert [record["epoch"] for record in run.history] == [1, 2, 3]
    assert [record["step"] for record in run.history] == [3, 6, 9]
    last = run.history[-1]
    assert last["finite"] is True
    assert last["samples_per_second"] == pytest.approx(50 / last["seconds"])
    assert last["val_loss"] == pytest.approx(float(np.asarray(mean_square(result, *data))))
    assert repr(run) == f"<Run 'line' done, epoch 3, step 9, loss {last['loss']:.4g}>"
    assert "<table>" in run._repr_html_()
    assert run._repr_html_().startswith("<div style='overflow-x:auto'>")  # what is wider than the window is not lost
    assert "&lt;Run &#x27;line&#x27; done" in run._repr_html_()


def test_a_notebook_shows_the_ends_of_a_long_run():
    params, data = problem()
    run = fit(mean_square, params, data, epochs=40, batch_size=50)
    run.result(WAIT)
    table = run._repr_html_()
    assert table.count("<tr>") == 1 + 12 + 1 + 12
    assert "… 16 more in <code>history</code>" in table
    assert "<td>12</td>" in table
    assert "<td>13</td>" not in table


def test_figures_of_a_resumed_run_stand_below_their_names(tmp_path):
    params, data = problem()
    options = {"batch_size": 50, "checkpoint": tmp_path}
    fit(mean_square, params, data, epochs=1, **options).result(WAIT)
    fit(mean_square, params, data, epochs=2, resume=True, validation=data, **options).result(WAIT)
    run = fit(mean_square, params, data, epochs=3, resume=True, **options)
    run.result(WAIT)
    assert ["val_loss" in record for record in run.history] == [False, True, False]
    rows = [row.count("<td>") for row in run._repr_html_().split("<tr>")[2:]]
    assert rows == [5, 5, 5]
    assert "<th scope='col'>val_loss</th>" in run._repr_html_()
    assert run._repr_html_().count("<td></td>") == 2


def refusing(params, x, y):
    if (x @ params["w"]).sum() > -1e9:
        raise ValueError("too large")
    return mean_square(params, x, y)


def test_an_error_in_a_step_stands_at_the_users_line():
    params, data = problem()
    run = fit(refusing, params, data, epochs=1, batch_size=10)
    for _ in range(2):
        with pytest.raises(ValueError, match="too large") as caught:
            run.result(WAIT)
        places = traceback.extract_tb(caught.value.__traceback__)
        assert {place.filename for place in places} == {__file__}
        assert places[-1].name == "refusing"
        assert places[-1].lineno == refusing.__code__.co_firstlineno + 2


@pytest.mark.parametrize("cluster", [2, "tcp://127.0.0.1:8786", object()], ids=["number", "address", "object"])
def test_what_is_no_cluster_is_refused(cluster):
    params, data = problem()
    with pytest.raises(TypeError, match=r"is no cluster; fx\.Cluster\(n\) starts one"):
        fit(mean_square, params, data, epochs=1, on=cluster)
    with pytest.raises(TypeError, match="is no cluster"):
        fx.futurize(mean_square).on(cluster)


def test_stop_ends_a_run_after_a_step_with_what_it_has():
    params, data = problem()
    run = fit(mean_square, params, data, epochs=10**6, batch_size=10)
    assert run.status == "running"
    with pytest.raises(TimeoutError, match=r"<Run 'mean_square' running, .*> has no result after 0\.3 s and goes on"):
        run.result(0.3)
    run.stop()
    result = run.result(WAIT)
    assert run.status == "stopped"
    assert 0 < run.step < 5 * 10**6
    assert result["w"].any()
    assert run.history[-1]["step"] == run.step
    run.stop()


def test_every_step_has_a_key_of_its_own_that_depends_on_the_seed():
    def loss(params, x, key):
        return (fx.random.uniform(key) * params * x).mean()

    def noises(seed):
        run = fit(loss, np.ones(1), np.ones((6, 1)), optimizer=fx.optim.sgd(1e-30), batch_size=1, epochs=1, seed=seed)
        run.result(WAIT)
        return run.history[0]["loss"]

    expected = [float(fx.random.uniform(fx.random.fold(fx.random.key(3), step))) for step in range(6)]
    assert noises(3) == pytest.approx(np.mean(expected))
    assert noises(3) != noises(4)


def test_dropout_is_left_out_in_validation():
    def loss(params, x, y, key=None):
        h = fx.nn.dropout(x, 0.5, key) if key is not None else x
        return ((h @ params - y) ** 2).mean()

    x = np.ones((8, 4))
    run = fit(loss, np.ones(4), (x, x.sum(axis=1)), optimizer=fx.optim.sgd(1e-30), validation=(x, x.sum(axis=1)))
    run.result(WAIT)
    assert run.history[0]["val_loss"] == 0.0
    assert run.history[0]["loss"] > 0.0


def test_metrics_and_figures_are_means_over_all_examples():
    def loss(params, x, y):
        error = x @ params - y
        return (error**2).mean(), {"bias": error.mean()}

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(13, 2)), rng.normal(size=13)
    x_held, y_held = rng.normal(size=(1100, 2)), rng.normal(size=1100)
    run = fit(
        loss, np.ones(2), (x, y), optimizer=fx.optim.sgd(1e-30), batch_size=5, validation=(x_held, y_held),
        metrics={"absolute": lambda params, x, y: np.abs(x @ params - y).mean()},
    )  # fmt: skip
    run.result(WAIT)
    assert run.history[0]["bias"] == pytest.approx((x.sum(axis=1) - y).mean())
    assert run.history[0]["absolute"] == pytest.approx(np.abs(x_held.sum(axis=1) - y_held).mean())
    assert run.history[0]["val_loss"] == pytest.approx(((x_held.sum(axis=1) - y_held) ** 2).mean())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_that_is_not_finite_is_said_and_does_not_end_the_run():
    params, data = problem()
    run = fit(mean_square, params, data, optimizer=fx.optim.sgd(1e200), epochs=3)
    run.result(WAIT)
    assert [record["finite"] for record in run.history][-1] is False
    assert run.status == "done"


def test_structures_and_dtypes_come_back_as_they_were():
    params = [{"w": np.ones((2, 3), np.float32)}, (np.ones(3, np.float16), 2.0)]
    run = fit(lambda p, x: ((x @ p[0]["w"] + p[1][0]) * p[1][1]).mean(), params, np.ones((4, 2), np.float32))
    result = run.result(WAIT)
    assert result[0]["w"].dtype == np.float32
    assert result[1][0].dtype == np.float16
    assert result[1][1].dtype == np.float64
    assert isinstance(result[1], tuple)


def test_state_and_parameters_are_written_in_place():
    params, data = problem()
    optimizer = fx.optim.adam()
    state = optimizer.init(params)
    graph, layout = step_program(Problem(Model(mean_square), optimizer, params, state, data), 50)
    assert len(graph.outs) >= 2 + 2 + 6  # what the step checks stands behind its results
    assert dict(layout.donate) == {2: 0, 3: 1, 6: 4, 7: 5, 8: 6, 9: 7}  # all but lr and step


def test_a_run_can_be_awaited_and_goes_on_when_nobody_does():
    params, data = problem()

    async def waits():
        got = await fit(mean_square, params, data, epochs=2)
        run = fit(mean_square, params, data, epochs=10**6)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(run, 0.05)
        assert run.status == "running"
        labels = np.array([0, 1, 9])
        with pytest.raises(IndexError, match="labels"):
            await fit(lambda w, y: fx.nn.softmax_cross_entropy(w + np.zeros((3, 3)), y).mean(), np.zeros(3), labels)
        return got, run

    got, run = asyncio.run(waits())
    np.testing.assert_array_equal(got["w"], fit(mean_square, params, data, epochs=2).result(WAIT)["w"])
    run.stop()
    run.result(WAIT)
    assert run.status == "stopped"


def test_a_child_of_a_fork_is_told_that_the_parent_has_the_run():
    params, data = problem()
    run = fit(mean_square, params, data, epochs=10**6)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            run.result(30)
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        assert "RuntimeError: run 'mean_square' was under way when the process forked" in said.read()
    assert run.status == "running"
    run.stop()
    run.result(WAIT)


def test_recorded_steps_are_those_asked_for():
    params, data = problem()
    run = fit(mean_square, params, data, batch_size=5, trace_steps=2)
    run.result(WAIT)
    assert run.events
    names = [event["name"] for event in run.events]
    assert names.count(names[0]) % 2 == 0
    assert {event["pid"] for event in run.events} == {0}
    quiet = fit(mean_square, params, data, batch_size=5)
    quiet.result(WAIT)
    assert quiet.events == []


@pytest.fixture
def interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a script starts behind itself
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_leaves_the_run_and_shows_the_users_line(interrupts):
    params, data = problem(n=4000)
    run = fit(mean_square, params, data, epochs=100_000, batch_size=4)
    main = threading.main_thread().ident

    def interrupt():
        """Once that thread waits: before, the interrupt would be the test's own."""
        while not any(each.f_code is wait.__code__ for each, _ in traceback.walk_stack(sys._current_frames()[main])):
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        run.result(WAIT)
    assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}
    assert "goes on; run.stop() ends it" in caught.value.__notes__[0]
    assert run.status == "running"
    run.stop()
    run.result(WAIT)


def test_what_fails_on_a_locality_is_raised_by_result():
    def loss(logits, labels):
        return fx.nn.softmax_cross_entropy(logits + np.zeros((4, 3)), labels).mean()

    run = fit(loss, np.zeros((1, 3)), np.array([0, 1, 2, 7]), batch_size=4)
    with pytest.raises(IndexError, match="labels from 0 to 7") as caught:
        run.result(WAIT)
    assert run.status == "failed"
    assert "test_fit.py" in "".join(getattr(caught.value, "__notes__", []))


def test_a_loss_that_is_no_number_any_more_is_told_once():
    params, data = problem()
    with pytest.warns(RuntimeWarning, match="is (nan|inf) in epoch") as told:
        fit(mean_square, params, data, optimizer=fx.optim.sgd(1e200), epochs=4).result(WAIT)
    [said] = [text for each in told if "in epoch" in (text := str(each.message))]
    assert "np.errstate(divide='raise'" in said


def test_what_a_batch_raises_names_its_step():
    params, (x, y) = problem()

    def careful(params, x, y):
        assert np.abs(x[0, 0]) < 1e3, "too large"
        return mean_square(params, x, y)

    bad = np.array(x)
    bad[37] = 1e4
    begins = Sampler(len(x), 1, 5).epoch(0)
    step = 1 + next(k for k, chosen in enumerate(begins) if 37 in chosen)
    with pytest.raises(AssertionError, match="too large") as caught:
        fit(careful, params, (bad, y), epochs=3, batch_size=1, seed=5).result(WAIT)
    assert f"in step {step}, on locality 0" in caught.value.__notes__
    with pytest.raises(AssertionError, match="too large") as caught:
        fit(careful, params, (x, y), epochs=3, validation=(bad[37:], y[37:])).result(WAIT)
    assert re.search(r"in the validation behind step \d+, on locality 0", "".join(caught.value.__notes__))


def test_errors_raise_where_they_begin_if_whoever_starts_the_run_wants_that():
    params, data = problem(n=3000)  # compiled kernels, which do not look, compute batches of so many rows

    def loss(params, x, y):
        error = x @ params["w"] + params["b"] - y
        return np.log(np.abs(error)).mean() - np.log(np.float64(0.5))

    data = tuple(np.array(each) for each in data)
    data[0][:] = 0.0
    data[1][:] = 0.0  # no error at all: its logarithm is infinite, and the derivative, too
    with np.errstate(divide="raise", invalid="raise"):
        run = fit(loss, params, data, epochs=2, batch_size=3000)
    with pytest.raises(FloatingPointError, match="divide by zero encountered in log") as caught:
        run.result(WAIT)
    notes = "".join(caught.value.__notes__)
    assert "np.log(np.abs(error)).mean()" in notes
    assert "in step 1, on locality 0" in notes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(loss, params, data, epochs=1, batch_size=3000).result(WAIT)  # who does not want that has none


def test_runs_side_by_side_do_not_mix():
    params, data = problem()
    runs = [fit(mean_square, params, data, epochs=3, seed=seed) for seed in (0, 1, 0)]
    first, second, again = (run.result(WAIT) for run in runs)
    np.testing.assert_array_equal(first["w"], again["w"])
    assert (first["w"] != second["w"]).any()


def test_progress_says_one_line_per_epoch(capsys):
    params, data = problem()
    fx.fit(mean_square, params, data, epochs=2).result(WAIT)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]


def test_no_thread_is_left_behind():
    before = {thread for thread in threading.enumerate() if thread.name.startswith(("compute", "finish"))}
    params, data = problem()
    run = fit(mean_square, params, data)
    run.result(WAIT)
    for thread in threading.enumerate():
        if thread.name.startswith("finish-") and thread not in before:
            thread.join(WAIT)
            assert not thread.is_alive()
    assert run.done()


# -- on a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(2) as cluster:
        yield cluster


def noisy(params, x, y, key=None):
    h = fx.nn.dropout(x, 0.3, key) if key is not None else x
    return mean_square(params, h, y)


@pytest.mark.cluster
@pytest.mark.parametrize("n, batch_size", [(50, 16), (21, 10), (7, 7)])  # last batches of 2, 1 and 7 rows
def test_a_cluster_makes_the_same_steps(cluster, n, batch_size):
    """The last batch of 1 leaves a locality without examples."""
    params, data = problem(n)
    options = {
        "epochs": 3, "batch_size": batch_size, "optimizer": fx.optim.adam(0.05), "validation": data,
        "metrics": {"error": lambda params, x, y: np.abs(x @ params["w"] + params["b"] - y).mean()},
    }  # fmt: skip
    here, there = fit(noisy, params, data, **options), fit(noisy, params, data, on=cluster, **options)
    expected, result = here.result(WAIT), there.result(WAIT)
    for name in expected:
        np.testing.assert_allclose(result[name], expected[name], rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(here.history, there.history, strict=True):
        for name in ("loss", "val_loss", "error", "step"):
            assert theirs[name] == pytest.approx(mine[name], rel=1e-9)
        assert 0 <= theirs["hidden_comm_share"] <= 1
        assert theirs["comm_seconds"] > 0
        assert theirs["exposed_comm_seconds"] >= 0


@pytest.mark.cluster
@pytest.mark.parametrize("heard_by", [0, 1])
def test_all_localities_stop_after_the_same_step_if_one_hears_of_it(cluster, heard_by, monkeypatch):
    """If they did not, one of them would wait for the other in the next step."""
    params, data = problem()
    run = fit(mean_square, params, data, epochs=10**6, batch_size=10, on=cluster, trace_steps=2)
    end = time.monotonic() + 120
    while run.step < 10 and not run.done():  # the recorded steps are behind it
        assert time.monotonic() < end, "the run did not start"
        time.sleep(0.01)
    with monkeypatch.context() as patched:
        patched.setattr(run._work, "_addresses", [cluster.addresses[heard_by]])
        run.stop()
    assert run.result(WAIT)["w"].any()
    assert run.status == "stopped"
    assert {event["pid"] for event in run.events} == {0, 1}
    again = fit(mean_square, params, data, on=cluster)
    assert again.result(WAIT)["w"].any()


@pytest.mark.cluster
def test_what_fails_on_one_of_several_localities_is_raised(cluster):
    def loss(logits, labels):
        return fx.nn.softmax_cross_entropy(logits + np.zeros((8, 3)), labels).mean()

    run = fit(loss, np.zeros((1, 3)), np.array([0, 1, 2, 0, 1, 2, 0, 7]), batch_size=8, on=cluster)
    with pytest.raises(IndexError, match="labels from"):
        run.result(WAIT)
    assert run.status == "failed"


MASK = np.array([1.0, 0.0, 2.0])


@pytest.mark.parametrize("place", ["here", pytest.param("cluster", marks=pytest.mark.cluster)])
def test_given_arrays_may_be_changed_once_fit_has_returned(place, request):
    on = request.getfixturevalue("cluster") if place == "cluster" else None
    params, data = problem(n=4096)
    options = {
        "on": on, "epochs": 8, "batch_size": 16, "optimizer": fx.optim.ema(fx.optim.adam(0.01), 0.9), "progress": False,
    }  # fmt: skip

    def trained(change):
        given = {name: leaf.copy() for name, leaf in params.items()}, tuple(part.copy() for part in data)
        held_out = tuple(part[:64].copy() for part in data)
        run = fx.fit(mean_square, *given, validation=held_out, **options)
        if change:
            for array in [*given[0].values(), *given[1], *held_out]:
                array.fill(3)  # parameters begin with zeros
        return run.result(60), [record["val_loss"] for record in run.history], fx.optim.average(run.state)

    for found, expected in zip(flatten(trained(True))[0], flatten(trained(False))[0], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_given_parameters_may_be_changed_at_once():
    data = np.full((8, 1 << 18), 1e-3), np.ones(8)

    def loss(w, x, y):
        return ((x @ w - y) ** 2).mean()

    for _ in range(4):  # what is changed is changed while the first step begins, if that is not too quick
        given = np.zeros(1 << 18)
        run = fit(loss, given, data, optimizer=fx.optim.sgd(0.1), batch_size=8)
        given.fill(3.0)
        assert np.ptp(run.result(WAIT)) == 0.0
        assert run.result()[0] < 1.0
        assert np.all(given == 3.0)


def test_what_is_mapped_from_a_file_or_read_only_is_not_copied(tmp_path):
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=(8, 2))
    frozen = np.ones((8, 2))
    frozen.flags.writeable = False
    seen_through = np.ones((8, 2))[:]
    seen_through.flags.writeable = False
    for array in (np.asarray(mapped), mapped[2:], frozen, frozen[2:], np.frombuffer(b"12345678")):
        assert kept(array) is array
    for array in (np.ones(3), seen_through, np.frombuffer(bytearray(8)), np.broadcast_to(np.ones(2), (8, 2))):
        assert not np.shares_memory(kept(array), array)


@pytest.mark.parametrize("place", ["here", pytest.param("cluster", marks=pytest.mark.cluster)])
def test_a_loss_may_read_arrays_from_outside(place):
    shift = np.full(3, 0.5)  # of a closure

    def shifted(w, x, mask, shift):
        return (((x * mask + shift) @ w - 1.0) ** 2).mean()

    def outside(w, x):
        return shifted(w, x, MASK, shift)

    def inside(w, x):
        return shifted(w, x, np.array([1.0, 0.0, 2.0]), np.full(3, 0.5))

    options = {"optimizer": fx.optim.sgd(0.05), "epochs": 3, "batch_size": 4, "progress": False}
    x = np.random.default_rng(0).normal(size=(18, 3))
    want = fx.fit(inside, np.zeros(3), x, **options).result(60)
    if place == "here":
        got = fx.fit(outside, np.zeros(3), x, validation=x, **options).result(60)
        np.testing.assert_array_equal(got, want)
    else:
        with fx.Cluster(2) as cluster:
            got = fx.fit(outside, np.zeros(3), x, on=cluster, **options).result(60)
        np.testing.assert_allclose(got, want, rtol=1e-9)
