"""Callbacks of fit: what they are told, in which order and where, what they raise, and early stopping."""

import re
import threading
import time
import traceback

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import futurex as fx

pytestmark = [pytest.mark.onednn, pytest.mark.timeout(240)]
WAIT = 60
ENDLESS = 10**6


def mean_square(params, x, y):
    return ((x @ params["w"] + params["b"] - y) ** 2).mean()


def with_a_figure(params, x, y):
    return mean_square(params, x, y), {"bias": params["b"]}


def fit(loss=mean_square, on=None, n=50, **options):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    params, data = {"w": np.zeros(3), "b": np.zeros(())}, (x, x @ np.arange(1.0, 4.0) + 0.5)
    if options.get("validation") is True:
        options["validation"] = data
    return fx.fit(loss, params, data, on=on, **{"progress": False, "batch_size": 10, **options})


class Telling:
    """Writes down what it is told, by whom and in which thread."""

    def __init__(self):
        self.told, self.threads = [], set()

    def on_train_begin(self, run):
        self.threads.add(threading.current_thread().name)
        self.told.append(("begin", run, None))

    def on_epoch_end(self, run, record):
        self.threads.add(threading.current_thread().name)
        assert record["epoch"] <= len(run.history)
        self.told.append(("epoch", run, record))

    def on_train_end(self, run):
        self.threads.add(threading.current_thread().name)
        self.told.append(("end", run, run.params))


class Counted:
    """Stands for a run, and counts how often it is told to stop."""

    def __init__(self):
        self.stops = 0

    def stop(self):
        self.stops += 1


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(2) as cluster:
        yield cluster


PLACES = ["here", *(pytest.param(name, marks=pytest.mark.cluster) for name in ("cluster", "elastic"))]


@pytest.fixture(params=PLACES)
def place(request):
    """Where a run goes on, as options of fit."""
    if request.param == "here":
        return {}
    options = {"on": request.getfixturevalue("cluster")}
    return {**options, "commit_every": 5} if request.param == "elastic" else options


def test_callbacks_are_told_everything_in_order(place):
    telling, plain = Telling(), []
    run = fit(epochs=4, callbacks=[telling, lambda run, record: plain.append((run, record))], **place)
    result = run.result(WAIT)
    assert [what for what, *_ in telling.told] == ["begin", *["epoch"] * 4, "end"]
    assert all(each is run for _, each, _ in telling.told)
    records = [record for what, _, record in telling.told if what == "epoch"]
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    assert records == run.history
    assert telling.told[-1][2] is result
    assert plain == [(run, record) for record in records]
    assert telling.threads == {f"callbacks-{run.name}"}
    assert run.status == "done"


def test_what_a_callback_raises_stops_the_run_and_is_raised(place):
    told, error = [], LookupError("enough")

    def raising(run, record):
        if record["epoch"] == 2:
            raise error

    run = fit(epochs=ENDLESS, callbacks=[raising, lambda run, record: told.append(record["epoch"])], **place)
    with pytest.raises(LookupError) as caught:
        run.result(WAIT)
    assert caught.value is error
    assert {frame.filename for frame in traceback.extract_tb(error.__traceback__)} == {__file__}
    assert told == [1]
    assert run.status == "failed"
    assert 10 <= run.step < 5 * ENDLESS
    assert run.params["w"].any()
    assert f"the run made {run.step} steps: its parameters are in run.params" in "".join(error.__notes__)


@pytest.mark.parametrize("hook", ["on_train_begin", "on_train_end"])
def test_what_the_other_hooks_raise_is_raised(place, hook):
    def raising(self, run):
        raise LookupError(hook)

    callback = type("Raising", (), {hook: raising})()
    run = fit(epochs=2 if hook == "on_train_end" else ENDLESS, callbacks=[callback], **place)
    with pytest.raises(LookupError, match=hook):
        run.result(WAIT)
    assert run.status == "failed"


def test_a_callback_can_stop_the_run(place):
    telling = Telling()
    run = fit(epochs=ENDLESS, callbacks=[telling, lambda run, record: run.stop()], **place)
    assert run.result(WAIT)["w"].any()
    assert run.status == "stopped"
    assert telling.told[-1][0] == "end"
    assert [record for what, _, record in telling.told if what == "epoch"] == run.history


def test_early_stopping_stops(place):
    early = fx.EarlyStopping(patience=2, min_delta=1e-9)
    run = fit(epochs=ENDLESS, optimizer=fx.optim.sgd(0.1), validation=True, callbacks=[early], **place)
    np.testing.assert_allclose(run.result(WAIT)["w"], [1.0, 2.0, 3.0], rtol=1e-3)
    assert run.status == "stopped"
    again, counted = fx.EarlyStopping(patience=2, min_delta=1e-9), Counted()
    for record in run.history:  # with those that came while the run was being stopped
        again.on_epoch_end(counted, record)
    assert counted.stops
    assert early == again
    assert early.best == run.history[early.best_epoch - 1]["val_loss"]


