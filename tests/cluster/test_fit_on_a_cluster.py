"""Training on localities: the numbers of one, samples seen once, and a clear end when a worker dies."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import futurex as fx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def loss(params, x, y):
    hidden = np.tanh(x @ params["w1"] + params["b1"])
    return fx.nn.softmax_cross_entropy(hidden @ params["w2"] + params["b2"], y).mean()


def _problem(n=61):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(n, 5)), rng.integers(0, 3, n)
    params = {
        "w1": rng.normal(size=(5, 8)) * 0.3, "b1": np.zeros(8), "w2": rng.normal(size=(8, 3)) * 0.3, "b2": np.zeros(3),
    }  # fmt: skip
    return params, (x, y)


@pytest.fixture(scope="module", params=["local", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
def cluster_by(request):
    """A cluster of each transport."""
    try:
        made = fx.Cluster(2, transport=request.param)
    except ImportError as error:
        pytest.skip(str(error))
    with made as cluster:
        yield cluster


@pytest.mark.parametrize("optimizer", [fx.optim.sgd(0.1, momentum=0.9), fx.optim.adam(1e-2)], ids=["momentum", "adam"])
def test_two_localities_train_as_one(cluster_by, optimizer):
    params, data = _problem()
    options = {"optimizer": optimizer, "epochs": 3, "batch_size": 16, "seed": 5, "progress": False}
    alone = fx.fit(loss, params, data, **options)
    want = alone.result(120)
    run = fx.fit(loss, params, data, on=cluster_by, **options)
    got = run.result(120)
    for name in params:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([r["loss"] for r in run.history], [r["loss"] for r in alone.history], rtol=1e-9)
    assert run.step == alone.step == 3 * 4  # 61 samples in batches of 16, the last of 13
    assert all(0.0 <= record["hidden_comm_share"] <= 1.0 for record in run.history)


def test_a_floating_point_error_names_line_step_and_locality():
    def mean_log(params, x):
        return np.log(x @ params).mean()

    x = np.ones((8, 3))
    with fx.Cluster(2) as cluster, np.errstate(divide="raise"):
        good = fx.fit(mean_log, np.ones(3), (x,), on=cluster, batch_size=8, progress=False)
        assert np.isfinite(good.result(120)).all()
        x[:] = 0.0
        bad = fx.fit(mean_log, np.ones(3), (x,), on=cluster, batch_size=8, progress=False)
        with pytest.raises(FloatingPointError, match="divide by zero") as caught:
            bad.result(120)
    told = "\n".join(caught.value.__notes__)
    assert "np.log(x @ params).mean()" in told
    assert "in step 1, on locality" in told


STRATEGIES = {
    "parts": {"accumulate": 3},
    "zero 1": {"strategy": fx.strategy.zero(1), "accumulate": 2},
    "zero 2": {"strategy": fx.strategy.zero(2), "accumulate": 2},
    "cross barrier": {"strategy": fx.strategy.cross_barrier(0.5)},
    "server": {"strategy": fx.strategy.parameter_server()},
    "averaging": {"strategy": fx.strategy.local_sgd(1), "optimizer": fx.optim.sgd(0.1)},
}


def test_strategies_train_as_one_locality_does(cluster):
    params, data = _problem()
    params["w1"], params["b1"], params["w2"] = np.zeros((5, 300)), np.linspace(-1, 1, 300), np.ones((300, 3)) / 300
    options = {"optimizer": fx.optim.adam(1e-2), "epochs": 2, "batch_size": 20, "seed": 5, "progress": False}
    data = tuple(array[:60] for array in data)  # equal shares
    for name, strategy in STRATEGIES.items():
        taken = {**options, **strategy}
        got = fx.fit(loss, params, data, on=cluster, **taken).result(120)
        taken.pop("strategy", None)
        want = fx.fit(loss, params, data, **taken).result(60)
        for leaf in params:
            np.testing.assert_allclose(got[leaf], want[leaf], rtol=1e-9, atol=1e-12, err_msg=f"{name}: {leaf}")


def test_a_server_that_waits_for_nobody_trains_too(cluster):
    params, data = _problem()
    run = fx.fit(
        loss, params, data, on=cluster, strategy=fx.strategy.parameter_server(None), optimizer=fx.optim.sgd(0.1),
        epochs=20, batch_size=16, progress=False,
    )  # fmt: skip
    run.result(120)
    assert run.history[-1]["loss"] < 0.9 * run.history[0]["loss"]
    assert all(counters.exchanges > 20 * 4 for counters in run.counters)


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(2) as cluster:
        yield cluster


@pytest.mark.parametrize("strategy", [fx.strategy.all_reduce(), fx.strategy.parameter_server(2)], ids=str)
def test_a_worker_killed_during_fit_is_named(strategy):
    params, data = _problem(4096)
    with fx.Cluster(2) as cluster:
        run = fx.fit(
            loss, params, data, epochs=100_000, batch_size=32, on=cluster, progress=False, name="doomed",
            strategy=strategy,
        )  # fmt: skip
        end = time.monotonic() + 120
        while run.step < 10 and time.monotonic() < end:
            time.sleep(0.02)
        assert run.step >= 10, "the run did not start"
        victim = cluster.addresses[1]
        os.kill(cluster.client.run(os.getpid)[victim], signal.SIGKILL)
        with pytest.raises(fx.LocalityLost, match=r"locality 1 .*lost") as caught:
            run.result(120)
        assert caught.value.address == victim
        assert run.status == "failed"
        with pytest.raises(fx.LocalityLost):
            fx.fit(loss, params, data, on=cluster, progress=False).result(120)


def test_an_error_in_the_loss_reaches_the_driver_with_the_users_line(cluster):
    params, (x, y) = _problem()
    y = y.copy()
    y[40] = 7  # a label that does not exist
    with pytest.raises(IndexError) as caught:
        fx.fit(loss, params, (x, y), epochs=1, batch_size=61, on=cluster, progress=False).result(120)
    assert "test_fit_on_a_cluster.py" in "\n".join(getattr(caught.value, "__notes__", []))


def _normalised(local, params, x, y):
    hidden, *_ = fx.nn.batch_norm(x @ params["w"], params["scale"], params["shift"], local=local)
    return ((np.tanh(hidden).sum(axis=1) - y) ** 2).mean()


def _by_own_statistics(params, x, y):
    return _normalised(True, params, x, y)


def test_batches_may_be_normalised_by_each_localitys_own_statistics(cluster):
    """A step is that of the mean over the shares of a batch, each of which is normalised on its own."""
    rng = np.random.default_rng(4)
    x, y, n = rng.normal(size=(14, 5)), rng.normal(size=14), 8  # the last batch has 6 rows
    params = {"w": rng.normal(size=(5, 3)), "scale": np.ones(3), "shift": np.zeros(3)}
    options = {"optimizer": fx.optim.sgd(0.1), "epochs": 3, "batch_size": n, "seed": 5, "progress": False}
    run = fx.fit(_by_own_statistics, params, (x, y), on=cluster, **options)
    sampler, want = fx.data.Sampler(14, n, 5), params
    gradient = fx.grad(lambda params, x, y: _normalised(False, params, x, y))
    for epoch in range(3):
        for rows in sampler.epoch(epoch):
            shares = [sampler.share(rows, rank, 2) for rank in range(2)]
            found = [gradient(want, x[share], y[share]) for share in shares]
            want = {
                name: value - 0.1 * sum(len(share) / len(rows) * np.asarray(grads[name])
                                        for share, grads in zip(shares, found, strict=True))
                for name, value in want.items()
            }  # fmt: skip
    got = run.result(120)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-12)
    other = fx.fit(_by_own_statistics, params, (x, y), **options).result(120)
    assert not np.allclose(got["w"], other["w"], rtol=1e-3)  # on one locality it is another training


def test_compressed_gradients_train_too(cluster):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 48)).astype(np.float32)
    truth = rng.normal(size=(48, 32)).astype(np.float32)
    for compression in ("bf16", "topk:0.2", "powersgd:2"):
        run = fx.fit(
            _squares, np.zeros((48, 32), np.float32), (x, x @ truth), optimizer=fx.optim.sgd(0.5), epochs=30,
            batch_size=64, on=cluster, progress=False, compression=compression,
        )  # fmt: skip
        run.result(120)
        losses = [record["loss"] for record in run.history]
        assert losses[-1] < 0.2 * losses[0], compression
    with pytest.raises(ValueError, match="compression='zip' is not"):
        fx.fit(_squares, np.zeros((48, 32), np.float32), (x, x @ truth), compression="zip")


def _squares(w, x, y):
    return ((x @ w - y) ** 2).mean()


@pytest.mark.parametrize("options", [{}, {"commit_every": 3}], ids=["plain", "elastic"])
def test_a_folder_of_checkpoints_is_where_the_driver_says(cluster, options, tmp_path, monkeypatch):
    """Its workers stand in other folders: those of a cluster that stands always do."""
    params, data = _problem()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    options = {"batch_size": 16, "on": cluster, "checkpoint": "run", "progress": False, **options}
    first = fx.fit(loss, params, data, epochs=2, checkpoint_every=3, **options)
    monkeypatch.chdir("elsewhere")
    first.result(120)
    assert [path.name for path in sorted((tmp_path / "run").iterdir())] == [f"step-00000{n}" for n in (3, 6, 8)]
    assert first.saved == tmp_path / "run" / "step-000008"
    monkeypatch.chdir(tmp_path)
    second = fx.fit(loss, params, data, epochs=3, resume=True, **options)
    second.result(120)
    assert second.step == 12
    assert [each["loss"] for each in second.history[:2]] == [each["loss"] for each in first.history]

