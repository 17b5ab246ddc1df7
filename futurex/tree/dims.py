"""Dimensions that are not known before the run: integer expressions that stand in shapes beside ints.

A :class:`Symbol` is an extent that some node will have; a :class:`Dim` is a polynomial in symbols with integer
coefficients. Nothing here guesses: a comparison that the structure does not decide raises :class:`UnknownDimension`,
and so does every use as a plain int.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Extent = "int | Dim"


class UnknownDimension(Exception):
    """A dimension is needed before the run that only the run can tell."""


class Symbol:
    """One unknown extent. Symbols with the same token are the same extent in every run.

    ``low`` is the least value it can have (None: it may be negative). ``definer`` is ``(node, axis)``: the node
    has this extent along that axis, or is the extent itself where the axis is None. ``bound`` is what it is computed
    from, ``(name, extent, limit)``, where it is the smaller or larger one of two: whoever shows it first may stand in
    a loop that others are not part of.
    """

    __slots__ = ("__weakref__", "bound", "definer", "low", "token")

    token: str
    low: int | None
    definer: tuple[Any, int | None] | None
    bound: tuple[str, Any, int] | None

    def __new__(cls, token: str, low: int | None = 0) -> Symbol:
        found = _symbols.get(token)
        if found is None:
            found = object.__new__(cls)
            found.token, found.low, found.definer, found.bound = token, low, None, None
            found = _symbols.setdefault(token, found)
        return found

    def __lt__(self, other: Symbol) -> bool:
        return self.token < other.token

    def __repr__(self) -> str:
        return self.token

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.token, self.low)


_symbols: weakref.WeakValueDictionary[str, Symbol] = weakref.WeakValueDictionary()
_process = os.urandom(6).hex()
_counter = itertools.count()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: globals().update(_process=os.urandom(6).hex()))


def new_symbol(low: int | None = 0) -> Symbol:
    """A symbol that stands for nothing yet, different from all others in every process."""
    return Symbol(f"u{next(_counter)}_{_process}", low)


def value_symbol(number: int) -> Symbol:
    """The symbol of an integer that the run computes, by the number of its node."""
    return Symbol(f"n{number}_{_process}", None)


Monomial = tuple[Symbol, ...]


class Dim:
    """A polynomial in symbols: ``2*u + 1``. Behaves as an int as far as that can be decided.

    >>> u = Dim.of(Symbol("doc_u"))
    >>> (u + 1) * 2 - 2 == u * 2, u + 1 == 0, u >= 0
    (True, False, True)
    >>> u == 3
    Traceback (most recent call last):
    ...
    futurex.tree.dims.UnknownDimension: whether doc_u == 3 is not known before the run
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = tuple(sorted((key, value) for key, value in terms.items() if value))
        self._hash = hash(("Dim", self.terms))

    @staticmethod
    def of(symbol: Symbol) -> Dim:
        return Dim({(symbol,): 1})

    @property
    def symbol(self) -> Symbol | None:
        """The symbol that the dimension is, None if it is composed."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return None

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset(symbol for key, _ in self.terms for symbol in key)

    @property
    def low(self) -> int | None:
        """The least value that it surely has."""
        total = 0
        for key, value in self.terms:
            if key and (value < 0 or any(symbol.low is None for symbol in key)):
                return None
            total += value * math.prod(symbol.low or 0 for symbol in key)
        return total

    def __add__(self, other: Any) -> Any:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        total = dict(self.terms)
        for key, value in terms:
            total[key] = total.get(key, 0) + value
        return _reduced(total)

    def __mul__(self, other: Any) -> Any:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        total: dict[Monomial, int] = {}
        for key, value in self.terms:
            for key2, value2 in terms:
                both = tuple(sorted((*key, *key2)))
                total[both] = total.get(both, 0) + value * value2
        return _reduced(total)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + (other * -1) if _terms(other) is not None else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return (self * -1) + other

    def __floordiv__(self, other: Any) -> Any:
        exact = _quotient(self, other)
        if exact is None:
            raise UnknownDimension(f"{self!r} // {other!r} is not known before the run")
        return exact

    def __mod__(self, other: Any) -> Any:
        if _quotient(self, other) is None:
            raise UnknownDimension(f"{self!r} % {other!r} is not known before the run")
        return 0

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if _terms(other) is None:
            return False
        difference = self - other
        if not isinstance(difference, Dim):
            return bool(difference == 0)
        if _positive(difference) or _positive(-difference):
            return False
        raise UnknownDimension(f"whether {self!r} == {other!r} is not known before the run")

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __ge__(self, other: Any) -> bool:
        if _terms(other) is None:
            return NotImplemented
        difference = self - other
        if not isinstance(difference, Dim):
            return bool(difference >= 0)
        if difference.low is not None and difference.low >= 0:
            return True
        if _positive(-difference):
            return False
        raise UnknownDimension(f"whether {self!r} >= {other!r} is not known before the run")

    def __gt__(self, other: Any) -> bool:
        return self >= other + 1

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return self != 0

    def _unknown(self, *_: Any) -> Any:
        raise UnknownDimension(f"the dimension {self!r} is not known before the run")

    __index__ = __int__ = __float__ = _unknown
    __rfloordiv__ = __rmod__ = __rdivmod__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _unknown

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.terms,)

    def __repr__(self) -> str:
        return self.text({})

    def text(self, names: dict[Symbol, str]) -> str:
        """The expression with other names for symbols; short names where ``names`` has none."""
        parts = []
        for key, value in self.terms:
            factors = [names.get(symbol, symbol.token.split("_" + _process)[0]) for symbol in key]
            if value != 1 or not key:
                factors.insert(0, str(value))
            parts.append("*".join(factors))
        return "+".join(parts).replace("+-", "-")


def dimension(text: str) -> Dim:
    """The dimension that a printed graph names, as ``2*n0+1``."""
    total: Any = 0
    for term in re.findall(r"[+-]?[^+-]+", text):
        product: Any = -1 if term[0] == "-" else 1
        for factor in term.lstrip("+-").split("*"):
            product = product * (int(factor) if factor.isdigit() else Dim.of(Symbol(f"printed_{factor}")))
        total = total + product
    assert isinstance(total, Dim)
    return total


def _unpickled(terms: tuple[tuple[Monomial, int], ...]) -> Dim:
    return Dim(dict(terms))


def _terms(value: Any) -> tuple[tuple[Monomial, int], ...] | None:
    if isinstance(value, Dim):
        return value.terms
    if isinstance(value, int | np.integer):
        return (((), int(value)),)
    return None


def _reduced(terms: Mapping[Monomial, int]) -> Any:
    """An int where no symbol is left."""
    kept = {key: value for key, value in terms.items() if value}
    return Dim(kept) if any(kept) else kept.get((), 0)


def _positive(value: Any) -> bool:
    return value.low is not None and value.low > 0


def _quotient(value: Dim, by: Any) -> Any:
    """``value / by`` where every term divides without rest, else None."""
    terms = _terms(by)
    if terms is None or len(terms) != 1 or not terms[0][1]:
        return None
    divisor, factor = terms[0]
    if divisor and not all((symbol.low or 0) > 0 for symbol in divisor):
        return None  # it may be zero
    result: dict[Monomial, int] = {}
    for key, coefficient in value.terms:
        rest = list(key)
        for symbol in divisor:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if coefficient % factor:
            return None
        result[tuple(rest)] = coefficient // factor
    return _reduced(result)


class Fresh:
    """Stands in the shape that a rule infers for an extent nothing is known of; equal numbers are the same extent."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fresh) and self.number == other.number

    def __hash__(self) -> int:
        return hash(("Fresh", self.number))

    def __repr__(self) -> str:
        return f"?{self.number}"


