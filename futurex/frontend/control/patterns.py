"""``match``: does a value fit a pattern? The answer is traced where a literal is compared with a traced value."""

from __future__ import annotations

import collections.abc
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from futurex.frontend.control.choices import and_, or_
from futurex.frontend.control.values import is_unknown
from futurex.frontend.errors import Escape
from futurex.frontend.numbers import has_attribute
from futurex.frontend.outside import asked_for, is_users
from futurex.frontend.tracer import Tracer, entered

Pattern = tuple[Any, ...]
_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def _same(value: Any) -> Any:
    return value


@dataclass
class Match:
    """Whether a value fits a pattern, and the names that are bound then."""

    test: Any = True
    names: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Matcher:
    """Fits values to patterns with the runtime's comparison, ``isinstance`` and attributes."""

    compare: Callable[[str, Any, Any], Any]
    isinstance: Callable[[Any, Any], bool]
    getattr: Callable[[Any, str], Any]

    def fit(self, value: Any, pattern: Pattern) -> Match:
        found = Match()
        found.test = self._fit(entered(value), pattern, found.names)
        return found

    def _fit(self, value: Any, pattern: Pattern, names: dict[str, Any]) -> Any:
        kind, *parts = pattern
        return getattr(self, f"_{kind}")(value, names, *parts)

    def _value(self, value: Any, names: dict[str, Any], literal: Any) -> Any:
        return self.compare("eq", value, literal)

    def _singleton(self, value: Any, names: dict[str, Any], literal: Any) -> bool:
        if isinstance(value, Tracer) and value.aval.weak and value.dtype.kind == "b" and isinstance(literal, bool):
            raise Escape("match of a traced bool with True or False", "whether it is that very object depends on data")
        return value is literal

    def _as(self, value: Any, names: dict[str, Any], inner: Pattern | None, name: str | None) -> Any:
        test = True if inner is None else self._fit(value, inner, names)
        if name is not None:
            names[name] = value
        return test

    def _or(self, value: Any, names: dict[str, Any], patterns: tuple[Pattern, ...]) -> Any:
        fits = []
        for pattern in patterns:
            bound: dict[str, Any] = {}
            fits.append(self._fit(value, pattern, bound))
            if is_unknown(fits[-1]):
                if bound:
                    raise Escape(
                        "a match of traced values with names in alternatives", "which is bound depends on data"
                    )
            elif fits[-1]:
                names.update(bound)
                break
        return or_(False, *(functools.partial(_same, fit) for fit in fits))

    def _sequence(self, value: Any, names: dict[str, Any], patterns: tuple[Pattern, ...]) -> Any:
        if not isinstance(value, collections.abc.Sequence) or isinstance(value, str | bytes | bytearray | Tracer):
            return False
        star = next((k for k, pattern in enumerate(patterns) if pattern[0] == "star"), None)
        if len(value) < len(patterns) - 1 if star is not None else len(value) != len(patterns):
            return False
        pairs = (
            list(zip(value, patterns, strict=False))
            if star is None
            else list(zip(value[:star], patterns, strict=False))
        )
        if star is not None:
            tail = len(patterns) - star - 1
            if patterns[star][1] is not None:
                names[patterns[star][1]] = list(value[star : len(value) - tail])
            pairs += list(zip(value[len(value) - tail :], patterns[star + 1 :], strict=True))
        return self._all(pairs, names)

    def _mapping(
        self, value: Any, names: dict[str, Any], keys: tuple[Any, ...], patterns: tuple[Pattern, ...], rest: str | None
    ) -> Any:
        if not isinstance(value, collections.abc.Mapping) or not all(key in value for key in keys):
            return False
        if rest is not None:
            names[rest] = {key: entry for key, entry in value.items() if key not in keys}
        return self._all([(value[key], pattern) for key, pattern in zip(keys, patterns, strict=True)], names)

    def _class(
        self, value: Any, names: dict[str, Any], kind: type, patterns: tuple[Pattern, ...], attributes: tuple[str, ...],
        more: tuple[Pattern, ...],
    ) -> Any:  # fmt: skip
        if not self.isinstance(value, kind):
            return False
        if patterns and kind in _SELF_MATCHING:
            if len(patterns) > 1:
                raise TypeError(f"{kind.__name__}() accepts 1 positional sub-pattern ({len(patterns)} given)")
            return self._fit(value, patterns[0], names)
        own = getattr(kind, "__match_args__", ())
        if len(patterns) > len(own):
            plural = "" if len(own) == 1 else "s"
            raise TypeError(
                f"{kind.__name__}() accepts {len(own)} positional sub-pattern{plural} ({len(patterns)} given)"
            )
        wanted = [*own[: len(patterns)], *attributes]
        has = has_attribute if isinstance(value, Tracer) else asked_for if is_users(type(value)) else hasattr
        if not all(has(value, name) for name in wanted):
            return False
        pairs = [(self.getattr(value, name), each) for name, each in zip(wanted, (*patterns, *more), strict=True)]
        return self._all(pairs, names)

    def _all(self, pairs: list[tuple[Any, Pattern]], names: dict[str, Any]) -> Any:
        """Parts are compared from the left as long as it is not surely decided."""
        test: Any = True
        for value, pattern in pairs:
            fits = self._fit(entered(value), pattern, names)
            test = and_(test, functools.partial(_same, fits))
            if not is_unknown(test) and not test:
                return False
        return test
