"""``is``, which asks who values are."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from futurex.frontend import control
from futurex.frontend.control.either import chosen, is_nothing, settled
from futurex.frontend.control.values import is_loose
from futurex.frontend.errors import Escape
from futurex.frontend.placeholders import Conflict, Either
from futurex.frontend.tables import TracedRow
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer, entered


def same(left: Any, right: Any) -> Any:
    """``left is right``."""
    left, right = settled(left), settled(right)
    for one, other in ((left, right), (right, left)):
        if type(one) is Conflict:
            nests = one.alternatives
            return same(one.used(), other) if nests is None or other is not None else is_nothing(nests)
        if type(one) is Either:
            return is_nothing(one) if other is None else chosen(one, functools.partial(same, other))
    return _same(left, right)


def _same(left: Any, right: Any) -> Any:
    """``left is right``: an array is the one that it was traced from. What branches, rounds or lists have merged may be
    the same object in some runs. Python has one True and one False, and other numbers as objects of their own."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Tracer) and one.is_scalar and isinstance(other, np.generic):
            raise _whole("`is` between numbers", "which object a number is only the run knows")
        if isinstance(one, Tracer) and type(other) in (bool, int, float, complex) and (one.aval.weak or is_loose(one)):
            if is_loose(one) or type(other) is not bool:
                raise _whole("`is` between numbers", "which object a number is only the run knows")
            if one.dtype.kind == "b":
                return control.truth_of(one) if other else control.not_(one)
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        left, right = entered(left), entered(right)
    if isinstance(left, Tracer) and isinstance(right, Tracer) and left is not right:
        if left.is_scalar and right.is_scalar:
            raise _whole("`is` between numbers", "which object a number is only the run knows")
        if any(value._cell.entangled or value._cell.unread for value in (left, right)):
            raise _whole("`is` between arrays of branches or lists", "which array each of them is only the run knows")
        if _may_be_one(left, right):
            raise _whole("`is` of an array from outside the function", "which array that is every call may say anew")
    if isinstance(left, TracedRow) and isinstance(right, TracedRow) and left.table is right.table:
        if isinstance(left.place, Tracer) or isinstance(right.place, Tracer):
            raise _whole("`is` between lists in a list", "which of them each is only the run knows")
        return left.place == right.place
    if left is not right and type(left) is type(right):
        given = current().arguments.keys() | current().held.nests.keys()
        current().compares |= id(left) in given and id(right) in given
        for value in (left, right):
            if id(value) in current().frozen:
                what, site = "`is` between objects of branches or rounds", current().frozen[id(value)][1]
                raise _whole(what, "which one each of them is only the run knows", site=site)
    return left is right


def _whole(what: str, why: str, site: Any = None) -> Escape:
    """Ends the trace of the whole call: values that a fragment is given are objects of their own."""
    escape = Escape(what, why, site=site)
    escape.whole = True
    return escape


def _may_be_one(left: Tracer, right: Tracer) -> bool:
    """May another call find one array in two places? Of arguments that are ndarrays it is known whether they are one,
    not of futures, nor of what is outside of the arguments."""
    trace, pair = current(), (left._cell, right._cell)
    if left._chain or right._chain or left.dtype != right.dtype or left.ndim != right.ndim:
        return False
    outside = {capture.tracer._cell for capture in trace.captures.values()}
    given = [cell.origin is not None or cell in trace.futures or cell in outside for cell in pair]
    return all(given) and (not outside.isdisjoint(pair) or trace.futures.issuperset(pair))
