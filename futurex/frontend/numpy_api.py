"""NumPy functions on traced arrays, by function object: ufuncs and reductions by their records, the rest decomposed."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.trace import emit
from futurex.frontend.tracer import SCALARS, Tracer, abstract, fresh, is_arraylike, node_of
from futurex.tree.node import Node, const
from futurex.tree.record import records

Handler = Callable[..., Any]
HANDLERS: dict[Any, Handler] = {}
METHODS: dict[str, Handler] = {}
NO_VALUE = np._NoValue  # type: ignore[attr-defined]

UFUNCS = {ufunc: record.name for record in records() for ufunc in record.numpy if isinstance(ufunc, np.ufunc)}


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Register a handler for NumPy functions; the handler has their signature."""

    def register(handler: Handler) -> Handler:
        for function in functions:
            HANDLERS[function] = handler
        return handler

    return register


def call_numpy(function: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function on arguments of which some are traced. Raises Escape for functions without a translation."""
    handler = HANDLERS.get(function)
    if handler is None:
        raise Escape(f"numpy.{getattr(function, '__name__', function)}", "this function has no translation yet")
    try:
        return handler(*args, **kwargs)
    except TypeError as error:
        if "unexpected keyword" in str(error) or "positional argument" in str(error):
            raise Escape(f"numpy.{function.__name__} with these options", str(error)) from None
        raise


# -- ufuncs ----------------------------------------------------------------------------------------------------------


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc or one of its methods."""
    if not builtins.all(is_arraylike(value) for value in inputs):
        return NotImplemented
    if method == "reduce":
        return _ufunc_reduce(ufunc, *inputs, **kwargs)
    if method == "outer":
        x, y = (node_of(value) for value in inputs)
        x = emit("reshape", x, shape=(*x.shape, *(1,) * y.ndim))
        return call_ufunc(ufunc, "__call__", (fresh(x), fresh(y)), kwargs)
    name = UFUNCS.get(ufunc)
    if method != "__call__" or name is None:
        raise Escape(f"numpy.{ufunc.__name__}{'' if method == '__call__' else '.' + method}", "this ufunc has no translation yet")
    out = kwargs.pop("out", None)
    condition = kwargs.pop("where", True)
    dtype = kwargs.pop("dtype", None)
    casting = kwargs.pop("casting", "same_kind")
    if kwargs or len(inputs) != ufunc.nin:
        raise Escape(f"numpy.{ufunc.__name__} with {', '.join(kwargs) or 'positional out'}", "this option is not traced")
    nodes = [_ufunc_operand(value, dtype, ufunc) for value in inputs]
    result = emit(name, *nodes)
    out = out[0] if isinstance(out, tuple) else out
    if out is None:
        if condition is not True:
            raise Escape(f"numpy.{ufunc.__name__} with where= and no out=", "unselected elements would be uninitialised")
        return fresh(result)
    return _into(out, result, condition, casting)


def _ufunc_operand(value: Any, dtype: Any, ufunc: Any) -> Node:
    node = node_of(value)
    if dtype is None or ufunc is np.matmul:
        return node
    return emit("cast", node, dtype=np.dtype(dtype)) if node.dtype != np.dtype(dtype) or node.aval.weak else node


def _into(out: Any, result: Node, condition: Any, casting: str) -> Any:
    target = out if isinstance(out, Tracer) else fresh(node_of(out)) if not isinstance(out, np.ndarray) else _lifted(out)
    if np.broadcast_shapes(result.shape, target.shape) != target.shape:
        raise ValueError(f"non-broadcastable output operand with shape {target.shape} doesn't match the broadcast shape {result.shape}")
    if not np.can_cast(result.dtype, target.dtype, casting):
        raise np._core._exceptions._UFuncOutputCastingError(np.add, casting, result.dtype, target.dtype, 0)  # type: ignore[attr-defined]
    if condition is not True:
        old = target._node
        result = emit("where", node_of(condition), emit("cast", result, dtype=target.dtype), old)
    target._write(result)
    return target


def _lifted(array: np.ndarray) -> Tracer:
    from futurex.frontend.tracer import lift

    return lift(array)


def _ufunc_reduce(ufunc: Any, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False, **rest: Any) -> Any:
    names = {np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min", np.logical_and: "all", np.logical_or: "any"}
    if ufunc not in names or rest:
        raise Escape(f"numpy.{ufunc.__name__}.reduce", "this reduction has no translation yet")
    return _reduce(names[ufunc], x, axis, dtype, out, keepdims)


# -- creation --------------------------------------------------------------------------------------------------------


def _extent(value: Any) -> int:
    return operator.index(value)


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(_extent(extent) for extent in shape) if isinstance(shape, tuple | list) else (_extent(shape),)


def _filled(shape: Any, value: Any, dtype: Any) -> Tracer:
    node = node_of(value)
    dtype = np.dtype(dtype) if dtype is not None else (np.asarray(node.value).dtype if node.op == "const" else node.dtype)
    shape = _shape(shape)
    if node.ndim:
        return fresh(emit("store", _filled(shape, 0, dtype)._node, node, chain=(), mode="set"))
    return fresh(emit("full", const(np.asarray(node.value, dtype)[()]) if node.op == "const" else node, shape=shape, dtype=dtype))


@handles(np.full)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Tracer:
    return _filled(shape, fill_value, dtype)


@handles(np.zeros, np.empty)
def zeros(shape: Any, dtype: Any = float, order: str = "C") -> Tracer:
    return _filled(shape, 0, np.dtype(dtype or float))


@handles(np.ones)
def ones(shape: Any, dtype: Any = float, order: str = "C") -> Tracer:
    return _filled(shape, 1, np.dtype(dtype or float))


@handles(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    aval = abstract(a)
    return _filled(aval.shape if shape is None else shape, fill_value, dtype or aval.dtype)


@handles(np.zeros_like, np.empty_like)
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    return full_like(a, 0, dtype, shape=shape)


@handles(np.ones_like)
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    return full_like(a, 1, dtype, shape=shape)


def stack_nested(values: list[Any]) -> Node:
    """The array that NumPy makes of a nested list, some of whose elements are traced."""
    if not _any_traced(values):
        return const(np.array(values))
    parts = [node_of(value) for value in values]
    shapes = {part.shape for part in parts}
    if len(shapes) != 1:
        raise ValueError(
            "setting an array element with a sequence. The requested array has an inhomogeneous shape after "
            f"{1 if not parts[0].ndim else parts[0].ndim} dimensions: {sorted(shapes)}"
        )
    dtype = np.result_type(*(_result_operand(part) for part in parts))
    rows = [emit("reshape", _as_dtype(part, dtype), shape=(1, *part.shape)) for part in parts]
    return emit("concatenate", *rows, axis=0)


def _result_operand(node: Node) -> Any:
    return np.dtype(node.dtype)


def _as_dtype(node: Node, dtype: Any) -> Node:
    return node if node.dtype == dtype and not node.aval.weak else emit("cast", node, dtype=np.dtype(dtype))


def _any_traced(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return builtins.any(_any_traced(entry) for entry in value)
    return isinstance(value, Tracer) or hasattr(value, "__fx_future__")


@handles(np.array)
def array(object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", subok: bool = False, ndmin: int = 0) -> Tracer:
    node = node_of(object)
    if node.aval.weak and dtype is None:
        dtype = node.dtype
    if dtype is not None:
        node = _as_dtype(node, np.dtype(dtype))
    if node.ndim < ndmin:
        node = emit("reshape", node, shape=(1,) * (ndmin - node.ndim) + node.shape)
    return fresh(node)


@handles(np.asarray, np.asanyarray, np.ascontiguousarray)
def asarray(a: Any, dtype: Any = None, order: Any = None) -> Tracer:
    if isinstance(a, Tracer) and not a.aval.weak and (dtype is None or np.dtype(dtype) == a.dtype):
        return a
    return array(a, dtype)


@handles(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    return array(a)


@handles(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    _into(dst, node_of(src), where, casting)


@handles(np.arange)
def arange(*args: Any, dtype: Any = None) -> Tracer:
    known = [value._known("a bound of arange") if isinstance(value, Tracer) else value for value in args]
    return fresh(const(np.arange(*known, dtype=dtype)))


# -- reductions ------------------------------------------------------------------------------------------------------


def _normal_axis(axis: Any, ndim: int) -> tuple[int, ...] | None:
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


def _reduce(name: str, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any) -> Any:
    x = node_of(a)
    attrs: dict[str, Any] = {"axis": _normal_axis(axis, x.ndim), "keepdims": bool(keepdims) and keepdims is not NO_VALUE}
    if name in ("sum", "prod"):
        attrs["dtype"] = np.dtype(dtype) if dtype is not None else None
    result = emit(name, x, **attrs)
    return fresh(result) if out is None else _into(out, result, True, "same_kind")


def _plain_options(initial: Any, where: Any) -> None:
    if initial is not NO_VALUE or (where is not NO_VALUE and where is not True):
        raise Escape("a reduction with initial= or where=", "these options are not traced")


def _reduction(name: str) -> Handler:
    def handler(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = NO_VALUE) -> Any:
        _plain_options(initial, where)
        return _reduce(name, a, axis, dtype, out, keepdims)

    return handler


def _extreme(name: str) -> Handler:
    def handler(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = NO_VALUE) -> Any:
        _plain_options(initial, where)
        return _reduce(name, a, axis, None, out, keepdims)

    return handler


for _name, _function in {"sum": np.sum, "prod": np.prod}.items():
    HANDLERS[_function] = METHODS[_name] = _reduction(_name)
for _name, _functions in {"max": (np.max, np.amax), "min": (np.min, np.amin), "any": (np.any,), "all": (np.all,)}.items():
    METHODS[_name] = _extreme(_name)
    for _function in _functions:
        HANDLERS[_function] = METHODS[_name]


@handles(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = NO_VALUE) -> Any:
    _plain_options(NO_VALUE, where)
    x = node_of(a)
    final = np.mean(np.ones(1, x.dtype), dtype=dtype).dtype
    half = x.dtype == np.float16 and dtype is None
    wide = np.dtype(dtype) if dtype is not None else np.dtype(np.float32) if half else np.dtype(float) if x.dtype.kind in "iub" else None
    total = node_of(_reduce("sum", fresh(x), axis, wide, None, keepdims))
    count = _count(x.shape, _normal_axis(axis, x.ndim))
    result = emit("divide", total, const(count)) if count else emit("divide", total, const(0))
    result = emit("cast", result, dtype=final) if result.dtype != final else result
    return fresh(result) if out is None else _into(out, result, True, "same_kind")


def _count(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> int:
    return math.prod(shape if axes is None else (shape[k] for k in axes))


@handles(np.var)
def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: Any = False, *, where: Any = NO_VALUE) -> Any:
    _plain_options(NO_VALUE, where)
    if out is not None or dtype is not None or abstract(a).dtype.kind not in "fiub" or abstract(a).dtype == np.float16:
        raise Escape("numpy.var with out=, dtype=, or a half or complex array", "these options are not traced")
    x = fresh(node_of(a))
    axes = _normal_axis(axis, x.ndim)
    n = _count(x.shape, axes)
    centred = x - mean(x, axis, keepdims=True)
    total = _reduce("sum", centred * centred, axis, None, None, keepdims)
    return call_ufunc(np.divide, "__call__", (total, builtins.max(n - ddof, 0)), {})


@handles(np.std)
def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: Any = False, *, where: Any = NO_VALUE) -> Any:
    return call_ufunc(np.sqrt, "__call__", (var(a, axis, dtype, out, ddof, keepdims, where=where),), {})


def _arg_reduction(name: str) -> Handler:
    def handler(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        x = node_of(a)
        keep = keepdims is not NO_VALUE and bool(keepdims)
        if out is not None or (axis is None and keep):
            raise Escape(f"numpy.{name} with out= or with keepdims over all axes", "these options are not traced")
        if axis is None:
            x, axis = emit("reshape", x, shape=(x.size,)), 0
        axes = _normal_axis(axis, x.ndim)
        assert axes is not None
        return fresh(emit(name, x, axis=axes[0], keepdims=keep))

    return handler


for _name, _function in {"argmax": np.argmax, "argmin": np.argmin}.items():
    HANDLERS[_function] = METHODS[_name] = _arg_reduction(_name)


@handles(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    x = node_of(a)
    if axis is None:
        x, axis = emit("reshape", x, shape=(x.size,)), 0
    axes = _normal_axis(axis, x.ndim)
    assert axes is not None
    result = emit("cumsum", x, axis=axes[0], dtype=np.dtype(dtype) if dtype is not None else None)
    return fresh(result) if out is None else _into(out, result, True, "same_kind")


@handles(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _reduce("sum", fresh(node_of(a)) != 0, axis, np.intp, None, keepdims)


@handles(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return _reduce("sum", _traced(a).diagonal(offset, axis1, axis2), -1, dtype, out, False)


# -- products --------------------------------------------------------------------------------------------------------


@handles(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    x, y = node_of(a), node_of(b)
    if x.ndim == 0 or y.ndim == 0:
        result = emit("multiply", x, y)
    elif y.ndim <= 2 or x.ndim == 1:
        result = emit("matmul", x, y) if y.ndim <= 2 else _tensordot(x, y, ([0], [y.ndim - 2]))
    else:
        result = _tensordot(x, y, ([x.ndim - 1], [y.ndim - 2]))
    return fresh(result) if out is None else _into(out, result, True, "same_kind")


def _tensordot(x: Node, y: Node, axes: Any) -> Node:
    left = [k % x.ndim for k in axes[0]]
    right = [k % y.ndim for k in axes[1]]
    if [x.shape[k] for k in left] != [y.shape[k] for k in right]:
        raise ValueError("shape-mismatch for sum")
    free_x = [k for k in range(x.ndim) if k not in left]
    free_y = [k for k in range(y.ndim) if k not in right]
    k_size = math.prod(x.shape[k] for k in left)
    a = emit("reshape", emit("transpose", x, axes=(*free_x, *left)), shape=(math.prod(x.shape[k] for k in free_x), k_size))
    b = emit("reshape", emit("transpose", y, axes=(*right, *free_y)), shape=(k_size, math.prod(y.shape[k] for k in free_y)))
    return emit("reshape", emit("matmul", a, b), shape=tuple([x.shape[k] for k in free_x] + [y.shape[k] for k in free_y]))


@handles(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tracer:
    x, y = node_of(a), node_of(b)
    if isinstance(axes, int):
        axes = (list(range(x.ndim - axes, x.ndim)), list(range(axes)))
    pair = [entry if isinstance(entry, tuple | list) else [entry] for entry in axes]
    return fresh(_tensordot(x, y, pair))


@handles(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    x, y = _traced(a).ravel(), _traced(b).ravel()
    return call_ufunc(np.multiply, "__call__", (x[:, None], y[None, :]), {} if out is None else {"out": (out,)})


@handles(np.inner)
def inner(a: Any, b: Any) -> Any:
    x, y = node_of(a), node_of(b)
    if x.ndim == 0 or y.ndim == 0:
        return fresh(emit("multiply", x, y))
    return fresh(_tensordot(x, y, ([x.ndim - 1], [y.ndim - 1])))


@handles(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    return dot(call_ufunc(np.conjugate, "__call__", (_traced(a).ravel(),), {}), _traced(b).ravel())


@handles(np.einsum)
def einsum(subscripts: Any, *operands: Any, **options: Any) -> Tracer:
    if not isinstance(subscripts, str) or set(options) - {"optimize"}:
        raise Escape("numpy.einsum with lists of axes or with options", "only the text form is traced")
    text = subscripts.replace(" ", "")
    nodes = [node_of(operand) for operand in operands]
    if "." in text or builtins.any(len(set(part)) != len(part) for part in text.split("->")[0].split(",")):
        raise Escape("numpy.einsum with an ellipsis or a repeated index", "only plain index letters are traced")
    inputs, arrow, out = text.partition("->")
    if not arrow:
        letters = inputs.replace(",", "")
        out = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    names = inputs.split(",")
    if len(names) == 1:
        return fresh(_einsum_one(nodes[0], names[0], out))
    if len(names) != 2:
        raise Escape("numpy.einsum of more than two operands", "contract two at a time")
    if len(names) != len(nodes):
        raise ValueError("fewer operands provided to einstein sum function than specified in the subscripts string")
    return fresh(emit("einsum", nodes[0], nodes[1], subscripts=f"{names[0]},{names[1]}->{out}"))


def _einsum_one(x: Node, names: str, out: str) -> Node:
    summed = tuple(k for k, name in enumerate(names) if name not in out)
    rest = [name for name in names if name in out]
    result = emit("sum", x, axis=summed, keepdims=False, dtype=x.dtype) if summed else x
    axes = tuple(rest.index(name) for name in out)
    return emit("transpose", result, axes=axes) if axes != tuple(range(len(axes))) else result


# -- shapes ----------------------------------------------------------------------------------------------------------


def _traced(a: Any) -> Tracer:
    return a if isinstance(a, Tracer) else _lifted(a) if isinstance(a, np.ndarray) else fresh(node_of(a))


@handles(np.reshape)
def reshape(a: Any, /, shape: Any, order: str = "C") -> Tracer:
    return _traced(a).reshape(shape, order=order)


@handles(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Tracer:
    return _traced(a).transpose(axes)


@handles(np.matrix_transpose)
def matrix_transpose(x: Any, /) -> Tracer:
    return _traced(x).mT


@handles(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Tracer:
    return _traced(a).swapaxes(axis1, axis2)


@handles(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Tracer:
    x = _traced(a)
    from_, to = ([k % x.ndim for k in (axes if isinstance(axes, tuple | list) else (axes,))] for axes in (source, destination))
    order = [k for k in range(x.ndim) if k not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return x.transpose(*order)


@handles(np.ravel)
def ravel(a: Any, order: str = "C") -> Tracer:
    return _traced(a).ravel(order)


@handles(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Tracer:
    return _traced(a).squeeze(axis)


@handles(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Tracer:
    x = _traced(a)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    total = x.ndim + len(axes)
    places = _normal_axis(tuple(axes), total) or ()
    entries = tuple(("n",) if k in places else ("s", None, None, None) for k in range(total))
    return x._extended(("index", entries))


@handles(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tracer:
    node = emit("broadcast_to", node_of(array), shape=_shape(shape))
    tracer = fresh(node)
    tracer._cell.entangled = True  # read-only in NumPy
    return tracer


@handles(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    tracer = fresh(_traced(a).diagonal(offset, axis1, axis2)._node)
    tracer._cell.entangled = True  # read-only in NumPy
    return tracer


@handles(np.concatenate)
def concatenate(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    parts = [node_of(part) for part in arrays]
    if not parts:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        parts, axis = [emit("reshape", part, shape=(part.size,)) for part in parts], 0
    if builtins.any(part.ndim == 0 for part in parts):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axes = _normal_axis(axis, parts[0].ndim)
    assert axes is not None
    if dtype is not None:
        parts = [_as_dtype(part, np.dtype(dtype)) for part in parts]
    result = emit("concatenate", *parts, axis=axes[0])
    return fresh(result) if out is None else _into(out, result, True, casting)


@handles(np.stack)
def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    parts = [_traced(part) for part in arrays]
    if len({part.shape for part in parts}) != 1:
        raise ValueError("all input arrays must have the same shape")
    return concatenate([expand_dims(part, axis) for part in parts], axis, out, dtype=dtype, casting=casting)


def _at_least(ndim: int, a: Any) -> Tracer:
    x = _traced(a)
    while x.ndim < ndim:
        x = expand_dims(x, 2 if x.ndim == 2 else 0)
    return x


@handles(np.atleast_1d)
def atleast_1d(*arrays: Any) -> Any:
    result = tuple(_at_least(1, a) for a in arrays)
    return result[0] if len(result) == 1 else result


@handles(np.atleast_2d)
def atleast_2d(*arrays: Any) -> Any:
    result = tuple(_at_least(2, a) for a in arrays)
    return result[0] if len(result) == 1 else result


@handles(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return concatenate([_at_least(2, part) for part in tup], 0, dtype=dtype, casting=casting)


@handles(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    parts = [_at_least(1, part) for part in tup]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@handles(np.column_stack)
def column_stack(tup: Any) -> Any:
    parts = [_traced(part) for part in tup]
    return concatenate([part if part.ndim > 1 else _at_least(1, part)[:, None] for part in parts], 1)


@handles(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    x = _traced(ary)
    axis = axis % x.ndim
    n = x.shape[axis]
    if isinstance(indices_or_sections, int):
        if n % indices_or_sections:
            raise ValueError("array split does not result in an equal division")
        bounds = [n // indices_or_sections * k for k in range(indices_or_sections + 1)]
    else:
        bounds = [0, *(operator.index(k) for k in indices_or_sections), n]
    whole: list[Any] = [slice(None)] * x.ndim
    return [x[(*whole[:axis], slice(lo, hi), *whole[axis + 1 :])] for lo, hi in zip(bounds, bounds[1:], strict=False)]


@handles(np.flip)
def flip(m: Any, axis: Any = None) -> Tracer:
    x = _traced(m)
    axes = _normal_axis(axis, x.ndim) if axis is not None else tuple(range(x.ndim))
    return x._extended(("flip", axes))


@handles(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Tracer:
    x = _traced(a)
    if axis is None:
        return fresh(roll(fresh(emit("reshape", x._node, shape=(x.size,))), shift, 0).reshape(x.shape)._node)
    shifts, axes = (entry if isinstance(entry, tuple) else (entry,) for entry in (shift, axis))
    for by, k in zip(shifts, axes, strict=True):
        n = x.shape[k]
        by = operator.index(by) % n if n else 0
        if by:
            whole: list[Any] = [slice(None)] * x.ndim
            tail, head = list(whole), list(whole)
            tail[k], head[k] = slice(n - by, None), slice(None, n - by)
            x = concatenate([x[tuple(tail)], x[tuple(head)]], k)
    return fresh(x._node)


@handles(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Tracer:
    value = options.pop("constant_values", 0)
    if mode != "constant" or options or not (type(value) in SCALARS or isinstance(value, np.generic)):
        raise Escape(f"numpy.pad with mode={mode!r}", "only constant padding is traced")
    x = node_of(array)
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    if (widths < 0).any():
        raise ValueError("index can't contain negative values")
    return fresh(emit("pad", x, value, widths=tuple((int(lo), int(hi)) for lo, hi in widths)))


@handles(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Tracer:
    x = _traced(a)
    if axis is None:
        x, axis = x.ravel(), 0
    index = np.repeat(np.arange(x.shape[axis]), np.asarray(repeats))
    return take(x, index, axis)


@handles(np.tile)
def tile(A: Any, reps: Any) -> Tracer:
    x = _traced(A)
    counts = tuple(reps) if isinstance(reps, tuple | list) else (reps,)
    x = x.reshape((1,) * (len(counts) - x.ndim) + x.shape)
    for axis, count in enumerate((1,) * (x.ndim - len(counts)) + counts):
        if count != 1:
            x = concatenate([x] * count, axis) if count else x[(slice(None),) * axis + (slice(0, 0),)]
    return fresh(x._node)


def _triangle(m: Any, k: int, lower: bool) -> Tracer:
    x = node_of(m)
    mask = np.tri(*x.shape[-2:], k=k if lower else k - 1, dtype=bool)
    zero = const(np.zeros((), x.dtype)[()])
    return fresh(emit("where", const(mask), x, zero) if lower else emit("where", const(mask), zero, x))


@handles(np.tril)
def tril(m: Any, k: int = 0) -> Tracer:
    return _triangle(m, k, lower=True)


@handles(np.triu)
def triu(m: Any, k: int = 0) -> Tracer:
    return _triangle(m, k, lower=False)


@handles(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE) -> Tracer:
    if prepend is not NO_VALUE or append is not NO_VALUE:
        raise Escape("numpy.diff with prepend= or append=", "these options are not traced")
    x = _traced(a)
    axis = axis % x.ndim
    for _ in range(n):
        whole: list[Any] = [slice(None)] * x.ndim
        upper, lower = list(whole), list(whole)
        upper[axis], lower[axis] = slice(1, None), slice(None, -1)
        function = np.not_equal if x.dtype == bool else np.subtract
        x = call_ufunc(function, "__call__", (x[tuple(upper)], x[tuple(lower)]), {})
    return x


# -- selection -------------------------------------------------------------------------------------------------------


@handles(np.where)
def where(condition: Any, /, *branches: Any) -> Any:
    if len(branches) != 2:
        raise Escape("numpy.where with one argument", "the shape of the result depends on data")
    test = node_of(condition)
    if test.dtype.kind != "b":
        test = emit("not_equal", test, 0)
    return fresh(emit("where", test, *(node_of(branch) for branch in branches)))


@handles(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if a_min is not None else min), (a_max if a_max is not None else max)
    result = _traced(a)
    if low is not None:
        result = call_ufunc(np.maximum, "__call__", (result, low), {})
    if high is not None:
        result = call_ufunc(np.minimum, "__call__", (result, high), {})
    return result if out is None else _into(out, result._node, True, "same_kind")


@handles(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    x = _traced(a)
    if mode != "raise" or out is not None:
        raise Escape("numpy.take with out= or mode=", "these options are not traced")
    if axis is None:
        x, axis = x.ravel(), 0
    axis = operator.index(axis) % x.ndim
    return x[(slice(None),) * axis + (_index_array(indices),)]


def _index_array(indices: Any) -> Any:
    return indices if isinstance(indices, Tracer) else fresh(const(np.asarray(indices, np.intp if not np.size(indices) else None)))


@handles(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    a = _traced(x)
    if a.dtype.kind not in "fiu" or ord not in (None, 2, "fro") or (ord == 2 and axis is None and a.ndim != 1) or (axis is None and keepdims):
        raise Escape("numpy.linalg.norm of this order", "only the 2-norm of real vectors and the Frobenius norm are traced")
    a = a if a.dtype.kind == "f" else a.astype(float)
    if axis is None:
        flat = a.ravel()
        return call_ufunc(np.sqrt, "__call__", (dot(flat, flat),), {})
    return call_ufunc(np.sqrt, "__call__", (_reduce("sum", a * a, axis, None, None, keepdims),), {})


# -- questions about shapes ------------------------------------------------------------------------------------------

HANDLERS[np.shape] = lambda a: abstract(a).shape
HANDLERS[np.ndim] = lambda a: abstract(a).ndim
HANDLERS[np.size] = lambda a, axis=None: abstract(a).size if axis is None else abstract(a).shape[axis]
HANDLERS[np.result_type] = lambda *values: np.result_type(*(abstract(v).dtype if isinstance(v, Tracer) else v for v in values))
HANDLERS[np.iscomplexobj] = lambda x: abstract(x).dtype.kind == "c"
HANDLERS[np.isrealobj] = lambda x: abstract(x).dtype.kind != "c"
HANDLERS[np.real] = lambda val: _traced(val).real
HANDLERS[np.imag] = lambda val: _traced(val).imag


@handles(np.square)
def _square(x: Any, **options: Any) -> Any:
    return call_ufunc(np.square, "__call__", (x,), options)


# -- methods ---------------------------------------------------------------------------------------------------------


def _astype(self: Tracer, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True) -> Tracer:
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc":
        raise Escape(f"astype({dtype})", "this dtype is not traced")
    if not copy and dtype == self.dtype:
        return self
    return fresh(self._node) if dtype == self.dtype and not self.aval.weak else fresh(emit("cast", self._node, dtype=dtype))


def _fill(self: Tracer, value: Any) -> None:
    self._write(value)


METHODS.update(
    astype=_astype, fill=_fill, mean=mean, var=var, std=std, argmax=HANDLERS[np.argmax], argmin=HANDLERS[np.argmin],
    cumsum=cumsum, dot=dot, trace=trace, copy=lambda self, order="C": copy(self), clip=clip, take=take, repeat=repeat,
    conj=lambda self: call_ufunc(np.conjugate, "__call__", (self,), {}),
    conjugate=lambda self: call_ufunc(np.conjugate, "__call__", (self,), {}),
)  # fmt: skip
for _ufunc in UFUNCS:
    HANDLERS.setdefault(_ufunc, (lambda u: lambda *args, **kwargs: call_ufunc(u, "__call__", args, kwargs))(_ufunc))

