"""Stand-ins for what plain Python cannot have while a function is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from futurex.frontend.errors import Escape, Retrace


class Placeholder:
    """Stands for something that plain Python cannot have while a function is traced: every use of it refuses."""

    __slots__ = ()

    def used(self) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> NoReturn:
        _refuse_use(self)


def _refuse_use(self: Placeholder, *args: Any) -> NoReturn:
    self.used()
    raise Escape("a name that is one of several things", "Python's own code asks for one")


for _name in (
    "bool", "len", "iter", "str", "repr", "format", "eq", "ne", "hash", "call", "int", "float", "index", "array",
):  # fmt: skip
    setattr(Placeholder, f"__{_name}__", _refuse_use)


class Conflict(Placeholder):
    """What a name is bound to after branches that left values behind which cannot be one.

    Whoever uses it learns why, and which choice has to be merged later. ``told``: somebody who is told of a use, so
    that another trace can have a value there. ``alternatives``: what it is one of; where a branch knows which, and
    where no one thing is needed, that will do.
    """

    __slots__ = ("alternatives", "told", "what", "where", "why")

    def __init__(
        self, what: str, why: str, site: Any, told: Callable[[], None] | None = None,
        alternatives: Alternatives | None = None,
    ) -> None:  # fmt: skip
        self.what, self.why, self.where, self.told, self.alternatives = what, why, site, told, alternatives

    def used(self) -> Any:
        """The one that it is, in the branch or on the path that is being traced."""
        from futurex.frontend.control.either import one_of

        if self.told is not None:
            self.told()
            raise Retrace
        if self.alternatives is not None:
            return one_of(self)
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
    """One of several nests: tuples of arrays and numbers, an array, None. ``flags`` say which of the ``values`` it is,
    one for each but the last. ``choices``: how many branches, one behind the other, left them."""

    __slots__ = ("choices", "flags", "values")

    def __init__(self, values: tuple[Any, ...], flags: tuple[Any, ...], choices: int = 1) -> None:
        self.values, self.flags, self.choices = values, flags, choices
