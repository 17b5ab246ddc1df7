"""Functions of Python's ``math`` and ``cmath`` modules, and ``round``, on numbers: values and exceptions are Python's.

NumPy's functions of the same names may differ in the last bit, and give NaN where Python raises. Derivatives are
those of NumPy's functions.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node
from futurex.tree.record import Cost, Sample, op, record

FLOATS = {
    "sqrt": "sqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
    "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos",
    "atan": "arctan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "fabs": "absolute", "pow": "power", "atan2": "arctan2", "hypot": "hypot",
    "copysign": "copysign", "fmod": "fmod",
}  # fmt: skip
_MORE_FLOATS = ("erf", "erfc", "gamma", "lgamma", "degrees", "radians", "remainder", "ldexp", "dist", "fsum")
_INTEGERS = ("floor", "ceil", "trunc", "gcd", "lcm", "factorial", "comb", "perm", "isqrt", "round")
_BOOLEANS = ("isnan", "isinf", "isfinite", "isclose")
KINDS = {
    **dict.fromkeys([*FLOATS, *_MORE_FLOATS, "rounded"], float),
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_BOOLEANS, bool),
}


def _math_call(*values: Any, function: str, options: tuple[tuple[str, float], ...] = ()) -> Any:
    numbers = [value.item() if isinstance(value, np.ndarray | np.generic) else value for value in values]
    compute: Any = round if function in ("round", "rounded") else getattr(math, function)
    return compute(*numbers, **dict(options))


def _aval(*values: Aval, function: str, options: tuple[tuple[str, float], ...] = ()) -> Aval:
    return Aval((), np.dtype(np.int64 if KINDS[function] is int else KINDS[function]), weak=True)


def _rule(g: Node, out: Node, *values: Node, function: str, options: Any = ()) -> Sequence[Node | None]:
    known = function in FLOATS and len(values) == _ARITY.get(function, 1)
    rule = record(FLOATS[function]).vjp if known else None
    if rule is None:
        if KINDS[function] is not float:
            return [None] * len(values)
        raise TypeError(f"math.{function} with {len(values)} arguments has no derivative")
    return rule(g, out, *values)


_ARITY = {"pow": 2, "atan2": 2, "hypot": 2, "copysign": 2, "fmod": 2}


def _samples(rng: np.random.Generator) -> list[Sample]:
    names = ("sqrt", "exp", "log", "sin", "tanh")
    smooth = [Sample((float(rng.uniform(0.2, 0.8)),), {"function": name}) for name in names]
    more = [("floor", 1.5), ("round", 2.5), ("isnan", float("nan")), ("erf", 0.3)]
    return [
        *smooth,
        *(Sample((value,), {"function": name}, order=0) for name, value in more),
        Sample((1.25, 1), {"function": "rounded"}, order=0),
        Sample((1.5, 0.5), {"function": "atan2"}, order=1),
        Sample((1.0, 1.1), {"function": "isclose", "options": (("rel_tol", 0.2),)}, order=0),
    ]


op(
    "math_call", _math_call, aval=_aval, vjp=_rule, fails=True, samples=_samples,
    cost=lambda *values, function, options=(): Cost(20.0, 16.0),
)  # fmt: skip


# -- complex numbers -------------------------------------------------------------------------------------------------

_ANALYTIC = {
    "exp": "exp", "sqrt": "sqrt", "log": "log", "log10": "log10", "sin": "sin", "cos": "cos", "tan": "tan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip
COMPLEX_KINDS = {
    **dict.fromkeys([*_ANALYTIC, "rect"], complex),
    **dict.fromkeys(("phase", "radius", "angle"), float),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), bool),
}
"""``radius`` and ``angle`` are those of ``cmath.polar``: of an angle that is no normal number ``phase`` raises."""
_POLAR = {"radius": 0, "angle": 1}


def _cmath_call(*values: Any, function: str) -> Any:
    numbers = [value.item() if isinstance(value, np.ndarray | np.generic) else value for value in values]
    return cmath.polar(*numbers)[_POLAR[function]] if function in _POLAR else getattr(cmath, function)(*numbers)


def _complex_rule(g: Node, out: Node, *values: Node, function: str) -> Sequence[Node | None]:
    if COMPLEX_KINDS[function] is bool:
        return [None] * len(values)
    rule = record(_ANALYTIC[function]).vjp if function in _ANALYTIC and len(values) == 1 else None
    if rule is None:
        raise TypeError(f"cmath.{function} with {len(values)} arguments has no derivative")
    return rule(g, out, *values)


op(
    "cmath_call", _cmath_call,
    aval=lambda *values, function: Aval((), np.dtype(COMPLEX_KINDS[function]), weak=True),
    vjp=_complex_rule, fails=True,
    samples=lambda rng: [
        *(Sample((0.3 + 0.4j,), {"function": name}, order=1) for name in ("exp", "sqrt", "log")),
        *(Sample((0.3 + 0.4j,), {"function": name}, order=0) for name in ("phase", "isnan")),
        Sample((1.5, 0.5), {"function": "rect"}, order=0),
    ],
    cost=lambda *values, function: Cost(40.0, 32.0),
)  # fmt: skip
