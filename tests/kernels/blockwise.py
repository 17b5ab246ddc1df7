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
