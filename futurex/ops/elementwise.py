"""Elementwise operations: one row each. Derivative rows are written for one element; broadcasting is undone for all."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, broadcast_shapes, same
from futurex.tree.node import Node, apply, const, item
from futurex.tree.record import Cost, Op, Sample, op

Rule = Callable[..., tuple[Any, ...]]
LN2, LN10 = math.log(2.0), math.log(10.0)


def unbroadcast(g: Node, target: Aval) -> Node:
    """Sum ``g`` over the axes along which ``target`` was broadcast, so that it has the target's shape.

    A value that was written may have had more dimensions than its place: ``x[0] = np.ones((1, 1))``.
    """
    extra = max(0, g.ndim - target.ndim)
    own, wanted = g.shape[extra:], target.shape[max(0, target.ndim - g.ndim) :]
    if any(isinstance(extent, Dim) and not same(extent, g_) for extent, g_ in zip(wanted, own, strict=True)):
        return apply("sum_to", g, shape=target.shape)  # which axes were broadcast only the run can tell
    axes = tuple(range(extra)) + tuple(
        axis + extra for axis, extent in enumerate(wanted) if not same(extent, own[axis]) and extent == 1
    )
    if axes:
        g = apply("sum", g, axis=axes, keepdims=False, dtype=None)
    return g if same(g.shape, target.shape) else apply("reshape", g, shape=target.shape)


def _unbroadcast_rule(rule: Rule) -> Rule:
    def vjp(g: Node, out: Node, *inputs: Node, **attrs: Any) -> tuple[Any, ...]:
        cotangents = rule(g, out, *inputs, **attrs)
        return tuple(
            None if ct is None else unbroadcast(ct, x.aval) for ct, x in zip(cotangents, inputs, strict=True)
        )

    return vjp


def _pointwise(rule: Rule) -> Callable[..., Any]:
    """Tangents of an op of real numbers: for one element, the derivative is the same factor in both directions."""

    def jvp(tangents: Sequence[Node | None], out: Node, *inputs: Node, **attrs: Any) -> Any:
        if any(is_complex(x) for x in (out, *inputs)):
            return NotImplemented
        moved = [rule(t, out, *inputs, **attrs)[k] for k, t in enumerate(tangents) if t is not None]
        terms = [term for term in moved if term is not None]
        if not terms:
            return None
        total = functools.reduce(operator.add, terms)
        return total if same(total.shape, out.shape) else apply("broadcast_to", total, shape=out.shape)

    return jvp


def _samples(n_inputs: int, low: float, high: float, kinds: str, order: int) -> Callable[..., Iterable[Sample]]:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        def draw(shape: tuple[int, ...], dtype: Any) -> Any:
            if dtype == np.bool_:
                return rng.random(shape) < 0.5
            if np.dtype(dtype).kind in "iu":
                return rng.integers(max(1, int(low)), max(3, int(min(high, 7))) + 1, shape).astype(dtype)
            values = rng.uniform(low, high, shape)
            if np.dtype(dtype).kind == "c":
                return (values + 1j * rng.uniform(low, high, shape)).astype(dtype)
            return values.astype(dtype)

        dtypes = {"f": (np.float64, np.float32), "i": (np.int64, np.uint8), "b": (np.bool_,), "c": (np.complex128,)}
        shapes = [((3, 4),) * n_inputs, ((), (4,), (3, 1))[:n_inputs], ((0, 2),) * n_inputs]
        if n_inputs > 1:
            shapes.append(((3, 1), (1, 4), (4,))[:n_inputs])
        for kind in kinds:
            for dtype in dtypes[kind]:
                for shape in shapes:
                    exact = dtype in (np.float64, np.complex128)
                    yield Sample(tuple(draw(s, dtype) for s in shape), order=order if exact else 0)

    return samples


def _row(
    ufunc: Any, rule: Rule | None, low: float = -2.0, high: float = 2.0, kinds: str = "f", flops: float = 1.0, *,
    name: str = "", n_inputs: int = 0, numpy: tuple[Any, ...] | None = None, samples: Any = None,
    fails: bool | Callable[[Node], bool] = False,
) -> Op:  # fmt: skip
    n_inputs = n_inputs or ufunc.nin

    def cost(*avals: Aval) -> Cost:
        shape = broadcast_shapes(*(aval.shape for aval in avals))
        return Cost(flops * math.prod(shape), sum(aval.nbytes for aval in avals) + 8.0 * math.prod(shape))

    return op(
        name or ufunc.__name__, ufunc, vjp=_unbroadcast_rule(rule) if rule else None,
        jvp=_pointwise(rule) if rule else None, factors="elementwise",
        numpy=(ufunc,) if numpy is None else numpy, inplace=tuple(range(n_inputs)), elementwise=True, cost=cost,
        samples=samples or _samples(n_inputs, low, high, kinds, 2 if rule else 0), fails=fails,
    )  # fmt: skip


def is_complex(x: Node) -> bool:
    return x.dtype.kind == "c"


def conj(x: Node) -> Node:
    return apply("conjugate", x) if is_complex(x) else x


def where(condition: Node, x: Any, y: Any) -> Node:
    return apply("where", condition, x, y)


def _absolute_rule(g: Node, out: Node, x: Node) -> tuple[Node]:
    if not is_complex(x):
        return (g * apply("sign", x),)
    safe = where(apply("equal", out, 0.0), 1.0, out)
    return (g * conj(x) / safe,)


def _sign_rule(g: Node, out: Node, x: Node) -> tuple[Node | None]:
    """Constant for real numbers; a complex number's direction turns."""
    if not is_complex(x):
        return (None,)
    size = apply("absolute", x)
    turned = (g - apply("real", g * out) * conj(out)) / where(apply("equal", size, 0.0), 1.0, size)
    return (where(apply("equal", size, 0.0), 0.0, turned),)


