"""Op records: everything that is known of an operation stands in one record, made by one call of :func:`op`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from futurex.tree.aval import PYTHON_DTYPES, PYTHON_SCALARS, Aval, aval_of
from futurex.tree.dims import Fresh, UnknownDimension, broadcast_shapes, is_static, nominal, replaced

Attrs = Mapping[str, Any]
Avals = Aval | tuple[Aval, ...]


class NotDifferentiable(TypeError):
    """An op on the path has no derivative; the message names it and the user's line."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a vjp rule gives for an op whose derivative alone is that of simpler ones.

    ``parts(*inputs, **attrs)`` are the results in terms of these, or NotImplemented.
    """

    parts: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs and attributes on which the generated tests run an op.

    ``order`` is how often the numerical derivative test differentiates (0: not differentiable at this sample).
    """

    inputs: tuple[Any, ...]
    attrs: Attrs = field(default_factory=dict)
    order: int = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one node: arithmetic operations and bytes read and written."""

    flops: float
    bytes: float


@dataclass(frozen=True, eq=False)
class Op:
    """One operation. Calling it with nodes builds a node; calling it with arrays runs the NumPy reference kernel.

    Fields
    ------
    kernel: ``kernel(*arrays, **attrs)``; the meaning of the op, in NumPy.
    aval: shape and dtype rule ``aval(*avals, **attrs)``; default: the kernel itself on zero-stride dummies.
    vjp: ``vjp(g, out, *inputs, **attrs)`` -> one cotangent node or None per input, or the NotDifferentiable to raise
        if that one is asked for. ``out`` is the node itself; an op with several results gets a tuple ``g`` with None
        for results that nobody used. NotImplemented says that there is no derivative for these attributes, a Meaning
        that it is the one of simpler ops.
    jvp: ``jvp(tangents, out, *inputs, **attrs)`` -> tangent of the output (a tuple for several results, None for zero);
        ``tangents`` has None where an input does not move. Default: the vjp rule, which is linear, transposed.
    batch: ``batch(size, batched, *inputs, **attrs)`` -> the results with one more axis in front, that of the examples
        of a ``vmap``, which the inputs with ``batched`` have; NotImplemented leaves it to the general ways.
    decompose: the op in terms of simpler ones; used for its derivative where ``vjp`` is missing, and by the partitioner
        where its factor rule forbids a tiling.
    factors: tiling rule in einsum notation, or a function of ``(*avals, **attrs)`` that returns one. Names that stand
    in     input and output pass through, names only in inputs are reduced (``reduce`` says how), ``!x`` must be whole,
        ``1`` is a broadcast dimension. ``"elementwise"`` aligns all inputs to the right.
    shape_attr: the attribute that repeats the output's shape (rewritten when the output is tiled).
    room: ``room(*avals, **attrs)``, the bytes that the kernel itself allocates and frees, at most, beside its results.
    numpy: the NumPy functions that mean this op when they stand in a futurized function.
    inplace: inputs whose buffer the kernel may overwrite with the output (same shape and dtype).
    view: the output may be a view of this input.
    effect: must run, once, in program order, even if nobody reads it; never merged with an equal node.
    acts: an effect that others see, as a print or a call; what holds a graph with such a node is one itself.
    fails: the kernel may raise for some values of its inputs, not only for their shapes and dtypes; or a function of
        the node that says whether it may.
    structured: for ops that hold sub-graphs. The vjp rule also gets the Graph -> Graph transform ``pullback`` and
        ``needed``, one truth per input; the jvp rule gets ``jvp``, and the old node as ``out``, and returns all results
        with their tangents; the batch rule gets ``Batched`` values and ``vmap``, and returns ``Batched`` ones.
    """

    name: str
    kernel: Callable[..., Any]
    aval: Callable[..., Avals] | None = None
    vjp: Callable[..., tuple[Any, ...]] | None = None
    jvp: Callable[..., Any] | None = None
    batch: Callable[..., Any] | None = None
    decompose: Callable[..., Any] | None = None
    factors: str | Callable[..., str] | None = None
    reduce: str = "sum"
    shape_attr: str | None = None
    cost: Callable[..., Cost] | None = None
    room: Callable[..., int] | None = None
    numpy: tuple[Any, ...] = ()
    inplace: tuple[int, ...] = ()
    view: int | None = None
    effect: bool = False
    acts: bool = False
    fails: bool | Callable[[Any], bool] = False
    structured: bool = False
    elementwise: bool = False
    samples: Callable[[np.random.Generator], Iterable[Sample]] | None = None

    def may_fail(self, node: Any) -> bool:
        """May the kernel of this node, one of this op, raise for some values of its inputs?"""
        return self.fails(node) if callable(self.fails) else self.fails

    def __call__(self, *inputs: Any, **attrs: Any) -> Any:
        from futurex.tree.node import Node, apply

        if any(isinstance(value, Node) for value in inputs) or not inputs:
            return apply(self.name, *inputs, **attrs)
        return self.compute(*inputs, **attrs)

    def compute(self, *inputs: Any, **attrs: Any) -> Any:
        """The reference kernel's result; an op of Python scalars alone gives a Python scalar where its node is weak."""
        result = self.run(inputs, attrs)
        if isinstance(result, np.generic) and all(type(value) in PYTHON_SCALARS for value in inputs):
            aval = self.infer(tuple(aval_of(value) for value in inputs), inputs, attrs)
            return result.item() if isinstance(aval, Aval) and aval.weak else result
        return result

    def run(self, inputs: Sequence[Any], attrs: Attrs) -> Any:
        """The kernel, with the run's ints for dimensions among the attributes: the last inputs, one per ``dims``."""
        sizes = attrs.get("dims")
        if sizes is None:
            return self.kernel(*inputs, **attrs)
        inputs, attrs = without_sizes(inputs, attrs), bound(attrs, inputs)
        return self.kernel(*inputs, **attrs)

    def infer(self, avals: tuple[Aval, ...], values: tuple[Any, ...], attrs: Attrs) -> Avals:
        """Abstract value of the result; ``values`` holds the known Python scalars among the inputs (else None).

        Where dimensions are unknown and the rule does not see through them, every extent of the result is unknown.
        """
        if "dims" in attrs:
            avals, values = without_sizes(avals, attrs), without_sizes(values, attrs)
            attrs = plain_attrs(attrs)
        try:
            return self._infer(avals, values, attrs)
        except UnknownDimension:
            return self._infer_unknown(avals, values, attrs)

    def _infer_unknown(self, avals: tuple[Aval, ...], values: tuple[Any, ...], attrs: Attrs) -> Avals:
        """Number of dimensions and dtype, by the rule on stand-in sizes; Raises UnknownDimension if none fits."""
        known = {extent for aval in avals for extent in aval.shape if isinstance(extent, int)}
        for size in (*sorted(known, reverse=True), 2, 3):
            try:
                stand_ins = tuple(Aval(nominal(aval.shape, size), aval.dtype, aval.weak) for aval in avals)
                found = self._infer(stand_ins, values, {name: nominal(value, size) for name, value in attrs.items()})
            except (ValueError, TypeError, IndexError, UnknownDimension):
                continue
            return unknown_like(found)
        raise UnknownDimension(f"{self.name} of {', '.join(map(repr, avals))}: the shape is not known before the run")

    def _infer(self, avals: tuple[Aval, ...], values: tuple[Any, ...], attrs: Attrs) -> Avals:
        if self.aval is not None:
            return self.aval(*avals, **attrs)
        if self.elementwise:
            return self._infer_elementwise(avals, values, attrs)
        dummies = [_dummy(aval, value, aval.shape) for aval, value in zip(avals, values, strict=True)]
        return _avals_of(self.kernel(*dummies, **attrs))

    def _infer_elementwise(self, avals: tuple[Aval, ...], values: tuple[Any, ...], attrs: Attrs) -> Aval:
        shape = broadcast_shapes(*[aval.shape for aval in avals])
        kinds = tuple([(aval.dtype, aval.weak) for aval in avals])
        ints = tuple([value if type(value) is int else None for value in values])  # whether it fits the others' dtype
        dtype, weak = _elementwise_dtype(self, kinds, ints, tuple(sorted(attrs.items())) if attrs else ())
        for aval in avals:  # mostly it is one that is there
            if aval.shape is shape and aval.dtype is dtype and aval.weak == weak:
                return aval
        return Aval(shape, dtype, weak)

    def work(self, avals: tuple[Aval, ...], out: Avals, attrs: Attrs) -> Cost:
        """Cost of one application; by default one operation per element of the result, each array moved once.

        A dimension that is not known counts as some nominal size.
        """
        if "dims" in attrs:
            avals, attrs = without_sizes(avals, attrs), plain_attrs(attrs)
        outs = out if isinstance(out, tuple) else (out,)
        if not all(is_static(aval.shape) for aval in (*avals, *outs)):
            avals = tuple(_sized(aval) for aval in avals)
            out = tuple(map(_sized, out)) if isinstance(out, tuple) else _sized(out)
            attrs = {name: nominal(value) for name, value in attrs.items()}
        if self.cost is not None:
            with contextlib.suppress(ValueError, TypeError):  # stand-in sizes need not fit
                return self.cost(*avals, **attrs)
        outs = out if isinstance(out, tuple) else (out,)
        moved = sum(aval.nbytes for aval in avals) + sum(aval.nbytes for aval in outs)
        return Cost(float(sum(aval.size for aval in outs)), float(moved))


