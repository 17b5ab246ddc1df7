"""Large arguments that are views with gaps, or go backwards, are read where they lie."""

import numpy as np
import pytest
from compare import equal_to_rounding
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import futurex as fx
from futurex.frontend.lying import steps_of

pytestmark = pytest.mark.usefixtures("either_way")

VIEWS = {
    "every other": lambda x: x[:, ::2], "rows apart": lambda x: x[::3], "backwards": lambda x: x[::-1],
    "rows backwards": lambda x: x[:, ::-2], "inner": lambda x: x[1:-1, 1:-1], "turned": lambda x: x[1:-1, ::2].T,
    "turned back": lambda x: x.T[::-1, 1:], "channel": lambda x: x.reshape(300, 150, 2)[..., 1],
    "one axis": lambda x: x.reshape(-1)[1::2], "three": lambda x: x.reshape(30, 10, 300)[::-1, 1:8, 3::2],
}  # fmt: skip
CASES = {
    "elementwise": lambda x: np.exp(-x) * 2 + x,
    "several": lambda x: (-x, x > 0, x.astype(np.float32)),
    "centred": lambda x: (x - x.mean(0)) / x.std(0),
    "sums": lambda x: (x.sum(), x.sum(0), x.max(-1), x.argmax(0), np.cumsum(x, axis=-1)),
    "stencil": lambda x: x[1:-1] * 4 - x[:-2] - x[2:],
    "elements": lambda x: (x[1], x[..., ::2] * 2, x[::-1] + 1, x.ravel()[5:9], x.reshape(-1) * 2, x.T * 3),
    "copies": lambda x: (x.copy(), np.ascontiguousarray(x), np.asfortranarray(x), np.sort(x, axis=-1)),
    "views": lambda x: (x, x[1:], x.T),
    "loop": lambda x: sum(x[k] * k for k in range(4)),
}


def whole(seed=0):
    return np.random.default_rng(seed).normal(size=(300, 300))


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("case", CASES)
def test_values(case, name):
    staged = fx.futurize(CASES[case])
    for seed in range(4):
        x = VIEWS[name](whole(seed))
        equal_to_rounding(staged(x), CASES[case](x))
        np.testing.assert_array_equal(x, VIEWS[name](whole(seed)))


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_is_copied(name):
    staged, x = fx.futurize(CASES["elementwise"]), VIEWS[name](whole())
    equal_to_rounding(staged(x), CASES["elementwise"](x))
    variant = staged.trace(x)
    (array,) = variant.lying.inputs([x])
    assert np.may_share_memory(array, x)
    assert array.flags.c_contiguous
    kinds = [each.node.op for each in variant.plan.instructions]
    assert kinds == ["load", "fused"]


@pytest.mark.parametrize("name", ["turned", "inner", "channel"])
def test_results_lie_as_numpys(name):
    staged, x = fx.futurize(CASES["elementwise"]), VIEWS[name](whole())
    assert [np.asarray(staged(x)).strides for _ in range(3)] == [CASES["elementwise"](x).strides] * 3


@pytest.mark.parametrize("axis", [0, -1, None])
@pytest.mark.parametrize("reduction", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", VIEWS)
def test_reductions_have_numpys_bits(name, reduction, axis):
    """Their order of summation follows the layout."""
    staged, x = fx.futurize(lambda x: getattr(x, reduction)(axis=axis)), VIEWS[name](whole())
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(staged(x)), getattr(x, reduction)(axis=axis))


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_stencil_reads_where_its_argument_lies(order):
    def stencil(x):
        return x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:]

    staged, x = fx.futurize(stencil), np.array(whole(), order=order)[1:, 1:]
    for _ in range(3):
        equal_to_rounding(staged(x), stencil(x))
        assert np.asarray(staged(x)).strides == stencil(x).strides
    assert not any(node.op == "transpose" and node.inputs[0].op == "load" for node in staged.trace(x).plan.graph.nodes)


