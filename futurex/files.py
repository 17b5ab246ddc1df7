"""Files that are there whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def cache_folder() -> Path:
    """Return the folder for files that can be made again; it may not exist.

    `$FUTUREX_CACHE`; or `futurex` in `$XDG_CACHE_HOME`, which is `~/.cache` unless it names another absolute folder. A
    user without a home, as containers have them, has none: a place where nothing can be read or written.
    """
    own = os.environ.get("FUTUREX_CACHE")
    if own:
        return Path(own)
    root = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if root.is_absolute():
        return root / "futurex"
    try:
        return Path.home() / ".cache" / "futurex"
    except RuntimeError:
        return Path(os.devnull) / "futurex"  # never a folder that others may write: what lies there is run


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a renamed file is lost in a power cut without this."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_aside(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file beside `path`, then rename it to `path`: readers see the old file or the new one.

    >>> write_aside(Path("note.txt"), lambda file: file.write(b"text"))
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        raise
    sync_folder(path.parent)
