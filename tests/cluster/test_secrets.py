"""What the localities share stays between them, and nothing that comes from outside is run."""

from __future__ import annotations

import ast
import logging
import pickle
import secrets
import threading
from pathlib import Path

import numpy as np
import pytest
from distributed import LocalCluster

import futurex as fx
from futurex.runtime.transport.auth import Secret
from futurex.training.checkpoint import MANIFEST, Checkpoint, CheckpointError, load, save

pytestmark = [pytest.mark.timeout(300)]

PACKAGE = Path(fx.__file__).parent


def loss(w, x):
    return ((x @ w) ** 2).mean()


def _texts(secret):
    """All the ways in which a careless program would write it, and a list of its lines repeat that."""
    within = repr(secret[:16])[2:-1]
    return [repr(secret), within, repr(within)[1:-1], secret.hex(), str(list(secret))]


def _secret(dask_worker):
    [communicator] = dask_worker.futurex_host.sessions.values()
    return bytes(communicator.endpoint._secret)


def _words(dask_worker):
    [communicator] = dask_worker.futurex_host.sessions.values()
    held = [communicator, communicator.endpoint, dask_worker.futurex_host]
    return " ".join(map(str, (*held, *map(vars, held))))


@pytest.mark.cluster
@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_the_secret_of_a_session_is_nowhere_to_be_read(transport, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.DEBUG) as workers:
        with fx.Cluster(workers, transport=transport) as cluster:
            fx.futurize(loss).on(cluster)(np.ones(3), cluster.tile(np.ones((4, 3)))).result()
            drawn, cluster.transport = secrets.token_bytes(32), "pigeon"
            with monkeypatch.context() as patched:
                patched.setattr(secrets, "token_bytes", lambda n: drawn[:n])
                with pytest.raises(ValueError, match="there is no transport"):  # Dask logs the arguments of what fails
                    cluster._open_session()
            everything = "\n".join([
                caplog.text, repr(cluster), str(vars(cluster)), str(cluster.client.get_worker_logs()),
                str(cluster.client.get_scheduler_logs()), str(cluster.client.get_events()),
                *cluster.client.run(_words).values(),
            ])  # fmt: skip
            assert "a secret of 32 bytes" in everything  # what fails was logged, and what endpoints hold was shown
            for text in [*_texts(_first(cluster)), *_texts(drawn)]:
                assert text not in everything


def _elastic_secret(dask_worker):
    [member] = dask_worker.futurex_host.participant._members.values()
    return bytes(member._communicator.endpoint._secret)


def _words_of_what_waits(secret, dask_worker):
    """What a worker holds while the program of a run is on its way: there is none of this name."""
    participant = dask_worker.futurex_host.participant
    participant.receive("nobody's", do="form", generation=1, rank=0, size=1, secret=bytes(secret), stall=1.0)
    return str(vars(participant))


def _elastic_words(dask_worker):
    [member] = dask_worker.futurex_host.participant._members.values()
    return " ".join(map(str, (vars(member), vars(member._communicator), vars(member._communicator.endpoint))))


def _what_the_scheduler_has(dask_scheduler):
    [plugin] = [each for name, each in dask_scheduler.plugins.items() if name == "futurex-elastic"]
    return " ".join(str(vars(run)) for run in plugin._runs.values())


@pytest.mark.cluster
def test_the_secrets_of_an_elastic_run_are_nowhere_to_be_read(caplog):
    caplog.set_level(logging.DEBUG)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.DEBUG) as workers:
        with fx.Cluster(workers) as cluster:
            run = fx.fit(loss, np.ones(3), np.ones((8, 3)), epochs=10**9, on=cluster, commit_every=5, progress=False)
            heard = threading.Event()
            run._work.subscribe(lambda rank, event: heard.set() if event["kind"] == "step" else None)
            assert heard.wait(60), "the run did not start"
            secret = next(iter(cluster.client.run(_elastic_secret).values()))
            early = cluster.client.run(_words_of_what_waits, Secret(secret)).values()
            everything = "\n".join([
                caplog.text, str(vars(run)), str(cluster.client.get_worker_logs()),
                str(cluster.client.get_scheduler_logs()), str(cluster.client.get_events()),
                cluster.client.run_on_scheduler(_what_the_scheduler_has), *cluster.client.run(_elastic_words).values(),
                *early,
            ])  # fmt: skip
            run.stop()
            run.result(60)
    assert "a secret of 32 bytes" in everything
    assert all("'secret': <a secret of 32 bytes>" in each for each in early)
    for text in _texts(secret):
        assert text not in everything


def _first(cluster):
    return next(iter(cluster.client.run(_secret).values()))


def test_a_secret_travels_and_does_not_show():
    secret = Secret(bytes(range(32)))
    back = pickle.loads(pickle.dumps(secret))
    assert back == secret == bytes(range(32))
    assert isinstance(back, Secret)
    assert {repr(secret), str(secret), f"{secret}", repr([secret])[1:-1]} == {"<a secret of 32 bytes>"}


def test_only_what_dask_has_authenticated_is_unpickled():
    """Frames, boards, arenas, checkpoints and caches are data: only what comes over Dask is unpickled."""
    unpicklers = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in unpicklers, place
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), place
                assert node.value.value is False, place
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found |= {place} if node.value.id in unpicklers and node.attr not in ("dumps", "dump") else set()
    assert all(place.startswith("runtime/cluster/") for place in found), found


class _Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("bomb-went-off"),))


@pytest.mark.parametrize("part", [MANIFEST, "params.safetensors"])
def test_a_checkpoint_cannot_run_code(part, tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "run", Checkpoint(1, {"w": np.ones(3)}, {}, {}))
    assert (folder / part).exists()
    (folder / part).write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(CheckpointError):
        load(folder)
    assert not Path("bomb-went-off").exists()
