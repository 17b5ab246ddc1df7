"""What a trace takes from outside the function: guarded values, captured arrays, containers it may not change."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np

from futurex.frontend.errors import Escape, python
from futurex.frontend.held import Guard, Held, Row, The, can_be_input, entries, is_array, is_nest, rows_of
from futurex.frontend.objects import describe, entries_of, has_attributes, is_state
from futurex.frontend.placeholders import Either, Placeholder
from futurex.frontend.reads import EntryOf, GlobalName, attribute
from futurex.frontend.standing import METHODS, Method, Standing
from futurex.frontend.trace import current, set_aside
from futurex.frontend.tracer import Tracer, entered
from futurex.ops.plainly import plainly
from futurex.ops.streams import GENERATORS
from futurex.tree.pytree import attributes, containers, opened, parts_of, unflatten

PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), slice, range)
_PLAIN_TYPES = frozenset(PLAIN)
_NESTING = 32
_TWO_NAMES = "the two are one thing, of which the trace would know twice what is in it"
_NOTHING: Mapping[int, Any] = types.MappingProxyType({})
_ITERABLES = (list, tuple, dict, set, frozenset, collections.deque, types.MappingProxyType)


def taken(value: Any) -> Any:
    """A value that is found somewhere, and not used yet: an array from outside becomes a traced one."""
    return value if type(value) is Either else entered(value)


def any_traced(values: Any) -> bool:
    """Is there an array, traced or from outside, among the values or in containers among them?"""
    return any(
        isinstance(value, Tracer | np.ndarray | Placeholder)
        or hasattr(type(value), "__fx_traced__")
        or hasattr(type(value), "__fx_future__")
        or (isinstance(value, list | tuple | set | frozenset | collections.deque) and any_traced(value))
        or (isinstance(value, dict) and any_traced(value.values()))
        for value in values
    )


def captured_value(name: str, value: Any, read: Callable[[], Any], key: Any) -> Any:
    """Guard a value from outside; an array becomes an input read again at every call."""
    trace = current()
    if isinstance(value, Tracer | Either) or hasattr(type(value), "__fx_traced__"):
        return value
    if isinstance(value, np.ndarray) or type(value) in GENERATORS or hasattr(type(value), "__fx_future__"):
        return trace.captured(value, read, key, guard_of(name, read, value))
    if key in trace.numbers and can_be_input(value):
        if key not in trace.captures:
            trace.captures[key] = trace._capture(value, read, key, None)
        return trace.captures[key].tracer
    if key not in trace.guards and not trace.is_own(value):
        if isinstance(key, tuple) and key[-1] == "__dict__" and key[0] in trace.outside:
            raise Escape(f"reading {name} of an object that is changed", _TWO_NAMES)
        check_state(value, name)
        _guard(name, read, value, key)
    return trace.held.entered(value)


def _guard(name: str, read: Callable[[], Any], value: Any, key: Any) -> None:
    """Make a guard of a value from outside, and note what it holds: of two names for one thing that they are."""
    trace = current()
    known = trace.held.nests.get(id(value))
    trace.guards[key] = known.same(name, read) if known is not None else guard_of(name, read, value, key)
    trace.held.note(value, name, read, key, trace.guards)
    if trace.numbers:
        _entered_nest(value)


def _entered_nest(value: Any) -> Any:
    """Let inputs stand in a list or dict from outside for the numbers that are such, until the trace ends, so that
    whatever reads it finds them; what stands for a tuple is another one."""
    return current().held.enter(value, _with_inputs) if is_nest(type(value)) else value


def _with_inputs(held: Held) -> Any:
    nest = held.value
    before = dict(entries(nest))
    now = {k: _input(entry, (held.key, k), EntryOf(held.read, k)) for k, entry in before.items()}
    if all(now[k] is entry for k, entry in before.items()):
        return nest
    if isinstance(nest, tuple):
        return type(nest)(*now.values()) if hasattr(nest, "_fields") else tuple(now.values())
    _note_outside(nest, before)
    for k, entry in now.items():
        if entry is not before[k]:
            nest[k] = entry
    return nest


def _input(entry: Any, place: Any, read: Callable[[], Any]) -> Any:
    """An entry of a nest from outside, or what stands for it in the trace."""
    trace = current()
    if place in trace.numbers and can_be_input(entry):
        trace.captures[place] = trace._capture(entry, read, place, None)
        return trace.captures[place].tracer
    return _entered_nest(entry)


def _inputs_in(value: Any, key: Any) -> dict[Any, Any]:
    """Which numbers in a nest are inputs: True for each of them, and the same of the nests in it, by their keys."""
    trace, found = current(), dict[Any, Any]()
    if not (trace.numbers and is_nest(type(value))):
        return found
    known = trace.held.nests.get(id(value))
    key = key if known is None else known.key
    held = trace.outside[id(value)][1] if id(value) in trace.outside else dict(entries(value))
    for k, entry in held.items():
        inside = ((key, k) in trace.numbers and can_be_input(entry)) or _inputs_in(entry, (key, k))
        if inside:
            found[k] = inside
    return found


def guard_of(name: str, read: Callable[[], Any], value: Any, key: Any = None) -> Guard:
    """The guard of a value from outside that is found at the place with this key."""
    inputs = _inputs_in(value, key)
    expected = fingerprint(value, before=current().outside, inputs=inputs)
    return Guard(name, read, value, expected, _is_fixed(value) and not inputs, _rows(value), inputs)


def _rows(value: Any) -> tuple[Row, ...] | None:
    """What the lists and dicts in a nest hold, where all of it stays the same as long as each of them holds the same
    objects."""
    rows = tuple(rows_of(value))
    known = {id(nest) for nest, _ in rows}
    held = (each for nest, _ in rows for pair in entries(nest) for each in pair)
    if not rows or known & current().outside.keys() or not all(_is_fixed(each, known) for each in held):
        return None
    return rows


def _is_fixed(value: Any, known: Collection[int] = ()) -> bool:
    """Is the same object surely the same to a trace? Objects are: what is read of them has guards of its own. So are
    the lists and dicts that are ``known``."""
    if type(value) is tuple:
        return all(_is_fixed(each, known) for each in value)
    return id(value) in known or not isinstance(value, list | dict | set | frozenset | tuple | types.MappingProxyType)


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that was made by a program, and that a program can change
_LIBRARIES = frozenset({"numpy", "futurex", "builtins"})


def of_class(kind: type, name: str) -> Any:
    """What a class has under a name, guarded; None if it has nothing."""
    found = getattr(kind, name, None)
    if kind.__flags__ & _HEAP_TYPE and kind.__module__.partition(".")[0] not in _LIBRARIES and not current().walking:
        key = id(kind), "class", name
        if key not in current().guards:
            read = attribute(kind, name) if found is not None else lambda: getattr(kind, name, None)
            _guard(f"{kind.__qualname__}.{name}", read, found, key)
    return found


_OPEN = frozenset(
    f"__{name}__"
    for name in (
        "new", "init", "post_init", "init_subclass", "class_getitem", "call", "enter", "exit", "del", "get", "set",
        "set_name", "getattr", "getattribute", "setattr", "delattr", "getstate", "setstate", "reduce", "reduce_ex",
        "copy", "deepcopy",
    )
)  # fmt: skip
"""Special methods that nothing but their own syntax calls."""
_BY_FIELDS = frozenset(f"__{name}__" for name in ("repr", "eq", "hash", "lt", "le", "gt", "ge"))


def is_users(kind: type) -> bool:
    """Is it a class of the user's, whose methods may read anything?"""
    home = kind.__module__.partition(".")[0]
    return bool(kind.__flags__ & _HEAP_TYPE) and home not in _LIBRARIES and home not in sys.stdlib_module_names