def _sized(aval: Aval) -> Aval:
    return Aval(nominal(aval.shape), aval.dtype, aval.weak)


def without_sizes(inputs: Sequence[Any], attrs: Attrs) -> tuple[Any, ...]:
    """The inputs of a node (or what belongs to them) without the sizes of dimensions among its attributes."""
    return tuple(inputs)[: len(inputs) - len(attrs.get("dims", ()))]


def plain_attrs(attrs: Attrs) -> Attrs:
    """The attributes that the op's own functions take."""
    return {name: value for name, value in attrs.items() if name != "dims"} if "dims" in attrs else attrs


def bound(attrs: Attrs, inputs: Sequence[Any]) -> Attrs:
    """The attributes that the op's own functions take, with the run's ints, the last inputs, for dimensions."""
    sizes = attrs["dims"]
    known = dict(zip(sizes, map(int, inputs[len(inputs) - len(sizes) :]), strict=True))
    return {name: replaced(value, known.__getitem__) for name, value in attrs.items() if name != "dims"}


def unknown_like(found: Avals) -> Avals:
    """The same abstract values with nothing known of their extents."""
    if isinstance(found, Aval):
        return Aval(tuple(Fresh(axis) for axis in range(found.ndim)), found.dtype, found.weak)
    numbers = iter(range(sum(aval.ndim for aval in found)))
    return tuple(Aval(tuple(Fresh(next(numbers)) for _ in aval.shape), aval.dtype, aval.weak) for aval in found)


