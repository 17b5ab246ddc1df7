"""Functions with flags as indices: booleans without dimensions, alone and among others."""

import numpy as np
from compare import Cases
from view_cases import V, X

cases = Cases()


@cases(V, np.array(True))
@cases(V, np.array(False))
@cases(X, np.True_)
@cases(np.array(1.5), True)
def a_flag_as_an_index(x, flag):
    kept, dropped = x[flag], x[flag,].sum()
    x[flag] = x * 2
    x[x.sum() > 1e9] = 7
    x[flag] += 1
    return kept, dropped, x[True], x[False], x


@cases(X, np.array(True))
@cases(X, np.array(False))
@cases(X, np.True_)
def a_flag_between_slices_and_new_axes(x, flag):
    kept = x[flag, None], x[:, flag], x[..., flag, :1], x[None, flag, 1:].sum(0), x[:, flag, None]
    x[..., flag] *= 2
    x[flag, 1:] = 5.0
    return (*kept, x[..., False], x)


@cases(X, np.array(True))
@cases(X, np.array(False))
@cases(X, np.True_)
def a_flag_beside_numbers_masks_and_flags(x, flag):
    rows = x[:, 0] > 0
    kept = x[flag, 0], x[1, flag], x[0, :, flag], x[..., flag, -1], x[x[0, 0] > 0, 1, 2], x[flag, True]
    under = x[flag, :, flag], x[flag, rows], x[rows, flag], x[flag, x > 0], x[flag, rows, 1]
    x[flag, 1] = 5.0
    x[rows, flag] += 1.0
    return *kept, *under, x


@cases(X, 3)
@cases(X, np.float64(-100.0))
def numbers_under_a_flag(x, c):
    s = x.sum() + np.float64(c)
    return np.sqrt(s[s > 0]), s[..., s < 1], s[s == s, None]


@cases(V, np.array(True))
def a_flag_that_a_value_does_not_fit(v, flag):
    v[flag] = np.ones((2, *v.shape))