# -- shapes ----------------------------------------------------------------------------------------------------------


def is_static(shape: tuple[Any, ...]) -> bool:
    """Are all extents ints?"""
    for extent in shape:  # noqa: SIM110 - asked of every node: a generator takes ten times as long
        if type(extent) is not int and isinstance(extent, Dim | Fresh):
            return False
    return True


def same(a: Any, b: Any) -> bool:
    """Are two extents, or two shapes, surely equal?"""
    if type(a) is int and type(b) is int:
        return a == b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Dim) and isinstance(b, Dim):
        return a.terms == b.terms
    if isinstance(a, Dim | Fresh) or isinstance(b, Dim | Fresh):
        return type(a) is type(b) and a == b
    return bool(a == b)


def fits(shape: tuple[int, ...], wanted: tuple[Any, ...]) -> bool:
    """Is this the shape of an array where one of ``wanted`` should stand? An unknown extent takes any."""
    if len(shape) != len(wanted):
        return False
    return all(isinstance(w, Dim) or extent == w for extent, w in zip(shape, wanted, strict=True))


def broadcast_shapes(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """NumPy's rule; an extent that cannot be decided is new, and the run checks that the operands fit.

    Raises ValueError as NumPy does.
    """
    if all(map(is_static, shapes)):
        largest = max(shapes, key=len, default=())
        if all(shape == largest or shape == () for shape in shapes):
            return largest
        return np.broadcast_shapes(*shapes)
    ndim = max(map(len, shapes))
    rows = zip(*((1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    return tuple(_broadcast_extent(row, axis) for axis, row in enumerate(rows))


def _broadcast_extent(extents: tuple[Any, ...], axis: int) -> Any:
    known = {extent for extent in extents if isinstance(extent, int) and extent != 1}
    if len(known) > 1:
        np.broadcast_shapes(*((extent,) for extent in known))  # raises NumPy's error
    unknown = list(dict.fromkeys(extent for extent in extents if not isinstance(extent, int)))
    if known:
        return known.pop()  # unknown ones are equal to it, or one, or the run fails
    if not unknown:
        return 1
    return unknown[0] if len(unknown) == 1 else Fresh(axis)


def may_be_same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Are two shapes equal, as far as that is known? The run checks the rest."""
    try:
        return len(a) == len(b) and all(
            isinstance(one, Fresh) or isinstance(two, Fresh) or one == two for one, two in zip(a, b, strict=True)
        )
    except UnknownDimension:
        return True


def may_fill(shape: tuple[Any, ...], target: tuple[Any, ...]) -> bool:
    """Can an array of this shape be broadcast to ``target``, as far as that is known? The run checks the rest.

    >>> u = Dim.of(Symbol("doc_v"))
    >>> may_fill((1, u), (3, 4)), may_fill((2,), (u,)), may_fill((2,), (3,)), may_fill((1, u), (u,))
    (True, True, False, False)
    """
    if len(shape) > len(target):
        return False
    for extent, wanted in zip(reversed(shape), reversed(target), strict=False):
        try:
            if not (isinstance(extent, Fresh) or isinstance(wanted, Fresh) or extent in (1, wanted)):
                return False
        except UnknownDimension:
            continue
    return True


def reshaped(shape: tuple[Any, ...], wanted: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape that a reshape to ``wanted`` gives, where extents are unknown; one of ``wanted`` may be -1.

    An extent that may turn out negative is not what it says.
    """
    found: list[Any] = [
        Fresh(axis) if isinstance(extent, Dim) and extent.low is None else extent for axis, extent in enumerate(wanted)
    ]
    for axis, extent in enumerate(wanted):
        if same(extent, -1):
            others = [other for k, other in enumerate(found) if k != axis]
            try:
                if any(isinstance(other, Fresh) for other in (*shape, *others)):
                    raise UnknownDimension("an extent is not known")
                found[axis] = math.prod(shape) // math.prod(others)
            except UnknownDimension:
                found[axis] = Fresh(axis)
    return tuple(found)


def slice_length(extent: Any, start: Any, stop: Any, step: Any) -> Any:
    """How many elements a slice with known bounds takes of an unknown extent; None where it has no closed form."""
    step = 1 if step is None else step
    if isinstance(extent, Fresh):
        return None
    if step == -1 and start is None and stop is None:
        return extent
    if step != 1:
        return None
    if isinstance(start, Dim) or isinstance(stop, Dim):
        try:
            if not ((start or 0) >= 0 and stop is not None and stop <= extent):
                return None
            rest = stop - (start or 0)
            return _less(stop, start) if isinstance(start, int) else rest if rest >= 0 else None
        except UnknownDimension:
            return None
    if start is not None and start < 0:
        return _at_most(extent, -start) if stop is None else None
    cut = start or 0
    if stop is None or stop < 0:
        return _less(extent, cut - (stop or 0))
    return None if cut else _at_most(extent, stop)


def _less(extent: Any, cut: int) -> Any:
    """``max(extent - cut, 0)``."""
    rest = extent - cut
    return limited("max", rest, 0) if cut and isinstance(rest, Dim) else rest


def _at_most(extent: Any, most: int) -> Any:
    """``min(extent, most)``."""
    return limited("min", extent, most) if most else 0


def limited(name: str, extent: Any, limit: int) -> Any:
    """``min(extent, limit)`` or ``max(extent, limit)``: where that is known, without a bound."""
    if not isinstance(extent, Dim):
        return min(extent, limit) if name == "min" else max(extent, limit)
    if extent.low is not None and extent.low >= limit:
        return limit if name == "min" else extent
    return bounded(name, extent, limit)


def bounded(name: str, extent: Dim, limit: int) -> Dim:
    """``min(extent, limit)`` or ``max(extent, limit)``, none of which is negative."""
    least = extent.low or 0
    low = max(least, limit, 0) if name == "max" else max(min(least, limit), 0)
    symbol = Symbol(f"{name}({extent.text(_tokens(extent))},{limit})", low)
    symbol.bound = name, extent, limit
    return Dim.of(symbol)


def _tokens(extent: Dim) -> dict[Symbol, str]:
    return {symbol: symbol.token for symbol in extent.symbols}


# -- values that hold dimensions ---------------------------------------------------------------------------------------


def dims_in(value: Any) -> Iterator[Dim]:
    """Every dimension in an attribute value (tuples are looked into)."""
    if isinstance(value, Dim):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            if isinstance(entry, Dim | tuple):
                yield from dims_in(entry)


def has_dims(value: Any) -> bool:
    """Is there a dimension in an attribute value?"""
    return next(dims_in(value), None) is not None


def replaced(value: Any, of: Callable[[Dim], Any]) -> Any:
    """An attribute value with ``of(dim)`` for every dimension in it."""
    if isinstance(value, Dim):
        return of(value)
    if isinstance(value, tuple):
        entries = [replaced(entry, of) if isinstance(entry, Dim | tuple) else entry for entry in value]
        return tuple(entries) if any(map(operator.is_not, entries, value)) else value
    return value


def renamed(dim: Dim, known: Mapping[Symbol, Any]) -> Any:
    """The dimension with ints or dimensions for some of its symbols."""
    total: Any = 0
    for key, value in dim.terms:
        term: Any = value
        for symbol in key:
            term = term * known.get(symbol, Dim.of(symbol))
        total = total + term
    return total


def nominal(value: Any, size: int = 1024) -> Any:
    """An attribute value or shape with a stand-in size for what is not known, for estimates."""
    if isinstance(value, Fresh):
        return size
    return replaced(value, lambda dim: max(int(renamed(dim, dict.fromkeys(dim.symbols, size))), 0))
