"""``fused``: a region of elementwise operations as one node, so that one kernel makes one trip through memory.

A pass makes such nodes. What they mean is their sub-graph; :func:`loop_of` say what it may hold.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.introspect import opt_func_info

from futurex.ops import casts
from futurex.ops.special import PREFIX, ufunc_named
from futurex.ops.strides import lies_in_short_rows
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param
from futurex.tree.record import Avals, Cost, Sample, op, record

Dtype = np.dtype[Any]

CORRECTLY_ROUNDED = frozenset((
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "negative", "positive", "absolute",
    "sign", "sqrt", "square", "reciprocal", "floor", "ceil", "trunc", "rint", "maximum", "minimum", "isnan", "isinf",
    "isfinite",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift", "where", "cast",
    "conjugate", "signbit", "copysign", "fabs", "fmax", "fmin", "heaviside", "nextafter", "spacing", "deg2rad",
    "radians", "rad2deg", "degrees", "bitwise_count",
))  # fmt: skip
"""Ops whose compiled form gives NumPy's bits: exact or correctly rounded, every one of them."""
PARTS = frozenset(("real", "imag"))
"""As exact; views of complex numbers or copies."""
_VIEWS = {((name,),): name for name in PARTS}
FORMATS = frozenset(("narrow", "widen"))
"""As exact; conversions between single precision and formats of fewer bits (:mod:`futurex.ops.precision`)."""
APPROXIMATE = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh", "expit", "cbrt",
    "sin", "cos", "tan", "arctan", "arcsin", "arccos", "erf", "arcsinh", "arccosh", "arctanh",
))  # fmt: skip
"""Functions whose compiled form is within 2.5 units in the last place; NumPy's own forms are, too, with other bits."""
OF_TWO = frozenset(("logaddexp", "logaddexp2", "arctan2", "power", "float_power", "hypot"))
"""As those; the error of ``logaddexp`` and ``logaddexp2`` is in units of the larger of result and operands: NumPy's
formula. Powers of integers, and with a single exponent of -1, 0, 0.5, 1 or 2, are exact, to NumPy's bit."""
OF_COMPLEX = frozenset(f"complex_{name}" for name in ("exp", "log", "log2", "log10", "sqrt", "sign"))
"""As those, of complex numbers: each part within 4 units in its last place."""

_BY_PRODUCTS = 100
"""Whole powers of complex numbers from here on are no products in NumPy."""
_COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
_FLOAT_ONLY = frozenset(("reciprocal", "isnan", "isinf", "isfinite"))
_INTEGER_ONLY = frozenset(("left_shift", "right_shift"))
_NEIGHBOURS = frozenset(("nextafter", "spacing"))
"""Ops on halves that single precision does not have."""
REMAINDERS = frozenset(("floor_divide", "remainder", "fmod"))
"""Ops whose loops in NumPy compute floats one by one, at 6 to 25 ns each."""
SHORT_ROW = 16
"""Elements of a row up to which NumPy's loops, that begin anew for each where something is broadcast or lies with gaps,
are slow."""
_OF_COMPLEX = frozenset((
    "add", "subtract", "multiply", "divide", "negative", "positive", "absolute", "square", "reciprocal", "conjugate",
    "real", "imag", "equal", "not_equal", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_xor",
    "logical_not", "where", "cast",
))  # fmt: skip
SUPPORTED = frozenset(np.dtype(code) for code in "?bhilqBHILQfd")
"""The dtypes that generated code knows."""
HALF = np.dtype(np.float16)
"""Known to elementwise regions, too: each operation is one in single precision, rounded, as NumPy has it."""
COMPLEX = frozenset(np.dtype(code) for code in "FD")
"""Known to elementwise regions, too, in NumPy's own formulas."""
APPROXIMATED = frozenset(np.dtype(code) for code in "fd")