_SAME_SQUARES = frozenset(("sum", "sum_to", "divide", "cast", "reshape", "transpose", "broadcast_to", "load"))
"""Operations whose first operand is a sum of squares where their result is one."""


def _is_of_squares(x: Node) -> bool:
    """Is it a sum or mean of squares of real numbers, whose root has a corner at zero?"""
    left = [x]
    while left:
        node = left.pop()
        if node.dtype.kind == "c":
            return False
        if node.op == "square" or (node.op == "multiply" and node.inputs[0] is node.inputs[1]):
            continue
        if node.op in ("power", "scalar_power") and node.inputs[1].op == "const":
            if np.all(node.inputs[1].value == 2):
                continue
            return False
        if node.op == "add":
            left += node.inputs
        elif node.op in _SAME_SQUARES:
            left.append(node.inputs[0])
        else:
            return False
    return True


def flat_at_zero(norm: Node) -> Node:
    """What a norm's derivative divides by: at zero, where it has a corner, a norm counts as flat."""
    return where(apply("equal", norm, 0.0), math.inf, norm)


def _sqrt_rule(g: Node, out: Node, x: Node) -> tuple[Node]:
    return (g * 0.5 / (flat_at_zero(out) if _is_of_squares(x) else out),)


def _hypot_rule(g: Node, out: Node, x: Node, y: Node) -> tuple[Node, Node]:
    size = flat_at_zero(out)
    return g * x / size, g * y / size


def _power_fails(node: Node) -> bool:
    """Integers to negative integer powers are errors."""
    exponent = node.inputs[1]
    if node.dtype.kind != "i" or exponent.dtype.kind != "i":
        return False
    return exponent.op != "const" or bool(np.any(np.less(exponent.value, 0)))


def _power_rule(g: Node, out: Node, x: Node, y: Node) -> tuple[Node | None, Node | None]:
    if y.op == "const" and isinstance(y.value, int | float | np.number) and y.value in _PRODUCTS:
        return g * (y * _PRODUCTS[y.value](x)), None
    constant = apply("equal", y, 0)
    if y.op != "const":  # an exponent that is zero has a slope that is not, but where the base is zero, too
        constant = apply("logical_and", constant, apply("equal", x, 0))
    dx = g * where(constant, 0.0, y * apply("power", x, where(constant, 1.0, y - 1)))
    if y.op == "const":
        return dx, None  # log(x) of a negative base must not appear where nobody asked for it
    positive = where(apply("equal", x, 0), 1.0, x)
    return dx, g * out * where(apply("equal", x, 0), 0.0, apply("log", positive))


