"""What Dask has yet to compute, given to functions on a cluster: said with what to give in its place, or computed."""

from __future__ import annotations

import re

import dask
import dask.array
import numpy as np
import pytest

import futurex as fx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 60.0


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(1) as started:
        yield started


def total(x, more=None):
    return (x * 2.0).sum()


def loss(w, x):
    return ((x - w) ** 2).mean()


@pytest.fixture(params=["future", "delayed"])
def late(request, cluster):
    """Something that is computed later, and what is said of it."""
    if request.param == "future":
        return cluster.client.submit(np.arange, 4.0), "Dask's Future, not computed yet: give .result() of it"
    return dask.delayed(np.arange)(4.0), "Dask's Delayed, not computed yet: give .compute() of it"


def test_what_is_computed_later_is_named_with_its_remedy(cluster, late):
    value, said = late
    for where, act in (
        ("x is", lambda: fx.futurize(total).on(cluster)(value)),
        ("more/a is", lambda: fx.futurize(total).on(cluster)(np.ones(3), more={"a": value})),
        ("what is tiled is", lambda: cluster.tile(value)),
        ("data[0] is", lambda: fx.fit(loss, np.zeros(()), value, on=cluster, progress=False)),
        ("params is", lambda: fx.fit(loss, value, np.ones(4), on=cluster, progress=False)),
    ):
        with pytest.raises(TypeError, match=re.escape(f"{where} {said}")):
            act()


def test_arrays_of_dask_are_computed_where_data_are_given_and_refused_by_traces(cluster):
    x = dask.array.arange(4.0, chunks=2)
    np.testing.assert_array_equal(np.asarray(cluster.tile(x)), np.arange(4.0))
    run = fx.fit(loss, np.zeros(()), x, on=cluster, progress=False, optimizer=fx.optim.sgd(0.5))
    assert run.result(WAIT) == 1.5
    with pytest.raises(TypeError, match=r"x is Dask's Array, not computed yet: give \.compute\(\) of it"):
        fx.futurize(total).on(cluster)(x)
