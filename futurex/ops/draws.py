"""Draws: one call of a method of a NumPy generator maps a state to the next one and a sample.

The kernel sets a NumPy generator to the state and calls the method. Shapes and types of samples are those that
``numpy.random`` documents; ``METHODS`` lists them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.ops.streams import STATE, State, example, generator_of, plain_scalar
from futurex.ops.twister import bits_now, bring
from futurex.tree.aval import Aval
from futurex.tree.dims import broadcast_shapes, same
from futurex.tree.node import Node, apply, item
from futurex.tree.record import Cost, NotDifferentiable, Sample, op

FLOAT, INT, LONG = np.dtype(float), np.dtype(np.int64), np.dtype("long")
Given = Mapping[str, Aval]
Shape = tuple[int, ...]


def _broadcast(given: Given) -> tuple[Shape, Shape]:
    return broadcast_shapes(*(aval.shape for aval in given.values())), ()


def _rows(given: Given) -> tuple[Shape, Shape]:
    """Rows as long as the first parameter."""
    return (), next(iter(given.values())).shape[-1:]


def _categories(given: Given) -> tuple[Shape, Shape]:
    categories = given["pvals"].shape
    return broadcast_shapes(given["n"].shape if "n" in given else (), categories[:-1]), categories[-1:]


@dataclass(frozen=True, slots=True)
class Method:
    """The parameters of a method in their order, the dtype of its samples, and their shape.

    ``shape`` gives, for the abstract values of the parameters that are arrays, the shape that ``size`` replaces and
    the dimensions that follow it. ``scalars`` says whether a sample without dimensions is a Python number.
    """

    parameters: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: Callable[[Given], tuple[Shape, Shape]] = _broadcast
    scalars: bool = True


def _table(dtype: np.dtype[Any], rows: str, rule: Any = _broadcast, scalars: bool = True) -> dict[str, Method]:
    """Methods from lines of a name and its parameters."""
    split = (line.split() for line in rows.strip().splitlines())
    return {name: Method(tuple(parameters), dtype, rule, scalars) for name, *parameters in split}


_FLOATS = """
    beta a b size
    chisquare df size
    exponential scale size
    f dfnum dfden size
    gamma shape scale size
    gumbel loc scale size
    laplace loc scale size
    logistic loc scale size
    lognormal mean sigma size
    noncentral_chisquare df nonc size
    noncentral_f dfnum dfden nonc size
    normal loc scale size
    pareto a size
    power a size
    rayleigh scale size
    standard_cauchy size
    standard_t df size
    triangular left mode right size
    uniform low high size
    vonmises mu kappa size
    wald mean scale size
    weibull a size
"""
_COUNTS = """
    binomial n p size
    geometric p size
    hypergeometric ngood nbad nsample size
    logseries p size
    negative_binomial n p size
    poisson lam size
    zipf a size
