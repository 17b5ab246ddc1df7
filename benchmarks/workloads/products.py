"""Products of matrices and contractions, each the same call for every stack that has NumPy's functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Call = Callable[..., Any]


@dataclass(frozen=True)
class Product:
    """One call: ``function(np, *operands)``, where ``np`` is the stack's own module of NumPy's functions."""

    title: str
    shapes: tuple[tuple[int, ...], ...]
    flops: float
    function: Call
    dtype: type = np.float32


def _matmul(
    *sizes: int, batch: tuple[int, ...] = (), first: bool = False, second: bool = False, dtype: type = np.float32
) -> Product:
    rows, inner, columns = sizes
    x, y = ((inner, rows) if first else (rows, inner)), ((columns, inner) if second else (inner, columns))

    def call(np: Any, x: Any, y: Any) -> Any:
        return np.matmul(np.swapaxes(x, -1, -2) if first else x, np.swapaxes(y, -1, -2) if second else y)

    marks = f"{'T' if first else 'N'}{'T' if second else 'N'}"
    stack = f"{' x '.join(map(str, batch))} of " if batch else ""
    title = f"matmul {stack}{rows} x {inner} x {columns}, {marks}{'' if dtype is np.float32 else ', double'}"
    flops = 2.0 * math.prod(batch) * rows * inner * columns
    return Product(title, ((*batch, *x), (*batch, *y)), flops, call, dtype)


def _einsum(text: str, **extents: int) -> Product:
    terms = text.split("->")[0].split(",")
    shapes = tuple(tuple(extents[letter] for letter in term) for term in terms)
    spread = ", ".join(f"{name}={extent}" for name, extent in extents.items())
    operands = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    report = np.einsum_path(text, *operands, optimize="optimal")[1]
    flops = float(report.split("Optimized FLOP count:")[1].split()[0])
    return Product(f"einsum {text}, {spread}", shapes, flops, lambda np, *each: np.einsum(text, *each))


def _systems(name: str, count: int, size: int, flops: float, *right: int) -> Product:
    def call(np: Any, *matrices: Any) -> Any:
        return getattr(np.linalg, name)(*matrices)

    shapes = ((count, size, size), *([(count, size, *right)] if right else []))
    return Product(f"{name} of {count} matrices of {size} x {size}", shapes, count * flops, call)


def _rows(rows: int, width: int) -> Product:
    def call(np: Any, x: Any, w: Any, y: Any) -> Any:
        return np.matmul(x.T, np.tanh(np.matmul(x, w)) - y)

    shapes = (rows, width), (width,), (rows,)
    return Product(f"x.T @ (tanh(x @ w) - y), {rows} x {width}", shapes, 4.0 * rows * width, call)


CASES = {
    "64": _matmul(64, 64, 64),
    "256": _matmul(256, 256, 256),
    "1024": _matmul(1024, 1024, 1024),
    "layer": _matmul(128, 784, 512),
    "layer-nt": _matmul(128, 512, 512, second=True),
    "layer-tn": _matmul(784, 128, 512, first=True),
    "batched": _matmul(128, 128, 128, batch=(64,)),
    "rotations": _matmul(3, 3, 3, batch=(10_000,)),
    "points": _matmul(3, 3, 1, batch=(10_000,), first=True),
    "covariances": _matmul(16, 16, 16, batch=(2_000,), second=True),
    "transformed": _matmul(100_000, 3, 3),
    "matvec": _einsum("nij,nj->ni", n=10_000, i=6, j=6),
    "inverses": _systems("inv", 10_000, 3, 2 * 27),
    "solutions": _systems("solve", 10_000, 4, 2 / 3 * 64 + 2 * 16, 1),
    "determinants": _systems("det", 10_000, 4, 2 / 3 * 64),
    "heads": _einsum("bqhd,bkhd->bhqk", b=8, q=128, h=8, k=128, d=64),
    "einsum": _einsum("ijk,kl->ijl", i=64, j=64, k=256, l=128),
    "chain": _einsum("ij,jk,kl,lm->im", i=400, j=20, k=400, l=20, m=400),
    "rows": _rows(10_000, 1_000),
    "double-256": _matmul(256, 256, 256, dtype=np.float64),
    "double-1024": _matmul(1024, 1024, 1024, dtype=np.float64),
    "double-stack": _matmul(64, 64, 64, batch=(100,), dtype=np.float64),
    "double-features": _matmul(2000, 100, 200, dtype=np.float64),
    "double-tn": _matmul(100, 20_000, 60, first=True, dtype=np.float64),
}


def operands(case: str) -> list[np.ndarray]:
    """Return operands, the same in every process."""
    rng, product = np.random.default_rng(0), CASES[case]
    return [rng.standard_normal(shape, dtype=product.dtype) for shape in product.shapes]


class Numpy:
    """NumPy itself, which is told to contract in a good order: left to itself it takes a minute for a chain."""

    def __init__(self, case: str) -> None:
        class Names:
            matmul, tanh, swapaxes, linalg = np.matmul, np.tanh, np.swapaxes, np.linalg
            einsum = functools.partial(np.einsum, optimize=True)

        self.call, self.names, self.operands = CASES[case].function, Names, operands(case)

    def step(self) -> None:
        """Call it once."""
        self.call(self.names, *self.operands)


class Futurex:
    """The futurized function."""

    def __init__(self, case: str) -> None:
        import futurex as fx

        function = CASES[case].function
        self.call = fx.futurize(lambda *operands: function(np, *operands))
        self.operands = operands(case)

    def step(self) -> None:
        """Call it once and wait."""
        self.call(*self.operands).result()


class Torch:
    """PyTorch's tensors through its own functions of the same names."""

    def __init__(self, case: str) -> None:
        import torch

        class Names:
            matmul, einsum, tanh = torch.matmul, torch.einsum, torch.tanh
            swapaxes, linalg = torch.swapaxes, torch.linalg

        self.call, self.names = CASES[case].function, Names
        self.operands = [torch.from_numpy(each) for each in operands(case)]

    def step(self) -> None:
        """Call it once."""
        self.call(self.names, *self.operands)


class Jax:
    """``jax.jit`` of the same function on ``jax.numpy``."""

    def __init__(self, case: str) -> None:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", CASES[case].dtype is np.float64)
        function = CASES[case].function
        self.call = jax.jit(lambda *operands: function(jnp, *operands))
        self.operands = [jnp.asarray(each) for each in operands(case)]

    def step(self) -> None:
        """Call it once and wait."""
        self.call(*self.operands).block_until_ready()
