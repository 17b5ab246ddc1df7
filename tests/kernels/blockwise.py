"""Plans with one kernel that works through a matrix in blocks of rows, and how close their results have to be."""

import numpy as np

import futurex as fx
from futurex.runtime.plan import compile_plan


def planned(op, function, arguments, **options):
    """The lowered call, its plan, and the plan's one instruction of this op."""
    program = fx.lower(function, *arguments)
    plan = compile_plan(program.graph, **options)
    (made,) = (each for each in plan.instructions if each.node.op == op)
    return program, plan, made


def close(found, wanted, rtol=2e-4):
    """The same shapes, and values within ``rtol`` and 2e-5 of the largest one."""
    for actual, value in zip(found, wanted, strict=True):
        assert actual.shape == np.shape(value)
        np.testing.assert_allclose(actual, value, rtol=rtol, atol=2e-5 * float(np.max(np.abs(value))))


def precisely(op, function, arguments, wanted, threads, rtol=2e-4):
    """Two runs give these values, and code computes them where there is a compiler."""
    program, plan, made = planned(op, function, arguments, threads=threads)
    for _ in range(2):
        close(plan.run(program.flatten(*arguments)), wanted, rtol)
    if made.kernel.backend == "numba":
        assert made.kernel.late.interpreted == 0


def spread_alike(function, arguments):
    """NaN and infinity among the factors of a product come to where NumPy brings them."""
    arguments[2][3, 5], arguments[1][77, 9] = np.nan, np.inf
    program = fx.lower(function, *arguments)
    found = compile_plan(program.graph).run(program.flatten(*arguments))
    with np.errstate(invalid="ignore"):
        for actual, value in zip(found, function(*arguments), strict=True):
            np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(value))


def trained(loss, params, optimizer, x, y, steps, atol):
    """Derivative, optimizer and donation as users write them, beside the same in double precision; the step."""

    def step(params, state, x, y):
        value, gradient = fx.value_and_grad(loss)(params, x, y)
        params, state = optimizer.update(params, gradient, state)
        return params, state, value

    train = fx.futurize(step, donate=("params", "state"))
    held, state = params, optimizer.init(params)
    wide, wide_state = [np.float64(each) for each in params], optimizer.init([np.float64(each) for each in params])
    wide_y = np.float64(y) if y.dtype.kind == "f" else y
    for _ in range(steps):
        held, state, value = train(held, state, x, y)
        wide, wide_state, expected = step(wide, wide_state, np.float64(x), wide_y)
        np.testing.assert_allclose(float(value), float(expected), rtol=1e-4)
    for actual, exact in zip(held, wide, strict=True):
        np.testing.assert_allclose(np.asarray(actual), np.asarray(exact), rtol=0, atol=atol)
    return train
