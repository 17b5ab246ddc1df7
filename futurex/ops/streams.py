"""NumPy's own random streams: a generator's state is a value, and a draw makes the next state and a sample of it.

The kernels set a NumPy generator to the state and call the method, so the numbers are NumPy's, bit for bit, and
whoever runs a draw twice (a derivative, another locality) gets them twice. Shapes and types of samples are those that
``numpy.random`` documents; ``METHODS`` lists them.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, item
from futurex.tree.record import Cost, Sample, op

STATE = Aval((), np.dtype(object))
BIT_GENERATORS: dict[str, type[np.random.BitGenerator]] = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
GENERATORS = (np.random.Generator, np.random.RandomState)
Sequenced = tuple[Any, tuple[int, ...], int, int]  # entropy, spawn key, pool size, children spawned


class Unsupported(TypeError):
    """A generator whose state NumPy does not give as a value: a subclass, or a foreign bit generator."""


@dataclass(frozen=True, eq=False, slots=True)
class State:
    """What a generator will draw: the state of its bits, and for ``spawn`` what they were seeded with."""

    legacy: bool
    bits: dict[str, Any]
    seed: Sequenced | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._text() == other._text()

    def __hash__(self) -> int:
        return hash(self._text())

    def _text(self) -> str:
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            return repr((self.legacy, self.bits, self.seed))


def bits_of(generator: Any) -> np.random.BitGenerator:
    """The bit generator of a Generator or RandomState."""
    return generator._bit_generator if isinstance(generator, np.random.RandomState) else generator.bit_generator


def state_of(generator: Any) -> State:
    """The state of a NumPy generator now. Raises Unsupported for kinds that are not NumPy's own."""
    if type(generator) is np.random.RandomState:
        bits = generator.get_state(legacy=False)
        if type(generator._bit_generator) not in BIT_GENERATORS.values():
            raise Unsupported(f"a {type(generator._bit_generator).__qualname__}")
        return State(True, bits)
    if type(generator) is not np.random.Generator or type(generator.bit_generator) not in BIT_GENERATORS.values():
        raise Unsupported(f"a {type(generator).__qualname__} of a {type(bits_of(generator)).__qualname__}")
    sequence = generator.bit_generator.seed_seq
    return State(False, generator.bit_generator.state, _described(sequence))


def _described(sequence: Any) -> Sequenced | None:
    if type(sequence) is not np.random.SeedSequence:
        return None
    return sequence.entropy, tuple(sequence.spawn_key), sequence.pool_size, sequence.n_children_spawned


def restore(generator: Any, state: State) -> None:
    """Bring a NumPy generator to a state, including the number of children it spawned."""
    if state.legacy:
        generator.set_state(state.bits)
        return
    generator.bit_generator.state = state.bits
    if state.seed is not None:
        spawned = state.seed[3] - generator.bit_generator.seed_seq.n_children_spawned
        if spawned > 0:
            generator.bit_generator.seed_seq.spawn(spawned)


def generator_of(state: State) -> Any:
    """A new NumPy generator in the given state."""
    kind = BIT_GENERATORS[state.bits["bit_generator"]]
    if state.legacy:
        legacy = np.random.RandomState(kind(0))
        legacy.set_state(state.bits)
        return legacy
    bits = kind(_sequence(state.seed) if state.seed is not None else 0)
    bits.state = state.bits
    return np.random.Generator(bits)


def _sequence(seed: Sequenced) -> np.random.SeedSequence:
    entropy, spawn_key, pool_size, spawned = seed
    return np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=spawned)


# -- seeding -----------------------------------------------------------------------------------------------------------


def _seeded(*seed: Any, bits: str, legacy: bool, sequence: Sequenced | None = None) -> State:
    if legacy:
        return state_of(np.random.RandomState(*seed))
    source = _sequence(sequence) if sequence is not None else seed[0]
    return state_of(np.random.Generator(BIT_GENERATORS[bits](source)))


op(
    "seeded", _seeded, aval=lambda *seed, bits, legacy, sequence=None: STATE,
    samples=lambda rng: [
        Sample((5,), {"bits": "PCG64", "legacy": False}, order=0),
        Sample((np.arange(3),), {"bits": "MT19937", "legacy": False}, order=0),
        Sample((5,), {"bits": "MT19937", "legacy": True}, order=0),
        Sample((), {"bits": "Philox", "legacy": False, "sequence": (7, (0, 1), 4, 2)}, order=0),
    ],
)  # fmt: skip


def _spawned(state: State, n: int) -> tuple[State, ...]:
    """Children as ``Generator.spawn`` makes them."""
    if state.seed is None:
        raise Unsupported("a generator without a seed sequence cannot spawn")
    kind = BIT_GENERATORS[state.bits["bit_generator"]]
    children = _sequence(state.seed).spawn(n)
    parent = replace(state, seed=(*state.seed[:3], state.seed[3] + n))
    return parent, *(state_of(np.random.Generator(kind(child))) for child in children)


def _example(seed: int = 3, legacy: bool = False) -> State:
    return _seeded(seed, bits="PCG64", legacy=legacy)


op(
    "spawned", _spawned, aval=lambda state, n: (STATE,) * (n + 1),
    samples=lambda rng: [Sample((_example(),), {"n": 2}, order=0)],
)  # fmt: skip


# -- methods -----------------------------------------------------------------------------------------------------------

FLOAT, INT, LONG = np.dtype(float), np.dtype(np.int64), np.dtype("long")
Given = Mapping[str, Aval]
Shape = tuple[int, ...]