"""
METHODS: dict[bool, dict[str, Method]] = {
    False: {
        **_table(FLOAT, _FLOATS),
        **_table(FLOAT, """
            random size dtype out
            standard_normal size dtype out
            standard_exponential size dtype method out
            standard_gamma shape size dtype out
        """),
        **_table(FLOAT, "multivariate_normal mean cov size check_valid tol method\n dirichlet alpha size", _rows),
        **_table(INT, _COUNTS),
        **_table(INT, "integers low high size dtype endpoint", scalars=False),
        **_table(INT, "multivariate_hypergeometric colors nsample size method", _rows),
        **_table(INT, "multinomial n pvals size", _categories),
        **_table(INT, "choice a size replace p axis shuffle"),
        **_table(INT, "permutation x axis\n permuted x axis out"),
    },
    True: {
        **_table(FLOAT, _FLOATS),
        **_table(FLOAT, """
            random size
            random_sample size
            standard_exponential size
            standard_gamma shape size
            standard_normal size
        """),
        **_table(FLOAT, "multivariate_normal mean cov size check_valid tol\n dirichlet alpha size", _rows),
        **_table(LONG, _COUNTS + "randint low high size dtype\n random_integers low high size\n tomaxint size"),
        **_table(LONG, "multinomial n pvals size", _categories),
        **_table(LONG, "choice a size replace p\n permutation x"),
    },
}  # fmt: skip
"""By ``legacy``. ``choice``, ``permutation`` and ``permuted`` are drawn of integers here."""
PYTHON_TYPES = {"int": int, "bool": bool}


def _draw_aval(
    state: Aval, *avals: Aval, method: str, legacy: bool, names: tuple[str, ...], options: tuple[tuple[str, Any], ...]
) -> tuple[Aval, Aval]:
    known, given, rule = dict(options), dict(zip(names, avals, strict=True)), METHODS[legacy][method]
    size: Any = known.get("size")
    dtype: Any = known.get("dtype")
    if method in ("permutation", "permuted"):
        return STATE, Aval(given["x"].shape if "x" in given else (known["x"],), rule.dtype)
    if method == "choice":
        given = {}
    lead, event = rule.shape(given)
    if size is not None:
        sized = size if isinstance(size, tuple) else (size,)
        if lead and not same(broadcast_shapes(sized, lead), sized):
            raise ValueError(f"the parameters of {method} do not broadcast to size {sized}")
        lead = sized
    shape = (*lead, *event)
    python = dtype in PYTHON_TYPES or (rule.scalars and (method != "randint" or dtype is None))
    if shape == () and size is None and python:
        return STATE, Aval((), np.dtype(PYTHON_TYPES.get(dtype, rule.dtype if rule.dtype != LONG else INT)), weak=True)
    return STATE, Aval(shape, np.dtype(PYTHON_TYPES.get(dtype, dtype)) if dtype is not None else rule.dtype)


class _Scratch(threading.local):
    """The generators in which this thread draws, and the state that each of them has now."""

    def __init__(self) -> None:
        self.generators: dict[Any, list[Any]] = {}


_scratch = _Scratch()


def _draw(
    state: State, *values: Any, method: str, legacy: bool, names: tuple[str, ...], options: tuple[tuple[str, Any], ...]
) -> tuple[State, Any]:
    """One call of a generator's method on a generator of this thread."""
    kind = state.legacy, state.bits["bit_generator"]
    found = _scratch.generators.get(kind)
    if found is None:
        found = _scratch.generators[kind] = [generator_of(state), state]
    generator, at = found
    found[1] = None  # until the draw has gone well
    if at is not state:  # draws follow each other: mostly it is there already
        if state.legacy:
            bring(generator, state.bits)
        else:
            generator.bit_generator.state = state.bits
    given = dict(zip(names, map(plain_scalar, values), strict=True)) | dict(options)
    if "dtype" in given:
        given["dtype"] = PYTHON_TYPES.get(given["dtype"], given["dtype"])
    result = getattr(generator, method)(**given)
    bits = bits_now(generator) if state.legacy else generator.bit_generator.state
    found[1] = State(state.legacy, bits, state.seed)
    return found[1], result


STANDARD: dict[str, dict[str, float]] = {
    **{name: {"loc": 0.0, "scale": 1.0} for name in ("normal", "laplace", "logistic", "gumbel")},
    **{name: {"scale": 1.0} for name in ("exponential", "rayleigh", "gamma")},
    "uniform": {"low": 0.0, "high": 1.0},
    "lognormal": {"mean": 0.0, "sigma": 1.0},
}
"""Families that NumPy draws by scaling a sample of the standard one: the parameters of that."""


