"""No trace is used for arguments that it was not made for: random argument trees, changed in one place at a time."""

import collections
import copy
import dataclasses
import math
import warnings
from typing import Any

import numpy as np
import pytest
from compare import plain
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx

Point = collections.namedtuple("Point", "x y")


@pytest.fixture(autouse=True, scope="module", params=["long way", "short way"])
def way(request):
    """Calls are told apart by their keys, or by functions made for the last trace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("futurex.frontend.staging.REPEATED", 1 if request.param == "short way" else 10**9)
        yield


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Twin:
    """Fields named as those of Layer."""

    w: Any
    b: Any


def consume(value):
    """Something that depends on everything that can be known of a value."""
    if isinstance(value, np.ndarray):
        return value + value, value.dtype.char, value.shape, [value.ravel()]
    if isinstance(value, dict):
        return [(consume(key), consume(entry)) for key, entry in value.items()]
    if isinstance(value, Point):
        return "Point", consume(value.x), consume(value.y)
    if isinstance(value, Layer | Twin):
        return isinstance(value, Twin), consume(value.w), consume(value.b)
    if isinstance(value, list | tuple):
        return [isinstance(value, list), *(consume(entry) for entry in value)]
    if isinstance(value, slice | range):
        return isinstance(value, slice), value.start, value.stop, value.step
    kinds = [isinstance(value, kind) for kind in (bool, int, float, complex, np.generic, np.float64, np.int64)]
    if any(kinds):
        return value + value, kinds
    return value, kinds


def consume_call(*args, **kwargs):
    return consume(args), consume(kwargs)


def write_first(arrays, value):
    """What a write into the first array leaves in all of them."""
    first = arrays[0]
    first[...] = value
    return [array + array for array in arrays]


def an_array(dtype, shape, layout, seed):
    """An array of the given layout; ``seed`` makes its elements."""
    rng = np.random.default_rng(seed)
    doubled = tuple(2 * extent for extent in shape)
    values = rng.integers(0, 3, doubled if layout == "strided" else shape).astype(dtype)
    if layout == "strided":
        return values[(..., *(slice(None, None, 2) for _ in shape))]
    if layout == "reversed":
        return values[(..., *(slice(None, None, -1) for _ in shape))]
    return np.asfortranarray(values) if layout == "F" else values


# Values that compare equal, or nearly do, and differ.
FAMILIES = [
    [1, True, 1.0, np.float64(1), np.int64(1), np.array(1), np.array(1.0), 1 + 0j, np.float32(1), np.bool_(True), [1]],
    [0, False, 0.0, -0.0, np.float64(-0.0), np.int8(0), None, "", b"", (), [], {}, math.nan],
    ["a", b"a", np.str_("a"), ("a",), ["a"], {"a": 1}, {"a": 1.0}, {"a": True}],
    [{1: 2.0}, {True: 2.0}, {1.0: 2.0}, {"1": 2.0}, {1: 2.0, 2: 3.0}, {2: 3.0, 1: 2.0}],
    [slice(1), slice(True), slice(0, 1), slice(0, 1, None), slice(None, 1), range(1), range(0, 1, 2), range(0)],
    [range(1, 1), range(0), range(2, 2), (), slice(0)],
    [float, np.float64, np.dtype(float), np.dtype("f4"), np.float32, "float64", len, np.add, np.multiply, ...],
    [(1.0, 2.0), [1.0, 2.0], Point(1.0, 2.0), Layer(1.0, 2.0), Twin(1.0, 2.0), np.array([1.0, 2.0])],
    [np.array([1.0, 2.0]), np.array([1, 2]), np.array([1.0, 2.0], "f4"), np.array([[1.0, 2.0]]), np.array([1.0])],
]  # fmt: skip
arrays = st.builds(
    an_array,
    st.sampled_from(["f8", "f4", "i8", "i4", "u1", "?", "c16"]),
    st.sampled_from([(), (1,), (2,), (3,), (2, 3), (3, 2), (1, 3), (0, 2), (2, 2, 2)]),
    st.sampled_from(["C", "F", "strided", "reversed"]),
    st.integers(0, 3),
)
leaves = st.one_of(arrays, *map(st.sampled_from, FAMILIES))


def trees(inner):
    return st.one_of(
        inner,
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", 1]), inner, max_size=2),
        st.builds(Point, inner, inner),
        st.builds(Layer, inner, inner),
        st.builds(Twin, inner, inner),
    )


def exact(value):
    """A result as comparable data: types and bits."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [exact(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic | float | complex):
        return type(value).__name__, np.asarray(value).dtype.str, np.shape(value), np.asarray(value).tobytes()
    return type(value).__name__, repr(value)


def outcome(function, *args, **kwargs):
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return exact(plain(function(*args, **kwargs)))
    except Exception as error:
        return type(error).__name__


CONSUME, WRITE = fx.futurize(consume_call), fx.futurize(write_first)


@settings(max_examples=60)
@given(st.lists(leaves | trees(leaves), min_size=1, max_size=3), leaves, st.integers(0, 8), st.booleans())
def test_arguments_changed_in_one_place(args, other, place, by_name):
    changed = list(args)
    changed[place % len(args)] = other
    for each in (args, changed, args, [*args, other], args[:-1], changed):
        positional, named = (each[:1], dict(zip("pqr", each[1:], strict=False))) if by_name else (each, {})
        assert outcome(CONSUME, *positional, **named) == outcome(consume_call, *positional, **named)


@settings(max_examples=40)
@given(st.sampled_from(FAMILIES), st.data())
def test_values_that_are_equal_and_differ(family, data):
    wrap = data.draw(st.sampled_from([lambda x: x, lambda x: [x], lambda x: {"k": x}, lambda x: Point(x, 1)]))
    for value in data.draw(st.permutations(family)):
        assert outcome(CONSUME, wrap(value)) == outcome(consume_call, wrap(value)), value


@settings(max_examples=40)
@given(st.lists(arrays, min_size=1, max_size=2), st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans())
def test_writes_into_arrays_that_are_or_share_one_another(bases, order, frozen):
    def made():
        pool = []
        for base in copy.deepcopy(bases):
            base.flags.writeable = not frozen
            pool += [base, base[::-1] if base.ndim else base[...], base.T]
        return [pool[k % len(pool)] for k in order]

    ours, theirs = made(), made()
    assert outcome(WRITE, ours, 2) == outcome(write_first, theirs, 2)
    assert exact(ours) == exact(theirs)
    distinct = [np.array(array) for array in theirs]
    assert outcome(WRITE, distinct, 1) == outcome(write_first, copy.deepcopy(distinct), 1)


def test_results_of_other_calls_are_told_from_arrays_and_numbers():
    double = fx.futurize(lambda x: x * 2)
    values = [np.float64(1), 1.0, np.array(1.0), np.array([1.0]), np.array([1]), True, np.float32(1), 1 + 0j]
    for value in values + values:
        assert outcome(CONSUME, double(value)) == outcome(consume_call, value * 2), value


def test_the_same_call_is_traced_once():
    f = fx.futurize(consume_call)
    args = [np.ones((2, 3)), 1, 2.0, {"a": [np.ones(2), None]}, Point(1.0, "x"), Layer(np.ones(1), slice(3)), len]
    for _ in range(3):
        f(*copy.deepcopy(args), key=np.float32(2))
    assert sum(map(len, f._variants.values())) == 1
