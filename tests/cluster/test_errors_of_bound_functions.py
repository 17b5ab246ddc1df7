"""Errors of functions that run on a cluster: NumPy's types, at the user's lines, without frames of the package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import futurex as fx

sys.path.extend([str(Path(__file__).parent.parent), str(Path(__file__).parent.parent / "frontend")])
import error_cases
from test_tracebacks import failure

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(2) as started:
        yield started


@pytest.mark.parametrize("case", error_cases.cases, ids=lambda case: case.name)
def test_errors_on_a_cluster_stand_at_the_users_line(case, cluster):
    expected = failure(case.function, case.args)
    actual = failure(fx.futurize(case.function).on(cluster), case.args)
    if expected is None:
        assert actual is None
        return
    kind, _, places, inside = actual
    assert issubclass(expected[0], kind) or kind is fx.StagingError
    assert [place[:2] for place in places] == [place[:2] for place in expected[2]]
    assert not inside
    fine = fx.futurize(lambda x: x + 1).on(cluster)
    assert fine(1.0).result(60) == 2.0  # a failed call leaves nothing behind
