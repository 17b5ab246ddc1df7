"""Masked arrays in staged code give what ``np.ma`` gives: data, also under the mask, mask, dtype and fill value."""

import copy

import numpy as np
import pytest
from compare import bits, is_staged, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from masked_steps import ENDS, STARTS, STEPS

import futurex as fx

DTYPES = ("f8", "f4", "i8", "i4", "u1", "?")
X = np.array([[0.0, 1.0, -2.0, 3.0], [1.0, np.nan, 2.5, 4.0], [2.0, 1.0, np.inf, -0.0]])
Y = np.array([[1.0, 2.0, 0.0, -1.0], [3.0, 1.0, 1.0, 2.0], [0.5, 0.0, 2.0, 4.0]])
MASKS = {
    "none": None,
    "nothing": np.zeros((3, 4), bool),
    "some": Y > 1,
    "row": np.array([[True] * 4, [False, True, False, False], [False] * 4]),
    "all": np.ones((3, 4), bool),
}


def parts(value):
    """A result with masked arrays taken apart."""
    if value is np.ma.masked:
        return "np.ma.masked"
    if isinstance(value, np.ma.MaskedArray):
        mask = "nomask" if value._mask is np.ma.nomask else value._mask
        return {"data": np.asarray(value.data), "mask": mask, "fill": value.fill_value}
    if type(value) in (tuple, list):
        return type(value)(map(parts, value))
    return value


def outcome(function, args):
    """What a call gives, or the type of its error, and its arguments afterwards."""
    args = copy.deepcopy(args)
    try:
        with np.errstate(all="ignore"):
            found = "value", bits(parts(plain(function(*args))))
    except Exception as error:
        found = "error", type(error)
    return found, bits(parts(list(args)))


def program(names, x, y, mask):
    begin, *steps, finish = names
    m = STARTS[begin](x, y, mask)
    for name in steps:
        m = STEPS[name](m, y)
    return ENDS[finish](m, y), m


def arguments(dtype, mask, flat=False):
    with np.errstate(invalid="ignore"):
        x, y = (np.nan_to_num(a, nan=1, posinf=3) if dtype not in ("f8", "f4") else a for a in (X, Y))
        x, y = (abs(a) if dtype == "u1" else a for a in (x, y))
        x, y = x.astype(dtype), y.astype(dtype)
    chosen = MASKS[mask]
    if flat:
        x, y, chosen = x.ravel(), y.ravel(), None if chosen is None else chosen.ravel()
    return x, y, chosen


