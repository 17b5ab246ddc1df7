"""Functions that raise, catch, assert and enter contexts, on data."""

import contextlib
import warnings

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
LONG = np.sin(np.arange(40.0))


@cases(V)
@cases(-V)
def staged_assertions(x):
    assert x[0] < 0, "must be negative"
    assert x.shape == (7,)
    return x + 1


@cases(V, 7)
@cases(-V, 7)
def assertions_that_are_known_to_fail_where_data_leads(x, n):
    if x[0] > 100:
        x = x * 2
    elif x[0] < 0:
        x = x + 1
    else:
        assert n < 0, f"of {n}"
    if x[1] > 1.5:
        assert n == 8
    return x


@cases(V)
@cases(-V)
def staged_raises(x):
    if x[0] > 0:
        raise ValueError("positive")
    return x * 2


@cases(V, 2)
@cases(V, 5)
def plain_raises(x, n):
    if n > 3:
        raise KeyError(n)
    return x * n


@cases(V)
@cases(-V)
def a_write_before_a_failing_check(x):
    y = x
    y[1] = 9.0
    assert x[0] < 0
    y[2] = 8.0
    return y


@cases(V)
@cases(-V)
def a_raise_that_is_caught(x):
    try:
        if x[0] > 0:
            raise ValueError("positive")
        y = x + 1
    except ValueError:
        y = x - 1
    return y


@cases(V, np.array(3), staged=False)
@cases(V, np.array(30), staged=False)
def an_index_error_that_is_caught(x, n):
    try:
        return x[n]
    except IndexError:
        return x[0]


@cases(V, staged=False)
def a_shape_error_that_is_caught(x):
    try:
        y = x + np.ones(3)
    except ValueError:
        y = x
    return y


@cases(V)
def a_try_that_cannot_fail(x):
    try:
        y = x + 1
    finally:
        z = x * 2
    return y + z


@cases(V)
@cases(-V)
def with_errstate(x):
    with np.errstate(invalid="ignore"):
        y = np.sqrt(x)
        if x[0] > 0:
            y = y + 1
    return y


@cases(V, staged=False)
def with_errstate_that_raises(x):
    with np.errstate(invalid="raise"):
        return np.sqrt(x)


@cases(V)
@cases(-V)
def a_return_inside_with(x):
    with np.errstate(divide="ignore"):
        if x[0] > 0:
            return x
    return x * 2


@cases(V, staged=False)
def a_bare_except(x):
    try:
        return x[x > 0].sum()
    except:  # noqa: E722
        return -1.0


@cases(V)
@cases(-V)
def a_write_before_a_raise(x):
    y = x.copy()
    if x[0] > 0:
        y[0] = 3
        raise ValueError("positive")
    return y


@cases(V)
@cases(-V)
def an_assertion_before_a_raise(x):
    if x[0] > 0:
        assert x[1] > 100, "small"
        raise ValueError("positive")
    return x


@cases(LONG, 3.0)
@cases(LONG, 1e9)
def a_raise_in_a_long_loop(x, limit):
    s = 0.0
    for i in range(40):
        s += x[i] * x[i]
        if s > limit:
            raise ValueError("too large")
    return s


@cases(LONG, 3.0)
@cases(LONG, 1e9)
def an_assertion_in_a_long_loop(x, limit):
    s = 0.0
    for i in range(40):
        s += x[i] * x[i]
        assert s < limit, "too large"
    return s


@cases(V)
@cases(-V)
def text_of_traced_values(x):
    label = f"sum {x.sum():.3f}, first {x[0]!r}, "
    template = "{:>8}|{n:.1f}"
    print(label + f"{x}", str(x[1]), template.format(x[2], n=x[3]))
    assert x[1] < 0.1 or x[1] > 0.6, f"{x[1]} of {len(x)}"
    if x[0] > 0:
        raise ValueError(f"{x[0]} is positive", x[1], 3)
    return x


class Scope:
    def __init__(self, k):
        self.k, self.log = k, []

    def __enter__(self):
        self.k = self.k * 2
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(str(error))
        return kind is ValueError


@contextlib.contextmanager
def shifted(x):
    yield x + 1


@cases(V)
@cases(-V)
def context_managers(x):
    scope = Scope(x)
    with scope as s, shifted(x) as y, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = y * s.k
    with scope, contextlib.suppress(KeyError):
        y = y + {"a": 1}["b"]
    with scope:
        raise ValueError("seen")
    return y, scope.k, scope.log


