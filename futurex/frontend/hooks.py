"""The runtime object that rewritten code calls: every read, write, choice and call of a staged function comes through it."""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend import control
from futurex.frontend.calls import call
from futurex.frontend.control import UNDEF, TracedRange, is_unknown
from futurex.frontend.errors import Escape
from futurex.frontend.outside import PLAIN, any_traced, captured_value, own_container
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, fresh, lift, node_of

_IN_PLACE = {name: getattr(operator, f"i{name.rstrip('_')}") for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift")}

class Runtime:
    """``__fx__`` of one rewritten function."""

    UNDEF = UNDEF
    slice = builtins.slice

    def __init__(self, function: types.FunctionType, owner: Callable[[], Any]) -> None:
        self.function = function
        self.owner = owner

    if_ = staticmethod(control.if_)
    while_ = staticmethod(control.while_)
    for_ = staticmethod(control.for_)
    if_expression = staticmethod(control.if_expression)
    and_ = staticmethod(control.and_)
    or_ = staticmethod(control.or_)
    not_ = staticmethod(control.not_)
    assert_ = staticmethod(control.assert_)

    # -- names from outside ------------------------------------------------------------------------------------------

    def captured(self, name: str, value: Any) -> Any:
        """A global or closure variable: guarded; arrays become inputs."""
        return captured_value(name, value, self._reader(name), (id(self.function.__globals__), name, id(self.function)))

    def _reader(self, name: str) -> Callable[[], Any]:
        function = self.owner()
        freevars = function.__code__.co_freevars
        if name in freevars:
            cell = function.__closure__[freevars.index(name)]
            return lambda: cell.cell_contents
        scope, fallback = function.__globals__, vars(builtins)
        return lambda: scope[name] if name in scope else fallback[name]

    def getattr_(self, value: Any, name: str) -> Any:
        """``value.name``: attributes of objects from outside are guarded like globals."""
        result = getattr(value, name)
        if isinstance(value, Tracer | types.ModuleType | type) or isinstance(result, types.BuiltinMethodType | types.MethodType):
            return result
        if isinstance(value, np.ndarray | np.generic | PLAIN | types.FunctionType) or current().is_own(value):
            return result
        return captured_value(f"{type(value).__name__}.{name}", result, lambda: getattr(value, name), (id(value), name, value))

    @staticmethod
    def read(thunk: Callable[[], Any]) -> Any:
        try:
            return thunk()
        except NameError:
            return UNDEF

    @staticmethod
    def born(container: Any) -> Any:
        return current().remember(container)

    @staticmethod
    def refuse(why: str) -> None:
        raise Escape("this function is not staged", why)

    # -- known values ------------------------------------------------------------------------------------------------

    @staticmethod
    def known(value: Any) -> Any:
        if is_unknown(value):
            raise Escape("a test on data where Python must decide", "it leaves a with, try or comprehension, or binds a name")
        return value

    @staticmethod
    def known_iterable(value: Any) -> Any:
        if isinstance(value, TracedRange):
            raise Escape("a comprehension over a range that depends on data", "the number of its elements is not known")
        return value

    @staticmethod
    def known_subject(value: Any) -> Any:
        if any_traced([value]):
            raise Escape("match on traced values", "which pattern fits is not known before the run")
        return value

    # -- items -------------------------------------------------------------------------------------------------------

    @staticmethod
    def getitem(container: Any, index: Any) -> Any:
        if isinstance(container, np.ndarray):
            return lift(container)[index]
        if isinstance(container, Tracer) or not _traced_index(index):
            result = container[index]
            if isinstance(result, np.ndarray) and isinstance(container, list | tuple | dict):
                return lift(result)
            return result
        if isinstance(container, list | tuple) and any_traced([container]):
            return fresh(node_of(container))[index]
        return container[operator.index(index) if isinstance(index, Tracer) else index]

    @staticmethod
    def setitem(container: Any, index: Any, value: Any) -> None:
        if isinstance(container, np.ndarray):
            container = lift(container)
        if isinstance(container, Tracer):
            container[index] = value
            return
        own_container(container, f"an item of a {type(container).__name__}", unchanged=lambda: container[index] is value)
        container[index] = value

    @staticmethod
    def delitem(container: Any, index: Any) -> None:
        own_container(container, f"an item of a {type(container).__name__}")
        del container[index]

    @classmethod
    def isetitem(cls, container: Any, index: Any, name: str, value: Any) -> None:
        cls.setitem(container, index, cls.iop(name, cls.getitem(container, index), value))

    @staticmethod
    def iop(name: str, target: Any, value: Any) -> Any:
        if isinstance(target, np.ndarray):
            target = lift(target)
        if isinstance(target, list | dict | set):
            own_container(target, f"a {type(target).__name__}")
        return _IN_PLACE[name](target, value)

    def setattr_(self, target: Any, name: str, value: Any) -> None:
        if isinstance(target, Tracer):
            setattr(target, name, value)
            return
        own_container(target, f"the attribute {name!r}", unchanged=lambda: getattr(target, name, UNDEF) is value)
        setattr(target, name, value)

    def iattr(self, target: Any, attr: str, name: str, value: Any) -> None:
        self.setattr_(target, attr, self.iop(name, self.getattr_(target, attr), value))

    @staticmethod
    def unpack(value: Any, count: int, starred: int) -> Any:
        return list(value) if isinstance(value, Tracer) else value

    # -- tests -------------------------------------------------------------------------------------------------------

    @staticmethod
    def chain(names: tuple[str, ...], first: Any, *others: Callable[[], Any]) -> Any:
        """``a < b < c`` with every operand evaluated at most once."""

        def link(left: Any, position: int) -> Any:
            right = others[position]()
            result = getattr(operator, names[position])(left, right)
            return result if position == len(names) - 1 else control.and_(result, lambda: link(right, position + 1))

        return link(first, 0)

    @staticmethod
    def in_(value: Any, container: Any) -> Any:
        if isinstance(container, Tracer):
            return fresh(emit("any", emit("equal", container._node, node_of(value)), axis=None, keepdims=False))
        if isinstance(value, Tracer):
            if isinstance(container, list | tuple | range) and value.ndim == 0:
                tests = [(lambda entry=entry: value == entry) for entry in container]
                return control.or_(False, *tests)
            raise Escape("`in` with a traced value", f"a {type(container).__name__} needs the value itself")
        return value in container

    @classmethod
    def not_in(cls, value: Any, container: Any) -> Any:
        return control.not_(cls.in_(value, container))

    @staticmethod
    def raise_(thunk: Callable[[], Any]) -> None:
        error = thunk()
        if isinstance(error, type):
            error = error()
        error.__staged__ = True
        raise error

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return call(function, args, kwargs)


def _traced_index(index: Any) -> bool:
    if isinstance(index, tuple):
        return any(_traced_index(part) for part in index)
    if isinstance(index, slice):
        return any(isinstance(part, Tracer) for part in (index.start, index.stop, index.step))
    return isinstance(index, Tracer)
