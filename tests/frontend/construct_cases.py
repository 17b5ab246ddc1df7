# ruff: noqa: C416, C417
"""What a staging frontend easily gets wrong or refuses: one small function for each construct."""

import functools

import numpy as np
from compare import Cases

cases = Cases()
V = np.array([1.0, 2.0, 3.0, 4.0])
X = np.arange(4.0).reshape(2, 2)


@cases(V)
def a_filter_in_a_comprehension(x):
    kept = [i for i in range(4) if i > 1]
    return kept, [x[i] for i in kept if i != 2], {i: x[i] for i in range(3) if i}


@cases(V)
@cases(-V)
def a_chained_comparison(x):
    return 1 < x[1] < 3, (1 < x < 3) if x.size == 1 else 0, 0 < x[0] <= x[1] != x[2]


@cases(V)
@cases(np.array([0.0, 2.0, -1.0, 0.0]))
def operands_of_several_types_in_a_test(x):
    found, count = np.zeros(4, int), 0
    for i in range(4):
        for j in range(6):
            count += int(x[i - j] > 0)
            if (x[i] and count in (2, 3)) or (not x[i] and count == 5) or (j > 3 and count // 2 and x.any()):
                found[i] += j
            while count and x[j % 4] and found[i] % 3:
                found[i] -= 1
    return found, count, 1 if found[0] and x[1] > 1 else 2


@cases(V)
def arrays_made_by_their_class(x):
    a, b, c = np.ndarray(x.shape), np.ndarray((2, x.size), dtype=x.dtype), np.ndarray(3, int, order="F")
    a[:], b[...], c[...] = x * 2, x, 1
    return a, b, c, a.dtype == c.dtype


@cases(V, 3.0)
@cases(V, 30.0)
def the_else_of_loops(x, limit):
    for v in x:
        if v >= limit:
            break
    else:
        return -1.0
    k = 0
    while k < 4:
        if x[k] > limit:
            break
        k += 1
    else:
        k = 10
    return v * 1.0 + k


@cases(V)
def keyword_only_arguments(x):
    def scaled(a, *, by=2.0, plus):
        return a * by + plus

    return scaled(x, plus=1.0), scaled(x, by=3.0, plus=x)


@cases(X, X + 1)
def matmul_is_a_product_of_matrices(a, b):
    return np.matmul(a, b), a @ b, a * b, np.dot(a, b)


def count_zeros(a):
    return (a == 0).sum()


@cases(X)
def names_of_functions_mean_nothing(a):
    constant = zeros = count_zeros
    return count_zeros(a), constant(a), zeros(a)


@cases(X)
def items_of_two_axes(a):
    return a[1, 0], a[1][0], a[0, :], a[:, 1], a[1, -1], a[(0, 1)]


@cases(np.arange(16.0).reshape(2, 2, 2, 2))
def items_of_items(a):
    b = a.copy()
    b[1][0][1][0] = 9.0
    b[0][1] += 1
    return a[1][0][1], b


@cases(V)
def no_return_gives_none(x):
    x[0] = 5.0


@cases(V)
def tuples_stay_tuples(x):
    return (x, 1), [x], ((),)


@cases(V)
def arguments_are_not_copied(x):
    y = x
    y[1] = 9.0
    return x


@cases(V)
@cases(-V)
def an_early_return(x):
    if x[0] > 0:
        return x[0] * 2
    for k in range(3):
        if x[k] < -2:
            return x[k]
    return x[0]


@cases(V)
def break_and_continue(x):
    total = 0.0
    for k in range(20):
        if k % 2:
            continue
        if total > 12:
            break
        total += x[k % 4]
    return total


@cases(V)
def unpacking_and_chained_assignment(x):
    a, (b, *c) = x[0], (x[1], x[2], x[3])
    d = e = x * 2
    d[0] = 7.0
    (f,) = (1,)
    return a, b, c, e, f


@cases(V)
def operators_of_all_kinds(x):
    n = x.astype(int)
    return x // 2, x % 3, x**2, n & 1, n | 4, n ^ 1, ~n, n << 1, n >> 1, x is x, 2.0 in x, divmod(x[0], 0.5)


@cases(V)
def text_of_values(x):
    print(f"{x[0]:.1f} of {len(x)}")
    return f"{x.shape}"


@cases(V)
def variable_arguments(x):
    def total(*values, **named):
        return sum(values) + sum(named.values()) * len(named)

    return total(x, x), total(*[x, 1.0], a=x, b=2.0)


@cases(V)
@cases(-V)
def names_bound_in_expressions(x):
    y: np.ndarray = x * 2
    if (top := y.max()) > 4:
        y = y - top
    return y, top


@cases(V)
def comprehensions_of_all_kinds(x):
    table = {k: v for k, v in zip("ab", (x, x * 2), strict=True)}
    pairs = [(a, b) for a in range(2) for b in range(3) if a != b]
    return table, pairs, sum(k * 2 for k in range(4)), {k % 2 for k in range(5)}, [[a * b for a in x[:2]] for b in x]


@cases(V)
def deleting_and_importing(x):
    from math import pi

    y, table = x * pi, {"a": 1, "b": x}
    del table["a"]
    z = y + 1
    del y
    return z, table


class Scale:
    factor = 2.0

    def __init__(self, bias):
        self.bias = bias

    def __call__(self, x):
        return x * self.factor + self.bias


@cases(V)
def classes_and_methods(x):
    scale = Scale(x[0])
    scale.bias = scale.bias * 2
    return scale(x), x.sum(), x.T.shape, x.reshape(2, 2).T, x.mean(axis=0)


@cases(V)
def lists_that_grow(x):
    parts = []
    for k in range(4):
        parts.append(x * k)
    parts.extend([x, x])
    parts[0] = parts.pop()
    return parts


@cases(V)
@cases(-V)
def try_raise_and_with(x):
    try:
        if x[0] > 0:
            raise ValueError("positive")
        y = x
    except ValueError:
        y = x * 2
    finally:
        y = y + 1
    with np.errstate(all="ignore"):
        return np.sqrt(y)


@cases(V)
def loops_over_calls(x):
    def numbers():
        return [1.0, 2.0]

    total = 0.0
    for k in np.arange(3):
        total += x[k]
    for k, v in enumerate(x):
        total += k * v
    for v in numbers():
        total += v
    for v in reversed(x):
        total = total * 0.5 + v
    for v in map(lambda t: t * 2, x):
        total += v
    return total


@cases(V)
def functions_as_values(x):
    def twice(f, v):
        return f(f(v))

    add = functools.partial(lambda a, b: a + b, 1.0)
    return twice(lambda v: v * 2, x), twice(add, x), list(map(add, x)), functools.reduce(lambda a, b: a * b, list(x))


@cases(V.astype(np.float32))
@cases(V.astype(np.complex128))
@cases(V.astype(np.int8))
@cases(V > 2)
@cases(np.ones((1, 2, 1, 2, 1, 2)))
def types_and_ranks_are_kept(x):
    return x, x + x, x[..., 0], x.dtype == np.float32