_PRODUCTS: dict[Any, Callable[[Node], Node]] = {
    2: lambda x: x,
    3: lambda x: apply("square", x),
    4: lambda x: apply("square", x) * x,
    5: lambda x: apply("square", apply("square", x)),
}
"""By exponents, powers with one less: slopes need no bits of NumPy's, which computes powers from logarithms."""


def _extreme_rule(g: Node, out: Node, x: Node, y: Node) -> tuple[Node, Node]:
    """To the operand that was taken; equal ones share it."""
    share = where(apply("equal", x, y), 0.5 * g, g)
    return where(apply("equal", out, x), share, 0.0), where(apply("equal", out, y), share, 0.0)


def _to_real_imag(g: Node, unit: Any) -> Node:
    return g * unit


# One row per operation: NumPy's function, derivative, the interval its test samples come from, dtype kinds, flops.
_row(np.add, lambda g, out, x, y: (g, g), kinds="fibc")
_row(np.subtract, lambda g, out, x, y: (g, -g), kinds="fic")
_row(np.multiply, lambda g, out, x, y: (g * y, g * x), kinds="fibc")
_row(np.divide, lambda g, out, x, y: (g / y, -g * out / y), 0.5, 2.0, kinds="fic", flops=4)
_row(np.floor_divide, None, 0.5, 4.0, kinds="fi", flops=4)
_row(np.remainder, lambda g, out, x, y: (g, -g * apply("floor_divide", x, y)), 0.6, 1.9, kinds="fi", flops=4)
_row(np.fmod, lambda g, out, x, y: (g, -g * apply("trunc", x / y)), 0.6, 1.9, kinds="fi", flops=4)
_row(np.power, _power_rule, 0.5, 2.0, kinds="fic", flops=20, fails=_power_fails)
_row(np.float_power, _power_rule, 0.5, 2.0, kinds="fic", flops=20)
_row(np.negative, lambda g, out, x: (-g,), kinds="fic")
_row(np.positive, lambda g, out, x: (g,), kinds="fic")
_row(np.absolute, _absolute_rule, 0.3, 2.0, kinds="fic", numpy=(np.absolute,))
_row(np.sign, _sign_rule, kinds="fic")
_row(np.exp, lambda g, out, x: (g * out,), kinds="fc", flops=10)
_row(np.exp2, lambda g, out, x: (g * out * LN2,), kinds="fc", flops=10)
_row(np.expm1, lambda g, out, x: (g * (out + 1.0),), kinds="fc", flops=10)
_row(np.log, lambda g, out, x: (g / x,), 0.3, 3.0, kinds="fc", flops=10)
_row(np.log2, lambda g, out, x: (g / (x * LN2),), 0.3, 3.0, kinds="fc", flops=10)
_row(np.log10, lambda g, out, x: (g / (x * LN10),), 0.3, 3.0, kinds="fc", flops=10)
_row(np.log1p, lambda g, out, x: (g / (x + 1.0),), -0.5, 2.0, kinds="fc", flops=10)
_row(np.sqrt, _sqrt_rule, 0.3, 3.0, kinds="fc", flops=4)
_row(np.cbrt, lambda g, out, x: (g / (3.0 * out * out),), 0.3, 3.0, flops=10)
_row(np.square, lambda g, out, x: (g * 2.0 * x,), kinds="fic")
_row(np.reciprocal, lambda g, out, x: (-g * out * out,), 0.5, 2.0, kinds="fc", flops=4)
_row(np.sin, lambda g, out, x: (g * apply("cos", x),), kinds="fc", flops=10)
_row(np.cos, lambda g, out, x: (-g * apply("sin", x),), kinds="fc", flops=10)
_row(np.tan, lambda g, out, x: (g * (out * out + 1.0),), -1.0, 1.0, kinds="fc", flops=10)
_row(np.arcsin, lambda g, out, x: (g / apply("sqrt", 1.0 - x * x),), -0.7, 0.7, kinds="fc", flops=10)
_row(np.arccos, lambda g, out, x: (-g / apply("sqrt", 1.0 - x * x),), -0.7, 0.7, kinds="fc", flops=10)
_row(np.arctan, lambda g, out, x: (g / (x * x + 1.0),), kinds="fc", flops=10)
_row(np.arctan2, lambda g, out, x, y: (g * y / (x * x + y * y), -g * x / (x * x + y * y)), 0.5, 2.0, flops=20)
_row(np.hypot, _hypot_rule, 0.5, 2.0, flops=8)
_row(np.sinh, lambda g, out, x: (g * apply("cosh", x),), kinds="fc", flops=10)
_row(np.cosh, lambda g, out, x: (g * apply("sinh", x),), kinds="fc", flops=10)
_row(np.tanh, lambda g, out, x: (g * (1.0 - out * out),), kinds="fc", flops=10)
_row(np.arcsinh, lambda g, out, x: (g / apply("sqrt", x * x + 1.0),), kinds="fc", flops=10)
_row(np.arccosh, lambda g, out, x: (g / apply("sqrt", x * x - 1.0),), 1.5, 3.0, kinds="fc", flops=10)
_row(np.arctanh, lambda g, out, x: (g / (1.0 - x * x),), -0.7, 0.7, kinds="fc", flops=10)
for _extreme in (np.maximum, np.minimum, np.fmax, np.fmin):
    _row(_extreme, _extreme_rule, kinds="fi")
