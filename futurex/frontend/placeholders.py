"""Stand-ins for what plain Python cannot have while a function is traced."""

from __future__ import annotations

from typing import Any, NoReturn

from futurex.frontend.errors import Escape


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

    Whoever uses it learns why, and which choice has to be merged later.
    """

    __slots__ = ("what", "where", "why")

    def __init__(self, what: str, why: str, site: Any) -> None:
        self.what, self.why, self.where = what, why, site

    def used(self) -> NoReturn:
        raise Escape(self.what, self.why, "give it one type, shape and structure everywhere", site=self.where)
