"""Checkpoints: `<run>/step-000123/` holds safetensors files and a manifest, written aside and renamed."""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from futurex.errors import FuturexError, require
from futurex.files import sync_folder
from futurex.runtime import points
from futurex.training.pack import Arrays, pack, unpack

FORMAT, VERSION = "futurex-checkpoint", 1
MANIFEST = "manifest.json"
PARTS = ("params", "optimizer")
STEP = re.compile(r"step-(\d{6,})")


class CheckpointError(FuturexError):
    """A checkpoint that cannot be used: `path`, `reason`, and the newest sound one of its run, `last_good`."""

    def __init__(self, path: Path, reason: str, last_good: Path | None = None) -> None:
        """Compose the message from the place, the reason and what can be used instead."""
        offer = f"; the last good one is {last_good}" if last_good else "; there is no other good one beside it"
        super().__init__(f"checkpoint {path} is refused: {reason}{offer}")
        self.path, self.reason, self.last_good = path, reason, last_good

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes with all three fields."""
        return type(self), (self.path, self.reason, self.last_good)


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on: the step it had done, parameters, optimizer state (pytrees) and metrics.

    `position` says in JSON's terms where a run of `fx.fit` was: its finished epochs, and the sums of the one under way.
    """

    step: int
    params: Any
    optimizer: Any = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] = field(default_factory=dict)


