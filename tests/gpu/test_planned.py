"""cuDNN itself plans every graph that kernels ask it for, on machines without a GPU, for one that is described."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from described_gpu import driver_text, runtime_text

from futurex.kernels.cuda_ import emulation

ROOT = Path(__file__).resolve().parents[2]


def libraries():
    """Where cuDNN and what it loads lie, by the packages of the extra ``cuda12``. Skips where they are not."""
    pytest.importorskip("cudnn", reason="cuDNN's frontend is not installed", exc_type=ImportError)
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(each) for each in (spec.submodule_search_locations if spec is not None else None) or ()]
    found = [each for root in roots for each in root.glob("*/lib")]
    if not any(list(each.glob("libcudnn.so.9")) for each in found):
        pytest.skip("cuDNN is not installed as a package")
    return found


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """What cuDNN said of each graph."""
    found, compiler = libraries(), emulation.compiler()
    if compiler is None:
        pytest.skip("no C++ compiler is on the path")
    folder = tmp_path_factory.mktemp("driver")
    for name, text in (("libcuda.so.1", driver_text()), ("libcudart_described.so", runtime_text())):
        source = folder / f"{name}.c"
        source.write_text(text)
        command = [compiler, "-x", "c", "-w", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, source]
        subprocess.run(command, check=True, timeout=60)
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join(map(str, [folder, *found])), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "CUDNN_FRONTEND_CUDART_LIB_NAME": str(folder / "libcudart_described.so"), "FUTUREX_GPU": "emulated",
    }  # fmt: skip
    script = Path(__file__).with_name("described_gpu.py")
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=500, check=False
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    if not lines and "create_device_properties" in done.stderr:
        pytest.skip(f"this cuDNN does not plan for a description: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(lines)


@pytest.mark.timeout(520)
@pytest.mark.parametrize("op", ["conv", "conv_input_grad", "conv_weight_grad", "attention", "attention_grad"])
def test_every_graph_has_a_plan(planned, op):
    mine = {name: error for name, error in planned.items() if name.split("[")[0].split("-")[0].split(" ")[0] == op}
    assert len(mine) > 12
    assert {name: error for name, error in mine.items() if error is not None} == {}
