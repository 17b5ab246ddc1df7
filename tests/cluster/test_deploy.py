"""The scripts of examples/deploy, as far as they can be run here, where the library is that each of them is for."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SCRIPTS = Path(__file__).parents[2] / "examples" / "deploy"


def _command(script, *arguments):
    return [sys.executable, str(SCRIPTS / f"{script}.py"), *arguments]


def _run(script, *arguments):
    done = subprocess.run(_command(script, *arguments), capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _check_trained(said, localities):
    assert float(re.search(r"accuracy ([\d.]+)%", said)[1]) > 90
    for rank in range(localities):
        assert re.search(rf"^locality {rank}: .*exchanges", said, re.MULTILINE)


def test_a_cluster_that_stands():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as standing:
        _check_trained(_run("scheduler", standing.scheduler_address), 2)


def test_the_script_of_a_slurm_job():
    pytest.importorskip("dask_jobqueue")
    job = _run(
        "slurm", "--dry-run", "--localities", "2", "--cores", "12", "--queue", "compute", "--account", "mine",
        "--walltime", "02:30:00", "--memory", "32GB",
    )  # fmt: skip
    for line in (
        "#SBATCH -p compute", "#SBATCH -A mine", "#SBATCH --cpus-per-task=12", "#SBATCH -t 02:30:00",
        "export FUTUREX_THREADS=6", "export OMP_NUM_THREADS=6",
    ):  # fmt: skip
        assert line in job.splitlines()
    assert re.search(r"dask_worker tcp://\S+ .*--nworkers 2 ", job)


def test_the_resource_of_a_kubernetes_cluster():
    pytest.importorskip("dask_kubernetes")
    resource = json.loads(_run("kubernetes", "--dry-run", "--image", "registry/futurex:1", "--localities", "3"))
    assert resource["kind"] == "DaskCluster"
    worker = resource["spec"]["worker"]
    assert worker["replicas"] == 3
    [container] = worker["spec"]["containers"]
    assert container["image"] == "registry/futurex:1"
    assert {"name": "FUTUREX_THREADS", "value": "4"} in container["env"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "8Gi"}


def test_machines_reached_by_ssh(tmp_path):
    """A server of this test on the loopback device, with keys of its own; everything else is real."""
    asyncssh = pytest.importorskip("asyncssh")

    async def carry_out(process):
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_shell(process.command, stdin=pipe, stdout=pipe, stderr=pipe)
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        process.exit(await child.wait())

    async def serve_and_run():
        theirs, mine = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        mine.write_private_key(tmp_path / "key")
        mine.write_public_key(tmp_path / "authorized")
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[theirs], authorized_client_keys=str(tmp_path / "authorized"),
            process_factory=carry_out,
        )  # fmt: skip
        port = server.get_port()
        (tmp_path / "hosts").write_text(f"[127.0.0.1]:{port} {theirs.export_public_key().decode()}")
        child = await asyncio.create_subprocess_exec(
            *_command(
                "ssh", "127.0.0.1", "--localities", "2", "--port", str(port), "--user", "somebody", "--key",
                str(tmp_path / "key"), "--known-hosts", str(tmp_path / "hosts"), "--python", sys.executable,
            ),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await child.communicate()
        server.close()
        assert child.returncode == 0
        return said.decode()

    _check_trained(asyncio.run(serve_and_run()), 2)


def test_the_options_of_dask_cuda():
    """What the script gives it is what it takes; to start one needs GPUs."""
    if importlib.util.find_spec("dask_cuda") is None:
        pytest.skip("dask-cuda is not installed")
    code = (
        "import inspect, sys; from dask_cuda import LocalCUDACluster; from distributed import LocalCluster\n"
        "own = inspect.signature(LocalCUDACluster).parameters\n"
        "assert {'CUDA_VISIBLE_DEVICES', 'threads_per_worker'} <= set(own), own\n"
        "assert any(each.kind is each.VAR_KEYWORD for each in own.values())\n"
        "assert 'dashboard_address' in inspect.signature(LocalCluster).parameters\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.gpu
def test_gpus():
    cupy = pytest.importorskip("cupy")
    if importlib.util.find_spec("dask_cuda") is None or not cupy.cuda.is_available():
        pytest.skip("dask-cuda is not installed, or there is no GPU")
    said = _run("gpus")
    assert float(re.search(r"([\d.]+)% of 100000 predictions", said)[1]) > 90


def test_every_script_says_how_it_is_used():
    for path in SCRIPTS.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.stem != "training":
            assert f"python {path.name}" in text
            assert 'if __name__ == "__main__":' in text
            assert os.path.basename(path) in (SCRIPTS.parents[1] / "docs" / "clusters.md").read_text(encoding="utf-8")
