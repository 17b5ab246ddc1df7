"""The judged programs of ``tests/programs``: plain NumPy, called as it is, futurized, or compiled by other stacks."""

from __future__ import annotations

import copy
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

import futurex as fx
from futurex.tree.pytree import flatten

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "programs"
_STEADY_SECONDS = 1.5
Arguments = Callable[[np.random.Generator], tuple[Any, ...]]

LARGE: dict[str, Arguments] = {
    "component_labelling": lambda rng: (rng.random((90, 90)) < 0.55,),
    "cubic_spline": lambda rng: (
        np.sort(rng.normal(size=2000)), rng.normal(size=2000), np.sort(rng.normal(size=1000)),
    ),
    "dithering": lambda rng: (rng.random((80, 90)), 3),
    "edit_distance": lambda rng: (rng.integers(0, 4, 150), rng.integers(0, 4, 160), rng.random(150)),
    "filters": lambda rng: (rng.normal(size=20000), 0.1),
    "metropolis": lambda rng: (np.zeros(2), rng.normal(size=(10000, 2)), rng.random(10000), 0.8),
}  # fmt: skip
"""Programs that are loops over single numbers, on arguments of a size at which a call's own cost does not matter."""


def names() -> list[str]:
    """Return the names of all cases: the programs on their examples, and loops over numbers on larger arguments."""
    programs = sorted(path.stem for path in FOLDER.glob("[a-z]*.py") if not path.stem.startswith("test_"))
    return programs + [f"{name}, large" for name in LARGE]


class Program:
    """One program on its arguments; a step is a call whose results are waited for."""

    def __init__(self, case: str, way: str) -> None:
        name = case.partition(",")[0]
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        make = LARGE[name] if "," in case else module.example
        self.args: tuple[Any, ...] = make(np.random.default_rng(0))
        plain = getattr(module, name)
        np.seterr(all="ignore")
        self._copied = _writes(plain, self.args)
        if way in ("numba", "jax"):
            expected = plain(*copy.deepcopy(self.args))
            self.function: Any = _WAYS[way](module, name, self.args)
            _compare(self.function(*copy.deepcopy(self.args)), expected)
        else:
            self.function = fx.futurize(plain) if way == "futurized" else plain

    def check(self) -> dict[str, Any]:
        """Return the seconds of the first call, and whether the program is one graph; come to a steady state."""
        staged = None
        start = time.perf_counter()
        self.step()
        seconds = time.perf_counter() - start
        if isinstance(self.function, fx.Futurized):
            try:
                staged = not self.function.trace(*copy.deepcopy(self.args)).has_log
            except fx.StagingError:
                staged = False
            while time.perf_counter() < start + seconds + _STEADY_SECONDS:
                self.step()
        return {"first_call": seconds, "staged": staged}

    def step(self) -> None:
        """Call the program once; one that writes into its arguments gets copies."""
        for leaf in flatten(self.function(*(copy.deepcopy(self.args) if self._copied else self.args)))[0]:
            if isinstance(leaf, fx.Array):
                leaf.result()


def _writes(function: Any, args: tuple[Any, ...]) -> bool:
    """Does a call change its arguments? Generators always are."""
    given = copy.deepcopy(args)
    leaves, structure = flatten(given)
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            leaf.flags.writeable = False
        elif not isinstance(leaf, np.generic | complex | float | int | str):
            return True
    try:
        function(*given)
    except ValueError:  # assignment destination is read-only
        return True
    after, shape = flatten(given)
    return shape != structure or any(one is not two for one, two in zip(leaves, after, strict=True))


def _numba(module: ModuleType, name: str, args: tuple[Any, ...]) -> Any:
    """The program with all functions of its module compiled in Numba's default mode."""
    import numba

    for key, value in list(vars(module).items()):
        if isinstance(value, FunctionType) and key != "example":
            setattr(module, key, numba.njit(value))
    return getattr(module, name)


def _jax(module: ModuleType, name: str, args: tuple[Any, ...]) -> Any:
    """The program as it stands with ``jax.numpy`` for NumPy; what is no array is static."""
    import jax

    jax.config.update("jax_enable_x64", True)
    vars(module)["np"] = jax.numpy
    static = tuple(k for k, value in enumerate(args) if not isinstance(value, np.ndarray))
    compiled = jax.jit(getattr(module, name), static_argnums=static)
    return lambda *given: jax.block_until_ready(compiled(*given))


_WAYS = {"numba": _numba, "jax": _jax}


def _compare(found: Any, expected: Any) -> None:
    """Raise where another stack computes something else."""
    pairs = zip(flatten(found)[0], flatten(expected)[0], strict=True)
    if not all(np.allclose(np.asarray(one), np.asarray(two), rtol=1e-4, equal_nan=True) for one, two in pairs):
        raise ValueError("the results are not NumPy's")
