"""A function with effects (in test modules pytest rewrites asserts)."""


def noisy(x):
    print("inside", len(x))
    assert x[0] > 0, "positive"
    return (x * x).sum()
