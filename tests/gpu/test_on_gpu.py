"""The script for a machine with a GPU and no network: what it brings along is found there."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "on_gpu.sh"
LOOK = """
import os
import shared_by_both.one, shared_by_both.two
print("both are there")
print(os.environ["LD_LIBRARY_PATH"])
print(os.environ["CUDA_PATH"])
"""
PYTHON = """#!/bin/sh
[ "$2" = futurex ] && exec {python} {look}
exec {python} "$@"
"""


def wheel(folder, name, *files):
    """A wheel of parts of packages that other wheels have parts of, too."""
    about = f"{name}-1.0.dist-info"
    texts = dict.fromkeys(files, "") | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    listed = "".join(f"{path},,\n" for path in (*texts, f"{about}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        for path, text in {**texts, f"{about}/RECORD": listed}.items():
            file.writestr(path, text)


def test_packages_that_share_a_folder_are_all_there(tmp_path):
    if shutil.which("bash") is None or subprocess.run([sys.executable, "-m", "pip", "-V"], check=False).returncode:
        pytest.skip("wheels are unpacked by pip, from a shell")
    wheels, look, python = tmp_path / "wheels", tmp_path / "look.py", tmp_path / "python"
    wheels.mkdir()
    wheel(wheels, "one", "shared_by_both/one.py", "nvidia/one/lib/libone.so")
    wheel(wheels, "two", "shared_by_both/two.py", "nvidia/two/include/cuda_runtime.h")
    look.write_text(LOOK)
    python.write_text(PYTHON.format(python=sys.executable, look=look))
    python.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_PATH", "LD_LIBRARY_PATH")}
    done = subprocess.run(
        ["bash", SCRIPT, wheels, tmp_path / "results", "doctor"], env=environment | {"PYTHON": str(python)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said, libraries, cuda = (tmp_path / "results" / "doctor.log").read_text().splitlines()
    assert said == "both are there"
    assert libraries.endswith("nvidia/one/lib")
    assert cuda.endswith("nvidia/two")
