"""The benchmarks can begin: each name has its script, and each stack that is installed can be built."""

import importlib
import inspect
import pkgutil
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
    assert set(NAMES) == scripts - {"__init__", "__main__", "child", "harness", "machine", "report"}


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
            if each.__module__ == found.__name__ and not name.startswith("_"):
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
