"""The parameters of the best epoch so far, beside those that are trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from futurex.runtime.placement import fetched
from futurex.training.callbacks import Watch


class Best:
    """Copies of the ``n_params`` leaves of the parameters at the end of the best epoch.

    All localities keep the same ones: they know the same figures, and parameters are whole on each of them.
    """

    def __init__(self, watch: Watch, n_params: int) -> None:
        self._watch, self._n = watch, n_params
        self.leaves: list[Any] = []
        """The copies; before the first epoch those of the beginning, so that commits have as many leaves all along."""
        self.at: tuple[int, float] = 0, math.nan
        """The best epoch and its figure; epoch 0 where there is none."""

    def begin(self, kept: Sequence[Any], at: tuple[int, float] | None) -> list[Any]:
        """The leaves with which the run begins, of parameters and state, those of a commit without the copies in it.

        ``at``: the best epoch, and its figure, where ``kept`` is a commit.
        """
        if at is None:
            self.leaves = [_copied(leaf) for leaf in kept[: self._n]]
            return list(kept)
        self.at = at[0], at[1]
        self.leaves = [_copied(leaf) for leaf in kept[-self._n :]]
        return list(kept[: -self._n])

    def look(self, record: Mapping[str, Any], params: Sequence[Any]) -> None:
        """An epoch has ended with this record and these parameters."""
        figure = record[self._watch.monitor]
        if self._watch.better(figure, self.at[1]):
            self.at = record["epoch"], figure
            self.leaves = [_copied(leaf) for leaf in params]

    @property
    def found(self) -> list[Any] | None:
        """The leaves at the end of the best epoch, if there was one."""
        return self.leaves if self.at[0] else None


def _copied(leaf: Any) -> Any:
    """Steps write into what they are given; numbers stay what they are."""
    here = fetched(leaf)
    return np.array(here) if isinstance(here, np.ndarray) else here
