"""``ufunc_call``: ufuncs without a record of their own, by name; those of ``scipy.special`` have derivatives here.

SciPy is imported when such an op is built or run, which only a program that brought SciPy itself can ask for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import unbroadcast, where
from futurex.ops.reduce import axes_of, reduced_shape, restore
from futurex.tree.aval import Aval
from futurex.tree.dims import broadcast_shapes
from futurex.tree.node import Node, apply
from futurex.tree.record import NotDifferentiable, Sample, op

PREFIX = "scipy.special."
Slopes = Callable[..., tuple[Any, ...]]
_ROOT = 2.0 / math.sqrt(math.pi)
_NORMAL = 1.0 / math.sqrt(2.0 * math.pi)
_TERMS = 10


def ufunc_named(name: str) -> Any:
    """The ufunc of a name: ``"add"`` is NumPy's, ``"scipy.special.erfcx"`` is imported when it is needed.

    >>> ufunc_named("hypot")(3.0, 4.0)
    np.float64(5.0)
    """
    module, _, short = name.rpartition(".")
    return getattr(importlib.import_module(module or "numpy"), short)


def special(name: str, *inputs: Any) -> Node:
    """A function of ``scipy.special`` on nodes."""
    return apply("ufunc_call", *inputs, ufunc=PREFIX + name)


def _exp(x: Node) -> Node:
    return apply("exp", x)


def _log(x: Node) -> Node:
    return apply("log", x)


def near_zero(x: Node, value: float | Node, otherwise: Callable[[Node], Node]) -> Node:
    """``otherwise(x)``, and ``value`` where x is zero, which it never sees.

    A node may say how the value changes there, which the next derivative reads.
    """
    zero = apply("equal", x, 0)
    return where(zero, value, otherwise(where(zero, 1.0, x)))


def psi(x: Node) -> Node:
    return special("digamma", x)


def _share(x: Node, y: Node) -> Node:
    """``x / y``, and nothing of nothing: what is zero for every ``y`` does not change with it."""
    both = apply("logical_and", apply("equal", x, 0), apply("equal", y, 0))
    return x / where(both, 1.0, y)


def _beyond(x: Node, sign: float, near: Callable[[Node], Node]) -> Node:
    """``near(x)``, a difference of what is the more alike the larger ``x`` is; from 20 on what it comes to: the sum of
    ``(2 k - 1)!! (sign / (2 x x)) ** k``."""
    far = apply("less", 20.0, x)
    inverse = 1.0 / where(far, x, 20.0)
    step = inverse * inverse * (0.5 * sign)
    series = step * (2 * _TERMS - 1)
    for k in range(_TERMS - 1, 0, -1):
        series = (1.0 + series) * step * (2 * k - 1)
    return where(far, series, near(where(far, 0.0, x)))


def _huber_slopes(out: Node, width: Node, x: Node) -> tuple[Node, Node]:
    beyond = apply("absolute", x) - width
    far = apply("less", 0, beyond)
    return where(far, beyond, 0.0), where(far, width * apply("sign", x), x)


def _pseudo_huber_slopes(out: Node, width: Node, x: Node) -> tuple[Node, Node]:
    root = apply("sqrt", 1.0 + (x / width) * (x / width))
    return 2.0 * out / width - x * x / (width * root), x / root


def gamma_density(shape: Node, x: Node) -> Node:
    shape, x = apply("stop_gradient", shape), apply("minimum", x, 1e30)  # of infinity nothing would be left to take off
    return _exp(special("xlogy", shape - 1.0, x) - x - special("gammaln", shape))


# What the result changes by with each operand (None: it is not differentiated), from the result and the operands.
SLOPES: dict[str, Slopes] = {
    "erf": lambda out, x: (_exp(-x * x) * _ROOT,),
    "erfc": lambda out, x: (_exp(-x * x) * -_ROOT,),
    "erfcx": lambda out, x: (_ROOT * _beyond(x, -1.0, lambda x: x * special("erfcx", x) * (2.0 / _ROOT) - 1.0),),
    "erfinv": lambda out, x: (_exp(out * out) / _ROOT,),
    "erfcinv": lambda out, x: (-_exp(out * out) / _ROOT,),
    "dawsn": lambda out, x: (-_beyond(apply("absolute", x), 1.0, lambda x: 2.0 * x * special("dawsn", x) - 1.0),),
    "expit": lambda out, x: (out * (1.0 - out),),
    "logit": lambda out, x: (1.0 / (x * (1.0 - x)),),
    "log_expit": lambda out, x: (special("expit", -x),),
    "gamma": lambda out, x: (out * psi(x),),
    "gammaln": lambda out, x: (psi(x),),
    "loggamma": lambda out, x: (psi(x),),
    "gammainc": lambda out, a, x: (None, gamma_density(a, x)),
    "gammaincc": lambda out, a, x: (None, -gamma_density(a, x)),
    "huber": _huber_slopes,
    "pseudo_huber": _pseudo_huber_slopes,
    "digamma": lambda out, x: (special("zeta", 2.0, x),),
    "psi": lambda out, x: (special("zeta", 2.0, x),),
    "zeta": lambda out, s, x=None: (
        (None,) if x is None else (None, -s * special("zeta", apply("stop_gradient", s + 1.0), x))
    ),
    "beta": lambda out, x, y: (out * (psi(x) - psi(x + y)), out * (psi(y) - psi(x + y))),
    "betaln": lambda out, x, y: (psi(x) - psi(x + y), psi(y) - psi(x + y)),
    "xlogy": lambda out, x, y: (_log(y), _share(x, y)),
    "xlog1py": lambda out, x, y: (apply("log1p", y), _share(x, y + 1.0)),
    "entr": lambda out, x: (-_log(x) - 1.0,),
    "rel_entr": lambda out, x, y: (_log(x / y) + 1.0, -_share(x, y)),
    "kl_div": lambda out, x, y: (_log(x / y), 1.0 - _share(x, y)),
    "ndtr": lambda out, x: (_exp(x * x * -0.5) * _NORMAL,),
    "log_ndtr": lambda out, x: (2.0 * _NORMAL / special("erfcx", x * -math.sqrt(0.5)),),
    "ndtri": lambda out, x: (_exp(out * out * 0.5) / _NORMAL,),
    "i0": lambda out, x: (special("i1", x),),
    "i1": lambda out, x: (special("i0", x) - near_zero(x, 0.5, lambda x: special("i1", x) / x),),
    "i0e": lambda out, x: (special("i1e", x) - apply("sign", x) * out,),
    "i1e": lambda out, x: (
        special("i0e", x) - apply("sign", x) * out - near_zero(x, 0.5, lambda x: special("i1e", x) / x),
    ),
    "j0": lambda out, x: (-special("j1", x),),
    "j1": lambda out, x: (special("j0", x) - near_zero(x, 0.5, lambda x: special("j1", x) / x),),
    "k0": lambda out, x: (-special("k1", x),),
    "k1": lambda out, x: (-special("k0", x) - out / x,),
    "y0": lambda out, x: (-special("y1", x),),
    "y1": lambda out, x: (special("y0", x) - out / x,),
    "exp2": lambda out, x: (out * math.log(2.0),),
    "exp10": lambda out, x: (out * math.log(10.0),),
    "expm1": lambda out, x: (out + 1.0,),
    "log1p": lambda out, x: (1.0 / (x + 1.0),),
    "cbrt": lambda out, x: (1.0 / (3.0 * out * out),),
}


def _call(*inputs: Any, ufunc: str) -> Any:
    return ufunc_named(ufunc)(*inputs)


def _call_aval(*avals: Aval, ufunc: str) -> Any:
    shape = broadcast_shapes(*(aval.shape for aval in avals))
    dummies = [aval.dtype.type(1).item() if aval.weak else np.empty(0, aval.dtype) for aval in avals]
    result = ufunc_named(ufunc)(*dummies)
    if isinstance(result, tuple):
        return tuple(Aval(shape, np.asarray(part).dtype) for part in result)
    return Aval(shape, np.asarray(result).dtype)


def _call_rule(g: Any, out: Node, *inputs: Node, ufunc: str) -> Any:
    slopes = SLOPES.get(ufunc.removeprefix(PREFIX)) if ufunc.startswith(PREFIX) else None
    if slopes is None or any(source.dtype.kind == "c" for source in inputs):
        return NotImplemented
    found = zip(slopes(out, *inputs), inputs, strict=True)
    return tuple(_moved(g, slope, source, f"{ufunc}'s operand {k}") for k, (slope, source) in enumerate(found))


def _moved(g: Any, slope: Any, source: Node, what: str) -> Any:
    """The cotangent of an operand: of several results what all of them add to it."""
    if slope is None:
        return NotDifferentiable(
            f"there is no derivative by {what}; use fx.stop_gradient on it if it should count as constant"
        ) if source.aval.inexact else None  # fmt: skip
    pairs = list(zip(g, slope, strict=True)) if isinstance(slope, tuple) else [(g, slope)]
    parts = [each * along for each, along in pairs if each is not None]
    return unbroadcast(functools.reduce(operator.add, parts), source.aval) if parts else None


def _exponentials(x: Any, *weights: Any, function: str, axis: Any, **options: Any) -> Any:
    """With an operand more, of x's shape and type, ``logsumexp`` has weights."""
    options |= dict(zip(("b",), weights, strict=False))
    return getattr(importlib.import_module("scipy.special"), function)(x, axis=axis, **options)


