"""Steps, angles and neighbours of floats in generated loops, with NumPy's bits: each rounds once at most."""

from __future__ import annotations

import math

import numpy as np

from futurex.kernels.numba_.real import FLOAT, Real


def heaviside(x: Real, middle: Real) -> Real:
    """Zero below zero, one above, ``middle`` there."""
    step = x.const(0.0).choose(x.compare("olt", 0.0), 1.0)
    return x.choose(x.compare("uno", x), middle.choose(x.compare("oeq", 0.0), step))


def radians(x: Real) -> Real:
    return x * (float(np.float32(math.pi) / np.float32(180)) if x.format is FLOAT else math.pi / 180)


def degrees(x: Real) -> Real:
    return x * (float(np.float32(180) / np.float32(math.pi)) if x.format is FLOAT else 180 / math.pi)


def nextafter(x: Real, y: Real) -> Real:
    """The number beside x on the way to y: its bits count up away from zero."""
    body, bits = x.body, x.as_bits()
    away = body.emit(f"xor i1 {x.compare('olt', y)}, {bits.compare('slt', 0)}")
    moved = bits.op("add", 1).as_real().choose(away, bits.op("sub", 1).as_real())
    moved = _least(x).with_sign_of(y).choose(x.compare("oeq", 0.0), moved)
    moved = y.choose(x.compare("oeq", y), moved)
    return (x + y).choose(body.emit(f"fcmp uno {x.format.kind} {x.name}, {y.name}"), moved)


def spacing(x: Real) -> Real:
    """From x to its neighbour away from zero; NaN of infinity."""
    return (x.as_bits().op("add", 1).as_real() - x).choose(x.compare("une", 0.0), _least(x))


def _least(x: Real) -> Real:
    """The smallest number above zero."""
    return x.const(2.0 ** (1 - x.format.bias - x.format.fraction))
