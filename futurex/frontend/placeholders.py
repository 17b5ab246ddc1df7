"""Stand-ins for what plain Python cannot have while a function is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from futurex.frontend.errors import Escape, Retrace


class Placeholder:
    """Stands for something that plain Python cannot have while a function is traced: every use of it refuses."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def used(self) -> NoReturn:
        raise NotImplementedError

    def __getattr__(self, name: str) -> NoReturn:
        self.used()


def _refuse_use(self: Placeholder, *args: Any) -> NoReturn:
    self.used()


for _name in ("bool", "len", "iter", "str", "repr", "format", "eq", "ne", "call", "int", "float", "index", "array"):
    setattr(Placeholder, f"__{_name}__", _refuse_use)


class Conflict(Placeholder):
    """What a name is bound to after branches that left values behind which cannot be one.

    Whoever uses it learns why, and which choice has to be merged later. ``told``: somebody who is told of a use, so
    that another trace can have a value there. ``number``: of a Python number in one branch and one of NumPy's floats in
    the other, both as the float; beside floats of this very type nobody can tell the difference.
    """

    __slots__ = ("number", "told", "what", "where", "why")

    def __init__(self, what: str, why: str, site: Any, told: Callable[[], None] | None = None) -> None:
        self.what, self.why, self.where, self.told = what, why, site, told
        self.number: Any = None

    def used(self) -> NoReturn:
        if self.told is not None:
            self.told()
            raise Retrace
        raise Escape(self.what, self.why, "give it one type, shape and structure everywhere", site=self.where)
