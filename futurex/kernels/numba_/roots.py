"""The cube root for generated loops: ``x = 2^3n a``, a polynomial for the root of a, and one step towards it.

The step is E. Halley's (1694), which leaves the cube of an error: of 19 digits that the polynomial gives it makes 57.
Single precision is computed in double.
"""

from __future__ import annotations

import math

from futurex.kernels.numba_.logarithms import split
from futurex.kernels.numba_.real import DOUBLE, Real, narrow, wide

_CURVE = (
    0.999998991129721, 0.33330321385530887, -0.11098556078228922, 0.06283453032929637, -0.044417041624073894,
    0.02349622278407887,
)  # fmt: skip
"""The cube root of 1 + f for f from -0.3 to 0.5, a minimax fit."""


def cbrt(x: Real) -> Real:
    size = abs(x)
    e, m = split(size)
    n, power = e.nearest(1 / 3)
    over = n.fma(-3.0, e)  # 1, 0 or -1
    above, below = over.compare("ogt", 0.5), over.compare("olt", -0.5)
    held = m if x.format is DOUBLE else wide(m)
    near = (held - 1.0).polynomial(*_CURVE)
    near = near * held.const(2 ** (1 / 3)).choose(above, held.const(2 ** (-1 / 3)).choose(below, 1.0))
    a = held * held.const(2.0).choose(above, held.const(0.5).choose(below, 1.0))
    square = near * near
    root = ((-square).fma(near, a) / (square + square).fma(near, a)).fma(near, near)
    root = (root if x.format is DOUBLE else narrow(root)) * power.power_of_two()
    body = x.body
    some = body.emit(f"and i1 {size.compare('ogt', 0.0)}, {size.compare('olt', math.inf)}")
    return root.with_sign_of(x).choose(some, x)
