"""Which numbers, tuples and booleans a function takes for an axis, and what it says to the others."""

import warnings

import numpy as np
import pytest
from compare import check, outcome

import futurex as fx

FUNCTIONS = {
    **dict.fromkeys((
        "sum", "prod", "min", "max", "any", "all", "mean", "std", "var", "median", "argmax", "argmin", "cumsum",
        "cumprod", "sort", "argsort", "ptp", "count_nonzero", "nansum", "nanmax", "nanmean", "nancumsum", "flip",
        "squeeze", "expand_dims", "diff", "gradient", "trapezoid", "average", "unique", "concatenate", "stack",
        "cumulative_sum", "linalg.norm", "fft.fft",
    ), ()),
    "quantile": (0.5,), "percentile": (50,), "roll": (1,), "repeat": (2,), "take": (0,), "delete": (0,),
    "insert": (0, 1.0), "append": (1.0,), "split": (1,), "array_split": (2,), "compress": ([True],),
    "argpartition": (0,), "partition": (0,),
}  # fmt: skip
ARRAYS = [np.array(1.5), np.array([1.0, 2.0]), np.zeros((2, 0)), np.arange(6.0).reshape(2, 3)]
AXES = [0, 1, -1, 2, -3, (0,), (0, 1), (0, 0), (), True, None, 1.0, np.int64(0), np.True_]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_axis_means_what_it_means_in_numpy(name):
    function = np
    for part in name.split("."):
        function = getattr(function, part, None)
    if function is None:
        pytest.skip(f"this NumPy has no {name}")
    for x in ARRAYS:
        for axis in AXES:
            def call(x, axis=axis):
                return function(x, *FUNCTIONS[name], axis=axis)

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected, actual = outcome(call, (x,)), outcome(fx.futurize(call), (x,))
            assert actual == expected, f"{name} of {x.shape} along {axis!r}"


def test_flip_of_a_number_is_a_scalar():
    for value in (3.0, np.float32(3.0), np.array(3), True):
        flipped = fx.futurize(lambda x: np.flip(x))(value).result()
        assert type(flipped) is type(np.flip(value))


SEQUENCES = [
    lambda x: np.moveaxis(x, range(2), [1, 2]),
    lambda x: np.moveaxis(x, np.array([0, 1]), (2, 1)),
    lambda x: np.flip(x, [0, 2]),
    lambda x: np.roll(x, 1, (0, 1)),
    lambda x: np.roll(x, [1, 2], 1),
    lambda x: np.roll(x, np.array([1, 2]), range(2)),
    lambda x: np.roll(x, x[0, 0, :2].astype(int) + 1, (0, 1)),
    lambda x: np.transpose(x, range(2, -1, -1)),
    lambda x: x.transpose(np.array([1, 0, 2])),
    lambda x: x.reshape(np.array(x.shape)[::-1]),
    lambda x: np.reshape(x, range(4, 7, 2)),
    lambda x: np.ones(np.array(x.shape) + 1) * x[0, 0, 1],
    lambda x: np.broadcast_to(x, np.array([2, *x.shape])),
]


@pytest.mark.parametrize("function", SEQUENCES)
def test_axes_and_shapes_are_sequences_of_any_kind(function):
    check(function, np.arange(24.0).reshape(2, 3, 4))


REFUSED = [
    lambda x: np.moveaxis(x, [0, 1], [2, 2]),
    lambda x: np.moveaxis(x, [0, 0], [1, 2]),
    lambda x: x.transpose(()),
    lambda x: x.transpose(0, 1, 1),
    lambda x: x[:1].squeeze((0, 0)),
    lambda x: np.roll(x, (1, 2), (0, 1, 2)),
]


@pytest.mark.parametrize("function", REFUSED)
def test_axes_that_are_named_twice_or_left_out_are_refused(function):
    x = np.arange(24.0).reshape(2, 3, 4)
    expected = outcome(function, (x,))
    assert expected[0][0] == "error"
    assert outcome(fx.futurize(function), (x,)) == expected
