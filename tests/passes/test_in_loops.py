"""What bodies of loops over large arrays become: one kernel that writes a round's result where it belongs."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes import joins
from futurex.passes.pipeline import optimise
from futurex.runtime.plan import compile_plan

RNG = np.random.default_rng(9)
SQUARE, ROW, POINTS = RNG.normal(size=(300, 300)), RNG.normal(size=100_000), RNG.normal(size=(60_000, 2))


def heat(u):
    u = u.copy()
    for _ in range(40):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def advection(u):
    u = u.copy()
    for _ in range(40):
        u[1:] = u[1:] - 0.3 * (u[1:] - u[:-1])
    return u


def upwards(u):
    u = u.copy()
    for _ in range(40):
        u[:-1] += 0.1 * u[1:]
    return u


def waves(u):
    u, v = u.copy(), u.copy()
    for _ in range(40):
        w = 2 * u - v
        w[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1])
        v, u = u, w
    return u


def round_about(u):
    u = u.copy()
    for _ in range(40):
        u = u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)
    return u


def shifted(x):
    for _ in range(40):
        x = np.concatenate([x[1:], x[:1]]) * 0.5 + x * 0.5
    return x


def turned(p):
    for _ in range(40):
        p = np.stack([p[:, 0] * 0.9 - p[:, 1] * 0.1, p[:, 0] * 0.1 + p[:, 1] * 0.9], axis=1)
    return p


def exchanged(p):
    for _ in range(40):
        p = p[:, ::-1] * 0.5 + 1.0
    return p


def until_it_rests(u):
    u, change = u.copy(), 1.0
    while change > 1e-1:
        before = u[1:-1, 1:-1].copy()
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        change = np.abs(u[1:-1, 1:-1] - before).max()
    return u


CASES = {
    heat: (SQUARE, "fused_store"), advection: (SQUARE, "fused_store"), upwards: (SQUARE, "fused_store"),
    waves: (SQUARE, "fused_join"), round_about: (SQUARE, "fused_join"), shifted: (ROW, "fused_join"),
    turned: (POINTS, "fused_join"), exchanged: (POINTS, "fused_join"), until_it_rests: (SQUARE, None),
}  # fmt: skip


@pytest.mark.parametrize("function", CASES)
def test_a_round_is_one_kernel(function):
    x, op = CASES[function]
    program = fx.lower(function, x)
    plan = compile_plan(program.graph)
    bodies = [inner for each in plan.instructions for inner in each.kernel.plans]
    assert op is None or op in {each.node.op for inner in bodies for each in inner.instructions}
    given, expected = x.copy(), function(x)
    for _ in range(3):
        np.testing.assert_array_equal(plan.run([x])[0], expected)
    np.testing.assert_array_equal(x, given)


@pytest.mark.parametrize("function", CASES)
def test_values_are_numpys(function):
    x, _ = CASES[function]
    f = fx.futurize(function)
    for scale in (1.0, 2.0, 0.5):
        np.testing.assert_array_equal(f(scale * x), function(scale * x))


@pytest.mark.parametrize("function", [heat, advection, round_about, turned])
def test_slopes_through_rounds(function):
    x, _ = CASES[function]
    weights = RNG.normal(size=x.shape)
    slope = np.asarray(fx.grad(lambda x: (function(x) * weights).sum())(x))
    step = RNG.normal(size=x.shape)
    along = ((function(x + 1e-6 * step) - function(x - 1e-6 * step)) * weights).sum() / 2e-6
    assert (slope * step).sum() == pytest.approx(along, rel=1e-6)


def of_rounds(function, x):
    """The ops of what a round is."""
    (loop,) = (node for node in optimise(fx.lower(function, x).graph).nodes if node.op == "loop")
    return [node.op for node in loop.attrs["body"].nodes]


def life(world):
    for _ in range(40):
        near = [np.roll(np.roll(world, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        count = sum(near)
        world = ((count == 3) | ((world == 1) & (count == 2))).astype(np.uint8)
    return world


@pytest.mark.parametrize(("function", "extent"), [(round_about, 40), (round_about, 131), (life, 40), (shifted, 50)])
def test_joins_of_a_compiled_loop_are_written_block_by_block(function, extent):
    x = RNG.normal(size=(extent, extent)) if function is not life else (RNG.random((extent, extent)) < 0.4).astype("u1")
    ops = of_rounds(function, x)
    assert "concatenate" not in ops
    assert "store" in ops
    staged = fx.futurize(function)
    for k in range(4):
        given = np.roll(x, k, 1)
        np.testing.assert_array_equal(staged(given), function(given), strict=True)


def test_small_joins_and_long_rounds_stay(monkeypatch):
    assert "concatenate" in of_rounds(round_about, SQUARE[:16, :16])
    assert of_rounds(round_about, SQUARE[:40, :40]).count("store") == 9
    monkeypatch.setattr(joins, "MOST_INSIDE", 20)
    assert "concatenate" in of_rounds(round_about, SQUARE[:40, :40])


def test_an_argument_that_is_given_away_is_written_over():
    def rounds(u):
        for _ in range(40):
            u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        return u

    f = fx.futurize(lambda u: rounds(u.copy()), donate="u")
    for _ in range(3):
        np.testing.assert_array_equal(f(SQUARE.copy()), heat(SQUARE))


def test_what_lies_side_by_side_in_rows_is_written_there():
    """As the slopes of gates, which are computed of the same arrays in one trip."""

    def gates(u):
        for _ in range(40):
            v = np.tanh(u)
            u = np.concatenate([v[:, :20] * u[:, 20:], v[:, 20:] + u[:, :20]], axis=1)
        return u

    assert "concatenate" not in of_rounds(gates, SQUARE[:40, :40])
    np.testing.assert_allclose(fx.futurize(gates)(SQUARE[:40, :40]), gates(SQUARE[:40, :40]), rtol=1e-9)