def loop_of(node: Node) -> tuple[tuple[Dtype, ...], Dtype] | None:
    """The dtypes in which NumPy computes an elementwise node: one per operand, and that of the result.

    None if a compiled loop would not give NumPy's bits (floats to uint32, sines of complex numbers ...).
    """
    if function_of(node) in APPROXIMATE | OF_TWO:
        return _approximate_loop(node)
    if function_of(node) in OF_COMPLEX:
        known = node.inputs[0].dtype == node.dtype and node.dtype.isnative and not node.aval.weak
        return ((node.dtype,), node.dtype) if known else None
    if node.op in FORMATS:
        return (node.inputs[0].dtype,), node.dtype
    loop = _resolved(node)
    return loop if loop is not None and _fits(node, loop[0]) else None


def _complex_power(node: Node) -> tuple[tuple[Dtype, ...], Dtype] | None:
    """With an exponent that is known and whole: others are NumPy's, whose error grows with the exponent."""
    base, exponent = node.inputs
    if not isinstance(node.aval, Aval) or node.aval.weak or base.dtype != node.dtype or not node.dtype.isnative:
        return None
    if exponent.op != "const" or exponent.shape:
        return None
    value = complex(exponent.value)
    known = value.real.is_integer() and not value.imag and abs(value) < _BY_PRODUCTS
    return ((node.dtype, node.dtype), node.dtype) if known else None


def is_generated(dtype: Dtype) -> bool:
    """Does generated code know the dtype?"""
    return loop_of(apply("cast", param(Aval((2,), np.dtype(bool)), "x"), dtype=dtype)) is not None


def _integer_power(node: Node) -> tuple[tuple[Dtype, ...], Dtype] | None:
    """With an exponent that is known, and for which NumPy raises no error."""
    base, exponent = node.inputs
    if not isinstance(node.aval, Aval) or node.aval.weak or node.dtype not in SUPPORTED or not node.dtype.isnative:
        return None
    known = exponent.op == "const" and exponent.size == 1 and exponent.dtype.kind in "iu"
    if not known or base.dtype != node.dtype or not 0 <= int(exponent.value) <= np.iinfo(node.dtype).max:
        return None
    return (node.dtype, node.dtype), node.dtype


def real_loop_of(node: Node) -> tuple[tuple[Dtype, ...], Dtype] | None:
    """:func:`loop_of` for kernels that know no complex numbers."""
    loop = loop_of(node)
    return None if loop is None or _is_complex(node, loop) else loop


def function_of(node: Node) -> str:
    """The name of what a node computes: its op, the function of ``scipy.special`` that it calls, the part of complex
    numbers that it is a view of, or a function of these that has a name of its own."""
    if node.dtype in COMPLEX and f"complex_{node.op}" in OF_COMPLEX:
        return f"complex_{node.op}"
    if node.op == "load":
        return _VIEWS.get(node.attrs["chain"], node.op)
    return str(node.attrs["ufunc"]).removeprefix(PREFIX) if node.op == "ufunc_call" else node.op


_OUTRUN = dict.fromkeys("fd", frozenset(("exp", "exp2", "expm1", "log", "tanh", "arctan", "arctan2")))
_OUTRUN["d"] |= {"sin", "cos"}  # which NumPy computes one by one, whatever it says
"""Functions by type for which NumPy's loops in wide registers, too, take longer than a kernel."""


@functools.cache
def _in_wide_registers() -> frozenset[str]:
    """NumPy's functions whose loops on this processor take 16 or 8 numbers at once, at 0.2 to 2 ns each."""
    targets = opt_func_info(func_name=f"^({'|'.join(APPROXIMATE | OF_TWO)})$")
    wide = ("X86_V4", "AVX512")
    return frozenset(
        name for name, loops in targets.items()
        if any(loops[kinds]["current"].startswith(wide) for kinds in loops.keys() & {"ff", "fff", "dd", "ddd"})
    )  # fmt: skip


def is_slow(node: Node, *, here: bool) -> bool:
    """Is it a function that whoever computes it alone takes longer for than a kernel? ``here``, at 2 to 30 ns a number,
    NumPy and SciPy, whose loops begin anew for each row of what is broadcast; of a device's own functions only
    remainders are known to be slow."""
    function = function_of(node)
    if function in REMAINDERS:
        return node.dtype.kind == "f"
    many = (1 < source.size < node.size or lies_in_short_rows(source) for source in node.inputs)
    if here and node.ndim > 1 and node.shape[-1] <= SHORT_ROW and any(many):
        return True
    known = here and function in APPROXIMATE | OF_TWO | OF_COMPLEX and node.dtype.kind in "fc"
    return known and (function not in _in_wide_registers() or function in _OUTRUN.get(node.dtype.char, ()))


