"""Fourier transforms by DUCC, where it is installed (the extra ``fft``).

NumPy transforms one row after the other. DUCC transforms as many side by side as a register holds numbers, which takes
0.2 to 0.6 of the time, and shares a long single one among threads. Its errors are a few units in the last place of the
largest value, of the type that is transformed, where NumPy computes single precision in double.

M. Reinecke, `Distinctly Useful Code Collection <https://gitlab.mpcdf.mpg.de/mtr/ducc>`_.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.parts import in_parts
from futurex.kernels.registry import Kernel
from futurex.tree.aval import Aval
from futurex.tree.node import Node

TOGETHER = 16
"""Rows of which a number, at most, are transformed side by side: parts of so many hold the same bits as the whole."""
LEAST = 2048
"""Numbers of an operand; of fewer the transforms are NumPy's, to the bit."""
LONG = 1 << 16
"""Numbers of a single transform that threads share."""
_UNSCALED, _BY_ROOT, _BY_LENGTH = 0, 1, 2  # what DUCC divides by
_TRANSFORMED = {"fft": "fdFD", "ifft": "fdFD", "rfft": "fd", "irfft": "FD"}


class DuccBackend:
    """Claims transforms of many numbers, whose length is that of their input, of native single or double precision."""

    name = "ducc"

    @classmethod
    def if_available(cls) -> DuccBackend | None:
        """The backend; None where DUCC is not installed."""
        return cls() if importlib.util.find_spec("ducc0") is not None else None

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """The kernel of one transform along one axis."""
        kinds = _TRANSFORMED.get(node.op)
        x = node.inputs[0].aval if kinds else None
        if kinds is None or not node.is_static or not isinstance(x, Aval) or not x.static or x.size < LEAST:
            return None
        native = x.dtype.isnative and x.dtype.char in kinds
        given, n = x.shape[node.attrs["axis"]], node.attrs["n"]
        if not native or given != (n // 2 + 1 if node.op == "irfft" else n):
            return None
        alone = x.size == given
        own = threads if alone and x.size >= LONG else 1
        inplace = (0,) if x.dtype == node.dtype else ()
        kernel = Kernel(_bound(node, own), self.name, into=True, inplace=inplace, threads=own)
        return kernel if alone else in_parts(node, kernel, threads, TOGETHER)


def _bound(node: Node, threads: int) -> Callable[[Any, Any], Any]:
    """``call(out, x)`` for one node."""
    library = importlib.import_module("ducc0.fft")
    axes, norm = [node.attrs["axis"]], node.attrs["norm"]
    forward = node.op in ("fft", "rfft")
    scaled = {"ortho": _BY_ROOT, "forward": _BY_LENGTH if forward else _UNSCALED}
    factor = scaled.get(norm, _UNSCALED if forward else _BY_LENGTH)
    how: dict[str, Any] = {"axes": axes, "forward": forward, "inorm": factor, "nthreads": threads}
    if node.op == "irfft":
        how["lastsize"] = node.attrs["n"]
    transform = getattr(library, {"rfft": "r2c", "irfft": "c2r"}.get(node.op, "c2c"))

    def call(out: Any, x: Any) -> Any:
        return transform(x if x.flags.aligned else np.array(x), out=out, **how)

    return call
