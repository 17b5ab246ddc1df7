"""``futurize``: the decorator, and what it takes."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from futurex.frontend.staging import Futurized, is_futurized
from futurex.runtime.placement import DEVICES, ask_for
from futurex.runtime.units import size_of

P = ParamSpec("P")
R = TypeVar("R")
ESCAPES = ("fragment", "eager", "error")
OPTIONS = ("device", "donate", "escape", "memory_limit")
_GIVE_LATER = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_library: dict[Any, Futurized[Any, Any]] = {}


def futurized(function: Any) -> Futurized[Any, Any]:
    """The futurized form of a library function (one per function object)."""
    if function not in _library:
        _library[function] = Futurized(function, library=True)
    return _library[function]


@overload
def futurize(function: Callable[P, R], /, **options: Any) -> Futurized[P, R]: ...
@overload
def futurize(function: None = None, /, **options: Any) -> Callable[[Callable[P, R]], Futurized[P, R]]: ...
def futurize(function: Any = None, /, **options: Any) -> Any:
    """Turn a plain NumPy function into one that runs as a tree of futures.

    Calls return at once; results are :class:`fx.Array` (futures that are arrays). The function means what it means in
    NumPy: values, dtypes, views, writes into arguments, exceptions.

    escape: what to do where the function cannot be staged. ``"fragment"`` (default) keeps a call that cannot be staged
    as a fragment: the run makes it on concrete values, what stands around it is staged. What such a call returns is
    seen in the first call, which runs as plain NumPy; where a fragment is not possible every call does. ``"eager"``
    runs such calls as plain NumPy, ``"error"`` raises :class:`StagingError` at the user's line. ``f.explain()`` tells.

    donate: names of parameters whose arrays are given away, as parameters and optimizer state are in a loop of training
    steps. Results of the same shape and dtype are written into their memory, so that a step neither copies nor
    allocates. A future given away is gone: reading it raises :class:`fx.Donated`. NumPy arrays are copied once, and
    stay what they are; so do futures whose elements somebody else can still see, as ``np.asarray`` of them in a
    variable. Where a call runs as plain NumPy, or waits for its effects, nothing is given away.

    device: ``"cpu"`` (default) or ``"gpu"``. On a GPU the values are NumPy's to rounding, results stay there until
    somebody looks at them, and what is passed on to another such function is not copied. Operations that the GPU has no
    kernel for run on the host; ``f.profile()`` shows them. A futurized function given ``device=`` is another one of the
    same meaning. Raises :class:`futurex.errors.MissingExtra` where CuPy or a GPU is missing.

    memory_limit: bytes that a run may take, as a number or a text such as ``"512 MB"`` or ``"1.5 GiB"``; what
    ``f.memory(*args).peak`` predicts, arguments not counted. Where more would be needed, values that the backward pass
    reads late are computed again instead of being kept, and loops keep every k-th state instead of every round; results
    are the same, bit for bit. Raises MemoryError at the first call, which says how few bytes would do, where that is
    not enough. On a cluster (``f.on(cluster)``) it holds on every locality.

    >>> import numpy as np, futurex as fx
    >>> @fx.futurize
    ... def norm(x):
    ...     return np.sqrt((x * x).sum())
    >>> float(norm(np.array([3.0, 4.0])))
    5.0
    >>> step = fx.futurize(lambda w, x: w - 0.5 * x, donate="w")
    >>> w = np.zeros(3)
    >>> for _ in range(3):
    ...     w = step(w, np.ones(3))
    >>> w.tolist()
    [-1.5, -1.5, -1.5]
    >>> def deep(weights, x):
    ...     for w in weights:
    ...         x = np.tanh(x @ w)
    ...     return (x * x).sum()
    >>> slope = fx.futurize(fx.grad(deep), memory_limit="4 MB")
    >>> weights, x = [np.eye(100)] * 16, np.ones((400, 100))
    >>> slope.memory(weights, x).peak <= 4_000_000 < fx.grad(deep).memory(weights, x).peak
    True
    >>> all((a == b).all() for a, b in zip(slope(weights, x), fx.grad(deep)(weights, x)))
    True
    """
    unknown = set(options) - set(OPTIONS)
    if unknown:
        name = sorted(unknown)[0]
        close = difflib.get_close_matches(name, OPTIONS, 1)
        raise TypeError(
            f"futurize has no option {name!r}; "
            + (f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(OPTIONS)}")
        )
    escape = options.get("escape", "fragment")
    if escape not in ESCAPES:
        raise ValueError(f"escape={escape!r} is not one of {', '.join(map(repr, ESCAPES))}")
    device = options.get("device", "cpu")
    if device not in DEVICES:
        raise ValueError(f"device={device!r} is not one of {', '.join(map(repr, DEVICES))}")
    ask_for(device)
    limit = size_of(options["memory_limit"]) if options.get("memory_limit") is not None else None
    if limit is not None and device != "cpu":
        raise ValueError(f"memory_limit={options['memory_limit']!r} is for device='cpu', not {device!r}")
    if function is None:
        return lambda f: futurize(f, **options)
    if issubclass(type(function), staticmethod | classmethod):  # the order of the two decorators does not matter
        return type(function)(futurize(function.__func__, **options))
    if is_futurized(function):
        function = function.moved(device) if "device" in options else function
        return function if limit is None else function.limited(limit)
    if not callable(function) or isinstance(function, type):  # what is made of a class would be none any more
        shown = f"the class {function.__qualname__}: its methods" if callable(function) else type(function).__name__
        raise TypeError(f"futurize takes a function, not {shown}")
    if any(is_one(function) for is_one in _GIVE_LATER):
        raise TypeError(f"{function.__qualname__} is a generator or coroutine; futurize takes plain functions")
    return cast(Any, Futurized(function, escape, options.get("donate", ()), device=device, limit=limit))
