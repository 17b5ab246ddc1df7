"""What a locality keeps of the programs that it has run."""

import gc
import weakref

import numpy as np

import futurex as fx
from futurex.runtime import group
from futurex.runtime.group import Locality


def test_plans_of_programs_that_ran_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(group, "PLANS", 3)
    locality, plans = Locality(0, 1, 1, lambda event: None), []
    for number in range(10):
        graph = fx.futurize(lambda x, number=number: x * number).graph(np.ones(3))
        step = locality.compile(graph, [])
        assert step.plan is locality.compile(graph, []).plan
        assert step([np.ones(3)])[0].tolist() == [number] * 3
        plans.append(weakref.ref(step.plan))
    del step
    gc.collect()
    assert [plan() is not None for plan in plans] == [False] * 7 + [True] * 3