def _broadcast(given: Given) -> tuple[Shape, Shape]:
    return np.broadcast_shapes(*(aval.shape for aval in given.values())), ()


def _rows(given: Given) -> tuple[Shape, Shape]:
    """Rows as long as the first parameter."""
    return (), next(iter(given.values())).shape[-1:]


def _categories(given: Given) -> tuple[Shape, Shape]:
    categories = given["pvals"].shape
    return np.broadcast_shapes(given["n"].shape if "n" in given else (), categories[:-1]), categories[-1:]


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
    size, dtype = known.get("size"), known.get("dtype")
    if method in ("permutation", "permuted"):
        return STATE, Aval(given["x"].shape if "x" in given else (known["x"],), rule.dtype)
    if method == "choice":
        given = {}
    lead, event = rule.shape(given)
    if size is not None:
        sized = (size,) if isinstance(size, int) else size
        if lead and np.broadcast_shapes(sized, lead) != sized:
            raise ValueError(f"the parameters of {method} do not broadcast to size {sized}")
        lead = sized
    shape = (*lead, *event)
    python = dtype in PYTHON_TYPES or (rule.scalars and (method != "randint" or dtype is None))
    if shape == () and size is None and python:
        return STATE, Aval((), np.dtype(PYTHON_TYPES.get(dtype, rule.dtype if rule.dtype != LONG else INT)), weak=True)
    return STATE, Aval(shape, np.dtype(PYTHON_TYPES.get(dtype, dtype)) if dtype is not None else rule.dtype)


_scratch = threading.local()


def _draw(
    state: State, *values: Any, method: str, legacy: bool, names: tuple[str, ...], options: tuple[tuple[str, Any], ...]
) -> tuple[State, Any]:
    """One call of a generator's method on a generator of this thread."""
    kind = state.legacy, state.bits["bit_generator"]
    generators = _scratch.__dict__
    generator = generators.get(kind)
    if generator is None:
        generator = generators[kind] = generator_of(state)
    elif state.legacy:
        generator.set_state(state.bits)
    else:
        generator.bit_generator.state = state.bits
    given = dict(zip(names, values, strict=True)) | dict(options)
    if "dtype" in given:
        given["dtype"] = PYTHON_TYPES.get(given["dtype"], given["dtype"])
    result = getattr(generator, method)(**given)
    bits = generator.get_state(legacy=False) if state.legacy else generator.bit_generator.state
    return State(state.legacy, bits, state.seed), result


STANDARD: dict[str, dict[str, float]] = {
    **dict.fromkeys(("normal", "laplace", "logistic", "gumbel"), {"loc": 0.0, "scale": 1.0}),
    **dict.fromkeys(("exponential", "rayleigh", "gamma"), {"scale": 1.0}),
    "uniform": {"low": 0.0, "high": 1.0},
    "lognormal": {"mean": 0.0, "sigma": 1.0},
}
"""Families that NumPy draws by scaling a sample of the standard one: the parameters of that."""


def _draw_rule(
    g: Sequence[Node | None], out: Node, state: Node, *values: Node, method: str, legacy: bool,
    names: tuple[str, ...], options: tuple[tuple[str, Any], ...],
) -> tuple[Node | None, ...]:  # fmt: skip
    """The derivative with respect to location and scale, for fixed bits; other parameters have none."""
    ct = g[1]
    inexact = [name for name, value in zip(names, values, strict=True) if value.aval.inexact]
    if ct is None or not out.aval[1].inexact or not inexact:
        return (None,) * (1 + len(values))
    standard = STANDARD.get(method, {})
    lost = [name for name in inexact if name not in standard]
    if lost:
        where = f" at {out.src}: {out.src.text()}" if out.src else ""
        raise TypeError(
            f"a sample of {method} has no derivative with respect to {', '.join(lost)}{where}; "
            "use fx.stop_gradient on it if it should count as constant"
        )
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
    return None, *(
        _summed_to(slopes.get(name, ct * unit), value) if value.aval.inexact else None
        for name, value in zip(names, values, strict=True)
    )


def _summed_to(cotangent: Node, target: Node) -> Node:
    """The sum over the dimensions along which a parameter was broadcast."""
    lead = cotangent.ndim - target.ndim
    axes = tuple(range(lead)) + tuple(
        k + lead for k, extent in enumerate(target.shape) if extent == 1 and cotangent.shape[k + lead] != 1
    )
    if axes:
        cotangent = apply("reshape", apply("sum", cotangent, axis=axes, keepdims=False), shape=target.shape)
    return cotangent


def _draw_samples(rng: np.random.Generator) -> Iterable[Sample]:
    def sample(method: str, *, legacy: bool = False, order: int = 0, size: Any = None, **given: Any) -> Sample:
        options = () if size is None else (("size", size),)
        attrs = {"method": method, "legacy": legacy, "names": tuple(given), "options": options}
        return Sample((_example(legacy=legacy), *given.values()), attrs, order)

    positive = rng.uniform(0.5, 2.0, size=(3,))
    for method, parameters in STANDARD.items():
        given = {name: positive + k for k, name in enumerate(parameters)}
        more = {"shape": np.full(3, 2)} if method == "gamma" else {}
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
        yield Sample((_example(),), {**attrs, "options": options}, order=0)


op(
    "draw", _draw, aval=_draw_aval, vjp=_draw_rule, samples=_draw_samples,
    cost=lambda state, *avals, **attrs: _draw_cost(_draw_aval(state, *avals, **attrs)[1]),
)  # fmt: skip


def _draw_cost(sample: Aval) -> Cost:
    return Cost(100e3 + 100.0 * math.prod(sample.shape), float(sample.nbytes))
