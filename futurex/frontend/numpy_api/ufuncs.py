"""Ufuncs and their methods on traced arrays, by the op records that name them."""

from __future__ import annotations

import builtins
import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.layout import Strides, c_strides, f_strides, result_strides
from futurex.frontend.numpy_api.gufuncs import core_last, from_end
from futurex.frontend.numpy_api.registry import HANDLERS, NO_VALUE, check_type
from futurex.frontend.trace import current, emit, emit_many
from futurex.frontend.tracer import Tracer, array_node, entered, fresh, new_array, node_of
from futurex.tree.aval import Aval
from futurex.tree.dims import broadcast_shapes, may_fill
from futurex.tree.node import Node, const
from futurex.tree.record import record, records

UFUNCS = {ufunc: record.name for record in records() for ufunc in record.numpy if isinstance(ufunc, np.ufunc)}


def is_arraylike(value: Any) -> bool:
    kinds = Tracer | np.ndarray | np.generic | list | tuple | bool | int | float | complex
    return isinstance(value, kinds) or hasattr(value, "__fx_future__")


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc or one of its methods; its results are NumPy's own, never Python numbers."""
    from futurex.frontend.numpy_api.ufunc_methods import METHODS_OF_UFUNCS

    check_type(kwargs.get("dtype"))
    if method != "__call__":
        handler = METHODS_OF_UFUNCS.get(method)
        if handler is None:
            raise Escape(f"numpy.{ufunc.__name__}.{method}", "this method has no translation")
        return handler(ufunc, *inputs, **kwargs)
    if len(inputs) > ufunc.nin:
        inputs, kwargs = inputs[: ufunc.nin], {**kwargs, "out": inputs[ufunc.nin :]}
    if len(inputs) < ufunc.nin or not builtins.all(map(is_arraylike, inputs)):
        raise Escape(f"numpy.{ufunc.__name__} of this", "only arrays and numbers are traced")
    if ufunc.signature is not None:
        return _generalised(ufunc, *inputs, **kwargs)
    if kwargs:
        return _with_options(ufunc, inputs, **kwargs)
    return as_numpy(compute(ufunc, *inputs))


def op_of(ufunc: Any) -> tuple[str, dict[str, Any]]:
    """The op of a ufunc and its attributes. Raises Escape for ufuncs that no name leads to."""
    own = UFUNCS.get(ufunc)
    if own is not None:
        return own, {}
    special, name = sys.modules.get("scipy.special"), getattr(ufunc, "__name__", "")
    if special is not None and getattr(special, name, None) is ufunc:
        return "ufunc_call", {"ufunc": f"scipy.special.{name}"}
    raise Escape(f"the ufunc {name}", "this ufunc has no translation")


def compute(ufunc: Any, *inputs: Any) -> Any:
    """The result, or the tuple of results, of a ufunc without options; Python numbers alone give a Python number."""
    name, attrs = op_of(ufunc)
    return applied(name, *inputs, **attrs)


def as_numpy(result: Any) -> Any:
    """NumPy's scalar for a Python number."""
    if isinstance(result, tuple):
        return tuple(map(as_numpy, result))
    return fresh(emit("cast", result._node, dtype=result.dtype)) if result.aval.weak else result


def applied(name: str, *inputs: Any, **attrs: Any) -> Any:
    """The result of an elementwise op, with what is known of its layout. All Python numbers give a Python number."""
    tracers = [entered(value) for value in inputs]
    nodes = [node_of(value) for value in tracers]
    if _gives_several(name, nodes, attrs):
        results = tuple(_laid_out(fresh(node), tracers, nodes) for node in emit_many(name, *nodes, **attrs))
        _loosened(name, results, tracers, nodes, attrs)
        return results
    result = _laid_out(fresh(emit(name, *nodes, **attrs)), tracers, nodes)
    _loosened(name, (result,), tracers, nodes, attrs)
    return result


