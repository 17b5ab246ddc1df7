"""Compiled kernels on disk, shared by all processes of the user: one file a kernel, with its checksum in front.

A file is written aside and renamed, so a reader sees a whole one or none; a damaged one counts as none. Above the bound
those that were not used for longest go. A folder that cannot be written is no error: kernels are then compiled anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import llvmlite

from futurex.files import cache_folder

_DIGEST = 32
_MEGABYTES = 256
_KEEP = 0.75  # of the bound, once it was passed
_SCAN_EVERY = 64  # files written by this process: others write too
_LATELY = 600.0  # seconds for which a process that begins to write relies on the last look: 40,000 files take one
_ABANDONED = 3600.0  # seconds after which a file that nobody renamed was left by a process that died


def folder() -> Path:
    """Where they lie; the version of the compiler is part of the name."""
    return cache_folder() / "kernels" / f"llvmlite-{llvmlite.__version__}"


def bound() -> int:
    """The most bytes they may take: FUTUREX_CACHE_MB megabytes, or 256."""
    text = os.environ.get("FUTUREX_CACHE_MB") or str(_MEGABYTES)
    if not text.isdecimal():
        raise ValueError(f"FUTUREX_CACHE_MB={text!r} must be a whole number of megabytes; 0 stores nothing")
    return int(text) * 10**6


def read(key: str) -> bytes | None:
    """The stored code, or None if there is none or it is damaged."""
    path = folder() / f"{key}.o"
    try:
        content = path.read_bytes()
    except OSError:
        return None
    code = content[_DIGEST:]
    if content[:_DIGEST] != _digest(key, code):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the least recently used go first
    return code


def write(key: str, code: bytes) -> None:
    """Store code, and make room for it."""
    if not bound():
        return
    try:
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, aside = tempfile.mkstemp(dir=folder(), prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, code) + code)
            os.replace(aside, folder() / f"{key}.o")
        except OSError:
            os.unlink(aside)  # half a file on a full disk
            raise
    except OSError:
        return
    _written(folder()).note(_DIGEST + len(code))


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


@dataclass
class Usage:
    """Files and bytes of the store."""

    files: int = 0
    nbytes: int = 0


def usage() -> Usage:
    """What the store takes now."""
    found = Usage()
    for _, status in _entries(folder()):
        found.files += 1
        found.nbytes += status.st_size
    return found


class _Written:
    """What this process has written into a folder since it last looked at all of it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._files = 0 if _looked_at_lately(place) else _SCAN_EVERY
        self._nbytes = 0

    def note(self, nbytes: int) -> None:
        self._files += 1
        self._nbytes += nbytes
        if self._files >= _SCAN_EVERY or self._nbytes > bound():
            self._nbytes, self._files = _prune(self._place), 0


@functools.cache
def _written(place: Path) -> _Written:
    return _Written(place)


def _mark(place: Path) -> Path:
    """The file beside a folder that tells when all of it was looked at last."""
    return place.with_name(f"{place.name}.looked")


def _looked_at_lately(place: Path) -> bool:
    try:
        return time.time() - _mark(place).stat().st_mtime < _LATELY
    except OSError:
        return False


def _prune(place: Path) -> int:
    """Remove what is too much; returns the bytes that are left."""
    entries = sorted(_entries(place), key=lambda entry: entry[1].st_mtime)
    left, limit = sum(status.st_size for _, status in entries), bound()
    goal = limit if left <= limit else int(_KEEP * limit)
    now = time.time()
    for entry, status in entries:
        abandoned = entry.name.startswith(".") and now - status.st_mtime > _ABANDONED
        if left > goal or abandoned:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
                left -= status.st_size
    with contextlib.suppress(OSError):
        _mark(place).touch()
    return left


def _entries(place: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    try:
        found = list(os.scandir(place))
    except OSError:
        return
    for entry in found:
        with contextlib.suppress(OSError):  # another process may have removed it
            yield entry, entry.stat()
