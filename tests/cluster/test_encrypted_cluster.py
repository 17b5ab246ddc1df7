"""A Dask cluster that encrypts: the localities' own channels do so too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from distributed import LocalCluster
from distributed.security import Security

import futurex as fx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

CERTIFICATES = Path(__file__).parent.parent / "certificates"


def mean_square(w, x):
    return ((x @ w) ** 2).mean()


def _addresses(dask_worker):
    [communicator] = dask_worker.futurex_host.sessions.values()
    return communicator.endpoint.address.decode()


def test_localities_of_a_cluster_that_encrypts_do_so_too():
    own = str(CERTIFICATES / "rank.pem")
    names = [f"tls_{role}_{part}" for role in ("client", "scheduler", "worker") for part in ("cert", "key")]
    security = Security(
        tls_ca_file=str(CERTIFICATES / "ca.pem"), require_encryption=True, **dict.fromkeys(names, own)
    )
    x, w = np.random.default_rng(0).normal(size=(10, 3)), np.ones(3)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, protocol="tls://", security=security, dashboard_address="127.0.0.1:0"
        ) as workers,
        fx.Cluster(workers, transport="tcp") as cluster,
    ):
        assert all(address.startswith("tls://") for address in cluster.client.run(_addresses).values())
        result = fx.futurize(mean_square).on(cluster)(w, cluster.tile(x))
        assert float(result) == pytest.approx(mean_square(w, x))
        with pytest.raises(ValueError, match="transport='ucx' cannot"):
            fx.Cluster(workers, transport="ucx")
