"""NumPy functions that are called as they are: one node holds the call, NumPy's own code is its kernel.

A function belongs here if it is pure, never returns its argument or a view of it, and the shape and type of its result
follow from the shapes and types of its arguments; arguments whose *value* decides are named with it, and must be known
when the function is traced.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.layout import is_contiguous
from futurex.frontend.numpy_api.registry import NO_VALUE
from futurex.frontend.numpy_api.ufuncs import exactly_into
from futurex.frontend.trace import current, emit, emit_many
from futurex.frontend.tracer import Tracer, entered, fresh, new_array
from futurex.ops.library import Hole, Result, result_of, spelled
from futurex.tree.node import Node
from futurex.tree.pytree import LEAF, flatten, unflatten

#: Functions by their path in NumPy, with the parameters whose values decide what the result is like.
_TABLE: dict[str, tuple[str, ...]] = {
    # sorting and searching
    "sort": (), "argsort": (), "partition": ("kth",), "argpartition": ("kth",), "lexsort": (), "searchsorted": (),
    "sort_complex": (), "digitize": (), "isin": (), "nanargmin": (), "nanargmax": (),
    # order statistics and moments
    "median": (), "percentile": (), "quantile": (), "nanmedian": (), "nanpercentile": (), "nanquantile": (),
    "average": (), "cov": (), "corrcoef": (), "nanmean": (), "nanvar": (), "nanstd": (), "nansum": (), "nanprod": (),
    "nanmin": (), "nanmax": (), "nancumsum": (), "nancumprod": (), "bincount": (), "intersect1d": (),
    "setdiff1d": (), "setxor1d": (), "union1d": (), "unique_all": (), "unique_counts": (), "unique_inverse": (),
    "unique_values": (), "histogram": ("bins",), "histogram2d": ("bins",), "histogramdd": ("bins",),
    "histogram_bin_edges": ("bins",),
    # signals, polynomials, calculus
    "convolve": ("mode",), "correlate": ("mode",), "interp": (), "gradient": (), "ediff1d": (), "trapezoid": (),
    "unwrap": (), "i0": (), "sinc": (), "kaiser": ("M",), "hanning": ("M",), "hamming": ("M",), "blackman": ("M",),
    "bartlett": ("M",), "polyval": (), "polyfit": ("deg",), "polyint": ("m",), "polyder": ("m",), "polymul": (),
    "vander": ("N",),
    # choosing and placing
    "choose": (), "select": (), "compress": ("condition",), "extract": ("condition",), "insert": ("obj",),
    "delete": ("obj",), "resize": ("new_shape",), "tri": ("N", "M", "k"), "unravel_index": ("shape",),
    "ravel_multi_index": ("dims",), "diagflat": (), "block": (), "packbits": (), "unpackbits": ("count",),
    "linspace": ("num",), "logspace": ("num",), "geomspace": ("num",), "cumulative_trapezoid": (),
    # tests
    "isclose": (), "allclose": (), "array_equal": (), "array_equiv": (), "isposinf": (), "isneginf": (),
    "isreal": (), "iscomplex": (), "angle": (), "fix": (), "around": (), "round": (),
    # what has a translation of its own, but not for every option
    "mean": (), "var": (), "std": (), "ptp": (), "clip": (), "take": (), "take_along_axis": (),
    "repeat": ("repeats",), "tile": ("reps",), "diff": (), "pad": ("pad_width",), "trace": (), "count_nonzero": (),
    "einsum": (),
}  # fmt: skip


def _function(path: str) -> Any:
    return operator.attrgetter(path)(np)


NATIVE: dict[Any, tuple[str, tuple[str, ...]]] = {
    _function(path): (path, static) for path, static in _TABLE.items() if hasattr(np, path)
}


def call_native(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A pure NumPy function on traced arrays. Raises Escape where its result has no fixed description."""
    path, static = NATIVE[function]
    kwargs = {name: value for name, value in kwargs.items() if value is not NO_VALUE}
    arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    out = kwargs.pop("out", None)
    if out is None and arguments.get("out") is not None:
        raise Escape(f"numpy.{path} with a positional out", "only out= is traced")
    if arguments.get("overwrite_input", False) is not False:
        raise Escape(f"numpy.{path} with overwrite_input=", "what is left in the input is not defined")
    for name in static:
        if name in arguments and not _is_known(arguments[name]) and not _is_table(name, arguments[name]):
            raise Escape(f"numpy.{path} with {name} that is not known", "the shape of the result depends on data")
    known = [value for name, value in arguments.items() if name in static and not _is_table(name, value)]
    inputs: list[Tracer] = []
    call = f"np.{path}({_text(args, kwargs, known, inputs, path)})"
    nodes = [each._node for each in inputs]
    try:
        result = result_of(call, tuple(node.aval for node in nodes))
    except Exception as error:
        raise Escape(f"numpy.{path}", f"on stand-ins for its arguments: {error}") from error
    if any(aval.dtype.kind not in "biufc" for aval in result.avals):
        raise Escape(f"numpy.{path}", "only numbers and booleans are traced")
    if result.structure is LEAF:
        leaf = _traced(emit("native", *nodes, call=call), result, 0, inputs)
        return leaf if out is None else exactly_into(out, leaf, f"numpy.{path}")
    if out is not None:
        raise Escape(f"numpy.{path} with out=", "it has several results")
    parts = emit_many("native", *nodes, call=call)
    leaves = [_traced(part, result, k, inputs) for k, part in enumerate(parts)]
    return current().remember_all(unflatten(result.structure, leaves))


def _text(args: Any, kwargs: Any, known: list[Any], inputs: list[Tracer], path: str) -> str:
    """The arguments as text, with holes for traced values, which are collected in ``inputs``."""

    def place(value: Any, static: bool) -> Any:
        leaves, structure = flatten(value)
        return unflatten(structure, [leaf_place(leaf, static) for leaf in leaves])

    def leaf_place(leaf: Any, static: bool) -> Any:
        leaf = entered(leaf)
        if not isinstance(leaf, Tracer):
            return leaf
        if static:
            return leaf._node.value
        inputs.append(leaf)
        return Hole(len(inputs) - 1)

    def is_known(value: Any) -> bool:
        return any(value is each for each in known)

    try:
        parts = [spelled(place(value, is_known(value))) for value in args]
        parts += [f"{name}={spelled(place(value, is_known(value)))}" for name, value in kwargs.items()]
    except TypeError as error:
        raise Escape(f"numpy.{path} with such an argument", str(error)) from error
    return ", ".join(parts)


def _is_known(value: Any) -> bool:
    return all(not isinstance(leaf, Tracer) or leaf._node.op == "const" for leaf in map(entered, flatten(value)[0]))


def _is_table(name: str, value: Any) -> bool:
    """Bins that are the edges themselves: how many there are is known."""
    return name == "bins" and isinstance(value, Tracer) and value.ndim == 1


def _traced(node: Node, result: Result, index: int, inputs: list[Tracer]) -> Tracer:
    if not result.arrays[index]:
        return fresh(node)
    if node.ndim < 2 or (result.contiguous and all(map(_in_c_order, inputs))):
        return new_array(node)
    return fresh(node)


def _in_c_order(value: Tracer) -> bool:
    strides = value.strides_in_memory
    return strides is not None and is_contiguous(value.aval, strides)