def save(run: str | os.PathLike[str], checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` to `<run>/step-<step>`, durable when this returns, and return that folder.

    Saving the same parameters and optimizer state at the same step again changes nothing. A damaged checkpoint in the
    way is moved aside. Raises `CheckpointError` if other values stand there, `TypeError` naming a leaf that cannot be
    stored, `ValueError` for a negative step, `OSError` naming the folder where it cannot be written.

    >>> import numpy as np
    >>> save("runs/har", Checkpoint(step=120, params={"w": np.zeros(3)}))
    PosixPath('runs/har/step-000120')
    """
    if checkpoint.step < 0:
        raise ValueError(f"a step is counted from 0, not {checkpoint.step}")
    folder = Path(run) / f"step-{checkpoint.step:06d}"
    aside = folder.with_name(f".{folder.name}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    folder.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(folder.parent)
    try:
        aside.mkdir()
        parts = {name: _write_part(aside, name, getattr(checkpoint, name)) for name in PARTS}
        manifest = {"format": FORMAT, "version": VERSION, "step": checkpoint.step, "parts": parts}
        for name in ("metrics", "position"):
            manifest[name] = json.loads(json.dumps(dict(getattr(checkpoint, name)), default=_plain))
        points.reach("checkpoint", aside)
        _write_manifest(aside / MANIFEST, manifest)
        sync_folder(aside)
        if not _already_there(folder, parts):
            os.rename(aside, folder)  # fails, rather than replace, if someone else was quicker
            sync_folder(folder.parent)
    except OSError as error:
        if error.filename is None and error.errno is not None:  # writing does not say where, when a disk is full
            error.filename = str(folder)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


class Claim:
    """A folder for the checkpoints of one run, until it is released or the process ends.

    Raises `OSError` where nothing can be written there, `ValueError` while another run of this machine has it.
    """

    def __init__(self, run: str | os.PathLike[str]) -> None:
        """Make the folder and take it."""
        folder = Path(run)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                self._handle = os.open(folder, os.O_RDONLY)
        except OSError as error:
            why = f"{error.strerror}, and so no checkpoint can be written there; name another folder"
            raise OSError(error.errno, why, str(folder)) from None
        try:
            self._lock("LOCK_EX", "LOCK_NB")
        except BlockingIOError:
            os.close(self._handle)
            raise ValueError(
                f"another run that has not ended writes its checkpoints to {folder}: stop that one, or name another "
                "folder"
            ) from None

    def release(self) -> None:
        """Let others have the folder; again, nothing happens."""
        if self._handle >= 0:
            self._lock("LOCK_UN")  # a child of a fork has the handle, too
            os.close(self._handle)
            self._handle = -1

    def _lock(self, *how: str) -> None:
        try:
            import fcntl  # not every system has it

            fcntl.flock(self._handle, sum(getattr(fcntl, name) for name in how))
        except BlockingIOError:
            raise
        except (ImportError, OSError):
            return  # not every file system knows such locks


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read and verify one checkpoint folder, `<run>/step-<step>`.

    Raises `CheckpointError` with the reason and the last good one if it is damaged, foreign or newer than this version.

    >>> folder = save("runs/digits", Checkpoint(step=120, params={"w": 0.5}))
    >>> load(latest("runs/digits")).step
    120
    """
    folder = Path(path)
    try:
        return _read(folder)
    except _Refused as refusal:
        raise CheckpointError(folder, str(refusal), _last_good(folder)) from refusal


def latest(run: str | os.PathLike[str]) -> Path | None:
    """Return the folder of the highest step saved in `run`, unverified (`load` verifies), or None.

    >>> latest("runs/never-started") is None
    True
    """
    return next(iter(_newest_first(Path(run))), None)


def newest(run: str | os.PathLike[str]) -> tuple[Checkpoint | None, list[CheckpointError]]:
    """Return the newest sound checkpoint of `run`, None if there is none, and why newer ones are refused.

    >>> newest("runs/never-started")
    (None, [])
    """
    refusals: list[CheckpointError] = []
    for folder in _newest_first(Path(run)):
        try:
            return _read(folder), refusals
        except _Refused as refusal:
            refusals.append(CheckpointError(folder, str(refusal)))
    return None, refusals


class _Refused(Exception):
    """Why a folder is no sound checkpoint."""


def _newest_first(run: Path) -> list[Path]:
    try:
        entries = [(int(match[1]), entry) for entry in run.iterdir() if (match := STEP.fullmatch(entry.name))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [entry for _, entry in sorted(entries, reverse=True)]


def _last_good(refused: Path) -> Path | None:
    for folder in _newest_first(refused.parent):
        if folder.name != refused.name:
            with contextlib.suppress(_Refused):
                _read(folder)
                return folder
    return None


def _already_there(folder: Path, parts: dict[str, Any]) -> bool:
    if not folder.exists():
        return False
    try:
        present = _manifest(folder)["parts"]
        _read(folder)
    except _Refused:
        number = 1
        while (moved := folder.with_name(f"{folder.name}.damaged-{number}")).exists():
            number += 1
        os.rename(folder, moved)
        return False
    if present != parts:
        reason = "it holds other values than those to be saved, and nothing is overwritten: give this run another name"
        raise CheckpointError(folder, reason, folder)
    return True


def _clear_leftovers(run: Path) -> None:
    for entry in run.glob(f".step-*.{socket.gethostname()}.*.tmp"):
        owner = entry.name.split(".")[-3]
        try:
            os.kill(int(owner), 0)  # asks whether the process lives, sends nothing
        except ProcessLookupError:
            shutil.rmtree(entry, ignore_errors=True)
        except PermissionError:  # it lives, and is someone else's
            continue


def _write_part(folder: Path, name: str, tree: Any) -> dict[str, Any]:
    structure, arrays = pack(tree)
    content = require("safetensors.numpy", "train").save(arrays)
    _write_durably(folder / f"{name}.safetensors", content)
    return {"structure": structure, "sha256": hashlib.sha256(content).hexdigest()}


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    sealed = {**manifest, "sha256": _seal(manifest)}
    _write_durably(path, json.dumps(sealed, indent=1).encode())


def _write_durably(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _seal(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(
        f"metrics hold a {type(value).__name__}, which JSON cannot express: use numbers, text, lists and dicts"
    )


def _read(folder: Path) -> Checkpoint:
    manifest = _manifest(folder)
    trees = {name: _read_part(folder / f"{name}.safetensors", manifest["parts"][name]) for name in PARTS}
    position = manifest.get("position", {})  # a checkpoint that no run of fit wrote has none
    return Checkpoint(manifest["step"], trees["params"], trees["optimizer"], manifest["metrics"], position)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        if not folder.exists():
            raise _Refused("it is not there; a run's driver and workers all need to see its folder") from None
        raise _Refused(f"there is no {MANIFEST} in it, so futurex did not write it, or not to its end") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _Refused(f"{MANIFEST} cannot be read ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _Refused(f"{MANIFEST} is not that of a futurex checkpoint")
    version = manifest.get("version")
    if isinstance(version, int) and version > VERSION:
        raise _Refused(f"it has format version {version} and this futurex reads up to {VERSION}: update futurex")
    if manifest.pop("sha256", None) != _seal(manifest):
        raise _Refused(f"{MANIFEST} does not match its checksum")
    return manifest


def _read_part(path: Path, part: dict[str, Any]) -> Any:
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _Refused(f"{path.name} cannot be read ({error.strerror})") from error
    if digest != part["sha256"]:
        raise _Refused(f"{path.name} does not match its checksum: it was damaged after it was written")
    arrays: Arrays = require("safetensors.numpy", "train").load_file(path)
    return unpack(part["structure"], arrays)