def with_a_distance(params, x, y):
    """Its figure is least when the bias, which goes from 0 to 0.5, comes by 0.4."""
    return ((x @ params["w"] + params["b"] - y) ** 2).mean(), {"away": abs(params["b"] - 0.4)}


STRATEGIES = [
    fx.strategy.all_reduce(), fx.strategy.zero(2), fx.strategy.cross_barrier(), fx.strategy.local_sgd(3),
    fx.strategy.parameter_server(),
]  # fmt: skip


@pytest.mark.parametrize("figure, mode", [("val_loss", "max"), ("away", "min"), ("loss", "max")])
def test_the_best_epochs_parameters_come_back(place, figure, mode):
    early = fx.EarlyStopping(figure, patience=50, mode=mode, restore_best_weights=True)
    options = {"loss": with_a_distance, "optimizer": fx.optim.sgd(0.03), "validation": True, **place}
    run = fit(epochs=6, callbacks=[early], **options)
    found = run.result(WAIT)
    values = [record[figure] for record in run.history]
    assert early.best_epoch == 1 + values.index(max(values) if mode == "max" else min(values)) < 6
    best = fit(epochs=early.best_epoch, **options).result(WAIT)
    for name in best:
        np.testing.assert_array_equal(found[name], best[name])
        assert type(found[name]) is type(best[name])
    assert run.params is found
    assert run.memory[0]["best parameters"] == run.memory[0]["parameters"] == 24
    assert (run.step, run.status) == (30, "done")


@pytest.mark.cluster
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_every_strategy_brings_the_best_parameters_back(cluster, strategy):
    early = fx.EarlyStopping("val_loss", mode="max", patience=50, restore_best_weights=True)
    options = {"strategy": strategy, "on": cluster, "optimizer": fx.optim.sgd(0.03, momentum=0.5), "validation": True}
    found = fit(epochs=4, callbacks=[early], **options).result(WAIT)
    best = fit(epochs=early.best_epoch, **options).result(WAIT)
    assert early.best_epoch == 1
    for name in best:
        np.testing.assert_allclose(found[name], best[name], rtol=1e-12)


def test_the_checkpoint_is_of_the_last_step_where_the_best_parameters_come_back(tmp_path):
    options = {"optimizer": fx.optim.sgd(0.1), "validation": True, "checkpoint": tmp_path / "run"}
    early = fx.EarlyStopping("val_loss", mode="max", restore_best_weights=True)
    first = fit(epochs=2, checkpoint_every=5, callbacks=[early], **options).result(WAIT)
    whole = fit(epochs=4, resume=True, **options).result(WAIT)
    del options["checkpoint"]
    np.testing.assert_array_equal(whole["w"], fit(epochs=4, **options).result(WAIT)["w"])
    np.testing.assert_array_equal(first["w"], fit(epochs=1, **options).result(WAIT)["w"])


def test_where_no_epoch_is_better_than_none_the_last_parameters_come():
    early = fx.EarlyStopping("none", patience=50, restore_best_weights=True)
    options = {"loss": lambda *given: (mean_square(*given), {"none": np.float64(np.nan)}), "epochs": 2}
    found = fit(callbacks=[early], **options).result(WAIT)
    np.testing.assert_array_equal(found["w"], fit(**options).result(WAIT)["w"])
    assert early.best_epoch == 0


def test_two_best_epochs_are_refused():
    early = [fx.EarlyStopping(name, restore_best_weights=True) for name in ("loss", "bias")]
    with pytest.raises(ValueError, match="given 2 times, for 'loss' and 'bias': a run has one best epoch"):
        fit(with_a_figure, callbacks=early)


def test_training_does_not_wait_for_callbacks_and_the_result_does():
    go, told = threading.Event(), []

    def waiting(run, record):
        assert go.wait(WAIT)
        told.append(record["epoch"])

    run = fit(epochs=3, callbacks=[waiting])
    run._work.result(WAIT)
    with pytest.raises(TimeoutError):
        run.result(0.2)
    assert not told
    go.set()
    run.result(WAIT)
    assert told == [1, 2, 3]