def _loosened(
    name: str, results: Sequence[Tracer], tracers: Sequence[Any], nodes: Sequence[Node], attrs: dict[str, Any]
) -> None:
    """Of numbers that are Python's in some branch and NumPy's in another: so is the result, or what differs shows."""
    loose = [isinstance(value, Tracer) and value._loose for value in tracers]
    if not builtins.any(loose):
        return
    avals = tuple(
        Aval(node.shape, node.dtype, weak=node.aval.weak or bool(flag)) for node, flag in zip(nodes, loose, strict=True)
    )
    inferred = record(name).infer(avals, (None,) * len(nodes), attrs)
    for result, other in zip(results, inferred if isinstance(inferred, tuple) else (inferred,), strict=True):
        assert isinstance(other, Aval)
        if other.dtype != result.dtype:
            current().tell()
            raise Escape(
                "an operation on a value that is a Python number in some branch and a NumPy scalar in another",
                f"NumPy gives {other.dtype} for the one and {result.dtype} for the other",
                "give it one type before, as with np.float64(0)",
                site=next(flag for flag in loose if flag),
            )
        if other.weak and _raises_in_python(name, nodes):
            refuse_loose(name)
        result._loose = next(flag for flag in loose if flag) if other.weak else False


def refuse_loose(name: str) -> NoReturn:
    """An operation on a number that is Python's in some branch and NumPy's in another, in which that shows."""
    current().tell()
    what = f"{name} of a value that is a Python number in some branch and a NumPy scalar in another"
    raise Escape(what, "Python raises where NumPy does not", "give it one type before, as with np.float64(0)")


def _raises_in_python(name: str, nodes: Sequence[Node]) -> bool:
    """May an operation on Python's numbers raise, or give another kind of number, where NumPy's do not?"""
    if name in ("divide", "floor_divide", "remainder", "divmod"):
        return not (nodes[1].op == "const" and bool(nodes[1].value != 0))
    return False


def _gives_several(name: str, nodes: Sequence[Node], attrs: dict[str, Any]) -> bool:
    rec = record(name)
    if isinstance(rec.kernel, np.ufunc):
        return rec.kernel.nout > 1
    return isinstance(rec.infer(tuple(node.aval for node in nodes), (None,) * len(nodes), attrs), tuple)


def _laid_out(result: Tracer, values: Sequence[Any], nodes: Sequence[Node]) -> Tracer:
    if result.ndim > 1:
        result._cell.strides = layout_of(result.aval, values, nodes)
    return result


def layout_of(aval: Aval, values: Any, nodes: Any) -> Strides:
    """The layout of a result that keeps the order of its operands."""
    return result_strides(
        aval,
        [
            (node.shape, value.strides_in_memory if isinstance(value, Tracer) else None)
            for value, node in zip(values, nodes, strict=True)
            if isinstance(value, Tracer)
        ],
    )


# -- options -----------------------------------------------------------------------------------------------------------


def _with_options(
    ufunc: Any, inputs: tuple[Any, ...], out: Any = None, where: Any = True, dtype: Any = None, signature: Any = None,
    sig: Any = None, casting: Any = "same_kind", order: Any = "K", subok: Any = True, **unknown: Any,
) -> Any:  # fmt: skip
    if unknown:
        raise Escape(f"numpy.{ufunc.__name__} with {', '.join(unknown)}", "this option is not traced")
    outs = _outs(ufunc, out)
    values = [entered(value) for value in inputs]
    signature = signature if signature is not None else sig
    where = True if where is NO_VALUE else where
    if dtype is not None:
        named: Any = dtype  # a class of dtypes is no name for its dtype: np.dtype would take it for object
        is_class = isinstance(named, type) and issubclass(named, np.dtype)
        loop: np.dtype[Any] = named() if is_class else np.dtype(named)
        signature = (None,) * ufunc.nin + (loop,) * ufunc.nout
    _probe(ufunc, values, outs, where, casting=casting, **({} if signature is None else {"signature": signature}))
    if signature is not None:
        values = _cast_to_loop(ufunc, values, signature, casting)
    if len(outs) > 1:
        _refuse_other_shapes(ufunc, values, outs)
    if where is not True:
        return _masked(ufunc, values, outs, fresh(node_of(where)))
    results = compute(ufunc, *values)
    several = isinstance(results, tuple)
    given = [
        _placed(as_numpy(result), target, casting, order, always=out is ...)
        for result, target in zip(results if several else (results,), outs, strict=True)
    ]
    return tuple(given) if several else given[0]


