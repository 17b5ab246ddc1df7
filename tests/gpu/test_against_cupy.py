"""What the emulation promises of CuPy, held against CuPy itself: that needs the package, but no GPU."""

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ops"))

from op_cases import cases, copies

from futurex.kernels.cupy_ import CupyBackend, devices, emulated
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.rules import UFUNCS, refusal

cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)


def public(module):
    return [name for name in dir(module) if not name.startswith("_") and callable(getattr(module, name))]


@pytest.mark.parametrize("part", ["", "linalg", "fft"])
def test_the_emulation_has_no_function_that_cupy_lacks(part):
    mine, theirs, host = (getattr(each, part) if part else each for each in (emulated.NAMESPACE, cupy, np))
    functions = [name for name in public(host) if not isinstance(getattr(host, name), type) and name != "test"]
    assert [name for name in functions if hasattr(mine, name) and not hasattr(theirs, name)] == []


def test_universal_functions_are_cupys():
    for name in UFUNCS:
        assert isinstance(getattr(cupy, name), cupy.ufunc) or name == "matmul", name


def test_what_there_is_of_a_gpu_is_found(monkeypatch):
    """By CuPy's own functions, but for those that ask the driver."""
    properties = {"name": b"a GPU", "totalGlobalMem": 3 << 30, "major": 9, "minor": 0}
    answers = {"getDeviceCount": 1, "getDeviceProperties": properties, "driverGetVersion": 13000}
    for name, answer in answers.items():
        monkeypatch.setattr(cupy.cuda.runtime, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(devices, "why_not", lambda: None)
    monkeypatch.setattr(devices, "device", lambda: Device(cupy, "cuda"))
    found = list(devices.findings())
    assert [line.partition(" ")[0] for line in found] == ["a", "driver", "CuPy", "kernels", "cuDNN"]
    assert not any("attribute" in line or "No module named 'cupy" in line for line in found)


class Recorder:
    """A module of the emulation that notes how its functions are called."""

    def __init__(self, module, path, calls):
        self._module, self._path, self._calls = module, path, calls

    def __getattr__(self, name):
        value = getattr(self._module, name)
        if name in ("linalg", "fft"):
            return Recorder(value, f"{name}.", self._calls)
        if isinstance(value, type | emulated.ufunc) or not callable(value):
            return value

        def noted(*args, **kwargs):
            self._calls.setdefault(self._path + name, []).append((args, kwargs))
            return value(*args, **kwargs)

        return noted


def test_every_call_of_every_kernel_fits_cupys_signature():
    calls = {}
    device = Device(Recorder(emulated.NAMESPACE, "", calls), "emulated")
    backend = CupyBackend(device)
    for case in cases():
        if not case.record.structured and refusal(case.node) is None:
            backend.claim(case.node, 1).call(None, *map(device.to_device, copies(case.inputs)))
    assert len(calls) >= 50
    faults = []
    for path, made in calls.items():
        function = cupy
        for name in path.split("."):
            function = getattr(function, name, None)
        if function is None and path == "linalg_errors":
            continue
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # a function of the extension module, which tells nothing
            continue
        for args, kwargs in made:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                faults.append(f"cupy.{path}{signature} called with {len(args)} arguments and {sorted(kwargs)}: {error}")
    assert list(dict.fromkeys(faults)) == []
