"""Python's operators on traced values: on arrays they are ufuncs, on Python numbers they give Python numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.made_lists import repeated
from futurex.frontend.numpy_api.checks import check_numbers, check_power
from futurex.frontend.numpy_api.ufuncs import call_ufunc, compute, is_arraylike, refuse_loose
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, entered, fresh, new_array, node_of
from futurex.frontend.wide import bits_of_int
from futurex.tree.node import Node, const

# ``array ** number`` takes these short cuts, which differ from np.power in the last bit.
_SHORT_CUTS = {(int, -1): np.reciprocal, (int, 2): np.square, (float, 0.5): np.sqrt}
_COMPARING = frozenset({np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal})
_EXACT = 53  # bits of an integer that every float of its size can hold
_WIDEST = 2.0**63
_ORDERS = frozenset({np.less, np.less_equal, np.greater, np.greater_equal})
_OF_NUMBERS = frozenset(
    {np.add, np.subtract, np.multiply, np.floor_divide, np.remainder, np.negative, np.positive, np.invert, np.absolute,
     np.left_shift, np.right_shift, np.divide}
)  # fmt: skip


def operate(ufunc: Any, *inputs: Any) -> Any:
    """An operator: the ufunc, except that Python numbers follow Python's rules."""
    values = _python_complex(ufunc, [entered(value) for value in inputs])
    _tell_apart(ufunc, values)
    if ufunc is np.power:
        return _power(*values)
    if ufunc is np.divmod and all(node_of(value).aval.weak or _is_loose(value) for value in values):
        if not any(map(_is_loose, values)):
            check_numbers(np.divmod, list(map(node_of, values)))  # which has an error of its own
        return operate(np.floor_divide, *values), operate(np.remainder, *values)
    nodes = [node_of(value) for value in values]
    if ufunc in _ORDERS and any(node.dtype.kind == "c" for node in nodes):
        if all(node.aval.weak for node in nodes):
            raise TypeError("'<' not supported between instances of 'complex' and 'complex'")
        if not any(_is_array(value, node) for value, node in zip(values, nodes, strict=True)):
            return fresh(emit("scalar_compare", *nodes, operator=ufunc.__name__))  # NaN has another place there
    if ufunc is np.absolute and nodes[0].dtype.kind == "c" and not _is_array(values[0], nodes[0]):
        return fresh(emit("scalar_absolute", nodes[0]))
    scalars = not any(_is_array(value, node) for value, node in zip(values, nodes, strict=True))
    if ufunc is np.multiply and scalars and any(node.dtype.kind == "c" for node in nodes):
        return fresh(emit("scalar_multiply", *nodes))
    if not all(node.aval.weak for node in nodes):
        return compute(ufunc, *values)
    if ufunc in _OF_NUMBERS:  # True + True is 2 in Python
        nodes = [emit("python_scalar", node, kind="i") if node.dtype.kind == "b" else node for node in nodes]
        check_numbers(ufunc, nodes)
    mixed = ufunc in _COMPARING and sorted(node.dtype.kind for node in nodes) == ["f", "i"]
    if mixed and max(bits_of_int(node) for node in nodes if node.dtype.kind == "i") > _EXACT:
        return _compared(ufunc, *nodes)
    if ufunc is np.divide and (any(node.dtype.kind == "c" for node in nodes) or _are_wide(nodes)):
        return fresh(emit("scalar_divide", *nodes))
    return compute(ufunc, *map(fresh, nodes))


def _is_loose(value: Any) -> bool:
    return isinstance(value, Tracer) and bool(value._loose)


def _tell_apart(ufunc: Any, values: Sequence[Any]) -> None:
    """Powers, complex numbers and quotients of large ints follow other rules where they are Python's in some branch and
    NumPy's in another."""
    loose = list(map(_is_loose, values))
    nodes = [node_of(value) for value in values] if any(loose) else []
    if not nodes or not all(each or node.aval.weak for each, node in zip(loose, nodes, strict=True)):
        return
    quotient = ufunc is np.divide and _are_wide(nodes)
    if quotient or ufunc is np.power or any(node.dtype.kind == "c" for node in nodes):
        refuse_loose(ufunc.__name__)


