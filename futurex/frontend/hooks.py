"""The runtime object that rewritten code calls: every read, write, choice and call of a staged function."""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import importlib.util
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend import control, keyed, reads, tuples
from futurex.frontend.calls import call
from futurex.frontend.comprehensions import Comprehension
from futurex.frontend.contexts import attempt, context, protected
from futurex.frontend.control import UNDEF, is_unknown
from futurex.frontend.control.either import asks, beside, called, element_of, operated
from futurex.frontend.control.patterns import Match, Matcher
from futurex.frontend.control.values import read_name
from futurex.frontend.deferring import check_deferring
from futurex.frontend.deleting import delete_attribute, delete_item
from futurex.frontend.errors import Escape, Signal, python
from futurex.frontend.lists import Site, TracedList
from futurex.frontend.made_lists import listed
from futurex.frontend.nothing import refused
from futurex.frontend.numbers import array_attribute, attribute
from futurex.frontend.outside import (
    PLAIN,
    any_traced,
    captured_value,
    check_state,
    describes,
    extended,
    gives_items,
    guard_library,
    guard_method,
    is_internal_class,
    is_property,
    is_users,
    items,
    of_class,
    own_container,
    refuse_special,
    refuse_unseen_attribute,
    stored_under,
    taken,
    unseen,
)
from futurex.frontend.picking import depends_on_data, picked, put
from futurex.frontend.placeholders import Either
from futurex.frontend.raised import raise_
from futurex.frontend.sameness import same
from futurex.frontend.standing import METHODS
from futurex.frontend.tables import TracedRow
from futurex.frontend.texts import f_string, formatted, joined, percent
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, as_number, entered, fresh, node_of
from futurex.frontend.unshared import apart, meet_object
from futurex.tree.dims import Dim

_NUMBERS = (Tracer, bool, int, float, complex, np.generic)
_CONTAINERS = (list, tuple, dict, set, frozenset, str, bytes, range, type(None), type, types.FunctionType, np.dtype)
_INDEXED = (list, tuple, dict, str, bytes, range, collections.deque, types.MappingProxyType, type)
_KEYS: Any = type({}.keys())
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_PLAIN = (bool, int, float, complex, str, type(None))
_ALIKE = frozenset(("add", "sub", "mul", "truediv", *_COMPARISONS))
"""Operators that do the same with a number of Python's and a float of the other operand's type."""
_ANSWERS = {
    name: answer for pair in ("lt gt", "le ge", "eq eq", "ne ne") for name, answer in (pair.split(), pair.split()[::-1])
}
_IN_PLACE = {
    name: getattr(operator, f"i{name.rstrip('_')}")
    for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
    )
}  # fmt: skip


