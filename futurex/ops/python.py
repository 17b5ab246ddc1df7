"""What Python itself does with values: conversions to Python scalars and printing."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op

_KINDS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_DTYPES = {kind: np.dtype(np.int64 if python is int else python) for kind, python in _KINDS.items()}


def _python_scalar_rule(g: Node, out: Node, x: Node, kind: str) -> tuple[Node | None]:
    return (apply("cast", g, dtype=x.dtype) if kind in "fc" and x.dtype.kind in "fc" else None,)


op(
    "python_scalar", lambda x, kind: _KINDS[kind](x), aval=lambda x, kind: Aval((), _DTYPES[kind], weak=True),
    vjp=_python_scalar_rule,
    samples=lambda rng: [
        Sample((np.float64(1.5),), {"kind": "f"}, order=1),
        Sample((np.float64(1.5),), {"kind": "i"}, order=0),
        Sample((np.bool_(True),), {"kind": "b"}, order=0),
    ],
)  # fmt: skip


def _print(*values: Any, parts: tuple[str | None, ...], sep: str, end: str) -> Any:
    filled = iter(values)
    print(*(next(filled) if part is None else part for part in parts), sep=sep, end=end)
    return np.True_


op(
    "print", _print, aval=lambda *values, parts, sep, end: Aval((), np.dtype(bool)), effect=True,
    samples=lambda rng: [Sample((np.arange(3),), {"parts": ("x =", None), "sep": " ", "end": "\n"}, order=0)],
)  # fmt: skip
