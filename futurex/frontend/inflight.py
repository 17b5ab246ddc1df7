"""Arguments of runs that are under way: the caller may not change them before they are read.

Small arrays are copied at the call. Large ones are lent: read-only until the run is done, so that a write raises NumPy's
own error at the caller's line instead of changing what the run computes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.runtime.futures import Future

COPY_BYTES = 1 << 20

_lent: dict[int, tuple[np.ndarray, int]] = {}
_lock = threading.Lock()


def snapshot(array: np.ndarray) -> np.ndarray:
    """A private copy of a small array; a large one as it is (to be lent with :func:`hold`)."""
    return array.copy() if array.nbytes <= COPY_BYTES else array


def hold(arrays: Sequence[np.ndarray], run: Future[Any]) -> None:
    """Make large arrays read-only until ``run`` is done."""
    mine = [array for array in arrays if array.nbytes > COPY_BYTES]
    if not mine:
        return
    with _lock:
        for array in mine:
            _, count = _lent.get(id(array), (array, 0))
            if count == 0 and not array.flags.writeable:
                continue
            array.flags.writeable = False
            _lent[id(array)] = (array, count + 1)
    run.add_done_callback(lambda _: _release(mine))


def _release(arrays: Sequence[np.ndarray]) -> None:
    with _lock:
        for array in arrays:
            entry = _lent.get(id(array))
            if entry is None:
                continue
            if entry[1] > 1:
                _lent[id(array)] = (array, entry[1] - 1)
                continue
            del _lent[id(array)]
            array.flags.writeable = True
