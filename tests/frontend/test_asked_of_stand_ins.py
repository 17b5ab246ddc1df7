"""What arrays of texts, flat iterators, `zip` and `map` are asked, and compared with: their stand-ins answer as they
do, or the call runs as plain NumPy."""

import numpy as np
import pytest

import futurex as fx

LETTERS = np.array(["a", "b", "c"])


def texts_are_known(x, which):
    names = np.array(["a", "b", "c"])
    return x[names == which], np.where(which != names), names == None  # noqa: E711


def one_text_is_asked(x, which):
    names = np.array(["a", "b", "c"])
    total = 0.0
    for name, value in zip(names, x, strict=True):
        if name == which:
            total += value
    return total, names[1] == "b", names[0] == names[1], names[1:] == "b", names == LETTERS


def an_element_is_asked(x, which):
    return np.array(["a", "b", "c"])[1] == which, x


def a_part_is_asked(x, which):
    return np.array(["a", "b", "c"])[1:] == which, x


def bytes_are_texts_too(x, which):
    return x * (np.array([b"a", b"b", b"c"]) == which.encode()), np.array([1, 2, "a"]) == "a"


def flat_is_compared(x, which):
    found = np.any(x.flat == 0.0), np.count_nonzero(x.flat != 2.0), np.where(x.flat > 1.0, 1, 2), x.flat <= 1.0
    return found, np.arange(3) == x.flat, x.flat == x[::-1].flat, x.flat == [0, 5, 2]


def flat_goes_on(x, which):
    places, total = x.flat, 0.0
    for value in places:
        total += value
        if value > 0.5:
            break
    return total, [10 * value for value in places], list(places), list(zip(x.flat, x.flat, strict=True))


def flat_gives_pairs(x, which):
    places = np.concatenate([x, x[:1]]).flat
    return list(zip(places, places, strict=True))


def flat_goes_on_in_rounds(x, which):
    places, total = x.flat, 0.0
    for k in range(4):
        for value in places:
            total += value + k
    return total


def flat_says_where_it_is(x, which):
    places = x.flat
    return places.index, places.coords


def flat_is_left_in_rounds(x, which):
    places, total = x.flat, 0.0
    for k in range(3):
        for value in places:
            total += value + k
            break
    return total


def flat_is_no_key(x, which):
    return {x.flat: 1}


def flat_is_asked(x, which):
    return isinstance(x.flat, np.flatiter), type(x.flat).__name__, hasattr(x.flat, "index"), x.flags == x.flags


def iterators_are_asked(x, which):
    pairs, mapped = zip(x, x, strict=True), map(abs, x)
    return isinstance(pairs, zip), type(mapped).__name__, isinstance(enumerate(x), enumerate)


def random_numbers_are_asked(x, which):
    draws = np.random.RandomState(3)
    return type(draws).__name__, isinstance(draws, np.random.RandomState), draws.rand()


def arrays_have_classes(x, which):
    return x.__class__ is np.ndarray, x.sum().__class__.__name__, x[0].__class__ == np.float64


def arrays_are_of_classes(x, which):
    return (x > 0).__class__ in (list, np.ndarray), [value.__class__.__name__ for value in x], which.__class__ is str


def arrays_are_described(x, which):
    return x.__doc__[:20], x


def iterators_have_classes(x, which):
    return zip(x, x, strict=True).__class__.__name__, x


def arrays_have_attributes(x, which):
    named = hasattr(x, "__name__"), hasattr(x, "__module__"), hasattr(x, "mro"), hasattr(float(x[0]), "__name__")
    return named, hasattr(x, "is_scalar"), hasattr(x, "sum")


def arrays_lack_attributes(x, which):
    try:
        return x.__module__
    except AttributeError as error:
        return str(error)


def arrays_are_documented(x, which):
    return x.__doc__ is np.ndarray.__doc__, x.__reduce__()[0].__name__


@pytest.mark.parametrize(
    "function",
    [texts_are_known, one_text_is_asked, an_element_is_asked, a_part_is_asked, bytes_are_texts_too, flat_is_compared,
     flat_goes_on, flat_gives_pairs, flat_says_where_it_is, flat_is_left_in_rounds, arrays_are_described,
     iterators_have_classes,
     flat_goes_on_in_rounds, flat_is_no_key, flat_is_asked, iterators_are_asked, random_numbers_are_asked,
     arrays_have_classes, arrays_are_of_classes, arrays_have_attributes,
     arrays_lack_attributes, arrays_are_documented],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_the_same_as_plain(function):
    futurized = fx.futurize(function)
    for which in ("a", "c", "z", "a"):
        for first in (0.0, 0.75):
            x = np.array([first, 1.0, 2.0])
            assert outcome(futurized, x, which) == outcome(function, x, which)


def outcome(function, *args):
    try:
        return repr(settled(function(*args)))
    except TypeError as error:
        return repr(error)


def settled(value):
    if isinstance(value, fx.Array):
        return value.result()
    return type(value)(map(settled, value)) if type(value) in (list, tuple) else value


def test_arrays_of_known_texts_and_flat_comparisons_are_staged():
    for function in (texts_are_known, flat_is_compared):
        futurized = fx.futurize(function)
        futurized(np.arange(3.0), "a")
        assert "staged" in str(futurized.explain())


def turned(x):
    return x.mT if hasattr(x, "mT") else x


def test_an_attribute_that_raises():
    """``hasattr`` answers AttributeErrors alone."""
    f = fx.futurize(turned)
    for x in (np.ones((2, 3)), np.ones((4, 2, 3)), np.float64(2)):
        assert np.asarray(f(x)).shape == np.shape(turned(x))
    for _ in range(2):
        with pytest.raises(ValueError, match="matrix transpose with ndim < 2 is undefined"):
            f(np.ones(3))