@functools.lru_cache(maxsize=4096)
def _elementwise_dtype(
    record_: Op, kinds: tuple[tuple[Any, bool], ...], ints: tuple[int | None, ...], attrs: tuple[tuple[str, Any], ...]
) -> tuple[np.dtype[Any], bool]:
    """NumPy's own answer on empty arrays, exact under NEP 50, and whether it is a Python number; no values are read."""
    dummies = [_dummy(Aval((), *kind), value, (0,)) for kind, value in zip(kinds, ints, strict=True)]
    if all(weak for _, weak in kinds):
        with np.errstate(all="ignore"):
            dtype = np.asarray(record_.kernel(*dummies, **dict(attrs))).dtype
        return dtype, dtype in PYTHON_DTYPES  # np.sin(True) is float16
    return record_.kernel(*dummies, **dict(attrs)).dtype, False


def _dummy(aval: Aval, value: Any, shape: tuple[int, ...]) -> Any:
    if aval.weak:
        return value if value is not None else aval.dtype.type(1).item()
    return np.broadcast_to(np.zeros((), aval.dtype), shape)


def _avals_of(result: Any) -> Avals:
    if isinstance(result, tuple):
        return tuple(Aval(np.shape(value), np.asarray(value).dtype) for value in result)
    weak = type(result) in PYTHON_SCALARS
    array = np.asarray(result)
    return Aval(array.shape, array.dtype, weak=weak)


_RECORDS: dict[str, Op] = {}


def op(name: str, kernel: Callable[..., Any], **fields: Any) -> Op:
    """Define an operation: makes the record, registers it under its name and returns it.

    >>> from futurex.tree import record
    >>> record("add").name
    'add'
    """
    if name in _RECORDS:
        raise ValueError(f"op {name!r} is defined twice")
    _RECORDS[name] = Op(name, kernel, **fields)
    return _RECORDS[name]


def record(name: str) -> Op:
    """The record of an op by name."""
    try:
        return _RECORDS[name]
    except KeyError:
        raise KeyError(f"no op is named {name!r}; `import futurex.ops` registers the standard ones") from None


def records() -> Iterator[Op]:
    """All records, in order of definition."""
    return iter(tuple(_RECORDS.values()))
