"""Functions with views, writes and aliasing."""

import math

import numpy as np
from compare import Cases

cases = Cases()
X = np.arange(12.0).reshape(3, 4)
V = np.linspace(-1.0, 2.0, 7)
N = np.array([3, 1, 2])


@cases(X)
def slices_share_memory(x):
    y = x.copy()
    v = y[1:, ::2]
    v += 10
    y[0] = 7
    return y, v


@cases(X)
def transposes_share_memory(x):
    y = x.copy()
    t = y.T
    t[1, 2] = -5.0
    y[0, 0] = 9.0
    return y, t, t.T


@cases(X)
def reshaped_views_share_memory(x):
    y = x.copy()
    flat = y.reshape(-1)
    flat[5] = 100.0
    y[2, 3] = 7.0
    return y, flat


@cases(X)
def reshape_of_a_transpose_is_a_copy(x):
    y = x.copy()
    flat = y.T.reshape(-1)
    flat[0] = 50.0
    return y, flat


@cases(X)
def reshape_after_a_result_in_column_order(x):
    y = x.T + 1  # NumPy keeps the order of the transposed operand
    flat = y.ravel()
    flat[1] = 99.0
    return y, flat


@cases(X)
def reshape_of_a_result_that_nobody_writes(x):
    y = x.T + 1
    return y.ravel(), y.reshape(2, 6)


@cases(X)
def chained_views(x):
    y = x.copy()
    y.T[::-1][1:3, 0] = [1.0, 2.0]
    y[1:][:, 1:][0][2] = 33.0
    return y


@cases(X)
def writes_through_views_in_order(x):
    y = x.copy()
    a, b = y[:2], y[1:]
    a *= 2
    b -= 1
    a[1] = b[1]
    return y, a, b


@cases(V)
def overlapping_forward(u):
    u = u.copy()
    u[1:] = u[:-1]
    return u


@cases(V)
def overlapping_backward(u):
    u = u.copy()
    u[:-1] = u[1:]
    u[2:5] += u[1:4]
    return u


@cases(V)
def overlapping_reversed(u):
    u = u.copy()
    u[:] = u[::-1]
    return u


@cases(V)
def negative_steps(u):
    y = u.copy()
    y[::-2] = y[:4]
    return y[::-1], y[5:1:-2], y[-1], y[-3:-1]


@cases(X)
def diagonals(x):
    y = x[:3, :3].copy()
    return y.diagonal(), np.diagonal(y, 1), y.trace(), np.trace(y)


@cases(X)
def a_diagonal_sees_later_writes(x):
    y = x[:3, :3].copy()
    d = np.diagonal(y)
    y[1, 1] = 77.0
    return d, y


@cases(X)
def a_diagonal_is_read_only(x):
    y = x[:3, :3].copy()
    y.diagonal()[0] = 1.0
    return y


@cases(X)
def a_broadcast_sees_later_writes(x):
    y = x[0].copy()
    b = np.broadcast_to(y, (2, 4))
    y[0] = 5.0
    return b


@cases(X)
def newaxis_and_squeeze(x):
    y = x.copy()
    column = y[:, None, :]
    column[0] = 3.0
    flat = column.squeeze(1)
    flat[1, 1] = 4.0
    return y, column.shape, np.expand_dims(y, 0), y[..., 0], y[..., None].shape


@cases(X)
def masked_writes(x):
    y = x.copy()
    y[y > 5] = 0
    y[y == 3] = -1.5
    y[np.array([True, False, True])] = 8
    return y


@cases(X)
def masked_reads(x):
    return x[x > 4], x[x > 4].sum()


@cases(X)
def masked_augmented_assignment(x):
    y = x.copy()
    y[y > 5] += 10
    return y


@cases(X, N)
def fancy_reads(x, n):
    return x[n - 1], x[:, n], x[[0, 2]], x[[0, 2], [1, 3]], x[n - 1][:, n], x[np.array([[0], [2]]), n]


@cases(X)
def fancy_writes(x):
    y = x.copy()
    y[[0, 2]] = 5
    y[:, [1, 3]] = y[:, [3, 1]]
    y[[0, 1], [0, 1]] = [-1.0, -2.0]
    return y


@cases(V)
def the_last_of_repeated_indices_wins(u):
    y = u.copy()
    y[[1, 1, 2]] = [5.0, 6.0, 7.0]
    y[[3, 3]] += 1
    return y


@cases(V, N)
def traced_indices(u, n):
    y = u.copy()
    y[n[0]] = 5.0
    y[n] *= 2
    y[n[1] + 1] += n[2]
    return y, y[n[0]], y[n]


@cases(X.copy())
def an_argument_is_written(x):
    x[0] = 1.0
    x += 1
    x[:, 1] *= 3


@cases(X.copy())
def an_argument_is_written_through_a_view(x):
    v = x.T[1]
    v[:] = 0
    x.ravel()[3] = 8
    return v


