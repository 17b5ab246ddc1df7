"""Training over several hosts with TLS: one is unplugged, comes back, and another one's process dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.elastic.hosts import Hosts, NoHosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PEM = Path(__file__).parent.parent / "certificates"
TLS = [
    "--protocol", "tls", "--tls-ca-file", str(PEM / "ca.pem"), "--tls-cert", str(PEM / "rank.pem"), "--tls-key",
    str(PEM / "rank.pem"),
]  # fmt: skip

DRIVER = """
import sys, time
import numpy as np
import futurex as fx
from distributed import Client
from distributed.security import Security
from tests.elastic.test_survival import counting, sizes, until

N, BATCH = 64, 8

def endpoint(dask_worker):
    [communicator] = dask_worker.futurex_host.sessions.values()
    endpoint = communicator.endpoint
    return endpoint.address.decode().partition(":")[0], len(set(endpoint.machines))

if __name__ == "__main__":
    _, address, ca, own = sys.argv
    security = Security(tls_ca_file=ca, tls_client_cert=own, tls_client_key=own, require_encryption=True)
    client = Client(address, security=security, timeout=60)
    client.wait_for_workers(2, timeout=60)
    cluster = fx.Cluster(client, timeout=60)
    print(*client.run(endpoint).values(), flush=True)
    run = fx.fit(counting, np.zeros(N), np.eye(N), optimizer=fx.optim.sgd(8.0), epochs=10**6, batch_size=BATCH,
                 on=cluster, commit_every=5, stall_seconds=3.0, progress=False)
    until(lambda: run.step > 20, "the run did not start")
    for task, size in (("unplug", 1), ("plug in", 2), ("kill", 1)):
        print(task, flush=True)
        sys.stdin.readline()
        until(lambda: sizes(run)[-1] == size, "the run did not go on")
        step = run.step
        until(lambda: run.step > step + 10, "no steps are made")
    run.stop()
    seen = -run.result(60)
    print(seen.sum() == run.step * BATCH and seen.max() - seen.min() <= 1, flush=True)
    for each in run.generations:
        print(each["what"], len(each["workers"]), each["step"], each["reason"], file=sys.stderr)
"""


@pytest.fixture
def hosts():
    try:
        made = Hosts(3)
    except NoHosts as why:
        pytest.skip(str(why))
    yield made
    made.close()


def test_a_host_is_unplugged_comes_back_and_another_dies(hosts):
    def python(host, *arguments, **options):
        quiet = {"stderr": subprocess.DEVNULL, **options}
        return hosts.start(host, [sys.executable, *arguments], **quiet)

    address = f"tls://{hosts.address(0)}:8786"
    where = ["--host", hosts.address(0), "--port", "8786", "--no-dashboard"]
    python(0, "-m", "distributed.cli.dask_scheduler", *where, *TLS)
    workers = [
        python(
            host, "-m", "distributed.cli.dask_worker", address, "--host", hosts.address(host), "--nthreads", "1",
            "--no-nanny", "--no-dashboard", *TLS,
        )
        for host in (1, 2)
    ]  # fmt: skip
    driver = python(
        0, "-c", DRIVER, address, str(PEM / "ca.pem"), str(PEM / "rank.pem"), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=None,
    )  # fmt: skip

    def says(what):
        assert driver.stdout.readline().strip() == what

    def done():
        driver.stdin.write("done\n")
        driver.stdin.flush()

    says("('auto', 2) ('auto', 2)")  # two machines
    says("unplug")
    hosts.unplug(2)
    done()
    says("plug in")
    hosts.plug_in(2)
    done()
    says("kill")
    workers[0].kill()
    done()
    says("True")
    driver.wait(60)