def special_method(value: Any) -> str:
    """A special method of a class of the user's among the values of a nest, as ``P.__float__``; empty if there is none.

    Python's and NumPy's own functions would call it: what it reads would be no part of the trace's guards.
    """
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return next(filter(None, map(special_method, value)), "")
    frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    for base in filter(is_users, kind.__mro__):
        for name, method in vars(base).items():
            is_special = type(method) is types.FunctionType and name.startswith("__") and name.endswith("__")
            if is_special and name not in _OPEN and not (frozen and name in _BY_FIELDS):
                return f"{base.__qualname__}.{name}"
    return ""


def refuse_special(*values: Any) -> None:
    """Raise Escape where code that is not traced would call a special method of the user's."""
    method = special_method(list(values))
    if method:
        raise Escape(f"a call of {method} by code that is not traced", "what it reads is not known to the tracer")


def describes(stored: Any, method: str) -> bool:
    """Is what a class has under a name an object whose own class, no function's, says how that is read or set?"""
    return type(getattr(type(stored), method, None)) is types.FunctionType and not issubclass(type(stored), Standing)


def is_property(stored: Any, method: str) -> TypeGuard[property]:
    """Is it a property that is read (set) as properties are? A class of the user's derived from it may say otherwise:
    it keeps what was computed, scales it, or asks the class."""
    return isinstance(stored, property) and getattr(type(stored), method) is getattr(property, method)