def grown(x, y):
    x += y
    x[3] = 0.5
    return x[:5] * 2


def shifted(x, y):
    x[1:] = y[:-1] * 2
    return y


def masked(x, y):
    x[y > 0] = 0
    return x + y


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("writes", [grown, shifted, masked])
@pytest.mark.parametrize("other", ["apart", "between", "same", "over"])
def test_writes_arrive(writes, name, other):
    """Also where another argument lies in the gaps, or on top."""

    def arguments(seed):
        base = whole(seed)
        x = VIEWS[name](base)
        if other == "same":
            return base, x, x
        if other == "over":
            return base, x, x[::-1]
        if other == "apart":
            return base, x, VIEWS[name](whole(9))
        fits = name in ("every other", "channel", "one axis")
        return base, x, {"every other": base[:, 1::2], "one axis": base.reshape(-1)[::2],
                         "channel": base.reshape(300, 150, 2)[..., 0]}[name] if fits else x.copy()  # fmt: skip

    staged = fx.futurize(writes)
    for seed in range(4):
        (mine, *given), (plain, *expected) = arguments(seed), arguments(seed)
        equal_to_rounding(staged(*given), writes(*expected))
        np.testing.assert_array_equal(mine, plain)


def test_memory_of_a_view_alone_is_read():
    """From its first element to the last: what lies before and behind is not the caller's to show."""
    staged = fx.futurize(CASES["elementwise"])
    for name, make in VIEWS.items():
        x = make(whole())
        (array,) = fx.futurize(CASES["elementwise"]).trace(x).lying.inputs([x])
        assert np.lib.array_utils.byte_bounds(array) == np.lib.array_utils.byte_bounds(x), name
        equal_to_rounding(staged(x), CASES["elementwise"](x))


def test_how_views_lie():
    x = np.arange(24).reshape(4, 6)
    for view in (x[::-1, 1::2].T, x[:, ::-1], x[1:3, 2:3], x.reshape(2, 3, 4)[:, ::-2, 1]):
        steps = steps_of(view)
        low = (np.lib.array_utils.byte_bounds(view)[0] - np.lib.array_utils.byte_bounds(x)[0]) // x.itemsize
        memory = x.reshape(-1)[low : low + steps.size]
        found = as_strided(memory[steps.start :], steps.shape, [step * x.itemsize for step in steps.steps])
        np.testing.assert_array_equal(found, view.transpose(steps.axes))
    assert steps_of(sliding_window_view(np.arange(9), 3)) is None
    assert steps_of(np.broadcast_to(np.arange(9), (4, 9))) is None
    assert steps_of(np.zeros((400, 40))[:, 0]) is None  # too far apart


def test_those_that_are_read_only_and_of_other_types():
    x = whole()[:, ::2]
    x.flags.writeable = False
    parts = (np.arange(90_000, dtype=np.int16)[::-2], (whole() > 0)[1:, 1:], whole()[::2] + 1j)
    staged = fx.futurize(lambda x: (x * 3, x[1:], x.sum()))
    for _ in range(3):
        for each in (x, *(part[::-1] for part in parts)):
            equal_to_rounding(staged(each), (each * 3, each[1:], each.sum()))
    assert not np.asarray(staged(x)[1]).flags.writeable


def test_derivatives():
    x, y = whole()[:, ::2], whole(1)[::-1, 1::2]
    staged = fx.grad(lambda x, y: (np.sin(x) * y).sum())
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(staged(x, y)), np.cos(x) * y, rtol=1e-12, atol=1e-12)


def test_rounds_of_a_compiled_loop():
    def filtered(x):
        state = np.zeros(x.shape[1])
        for k in range(x.shape[0]):
            state = state * 0.5 + x[k]
        return state

    staged, x = fx.futurize(filtered), whole()[::-1, ::2]
    for _ in range(3):
        equal_to_rounding(staged(x), filtered(x))
