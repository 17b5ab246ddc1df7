"""Stand-ins for what plain Python cannot have while a function is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from futurex.frontend.errors import Escape, Retrace


class Placeholder:
    """Stands for something that plain Python cannot have while a function is traced: every use of it refuses."""

    __slots__ = ()

    def used(self) -> NoReturn:
        raise NotImplementedError

    def __getattr__(self, name: str) -> NoReturn:
        self.used()


def _refuse_use(self: Placeholder, *args: Any) -> NoReturn:
    self.used()


for _name in (
    "bool", "len", "iter", "str", "repr", "format", "eq", "ne", "hash", "call", "int", "float", "index", "array",
):  # fmt: skip
    setattr(Placeholder, f"__{_name}__", _refuse_use)


class Conflict(Placeholder):
    """What a name is bound to after branches that left values behind which cannot be one.

    Whoever uses it learns why, and which choice has to be merged later. ``told``: somebody who is told of a use, so
    that another trace can have a value there. ``alternatives``: what it is one of, for who needs no one thing.
    """

    __slots__ = ("alternatives", "told", "what", "where", "why")

    def __init__(
        self, what: str, why: str, site: Any, told: Callable[[], None] | None = None,
        alternatives: Alternatives | None = None,
    ) -> None:  # fmt: skip
        self.what, self.why, self.where, self.told, self.alternatives = what, why, site, told, alternatives

    def used(self) -> NoReturn:
        if self.told is not None:
            self.told()
            raise Retrace
        raise Escape(self.what, self.why, "give it one type, shape and structure everywhere", site=self.where)


class Either(Placeholder):
    """What a name is bound to that is one of several things, as the run tells: numbers of other types, None, a text.

    ``flags`` say which of the ``values`` it is, one for each but the last. An operation is made of each of the values
    (:mod:`futurex.frontend.control.either`); where Python must know which it is, what follows is traced for each.
    """

    __slots__ = ("flags", "values", "what", "why")

    def __init__(self, values: tuple[Any, ...], flags: tuple[Any, ...], what: str, why: str) -> None:
        self.values, self.flags, self.what, self.why = values, flags, what, why

    def used(self) -> Any:
        """The one that it is, on the path that is being traced."""
        from futurex.frontend.control.either import decided

        return decided(self)


class Alternatives(Placeholder):
    """Two nests, of which ``flag`` says whether it is the ``first``; each may be such a pair itself."""

    __slots__ = ("first", "flag", "second")

    def __init__(self, flag: Any, first: Any, second: Any) -> None:
        self.flag, self.first, self.second = flag, first, second

    def flat(self) -> list[tuple[Any, Any]]:
        """All nests, each with the flag that says, where none before it is meant, that it is."""
        from futurex.frontend.control.either import both

        first, second = _flat(self.first), _flat(self.second)
        return [*((value, both(self.flag, flag)) for value, flag in first), *second]


def _flat(value: Any) -> list[tuple[Any, Any]]:
    if type(value) is Either:
        return list(zip(value.values, (*value.flags, True), strict=True))
    return value.flat() if type(value) is Alternatives else [(value, True)]