def unseen(read: Callable[[Any, str], Any], value: Any, name: str) -> Any:
    """What the class of an object from outside computes by itself. It may keep that in the object, where nothing traced
    must stay: functions that are futurized are plain meanwhile."""
    with set_aside():
        return plainly(read, throughout=True)(value, name)


def refuse_unseen_attribute(value: Any, name: str, stored: Any) -> bool:
    """How an attribute is found must be plain Python, of an object that the function made itself, of which nothing is
    read again, and of others once the trace has changed something that their classes may read. Is it computed?"""
    if type(value) is super or not is_users(type(value)):
        return False
    kept = name in getattr(value, "__dict__", ())
    dynamic = stored is None and not kept and hasattr(type(value), "__getattr__")
    if not (dynamic or describes(stored, "__get__")):
        return False
    if not current().is_own(value):
        once = isinstance(stored, functools.cached_property)
        if (kept and once) or not (once or dynamic or is_users(type(stored))):
            return False
        if _computed(value, name, once):
            return True
        what = f"whether a {type(value).__qualname__} has kept {name!r}"
        guard = guard_of(what, lambda: name in getattr(value, "__dict__", ()), False)
        current().guards.setdefault((id(value), "kept", name), guard)  # as it has once it was computed
    raise Escape(f"the attribute {name!r} of a {type(value).__qualname__}", "its class computes it")


def _computed(value: Any, name: str, once: bool) -> bool:
    """Can what the class of an object from outside computes be computed now? It would keep what is traced; where the
    trace has changed something, it must be no more than found somewhere."""
    changed, kept = current().has_changed(), name in getattr(value, "__dict__", ())
    if changed and once:
        return False
    try:
        found = unseen(getattr, value, name) if changed or once else None
    except Exception:
        if not changed:
            raise
        return False  # it reads what the trace has put there
    if not kept and name in getattr(value, "__dict__", ()) and (changed or any_traced([found])):
        del vars(value)[name]
        return False
    return not changed or (found is unseen(getattr, value, name) and not isinstance(found, (*PLAIN, np.generic)))


def asked_for(value: Any, name: str) -> bool:
    """``hasattr(value, name)``, for which Python computes the attribute."""
    if not current().is_own(value):
        stored = stored_under(value, name)
        if isinstance(stored, property) and is_users(type(value)) and current().has_changed():
            raise Escape(f"whether a {type(value).__qualname__} has {name!r}", "its class computes it")
        if stored is not None:
            with contextlib.suppress(AttributeError):
                refuse_unseen_attribute(value, name, stored)
    own = current().is_own(value)
    return current().asked(value, name, hasattr(value, name) if own else unseen(hasattr, value, name))


def stored_under(value: Any, name: str) -> Any:
    """What the class of an object has under a name; for ``super()`` the classes that follow."""
    order = type(value).__mro__ if not isinstance(value, type) else ()
    if type(value) is super:
        parent: Any = value
        own = parent.__self_class__.__mro__
        order = own[own.index(parent.__thisclass__) + 1 :]
    return next((vars(base)[name] for base in order if name in vars(base)), None)