def _are_wide(nodes: Sequence[Node]) -> bool:
    """Are they ints of which a float may not hold one? Python rounds their quotient alone."""
    return all(node.dtype.kind == "i" for node in nodes) and max(map(bits_of_int, nodes)) > _EXACT


def _compared(ufunc: Any, left: Node, right: Node) -> Any:
    """An int and a float, which Python compares exactly: as floats, and where these are equal as ints."""
    whole, real = (left, right) if left.dtype.kind == "i" else (right, left)
    rounded = emit("python_scalar", whole, kind="f")
    inside = emit("logical_and", emit("greater_equal", real, -_WIDEST), emit("less", real, _WIDEST))  # has it an int?
    as_int = emit("cast", emit("where", inside, real, 0.0), dtype=np.dtype(np.int64))
    pair = (whole, as_int) if whole is left else (as_int, whole)
    apart = emit(ufunc.__name__, *((0.0, real) if whole is left else (real, 0.0)))
    exact = emit("where", inside, emit(ufunc.__name__, *pair), apart)
    found = emit("where", emit("equal", rounded, real), exact, emit(ufunc.__name__, left, right))
    return fresh(emit("python_scalar", found, kind="b"))


def _python_complex(ufunc: Any, values: list[Any]) -> list[Any]:
    """Python's complex asks its own operator first, which takes np.float64 for the float that it is."""
    if len(values) < 2 or not isinstance(values[1], Tracer) or not values[1].is_scalar:
        return values
    first, second = node_of(values[0]).aval, values[1].aval
    if not first.weak or first.dtype.kind != "c" or second.weak or second.dtype != np.float64:
        return values
    if ufunc not in (np.add, np.subtract, np.multiply, np.divide):
        raise Escape(f"{ufunc.__name__} of a Python complex number and a float", "Python computes it, not NumPy")
    return [values[0], fresh(emit("python_scalar", values[1]._node, kind="f"))]


def _power(base: Any, exponent: Any) -> Any:
    x, y = node_of(base), node_of(exponent)
    if x.aval.weak and y.aval.weak:
        return _python_power(x, y)
    scalar = not any(_is_array(value, node) for value, node in ((base, x), (exponent, y)))
    if scalar:
        return fresh(emit("scalar_power", x, y))
    if y.aval.weak and y.op != "const" and y.dtype.kind in "ib":
        return fresh(emit("scalar_power", x, y))  # which short cut is taken depends on the value
    ufunc, operands = _power_loop(base, exponent)
    return compute(ufunc, *operands)


def _power_loop(base: Any, exponent: Any) -> tuple[Any, tuple[Any, ...]]:
    """The ufunc that ``base ** exponent`` calls, and its operands."""
    short = _SHORT_CUTS.get((type(exponent), exponent)) if type(exponent) in (int, float) else None
    x = node_of(base)
    if short is None or not _is_array(base, x) or not (x.dtype.kind in "fc" or short is np.square):
        return np.power, (base, exponent)
    return short, (base,)


def _is_array(value: Any, node: Node) -> bool:
    return node.ndim > 0 or (isinstance(value, Tracer) and not value.is_scalar)


def _python_power(x: Node, y: Node) -> Any:
    x, y = (emit("python_scalar", node, kind="i") if node.dtype.kind == "b" else node for node in (x, y))
    if x.dtype.kind == y.dtype.kind == "i":
        if y.op == "const" and y.value < 0:
            return fresh(emit("scalar_power", emit("python_scalar", x, kind="f"), y))
        check_power(x, y)
    if y.dtype.kind == "f" and not (y.op == "const" and float(y.value).is_integer()) and not _never_negative(x):
        current().waits = True  # where Python's result is complex, the call is run again as plain Python
    return fresh(emit("scalar_power", x, y))


def _never_negative(x: Node) -> bool:
    """Can a power of this number not be complex, as far as its operation shows?"""
    if x.op == "const":
        return x.dtype.kind == "c" or bool(x.value >= 0)
    if x.op == "multiply" and x.dtype.kind == "f" and x.inputs[0] is x.inputs[1]:
        return True
    if x.op == "add":
        return all(map(_never_negative, x.inputs))
    return x.op in ("absolute", "exp", "sqrt", "square") or x.dtype.kind in "bc"


