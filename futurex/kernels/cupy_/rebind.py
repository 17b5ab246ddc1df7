"""A reference kernel with another array module in NumPy's place.

Kernels are plain functions that name ``np``. The same code with CuPy under that name is the kernel for a GPU, so an op
is still defined once. Functions, tables and records that a kernel refers to are followed.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from futurex.tree.record import Op

_PACKAGE = "futurex.ops"


@functools.cache
def _names() -> dict[int, str]:
    """The public name of each of NumPy's functions, by identity; sub-modules are dotted."""
    found: dict[int, str] = {}
    for prefix, module in (("fft.", np.fft), ("linalg.", np.linalg), ("", np)):
        for name in dir(module):
            value = getattr(module, name)
            if not name.startswith("_") and callable(value) and not isinstance(value, type):
                found[id(value)] = prefix + name
    return found


class _Functions:
    """The module, with what has no meaning on a device made to do nothing."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    @staticmethod
    def errstate(**_: Any) -> Any:
        """A device reports no floating-point errors."""
        return contextlib.nullcontext()


class Rebinder:
    """Gives functions of :mod:`futurex.ops` in which ``np`` is another module.

    ``names``: values to use for module-level names of theirs.

    >>> from types import SimpleNamespace
    >>> from futurex.ops.shape import _full
    >>> other = SimpleNamespace(full=lambda shape, value, dtype: ("another", shape))
    >>> Rebinder(other, {}).function(_full)(1, (2,), None)
    ('another', (2,))
    """

    def __init__(self, module: Any, names: Mapping[str, Any]) -> None:
        self.module = _Functions(module)
        self.names = dict(names)
        self._done: dict[int, tuple[Any, Any]] = {}

    def function(self, value: Callable[..., Any]) -> Callable[..., Any]:
        """``value`` with the other module. Raises AttributeError if that lacks one of NumPy's functions it holds."""
        return self._value(value)

    def _value(self, value: Any) -> Any:
        if value is np:
            return self.module
        if isinstance(value, type) or value is None or isinstance(value, str | int | float | np.generic):
            return value
        known = self._done.get(id(value))
        if known is None:
            known = self._done[id(value)] = self._followed(value), value  # the key lives as long as its value
        return known[0]

    def _followed(self, value: Any) -> Any:
        name = _names().get(id(value))
        if name is not None:
            return functools.reduce(getattr, name.split("."), self.module)
        if isinstance(value, types.FunctionType) and value.__module__.startswith(_PACKAGE):
            return self._rebuilt(value)
        if isinstance(value, functools.partial):
            parts = (self._value(part) for part in value.args)
            return functools.partial(self._value(value.func), *parts, **value.keywords)
        if isinstance(value, Op):
            return types.SimpleNamespace(name=value.name, kernel=self._value(value.kernel))
        if type(value) is dict:
            return {key: self._value(entry) for key, entry in value.items()}
        if type(value) in (tuple, list):
            return type(value)(map(self._value, value))
        return value

    def _rebuilt(self, function: types.FunctionType) -> Any:
        scope: dict[str, Any] = {"__builtins__": builtins, "__name__": function.__module__}
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        made = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells)
        made.__kwdefaults__ = function.__kwdefaults__
        self._done[id(function)] = made, function  # before what it refers to: functions may be recursive
        for name in _globals_of(function.__code__):
            if name in self.names:
                scope[name] = self.names[name]
            elif name in function.__globals__:
                scope[name] = self._value(function.__globals__[name])
        for mine, theirs in zip(cells, function.__closure__ or (), strict=True):
            mine.cell_contents = self._value(theirs.cell_contents)
        return made


def _globals_of(code: types.CodeType) -> set[str]:
    inner = (_globals_of(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*inner)
