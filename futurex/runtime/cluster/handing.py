"""Arguments of a run that workers do not keep: they lie pickled with whoever has room, until a locality takes them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from futurex.runtime.group import Once


@dataclass(frozen=True)
class Handed:
    """Stands for a :class:`Once` among the arguments of a run, by the name under which its bytes lie."""

    name: Any


class Sent(Once):
    """What lies elsewhere as bytes, which came over Dask's own channel."""

    def __init__(self, fetch: Callable[[], bytes]) -> None:
        super().__init__(None)
        self._fetch = fetch

    def take(self) -> Any:
        return pickle.loads(self._fetch())