def guard_method(value: Any, method: types.MethodType | Method, name: str) -> None:
    """Which function a bound method is may change, with the object or with its class."""
    if current().is_own(value):
        of_class(type(value), name)
    elif not current().walking:
        key = id(value), "method", name
        what = f"{type(value).__qualname__}.{name}"
        current().guards.setdefault(key, guard_of(what, attribute(value, name), method))


def guard_library(module: types.ModuleType, name: str, function: Any) -> None:
    """A function of NumPy's may be replaced, as tests do (``mock.patch("numpy.mean")``)."""
    trace, key = current(), (id(module), name)
    if key not in trace.guards and not trace.walking and not module.__name__.startswith("futurex"):
        there = name in vars(module)  # a module's dict is asked in half the time that the module takes
        read = GlobalName(vars(module), name) if there else attribute(module, name)
        trace.guards[key] = guard_of(f"{module.__name__}.{name}", read, function)


def guard_function(function: types.FunctionType) -> None:
    """Code and default values may be replaced in place, as IPython's autoreload does."""
    name, parts = function.__qualname__, ("__code__", "__defaults__", "__kwdefaults__")
    for part in parts:
        value = getattr(function, part)
        if value is not None:
            captured_value(f"{name}.{part}", value, attribute(function, part), (id(function), part))


def check_state(value: Any, name: str = "a value") -> None:
    """Refuse objects from outside whose state a guard cannot see."""
    kind = type(value)
    if value is os.environ or value is os.getenv:
        raise Escape("the environment", "it may change from call to call", "pass the value as an argument")
    if kind in _PLAIN_TYPES or isinstance(value, type | types.ModuleType | types.FunctionType):
        return
    containers = (list, dict, set, frozenset, bytearray, memoryview, collections.deque)
    known = kind in (list, dict, set, frozenset, tuple, collections.OrderedDict)
    if hasattr(kind, "__next__") or (isinstance(value, containers) and not known):
        raise Escape(f"{name}, a {kind.__qualname__} from outside the function", "its state may change between calls")
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        if type(entry) not in _PLAIN_TYPES:
            check_state(entry, f"an entry of {name}")


def fingerprint(
    value: Any, depth: int = 0, strict: bool = False, before: Mapping[int, Any] = _NOTHING,
    inputs: Mapping[Any, Any] = _NOTHING,
) -> Any:  # fmt: skip
    """What must stay the same for a trace to stay valid: the value of plain data, the contents of containers, else
    identity.

    Lists, dicts and tuples are found again, with the arrays that are in them: of these it says only that they are
    there, and of numbers that are ``inputs`` (:func:`_inputs_in`) of which type. Not if ``strict``. ``before``: what
    the trace has changed of them, and what these held.
    """
    kind = type(value)
    if kind in _PLAIN_TYPES or isinstance(value, np.generic):
        return (kind, repr(value))
    if depth > _NESTING:
        raise Escape(
            "a value from outside the function that nests deeper than guards look", "a change would not be seen"
        )
    if isinstance(value, np.ndarray):
        return ("array", The(value))
    if kind in METHODS:
        return ("method", The(value.__self__), The(value.__func__))
    if not strict and is_nest(kind):
        held = before[id(value)][1] if id(value) in before else dict(entries(value))
        keys: Any = len(held)
        if isinstance(value, dict):  # asked at every call: most keys are texts
            texts = all(type(k) is str for k in held)
            keys = tuple(held) if texts else tuple(fingerprint(k, depth + 1, True) for k in held)
        inside = [
            ("array",) if is_array(each)
            else ("input", type(each)) if (inner := inputs.get(k, _NOTHING)) is True
            else fingerprint(each, depth + 1, before=before, inputs=inner)
            for k, each in held.items()
        ]  # fmt: skip
        return (kind, keys, tuple(inside))
    if isinstance(value, tuple):
        own = 0 if kind is tuple else The(value)  # a tuple of a class of its own may have attributes
        return (kind, own, tuple(fingerprint(entry, depth + 1, True) for entry in value))
    if isinstance(value, list):
        return (kind, The(value), tuple(fingerprint(entry, depth + 1, True) for entry in value))
    if isinstance(value, set | frozenset):
        return (kind, frozenset(fingerprint(entry, depth + 1, True) for entry in value))
    if isinstance(value, dict | types.MappingProxyType):
        held = ((fingerprint(k, depth + 1, True), fingerprint(entry, depth + 1, True)) for k, entry in value.items())
        return (kind, The(value), tuple(held))
    return ("object", The(value))