def exponentials_in_parts(x: Node, function: str, axis: Any, keepdims: bool = False) -> Node:
    """``softmax`` and ``logsumexp`` without weights, as SciPy computes them: of a sum of exponentials the largest are
    counted, and what the others are beside them is not lost in a one."""
    along = {"axis": axis, "keepdims": True}
    top = apply("max", x, **along)
    if function == "softmax":
        parts = _exp(x - top)
        return parts / apply("sum", parts, dtype=None, **along)
    finite = apply("isfinite", top)
    largest = apply("equal", x, top)
    many = apply("sum", apply("cast", largest, dtype=x.dtype), dtype=None, **along)
    others = apply("sum", where(largest, 0.0, _exp(x - where(finite, top, 0.0))), dtype=None, **along)
    out = apply("log1p", others / many) + _log(many) + top
    out = where(finite, out, where(apply("not_equal", others, others), others, top))  # NaN, or an infinity
    return out if keepdims else apply("reshape", out, shape=reduced_shape(x.shape, axis, keepdims))


def _exponentials_aval(x: Aval, *weights: Aval, function: str, axis: Any, keepdims: bool = False) -> Aval:
    dtype = x.dtype if x.dtype.kind in "fc" else np.dtype(float)
    return Aval(reduced_shape(x.shape, axis, keepdims) if function == "logsumexp" else x.shape, dtype)


