"""CuPy's own functions under every kernel that is made of them, on a GPU that is described: nothing is computed."""

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from described_cuda import judged

from futurex.kernels.cupy_ import devices

ROOT = Path(__file__).resolve().parents[2]
LOOKING = ("nonzero", "softmax_cross_entropy", "inv-", "solve_triangular")
"""Ops that look at values, of which there are none."""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What became of each sample with CuPy: why it does not run on the device, and why no graph holds it."""
    pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    if platform.machine() != "x86_64" or not all(map(shutil.which, ("cc", "nm", "readelf"))):
        pytest.skip("CuPy's code is replaced on x86-64, by a C compiler and binutils")
    if devices._missing() is None:
        pytest.skip("this machine has a GPU")
    folder = tmp_path_factory.mktemp("cuda")
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(each) for each in (spec.submodule_search_locations if spec is not None else None) or ()]
    libraries = [folder, *(each for root in roots for each in root.glob("*/lib"))]
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }  # fmt: skip
    script = Path(__file__).with_name("described_cuda.py")
    done = subprocess.run(
        [sys.executable, script, folder], env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if "libcublas" in done.stdout:
        pytest.skip("CuPy is installed without cuBLAS")
    return {name: found for name, *found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.timeout(280)
def test_cupy_has_what_kernels_ask_of_it(said):
    assert len(said) > 1000
    faults = {
        name: reason for name, (reason, _) in said.items()
        if reason and not reason.startswith("ImportError") and "cudnn" not in reason and not name.startswith(LOOKING)
    }  # fmt: skip
    assert faults == {}


def test_training_steps_are_graphs(said):
    """Every kernel is the one that is meant for its operation, and the driver refuses none of them in a capture."""
    steps = {name: found for name, found in said.items() if name.startswith("step ")}
    assert len(steps) == 4
    assert all(found == [None, None] for found in steps.values()), steps


def test_graphs_hold_what_the_emulated_device_says_they_do(said, device):
    emulated = {name: found for name, *found in judged(device)}
    refused = {
        name: why for name, (_, why) in said.items()
        if why and emulated.get(name) == [None, None] and not name.startswith(LOOKING)
    }  # fmt: skip
    assert refused == {}
