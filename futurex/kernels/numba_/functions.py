"""The functions that generated loops compute by polynomials, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_ import (
    areas,
    complex_functions,
    complexes,
    exponentials,
    inverses,
    logarithms,
    powers,
    roots,
    trigonometry,
)
from futurex.kernels.numba_.real import Real, format_of
from futurex.kernels.numba_.scalar import Body, part_of, parts
from futurex.ops.fusion import function_of
from futurex.tree.node import Node

FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        exponentials.exp, exponentials.exp2, exponentials.expm1, exponentials.tanh, exponentials.sinh,
        exponentials.cosh, exponentials.expit, logarithms.log, logarithms.log2, logarithms.log10, logarithms.log1p,
        logarithms.logaddexp, logarithms.logaddexp2, roots.cbrt, powers.power, powers.float_power, powers.hypot,
        trigonometry.sin, trigonometry.cos, trigonometry.tan, inverses.arctan, inverses.arctan2, inverses.arcsin,
        inverses.arccos, inverses.erf, areas.arcsinh, areas.arccosh, areas.arctanh,
    )
} | complex_functions.FUNCTIONS  # fmt: skip

GUARDED = frozenset(("sin", "cos", "tan", "complex_exp"))
"""Those that hold up to a bound: where a kernel meets a larger argument, it computes its part of the region anew with
those of C's library for such arguments, or, where there are reductions, says so, and NumPy computes the region."""


def function(body: Body, node: Node, dtype: np.dtype[Any], operands: Sequence[str]) -> str:
    """The register of what a node of such a function gives, from operands of one dtype."""
    if dtype.kind == "c" and node.op == "power":
        whole = functools.partial(complexes.whole_power, exponent=int(complex(node.inputs[1].value).real))
        return complexes.computed(whole, body, dtype, operands[:1])
    if dtype.kind == "c":
        return complexes.computed(FUNCTIONS[function_of(node)], body, dtype, operands)
    if node.op == "power":
        return powers.power_of(body, dtype, node.inputs[1], operands)
    if node.op == "exp" and _never_above_zero(node.inputs[0]):
        return exponentials.decayed(Real(body, format_of(dtype), operands[0])).name
    return FUNCTIONS[function_of(node)](*(Real(body, format_of(dtype), each) for each in operands)).name


def out_of_bounds(body: Body, dtype: np.dtype[Any], operand: str) -> str:
    """True for an operand of a guarded function for which its formula does not hold; of complex numbers the imaginary
    part is an angle."""
    if dtype.kind == "c":
        dtype, operand = part_of(dtype), parts(operand)[1]
    return trigonometry.beyond(Real(body, format_of(dtype), operand))


def _never_above_zero(x: Node) -> bool:
    """Is it what numbers lack of the largest of their row? Integers may overflow."""
    if x.op != "subtract" or x.dtype.kind != "f":
        return False
    source, top = x.inputs
    return top.op in ("max", "free_max") and top.inputs[0] is source and bool(top.attrs["keepdims"])
