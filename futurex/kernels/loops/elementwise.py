"""Elementwise operations: NumPy's own inner loops where it has one, generated ones for casts, choices and regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, kernels, records, values
from futurex.kernels.loops.arrays import Array, Shape, Strides
from futurex.kernels.loops.function import Function
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.ufuncs import InnerLoop, inner_loop
from futurex.kernels.loops.values import Scalar, supported
from futurex.kernels.numba_ import complexes
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.numba_.functions import FUNCTIONS, GUARDED, function, out_of_bounds
from futurex.kernels.numba_.scalar import memory_type, parts, register_type
from futurex.ops.fusion import FORMATS, PARTS, REMAINDERS, SUPPORTED, function_of, loop_of, operand_kind, resolved_loop
from futurex.tree.aval import Aval
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
Value = Scalar | Array
_MOST_CHOICES = 16
_COPIES = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def of_node(e: Emitter, node: Node, inputs: Sequence[Value]) -> Value:
    """An elementwise node on scalars, or on arrays that broadcast."""
    if all(isinstance(value, Scalar) for value in inputs):
        supported(node.dtype)
        return Scalar(scalar(e, node, [e.scalar(value) for value in inputs]), node.dtype, node.aval.weak)
    if node.aval.weak:
        raise Unsupported("a Python number made of arrays")
    shape = arrays.broadcast(e.function, [value.shape if isinstance(value, Array) else () for value in inputs])
    loop = numpy_loop(node)
    out = e.result(shape, node.dtype)
    by_one = node.op in REMAINDERS and out.dtype.kind == "f" and out.dtype in SUPPORTED  # in NumPy, which takes longer
    by_one = by_one and resolved_loop(node) is not None
    strides = [arrays.broadcast_strides(e.function, value, shape) for value in inputs if isinstance(value, Array)]
    short = resolved_loop(node) is not None and records.in_short_rows(shape, [*strides, out.strides])
    if loop is not None and out.dtype == loop.output and not (by_one or short):
        operands = [operand(e, value, dtype) for value, dtype in zip(inputs, loop.inputs, strict=True)]
        strides = [arrays.broadcast_strides(e.function, each, shape) for each in (*operands, out)]
        records.run(e, loop, [*operands, out], shape, strides)
    elif node.op == "cast" or resolved_loop(node) is not None:
        supported(node.dtype)
        generated(e, inputs, [out], lambda scalars: [scalar(e, node, scalars)])
    else:
        raise Unsupported(node.op)
    return e.unboxed(out)


def by_loop(e: Emitter, ufunc: Any, operands: Sequence[Array], out: Array) -> None:
    """``out[...] = ufunc(*operands)`` for operands of the dtype of the result."""
    loop = inner_loop(ufunc, tuple(each.dtype for each in operands), out.dtype)
    if loop is None:
        raise Unsupported(f"{ufunc.__name__} of dtype {out.dtype}")
    strides = [arrays.broadcast_strides(e.function, each, out.shape) for each in (*operands, out)]
    records.run(e, loop, [*operands, out], out.shape, strides)


def generated(e: Emitter, inputs: Sequence[Value], outs: Sequence[Array], compute: Any) -> None:
    """``outs[...] = compute(inputs)`` by a loop of its own."""
    shape = outs[0].shape
    operands = [value if isinstance(value, Array) else e.cell(value) for value in inputs]
    strides = [arrays.broadcast_strides(e.function, each, shape) for each in (*operands, *outs)]
    weak = [isinstance(value, Scalar) and value.weak for value in inputs]
    kinds = [(each.dtype, python) for each, python in zip(operands, weak, strict=True)]
    for dtype, _ in kinds:
        supported(dtype)

    in_place = {k: m for k, each in enumerate(operands) for m, out in enumerate(outs) if _are_alike(each, out)}

    def write(inside: Sequence[int], columns: Sequence[Strides]) -> records.Kernel:
        return kernels.elementwise(e, kinds, [out.dtype for out in outs], inside, columns, compute, in_place)

    records.run_nested(e, write, [*operands, *outs], shape, strides)


def _are_alike(value: Array, out: Array) -> bool:
    """Is it the very elements that a result overwrites? Of offsets that the run computes each has its own name; other
    parts of one array are copied before (:func:`delivery.before`)."""
    apart = value.offset != out.offset and "%" not in value.offset + out.offset
    return (value.place, value.shape, value.strides) == (out.place, out.shape, out.strides) and not apart


def fused(e: Emitter, node: Node, inputs: Sequence[Value]) -> Any:
    """A region of elementwise operations in one loop."""
    graph = node.attrs["graph"]
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)

    def compute(operands: Sequence[Scalar]) -> list[str]:
        env: dict[Node, Scalar] = dict(zip(graph.params, operands, strict=True))
        for inner in graph.nodes:
            if inner in env:
                continue
            if inner.op == "const":
                env[inner] = e.scalar(e.constant(inner))
                continue
            if inner.op == "broadcast_to":  # an element is that of what it is broadcast from
                source = env[inner.inputs[0]]
                env[inner] = Scalar(source.register, source.dtype, inner.aval.weak)
                continue
            found = _in_region(e, inner, [env[source] for source in inner.inputs])
            env[inner] = Scalar(found, inner.dtype, inner.aval.weak)
        return [env[each].register for each in graph.outs]

    spread = [each.shape for each in graph.nodes if each.op == "broadcast_to"]
    if all(isinstance(value, Scalar) for value in inputs) and not spread and not any(
        function_of(each) in FUNCTIONS for each in graph.nodes
    ):
        found = compute([e.scalar(value) for value in inputs])
        made: list[Value] = [Scalar(each, aval.dtype, aval.weak) for each, aval in zip(found, avals, strict=True)]
    else:
        shape = arrays.broadcast(e.function, [value.shape if isinstance(value, Array) else () for value in inputs])
        if _lacks(shape, avals[0].shape):
            shape = arrays.broadcast(e.function, [shape, *spread])
        outs = [e.result(shape, aval.dtype, k, dense=False) for k, aval in enumerate(avals)]
        generated(e, inputs, outs, compute)
        made = [e.unboxed(out) for out in outs]
    return made if isinstance(node.aval, tuple) else made[0]


def _lacks(shape: Shape, whole: Shape) -> bool:
    """Do operands not tell all extents of a result? Where they do, these may be those of a part of it."""
    return len(shape) < len(whole) or any(mine == 1 != own for mine, own in zip(shape, whole, strict=True))


def _in_region(e: Emitter, node: Node, operands: list[Scalar]) -> str:
    """One element of a node of a region, with the bits of compiled regions, where functions are polynomials."""
    name, f = function_of(node), e.function
    loop = loop_of(node)
    if node.op in FORMATS:  # whose products are no code of ours
        raise Unsupported("conversions to formats of fewer bits")
    if name not in FUNCTIONS:
        if loop is not None and resolved_loop(node) is None:  # complex numbers
            return values.in_loop(f, node.op, operands, *loop)
        return scalar(e, node, operands)
    if loop is None or not has_fma() or (loop[1].kind == "c" and not complexes.known()):
        raise Unsupported(f"{name} in a region")
    registers = [values.converted(f, value, dtype) for value, dtype in zip(operands, loop[0], strict=True)]
    if name in GUARDED:
        e.kernels.remember(f, out_of_bounds(f, loop[1], registers[0]))
    return function(f, node, loop[1], registers)


def checked_labels(e: Emitter, node: Node, inputs: Sequence[Value]) -> Value:
    """Labels that name classes, as they are compared; one that names none is a failure."""
    (labels,) = inputs

    def checked(value: Scalar, refuse: Callable[[Function, str], None]) -> str:
        f = e.function
        wide = values.converted(f, value, np.dtype(np.uint64))  # where a negative one is beyond all classes
        refuse(f, f.emit(f"icmp uge i64 {wide}, {node.attrs['classes']}"))
        return values.converted(f, value, node.dtype)

    if isinstance(labels, Scalar):
        return Scalar(checked(labels, Function.fail_if), node.dtype, False)
    out = e.result(labels.shape, node.dtype)
    generated(e, [labels], [out], lambda scalars: [checked(scalars[0], e.kernels.remember)])
    return out


def choose(e: Emitter, node: Node, inputs: Sequence[Value]) -> Value:
    """``choose``: each element is that of one of a few arrays, by number; one that names none is a failure."""
    number, *choices = inputs
    last = len(choices) - 1
    if not isinstance(number, Array) or number.dtype.kind not in "biu" or last >= _MOST_CHOICES:
        raise Unsupported("a choice of another kind")
    if node.attrs["mode"] != "raise" or number.dtype == np.uint64 or node.dtype not in SUPPORTED:
        raise Unsupported("a choice of another kind")
    shape = arrays.broadcast(e.function, [value.shape if isinstance(value, Array) else () for value in inputs])
    out = e.result(shape, node.dtype)

    def compute(operands: Sequence[Scalar]) -> list[str]:
        f = e.function
        chosen = f.cast(operands[0].register, number.dtype, np.dtype(np.int64))
        e.kernels.remember(f, f.emit(f"icmp ugt i64 {chosen}, {last}"))
        *others, found = (values.converted(f, value, node.dtype) for value in operands[1:])
        for k, value in enumerate(others):
            found = f.select(f.emit(f"icmp eq i64 {chosen}, {k}"), register_type(node.dtype), value, found)
        return [found]

    generated(e, inputs, [out], compute)
    return out


def of_several(e: Emitter, node: Node, inputs: Sequence[Value]) -> list[Array]:
    """A ufunc with two results, of arrays, by NumPy's loop."""
    ufunc: Any = node.record.kernel
    avals: Any = node.aval
    if not any(isinstance(value, Array) for value in inputs):
        raise Unsupported(f"{node.op} of numbers")
    try:
        kinds = ufunc.resolve_dtypes((*(operand_kind(source.aval) for source in node.inputs), None, None))
    except TypeError as error:
        raise Unsupported(node.op) from error
    own, made = kinds[: ufunc.nin], kinds[ufunc.nin :]
    loop = inner_loop(ufunc, tuple(own), *made)
    if loop is None or tuple(made) != tuple(aval.dtype for aval in avals):
        raise Unsupported(f"{node.op} of other numbers")
    shape = arrays.broadcast(e.function, [value.shape if isinstance(value, Array) else () for value in inputs])
    operands = [operand(e, value, dtype) for value, dtype in zip(inputs, loop.inputs, strict=True)]
    outs = [e.fresh(shape, dtype) for dtype in loop.outputs]
    strides = [arrays.broadcast_strides(e.function, each, shape) for each in (*operands, *outs)]
    records.run(e, loop, [*operands, *outs], shape, strides)
    return outs