_row(
    np.logaddexp, lambda g, out, x, y: (g * apply("exp", x - out), g * apply("exp", y - out)), flops=25
)
for _names, _low, _high, _kinds in (
    ("floor ceil trunc rint isnan isinf isfinite signbit", -2.0, 2.0, "f"),
    ("equal not_equal less less_equal greater greater_equal", -2.0, 2.0, "fib"),
    ("logical_and logical_or logical_xor logical_not", -2.0, 2.0, "fib"),
    ("bitwise_and bitwise_or bitwise_xor invert", 0.0, 7.0, "ib"),
    ("left_shift right_shift gcd lcm bitwise_count", 0.0, 7.0, "i"),
    ("nextafter spacing", -2.0, 2.0, "f"),
):
    for _name in _names.split():
        _row(getattr(np, _name), None, _low, _high, kinds=_kinds)
_row(
    np.logaddexp2, lambda g, out, x, y: (g * apply("exp2", x - out), g * apply("exp2", y - out)), flops=25
)
_row(np.fabs, lambda g, out, x: (g * apply("sign", x),), 0.3, 2.0)
_row(np.deg2rad, lambda g, out, x: (g * math.radians(1.0),))
_row(np.radians, lambda g, out, x: (g * math.radians(1.0),))
_row(np.rad2deg, lambda g, out, x: (g * math.degrees(1.0),))
_row(np.degrees, lambda g, out, x: (g * math.degrees(1.0),))
_row(np.heaviside, lambda g, out, x, y: (None, where(apply("equal", x, 0), g, 0.0)), 0.3, 2.0)
_row(np.ldexp, lambda g, out, x, n: (apply("ldexp", g, n), None), samples=lambda rng: _ldexp_samples(rng))
_row(np.copysign, lambda g, out, x, y: (g * apply("sign", x) * apply("copysign", 1.0, y), None), 0.3, 2.0)
_row(np.conjugate, lambda g, out, x: (apply("conjugate", g) if is_complex(g) else g,), kinds="fc")


def _ldexp_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for dtype, order in ((np.float64, 2), (np.float32, 0), (np.float16, 0)):
        yield Sample((rng.normal(size=(3, 4)).astype(dtype), rng.integers(-3, 4, (4,))), order=order)


def _several(ufunc: Any, rule: Rule, low: float, high: float) -> None:
    """A row for a ufunc with two results; ``g`` holds None for a result that nobody used."""
    op(
        ufunc.__name__, ufunc, vjp=_unbroadcast_rule(rule), factors="elementwise", numpy=(ufunc,),
        aval=lambda *avals: _avals_of_several(ufunc, avals), samples=_samples(ufunc.nin, low, high, "f", 2),
    )  # fmt: skip