def test_callbacks_of_a_run_that_fails_come_to_an_end():
    def late(params, x, y):
        if x[0, 0] > 1e5:
            raise ValueError("late")
        return mean_square(params, x, y)

    telling = Telling()
    x = np.ones((4, 3))
    x[3] = 1e6
    run = fx.fit(
        late, {"w": np.zeros(3), "b": np.zeros(())}, (x, x[:, 0]), batch_size=1, progress=False, callbacks=[telling],
        name="fails",
    )  # fmt: skip
    with pytest.raises(ValueError, match="late"):
        run.result(WAIT)
    end = time.monotonic() + WAIT
    while any(thread.name == "callbacks-fails" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert [what for what, *_ in telling.told] == ["begin"]


def test_a_callback_that_waits_for_its_own_run_is_told_so():
    run = fit(epochs=ENDLESS, callbacks=[lambda run, record: run.result()])
    with pytest.raises(RuntimeError, match="waits for this callback, which cannot wait for it"):
        run.result(WAIT)


def test_what_a_callback_does_to_a_record_is_its_own():
    run = fit(epochs=2, callbacks=[lambda run, record: record.clear(), lambda run, record: record["loss"]])
    with pytest.raises(KeyError):
        run.result(WAIT)
    assert "loss" in run.history[0]


def test_a_resumed_run_tells_of_its_own_epochs(tmp_path):
    told = []
    options = {"checkpoint": tmp_path / "run", "callbacks": [lambda run, record: told.append(record["epoch"])]}
    fit(epochs=2, checkpoint_every=5, **options).result(WAIT)
    fit(epochs=4, resume=True, **options).result(WAIT)
    assert told == [1, 2, 2, 3, 4]  # the checkpoint is of the second one's last step, before its record


class KerasLike:
    def on_epoch_end(self, epoch, logs=None):
        pass

    def on_batch_end(self, batch, logs=None):
        pass


class LightningLike:
    def on_train_start(self, trainer, module):
        pass


class Narrow:
    def on_epoch_end(self, record):
        pass


@pytest.mark.parametrize(
    "callbacks, kind, said",
    [
        (lambda run, record: None, TypeError, "callbacks is a list of functions or objects with on_train_begin(run), "),
        ([KerasLike()], TypeError, "KerasLike has a hook 'on_batch_end', which fit never calls; "),
        ([LightningLike()], TypeError, "hook 'on_train_start', which fit never calls; it knows on_train_begin("),
        ([LightningLike], TypeError, "callbacks has a class, LightningLike; give an object of it"),
        ([Narrow()], TypeError, "a callback is called as on_epoch_end(run, record), but takes (record)"),
        ([lambda record: None], TypeError, "a callback is called as on_epoch_end(run, record), but takes (record)"),
        ([3], TypeError, "3 is no callback: neither a function (run, record) nor an object with on_train_begin(run)"),
        ([fx.EarlyStopping()], ValueError, "'val_loss', which this run does not measure; it has loss, bias, and more "
         "with validation=(x, y)"),
        ([fx.EarlyStopping("los")], ValueError, "EarlyStopping watches 'los', which this run does not measure"),
    ],
)  # fmt: skip
def test_what_is_no_callback_is_refused_at_the_call(callbacks, kind, said):
    with pytest.raises(kind, match=re.escape(said)):
        fit(with_a_figure, callbacks=callbacks)


def test_a_figure_that_does_not_exist_is_refused_with_those_that_do():
    options = {"validation": True, "metrics": {"error": mean_square}}
    with pytest.raises(ValueError, match=r"'accuracy', .* it has loss, bias, val_loss, error$"):
        fit(with_a_figure, callbacks=[fx.EarlyStopping("accuracy", mode="max")], **options)
    for name in ("loss", "bias", "val_loss", "error"):
        fit(with_a_figure, callbacks=[fx.EarlyStopping(name)], **options).result(WAIT)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"patience": 0}, "patience must be at least 1"), ({"mode": "auto"}, "mode='auto' is not one of 'min', 'max'"),
        ({"min_delta": -1.0}, "min_delta must be at least 0"),
    ],
)  # fmt: skip
def test_early_stopping_refuses_what_means_nothing(options, said):
    with pytest.raises(ValueError, match=said):
        fx.EarlyStopping(**options)


VALUES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0, float("nan"), float("inf")]), max_size=12)


@given(VALUES, st.integers(1, 4), st.sampled_from([0.0, 0.5, 1.5]), st.sampled_from(["min", "max"]))
def test_patience_is_its_definition(values, patience, min_delta, mode):
    """An epoch is better if it beats all that were better before; the run stops behind ``patience`` others in a row."""
    better, best = [], None
    for value in values:
        before = best if best is not None else (np.inf if mode == "min" else -np.inf)
        better.append(value < before - min_delta if mode == "min" else value > before + min_delta)
        best = value if better[-1] else best
    early, run = fx.EarlyStopping("figure", patience, min_delta, mode), Counted()
    for _ in range(2):
        run.stops = 0
        early.on_train_begin(run)
        for epoch, value in enumerate(values, 1):
            early.on_epoch_end(run, {"epoch": epoch, "figure": value})
            behind = better[:epoch][-patience:]
            if len(behind) == patience and not any(behind):
                assert run.stops
                break
            assert not run.stops