@cases(X.copy())
def an_argument_is_returned(x):
    return x, x


@cases(X.copy())
def a_view_of_an_argument_is_returned(x):
    return x[1:], x.T, x.reshape(-1)[::2]


@cases(np.asfortranarray(X), staged=False)
def a_column_ordered_argument(x):
    flat = x.reshape(-1)
    flat[0] = 44.0
    t = x.T.reshape(-1)
    t[1] = 33.0
    return x, flat, t


@cases(X.copy(), V.copy())
def two_arguments_are_written(x, v):
    x[:] = v[:4]
    v[0] = x[1, 1]
    return v.sum()


@cases(np.array(2.0))
def zero_dimensional(x):
    y = x.copy()
    z = y
    z += 1
    z[()] = z + 1
    w = np.zeros(())
    alias = w
    w += 4
    return y, z, w, alias


@cases(np.array(2.0))
def a_zero_dimensional_argument_is_written(x):
    x += 1
    x[...] = x * 2


@cases(V)
def scalars_are_not_views(u):
    y = u.copy()
    s = y[2]
    s += 10
    y[2] = -1
    return y, s


@cases(V)
def full_indexing_with_an_ellipsis_is_a_view(u):
    y = u.copy()
    v = y[2, ...]
    v += 10
    y[3] = 0
    return y, v


@cases(X)
def real_and_imaginary_parts_are_views(x):
    z = x + 1j * x
    z.real[0] = 5
    z.imag = 2
    return z, z.real, z.imag, x.real, x.imag


@cases(X)
def flips_are_views(x):
    y = x.copy()
    f = np.flip(y, 1)
    f[0] = 9
    np.flipud(y)[0, 0] = 3
    return y, f


@cases(X)
def parts_of_a_split_are_views(x):
    y = x.copy()
    a, b = np.split(y, 2, axis=1)
    a[:] = 0
    b *= 2
    return y


@cases(X)
def asarray_keeps_and_array_copies(x):
    y = x.copy()
    a, b = np.asarray(y), np.array(y)
    y[0, 0] = 8
    return a, b


@cases(X)
def array_without_copying(x):
    y = x.copy()
    a = np.array(y, copy=None)
    b = np.array(y, copy=False)
    y[0, 0] = 8
    return a, b


@cases(X)
def out_arguments(x):
    y = np.empty_like(x)
    np.multiply(x, 2, out=y)
    r = np.add(y, 1, y)
    y[0, 0] = 0
    s = np.zeros(4)
    np.sum(x, axis=0, out=s)
    np.add(y, 1, out=y, where=x > 5)
    return y, r, s


@cases(X)
def augmented_assignment_keeps_the_array(x):
    y = x.copy()
    z = y
    y += 1
    y = y + 1
    y *= 2
    return y, z


@cases(N.copy())
def augmented_assignment_keeps_the_dtype(n):
    y = n.copy()
    y += 2
    y //= 2
    y <<= 1
    z = n.astype(np.float32)
    z *= 1.1
    return y, z


@cases(N)
def augmented_assignment_that_numpy_refuses(n):
    y = n.copy()
    y /= 2
    return y


@cases(N)
def assignment_casts(n):
    y = n.copy()
    y[0] = 2.7
    z = np.zeros(3, np.uint8)
    z[:] = n * 1.5
    b = np.zeros(3, bool)
    b[1:] = n[1:]
    return y, z, b


@cases(X)
def shapes_that_do_not_fit(x):
    y = x.copy()
    y[0] = x[:, 0]
    return y


@cases(X)
def an_index_out_of_bounds(x):
    return x[5]


@cases(X)
def swapping_rows(x):
    y = x.copy()
    y[0], y[1] = y[1], y[0]  # views: not a swap
    y[[1, 2]] = y[[2, 1]]
    return y


@cases(V)
def swapping_elements(v):
    y = v.copy()
    y[0], y[1] = y[1], y[0]
    return y


@cases(V)
def rows_of_an_iteration_are_views(v):
    y = np.outer(v, v)
    for row in y:
        row[0] = 1.0
    for k, row in enumerate(y):
        row[1] += k
    for a, b in zip(y, y[::-1], strict=False):
        a[2] = b[3]
    return y


@cases(X)
def copies_are_independent(x):
    y = x.copy()
    z = np.copy(y)
    w = y.astype(float)
    f = y.flatten()
    y[:] = 0
    return z, w, f


@cases(X)
def roll_repeat_tile_concatenate(x):
    return (
        np.roll(x, 1),
        np.roll(x, -1, axis=1),
        np.repeat(x, 2, axis=0),
        np.tile(x, (2, 1)),
        np.concatenate([x, x[::-1]]),
    )


@cases(V)
@cases(np.array([7.0, 1.0, 2.0]))
def an_index_out_of_bounds_that_nobody_reads(v):
    v[v.astype(int)]
    v[0] = 5.0


