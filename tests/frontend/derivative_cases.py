"""Real scalar functions of one array, to be differentiated."""

import numpy as np

import futurex as fx

X = np.array([0.7, -0.4, 1.3, 0.2, -1.1, 0.9])
W = np.linspace(0.5, 1.5, 6)
cases = []


def case(function):
    cases.append(function)
    return function


@case
def smooth(x):
    return (np.sin(x) * np.exp(-(x**2)) + np.tanh(x) / (x * x + 1)).sum()


@case
def products(x):
    a = x.reshape(2, 3)
    return np.trace(a @ a.T) + (np.outer(x, x) @ W).mean() + np.dot(x, W) + np.einsum("ij,kj->ik", a, a)[0, 1]


@case
def reductions(x):
    a = x.reshape(2, 3)
    return (
        a.max() + a.min(axis=1).sum() + a.var() + a.std(axis=0).sum() + np.linalg.norm(a) + a.prod() + np.cumsum(x)[3]
    )


@case
def writes(x):
    y = np.zeros(8)
    y[1:7] = x * 2
    y[::2] += y[1::2] ** 2
    y[3] = y[2] * y[4]
    v = y.reshape(2, 4)[:, 1]
    v *= 3
    return (y * y).sum()


@case
def overlapping_writes(x):
    u = x.copy()
    u[1:] = u[:-1] * u[1:]
    u[:3] = u[::-1][:3]
    return (u**3).sum()


@case
def fancy_writes(x):
    y = x.copy()
    y[[0, 2, 2]] = x[[1, 3, 4]] * 2
    y[y > 1] = 0.5
    y[np.array([1, 5])] += x[0]
    return (y * W).sum()


@case
def a_written_argument_of_a_helper(x):
    def scale(target):
        target[1:4] *= target[0]
        return target.sum()

    y = x * 1.0
    return scale(y) * y[2]


@case
def branches(x):
    if x.sum() > 0:
        y = x * x
        if x[1] > 0:
            y = y + 1
        else:
            y[0] = x[1] * 3
    else:
        y = np.sin(x)
    return (y * W).sum()


@case
def choices(x):
    a = x[0] if x[0] > x[1] else x[1] ** 2
    return np.where(x > 0, x**2, -x).sum() * a + max(x[2], x[3]) + abs(x[4])


@case
def long_loop(x):
    s = np.float64(0)
    y = x.copy()
    for i in range(50):
        y = np.sin(y + x * 0.1)
        s += y[i % 6] * y[0]
    return s


@case
def recurrence(x):
    y = np.zeros(40)
    y[:6] = x
    for i in range(6, 40):
        y[i] = np.tanh(y[i - 1]) + 0.5 * y[i - 6]
    return (y**2).sum()


@case
def while_on_data(x):
    y = x.copy()
    n = 0
    while np.abs(y).sum() < 20:
        y = y * 1.3 + 0.01 * y**2
        n += 1
    return (y * W).sum() * (n + 1)


@case
def newton(x):
    a = (x * x).sum()
    r = a
    while abs(r * r - a) > 1e-12:
        r = 0.5 * (r + a / r)
    return r


@case
def early_leave(x):
    s = np.float64(0)
    for v in x:
        if v < -1:
            break
        if v < 0:
            continue
        s += v * v
    return s


@case
def early_return(x):
    for _i in range(30):
        x = x * 1.1
        if x[0] > 2:
            return (x**2).sum()
    return x.sum()


@case
def loop_with_rows(x):
    total = np.float64(0)
    for row in np.outer(W, x):
        total += np.sin(row).sum() * row[0]
    return total


@case
def a_loop_over_shrinking_arrays(x):
    levels = np.concatenate([x, x[::-1] * 0.5, W])
    values = levels * 2
    for _ in range(15):
        levels = levels[:-1] * 0.9
        values = values[:-1] + np.tanh(values[1:]) * levels
    return values.sum()


@case
def merged_axes_of_a_broadcast_scalar(x):
    return (np.broadcast_to(np.tanh(x).sum(), (3, 4)).T.reshape(-1)[2:] * 0.7).sum()


@case
def broadcast_views(x):
    wide = np.broadcast_to(x, (3, 6))
    return (
        (wide[1:] * W).sum()
        + (np.broadcast_to(x[2], (4,)) * W[:4]).prod()
        + np.broadcast_to(x[:, None], (6, 2)).T[1] @ W
    )


@case
def values_with_more_dimensions_than_their_place(x):
    y = np.outer(W, x)
    y.T[0] = np.atleast_2d(x.max())
    y[[1, 2, 1]] = (y[:3] * x[0])[None]
    return (y * y).sum()


@case
def stopped(x):
    return (x * W * fx.stop_gradient(W)).sum()


@case
def lists(x):
    parts = [x[i] * (i + 1) for i in range(6)]
    return sum(p * p for p in parts) + np.stack(parts).prod() + np.concatenate([x, x * x]).sum()


@case
def sliding_windows(x):
    v = np.lib.stride_tricks.sliding_window_view(np.outer(x, W), (3, 2))
    return (v * v[::-1, 1:2] ** 2).sum() + np.median(v, axis=(2, 3)).prod()


@case
def scalar_powers(x):
    s = x.sum() + 5
    return s**2 + s**0.5 + 2**s + s**s + x[0] ** 3


STAGED_LOOPS = [
    long_loop,
    recurrence,
    while_on_data,
    newton,
    early_return,
]  # the derivative of a loop has none of its own
