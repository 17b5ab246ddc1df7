"""Functions of futurex itself that user code calls beside NumPy's: part of the tree in staged code, futurized outside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from futurex.frontend.staging import Futurized
from futurex.frontend.trace import tracing

P = ParamSpec("P")
R = TypeVar("R")


def primitive(handler: Callable[P, R]) -> Callable[P, R]:
    """Make a function written on nodes callable everywhere.

    ``handler`` gets traced values (or constants) and returns traced values.
    """

    class Primitive:
        def __init__(self) -> None:
            functools.update_wrapper(self, handler, updated=())
            self._futurized = Futurized(self)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return handler(*args, **kwargs) if tracing() else self._futurized(*args, **kwargs)

        def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return handler(*args, **kwargs)

    return cast(Callable[P, R], Primitive())
