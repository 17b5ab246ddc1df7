"""Annotations that Python keeps as texts are texts in staged code, too: names in them need not be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import futurex as fx

if TYPE_CHECKING:
    from nowhere import Floats


def scaled(x: Floats, by: Floats) -> Floats:
    total: Floats = x.sum()

    def inner(y: Floats, *more: Floats, plus: Floats = 1.0) -> Floats:
        held: Floats = y * by
        return held + total + plus

    class Pair:
        first: Floats

        def second(self, y: Floats) -> Floats:
            return y - by

    return inner(x) + Pair().second(x)


def annotated(x):
    def inner(y: Floats) -> Floats:
        return y + 1

    return inner(x) * (inner.__annotations__ == {"y": "Floats", "return": "Floats"})


def test_names_in_them_are_not_looked_up():
    for function in (scaled, annotated):
        staged = fx.futurize(function, escape="error")
        for k in range(4):
            arguments = (np.arange(4.0) + k, 2.0)[: function.__code__.co_argcount]
            np.testing.assert_array_equal(staged(*arguments), function(*arguments))
