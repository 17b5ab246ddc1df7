"""Arrays of a few columns in another order are put together of columns."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import optimise

RNG = np.random.default_rng(3)
PICTURE = RNG.integers(0, 256, (192, 256, 3)).astype(np.uint8)
POINTS = RNG.normal(size=(20_000, 4))

JOINED = {
    "colours backwards": (lambda x: x[:, :, ::-1] + np.uint8(1), PICTURE),
    "and converted": (lambda x: x[:, :, ::-1].astype(np.float32) / 255, PICTURE),
    "every other one": (lambda x: np.sqrt(np.abs(x[:, ::-2])), POINTS),
    "read twice": (lambda x: (x[:, ::-1] * 2, x[:, ::-1] - 1.0), POINTS),
    "named by a list": (lambda x: x[:, :, [2, 1, 0]], PICTURE),
    "one twice, from the end": (lambda x: x[:, [0, -1, 0]] * 2.0, POINTS),
    "taken": (lambda x: np.take(x, [3, 1], axis=1), POINTS),
    "colours as planes": (lambda x: np.stack([x[..., 2], x[..., 1], x[..., 0]]), PICTURE),
}


def ops(function, *arguments):
    return [node.op for node in optimise(fx.lower(function, *arguments).graph).nodes]


@pytest.mark.parametrize("case", JOINED)
def test_regions_read_columns(case):
    function, x = JOINED[case]
    found = ops(function, x)
    assert "fused_join" in found
    assert "gather" not in found
    pairs = [each if isinstance(each, tuple) else (each,) for each in (fx.futurize(function)(x), function(x))]
    for result, own in zip(*pairs, strict=True):
        assert (result.dtype, result.shape) == (own.dtype, own.shape)
        np.testing.assert_array_equal(result, own)


KEPT = {
    "small": (lambda x: x[:, ::-1] * 2, POINTS[:100]),
    "many columns": (lambda x: x[:, ::-1] * 2, RNG.normal(size=(2000, 40))),
    "rows as they lie": (lambda x: x[::-1] * 2, POINTS),
    "a product reads it": (lambda x: x[:, ::-1] @ x.T[:, :3], POINTS),
    "named by what is computed": (lambda x: x[:, (x[0, :2] > 9).astype(int)], POINTS),
}


@pytest.mark.parametrize("case", KEPT)
def test_others_stay_as_they_are(case):
    function, x = KEPT[case]
    assert not {"fused_join", "concatenate"} & set(ops(function, x))
    np.testing.assert_array_equal(fx.futurize(function)(x), function(x))


def test_columns_out_of_bounds_raise_as_numpy_does():
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 1 with size 4"):
        fx.futurize(lambda x: x[:, [0, 4]])(POINTS).result()


def test_slopes_of_columns_in_another_order():
    weights = RNG.normal(size=(20_000, 4))
    slope = fx.grad(lambda x: (x[:, ::-1] * weights + x[:, [1, 1, 0, 2]] ** 2).sum())(POINTS)
    expected = weights[:, ::-1].copy()
    for place in (1, 1, 0, 2):
        expected[:, place] += 2 * POINTS[:, place]
    np.testing.assert_allclose(slope, expected, rtol=1e-12)
