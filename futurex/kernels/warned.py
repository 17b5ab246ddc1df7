"""What NumPy warns of names the line of the program: Python shows a warning once for each line, and one of futurex's
would be the same for all programs."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from futurex.tree.source import Source


def at_line(call: Callable[..., Any], source: Source | None) -> Callable[..., Any]:
    """A function of one line that reads no global names, as if it stood at a line of the program: NumPy asks the frame
    that calls it."""
    if source is None or type(call) is not types.FunctionType:
        return call
    code = call.__code__.replace(co_filename=source.file, co_firstlineno=source.line, co_name=source.function)
    return types.FunctionType(code, _names_of(source.file), call.__name__, call.__defaults__, call.__closure__)


@functools.lru_cache(maxsize=256)
def _names_of(file: str) -> dict[str, Any]:
    """The names of the module in this file, among which Python keeps what it has warned of; of none, as in a notebook,
    some of its own."""
    modules = (each for each in list(sys.modules.values()) if isinstance(each, types.ModuleType))
    found = next((vars(each) for each in modules if vars(each).get("__file__") == file), None)
    return {"__name__": "__main__"} if found is None else found
