"""Functions that fail, and arguments that make them."""

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
X = np.arange(12.0).reshape(3, 4)


def inner(x, y):
    z = x * 2
    return z @ y


@cases(X, X)
def shapes_of_a_product(x, y):
    return inner(x, y) + 1


@cases(V, X)
def shapes_that_do_not_broadcast(x, y):
    return (x * 2) + y


@cases(X)
def an_axis_that_is_not_there(x):
    return (x + 1).sum(axis=2)


@cases(X)
def an_axis_of_a_function(x):
    return np.concatenate([x, x], axis=3)


@cases(X)
def a_reshape_that_does_not_fit(x):
    return x.reshape(5, -1)


@cases(X)
def an_index_out_of_range(x):
    return x[2][7]


@cases(X)
def too_many_indices(x):
    return x[0, 1, 2]


@cases(X, np.array(9))
def a_computed_index_out_of_range(x, n):
    y = x + 1
    return y[n] * 2


@cases(X, np.array([0, 5]))
def indices_out_of_range(x, n):
    return x[n].sum()


@cases(V)
def a_wrong_dtype(x):
    return x & 3


@cases(V)
def a_cast_that_is_refused(x):
    n = np.arange(7)
    n += x
    return n


@cases(V)
def an_unknown_option(x):
    return np.sum(x, axes=0)


@cases(V)
def an_unknown_method(x):
    return x.summ()


@cases(V)
def an_unknown_function(x):
    return np.summ(x)


@cases(V)
def an_unbound_name(x):
    return x + not_there  # noqa: F821


@cases(V)
@cases(-V)
def a_name_bound_in_one_branch(x):
    if x[0] > 0:
        y = x
    return y + 1


@cases(V)
def a_use_after_del(x):
    y = x * 2
    del y
    return y + 1  # noqa: F821


@cases(X)
def too_many_values_to_unpack(x):
    a, b = x
    return a + b


@cases(X)
def not_enough_values_to_unpack(x):
    a, b, c, d = x
    return a + b + c + d


@cases(X)
def a_missing_argument(x):
    return inner(x)


@cases(X)
def a_wrong_keyword(x):
    return inner(x, z=x)


@cases(X)
def the_truth_of_an_array(x):
    if x > 1:
        return x
    return x * 2


@cases(X)
def not_a_function(x):
    return x(1)


@cases(X)
def a_key_that_is_not_there(x):
    return {"a": x}["b"]


@cases(V)
def a_division_by_zero(x):
    return x[0] + 1 / int(x[2])


@cases(V)
@cases(-V)
def a_raise_in_a_branch(x):
    if x[0] > 0:
        raise ValueError(f"first is {x[0]}")
    return x


@cases(V)
@cases(np.abs(V))
def a_raise_in_a_loop(x):
    total = 0.0
    for i in range(30):
        total += x[i % 7]
        if total < -1.2:
            raise ArithmeticError(f"round {i}: {total:.2f}")
    return total


@cases(V)
def an_assertion(x):
    assert x[0] > 0, "positive, please"
    return x


@cases(np.zeros((2, 2)))
def a_singular_matrix(x):
    return np.linalg.inv(x + 0) * 2


@cases(np.zeros((2, 2)), np.zeros((2, 2)))
def a_failure_in_a_function_called(x, y):
    def solved(a, b):
        return np.linalg.solve(a, b)

    return solved(x, y).sum()


@cases(V)
def a_write_that_does_not_fit(x):
    x[1:3] = np.ones(4)
    return x


@cases(V)
def a_scalar_of_many(x):
    return float(x)


@cases(V)
def a_range_of_floats(x):
    return sum(x[k] for k in range(x[0]))


@cases(V)
def text_and_array(x):
    return x + "a"


@cases(V)
def counts_of_less_than_nothing(x):
    return np.bincount(np.arange(x.size) % 2, weights=x, minlength=-1)


@cases(X)
def deviations_as_integers(x):
    return np.std(x, axis=0, dtype=int)


@cases(V)
def a_mask_of_another_length(x):
    y = x[x > 0]
    return y[x > 0]


@cases(X)
def a_mask_of_another_length_for_the_second_axis(x):
    return x[:, x[0][x[0] > 1] > 2]


@cases(X)
def a_write_under_a_mask_of_another_length(x):
    x[x[0] > 1] = 0
    return x


@cases(V)
def a_write_of_matrices_under_a_mask(x):
    y = x * 2
    y[x > 0] = np.ones((2, 2))
    return y


@cases(V)
def a_period_of_zero(x):
    return np.interp(x, x, x * 2, period=x[0] + 1)
