"""The judged programs of ``tests/programs``: plain NumPy, called as it is or futurized."""

from __future__ import annotations

import copy
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np

import futurex as fx
from futurex.tree.pytree import flatten

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "programs"


def names() -> list[str]:
    """Return the names of all programs."""
    return sorted(path.stem for path in FOLDER.glob("[a-z]*.py") if not path.stem.startswith("test_"))


class Program:
    """One program on its example arguments; a step is a call whose results are waited for."""

    def __init__(self, case: str, futurized: bool) -> None:
        spec = importlib.util.spec_from_file_location(case, FOLDER / f"{case}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.function: Any = getattr(module, case)
        self.args = module.example(np.random.default_rng(0))
        if futurized:
            self.function = fx.futurize(self.function)

    def check(self) -> dict[str, Any]:
        """Return the seconds of the first call, and whether the program is one graph."""
        staged = None
        start = time.perf_counter()
        self.step()
        seconds = time.perf_counter() - start
        if isinstance(self.function, fx.Futurized):
            try:
                staged = not self.function.trace(*copy.deepcopy(self.args)).has_log
            except fx.StagingError:
                staged = False
        return {"first_call": seconds, "staged": staged}

    def step(self) -> None:
        """Call the program once; it gets copies, since some write into their arguments."""
        with np.errstate(all="ignore"):
            for leaf in flatten(self.function(*copy.deepcopy(self.args)))[0]:
                if isinstance(leaf, fx.Array):
                    leaf.result()
