"""The page on Dask's dashboard, fetched as a browser fetches it; and what the scheduler keeps for it."""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.request
from dataclasses import asdict

import numpy as np
import pytest

import futurex as fx
from futurex.runtime.cluster.watching import KEPT_RUNS, TrainingPlugin
from futurex.runtime.traffic import Traffic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def squares(w, x, y):
    return ((x @ w - y) ** 2).mean()


def _train(cluster, name="squares", epochs=200):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 30))
    run = fx.fit(
        squares, np.zeros((30, 20)), (x, x @ np.ones((30, 20))), optimizer=fx.optim.sgd(0.01), epochs=epochs,
        batch_size=16, on=cluster, progress=False, name=name,
    )  # fmt: skip
    run.result(100)
    return run


def _until(look, otherwise):
    end = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < end, otherwise
        time.sleep(0.05)
    return found


def _get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.status == 200
        return answer.read().decode()


def test_the_page_shows_a_run():
    pytest.importorskip("bokeh")
    from bokeh.client import pull_session

    with fx.Cluster(2) as cluster:
        url = cluster.dashboard
        assert url.endswith("/individual-futurex-training")
        assert "futurex: training" in _get(url)
        panes = json.loads(_get(url.rpartition("/")[0] + "/individual-plots.json"))
        assert "/individual-futurex-training" in panes.values()
        run = _train(cluster)
        session = pull_session(url=url)
        try:
            document = session.document
            steps = document.select_one({"name": "loss"}).renderers[0].data_source.data
            assert len(steps["step"]) == len(steps["loss"]) > 0
            assert list(steps["step"]) == sorted(steps["step"])
            assert 0 < steps["step"][-1] <= run.step
            assert all(np.isfinite(steps["loss"]))
            assert max(steps["samples_per_second"]) > 0
            shares = document.select_one({"name": "communication"}).renderers[0].data_source.data
            assert list(shares["rank"]) == [0, 1]
            for exposed, hidden in zip(shares["exposed"], shares["hidden"], strict=True):
                assert 0 <= exposed <= 1
                assert 0 <= hidden <= 1
            assert "squares" in document.select_one({"name": "headline"}).text
            assert run._work.name in document.select_one({"name": "run"}).options
        finally:
            session.close()


def test_the_page_is_added_to_a_dashboard_that_stands():
    """A scheduler that was started without futurex gets the page from the first cluster that attaches."""
    pytest.importorskip("bokeh")
    import subprocess
    import sys

    code = (
        "import time, sys; from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address='127.0.0.1:0') as cluster:\n"
        "        print(cluster.scheduler_address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        try:
            address = it.stdout.readline().strip()
            for _ in range(2):
                with fx.Cluster(address) as cluster:
                    assert "futurex: training" in _get(cluster.dashboard)
                    assert "<html" in _get(cluster.dashboard.rpartition("/")[0] + "/status")
        finally:
            it.stdin.close()
            it.wait(60)


# Chromium asks hosts of its maker for things at every start unless told not to.
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture
def browser():
    """A headless Chromium: the one `CHROMIUM` names, else the system's, else the one that playwright installed."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with playwright.sync_playwright() as play:
        try:
            browser = play.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        except playwright.Error as error:
            pytest.skip(f"no browser: {error}")
        yield browser
        browser.close()


@pytest.mark.browser
@pytest.mark.timeout(300)
def test_a_browser_draws_the_page(browser):
    pytest.importorskip("bokeh")
    with fx.Cluster(2) as cluster:
        page = browser.new_page()
        page.set_default_timeout(120_000)
        errors, requests = [], []
        page.on("pageerror", lambda error: errors.append(error))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(cluster.dashboard)
        page.wait_for_selector("text=No training run has said anything yet")
        _train(cluster, "drawn")
        page.wait_for_selector("text=/drawn-.*epoch .* localities/")
        assert page.locator("canvas").count() >= 4
        page.reload()
        page.wait_for_selector("text=/drawn-.*epoch .* localities/")
        assert not errors
        assert all(url.startswith(cluster.dashboard.rpartition("/")[0]) for url in requests), requests


@pytest.mark.parametrize("options", [{}, {"commit_every": 10}], ids=["plain", "elastic"])
def test_what_the_scheduler_keeps_of_a_run(options):
    data = (np.ones((64, 3)), np.ones((64, 2)))
    with fx.Cluster(2) as cluster:
        run = fx.fit(squares, np.zeros((3, 2)), data, epochs=20, batch_size=16, on=cluster, progress=False, **options)
        run.result(60)
        [watched] = cluster.client.run_on_scheduler(_watched)
    assert watched["ranks"] == [0, 1]
    assert watched["epochs"] == 20
    assert 0 < watched["step"] <= run.step


def _watched(dask_scheduler):
    runs = dask_scheduler.plugins[TrainingPlugin.name].runs.values()
    return [
        {"ranks": sorted(run.share), "epochs": len(run.epochs), "step": run.steps[-1]["step"]}
        for run in runs if run.steps
    ]  # fmt: skip


def test_what_the_scheduler_keeps():
    plugin = TrainingPlugin()
    plugin.log_event("all", {"action": "add-worker"})
    plugin.log_event("futurex-membership", {"left": "tcp://127.0.0.1:1"})
    plugin.log_event("futurex-a", {"run": "a", "rank": 0, "event": "text"})
    plugin.log_event("futurex-a", {"run": "a", "rank": 0, "event": {"progress": 1}})
    assert plugin.runs["a"].headline == "a: no step yet"
    for step in (1, 5):
        event = {"kind": "step", "step": step, "epoch": 1, "loss": 1 / step, "rate": 10.0, "at": float(step)}
        plugin.log_event("futurex-a", {"run": "a", "rank": 0, "event": event})
    assert [point["steps_per_second"] for point in plugin.runs["a"].steps] == [0.0, 1.0]
    total = Traffic(steps=2, seconds=1.0, exchanges=2, exchanged_bytes=4_000_000, communication=0.5, exposed=0.25)
    traffic = {"kind": "traffic", "generation": 0}
    plugin.log_event("futurex-a", {"run": "a", "rank": 1, "event": {**traffic, "step": 2, **asdict(total)}})
    later = total + Traffic(
        steps=2, seconds=2.0, exchanges=2, exchanged_bytes=2_000_000, communication=1.0, exposed=0.0
    )
    plugin.log_event("futurex-a", {"run": "a", "rank": 1, "event": {**traffic, "step": 4, **asdict(later)}})
    assert plugin.runs["a"].share == {1: {"exposed": 0.0, "hidden": 0.5, "megabytes_per_second": 1.0, "steps": 4}}
    again = {**traffic, "generation": 1, "step": 5}  # is counted from zero
    plugin.log_event("futurex-a", {"run": "a", "rank": 1, "event": {**again, **asdict(total)}})
    late = {**traffic, "step": 4, **asdict(later)}  # of the generation before
    plugin.log_event("futurex-a", {"run": "a", "rank": 1, "event": late})
    assert plugin.runs["a"].share[1]["steps"] == total.steps
    assert plugin.runs["a"].share[1]["exposed"] == total.exposed / total.seconds
    assert "step 5, loss 0.2, 10 samples/s, 1 localities" in plugin.runs["a"].headline
    for number in range(KEPT_RUNS):
        plugin.log_event("futurex-a", {"run": str(number), "rank": 0, "event": {}})
    assert len(plugin.runs) == KEPT_RUNS
    assert "a" not in plugin.runs