@pytest.fixture(scope="module", autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def check(names, args, futurized=None):
    expected = outcome(program, (names, *args))
    futurized = futurized or fx.futurize(program)
    for _ in range(2):
        actual = outcome(futurized, (names, *args))
        assert actual == expected, f"{names}\n{actual}\n is not\n{expected}\n{futurized.explain()}"
    return futurized


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", STARTS)
def test_makes_the_same(name, mask):
    for dtype in DTYPES if mask == "some" else ("f8", "u1"):
        futurized = check((name, "itself"), arguments(dtype, mask))
    assert is_staged(futurized, ((name, "itself"), *arguments("f8", mask)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", STEPS)
def test_steps_mean_the_same(name, mask):
    for dtype in DTYPES if mask == "some" else ("f8", "u1"):
        futurized = check(("with_mask", name, "itself"), arguments(dtype, mask))
        check(("where_mask", name, "itself"), arguments(dtype, mask))
    assert is_staged(futurized, (("with_mask", name, "itself"), *arguments("f8", mask)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ENDS)
def test_ends_mean_the_same(name, mask):
    for dtype in DTYPES if mask == "some" else ("f8", "u1"):
        futurized = check(("with_mask", name), arguments(dtype, mask))
        for begin in ("where_mask", "equal", "without_mask"):
            check((begin, name), arguments(dtype, mask))
    assert is_staged(futurized, (("with_mask", name), *arguments("f8", mask)))


NUMBERS = {
    "f8": [0.0, -0.0, 1.0, 2.0, -1.5, 3.0, 0.1, 1e300, np.nan, np.inf, -np.inf],
    "f4": [0.0, -0.0, 1.0, 2.0, -1.5, 3.0, 0.1, 1e30, np.nan, np.inf],
    "i8": [0, 1, 2, 3, -1, 5, 10**12],
    "i4": [0, 1, 2, 3, -1, 5, 1000],
    "u1": [0, 1, 2, 3, 200, 255],
    "?": [False, True],
}


@st.composite
def programs(draw):
    """A program over masked arrays, and its arguments."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.sampled_from([(2,), (5,), (2, 3), (3, 2)]))
    size = int(np.prod(shape))
    x, y = (
        np.array(draw(st.lists(st.sampled_from(NUMBERS[dtype]), min_size=size, max_size=size)), dtype).reshape(shape)
        for _ in range(2)
    )
    mask = draw(st.none() | st.lists(st.booleans(), min_size=size, max_size=size))
    mask = None if mask is None else np.array(mask).reshape(shape)
    steps = draw(st.lists(st.sampled_from(sorted(STEPS)), max_size=3))
    return (draw(st.sampled_from(sorted(STARTS))), *steps, draw(st.sampled_from(sorted(ENDS)))), (x, y, mask)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=100)
@given(programs())
def test_programs_mean_the_same(drawn):
    check(*drawn)


OUTSIDE = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
CASES = {}


def case(staged):
    def add(function):
        CASES[function.__name__] = function, staged
        return function

    return add


@case(False)
def from_outside(x):
    return x + OUTSIDE


@case(True)
def read_in_a_loop(x):
    m, total = np.ma.masked_greater(x, 2), 0.0
    for k in range(5):
        total = total + m.sum() * k
    return total


@case(True)
def written_in_a_loop(x):
    m = np.ma.array(x.copy(), mask=x > 100)
    for k in range(len(x)):
        if x[k] > 1:
            m[k] = np.ma.masked
    return m


@case(False)
def made_in_a_branch(x):
    m = np.ma.array(x, mask=x > 2)
    if x[0] > 0:
        m = m + 1
    else:
        m = np.ma.masked_less(x, 0)
    return m


@case(False)
def masked_in_a_branch(x):
    m = np.ma.array(x)
    if x[0] > 0:
        m[1] = np.ma.masked
    return m


@case(False)
def added_to_an_array(x):
    y = x.copy()
    y += np.ma.array(x, mask=x > 1)
    return y


@case(True)
def written_through_to_the_argument(x):
    m = np.ma.array(x, mask=x > 2, copy=False)
    m[0] = 50
    m += 1
    return m


@case(True)
def a_view_of_the_argument(x):
    m = np.ma.masked_where(x > 2, x, copy=False)
    x[0] = 9
    return m, m.filled(0)


@case(False)
def written_after_it_was_filled(x):
    m = np.ma.masked_greater(x, 50)
    y = m.filled(0)
    y[0] = 5
    return m, y


@case(False)
def a_shared_mask_is_written(x):
    m = np.ma.array(x, mask=x > 1)
    n = -m
    n[0] = np.ma.masked
    return m, n


@case(True)
def a_shared_view_is_written(x):
    m = np.ma.array(x, mask=x > 1)
    m[1:][0] = np.ma.masked
    m.reshape(-1)[-1] = 4
    return m


@case(True)
def is_it_masked(x):
    m = np.ma.masked_greater(x, 2)
    return [m[k] is np.ma.masked for k in range(3)]


@case(True)
def in_containers(x):
    return {"a": np.ma.masked_greater(x, 2), "b": [np.ma.masked_less(x, 0), x]}


@case(False)
def the_truth(x):
    return 1 if np.ma.masked_greater(x, 2) else 2


@case(False)
def its_rows(x):
    return [row + 1 for row in np.ma.masked_greater(x, 2)]


@case(False)
def its_text(x):
    return str(np.ma.masked_greater(x, 2))


@case(False)
def the_constant(x):
    return np.ma.masked


@case(False)
def its_median(x):
    return np.ma.median(np.ma.masked_less(x, 1))


@case(False)
def joined_by_numpy(x):
    return np.concatenate([np.ma.masked_less(x, 1), x])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_around_masked_arrays(name):
    function, staged = CASES[name]
    for x in ([1.0, 2.0, 3.0], [5.0, 1.0, 0.5], [-1.0, 0.5, 1.5], [3.0, 3.0, 3.0]):
        futurized = fx.futurize(function)
        expected = outcome(function, (np.array(x),))
        for _ in range(2):
            assert outcome(futurized, (np.array(x),)) == expected, futurized.explain()
        assert bool(is_staged(futurized, (np.array(x),))) == staged or expected[0][0] == "error", futurized.explain()


def test_a_run_that_finds_it_masked_is_plain():
    futurized = fx.futurize(lambda x: np.ma.masked_less(x, 1).min())
    assert float(futurized(np.array([0.5, 3.0, 2.0]))) == 2
    assert futurized(np.array([0.5, 0.0])) is np.ma.masked


def test_runs_that_fail_time_and_again_are_seldom_tried():
    futurized = fx.futurize(lambda x: np.ma.masked_less(x, 1).min())
    masked, seen = np.array([0.5, 0.0]), np.array([0.5, 3.0])
    assert all(futurized(masked) is np.ma.masked for _ in range(100))
    tried = max(row.count for row in futurized.profile())
    assert tried < 10
    assert all(float(futurized(seen)) == 3 for _ in range(1000))
    assert max(row.count for row in futurized.profile()) > tried + 200
    assert futurized(masked) is np.ma.masked


def test_derivatives():
    def spread(x):
        m = np.ma.masked_less(x, 1)
        return ((m - m.mean()) ** 2).sum() / m.max()

    x, step = np.array([0.5, 3.0, 2.0, 4.5]), 1e-6
    gradient = np.asarray(fx.grad(spread)(x))
    differences = [(spread(x + step * row) - spread(x - step * row)) / (2 * step) for row in np.eye(4)]
    np.testing.assert_allclose(gradient, differences, atol=1e-8)
    with pytest.raises(np.ma.MaskError):
        np.asarray(fx.grad(lambda x: np.ma.masked_less(x, 9).max())(x))


def test_what_comes_back_may_be_changed():
    m = fx.futurize(lambda x: np.ma.masked_less(x, 1) * 2)(np.array([0.5, 3.0, 2.0]))
    m[1] = np.ma.masked
    m.data[2] = 7
    assert type(m) is np.ma.MaskedArray
    assert m.filled(0).tolist() == [0.0, 0.0, 7.0]


def quotients(x, y):
    x, y = np.ma.array(x), np.ma.array(y)
    return np.ma.floor_divide(x, y), np.ma.remainder(x, y), np.ma.true_divide(x, y), np.ma.fmod(x, y), x // y, x / y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("x", "y"), [([5, 7, -3, 0], [0, 2, 0, 0]), ([1e308, 1.0, 0.0], [1.0, 2.0, 0.0])])
def test_quotients_outside_of_their_domain_are_masked(x, y):
    args = np.array(x), np.array(y)
    futurized = fx.futurize(quotients)
    for _ in range(2):
        assert outcome(futurized, args) == outcome(quotients, args)
    assert is_staged(futurized, args)
