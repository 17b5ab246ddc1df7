"""Where in the user's program a node was born."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import TypeVar

import numpy as np

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = tuple(
    os.sep + os.path.join(*name.split("/"))
    for name in ("concurrent/futures/_base.py", "contextlib.py", "functools.py", "threading.py")
)
_NUMPY = os.path.join(os.path.dirname(np.__file__), "")
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
MODELS = os.path.join(PACKAGE, "models", "")  # plain functions, such as a user writes


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the user's program."""

    file: str
    line: int
    function: str
    columns: tuple[int, int] | None = None  # where the expression begins and ends, if it is on one line
    caller: Source | None = None  # the call that the line was reached by, inside the traced program
    cell: str | None = field(default=None, compare=False)  # of a notebook elsewhere: what it calls the file

    def __str__(self) -> str:
        return self._in_cell() or f"{os.path.basename(self.file)}:{self.line}"

    def place(self) -> str:
        """File and line, or cell and line as a notebook names them."""
        return self._in_cell() or f"{self.file}:{self.line}"

    def _in_cell(self) -> str | None:
        cell = self.cell or _cell_of(self.file)
        return f"{cell}, line {self.line}" if cell else None

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Whoever gets it has another notebook, or none."""
        cell = self.cell or _cell_of(self.file)
        return Source, (self.file, self.line, self.function, self.columns, self.caller, cell)

    def text(self) -> str:
        """The line itself, stripped; empty where the source cannot be read."""
        import linecache

        return linecache.getline(self.file, self.line).strip()

    def shown(self) -> str:
        """The place, and the line where its source can be read: a worker has no cells of a notebook."""
        text = self.text()
        return f"{self.place()}: {text}" if text else self.place()


def _cell_of(filename: str) -> str | None:
    """What IPython calls a cell; None for what is a file, and outside of IPython."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(filename)
    return " ".join(name) if name is not None else None


class _Override(threading.local):
    source: Source | None = None
    active: bool = False
    caller: Source | None = None


_override = _Override()


@functools.lru_cache(maxsize=4096)
def is_internal(filename: str) -> bool:
    """True for frames that are not the user's: futurex itself but for its models, and modules without a file."""
    return filename.startswith((PACKAGE, "<frozen", "<string>")) and not filename.startswith(MODELS)


_IMPORTS = ("importlib._bootstrap", "importlib._bootstrap_external", "importlib.util", "importlib.machinery")
_KNOWN = (*_IMPORTS, "abc", "stat")
"""Python's own modules without a file whose functions compute, or import. Others call methods of a user's class
(``Mapping.get``), read what may change (``environ``, whether there is a file), write or run programs."""
_OF_PATHS = ("<frozen genericpath>", "<frozen ntpath>", "<frozen posixpath>")
_ONLY_TEXTS = (
    "basename", "commonpath", "commonprefix", "dirname", "isabs", "join", "normcase", "normpath", "split", "splitdrive",
    "splitext", "splitroot",
)  # fmt: skip
"""Functions of paths that look at the texts alone."""


def is_known(function: FunctionType) -> bool:
    """Is it futurex's own code, Python's, or a method that the standard library has written for a dataclass or a named
    tuple? Whatever else has no file may be a user's."""
    code = function.__code__
    if code.co_filename in _OF_PATHS:
        return code.co_name in _ONLY_TEXTS
    if code.co_filename.startswith("<frozen"):
        return code.co_filename[len("<frozen ") : -1] in _KNOWN
    if code.co_filename != "<string>":
        return is_internal(code.co_filename)
    module = str(function.__globals__.get("__name__"))
    return code.co_qualname.startswith("__create_fn__.") or module.startswith("namedtuple_")


@functools.lru_cache(maxsize=4096)
def is_machinery(filename: str) -> bool:
    """True for frames that a traceback need not show: futurex itself, and what the standard library does for it."""
    return is_internal(filename) or filename.endswith(_MACHINERY)


def here() -> Source | None:
    """The innermost line outside futurex on the current stack, or the line set by :func:`at`."""
    if _override.active:
        return _override.source
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_machinery(code.co_filename):
            return source_at(code, frame.f_lineno, frame.f_lasti)
        frame = frame.f_back
    return None


def reached_from(source: Source | None) -> Source | None:
    """The innermost line on the current stack outside of installed libraries; None where ``source`` is such a line."""
    if source is None or not is_installed(source.file):
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_machinery(name) and not is_installed(name):
            return source_at(frame.f_code, frame.f_lineno, frame.f_lasti)
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=4096)
def is_installed(filename: str) -> bool:
    """Is it a file of Python's own or of an installed package, not one that a user works on?"""
    return filename.startswith(_INSTALLED)


def source_at(code: CodeType, line: int, last: int) -> Source:
    """The line, and the columns of the instruction that runs: mostly those of the last one that it made."""
    key, caller = (id(code), last), _override.caller
    whose, found = _places.get(key, (None, None))
    if found is None or whose is not code:
        found = Source(code.co_filename, line, code.co_name, _columns_of(code, line, last), caller)
    elif found.caller is not caller:
        found = Source(code.co_filename, line, code.co_name, found.columns, caller)
    else:
        return found
    if len(_places) >= _PLACES:
        _places.clear()  # many are of functions that are gone
    _places[key] = code, found
    return found


Columns = tuple[int, int]
E = TypeVar("E", bound=BaseException)
_PLACES = 1 << 14
_places: dict[tuple[int, int], tuple[CodeType, Source]] = {}


def _columns_of(code: CodeType, line: int, last: int) -> Columns | None:
    nowhere = (None, None, None, None)
    first, end, start, stop = next(itertools.islice(code.co_positions(), last // 2, None), nowhere)
    if first != line or end != line or start is None or stop is None or start == stop:
        return None
    return start, stop


def raised_at(error: BaseException) -> Source | None:
    """The innermost line of the user's program that an exception went through, and those that called it."""
    found: Source | None = None
    for entry in visible(error.__traceback__):
        place = source_at(entry.tb_frame.f_code, entry.tb_lineno, entry.tb_lasti)
        found = place if found is None else replace(place, caller=found)
    return found


def visible(traceback: TracebackType | None) -> list[TracebackType]:
    """The entries of a traceback that are of the user's program: not those of futurex, nor of NumPy that it called."""
    found, inside = [], False
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        inside = is_machinery(name) or (inside and name.startswith(_NUMPY))
        if not inside:
            found.append(traceback)
        traceback = traceback.tb_next
    return found


def without_frames(error: E) -> E:
    """An exception to keep: where it came through is forgotten, and so is what callers hold in their variables."""
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is not None and each.__traceback__ is not None:
            each.__traceback__ = None
            chain += [each.__cause__, each.__context__]
    return error


@contextmanager
def called_from(source: Source | None) -> Iterator[None]:
    """Lines inside the block were reached by a call at ``source``."""
    before, _override.caller = _override.caller, source
    try:
        yield
    finally:
        _override.caller = before


@contextmanager
def at(source: Source | None) -> Iterator[None]:
    """Give the nodes built inside the block the line of ``source``: derived nodes belong to the line they derive
    from."""
    before = _override.source, _override.active
    _override.source, _override.active = source, True
    try:
        yield
    finally:
        _override.source, _override.active = before
