"""``np.isin``: comparisons with a few numbers, and NumPy's own code for others."""

import numpy as np
import pytest

import futurex as fx

RNG = np.random.default_rng(8)
INTEGERS = RNG.integers(-20, 20, (30, 40))
FLOATS = RNG.normal(size=2000).round(1)
FEW = {
    "integers": (INTEGERS, [3, -5, 7]),
    "one": (INTEGERS, (3,)),
    "with a repetition": (INTEGERS, [3, 3, 4]),
    "bytes, of which some cannot be": (INTEGERS.astype(np.uint8), [300, -1, 5, 250]),
    "halves among integers": (INTEGERS, [2.5, 3.0]),
    "an integer that is no double": (np.full(40, 2**53 + 1), [2.0**53]),
    "doubles": (FLOATS, [0.1, -0.3, 1]),
    "singles, and a double": (FLOATS.astype(np.float32), [0.1, 0.5]),
    "nan and infinity": (np.where(FLOATS > 1, np.nan, np.where(FLOATS == 0.5, np.inf, FLOATS)), [np.nan, np.inf]),
    "zeros of both signs": (FLOATS * 0, [-0.0]),
    "an array": (INTEGERS, np.array([[1, 2], [3, 4]])),
}
OTHERS = {
    "many": (INTEGERS, list(range(17))),
    "none": (INTEGERS, []),
    "none that can be": (INTEGERS.astype(np.uint8), [300]),
    "few elements": (INTEGERS[0, :5], [3]),
    "truths": (INTEGERS > 3, [True]),
    "complex numbers": (FLOATS + 0j, [0.1]),
    "a large integer": (INTEGERS, [2**70]),
}


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("case", [*FEW, *OTHERS])
def test_as_numpy(case, invert):
    elements, numbers = (FEW | OTHERS)[case]
    expected = np.isin(elements, numbers, invert=invert)
    f = fx.futurize(lambda x: np.isin(x, numbers, invert=invert))
    for _ in range(3):
        found = np.asarray(f(elements))
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", FEW)
def test_few_numbers_are_compared(case):
    elements, numbers = FEW[case]
    numbers = numbers.tolist() if isinstance(numbers, np.ndarray) else numbers
    f = fx.lower(lambda x: np.isin(x, np.array(numbers)), elements)
    ops = [node.op for node in f.graph.nodes]
    assert "equal" in ops
    assert "native" not in ops


def test_numbers_of_the_run_stay_with_numpy():
    f = fx.futurize(lambda x, y: (np.isin(x, y), np.isin(x, [y[0], 3])))
    for found, expected in zip(f(INTEGERS, INTEGERS[0]), f.__wrapped__(INTEGERS, INTEGERS[0]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_wrong_kinds_are_numpys_errors():
    with pytest.raises(ValueError, match="Invalid kind"):
        fx.futurize(lambda x: np.isin(x, [1], kind="tree"))(INTEGERS)
