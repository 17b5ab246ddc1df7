"""Which handler stands for which NumPy function or array method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape, mark
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer
from futurex.tree.pytree import flatten

Handler = Callable[..., Any]
HANDLERS: dict[Any, Handler] = {}
METHODS: dict[str, Handler] = {}
ATTRIBUTES: dict[str, Handler] = {}
SETTERS: dict[str, Handler] = {}
NO_VALUE = np._NoValue


def named(names: str) -> frozenset[Any]:
    """The functions of NumPy with these names, but for those that the installed version lacks."""
    return frozenset(getattr(np, name) for name in names.split() if hasattr(np, name))


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
    if kwargs.get("device") in (None, "cpu") and kwargs.get("like") is None:
        kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "like")}
    check_type(kwargs.get("dtype"))
    if function in _TAKE_NUMBERS:
        refuse_loose(f"numpy.{function.__name__}", (args, kwargs))
    try:
        return handler(*args, **kwargs)
    except TypeError as error:
        if "unexpected keyword" in str(error) or "positional argument" in str(error):
            why = str(error).replace(f"{handler.__qualname__}()", f"{function.__name__}()")
            raise Escape(f"numpy.{function.__name__} with these options", why) from None
        raise


_TAKE_NUMBERS = named(
    "choose clip histogram histogram_bin_edges histogram2d histogramdd nanpercentile nanquantile percentile quantile "
    "result_type select"
)
"""Functions in which a Python number leaves the type of the result to arrays. So it does in ufuncs, which see to
numbers that are Python's in some branch themselves."""


def refuse_loose(name: str, arguments: Any) -> None:
    """Raise Escape for a number that is Python's in some branch and NumPy's in another, and with one of them gives the
    arrays beside it another type."""
    leaves = [leaf for leaf in flatten(arguments)[0] if isinstance(leaf, Tracer | np.ndarray | np.generic)]
    loose = [leaf for leaf in leaves if isinstance(leaf, Tracer) and leaf._loose]
    kinds = {leaf.dtype for leaf in leaves if not isinstance(leaf, Tracer) or not (leaf._loose or leaf.aval.weak)}
    for each in loose:
        number = each.dtype.type(0)
        if any(_typed(kind, number.item()) != _typed(kind, number) for kind in kinds):
            current().tell()
            what = f"{name} of a value that is a Python number in some branch and a NumPy scalar in another"
            remedy = "give it one type before, as with np.float64(0)"
            raise Escape(what, "the two give results of different types", remedy, site=each._loose)


def _typed(dtype: np.dtype[Any], number: Any) -> Any:
    """The type of both; None for kinds of arrays beside which there are no numbers."""
    return np.result_type(dtype, number) if dtype.kind in "biufc" else None


def check_type(dtype: Any) -> None:
    """A traced number or array is no data type, although it has one, which :class:`numpy.dtype` would take."""
    if isinstance(dtype, Tracer):
        raise Escape("a number or array for a data type", "NumPy refuses it")


_OF_TYPES = frozenset({"astype", "view", "getfield"})
"""Methods whose first argument is a data type."""


def call_method(name: str, array: Any, *args: Any, **kwargs: Any) -> Any:
    """A method of a traced array. A wrong keyword is called wrong by the name that the user knows."""
    handler = METHODS[name]
    check_type(args[0] if name in _OF_TYPES and args else kwargs.get("dtype"))
    if array.is_scalar and kwargs.get("out") is not None:
        raise Escape(f"{name}() of a scalar with out=", "NumPy gives a scalar, too")
    try:
        return handler(array, *args, **kwargs)
    except TypeError as error:
        inner = f"{getattr(handler, '__qualname__', name)}()"
        if inner in str(error):
            raise TypeError(str(error).replace(inner, f"{name}()")) from None
        raise


def missing(array: Any, ask: Callable[[Any], Any]) -> Exception:
    """NumPy's error for an attribute that such an array does not have; the handlers of a ``try`` may catch it."""
    like = array.dtype.type(0) if array.is_scalar else np.empty(0, array.dtype)
    try:
        ask(like.item() if array.aval.weak else like)
    except AttributeError as error:
        mark(error)
        return error
    raise Escape("an attribute of an array that the tracer does not have", "it has no form in the tree")