class Runtime:
    """``__fx__`` of one rewritten function."""

    UNDEF = UNDEF
    BaseException = BaseException
    passing = Signal, GeneratorExit
    """What no handler of the user's is asked about. A generator that is left is closed when its trace may be over."""
    slice = builtins.slice

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function

    if_ = staticmethod(control.if_)
    while_ = staticmethod(control.while_)
    for_ = staticmethod(control.for_)
    appended = control.Appended
    if_expression = staticmethod(control.if_expression)
    and_ = staticmethod(control.and_)
    or_ = staticmethod(control.or_)
    not_ = staticmethod(control.not_)
    assert_ = staticmethod(control.assert_)
    apart = staticmethod(apart)
    items = staticmethod(items)
    f_string = staticmethod(f_string)

    @staticmethod
    def delegate(value: Any) -> Any:
        """What ``yield from`` goes over: a generator itself, which also takes what is sent and returns a value."""
        if not isinstance(value, types.GeneratorType):
            return items(value)
        own_container(value, "the position of a generator")
        return value

    # -- names from outside ------------------------------------------------------------------------------------------

    def captured(self, name: str, value: Any) -> Any:
        """A global or closure variable: guarded; arrays become inputs."""
        if current().walking:
            return entered(value)  # no program changes what NumPy's own source means
        key = id(self.function.__globals__), name, id(self.function)
        guard = current().guards.get(key)
        if guard is not None and guard.value is value:
            return current().held.entered(value)
        return captured_value(name, value, self._reader(name), key)

    def _reader(self, name: str) -> Callable[[], Any]:
        function = self.function
        freevars = function.__code__.co_freevars
        if name in freevars:
            return reads.ClosureName((function.__closure__ or ())[freevars.index(name)])
        return reads.GlobalName(function.__globals__, name)

    @asks(0)
    def getattr_(value: Any, name: str) -> Any:
        """``value.name``: attributes of objects from outside are guarded like globals."""
        value = entered(value)
        if name == "__class__" and is_internal_class(value):
            return call(type, (value,), {})
        if isinstance(value, Tracer):
            found = array_attribute(value, name) if not value.aval.weak else attribute(value, name)
            if name in ("size", "nbytes"):
                return as_number(found)
            return tuple(map(as_number, found)) if name == "shape" else found
        if hasattr(type(value), "__fx_traced__"):
            return getattr(value, name)
        stored = stored_under(value, name)
        is_staged = is_property(stored, "__get__") and isinstance(stored.fget, types.FunctionType | functools.partial)
        if is_staged and not _is_library(type(value)):
            of_class(type(value), name)
            return call(stored.fget, (_owner(value),), {})
        computes = refuse_unseen_attribute(value, name, stored)
        if current().is_own(value) and stored is not None and name not in getattr(value, "__dict__", ()):
            of_class(type(value), name)
        with python() if current().is_own(value) or isinstance(value, _PLAIN) else contextlib.nullcontext():
            result = unseen(getattr, value, name) if computes else getattr(value, name)
        if type(result) in METHODS:
            guard_method(value, result, name)
        if isinstance(value, types.ModuleType) and callable(result) and _is_library(value):
            guard_library(value, name, result)
        if isinstance(result, (*METHODS, types.BuiltinMethodType, types.MethodWrapperType)):
            return result
        if isinstance(value, (*PLAIN, np.generic)) or _is_library(value) or current().has_set(value, name, result):
            return taken(result)
        what = f"{getattr(value, '__name__', type(value).__name__)}.{name}"
        return captured_value(what, result, reads.attribute(value, name), (id(value), name))

    def imported(self, value: Any, module: str, level: int, name: str) -> Any:
        """``from module import name``."""
        package = self.function.__globals__.get("__package__") or ""
        owner = sys.modules.get(importlib.util.resolve_name("." * level + module, package))
        return value if owner is None or not hasattr(owner, name) else self.getattr_(owner, name)

    @staticmethod
    def decorator(value: Any) -> Any:
        """What decorates a function inside a staged one: Python calls it, so one of the user's is staged there."""
        home = (getattr(value, "__module__", None) or "builtins").partition(".")[0]
        if home in ("numpy", "futurex") or home in sys.stdlib_module_names:
            return value
        return lambda function: call(value, (function,), {})

    @staticmethod
    def read(thunk: Callable[[], Any]) -> Any:
        """A name of a statement's state, which need not be bound."""
        try:
            return thunk()
        except NameError:
            return UNDEF

    bound = staticmethod(read_name)

    @staticmethod
    def born(container: Any) -> Any:
        """A container or iterator that the function made itself."""
        refuse_special(*(container if isinstance(container, dict | set) else ()))
        return current().remember(container)

    @staticmethod
    def mapping(value: Any) -> Any:
        """What Python itself takes the entries of: ``**value``."""
        value = entered(value)
        if gives_items(value) and not (isinstance(value, dict) and type(value).__iter__ is dict.__iter__):
            raise Escape(f"** of a {type(value).__qualname__}", "what it gives is not known to the tracer")
        return value

    @staticmethod
    def filled(value: Any) -> Any:
        """An operand of ``and``, ``or`` and ``not`` in a test."""
        return control.filled(value)

    def listed(self, values: Any, place: Any, rows: tuple[Any, ...], *sources: Any) -> Any:
        """A list that the function wrote out, or what is a new one if its ``sources`` make such. ``rows``: the places
        that made the lists in it, where nobody has them but this one."""
        code = self.function.__code__
        return listed(values, Site(code, *place), sources, [Site(code, *row) for row in rows])

    def comprehended(self, *given: Any) -> Any:
        """A list comprehension."""
        return Comprehension(self.function.__code__, *given).listed()

    def call_over(self, function: Any, given: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        """A call of a function with a generator expression."""
        return Comprehension(self.function.__code__, *given).consumed_by(function, args, kwargs)

    @staticmethod
    def refuse(why: str) -> None:
        raise Escape("this function is not staged", why)

    @staticmethod
    def variables(closure: Callable[[], Any]) -> None:
        """The variables of a call that functions inside it write."""
        for cell in closure.__closure__ or ():
            current().remember(cell)

    @staticmethod
    def changes(closure: Callable[[], Any]) -> None:
        """A function that writes variables of the function around it is about to run."""
        for name, cell in zip(closure.__code__.co_freevars, closure.__closure__ or (), strict=True):
            if not current().change(cell):
                what = f"changing {name} through a call inside a staged branch or loop"
                raise Escape(what, "the branch would not know of it", site=control.IN_BRANCH)

    # -- known values ------------------------------------------------------------------------------------------------

    @staticmethod
    def known(value: Any) -> Any:
        """A test that Python itself decides."""
        value = control.asked(value)
        if not is_unknown(value):
            return value
        return control.decided(
            control.truth(value),
            "a test on data where Python must decide",
            "it leaves a with, try or comprehension, or binds a name",
        )

    @classmethod
    def match(cls, value: Any, pattern: tuple[Any, ...]) -> Match:
        """What a value and the pattern of a ``case`` have in common."""
        check_state(value, "the subject of a match")
        matcher = Matcher(cls.compare, lambda value, kind: call(isinstance, (value, kind), {}), cls.getattr_)
        return matcher.fit(value, pattern)

    @staticmethod
    def matches(found: Match) -> Any:
        return found.test

    @staticmethod
    def matched(found: Match, name: str) -> Any:
        return current().remember_all(found.names[name])

    @staticmethod
    def finishes() -> bool:
        """Does a ``finally`` run as it would in Python? Not where the tracer gives the code up."""
        return not isinstance(sys.exc_info()[1], Signal | GeneratorExit)

    context = staticmethod(context)
    protected = staticmethod(protected)
    attempt = staticmethod(attempt)

    # -- items -------------------------------------------------------------------------------------------------------

    @asks(1)
    def getitem(container: Any, index: Any) -> Any:
        container, index = entered(container), entered(index)
        if not is_users(type(container)):
            refuse_special(index)
        if isinstance(container, Tracer):
            return container[index]
        if type(container) in (list, tuple) and depends_on_data(index):
            return picked(container, index)
        if type(container) is dict and keyed.is_open(index):
            return keyed.item(container, index)
        method = of_class(type(container), "__getitem__")
        if type(method) is types.FunctionType:
            return call(method, (container, index), {})
        own = getattr(container, "__class_getitem__", None) if isinstance(container, type) else None
        if type(getattr(own, "__func__", None)) is types.FunctionType and own.__module__ != "typing":
            return call(own, (index,), {})
        if isinstance(container, collections.defaultdict) and index not in container:
            own_container(container, "a defaultdict")
        # What has no items (None, a number) is Python's own error: an outcome like any other where a test leads to it.
        has_items = hasattr(type(container), "__getitem__") or is_internal_class(container)
        if not isinstance(container, _INDEXED) and has_items:
            raise Escape(f"an item of a {type(container).__qualname__}", "what it gives is not known to the tracer")
        items: Any = container
        with python():
            result = taken(items[index])
        return current().remember(result) if isinstance(index, slice) and isinstance(result, list) else result

    @asks(1)
    def setitem(container: Any, index: Any, value: Any) -> None:
        container = entered(container)
        if not is_users(type(container)):
            refuse_special(index)
        if isinstance(container, Tracer):
            container[entered(index)] = element_of(value, container)
            return
        method = of_class(type(container), "__setitem__")
        if type(method) is types.FunctionType:
            call(method, (container, index, value), {})
            return
        index = entered(index)
        if type(container) is list and depends_on_data(index):
            put(container, index, value)
            return
        if type(container) is dict and keyed.is_open(index):
            keyed.put_item(container, index, value)
            return
        if isinstance(index, slice) and gives_items(value):
            value = list(items(value))
        what = f"an item of a {type(container).__name__}"
        if not hasattr(type(container), "__setitem__"):  # Python's own error, also where an array was changed in place
            with python():
                container[index] = value
        if own_container(container, what, unchanged=lambda: taken(container[index]) is value):
            with python():
                container[index] = value

    delitem = staticmethod(delete_item)

    @classmethod
    def iop(cls, name: str, target: Any, value: Any) -> Any:
        if name in _ALIKE:
            target, value = beside(target, value), beside(value, target)
        if type(target) is Either or type(value) is Either:
            return operated(cls.iop, name, target, value)
        target, value = entered(target), entered(value)
        if isinstance(target, list | dict | set):
            own_container(target, f"a {type(target).__name__}")
        elif not isinstance(target, (*_NUMBERS, *_CONTAINERS)):
            method = of_class(type(target), f"__i{name.rstrip('_')}__")
            if method is not None:
                return _dunder(method, target, value)
            return cls.binary(name, target, value)
        elif not isinstance(target, Tracer):
            if target is None and isinstance(value, _NUMBERS):
                refused(_IN_PLACE[name], target, value)
            return cls.binary(name, target, value)
        if isinstance(target, list) and name == "add" and (gives_items(value) or hasattr(type(value), "__next__")):
            return extended(target, value)
        if not isinstance(value, (*_NUMBERS, *_CONTAINERS)):
            refuse_special(value)
            if isinstance(target, Tracer):
                check_deferring(target, value, in_place=not target.is_scalar)
        return _IN_PLACE[name](target, value)

    @staticmethod
    def setattr_(target: Any, name: str, value: Any) -> None:
        target = entered(target)
        if isinstance(target, Tracer):
            setattr(target, name, value)
            return
        stored = stored_under(target, name)
        if is_property(stored, "__set__") and type(stored.fset) is types.FunctionType:
            of_class(type(target), name)
            call(stored.fset, (target, value), {})
            return
        method = of_class(type(target), "__setattr__")
        if type(method) is types.FunctionType or describes(stored, "__set__"):
            raise Escape(f"the attribute {name!r} of a {type(target).__qualname__}", "its class says how it is set")

        def unchanged() -> bool:  # then every run finds it so, or there is another trace
            slot = isinstance(stored, types.MemberDescriptorType)  # any other may refuse, or do more
            if hasattr(stored, "__set__") != slot or (name not in getattr(target, "__dict__", ()) and not slot):
                return False  # what its class holds becomes its own, whatever the class holds later
            held = getattr(target, name, UNDEF)
            capture = current().captures.get(id(held))  # asking must not make it one of no name
            return (held if capture is None else capture.tracer) is value and Runtime.getattr_(target, name) is value

        if own_container(target, f"the attribute {name!r}", unchanged):
            current().assigned[id(target), name] = target
            setattr(target, name, value)

    @staticmethod
    def delattr_(target: Any, name: str) -> None:
        delete_attribute(target, name, Runtime.getattr_)

    @staticmethod
    def unpack(value: Any, count: int, starred: int) -> Any:
        value = entered(value)
        if not isinstance(value, Tracer):
            if value is None:
                with python():
                    (_,) = value  # type: ignore[misc]
            return items(value)
        return _rows(value, count) if starred < 0 and value.ndim and _shown_by_run(value.shape[0]) else list(value)

    # -- operators ---------------------------------------------------------------------------------------------------

    @staticmethod
    def binary(name: str, left: Any, right: Any) -> Any:
        """``left <operator> right``."""
        if name in _ALIKE:
            left, right = beside(left, right), beside(right, left)
        if type(left) is Either or type(right) is Either:
            return operated(Runtime.binary, name, left, right)
        left, right = entered(left), entered(right)
        function = getattr(operator, name)
        if name == "pow" and isinstance(left, np.generic) and isinstance(right, Tracer):
            return right.__rpow__(left)  # NumPy's numbers ask the C library; left itself would call the ufunc
        if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            with contextlib.nullcontext() if isinstance(left, Tracer) or isinstance(right, Tracer) else python():
                return function(left, right)
        known = (*_NUMBERS, *_CONTAINERS)
        if isinstance(left, known) and isinstance(right, known):
            return _on_containers(name, function, left, right)
        return _on_objects(name, left, right)

    @staticmethod
    def unary(name: str, value: Any) -> Any:
        """``-value``, ``+value``, ``~value``."""
        if type(value) is Either:
            return operated(Runtime.unary, name, value)
        value = entered(value)
        if isinstance(value, _NUMBERS):
            return getattr(operator, name)(value)
        if value is None:
            refused(getattr(operator, name), value)
        return _dunder(of_class(type(value), f"__{name}__"), value)

    @classmethod
    def compare(cls, name: str, left: Any, right: Any) -> Any:
        """``left <comparison> right``."""
        if name in ("in_", "not_in"):
            found = cls.in_(left, right)
            return found if name == "in_" else control.not_(found)
        if name in ("is_", "is_not"):
            found = same(left, right)
            return found if name == "is_" else control.not_(found)
        return cls.binary(name, left, right)

    @classmethod
    def chain(cls, names: tuple[str, ...], first: Any, *others: Callable[[], Any]) -> Any:
        """``a < b < c`` with every operand evaluated at most once."""

        def link(left: Any, position: int) -> Any:
            right = others[position]()
            result = cls.compare(names[position], left, right)
            return result if position == len(names) - 1 else control.and_(result, lambda: link(right, position + 1))

        return link(first, 0)

    @asks(0)
    def in_(value: Any, container: Any) -> Any:
        value, container = entered(value), entered(container)
        if isinstance(container, Tracer):
            if container.is_scalar:
                raise TypeError(f"argument of type '{container.dtype.type.__name__}' is not iterable")
            found = emit("any", emit("equal", container._node, node_of(value)), axis=None, keepdims=False)
            return fresh(emit("python_scalar", found, kind="b"))
        if isinstance(container, TracedList | TracedRow):
            return container.holds(value)
        if type(container) in (dict, set, frozenset, _KEYS) and keyed.is_open(value):
            return keyed.holds(container, value)
        if isinstance(value, Tracer) or (any_traced([container]) and not isinstance(container, dict)):
            simple = isinstance(container, list | tuple | range) and isinstance(value, _NUMBERS) and np.ndim(value) == 0
            if simple and all(isinstance(entry, _NUMBERS) and np.ndim(entry) == 0 for entry in container):
                tests = [(lambda entry=entry: value == entry) for entry in container]
                return control.truth_of(control.or_(False, *tests))
            raise Escape("`in` with a traced value", f"a {type(container).__name__} needs the value itself")
        method = of_class(type(container), "__contains__")
        if type(method) is types.FunctionType:
            return control.truth_of(call(method, (container, value), {}))
        if not isinstance(container, (*_CONTAINERS, types.MappingProxyType, collections.deque, _KEYS)):
            raise Escape(f"`in` on a {type(container).__qualname__}", "what it holds is not known to the tracer")
        refuse_special(value, *([container] if isinstance(container, list | tuple | collections.deque) else []))
        held: Any = container
        return value in held

    raise_ = staticmethod(raise_)

    # -- calls -------------------------------------------------------------------------------------------------------

    @staticmethod
    def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return called(call, function, args, kwargs)


def _owner(value: Any) -> Any:
    """The object that ``super()`` stands for."""
    return getattr(value, "__self__") if type(value) is super else value  # noqa: B009


def _shown_by_run(extent: Any) -> bool:
    """Does an extent depend on data? One that only an input has is known to another trace."""
    places = [symbol.definer for symbol in extent.symbols] if isinstance(extent, Dim) else []
    return any(place is not None and getattr(place[0], "op", "") != "param" for place in places)


def _rows(value: Tracer, count: int) -> list[Any]:
    """So many rows of an array whose extent only the run knows; the run looks whether it has them."""
    found = as_number(value.shape[0])
    many = ValueError(f"too many values to unpack (expected {count})")
    few = ValueError(joined(f"not enough values to unpack (expected {count}, got ", formatted(found), ")"))
    control.assert_not(Runtime.binary("gt", found, count), many)
    control.assert_not(Runtime.binary("lt", found, count), few)
    return [value[k] for k in range(count)]


def _nothing(state: Any) -> None:
    """A statement that binds no names."""


def _is_library(value: Any) -> bool:
    """Modules whose constants no program changes, and classes: they need no guard."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return isinstance(value, types.ModuleType | type) and (name or "").split(".")[0] in (
        "numpy",
        "futurex",
        "math",
        "builtins",
    )


def _on_containers(name: str, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """An operator on Python's own types."""
    if name == "mod" and type(left) is str and any_traced([right]):
        return percent(left, right)
    traced = isinstance(left, Tracer) or isinstance(right, Tracer)
    if not traced and (pair := tuples.comparable(name, left, right)) is not None:
        return tuples.compared(Runtime.binary, name, *pair)
    if not traced and any_traced([left, right]) and (name not in ("add", "mul") or isinstance(left, str)):
        raise Escape("comparing or formatting containers that hold arrays", "plain Python needs the values here")
    if name not in ("add", "mul"):
        refuse_special(left, right)
    if name not in ("eq", "ne") and (left is None or right is None):
        refused(function, left, right)
    result = function(left, right)
    return current().remember(result) if isinstance(result, list | dict | set) else result


def _dunder(method: Any, *args: Any) -> Any:
    """An operator of a user's class: staged like any other function."""
    if type(method) is not types.FunctionType:
        raise Escape(f"an operator of a {type(args[0]).__qualname__}", "what it does is not known to the tracer")
    meet_object()
    return call(method, args, {})


def _on_objects(name: str, left: Any, right: Any) -> Any:
    """A binary operator where an operand is an object of a user's class."""
    forward = f"__{name.rstrip('_')}__"
    backward = f"__{_ANSWERS[name]}__" if name in _COMPARISONS else f"__r{name.rstrip('_')}__"
    first, second = (left, forward, right), (right, backward, left)
    if type(right) is not type(left) and isinstance(right, type(left)):
        first, second = second, first
    check_deferring(left, right)
    for value, method_name, other in (first, second):
        method = of_class(type(value), method_name)
        inverted = name == "ne" and method is object.__ne__  # which asks the class's own __eq__
        if inverted:
            method = of_class(type(value), "__eq__")
        is_own = method not in (None, getattr(object, method_name, None), object.__eq__)
        if isinstance(value, (*_NUMBERS, *_CONTAINERS)) or not is_own:
            continue
        result = _dunder(method, value, other)
        if result is not NotImplemented:
            return control.not_(result) if inverted else result
    if name in ("eq", "ne"):
        return (left is right) == (name == "eq")
    raise TypeError(f"unsupported operand types for {name}: {type(left).__name__!r} and {type(right).__name__!r}")