def own_container(container: Any, what: str, unchanged: Callable[[], bool] | None = None) -> bool:
    """Prepare to change a Python object; refuse if code outside the trace can see it. False if nothing would change."""
    trace = current()
    if id(container) in trace.frozen:
        raise Escape(
            f"changing {what} that branches or rounds have merged", "whether another name sees it depends on data",
            site=trace.frozen[id(container)][1],
        )  # fmt: skip
    if trace.is_newest(container):
        return True
    try:
        if unchanged is not None and unchanged():
            return False
    except (LookupError, AttributeError):
        pass
    if is_state(container) and (trace.change(container) or _adopted(container)):
        if trace.scopes and id(container) in trace.outside and has_attributes(container):
            _note_attributes(container)
        return True
    where = "inside a staged branch or loop" if trace.is_own(container) else "that was not made by the function"
    raise Escape(f"changing {what} {where}", "the change would happen once, while tracing, not at every run")


def made_of(value: Any, given: Any) -> Any:
    """What futurex's own code returned: its lists, dicts and dataclasses are new, but for those that were given."""
    known = {id(each) for each in containers(given)}
    for each in containers(value):
        if id(each) not in known:
            current().remember(each)
    return value


def entered_whole(value: Any) -> Any:
    """What futurex's own code is given: it computes with what it finds in a nest, so that traced arrays stand there.

    Of a dataclass from outside it asks no attributes that could be guarded then: they are read here.
    """
    trace = current()
    kind: Any = type(value)
    if parts_of(kind) is None:
        return entered(value)
    if isinstance(value, list | dict):
        before = dict(entries(value))
        now = {k: entered_whole(entry) for k, entry in before.items()}
        new = {k: entry for k, entry in now.items() if entry is not before[k]}
        if not new:
            return value
        if not (trace.is_own(value) or id(value) in trace.arguments):
            if not trace.replays:
                return now if isinstance(value, dict) else list(now.values())
            trace.outside.setdefault(id(value), (value, before))
        if any(isinstance(before[k], Placeholder) for k in new):
            trace.change(value)  # which of several things it is holds for this branch alone
        for k, entry in new.items():
            value[k] = entry
        return value
    if not isinstance(value, tuple) and not (trace.is_own(value) or is_internal_class(value)):
        for name in attributes(value):
            what = f"{kind.__name__}.{name}"
            captured_value(what, getattr(value, name), attribute(value, name), (id(value), name))
        if not trace.change(value):
            _adopted(value)
    structure, held = opened(value) or (None, [])
    whole = list(map(entered_whole, held))
    if structure is None or all(a is b for a, b in zip(whole, held, strict=True)):
        return value
    return unflatten(structure, whole)