def _exponentials_rule(
    g: Node, out: Node, x: Node, *weights: Node, function: str, axis: Any, keepdims: bool = False
) -> Any:
    if x.dtype.kind == "c":
        return NotImplemented
    if weights:
        return _weighted_rule(restore(g, x, axis), restore(out, x, axis), x, *weights)
    if function == "logsumexp":
        return (restore(g, x, axis) * _exp(x - restore(out, x, axis)),)
    total = {"axis": axis, "keepdims": True, "dtype": None}
    if function == "softmax":
        return (out * (g - apply("sum", g * out, **total)),)
    return (g - _exp(out) * apply("sum", g, **total),)


def _weighted_rule(g: Node, out: Node, x: Node, weights: Node) -> tuple[Node, Node]:
    """What has no weight is left out, whatever it is: infinities and NaN, too."""
    counted = where(apply("equal", weights, 0), -math.inf, x)
    return g * weights * _exp(counted - out), g * _exp(x - out)


def _exponentials_samples(rng: np.random.Generator) -> Iterable[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return
    x = rng.normal(size=(3, 4))
    for axis in (None, (1,)):
        yield Sample((x,), {"function": "logsumexp", "axis": axis, "keepdims": axis is None})
        yield Sample((x, rng.uniform(0.2, 0.8, (3, 4))), {"function": "logsumexp", "axis": axis, "keepdims": False})
        yield Sample((x,), {"function": "softmax", "axis": axis})
        yield Sample((x,), {"function": "log_softmax", "axis": axis})
    yield Sample((np.arange(4),), {"function": "softmax", "axis": (0,)}, order=0)


def _exponentials_factors(x: Aval, *weights: Aval, function: str, axis: Any, keepdims: bool = False) -> str:
    axes = axes_of(x.ndim, axis)
    names = [f"!d{k}" if k in axes else f"d{k}" for k in range(x.ndim)]
    if function != "logsumexp":
        return f"{' '.join(names)} -> {' '.join(names)}"
    outs = [("1" if keepdims else "") if k in axes else name for k, name in enumerate(names)]
    return f"{', '.join([' '.join(names)] * (1 + len(weights)))} -> {' '.join(filter(None, outs))}"


op(
    "special_exponentials", _exponentials, aval=_exponentials_aval, vjp=_exponentials_rule,
    factors=_exponentials_factors, samples=_exponentials_samples,
)  # fmt: skip


BY_LAST = {"zeta", "gammainc", "gammaincc"}
"""Functions with a derivative by their last operand alone."""
SAMPLES: dict[str, Callable[[Any], tuple[Any, ...]]] = {}
"""Operands for the tests, of a function that does not take any numbers between zero and one."""


def _call_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.normal(size=(3, 4)), rng.normal(size=4)), {"ufunc": "nextafter"}, order=0)
    if importlib.util.find_spec("scipy") is None:
        return
    for name, slopes in SLOPES.items():
        count = slopes.__code__.co_argcount - 1
        x = rng.uniform(0.2, 0.8, (3, 4))
        by_last = (2, 3, 4)[: count - 1]
        if name in SAMPLES:
            inputs = SAMPLES[name](x)
        elif name in BY_LAST:
            inputs = (*by_last, x + 1.0 if count == 2 else x)
        else:
            inputs = (x, *(rng.uniform(0.2, 0.8, 4) for _ in range(count - 1)))
        yield Sample(inputs, {"ufunc": PREFIX + name}, order=2)
    yield Sample((np.array([0.0, 0.5]),), {"ufunc": PREFIX + "i1"}, order=1)
    yield Sample((rng.uniform(1.0, 2.0, (3,)).astype(np.float32),), {"ufunc": PREFIX + "gammaln"}, order=0)
    yield Sample((rng.normal(size=(4,)),), {"ufunc": PREFIX + "itj0y0"}, order=0)


op(
    "ufunc_call", _call, aval=_call_aval, vjp=_call_rule, factors="elementwise", samples=_call_samples,
)  # fmt: skip
