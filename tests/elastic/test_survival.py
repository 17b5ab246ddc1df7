"""Real workers under faults: training goes on, and its result is the right one."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from distributed import LocalCluster

import futurex as fx
from futurex.errors import MissingExtra
from futurex.runtime import points
from futurex.runtime.cluster.membership import workers_of
from futurex.training import saving
from futurex.training.checkpoint import Checkpoint, CheckpointError, latest, load, newest, save
from tests.elastic.campaign import EPOCHS, EVERY, STALL, exact, expected, problem, schedule, trial
from tests.elastic.faults import MODES, POINTS, Fault, arm, struck

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 240.0


@pytest.fixture(scope="module")
def right():
    return expected()


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(2) as started:
        yield started


def workers(cluster):
    return workers_of(cluster.client)


def until(condition, what, seconds=WAIT):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def sizes(run):
    return [len(each["workers"]) for each in run.generations if each["what"] == "started"]


@pytest.mark.parametrize("mode", MODES)
def test_every_fault_at_every_point(cluster, mode):
    seconds = STALL + 1.0 if mode == "stop" else 0.0
    faults = [Fault(point, 20 + 60 * number, mode, None, seconds) for number, point in enumerate(POINTS)]
    run, hit, _ = trial(cluster, faults, WAIT, least=2)  # alone, a locality has neither socket nor all-reduce
    assert hit == [0, 1, 2, 3]
    assert len(sizes(run)) > 4


def test_random_faults(cluster):
    for seed in (5, 6):
        trial(cluster, schedule(random.Random(seed), 4), WAIT)


@pytest.mark.parametrize("transport", ["tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
def test_faults_over_one_transport_alone(transport):
    faults = [Fault("all-reduce", 20, "socket", 0), Fault("step", 60, "kill", 1), Fault("commit", 110, "socket", 1)]
    try:
        cluster = fx.Cluster(2, transport=transport)
    except MissingExtra as error:
        pytest.skip(str(error))
    with cluster:
        run, hit, _ = trial(cluster, faults, WAIT, least=2)
    assert hit == [0, 1, 2]
    assert not [each for each in run.generations if each["reason"].startswith("failed")]  # the program has no fault


@pytest.mark.parametrize("strategy", ["zero(2)", "cross_barrier", "server", "local_sgd"])
def test_every_strategy_survives(cluster, strategy):
    """One locality dies, and another comes; one stops for so long that it is left out, and comes back."""
    faults = [Fault("step", 40, "kill", 1), Fault("commit", 120, "stop", 0, STALL + 1.0)]
    run, hit, _ = trial(cluster, faults, WAIT, least=2, strategy=strategy)
    assert hit == [0, 1]
    steps = [each["step"] for each in run.generations if each["what"] == "started"]
    assert steps == sorted(steps)  # what one of two localities has at least is never lost
    assert steps[-1] >= 120 - 2 * EVERY


def test_the_best_parameters_survive_those_who_saw_them(cluster, tmp_path):
    """Each locality dies once behind the best epoch, which was the first, and commits of later steps bring it back."""
    params, data, options = problem()
    batches = len(data[0]) // options["batch_size"]
    arm(cluster.client, tmp_path, [Fault("step", 3 * batches, "kill", 0), Fault("step", 5 * batches, "kill", 1)])
    early = fx.EarlyStopping("loss", mode="max", patience=EPOCHS, restore_best_weights=True)
    run = fx.fit(
        exact, params, data, on=cluster, commit_every=EVERY, min_workers=2, stall_seconds=STALL, callbacks=[early],
        **options,
    )  # fmt: skip
    found = run.result(WAIT)
    assert struck(tmp_path) == [0, 1]
    losses = [record["loss"] for record in run.history]
    assert early.best_epoch == 1 + losses.index(max(losses)) < 3
    best = fx.fit(exact, params, data, **{**options, "epochs": early.best_epoch}).result(WAIT)
    for part in best:
        np.testing.assert_array_equal(found[part], best[part], err_msg=part)


def _mute():
    """As if the connection of whoever ends the first two epochs broke before the scheduler had read of them."""
    from futurex.runtime.elastic.member import ElasticLocality

    emit = ElasticLocality.emit

    def heard(self, event):
        if event["kind"] != "epoch" or event["epoch"] > 2:
            emit(self, event)

    ElasticLocality.emit = heard


def test_epochs_that_somebody_ended_whom_nobody_heard_are_told_by_the_next(tmp_path):
    params, data, options = problem()
    batches, told = len(data[0]) // options["batch_size"], []
    with fx.Cluster(2) as started:
        started.client.run(_mute)
        arm(started.client, tmp_path, [Fault("step", 3 * batches, "kill", 0)])
        run = fx.fit(
            exact, params, data, on=started, commit_every=EVERY, stall_seconds=STALL,
            callbacks=[lambda _, record: told.append(record["epoch"])], **options,
        )  # fmt: skip
        run.result(WAIT)
    assert struck(tmp_path) == [0]
    assert told == [record["epoch"] for record in run.history] == list(range(1, EPOCHS + 1))


def test_who_wakes_first_waits_for_those_who_have_the_other_shards():
    """All stop at once for so long that all are left out; the first one that comes back has two of three shards."""
    seconds = [STALL + 2.0, STALL + 8.0, STALL + 8.0]
    faults = [Fault("step", 60, "stop", rank, each) for rank, each in enumerate(seconds)]
    with fx.Cluster(3) as three:
        run, hit, _ = trial(three, faults, WAIT, least=1, strategy="zero(2)")
    assert hit == [0, 1, 2]
    assert [each for each in run.generations if each["what"] == "waiting" and "may hold" in each["reason"]]
    steps = [each["step"] for each in run.generations if each["what"] == "started"]
    assert steps == sorted(steps)
    assert max(steps) >= 60 - 2 * EVERY
    assert not [each for each in run.generations if "lost" in each["reason"]]


def test_other_networks_agree_to_rounding_and_history_is_whole(cluster, tmp_path):
    def loss(params, x, y):
        hidden = np.tanh(x @ params["w1"] + params["b1"])
        return fx.nn.softmax_cross_entropy(hidden @ params["w2"], y).mean()

    rng = np.random.default_rng(7)
    data = rng.normal(size=(61, 5)), rng.integers(0, 3, 61)
    params = {"w1": rng.normal(size=(5, 8)) * 0.3, "b1": np.zeros(8), "w2": rng.normal(size=(8, 3)) * 0.3}
    options = {
        "optimizer": fx.optim.sgd(0.1, momentum=0.9), "epochs": 12, "batch_size": 16, "seed": 5, "progress": False,
        "validation": data, "metrics": {"first": lambda params, x, y: (x @ params["w1"]).mean()},
    }  # fmt: skip
    alone = fx.fit(loss, params, data, **options)
    want = alone.result(WAIT)
    faults = [Fault("all-reduce", 10, "kill", 0), Fault("step", 31, "socket")]
    arm(cluster.client, tmp_path, faults)
    until(lambda: len(workers(cluster)) == 2, "the workers did not come back")
    run = fx.fit(loss, params, data, on=cluster, commit_every=5, stall_seconds=STALL, **options)
    got = run.result(WAIT)
    assert 0 in struck(tmp_path)
    for name in params:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(run.history, alone.history, strict=True):
        assert mine["epoch"] == theirs["epoch"]
        for figure in ("loss", "val_loss", "first"):
            assert mine[figure] == pytest.approx(theirs[figure], rel=1e-9)


def counting(params, which):
    return (which @ params).mean()


def test_every_example_is_seen_once_an_epoch_whoever_comes_and_goes(cluster, tmp_path):
    """Plain descent along counts: the parameter of an example is minus the number of times it was seen."""
    n, epochs = 64, 100
    until(lambda: len(workers(cluster)) == 2, "the workers did not come back")
    faults = [Fault("step", 100, "kill", 1), Fault("commit", 250, "exit", 0)]
    arm(cluster.client, tmp_path, faults)
    run = fx.fit(
        counting, np.zeros(n), np.eye(n), optimizer=fx.optim.sgd(8.0), epochs=epochs, batch_size=8, on=cluster,
        commit_every=9, stall_seconds=STALL, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(run.result(WAIT), np.full(n, -epochs))
    assert struck(tmp_path) == [0, 1]


def test_workers_join_and_leave_while_it_trains():
    n, batch = 64, 8
    with fx.Cluster(1) as cluster:
        run = fx.fit(
            counting, np.zeros(n), np.eye(n), optimizer=fx.optim.sgd(8.0), epochs=10**6, batch_size=batch, on=cluster,
            commit_every=EVERY, stall_seconds=STALL, progress=False,
        )  # fmt: skip
        until(lambda: run.step > 10, "the run did not start")
        for size in (3, 2):
            cluster.scale(size)
            until(lambda size=size: sizes(run)[-1] == size, f"the run did not go on with {size} workers")
            step = run.step
            until(lambda step=step: run.step > step + 10, "the run did not go on")
        run.stop()
        seen = -run.result(WAIT)
    assert run.status == "stopped"
    assert seen.sum() == run.step * batch
    assert seen.max() - seen.min() <= 1  # not one was left out or seen twice, wherever in the epoch the run was stopped


@pytest.mark.parametrize("strategy", ["all_reduce", "zero"])
def test_workers_that_are_to_leave_commit_before(strategy):
    """There are no other commits: what is lost with them would begin again at step 0."""
    n, batch = 128, 8
    with fx.Cluster(3) as cluster:
        run = fx.fit(
            counting_rows, np.zeros((n, 8)), np.eye(n), optimizer=fx.optim.sgd(8.0, momentum=1e-9), epochs=10**6,
            batch_size=batch, on=cluster, commit_every=10**9, progress=False, strategy=getattr(fx.strategy, strategy)(),
        )  # fmt: skip
        until(lambda: run.step > 10, "the run did not start")
        cluster.scale(1)
        until(lambda: sizes(run)[-1] == 1, "the run did not go on with one worker")
        step = run.step
        until(lambda: run.step > step, "the run did not go on")
        run.stop()
        run.result(WAIT)
    later = [each for each in run.generations if each["generation"] > 1]
    assert all(each["step"] > 10 for each in later if each["what"] == "started")
    assert all(each["reason"] == "workers leave" for each in later if each["what"] == "forming")


def counting_rows(params, which):
    return (which @ params).sum(axis=1).mean()


def test_a_cluster_that_adapts_keeps_and_gets_the_workers_that_a_run_may_have():
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as workers_:
        workers_.adapt(minimum=1, maximum=5, interval="50 ms", wait_count=2)
        with fx.Cluster(workers_) as cluster:
            run = fx.fit(
                counting, np.zeros(64), np.eye(64), optimizer=fx.optim.sgd(8.0), epochs=10**6, batch_size=8, on=cluster,
                commit_every=EVERY, max_workers=2, progress=False,
            )  # fmt: skip
            until(lambda: 2 in sizes(run), "no worker was added")
            step = run.step
            until(lambda: run.step > step + 10, "the run did not go on")
            assert max(sizes(run)) == 2
            run.stop()
            run.result(WAIT)
            until(lambda: len(workers(cluster)) == 1, "the cluster does not shrink when the run is over")


def test_a_run_begins_while_its_workers_die(cluster, right):
    params, data, options = problem()
    for process in cluster.client.run(os.getpid).values():
        os.kill(process, signal.SIGKILL)
    # the scheduler may know of none, some or all of the deaths by now
    run = fx.fit(exact, params, data, on=cluster, commit_every=EVERY, stall_seconds=STALL, **options)
    np.testing.assert_array_equal(run.result(WAIT)["w"], right[0]["w"])


def test_too_few_workers_are_waited_for_and_named(cluster):
    params, data, options = problem()
    run = fx.fit(exact, params, data, on=cluster, commit_every=5, min_workers=9, wait_seconds=0.5, **options)
    with pytest.raises(fx.TooFewWorkers, match="needs 9 workers"):
        run.result(WAIT)
    assert [each["what"] for each in run.generations] == ["waiting"]


def test_an_error_of_the_loss_is_raised_after_a_second_try(cluster):
    def wrong(params, labels):
        return fx.nn.softmax_cross_entropy(params + np.zeros((8, 3)), labels).mean()

    run = fx.fit(
        wrong, np.zeros((1, 3)), np.array([0, 1, 2, 0, 1, 2, 0, 7]), batch_size=8, on=cluster, commit_every=5,
        progress=False,
    )  # fmt: skip
    with pytest.raises(IndexError, match="labels from") as caught:
        run.result(WAIT)
    assert [note for note in caught.value.__notes__ if note.startswith("raised on the worker tcp://127.0.0.1:")]
    assert run.status == "failed"


def test_two_runs_of_one_name_are_refused_and_unknown_ones_named(cluster):
    params, data, options = problem()
    run = fx.fit(exact, params, data, on=cluster, commit_every=5, name="twice", **{**options, "epochs": 10**6})
    with pytest.raises(ValueError, match="'twice' already"):
        fx.fit(exact, params, data, on=cluster, commit_every=5, name="twice", **options)
    again = fx.attach("twice", cluster)
    until(lambda: again.step > 0, "nothing is heard of the run")
    again.stop()
    again.result(WAIT)
    assert run.result(WAIT)["w"].tolist() == again.params["w"].tolist()
    with pytest.raises(LookupError, match=r"no elastic run 'never'.*'twice'"):
        fx.attach("never", cluster)
    with pytest.raises(TypeError, match=r"fx\.Cluster"):
        fx.attach("twice", "here")
    with pytest.raises(LookupError, match=r"no run 'twice'.*fx\.Cluster"):
        fx.attach("twice")


@pytest.fixture
def standing(tmp_path):
    """Where a scheduler is, which has a process of its own, and that of each of two workers."""
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    where = tmp_path / "scheduler.json"
    scheduler = start(
        "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(where)
    )
    until(lambda: where.exists() and where.read_text().endswith("}"), "the scheduler did not start")
    address = json.loads(where.read_text())["address"]
    options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
    try:
        yield address, scheduler, [start("dask_worker", address, *options) for _ in range(2)]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


DRIVER = """
import sys, time
import futurex as fx
from tests.elastic.campaign import exact, problem
if __name__ == "__main__":
    params, data, options = problem()
    cluster = fx.Cluster(sys.argv[1], timeout=60)
    while cluster.size < 2:
        cluster.close()
        cluster = fx.Cluster(sys.argv[1], timeout=60)
    run = fx.fit(exact, params, data, on=cluster, commit_every=7, checkpoint=sys.argv[2], checkpoint_every=20,
                 name="orphan", **{**options, "epochs": int(sys.argv[3])})
    end = time.monotonic() + 120
    while run.step < 30:
        assert time.monotonic() < end, run
        time.sleep(0.01)
    print("trains", flush=True)
    time.sleep(600)