def _approximate_loop(node: Node) -> tuple[tuple[Dtype, ...], Dtype] | None:
    """In the format of the result, to which NumPy converts operands first. Functions of halves are those of single
    precision, rounded."""
    if node.op == "power" and node.dtype.kind in "iu":
        return _integer_power(node)
    if node.op == "power" and node.dtype in COMPLEX:
        return _complex_power(node)
    if not isinstance(node.aval, Aval) or node.aval.weak:
        return None
    if node.dtype not in APPROXIMATED | {HALF}:
        return None
    own = all(source.dtype == node.dtype for source in node.inputs if not source.aval.weak)
    if not own and not _converts(node.attrs.get("ufunc", node.op), tuple(x.aval for x in node.inputs), node.dtype):
        return None
    within = np.dtype(np.float32) if node.dtype == HALF else node.dtype
    return (within,) * len(node.inputs), node.dtype


@functools.lru_cache(maxsize=4096)
def _converts(name: str, avals: tuple[Aval, ...], dtype: Dtype) -> bool:
    """Are all operands, whose types generated code knows, converted to this one before the function is computed?"""
    if any(aval.dtype not in SUPPORTED | {HALF} for aval in avals):
        return False
    resolved = ufunc_named(name).resolve_dtypes((*map(operand_kind, avals), None))
    return all(each == dtype for each in resolved)


def resolved_loop(node: Node) -> tuple[tuple[Dtype, ...], Dtype] | None:
    """Like :func:`real_loop_of`, if every Python int fits the dtype in which it is used: who asks must see to that."""
    loop = _resolved(node)
    return None if loop is None or _is_complex(node, loop) else loop


def _resolved(node: Node) -> tuple[tuple[Dtype, ...], Dtype] | None:
    name = function_of(node)
    if name not in CORRECTLY_ROUNDED | PARTS or not isinstance(node.aval, Aval) or node.aval.weak:
        return None
    return _loop(name, tuple(source.aval for source in node.inputs), node.dtype)


def _is_complex(node: Node, loop: tuple[tuple[Dtype, ...], Dtype]) -> bool:
    return any(dtype in COMPLEX for dtype in (*loop[0], loop[1], *(source.dtype for source in node.inputs)))


@functools.lru_cache(maxsize=4096)
def _loop(name: str, avals: tuple[Aval, ...], result: Dtype) -> tuple[tuple[Dtype, ...], Dtype] | None:
    """By NumPy's own resolution of loops, under which Python scalars are weak."""
    if name == "cast":
        inputs: tuple[Dtype, ...] = (avals[0].dtype,)
        if avals[0].dtype.kind == "f" and result.kind in "iu" and not _is_known_cast(avals[0].dtype, result):
            return None  # what a value out of range becomes is not known
        if avals[0].dtype.kind == "c" and result.kind not in "bc":
            return None  # NumPy warns
    elif name == "where":
        inputs = (np.dtype(bool), result, result)
    elif name in PARTS:
        inputs = (avals[0].dtype,)
        if avals[0].dtype not in COMPLEX:
            return None
    elif name.startswith("logical_"):
        inputs = (np.dtype(bool),) * len(avals)  # the truth of an operand is all that counts
    else:
        ufunc: Any = record(name).kernel
        resolved = ufunc.resolve_dtypes((*map(operand_kind, avals), None))
        inputs = resolved[:-1]
        if resolved[-1] != result or len(set(inputs)) != 1:
            return None
    kinds = {dtype.kind for dtype in inputs}
    if (name in _FLOAT_ONLY and kinds not in ({"f"}, {"c"})) or (name in _INTEGER_ONLY and not kinds <= {"i", "u"}):
        return None
    if name in REMAINDERS and "b" in kinds:
        return None
    if name in _NEIGHBOURS and HALF in inputs:
        return None
    loops = {*inputs, result, *(aval.dtype for aval in avals if not aval.weak)}
    if loops & COMPLEX:
        known = SUPPORTED | COMPLEX
        return (inputs, result) if name in _OF_COMPLEX and all(d in known and d.isnative for d in loops) else None
    return (inputs, result) if all(dtype in SUPPORTED | {HALF} and dtype.isnative for dtype in loops) else None


