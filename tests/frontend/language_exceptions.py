# ruff: noqa: RET504
"""Python's exceptions, assertions and contexts in staged functions."""

import contextlib
import warnings
from functools import partial

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
X = np.arange(12.0).reshape(3, 4)
both = partial(cases.signs, V)


@cases(X)
def nditer_write(x):
    y = x.copy()
    with np.nditer(y, op_flags=["readwrite"]) as it:
        for v in it:
            v[...] = 2 * v
    return y


@both()
def return_in_with(x):
    with np.errstate(all="ignore"):
        if x[0] > 0:
            return x
        return x * 2


@both()
def return_in_with_then(x):
    with np.errstate(divide="ignore"):
        if x[0] > 0:
            return x
    return x * 2


@both()
def return_in_try(x):
    try:
        if x[0] > 0:
            return x
    finally:
        y = x * 2
    return y


@both()
def return_in_loop_in_with(x):
    with np.errstate(divide="ignore"):
        for v in x:
            if v > 0.2:
                return v
    return x[0]


@both()
def break_in_with_in_loop(x):
    s = 0.0
    for v in x:
        with np.errstate(divide="ignore"):
            if v > 0.7:
                break
            s += v
    return s


@both()
def suppress_warnings(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = np.sqrt(x)
    return y


@contextlib.contextmanager
def scaled(k):
    yield k * 2


@both()
def user_contextmanager(x):
    with scaled(x) as t:
        y = x * t
    return y


@both()
def nullctx(x):
    with contextlib.nullcontext(x) as t, contextlib.suppress(KeyError):
        y = x * t
    return y


@both()
def try_except_safe(x):
    try:
        y = x * 2
    except ValueError:
        y = x
    else:
        y = y + 1
    return y


@both()
def try_index_known(x):
    try:
        y = x[3]
    except IndexError:
        y = x[0]
    return y


@both()
def try_key(x):
    d = {"a": x}
    try:
        y = d["b"]
    except KeyError:
        y = x * 3
    return y


@both()
def try_static_raise(x):
    try:
        raise ValueError("x")
    except ValueError as e:
        y = x * len(str(e))
    return y


@both(staged=False)
def try_shape_mismatch(x):
    try:
        y = x + np.ones(3)
    except ValueError:
        y = x
    return y


@both()
def try_int_conv(x):
    try:
        n = int("12")
    except ValueError:
        n = 0
    return x * n


@both()
def raise_fstring(x):
    if x[0] > 0:
        raise ValueError(f"bad value {x[0]} at {x[1]:.3f}")
    return x


@both()
def assert_fstring(x):
    assert x[0] < 0, f"bad value {x[0]}"
    return x


@both()
def raise_in_loop(x):
    s = 0.0
    for i in range(30):
        s += x[i % 7]
        if s > 3:
            raise ValueError("too large")
    return s


@both()
def assert_in_loop(x):
    s = 0.0
    for i in range(30):
        s += x[i % 7]
        assert s < 3, "too large"
    return s


@both()
def raise_from(x):
    if x[0] > 0:
        raise ValueError("a") from None
    return x


@both()
def write_then_raise(x):
    y = x.copy()
    if x[0] > 0:
        y[0] = 3
        raise ValueError("a")
    return y


@both(staged=False)
def try_finally_loop(x):
    s = 0.0
    for v in x:
        try:
            if v > 0.5:
                continue
            s += v
        finally:
            s += 0.1
    return s