def _draw_rule(
    g: Sequence[Node | None], out: Node, state: Node, *values: Node, method: str, legacy: bool,
    names: tuple[str, ...], options: tuple[tuple[str, Any], ...],
) -> tuple[Any, ...]:  # fmt: skip
    """The derivative with respect to location and scale, for fixed bits; other parameters have none."""
    ct = g[1]
    if ct is None or not out.aval[1].inexact:
        return (None,) * (1 + len(values))
    standard = STANDARD.get(method, {})
    size = (("size", out.aval[1].shape),)
    fixed = tuple((name, value) for name, value in options if name not in (*standard, "size"))
    kept = [(name, value) for name, value in zip(names, values, strict=True) if name not in standard]
    unit = item(
        apply(
            "draw", state, *(value for _, value in kept), method=method, legacy=legacy,
            names=tuple(name for name, _ in kept), options=(*fixed, *standard.items(), *size),
        ),
        1,
    )  # fmt: skip
    if method == "lognormal":
        ct, unit = ct * item(out, 1), apply("log", unit)
    slopes = {"loc": ct, "mean": ct, "low": ct * (1.0 - unit)}
    where = f" at {out.src}: {out.src.text()}" if out.src else ""

    def slope(name: str, value: Node) -> Any:
        if name not in standard:
            return NotDifferentiable(
                f"a sample of {method} has no derivative with respect to {name}{where}; "
                "use fx.stop_gradient on it if it should count as constant"
            )
        return _summed_to(slopes.get(name, ct * unit), value)

    return None, *(
        slope(name, value) if value.aval.inexact else None for name, value in zip(names, values, strict=True)
    )


def _summed_to(cotangent: Node, target: Node) -> Node:
    """The sum over the dimensions along which a parameter was broadcast."""
    lead = cotangent.ndim - target.ndim
    axes = tuple(range(lead)) + tuple(
        k + lead for k, extent in enumerate(target.shape) if extent == 1 and cotangent.shape[k + lead] != 1
    )
    if axes:
        cotangent = apply("reshape", apply("sum", cotangent, axis=axes, keepdims=False, dtype=None), shape=target.shape)
    return cotangent


def _draw_samples(rng: np.random.Generator) -> Iterable[Sample]:
    def sample(method: str, *, legacy: bool = False, order: int = 0, size: Any = None, **given: Any) -> Sample:
        options = () if size is None else (("size", size),)
        attrs = {"method": method, "legacy": legacy, "names": tuple(given), "options": options}
        return Sample((example(legacy=legacy), *given.values()), attrs, order)

    positive = rng.uniform(0.5, 2.0, size=(3,))
    for method, parameters in STANDARD.items():
        given: Any = {name: positive + k for k, name in enumerate(parameters)}
        more: Any = {"shape": np.full(3, 2)} if method == "gamma" else {}
        yield sample(method, order=2, **more, **given)
        yield sample(method, order=1, size=(2, 3), **more, **given)
    yield sample("normal", order=1, loc=0.5, scale=1.5)
    yield sample("normal", legacy=True, order=1, loc=np.float64(0.5), scale=positive)
    yield sample("beta", a=positive, b=positive[0])
    yield sample("integers", low=np.arange(3), high=np.int64(9))
    yield sample("poisson", legacy=True, lam=3.0)
    yield sample("multinomial", size=2, n=5, pvals=np.array([0.2, 0.8]))
    yield sample("permuted", x=np.arange(6).reshape(2, 3))
    for options in ((("x", 5),), (("a", 5), ("size", (2, 2)), ("replace", False))):
        attrs = {"method": "permutation" if len(options) == 1 else "choice", "legacy": False, "names": ()}
        yield Sample((example(),), {**attrs, "options": options}, order=0)


op(
    "draw", _draw, fails=True, aval=_draw_aval, vjp=_draw_rule, samples=_draw_samples,
    cost=lambda state, *avals, **attrs: _draw_cost(_draw_aval(state, *avals, **attrs)[1]),
)  # fmt: skip


def _draw_cost(sample: Aval) -> Cost:
    return Cost(100e3 + 100.0 * math.prod(sample.shape), float(sample.nbytes))