"""


def _driver(address, folder, epochs):
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, address, str(folder), str(epochs)], stdout=subprocess.PIPE)
    assert driver.stdout.readline() == b"trains\n"
    return driver


def test_a_run_outlives_its_driver_and_others_attach(standing, right, tmp_path):
    address, *_ = standing
    driver = _driver(address, tmp_path / "run", EPOCHS)
    driver.kill()
    driver.wait()
    with fx.Cluster(address, timeout=60) as cluster:
        run = fx.attach("orphan", cluster)
        got = run.result(WAIT)
        want, history = right
        for name in want:
            np.testing.assert_array_equal(got[name], want[name])
        np.testing.assert_allclose(
            [each["loss"] for each in run.history], [each["loss"] for each in history], rtol=1e-9
        )
        assert run.saved == latest(tmp_path / "run")


def test_a_run_whose_scheduler_dies_goes_on_from_the_disk(standing, right, tmp_path, monkeypatch):
    address, scheduler, their_workers = standing
    folder = tmp_path / "run"
    driver = _driver(address, folder, 10**6)
    until(lambda: latest(folder) is not None, "no checkpoint was written")
    with fx.Cluster(address, timeout=60) as cluster:
        run = fx.attach("orphan", cluster)
        os.killpg(scheduler.pid, signal.SIGKILL)
        monkeypatch.setattr("futurex.runtime.cluster.elastic_run._UNREACHABLE", 1.0)
        with pytest.raises(fx.ClusterUnreachable, match="resume=True"):
            run.stop()
        with pytest.raises(fx.ClusterUnreachable, match="resume=True"):
            run.result(WAIT)
        for act in (lambda: fx.attach("orphan", cluster), lambda: cluster.dashboard):
            with pytest.raises(fx.ClusterUnreachable, match="make a new"):
                act()
    driver.kill()
    driver.wait()
    for worker in their_workers:  # they end without a scheduler, and may have written another checkpoint until then
        worker.wait(WAIT)
    found, _ = newest(folder)
    params, data, options = problem()
    epochs = found.step // 9 + 2
    with fx.Cluster(2) as cluster:
        resumed = fx.fit(
            exact, params, data, on=cluster, commit_every=EVERY, checkpoint=folder, resume=True,
            **{**options, "epochs": epochs},
        )  # fmt: skip
        got = resumed.result(WAIT)
    want = fx.fit(exact, params, data, **{**options, "epochs": epochs}).result(WAIT)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
    assert len(resumed.history) == epochs


def test_checkpoints_that_cannot_be_written_end_the_run(cluster, tmp_path):
    folder = tmp_path / "run"
    run = fx.fit(
        noisy, {"w": np.zeros(3, np.float32)}, (np.ones((64, 3), np.float32), np.ones(64, np.float32)), on=cluster,
        epochs=10**6, batch_size=16, commit_every=5, min_workers=1, checkpoint=folder, checkpoint_every=20,
        progress=False,
    )  # fmt: skip
    until(lambda: latest(folder) is not None, "no checkpoint was written")
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("no folder any more")
    with pytest.raises(OSError, match=re.escape(str(folder))):
        run.result(60)


# -- from the disk, in this process ------------------------------------------------------------------------------------


def noisy(params, x, y, key):
    return ((fx.nn.dropout(x, 0.2, key) @ params["w"] - y) ** 2).mean()


def _noisy(width=3, **more):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(50, width)).astype(np.float32)
    options = {"optimizer": fx.optim.adam(0.01), "batch_size": 16, "seed": 3, "progress": False, **more}
    return fx.fit(noisy, {"w": np.zeros(width, np.float32)}, (x, x.sum(1)), **options)


def test_resuming_is_bit_exact(tmp_path):
    want = _noisy(epochs=9)
    folder = tmp_path / "run"
    first = _noisy(epochs=5, checkpoint=folder, checkpoint_every=3)
    first.result(WAIT)
    assert [path.name[-3:] for path in sorted(folder.iterdir())] == ["003", "006", "009", "012", "015", "018", "020"]
    (folder / "step-000020").rename(tmp_path / "step-000020")  # as if it had died in the middle of its last epoch
    (folder / "step-000018" / "params.safetensors").write_bytes(b"torn")
    damaged = "step-000018 is refused: params.safetensors does not match its checksum"
    with pytest.warns(RuntimeWarning, match=re.escape(damaged)) as warned:
        second = _noisy(epochs=9, checkpoint=folder, resume=True)
    assert [each.filename for each in warned] == [__file__]
    np.testing.assert_array_equal(second.result(WAIT)["w"], want.result(WAIT)["w"])
    assert [each["loss"] for each in second.history] == [each["loss"] for each in want.history]
    assert second.step == want.step == 36


def test_resuming_where_all_checkpoints_are_damaged_is_refused(tmp_path):
    _noisy(epochs=2, checkpoint=tmp_path, checkpoint_every=3).result(WAIT)
    folders = sorted(tmp_path.iterdir())
    for folder in folders:
        (folder / "params.safetensors").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match=r"step-000008 is refused: .*checksum.* name another folder"):
        _noisy(epochs=3, checkpoint=tmp_path, resume=True)
    assert sorted(tmp_path.iterdir()) == folders


def test_a_run_that_was_stopped_in_an_epoch_is_resumed_there(tmp_path):
    stopped = _noisy(epochs=10**6, checkpoint=tmp_path / "run")
    until(lambda: stopped.step > 5, "the run did not start")
    stopped.stop()
    stopped.result(WAIT)
    epochs = stopped.step // 4 + 2
    resumed, want = _noisy(epochs=epochs, checkpoint=tmp_path / "run", resume=True), _noisy(epochs=epochs)
    np.testing.assert_array_equal(resumed.result(WAIT)["w"], want.result(WAIT)["w"])
    assert [each["loss"] for each in resumed.history] == [each["loss"] for each in want.history]


def has_another_disk():
    saving.newest = lambda folder: newest(folder / "elsewhere")
    saving.load = lambda folder: load(folder / "elsewhere")


@pytest.mark.parametrize("options", [{}, {"commit_every": 3}], ids=["plain", "elastic"])
def test_a_run_does_not_begin_anew_where_a_worker_does_not_see_its_checkpoint(options, tmp_path):
    _noisy(epochs=2, checkpoint=tmp_path).result(WAIT)
    with fx.Cluster(1) as cluster:
        cluster.client.run(has_another_disk)
        run = _noisy(epochs=3, checkpoint=tmp_path, resume=True, on=cluster, **options)
        with pytest.raises(CheckpointError, match="it is not there; a run's driver and workers all need to see its"):
            run.result(WAIT)


def test_a_checkpoint_thread_that_fails_fails_the_run(tmp_path):
    def fail(point, where):
        if point == "checkpoint":
            raise OSError("no space")

    points.hook = fail
    try:
        with pytest.raises(OSError, match="no space"):
            _noisy(epochs=5, checkpoint=tmp_path / "run", checkpoint_every=3).result(WAIT)
    finally:
        points.hook = None
    assert latest(tmp_path / "run") is None


def test_folders_that_do_not_fit_are_refused(tmp_path):
    _noisy(epochs=1, checkpoint=tmp_path / "run").result(WAIT)
    with pytest.raises(ValueError, match="resume=True, or name another folder"):
        _noisy(epochs=1, checkpoint=tmp_path / "run", checkpoint_every=2)
    save(tmp_path / "other", Checkpoint(3, {"v": np.zeros(2)}, None))
    with pytest.raises(ValueError, match="another structure"):
        _noisy(epochs=1, checkpoint=tmp_path / "other", resume=True)
    _noisy(epochs=2, checkpoint=tmp_path / "two").result(WAIT)
    for options, refused in (
        ({"epochs": 1}, "is behind the end of this run, which has 1 epochs of 4 steps"),
        ({"epochs": 4, "batch_size": 32}, "another number of steps than the 2 of this one"),
        ({"epochs": 4, "batch_size": 5}, "another number of steps than the 10 of this one"),
        ({"epochs": 4, "width": 2}, r"params/w as float32\[3\], and this run as float32\[2\]"),
    ):
        with pytest.raises(ValueError, match=refused):
            _noisy(checkpoint=tmp_path / "two", resume=True, **options)
    for option in ({"checkpoint_every": 2}, {"resume": True}):
        with pytest.raises(ValueError, match="need a folder"):
            _noisy(epochs=1, **option)
    with pytest.raises(ValueError, match="commit_every is for runs on several localities"):
        _noisy(epochs=1, commit_every=2)