def _masked(ufunc: Any, values: Sequence[Any], outs: Sequence[Any], mask: Tracer) -> Any:
    """A ufunc of some elements; without ``out=``, those that ``where=`` leaves out may be anything."""
    name, attrs = op_of(ufunc)
    nodes = [node_of(value) for value in (mask, *values)]
    shape = broadcast_shapes(*(node.shape for node in nodes), *(out.shape for out in outs if out is not None))
    plain = record(name).infer(tuple(node.aval for node in nodes[1:]), (None,) * len(values), attrs)
    avals = plain if isinstance(plain, tuple) else (plain,)
    if builtins.any(out is not None and not may_fill(shape, out.shape) for out in outs):
        raise ValueError("non-broadcastable output operand")
    olds = [
        out._node if out is not None else emit("full", const(aval.dtype.type(0)), shape=shape, dtype=aval.dtype)
        for out, aval in zip(outs, avals, strict=True)
    ]
    emitted = emit_many if len(olds) > 1 else lambda *args, **kwargs: [emit(*args, **kwargs)]
    parts = emitted("masked", nodes[0], *olds, *nodes[1:], **{"ufunc": name, **attrs})
    given = [fresh(part) if out is None else into(out, part, True, "no") for part, out in zip(parts, outs, strict=True)]
    return tuple(given) if len(given) > 1 else given[0]


def _outs(ufunc: Any, out: Any) -> tuple[Any, ...]:
    """One entry a result: the array to write to, or None."""
    if out is None or out is ...:
        return (None,) * ufunc.nout
    outs = tuple(map(entered, out if isinstance(out, tuple) else (out,)))
    if len(outs) != ufunc.nout:
        raise ValueError("The 'out' tuple must have exactly one entry per ufunc output")
    for each in outs:
        check_target(each)
    cells = [each._cell for each in outs if each is not None]
    if len(set(cells)) < len(cells):
        raise Escape(f"numpy.{ufunc.__name__} with one array in several out", "NumPy refuses it, or not")
    return outs


def _refuse_other_shapes(ufunc: Any, values: Sequence[Any], outs: Sequence[Any]) -> None:
    """Of several results all have one shape, to which an array that one is written to belongs."""
    shape = broadcast_shapes(*(node_of(value).shape for value in values))
    if builtins.any(out is not None and out.shape != shape for out in outs):
        raise Escape(f"numpy.{ufunc.__name__} with out= of another shape", "all results would have that shape")


def check_target(out: Any) -> None:
    """Raise TypeError for what is not None and not an array."""
    if out is not None and (not isinstance(out, Tracer) or out.is_scalar):
        raise TypeError("return arrays must be of ArrayType")


def dummy_of(value: Any) -> Any:
    """An empty array of a value's dtype, or a Python number of its type (itself where it is known)."""
    node = node_of(value)
    if not node.aval.weak:
        return np.empty(0, node.dtype)
    return node.value if node.op == "const" else node.dtype.type(1).item()


def _probe(ufunc: Any, values: Sequence[Any], outs: Sequence[Any], where: Any, **options: Any) -> None:
    """Let NumPy judge types and options on empty arrays; its exception is the user's."""
    dummies = [dummy_of(value) for value in values]
    targets = tuple(None if out is None else np.empty(0, out.dtype) for out in outs)
    mask = where if isinstance(where, bool) else np.empty(0, node_of(where).dtype)
    ufunc(*dummies, out=targets, where=mask, **options)


def _cast_to_loop(ufunc: Any, values: Sequence[Any], signature: Any, casting: Any) -> list[Any]:
    """The operands in the types of the loop that ``dtype=`` or ``signature=`` chooses."""
    if isinstance(signature, tuple):
        signature = tuple(None if each is None else np.dtype(each) for each in signature)
    nodes = [node_of(value) for value in values]
    rest = (None,) * ufunc.nout
    loop = ufunc.resolve_dtypes((*map(_operand, nodes), *rest), signature=signature, casting=casting)
    wanted = loop[: ufunc.nin]
    if ufunc.resolve_dtypes((*wanted, *rest)) != loop or builtins.any(dtype.kind not in "biufc" for dtype in loop):
        raise Escape(f"numpy.{ufunc.__name__} with this choice of loop", "other types are not traced")
    return [_in_dtype(value, node, dtype) for value, node, dtype in zip(values, nodes, wanted, strict=True)]


def _in_dtype(value: Any, node: Node, dtype: np.dtype[Any]) -> Any:
    if node.dtype == dtype and not node.aval.weak:
        return value
    if node.aval.weak and node.op != "const" and node.dtype.kind == "i" and dtype != node.dtype and dtype.kind in "iu":
        raise Escape(f"a traced Python int as {dtype}", "NumPy looks whether its value fits")
    return fresh(emit("cast", node, dtype=dtype))


def _operand(node: Node) -> Any:
    """What NumPy resolves loops by: a dtype, or the Python type of a weak number (a bool is not weak there)."""
    return type(node.dtype.type(0).item()) if node.aval.weak and node.dtype.kind != "b" else node.dtype