_OPERATORS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
_COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}


def _binary(ufunc: Any, reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not is_arraylike(other):
            return NotImplemented
        if ufunc is np.multiply and type(other) is list and self.is_scalar:
            made = repeated(other, self)
            if made is not None:
                return made
        _refuse_sequence(ufunc, self, other)
        if ufunc is np.matmul:
            return call_ufunc(ufunc, "__call__", (other, self) if reflected else (self, other), {})
        return operate(ufunc, *((other, self) if reflected else (self, other)))

    return method


def _refuse_sequence(ufunc: Any, number: Tracer, other: Any) -> None:
    """Python's numbers know nothing of lists, other than NumPy's; a product of either with a list repeats the list."""
    if isinstance(other, list | tuple) and (number.aval.weak or (number.is_scalar and ufunc is np.multiply)):
        raise Escape("an operator on a traced number and a list", "Python refuses it, or repeats the list")


def _comparison(ufunc: Any, function: Any) -> Callable[[Any, Any], Any]:
    """No number equals None or a text, whatever its value; NumPy says so element by element."""
    compare = _binary(ufunc, reflected=False)

    def method(self: Any, other: Any) -> Any:
        if self.is_scalar and self.dtype.kind in "SU":
            raise Escape("comparing an element of an array of texts", "only numbers and booleans are traced")
        result = compare(self, other)
        if result is not NotImplemented or ufunc not in (np.equal, np.not_equal):
            return result
        if not isinstance(other, str | bytes | type(None)):
            raise Escape(f"comparing an array with a {type(other).__qualname__}", "its own methods may answer")
        if self.dtype.kind in "SU":
            return _texts_compared(self, function, other)
        one = self.dtype.type(0) if self.is_scalar else np.zeros(1, self.dtype)
        answer = function(one.item() if self.aval.weak else one, other)
        if self.is_scalar:
            return answer
        same = emit("full", bool(answer[0]), shape=self.shape, dtype=answer.dtype)
        return new_array(same) if self.ndim else fresh(same)

    return method


def _texts_compared(texts: Tracer, function: Any, other: Any) -> Tracer:
    """An array that is made of a list of texts holds them: it is known which of them are this one."""
    if texts._node.op != "const":
        raise Escape("comparing parts of an array of texts", "only numbers and booleans are traced")
    answer = const(function(np.asarray(texts._node.value), other))
    return new_array(answer) if answer.ndim else fresh(answer)


def _in_place(ufunc: Any) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not is_arraylike(other):
            return NotImplemented
        _refuse_sequence(ufunc, self, other)
        if self.is_scalar or self._cell.frozen:
            return operate(ufunc, self, other)
        if ufunc is np.matmul and np.ndim(other) < 2:
            raise ValueError("inplace matrix multiplication requires the second operand to have two dimensions")
        chosen, operands = _power_loop(self, other) if ufunc is np.power else (ufunc, (self, other))
        return call_ufunc(chosen, "__call__", operands, {"out": (self,)})

    return method


def _unary(ufunc: Any) -> Callable[[Any], Any]:
    return lambda self: operate(ufunc, self)


for _name, _ufunc in _OPERATORS.items():
    setattr(Tracer, f"__{_name}__", _binary(_ufunc, reflected=False))
    setattr(Tracer, f"__r{_name}__", _binary(_ufunc, reflected=True))
    setattr(Tracer, f"__i{_name}__", _in_place(_ufunc))
for _name, _reflected in (("divmod", False), ("rdivmod", True)):
    setattr(Tracer, f"__{_name}__", _binary(np.divmod, _reflected))
for _name, _ufunc in _COMPARISONS.items():
    setattr(Tracer, f"__{_name}__", _comparison(_ufunc, getattr(operator, _name)))
for _name, _ufunc in _UNARY.items():
    setattr(Tracer, f"__{_name}__", _unary(_ufunc))
