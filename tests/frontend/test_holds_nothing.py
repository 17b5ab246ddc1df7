"""When a call is over nothing holds its arguments, nor what its callers have in their variables."""

import contextlib
import gc
import weakref

import numpy as np
import pytest

import futurex as fx


def divided(x, n):
    return x.sum() + 1 / n


def masked(x):
    return np.ma.masked_where(x > 0, x).sum() + x.sum()


def plain(x):
    return np.linalg.eig(np.outer(x, x))[0]


def bad_shape(x):
    return x @ np.ones(7)


def raises(x):
    if x.sum() > 0:
        raise RuntimeError("positive")
    return x


def out_of_bounds(x, i):
    return x[i]


def fragment(x):
    return np.array(sorted(str(x.sum()).encode())).sum() + x.sum()


def inverse(x, n):
    return x / (1 // n)


def not_differentiable(x):
    return np.unique(x).sum()


def recursive(x):
    def halved(a):
        return a if a.sum() < 1 else halved(a / 2)

    return halved(x)


class Large:
    """What a caller has beside the call."""


CALLS = [
    (divided, (3,)), (masked, ()), (plain, ()), (bad_shape, ()), (raises, ()), (out_of_bounds, (7,)),
    (out_of_bounds, (np.array([9]),)), (fragment, ()), (inverse, (0,)), (not_differentiable, ()), (recursive, ()),
]  # fmt: skip


@pytest.mark.parametrize("transform", [fx.futurize, fx.grad], ids=["call", "grad"])
@pytest.mark.parametrize(("function", "others"), CALLS, ids=[f"{f.__name__}{n}" for n, (f, _) in enumerate(CALLS)])
def test_nothing_is_held(function, others, transform):
    staged = transform(function)

    def caller():
        large, x = Large(), np.ones(5)
        for _ in range(4):
            with contextlib.suppress(ValueError, RuntimeError, IndexError, ArithmeticError, TypeError, np.ma.MaskError):
                np.asarray(staged(x, *others))
        return weakref.ref(large), weakref.ref(x)

    held = caller()
    gc.collect()
    assert [each() for each in held] == [None, None]
    assert staged.explain()  # alive, and what it knows with it