def _is_known_cast(source: Dtype, target: Dtype) -> bool:
    return source in SUPPORTED | {HALF} and target in SUPPORTED and casts.known(source, target)


def operand_kind(aval: Aval) -> Any:
    """What NumPy resolves loops by: a dtype, or the Python type of a weak scalar (a bool is not weak there)."""
    return type(aval.dtype.type(0).item()) if aval.weak and aval.dtype.kind != "b" else aval.dtype


def _fits(node: Node, loop: tuple[Dtype, ...]) -> bool:
    """False where NumPy looks at the value of a Python int: it may not fit the loop's dtype."""
    for source, dtype in zip(node.inputs, loop, strict=True):
        if not source.aval.weak or source.dtype.kind != "i" or dtype.kind not in "iu":
            continue
        limits = np.iinfo(dtype)
        if source.op == "const":
            if not limits.min <= source.value <= limits.max:
                return False
        elif node.op in _COMPARISONS:
            return False
    return True


def op_of_graph(name: str, **fields: Any) -> None:
    """Define an op whose meaning is its attribute ``graph``: what a backend computes of it in one kernel. A result
    that is an operand is a copy of it."""

    def run(*inputs: Any, graph: Graph) -> Any:
        found = zip(graph.outs, graph(*inputs), strict=True)
        return _one_or_all(tuple(value.copy() if node.op == "param" else value for node, value in found))

    def aval(*avals: Aval, graph: Graph) -> Avals:
        if avals != tuple(node.aval for node in graph.params):
            raise TypeError(f"{name}: {graph!r} wants {[node.aval for node in graph.params]}, got {list(avals)}")
        outs: Avals = _one_or_all(tuple(node.aval for node in graph.outs))
        return outs

    def cost(*avals: Aval, graph: Graph) -> Cost:
        nodes = [node for node in graph.nodes if node.inputs and node.op != "item"]
        flops = sum(
            node.record.work(tuple(source.aval for source in node.inputs), node.aval, node.attrs).flops
            for node in nodes
        )
        return Cost(flops, float(sum(aval.nbytes for aval in avals) + sum(node.aval.nbytes for node in graph.outs)))

    def decompose(*inputs: Node, graph: Graph) -> Any:
        return _one_or_all(graph.inline(inputs))

    op(name, run, aval=aval, cost=cost, decompose=decompose, **fields)


def _one_or_all(outs: Sequence[Any]) -> Any:
    return outs[0] if len(outs) == 1 else tuple(outs)


def _factors(*avals: Aval, graph: Graph) -> str:
    """Every dimension passes through, aligned to the right as NumPy broadcasts."""
    shape = graph.outs[0].shape
    names = [f"d{k}" for k in range(len(shape))]

    def of(aval: Aval) -> str:
        mine = zip(names[len(names) - aval.ndim :], shape[len(shape) - aval.ndim :], aval.shape, strict=True)
        return " ".join(name if extent == whole else "1" for name, whole, extent in mine)

    return f"{', '.join(map(of, avals))} -> {', '.join([' '.join(names)] * len(graph.outs))}"


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    f8 = np.dtype(float)
    x, y = param(Aval((3, 4), f8), "x"), param(Aval((4,), f8), "y")
    h = x * y + 1.5
    yield Sample((rng.normal(size=(3, 4)), rng.normal(size=4)), {"graph": Graph([x, y], [h], "region")})
    both = Graph([x, y], [h, apply("where", apply("greater", x, 0.0), h, y)], "region")
    yield Sample((rng.normal(size=(3, 4)), rng.normal(size=4)), {"graph": both})


op_of_graph("fused", factors=_factors, samples=_samples)
