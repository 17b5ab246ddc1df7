"""What a driver has under way on a cluster that stands ends with it, and keeps nobody waiting."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from distributed import LocalCluster

import futurex as fx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 120.0

DRIVER = """
import sys, time
import numpy as np
import futurex as fx

def loss(w, x):
    return ((x - w) ** 2).mean()

if __name__ == "__main__":
    cluster = fx.Cluster(sys.argv[1], timeout=60)
    run = fx.fit(loss, np.zeros(3), np.ones((8, 3)), on=cluster, epochs=10**9, progress=False)
    end = time.monotonic() + 120
    while run.step < 3:
        assert time.monotonic() < end, run
        time.sleep(0.01)
    print("trains", flush=True)
    time.sleep(600)
"""


def sessions(dask_worker):
    return list(dask_worker.futurex_host.sessions)


@pytest.mark.parametrize("n", [1, 2])
def test_a_run_whose_driver_was_killed_ends(n):
    with LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None) as started:
        command = [sys.executable, "-c", DRIVER, started.scheduler_address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
            try:
                assert driver.stdout.readline() == "trains\n"
            finally:
                driver.kill()
        with fx.Cluster(started) as cluster:
            assert float(fx.futurize(np.sum).on(cluster)(cluster.tile(np.ones(4))).result(WAIT)) == 4.0
            end = time.monotonic() + WAIT
            while any(len(found) != (n > 1) for found in cluster.client.run(sessions).values()):
                assert time.monotonic() < end
                time.sleep(0.05)
