"""Functions with prints and checks, to be differentiated (in test modules pytest rewrites asserts)."""

import futurex as fx


def talkative(x):
    print("sum", x.sum())
    assert x[0] > 0, "the first must be positive"
    if x[1] > 5:
        raise ValueError("the second is too large")
    print("squares", x * x)
    return (x**3).sum()


@fx.futurize
def caller(x):
    print("begin")
    slope = fx.grad(talkative)(x)
    print("end")
    return slope