@cases(V)
def shapes_that_cannot_be_and_nobody_reads(v):
    np.broadcast_to(v, (2, 3))


@cases(X.copy())
def values_with_more_dimensions_than_their_place(x):
    x[0] = np.ones((1, 1))
    x[[1, 0]] = (x[:2] * 2)[None]
    return x


@cases(X)
def sequences_as_indices(x):
    x[range(2), range(1, 3)] = 2
    return x[range(3)], x[(0, 1), (1, 2)], x[((0, 1), (1, 2))], x[[0, 1], range(2)], x[(1,)], x[((1, 2),)]


@cases(V)
def diagonals_of_constants(v):
    return v[:3] * np.diag(-np.ones(2), -1), np.diag(v) + np.diag(np.ones(6), 1)


@cases(X.copy())
def sliding_windows_share_memory(x):
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3))
    before = windows.sum(axis=(2, 3))
    x[1, 1:3] = [7.0, -9.0]
    along = np.lib.stride_tricks.sliding_window_view(x.T, 2, axis=(-1,))
    return before, windows[::-1, 1], along @ np.ones(2), np.lib.stride_tricks.sliding_window_view(x, (2, 2), 0), windows


@cases(V)
def medians_of_windows(v):
    plane = np.pad(np.outer(v, np.linspace(-3.0, 2.0, 50)), 1, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(plane, (3, 3)), axis=(2, 3), keepdims=True)


@cases(X)
def windows_that_do_not_fit(x):
    return np.lib.stride_tricks.sliding_window_view(x, 9, axis=1)


@cases(X)
def windows_are_read_only(x):
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2))
    windows[0, 0] = 1.0
    return windows


@cases(X)
def arrays_made_of_scalars_are_their_own(x):
    total, first = x.sum(), x[0, 0]
    ways = total[None], total[...], np.expand_dims(total, 0), np.atleast_2d(first), np.array(first)[None]
    for k, way in enumerate(ways):
        way += k + 1
    for _ in range(3):
        again = first[..., None]
        again[0] = 7
        first = first + again[0]
    return total, first, ways, np.broadcast_to(total, (2,))


def into_an_element(y, v):
    y[0, 1] = v


def into_an_element_in_a_loop(y, v):
    for k in range(len(y)):
        y[k, k] += v * k


def into_an_element_of_all(y, v):
    y.flat[2] = v


def into_an_element_without_dimensions(y, v):
    y[1, 1, ...] = v


def rounds_of_an_array(y, v):
    return [k + 1 for k in range(v.astype(int))]


def rounds_by_a_float(y, v):
    return [k + 1 for k in range(0, 5, v[0])]


def a_function_of_numbers(y, v):
    return math.floor(v)


for _refused in (
    into_an_element, into_an_element_in_a_loop, into_an_element_of_all, rounds_of_an_array, rounds_by_a_float,
    a_function_of_numbers,
):  # fmt: skip
    cases(np.zeros((2, 2)), np.ones(1), staged=_refused.__name__[:4] != "into")(_refused)
cases(np.zeros((2, 2)), np.ones(1))(into_an_element_without_dimensions)


@cases(np.ones((4, 1)), staged=False)
@cases(np.ones((4, 3)), staged=False)
def flattened_with_gaps(a):
    """A reshape to one dimension might be a view here, a flattened array of one is a copy."""
    pairs = np.multiply.outer(a, [1, 2])
    flat = pairs[:, :, ::2].ravel()
    flat[:] *= 7
    return pairs, flat


@cases(np.arange(6.0).reshape(2, 3))
def flattened_and_read(a):
    pairs = np.multiply.outer(a, [1, 2])
    return pairs[:1, :1].ravel() + 1, np.ravel(pairs[..., ::2]), a.sum(axis=1, keepdims=True).ravel()


@cases(np.arange(6.0).reshape(2, 3), staged=False)
def into_itself_by_a_flat_iterator(a):
    """NumPy writes one element before it reads the next."""
    a.flat[::-1] = a.T[1:]
    return a


@cases(np.arange(6.0).reshape(2, 3), staged=False)
def into_itself_by_places(a):
    a.flat = a[1, ::-1]
    a.flat[[2, 1, 0]] = a[0]


@cases(np.arange(6.0), staged=False)
def into_itself_by_a_mask(a):
    a[a > 1] = a[3::-1]


@cases(np.arange(6.0).reshape(2, 3))
def into_itself_where_nothing_is_read_again(a):
    """Copies, single elements, and rows by a mask of rows, which NumPy reads first."""
    a.flat[::-1] = a.flat[1:]
    a.flat[1:] = a[1:, 1:2]
    a[a > 3] = a[0, :1]
    a[a < 3] = a[a < 3][::-1]
    a[np.array([True, False])] = a[1:] + 1
    a[np.array([True, True])] = a[::-1]
    return a
