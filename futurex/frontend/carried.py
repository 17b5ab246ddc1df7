"""The text of a notebook's cells, which travels with the functions that stand in them.

Whoever unpickles such a function, Dask's workers for example, has its code and no file to read its source from: it
could be called as plain NumPy alone, and not be differentiated.
"""

from __future__ import annotations

import functools
import linecache
import os
import types
from collections.abc import Iterator
from typing import Any

_MOST = 500
"""Functions that are looked at for others that they call."""
Texts = dict[str, list[str]]


def texts_of(function: Any) -> Texts:
    """The lines of the cells that a function, and what it calls, stand in, by what they are called as files."""
    found: Texts = {}
    seen: set[int] = set()
    todo = [function]
    while todo and len(seen) < _MOST:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if type(each) is not types.FunctionType:
            todo += _inside(each)
            continue
        name = each.__code__.co_filename
        if name not in found and _is_cell(each, name):
            found[name] = list(linecache.getlines(name))
        if name in found:  # what is in files calls what is in files
            todo += _called(each)
    return found


def keep(texts: Texts) -> None:
    """Have the lines here, where whoever looks for the source of a function looks for them."""
    for name, lines in texts.items():
        if not os.path.exists(name):
            linecache.cache[name] = sum(map(len, lines)), None, lines, name


def _is_cell(function: types.FunctionType, name: str) -> bool:
    """Is it one that somebody has typed, of which there is a text here and no file?"""
    cached = linecache.cache.get(name)
    typed = function.__module__ == "__main__" and cached is not None and len(cached) == 4 and cached[1] is None
    return typed and not os.path.exists(name)


def _called(function: types.FunctionType) -> Iterator[Any]:
    """What a function may call: what stands at the names that it reads, in its module and around it, and methods of its
    class."""
    codes = [function.__code__]
    owner, _, rest = function.__qualname__.partition(".")
    if rest and owner in function.__globals__:
        yield function.__globals__[owner]
    while codes:
        code = codes.pop()
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        yield from (function.__globals__[name] for name in code.co_names if name in function.__globals__)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing yet
            continue
    yield from function.__defaults__ or ()


def _inside(value: Any) -> Iterator[Any]:
    """The functions in what is no plain one: futurized, made by a transform, bound, or a class that was typed."""
    if isinstance(value, type):
        if value.__module__ == "__main__":
            yield from vars(value).values()
            yield from value.__bases__
    elif isinstance(value, types.MethodType | staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, functools.partial):
        yield value.func
        yield from value.args
    elif isinstance(value, property):
        yield value.fget
    elif type(value).__module__.startswith(__name__.partition(".")[0] + "."):
        for name in ("plain", "function"):
            if hasattr(type(value), "__fx_stage__") and (inner := getattr(value, name, None)) is not None:
                yield inner
    elif type(value).__module__ == "__main__":
        yield type(value)
