"""Checkpoints that are written while the run goes on, and where a run begins that finds some."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from futurex.training.checkpoint import Checkpoint, CheckpointError, load, newest, save
from futurex.tree.pytree import Structure, flatten, leaf_paths, unflatten


@dataclass(frozen=True)
class Saving:
    """Where checkpoints are, after how many steps one is written (0: none is), and what their trees look like.

    ``leaves_like`` are the shapes and types of the leaves of parameters and state; the run has ``epochs`` epochs of
    ``batches`` steps each. ``begins`` is the step of the checkpoint with which it begins, -1 where it begins anew.
    """

    folder: Path
    every: int
    structures: tuple[Structure, Structure]
    leaves_like: tuple[str, ...]
    epochs: int
    batches: int
    begins: int = -1

    def newest_step(self) -> int:
        """The step of the newest sound checkpoint; -1 if there is none."""
        found, _ = newest(self.folder)
        return -1 if found is None else found.step

    def leaves(self, step: int) -> tuple[list[Any], Mapping[str, Any]]:
        """The leaves of parameters and state after ``step`` steps, and the position of the run."""
        return self.fitting(load(self.folder / f"step-{step:06d}"))

    def fitting(self, checkpoint: Checkpoint) -> tuple[list[Any], Mapping[str, Any]]:
        """The leaves of a checkpoint, and its position. Raises ValueError for one of another run."""
        parts = [flatten(tree) for tree in (checkpoint.params, checkpoint.optimizer)]
        leaves = [leaf for each, _ in parts for leaf in each]
        if tuple(structure for _, structure in parts) != self.structures or not checkpoint.position:
            raise self._refused(
                checkpoint, "holds parameters or a state of another structure than this run's, or was not written by "
                "fx.fit"
            )  # fmt: skip
        names = [path for n, each in enumerate(self.structures) for path in leaf_paths(each, ("params", "state")[n])]
        for path, found, own in zip(names, map(looks, leaves), self.leaves_like, strict=True):
            if found != own:
                raise self._refused(checkpoint, f"has {path} as {found}, and this run as {own}")
        epochs = checkpoint.position["history"]
        before = len(epochs) * self.batches
        if any(each["step"] != each["epoch"] * self.batches for each in epochs) or not (
            before <= checkpoint.step <= before + self.batches
        ):
            raise self._refused(
                checkpoint, f"is of a run whose epochs have another number of steps than the {self.batches} of this "
                "one: go on with the same data and batch_size"
            )  # fmt: skip
        if checkpoint.step > self.epochs * self.batches:
            raise self._refused(
                checkpoint, f"is behind the end of this run, which has {self.epochs} epochs of {self.batches} steps: "
                "give it more epochs"
            )  # fmt: skip
        return leaves, checkpoint.position

    def _refused(self, checkpoint: Checkpoint, why: str) -> ValueError:
        where = f"the checkpoint of step {checkpoint.step} in {self.folder}"
        return ValueError(f"{where} {why}; another run needs another folder")


def looks(leaf: Any) -> str:
    """The type and shape of a leaf; a number is an array without dimensions.

    >>> looks(np.zeros((2, 3))), looks(0.5)
    ('float64[2,3]', 'float64[]')
    """
    array = np.asarray(leaf)
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


class Saver:
    """Writes checkpoints on a thread, one at a time. What went wrong is raised by the next call."""

    def __init__(self, saving: Saving) -> None:
        self._saving = saving
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, step: int, leaves: Sequence[Any], position: Mapping[str, Any]) -> None:
        """Copy the leaves and write them; waits for the one before."""
        self.wait()
        copies = [np.array(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        args = (step, copies, position)
        self._thread = threading.Thread(target=self._write, args=args, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write(self, step: int, leaves: list[Any], position: Mapping[str, Any]) -> None:
        n = self._saving.structures[0].n_leaves
        params, state = (
            unflatten(structure, part)
            for structure, part in zip(self._saving.structures, (leaves[:n], leaves[n:]), strict=True)
        )
        try:
            save_once(self._saving.folder, Checkpoint(step, params, state, position=position))
        except BaseException as error:
            self._error = error


def save_once(run: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, unless a sound one of its step is there: a step done again may have rounded differently."""
    try:
        return save(run, checkpoint)
    except CheckpointError as error:
        if error.last_good is None or error.last_good != error.path:
            raise
        return error.path