def _avals_of_several(ufunc: Any, avals: tuple[Aval, ...]) -> tuple[Aval, ...]:
    shape = broadcast_shapes(*(aval.shape for aval in avals))
    dummies = [aval.dtype.type(1).item() if aval.weak else np.empty(0, aval.dtype) for aval in avals]
    return tuple(Aval(shape, np.asarray(result).dtype) for result in ufunc(*dummies))


def _divmod_rule(g: Any, out: Node, x: Node, y: Node) -> tuple[Any, Any]:
    return (None, None) if g[1] is None else (g[1], -g[1] * item(out, 0))


def _frexp_rule(g: Any, out: Node, x: Node) -> tuple[Any]:
    return (None if g[0] is None else apply("ldexp", g[0], -item(out, 1)),)


_several(np.divmod, _divmod_rule, 0.6, 1.9)
_several(np.modf, lambda g, out, x: (g[0],), 0.1, 0.9)
_several(np.frexp, _frexp_rule, 0.6, 0.9)


def _where_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for c, x, y in (((3, 4), (3, 4), (3, 4)), ((4,), (3, 1), ()), ((0, 2), (0, 2), (2,)), ((), (3,), (3,))):
        yield Sample((np.asarray(rng.random(c) < 0.5), np.asarray(rng.normal(size=x)), np.asarray(rng.normal(size=y))))
    mask = rng.random((3, 4)) < 0.5
    yield Sample((mask, rng.normal(size=(3, 4)) + 1j, rng.normal(size=4)))
    yield Sample((mask, rng.normal(size=(3, 4)).astype(np.float32), 0.0), order=0)
    yield Sample((mask.astype(np.int64), np.arange(4), np.arange(12).reshape(3, 4)), order=0)


_row(
    np.where, lambda g, out, c, x, y: (None, where(c, g, 0.0), where(c, 0.0, g)),
    name="where", n_inputs=3, samples=_where_samples,
)  # fmt: skip


def _real(x: Any) -> Any:
    return np.positive(np.real(x))  # an array of its own, not a view


def _imag(x: Any) -> Any:
    return np.positive(np.imag(x)) if np.iscomplexobj(x) else np.zeros_like(x)


_row(_real, lambda g, out, x: (_to_real_imag(g, 1.0),), kinds="fc", name="real", n_inputs=1, numpy=())
_row(_imag, lambda g, out, x: (_to_real_imag(g, -1j),), kinds="fc", name="imag", n_inputs=1, numpy=())


def _cast(x: Any, dtype: Any) -> Any:
    return np.asarray(x).astype(dtype) if not isinstance(x, np.generic) else x.astype(dtype)


def _cast_rule(g: Node, out: Node, x: Node, dtype: Any) -> tuple[Node | None]:
    if out.dtype.kind not in "fc":
        return (None,)
    if is_complex(g) and x.dtype.kind == "f":
        g = apply("real", g)
    return (apply("cast", g, dtype=x.dtype) if g.dtype != x.dtype else g,)


op(
    "cast", _cast, vjp=_cast_rule, factors="elementwise", elementwise=True,
    aval=lambda x, dtype: Aval(x.shape, np.dtype(dtype)),
    samples=lambda rng: [
        Sample((rng.normal(size=(3, 4)),), {"dtype": np.dtype("float32")}, order=0),
        Sample((rng.normal(size=(3, 4)),), {"dtype": np.dtype("complex128")}),
        Sample((rng.integers(0, 9, (5,)),), {"dtype": np.dtype("float64")}, order=0),
    ],
)  # fmt: skip
op(
    "stop_gradient", lambda x: x, aval=lambda x: x, factors="elementwise", view=0,
    batch=batching.unchanged("stop_gradient"),
    samples=lambda rng: [Sample((rng.normal(size=(3,)),), order=0)],
)  # fmt: skip


def zeros_like(aval: Aval) -> Node:
    """A node of zeros with an abstract value's shape and dtype."""
    return apply("full", const(np.zeros((), aval.dtype)[()]), shape=aval.shape, dtype=aval.dtype)
