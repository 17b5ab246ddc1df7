"""What a futurized function is to the rest of Python: a function that is bound as a method, copied and pickled."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from futurex.frontend.carried import Texts, keep, texts_of

_OF_ARGUMENTS = frozenset({"graph", "lower", "memory", "trace"})
_OF_FUNCTIONS = ("__defaults__", "__kwdefaults__", "__globals__")
"""What others ask of a function. What has a ``__code__`` is patched by IPython's autoreload as a function in memory."""
_NAMES = frozenset({"__name__", "__qualname__", "__annotations__", *_OF_FUNCTIONS})
_BY_NAME = ".by_name"


class Method(functools.partial[Any]):
    # A futurized function that was looked up at an object: whatever takes the arguments of a call is given it first.

    __doc__ = property(lambda self: self.func.__doc__)
    __self__ = property(lambda self: self.args[0])
    __func__ = property(lambda self: self.func)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(types.MethodType(self.func, self.args[0]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _NAMES:  # protocols, and what still has the object as a parameter
            raise AttributeError(name)
        found = getattr(self.func, name)
        if name == "plain":
            return types.MethodType(found, self.args[0])
        return functools.partial(found, *self.args) if name in _OF_ARGUMENTS else found

    def on(self, cluster: Any) -> Any:
        function: Any = self.func
        return functools.partial(function.on(cluster), *self.args)

    def __get__(self, instance: Any, owner: Any = None) -> Method:
        return self

    def __eq__(self, other: object) -> bool:
        return type(other) is Method and other.func is self.func and other.args[0] is self.args[0]

    def __hash__(self) -> int:
        return hash((self.func, id(self.args[0])))

    def __repr__(self) -> str:
        return f"<method {self.func!r} of {self.args[0]!r}>"


def is_partial(function: Any) -> bool:
    """Is it a ``functools.partial`` that is called as those are? A class derived from it may call it otherwise."""
    return isinstance(function, functools.partial) and type(function).__call__ is functools.partial.__call__


METHODS = types.MethodType, Method
"""What a function that is looked up at an object is: another one at every look, with the same ``__func__``."""


def _of_plain(name: str) -> property:
    """An attribute that is the plain function's."""
    return property(lambda self: getattr(self.plain, name))


class Standing:
    """A futurized function as others see it: like a function it is copied as itself, and pickled by its name.

    ``cloudpickle``, which Dask and joblib use, pickles functions of ``__main__`` and notebooks by their code, and so
    must this. Which of the two packs is not to be known: both meet a function, :attr:`by_name`, that is found under a
    name by the one and taken apart by the other.
    """

    plain: Callable[..., Any]
    options: Callable[[], dict[str, Any]]
    """What else it was made with."""

    __defaults__, __kwdefaults__, __globals__ = map(_of_plain, _OF_FUNCTIONS)

    @functools.cached_property
    def by_name(self) -> types.FunctionType:
        """The plain function again, under the name at which it is found here."""
        plain: Any = self.plain
        twin = types.FunctionType(
            plain.__code__, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
        )
        twin.__dict__.update(plain.__dict__)
        for name in ("__module__", "__doc__", "__annotations__", "__kwdefaults__"):
            setattr(twin, name, getattr(plain, name))
        twin.__qualname__ = plain.__qualname__ + _BY_NAME
        return twin

    def __reduce__(self) -> Any:
        function: Any = self.plain
        if type(function) is types.FunctionType:
            named = _found(function, function.__qualname__)
            if isinstance(named, Standing) and named.plain is function:
                function = named.by_name
        return _made, (type(self), function, self.options(), texts_of(self.plain))

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method."""
        function: Any = self
        return function if instance is None else Method(function, instance)


def _found(function: Any, name: str) -> Any:
    """What stands at a name in the function's module; None where nothing does."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    try:
        found = operator.attrgetter(name)(module)
    except AttributeError:
        return None
    return getattr(found, "__func__", found)


def _made(kind: Any, function: Any, options: dict[str, Any], texts: Texts | None = None) -> Any:
    """A futurized function from its pickle: the one that is there, if it is the same."""
    keep(texts or {})
    name = getattr(function, "__qualname__", "")
    if name.endswith(_BY_NAME):
        name = name.removesuffix(_BY_NAME)
        named = _found(function, name)
        if isinstance(named, Standing) and named.by_name is function:
            if named.options() == options:
                return named
            function = named.plain
        else:
            function.__qualname__ = name
    return kind(function, **options)