@cases(V)
@cases(-V)
def handlers_of_own_exceptions(x):
    try:
        y = {"a": x}["b"]
    except KeyError as error:
        y = x * len(error.args)
    try:
        if x[0] > 0:
            raise ValueError("no")
        y = y + int("12")
    except (TypeError, ValueError):
        y = y * 2
    else:
        y = y + 1
    finally:
        y = y + 3
    return y


@cases(V)
@cases(-V)
def a_finally_around_a_choice(x):
    seen = []
    try:
        if x[0] > 0:
            return x * 2, seen
        y = x
    finally:
        seen.append(len(seen) + 1)
    return y, seen


@cases(V)
@cases(-V)
def a_bare_except_around_a_choice(x):
    y = x
    try:
        if x[0] > 0:
            raise ValueError("no")
        y = y + 1
    except:  # noqa: E722
        y = y * 2
    return y


@cases(V, staged=False)
def a_generator_that_is_left(x):
    seen = []

    def rows():
        try:
            yield x
            yield x * 2
        finally:
            seen.append(1)

    for row in rows():
        y = row
        break
    return y, seen


SINGULAR = np.zeros((2, 2))


@cases(SINGULAR)
@cases(SINGULAR + np.eye(2))
def a_check_before_a_line_that_fails(x):
    if x.sum() == 0:
        raise KeyError("zero")
    return np.linalg.inv(x)


@cases(SINGULAR)
@cases(SINGULAR + np.eye(2))
def a_line_that_fails_before_a_check(x):
    y = np.linalg.inv(x)
    if x.sum() == 0:
        raise KeyError("zero")
    return y


@cases(SINGULAR, 0.0)
@cases(SINGULAR, 1.0)
@cases(SINGULAR + np.eye(2), 0.0)
def a_division_between_lines_that_fail(x, c):
    first = np.linalg.cholesky(x + np.eye(2))
    share = 1.0 / c
    return first @ np.linalg.inv(x) * share


@cases(0.0, 0.0)
@cases(7.0, 2.0)
def an_int_of_a_division(x, c):
    return int(x / c), x // c


@cases(V, 0.0)
@cases(V, 1.0)
@cases(V, 30.0)
def an_index_behind_checks(x, c):
    assert c != 0
    k = int(np.floor(c))
    if k > 40:
        raise KeyError(k)
    return x[k], int(1 / c)


@cases(np.array([1.0, 3.0, 1.0, 3.0, 1.0, 1.0]))
@cases(np.array([1.0, -1.0, 3.0, 3.0, 3.0, 3.0]))
@cases(np.array([1.0, 3.0, 6.0, 3.0, 3.0, 3.0]))
def a_check_before_a_branch_with_one(x):
    total = 0
    for k in range(6):
        assert x[k] > 0
        if x[k] > 2:
            assert x[k] < 5
            total += 1
        else:
            total += 2
    return total


@cases(V[V > 1], 0.0)
@cases(V, 0.0)
@cases(V, 5.0)
def an_index_behind_checks_that_tell_what_they_found(x, c):
    y = x[x > c]
    if len(y) > 4:
        raise KeyError("many")
    if len(y) < 2:
        raise ValueError(f"{len(y)} of {len(x)} are greater than {c}")
    if y.max() < 1:
        raise TypeError(f"the largest is {y.max() * 2}")
    return y[0], y[1]


@cases(V, 2.0)
@cases(V, 1.5)
@cases(V, 0.0)
def an_index_behind_a_message_that_takes_work(x, c):
    y = x[x > c]
    if y.size > 3:
        raise KeyError("many")
    if y.size < 2:
        raise ValueError(f"they add up to {(y * 2).sum()}")
    return y[1], y[0]


@cases(V)
def an_item_of_a_tuple(x):
    pair = (x, 2.0)
    with contextlib.suppress(TypeError):
        pair[0] += 1
    return x


@cases(V)
def an_item_of_a_tuple_unseen(x):
    pair = (x * 1, 2.0)
    pair[0] += 1
    return pair[0]


@cases(V, 1)
@cases(V * 9, 1)
def an_entry_that_a_list_does_not_have(x, n):
    entries = [x, x + 1, x * 2]
    return entries[int(x[-1]) + n]