def _adopted(value: Any) -> bool:
    """Can the caller's object be changed at every run? Then what it holds now is what each run finds."""
    trace = current()
    entries = entries_of(value)
    if id(value) not in trace.arguments and isinstance(value, list | dict):
        if not trace.replays or not trace.held.is_found(value):
            return False
        _note_outside(value, entries)
    elif id(value) not in trace.arguments:
        plain = getattr(type(value), "__setattr__", None) is object.__setattr__ and not isinstance(value, set)
        if not plain or not has_attributes(value):
            return False
        if not trace.replays:
            return False
        if id(getattr(value, "__dict__", None)) in trace.outside:
            raise Escape(f"changing {describe(value)} whose __dict__ is read", _TWO_NAMES)
        trace.outside[id(value)] = value, entries  # put back whatever happens
        for name, entry in entries.items():
            is_number = (id(value), name) in trace.numbers
            if is_number or isinstance(entry, np.ndarray) or hasattr(type(entry), "__fx_future__"):
                what = f"{type(value).__name__}.{name}"
                try:
                    found = captured_value(what, entry, attribute(value, name), (id(value), name))
                except Escape:
                    if isinstance(entry, np.ndarray):
                        continue  # no trace takes it, but it may be left alone
                    raise
                if is_number or isinstance(entry, np.ndarray):
                    # branches and rounds merge what it holds, and look for no names
                    object.__setattr__(value, name, found)
            elif isinstance(entry, tuple) and _inputs_in(entry, (id(value), name)):
                what = f"{type(value).__name__}.{name}"
                found = captured_value(what, entry, attribute(value, name), (id(value), name))
                object.__setattr__(value, name, found)
    trace.outside.setdefault(id(value), (value, entries))
    return trace.change(value)


def _note_outside(value: list[Any] | dict[Any, Any], entries: dict[Any, Any]) -> None:
    """Put a list or dict back whatever happens; until then it holds traced arrays."""
    trace = current()
    trace.outside[id(value)] = value, entries
    for key, entry in entries.items():
        if isinstance(entry, np.ndarray):
            with contextlib.suppress(Escape):  # no trace takes it, but it may be left alone
                value[key] = trace.captured(entry)


def _note_attributes(value: Any) -> None:
    """Branches and rounds merge what the caller's object holds: where that is found each call has to know."""
    trace = current()
    for name, entry in trace.outside[id(value)][1].items():
        found_already = id(value) in trace.arguments or isinstance(entry, np.ndarray)
        if not found_already and entries_of(value).get(name) is entry:
            captured_value(f"{type(value).__name__}.{name}", entry, attribute(value, name), (id(value), name))


def items(value: Any) -> Any:
    """What iterating over a value gives in staged code: arrays in containers are traced, iterators are used up once."""
    value = entered(value)
    if hasattr(type(value), "__fx_items__"):
        return value.__fx_items__()
    if isinstance(value, Tracer | range | str | bytes):
        return value
    for name in ("__iter__", "__next__"):
        if type(getattr(type(value), name, None)) is types.FunctionType and not is_internal_class(value):
            return _user_items(value)
    if hasattr(type(value), "__next__"):
        own_container(value, f"the position of a {type(value).__name__}")
    elif not isinstance(value, _ITERABLES) and not _is_view(value):
        method = of_class(type(value), "__iter__") or of_class(type(value), "__getitem__")  # of either Python makes one
        if method is not None or is_internal_class(value):
            raise Escape(f"iterating over a {type(value).__qualname__}", "what it gives is not known to the tracer")
    with python():
        iterator = iter(value)
    return _entered_items(iterator)


def gives_items(value: Any) -> bool:
    """Does a class of the user's say what is gone over? Python's own code would run its methods, unseen."""
    names = ("__iter__", "__getitem__", "keys")
    return not is_internal_class(value) and any(
        type(getattr(type(value), name, None)) is types.FunctionType for name in names
    )


def extended(target: Any, values: Any, append: str = "append") -> Any:
    """A list or deque with what something gives at its end, or its other one: one by one, as Python adds them."""
    for value in items(values):
        getattr(target, append)(value)
    return target


def is_internal_class(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "futurex"


def _user_items(value: Any) -> Any:
    """Iteration over an object of the user's class."""
    from futurex.frontend.calls import call
    from futurex.frontend.iteration import user_rows

    rows = call(type(value).__iter__, (value,), {})
    if type(getattr(type(rows), "__next__", None)) is types.FunctionType:
        return user_rows(rows)
    return items(rows)


def _is_view(value: Any) -> bool:
    return isinstance(value, collections.abc.KeysView | collections.abc.ValuesView | collections.abc.ItemsView)


def _entered_items(iterator: Iterator[Any]) -> Iterator[Any]:
    for value in iterator:
        yield tuple(map(taken, value)) if type(value) is tuple else taken(value)