# -- single values ---------------------------------------------------------------------------------------------------


def scalar(e: Emitter, node: Node, operands: list[Scalar]) -> str:
    """One element of an elementwise node."""
    supported(node.dtype)
    if node.aval.weak:
        inner = numpy_loop(node)
        if inner is not None and values.by_numpy(node.op, operands, node.dtype):
            return _call_once(e, inner, operands)
        return values.python_number(e.function, node.op, operands, node.dtype)
    loop = resolved_loop(node)
    if loop is not None:
        return values.in_loop(e.function, node.op, operands, *loop)
    if node.op == "cast":
        return values.converted(e.function, operands[0], node.dtype)
    if node.op in PARTS and operands[0].dtype.kind == "c":
        return parts(operands[0].register)[node.op == "imag"]
    inner = numpy_loop(node)
    if inner is None:
        raise Unsupported(f"{node.op} of {[str(source.aval) for source in node.inputs]}")
    return _call_once(e, inner, operands)


def _call_once(e: Emitter, loop: InnerLoop, operands: list[Scalar]) -> str:
    """One element by a loop of NumPy, through places on the stack."""
    f = e.function
    supported(loop.output)
    pointers = []
    for value, dtype in zip(operands, loop.inputs, strict=True):
        pointer = f.variable(memory_type(supported(dtype)))
        f.store(dtype, values.converted(f, value, dtype), pointer)
        pointers.append(pointer)
    pointers.append(f.variable(memory_type(loop.output)))
    slot = e.memory.loop(loop)
    n = len(pointers)
    args, count, steps = f.variable(f"[{n} x ptr]"), f.variable("i64"), f.variable(f"[{n} x i64]")
    for k, pointer in enumerate(pointers):
        f.do(f"store ptr {pointer}, ptr {f.emit(f'getelementptr ptr, ptr {args}, i64 {k}')}, align 8")
        f.do(f"store i64 0, ptr {f.emit(f'getelementptr i64, ptr {steps}, i64 {k}')}, align 8")
    f.do(f"store i64 1, ptr {count}, align 8")
    f.do(f"call void %loop{slot}(ptr {args}, ptr {count}, ptr {steps}, ptr %loop{slot + 1})")
    return f.load(loop.output, pointers[-1])


