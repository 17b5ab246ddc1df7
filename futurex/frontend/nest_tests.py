"""Text of the tests whether lists, dicts and tuples from outside hold what a trace found in them."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from futurex.frontend.held import The
from futurex.frontend.reads import Alike

_LITERALS = frozenset({int, bool, str, bytes, type(None)})
_MOST = 200
"""Values in one test."""


def nest_test(fingerprint: Any) -> Alike | None:
    """The test whether a nest has this fingerprint; None where there is no short one.

    >>> nest_test((dict, ("w", "n"), (("array",), (int, "3"))))[0]
    '{0}({now}) is {1} and {2}({3}({0}, {now})) == {4} and {2}({now}) == {5} and {0}({now}[{6}]) is {7} and \
{0}({now}[{8}]) is {9} and {now}[{8}] == {10}'
    """
    writer = _Writer()
    text = writer.test(fingerprint, "{now}")
    return None if text is None else (text, tuple(writer.values))


class _Writer:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def test(self, expected: Any, now: str) -> str | None:
        """The test of what the text ``now`` gives."""
        kind, *more = expected
        if len(self.values) > _MOST:
            return None
        if more and type(more[0]) is The:
            return f"{now} is {self._value(more[0].value)}" if kind in ("object", "array") else None
        if kind in ("array", "input"):
            return f"{self._type(now)} is {self._value(more[0] if more else np.ndarray)}"
        if not isinstance(kind, type):
            return None
        is_it = f"{self._type(now)} is {self._value(kind)}"
        if kind in (list, tuple, dict) and len(more) == 2:
            return self._nest(is_it, kind, more[0], more[1], now)
        if len(more) != 1 or type(more[0]) is not str:
            return None
        if kind in _LITERALS:
            return f"{is_it} and {now} == {self._value(ast.literal_eval(more[0]))}"
        return f"{is_it} and {self._value(repr)}({now}) == {self._value(more[0])}"

    def _nest(self, is_it: str, kind: type, keys: Any, inside: Any, now: str) -> str | None:
        if kind is not dict:
            if keys != len(inside):  # of what is told by who it is
                return None
            tests, names = [is_it, f"{self._value(len)}({now}) == {self._value(keys)}"], range(keys)
        elif all(type(key) is str for key in keys):
            every, types = self._value(tuple), f"{self._value(map)}({self._value(type)}, {now})"
            tests = [is_it, f"{every}({types}) == {self._value((str,) * len(keys))}"]
            tests, names = [*tests, f"{every}({now}) == {self._value(keys)}"], keys
        else:
            return None
        for name, entry in zip(names, inside, strict=True):
            test = self.test(entry, f"{now}[{self._value(name)}]")
            if test is None:
                return None
            tests.append(test)
        return " and ".join(tests)

    def _type(self, now: str) -> str:
        return f"{self._value(type)}({now})"

    def _value(self, value: Any) -> str:
        place = next((k for k, each in enumerate(self.values) if each is value), len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return f"{{{place}}}"
