"""The benchmarks can begin: each name has its script, and each stack that is installed can be built."""

import importlib
import inspect
import pkgutil
from abc import ABC
from pathlib import Path

import pytest

PEERS = {"torch", "jax", "mpi4py"}

@pytest.fixture(autouse=True)
def from_the_repository(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1]))


def test_every_name_has_a_script():
    from benchmarks.__main__ import NAMES

    for name in NAMES:
        assert callable(importlib.import_module(f"benchmarks.{name}").main), name
    scripts = {path.stem for path in Path(__file__).parents[1].joinpath("benchmarks").glob("*.py")}
    assert set(NAMES) == scripts - {"__init__", "__main__", "child", "harness", "machine", "report", "stacks"}


def test_no_stack_lacks_a_method():
    from benchmarks import workloads

    looked_at = 0
    for module in pkgutil.iter_modules(workloads.__path__):
        try:
            found = importlib.import_module(f"benchmarks.workloads.{module.name}")
        except ModuleNotFoundError as error:
            if error.name.split(".")[0] in PEERS:
                continue
            raise
        for name, each in inspect.getmembers(found, inspect.isclass):
            if each.__module__ == found.__name__ and not name.startswith("_") and ABC not in each.__bases__:
                assert not inspect.isabstract(each), f"{module.name}.{name} lacks {each.__abstractmethods__}"
                looked_at += 1
    assert looked_at > 20


WITHOUT_CASES = {"accuracy_har", "driving"}


def test_a_case_that_is_not_there_names_those_that_are(monkeypatch):
    from benchmarks.__main__ import NAMES, parser

    monkeypatch.setenv("FUTUREX_COMPILE", "wait")  # which the roofline sets
    for name in sorted(set(NAMES) - WITHOUT_CASES):
        arguments = parser().parse_args([name, "--quick", "--threads", "1", "--cases", "no such case"])
        with pytest.raises(SystemExit, match=f"{name}: there is no case 'no such case'; --cases takes ."):
            importlib.import_module(f"benchmarks.{name}").main(arguments)


@pytest.mark.parametrize("case", ["mlp-adam", "pinn", "lstm", "kalman", "digits"])
def test_a_small_model_has_the_same_losses_in_every_stack_that_is_installed(case, monkeypatch):
    from benchmarks.workloads import small_side
    from benchmarks.workloads.cases import disagreement

    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the harness sets
    losses = {}
    for each in (small_side.FuturexStep, small_side.JaxStep, small_side.TorchStep):
        try:
            step = each(case).begin()
        except ModuleNotFoundError as error:
            if error.name in PEERS:
                continue
            raise
        losses[each.__name__] = [float(step()) for _ in range(3)]
    first, *_, last = losses["FuturexStep"]
    assert last < first
    assert disagreement(losses) < 1e-4


def test_the_mean_of_the_small_models_counts_those_that_are_not_faster():
    from benchmarks.harness import Comparison, Round
    from benchmarks.small_steps import summary

    found = [
        Comparison(case, "futurex", frozenset(), 1, [Round({"futurex": mine, "a": 2.0, "b": 4.0}, 0.0)], 1, {}, {})
        for case, mine in (("quick", 0.5), ("slow", 8.0))
    ]
    said = "On 1 CPU(s): futurex / best peer is 1.000 in the geometric mean over 2 case(s); "
    assert summary(found, 1) == said + "futurex is not faster in 1 of them (slow)."
    assert "no case" in summary(found, 2)


def figures(workload, name, **arguments):
    """What a workload measures of its memory, in a process of its own: here other tests have left memory that can be
    used again, and threads that take some."""
    from benchmarks.harness import Child, Peer

    options = {"name": name, "weights": ""}
    child = Child(Peer("futurex", f"benchmarks.workloads.memory_side:{workload}", options, 1))
    try:
        return child.call("figures", **arguments)
    finally:
        child.close()


@pytest.mark.parametrize("donate", [(), ("params", "moments")])
def test_what_a_step_takes_is_measured_beside_what_is_predicted(donate):
    from benchmarks.memory import is_off

    found = figures("Planned", "mlp-sgd", donate=donate, share=1.0, steps=1)
    assert found["measured"] > 1e6
    assert not is_off(found), found


def test_what_calls_and_first_runs_take_is_measured():
    for found in (figures("Called", "polygons"), figures("Grown", "heat")):
        taken = found.get("measured") or found.get("grown")
        assert 0.5 < found["predicted"] / taken < 2, found


def test_a_peer_that_raises_is_not_taken_for_one_that_is_slow():
    from benchmarks.harness import Child, Peer, PeerFailed, PeerSilent

    child = Child(Peer("futurex", "benchmarks.workloads.memory_side:Planned", {"name": "mlp-sgd", "weights": ""}, 1))
    try:
        with pytest.raises(PeerFailed, match="no_such_method") as caught:
            child.call("no_such_method")
        assert not isinstance(caught.value, PeerSilent)
        with pytest.raises(PeerSilent, match="gave no answer"):
            child.call("figures", timeout=0.001, donate=(), share=1.0, steps=1)
    finally:
        child.close()