def numpy_loop(node: Node) -> InnerLoop | None:
    """NumPy's inner loop for an elementwise node."""
    ufunc = node.record.kernel
    if not isinstance(ufunc, np.ufunc) or ufunc.signature is not None or node.attrs or not isinstance(node.aval, Aval):
        return None
    kinds = [source.dtype if node.aval.weak else operand_kind(source.aval) for source in node.inputs]
    try:
        *ins, out = ufunc.resolve_dtypes((*kinds, None))
    except TypeError:
        return None
    return inner_loop(ufunc, tuple(ins), out) if out == node.dtype else None


# -- operands and copies ---------------------------------------------------------------------------------------------


def operand(e: Emitter, value: Value, dtype: Dtype) -> Array:
    """A value as an array of a loop's dtype."""
    if isinstance(value, Scalar):
        return e.cell(Scalar(values.converted(e.function, value, supported(dtype)), dtype, False))
    return value if value.dtype == dtype else cast(e, value, dtype)


def cast(e: Emitter, source: Array, dtype: Dtype) -> Array:
    """The elements as another type, in memory of their own."""
    made = e.fresh(source.shape, dtype)
    assign(e, made, source)
    return made


def assign(e: Emitter, target: Array, value: Value, add: bool = False) -> None:
    """``target[...] = value`` or ``target += value``, with NumPy's casts; the two share no memory."""
    f, dtype = e.function, target.dtype
    if isinstance(value, Scalar):
        value = Scalar(values.converted(f, value, supported(dtype)), dtype, False)
        if not target.shape and not add:
            f.store(dtype, value.register, target.pointer(f))
            return
        value = e.cell(value)
    if value.dtype != dtype:
        if value.dtype.kind == "c" and dtype.kind not in "cb":
            raise Unsupported("complex elements as real ones")
        if add:
            value = cast(e, value, dtype)
        else:
            generated(e, [_spread(e, value, target.shape)], [target],
                      lambda operands: [values.converted(e.function, operands[0], dtype)])  # fmt: skip
            return
    strides = [arrays.broadcast_strides(f, value, target.shape), target.strides]
    short = dtype in SUPPORTED and records.in_short_rows(target.shape, strides)
    if not add and (short or dtype == np.complex128):  # which no loop of NumPy copies by vectors
        generated(e, [value], [target], lambda operands: [operands[0].register])
        return
    loop: InnerLoop | None
    if add:
        loop = inner_loop(np.add, (dtype, dtype), dtype)
        operands, strides = [target, value, target], [target.strides, *strides]
    else:
        kind = np.dtype(_COPIES[dtype.itemsize])
        loop = inner_loop(np.positive, (kind,), kind)
        operands = [value, target]
    if loop is None:
        raise Unsupported(f"elements of dtype {dtype}")
    records.run(e, loop, operands, target.shape, strides)


def _spread(e: Emitter, value: Array, shape: Shape) -> Array:
    strides = arrays.broadcast_strides(e.function, value, shape)
    return Array(value.place, shape, strides, value.dtype, False, value.offset)
