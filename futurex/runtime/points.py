"""Named points of a run, at which tests make something go wrong.

`step`: before a step; `all-reduce`: a collective is in flight; `commit`: while a commit is taken; `checkpoint`: while
one is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

hook: Callable[[str, Any], None] | None = None


def reach(point: str, where: Any) -> None:
    """Tell whoever listens that ``where``, a locality or a communicator, has come to a point."""
    if hook is not None:
        hook(point, where)
