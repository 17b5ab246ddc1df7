"""The benchmark for a GPU: whole on the emulated device, in tiny sizes; without a GPU it says so."""

import argparse
import json
import time
from pathlib import Path

import pytest

from futurex.kernels.cuda_ import emulation
from futurex.kernels.cupy_ import devices


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    from benchmarks import gpu

    return gpu


@pytest.mark.skipif(devices._missing() is None, reason="this machine has a GPU")
@pytest.mark.parametrize("wish", ["", "emulated"])
def test_without_a_gpu_the_benchmark_says_so_and_ends_well(gpu, wish, monkeypatch, capsys):
    monkeypatch.setenv("FUTUREX_GPU", wish)
    assert gpu.main(argparse.Namespace(quick=False, cases=None)) == 0
    said = capsys.readouterr().out
    assert said.startswith("no GPU: FUTUREX_GPU=emulated" if wish else "no GPU: CuPy")


@pytest.mark.timeout(400)  # a hundred kernels are compiled, where the cache is empty
@pytest.mark.skipif(emulation.compiler() is None, reason="no C++ compiler is on the path")
def test_all_of_it_runs_and_every_case_is_written(gpu, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FUTUREX_GPU", "emulated")
    arguments = argparse.Namespace(quick=True, rounds=1, cases=["transformer"], out=tmp_path)
    assert gpu.main(arguments) == 0
    [path] = tmp_path.glob("gpu-*.json")
    found = json.loads(path.read_text())
    assert set(found["rates"]) == {"copy", "product, float32", "product, float16"}
    assert len(found["kernels"]) == len(list(gpu.works(gpu.TINY)))
    assert {"cuda", "cupy", "cublas"} == {each for row in found["kernels"] for each in row["backends"]} - {"host"}
    assert not any(row["reasons"] for row in found["kernels"])
    [compared] = found["comparisons"]
    assert compared["remarks"]["reasons"] == {name: {} for name in compared["seconds"] if name.startswith("futurex")}
    ours = {"futurex", "futurex, tfloat32 products", "futurex, bfloat16 products"}
    assert ours <= set(compared["seconds"])
    others = {"torch eager", "torch.compile", "jax.jit"}
    assert set(compared["missing"]) | set(compared["seconds"]) == ours | others
    losses = compared["remarks"]["check"]
    assert all(len(losses[name]) == gpu.CHECKED_STEPS for name in ours)
    page = capsys.readouterr().out
    assert page.count("# Training steps and kernels on a GPU") == 1
    assert all(name in page for name in ("softmax", "update by Adam", *ours))


def test_a_part_that_fails_is_noted_and_the_others_are_kept(gpu, tmp_path):
    found = gpu.Findings(tmp_path, rates={"copy": 1e9})

    def fail():
        raise RuntimeError("no memory is left")

    found.attempt("softmax", fail)
    [path] = tmp_path.glob("gpu-*.json")
    written = json.loads(path.read_text())
    assert (written["failed"], written["rates"]) == ({"softmax": "RuntimeError: no memory is left"}, {"copy": 1e9})


def test_the_next_kernel_after_one_that_fails_or_hangs_has_a_process_of_its_own(gpu, tmp_path, monkeypatch):
    (tmp_path / "some_kernels.py").write_text(KERNELS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plain = gpu.Peer
    monkeypatch.setattr(gpu, "Peer", lambda name, factory, *rest: plain(name, "some_kernels:Kernels", *rest))

    class Impatient(gpu.Child):
        """For its answers alone: how long a process takes to start is the machine's affair."""

        def __init__(self, peer, patience):
            super().__init__(peer)
            self._patience = 5.0

    monkeypatch.setattr(gpu, "Child", Impatient)
    found = gpu.Findings(tmp_path)
    gpu.measure_kernels(found, True, time.monotonic() + 240)
    assert [row["name"] for row in found.kernels] == ["first", "last"]
    assert list(found.failed) == ["lost", "broken", "endless"]
    assert "ended during 'call'" in found.failed["lost"]
    assert "ValueError: no such luck" in found.failed["broken"]
    assert "in measure" in found.failed["broken"]  # the traceback says where
    assert "within 5 s" in found.failed["endless"]
    assert (found.rates, found.left) == ({"copy": 1.0}, [])


KERNELS = """
import os, threading

class Kernels:
    def __init__(self, quick, skip, reached):
        self.left = ["first", "lost", "broken", "endless", "last"][skip:]

    def rates(self):
        return {"copy": 1.0}

    def next(self):
        self.name = self.left.pop(0) if self.left else None
        return self.name

    def measure(self):
        if self.name == "lost":
            os._exit(1)
        if self.name == "broken":
            raise ValueError("no such luck")
        if self.name == "endless":
            threading.Event().wait()
        return {
            "name": self.name, "seconds": 1.0, "bytes_per_second": 1.0, "of_copy": 1.0, "operations_per_second": 1.0,
            "of_product": 1.0, "backends": [], "reasons": {},
        }
"""
PEERS = """
import threading

class Idle:
    def check(self):
        threading.Event().wait()

class Quick:
    def check(self):
        return 7

    def step(self):
        pass
"""


def test_a_comparison_ends_by_its_deadline_and_keeps_what_others_answered(gpu, tmp_path, monkeypatch):
    (tmp_path / "some_peers.py").write_text(PEERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = ("Idle", "Quick", "Absent")
    peers = [gpu.Peer(name, f"some_peers:{name}", {}, 1) for name in names[:2]]
    peers.append(gpu.Peer("Absent", "no_such_module:Absent", {}, 1))
    begun = time.monotonic()
    gpu.Child(peers[1]).close()
    deadline = time.monotonic() + 2 + 10 * (time.monotonic() - begun)  # in which all three start, however slow that is
    found = gpu.compare("peers", "Quick", peers, gpu.TINY_EFFORT, {}, together=True, deadline=deadline)
    assert "within the time that was left" in found.missing["Idle"]
    assert "no_such_module" in found.missing["Absent"]
    assert found.remarks["check"].get("Quick", 7) == 7  # it may not have started by then
    assert set(found.seconds()) <= {"Quick"}