def _placed(result: Tracer, target: Any, casting: Any, order: Any, always: bool) -> Tracer:
    """A result where its ``out=`` wants it, or in the memory order that was asked for."""
    if target is not None:
        return into(target, result._node, True, casting)
    if order in ("C", "F"):
        result._cell.strides = result_strides(result.aval, []) if order == "C" else f_strides(result.aval)
        result._cell.asked = result._cell.strides
    elif order == "A" and result._cell.strides != result_strides(result.aval, []):
        result._cell.strides = None  # C but where all operands are contiguous in Fortran order
    return new_array(result._node) if always and result.is_scalar else result


def into(out: Any, result: Node, condition: Any, casting: Any) -> Any:
    """Write a result into the ``out=`` array."""
    target = entered(out)
    check_target(target)
    if not may_fill(result.shape, target.shape):
        raise ValueError(
            f"non-broadcastable output operand with shape {target.shape} "
            f"doesn't match the broadcast shape {result.shape}"
        )
    if not _can_cast(result, target.dtype, casting):
        raise TypeError(f"Cannot cast output from {result.dtype!r} to {target.dtype!r} with casting rule {casting!r}")
    if condition is not True:
        old = target._node
        chosen = node_of(condition)
        if chosen.dtype.kind != "b":
            raise Escape("where= with an array that is not boolean", "NumPy refuses or casts it")
        if not may_fill(chosen.shape, target.shape):
            raise ValueError(f"where= of shape {chosen.shape} does not fit an array of shape {target.shape}")
        result = emit("where", chosen, emit("cast", result, dtype=target.dtype), old)
    target._write(result)
    return target


def exactly_into(out: Any, result: Tracer, what: str) -> Any:
    """Write a result into an ``out=`` array of its own shape and type; what NumPy does with others is not traced."""
    target = entered(out)
    if not isinstance(target, Tracer) or target.is_scalar or target.aval != result.aval:
        raise Escape(f"{what} with out= of another shape or type", "what NumPy casts then is not traced")
    return into(target, result._node, True, "same_kind")


def _can_cast(result: Node, dtype: np.dtype[Any], casting: Any) -> bool:
    if not result.aval.weak or casting == "unsafe":
        return np.can_cast(result.dtype, dtype, casting)
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # a Python number fits into any array of its kind
    return ranks[result.dtype.kind] <= ranks[dtype.kind]


# -- generalised ufuncs ------------------------------------------------------------------------------------------------


def _generalised(
    ufunc: Any, *inputs: Any, out: Any = None, dtype: Any = None, casting: Any = "same_kind", axis: Any = NO_VALUE,
    axes: Any = None, keepdims: Any = False, order: Any = "K", subok: Any = True, **options: Any,
) -> Any:  # fmt: skip
    """Products of vectors and matrices; ``axis`` and ``keepdims`` are those of ``vecdot``."""
    name, attrs = op_of(ufunc)
    if options or (ufunc is not np.vecdot and (axis is not NO_VALUE or keepdims)):
        raise Escape(f"numpy.{ufunc.__name__} with these options", "they are not traced")
    nodes = [array_node(value) for value in inputs]
    places: Any = None
    if type(keepdims) is not bool:
        raise Escape(f"numpy.{ufunc.__name__} with keepdims={keepdims!r}", "NumPy refuses it")
    if axes is not None:
        if axis is not NO_VALUE or keepdims:
            raise Escape(f"numpy.{ufunc.__name__} with axes= and axis= or keepdims=", "NumPy refuses some of them")
        nodes, places = core_last(ufunc, nodes, axes)
    (target,) = _outs(ufunc, out)
    loop = ufunc.resolve_dtypes(
        (*(node.dtype for node in nodes), None if target is None else target.dtype), casting=casting,
        **({} if dtype is None else {"signature": (None, None, np.dtype(dtype))}),
    )  # fmt: skip
    if builtins.any(kind.kind not in "biufc" for kind in loop):
        raise Escape(f"numpy.{ufunc.__name__} with dtype={dtype}", "only numbers and booleans are traced")
    nodes = [
        emit("cast", node, dtype=kind) if node.dtype != kind else node
        for node, kind in zip(nodes, loop[:2], strict=True)
    ]
    if axis is not NO_VALUE:
        nodes = [_axis_last(node, axis) for node in nodes]
    result = emit(name, *nodes, **attrs)
    if keepdims:
        place = one_axis(-1 if axis is NO_VALUE else axis, result.ndim + 1)
        result = emit("reshape", result, shape=(*result.shape[:place], 1, *result.shape[place:]))
    if places:
        result = emit("transpose", result, axes=from_end(places, result.ndim))
    if target is None and out is not ...:
        product = fresh(result)
        if axis is NO_VALUE and axes is None:
            product._cell.strides = _strides_of_product(ufunc, product, [entered(value) for value in inputs])
        return product
    if target is None:
        return new_array(result)
    depth = max(0, *(node.ndim - own for node, own in zip(nodes, _CORE[ufunc], strict=True)))
    core = result.shape[depth:]
    if axes is None and core and target.shape[-len(core) :] != core:  # stacks are broadcast, matrices are not
        raise ValueError(f"{ufunc.__name__}: the output has a mismatch in its core dimensions")
    if result.shape != target.shape and not broadcast_shapes(result.shape, target.shape) == target.shape:
        raise ValueError(f"the output of shape {target.shape} does not fit a result of shape {result.shape}")
    return into(target, result, True, casting)


# How many dimensions of an operand are those of its matrix or vector.
_CORE: dict[np.ufunc, tuple[int, int]] = {np.matmul: (2, 2), np.vecdot: (1, 1), np.matvec: (2, 1), np.vecmat: (1, 2)}


def _strides_of_product(ufunc: np.ufunc, product: Tracer, operands: Sequence[Any]) -> Strides:
    """NumPy's layout of a stack of products: the stack keeps the order of the operands' stacks, whatever that of their
    matrices is, and each matrix is in C order."""
    depths = [max(np.ndim(each) - core, 0) for each, core in zip(operands, _CORE[ufunc], strict=True)]
    depth = max(depths)
    stacks = [
        (each.shape[:own], each.strides_in_memory and each.strides_in_memory[:own])
        for each, own in zip(operands, depths, strict=True)
        if isinstance(each, Tracer)
    ]
    outer = result_strides(Aval(product.shape[:depth], product.dtype), stacks)
    if outer is None:
        return None
    lying = c_strides(product.aval)
    if outer == c_strides(Aval(product.shape[:depth], product.dtype)):  # extents may be unknown here
        return lying
    size = math.prod(product.shape[depth:])
    return (*(stride * size for stride in outer), *lying[depth:])


def _axis_last(node: Node, axis: Any) -> Node:
    place = one_axis(axis, node.ndim)
    order = (*(k for k in range(node.ndim) if k != place), place)
    return emit("transpose", node, axes=order)


def normal_axes(axis: Any, ndim: int) -> tuple[int, ...] | None:
    """Axes as sorted non-negative numbers, None for all. Raises AxisError and ValueError as NumPy does."""
    if axis is None:
        return None
    axes = axis if isinstance(axis, tuple) else (axis,)
    normal = []
    for entry in axes:
        entry = operator.index(entry)
        if not -ndim <= entry < ndim:
            raise np.exceptions.AxisError(entry, ndim)
        normal.append(entry % ndim)
    if len(set(normal)) != len(normal):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(normal))


def integer_axes(axis: Any, ndim: int) -> tuple[int, ...] | None:
    """The same for functions that take no boolean for a number. Raises TypeError as NumPy does."""
    if any(isinstance(entry, bool | np.bool_) for entry in (axis if isinstance(axis, tuple) else (axis,))):
        raise TypeError("an integer is required for the axis")
    return normal_axes(axis, ndim)


def keeps_dims(keepdims: Any) -> bool:
    """Does a reduction keep its axes? Of what is no number each of NumPy's functions has a rule of its own."""
    if keepdims is NO_VALUE:
        return False
    if isinstance(keepdims, int) and -(2**31) <= keepdims < 2**31:
        return bool(keepdims)
    raise Escape("keepdims= that is not a bool", "NumPy refuses it, or takes it for one")


def one_axis(axis: Any, ndim: int) -> int:
    """The number of the one axis that a function takes. Raises AxisError and TypeError as NumPy does."""
    if isinstance(axis, tuple):
        raise TypeError("'tuple' object cannot be interpreted as an integer")
    axes = integer_axes(operator.index(axis) if not isinstance(axis, bool | np.bool_) else axis, ndim)
    assert axes is not None
    return axes[0]


for _ufunc in UFUNCS:
    HANDLERS.setdefault(_ufunc, (lambda u: lambda *args, **kwargs: call_ufunc(u, "__call__", args, kwargs))(_ufunc))
