"""Arguments that are nearly right: NumPy takes some of them and refuses others, and so do futurized functions."""

import warnings

import numpy as np
import pytest
from compare import outcome, plain

import futurex as fx

X = np.arange(12.0).reshape(3, 4) - 5
ODD = [
    True, False, 0, 1, -1, 2, 30, 2**63, 2**70, -(2**63), 1.0, 2.5, 1j, None, "a", np.True_, np.int8(1), np.uint64(2),
    np.int64(-7), np.float32(2), np.array(1), np.array(True), np.array([1]), np.array([1.0, 2.0]), (0,), (), [0], [],
    [1.5], slice(1), ...,
]  # fmt: skip


def said(function, args):
    """The outcome of a call, and the text of its error."""
    found = outcome(function, args)
    try:
        with np.errstate(all="ignore"):
            plain(function(*args))
    except Exception as error:
        return found, str(error)
    return found, ""


def check_every_odd_argument(function, values=ODD):
    for value in values:
        futurized = fx.futurize(function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = said(function, (X.copy(), value))
            for _ in range(3):
                assert said(futurized, (X.copy(), value)) == expected, f"{value!r}\n{futurized.explain()}"


KEEPING = [
    lambda x, n: np.sum(x, axis=0, keepdims=n),
    lambda x, n: x.max(0, keepdims=n),
    lambda x, n: np.any(x, axis=0, keepdims=n),
    lambda x, n: np.mean(x, axis=0, keepdims=n),
    lambda x, n: np.std(x, axis=0, keepdims=n),
    lambda x, n: np.ptp(x, axis=0, keepdims=n),
    lambda x, n: np.argmax(x, axis=0, keepdims=n),
    lambda x, n: np.median(x, axis=0, keepdims=n),
    lambda x, n: np.nanmean(x, axis=0, keepdims=n),
    lambda x, n: np.average(x, axis=0, keepdims=n),
    lambda x, n: np.linalg.norm(x, axis=0, keepdims=n),
    lambda x, n: np.linalg.norm(x, keepdims=n),
    lambda x, n: np.linalg.vector_norm(x, axis=0, keepdims=n),
    lambda x, n: np.vecdot(x, x, keepdims=n),
    lambda x, n: np.add.reduce(x, keepdims=n),
]


@pytest.mark.parametrize("function", KEEPING)
def test_what_is_no_bool_keeps_dimensions_where_it_does_in_numpy(function):
    check_every_odd_argument(function)


AXES = [
    lambda x, n: np.squeeze(x[:1], n),
    lambda x, n: x[:1].squeeze(n),
    lambda x, n: np.transpose(x, (n, 0)),
    lambda x, n: x.transpose(n, 0),
    lambda x, n: np.vecdot(x, x, axis=n),
    lambda x, n: np.apply_along_axis(np.sum, n, x),
    lambda x, n: np.random.default_rng(1).permutation(x, axis=n),
    lambda x, n: np.random.default_rng(1).permuted(x, axis=n),
    lambda x, n: np.random.default_rng(1).choice(x, axis=n),
]


@pytest.mark.parametrize("function", AXES)
def test_what_is_no_axis_is_refused_where_it_is_in_numpy(function):
    check_every_odd_argument(function)


NUMBERS = [
    lambda x, n: np.fft.fft(x, n=n),
    lambda x, n: np.fft.rfft(x, n=n),
    lambda x, n: np.fft.irfft(x, n=n),
    lambda x, n: np.fft.ihfft(x, n=n),
    lambda x, n: np.fft.fftn(x, s=(2, n), axes=(0, 1)),
    lambda x, n: x.item(n),
    lambda x, n: x.item(0, n),
    lambda x, n: np.std(x, ddof=n),
    lambda x, n: np.eye(2, n),
    lambda x, n: np.empty(n).shape,
    lambda x, n: np.repeat(x, n) if n in ((2**70), (2**63)) else x,
    lambda x, n: np.tile(x, (n, 1)) if np.ndim(n) or n in (2**70, 2**63, True) else x,
    lambda x, n: np.partition(x, n),
    lambda x, n: x.flat[n],
    lambda x, n: np.einsum("ij->i", x, optimize=n),
    lambda x, n: x.view(n),
]


@pytest.mark.parametrize("function", NUMBERS)
def test_what_is_no_number_is_refused_where_it_is_in_numpy(function):
    check_every_odd_argument(function, [value for value in ODD if value is not ...])


DRAWS = [
    lambda x, n: np.random.default_rng(1).multinomial(n, [0.5, 0.5]),
    lambda x, n: np.random.RandomState(1).multinomial(n, [0.5, 0.5]),
    lambda x, n: np.random.default_rng(1).binomial(n, 0.5),
    lambda x, n: np.random.default_rng(1).hypergeometric(n, 5, 3),
    lambda x, n: np.random.default_rng(1).permutation(n),
    lambda x, n: np.random.RandomState(1).permutation(n),
    lambda x, n: np.random.default_rng(n if n is not None else 1).random(),
    lambda x, n: np.random.RandomState(n if n is not None else 1).random(),
    lambda x, n: np.random.RandomState([3]).random(),
]


@pytest.mark.parametrize("function", DRAWS)
def test_random_numbers_of_odd_parameters_are_numpys(function):
    check_every_odd_argument(function)


def written(x, n):
    y = x[n]
    y[...] = 7.0
    return x


def written_behind(x, n):
    y = x.copy()
    z = y[:, n]
    z += 1
    return y, z, y[n, ...].flags.c_contiguous


def written_in_place(x, n):
    y = x.copy()
    y[n] += 1
    y[n, 1:] *= 2
    return y, y[n, n], y[n, n, ...]


@pytest.mark.parametrize("function", [written, written_behind, written_in_place])
@pytest.mark.parametrize("place", [np.array(1), np.int64(1), 1])
def test_an_array_without_dimensions_copies_where_a_number_gives_a_view(function, place):
    check_every_odd_argument(function, [place])


RETURNED = [
    lambda x, n: range(n),
    lambda x, n: (x, {"rows": range(0, n, 2)}),
    lambda x, n: slice(n, None),
    lambda x, n: np.s_[1:n, 0],
]


@pytest.mark.parametrize("function", RETURNED)
def test_returned_ranges_and_slices_are_pythons_own(function):
    futurized = fx.futurize(function)
    for n in map(np.int64, (1, 2, 3, 4)):
        assert repr(plain(futurized(X, n))) == repr(function(X, n))


def test_indices_of_a_diagonal_are_one_array():
    rows, columns = fx.futurize(lambda x: np.diag_indices(3))(X)
    assert rows is columns or rows.result() is columns.result()


def test_an_index_out_of_bounds_is_named_as_the_program_names_it():
    for function in (lambda x, n: x[0][n], lambda x, n: x[0, n], lambda x, n: x[:, 1][n], lambda x, n: x[n][n]):
        check_every_odd_argument(function, [np.int64(1), np.int64(30), np.int64(-7), 1, 30])


PRODUCTS = [
    lambda x, n: np.dot(x, n),
    lambda x, n: np.inner(n, x[0]),
    lambda x, n: x[:1, :1].dot(n),
    lambda x, n: np.dot(x[..., None], n),
]


@pytest.mark.parametrize("function", PRODUCTS)
def test_zeros_of_an_array_times_a_number_have_the_sign_that_blas_leaves(function):
    check_every_odd_argument(function, [0, -1, -0.0, 0j, 1j, np.float32(-2)])


def test_the_matrix_of_a_product_is_not_broadcast_into_its_output():
    def in_place(x, n):
        z = x.ravel()
        z @= x.reshape(12, 1)[:, :n]
        return z

    def given(x, n):
        return np.matmul(x, x.T, out=np.zeros((2, n, n)))

    check_every_odd_argument(in_place, [1])
    check_every_odd_argument(given, [3, 1, 4])


BOUNDS = [
    lambda x, n: np.clip(x, a_max=n),
    lambda x, n: np.clip(x, n),
    lambda x, n: np.clip(x, n, max=3),
    lambda x, n: np.clip(x, None, None, max=n),
    lambda x, n: np.clip(x, min=n),
    lambda x, n: x.clip(n),
    lambda x, n: x.clip(max=n),
    lambda x, n: np.tile(x[0, 0], [n] if n else []),
]


@pytest.mark.parametrize("function", BOUNDS)
def test_bounds_and_counts_are_given_as_in_numpy(function):
    check_every_odd_argument(function, [0, 1, 2])


def joined_in_place(x, n):
    np.concatenate([x[1:], x[:n]], out=x)
    return x


def sorted_in_parts(x, n):
    y = x.ravel()[::-1].copy()
    return np.percentile(y, 30, overwrite_input=True), np.nanmedian(y, overwrite_input=n), y


def nested_too_deep(x, n):
    x[0] = [[n]]
    return x


def matrix_through_a_mask(x, n):
    x[x > 0] = np.full((1, 1), n)
    return x


WRITES = [
    joined_in_place,
    sorted_in_parts,
    nested_too_deep,
    matrix_through_a_mask,
    lambda x, n: np.concatenate([x[0], x[n]], out=np.zeros((1, 8))),
    lambda x, n: np.modf(x[n], out=(None, np.zeros((3, 4)))),
    lambda x, n: np.divmod(x[0, n], 2.0, out=(np.zeros(()), np.zeros(4))),
    lambda x, n: x.all(n, np.zeros(4)),
    lambda x, n: x.any(n, None, np.zeros(4), True),
    lambda x, n: x.sum(n, np.zeros(4)),
    lambda x, n: np.std(x, ddof=n, correction=1),
    lambda x, n: np.zeros(n, order="A"),
    lambda x, n: np.var(x.astype(np.float16), mean=n),
    lambda x, n: np.std(x.astype(np.float32), axis=0, mean=[1.0] * 4),
    lambda x, n: np.concatenate([np.arange(n, dtype=np.uint8), 300, 1e9], axis=None, dtype=np.float32),
    lambda x, n: np.concatenate([x[0].astype(np.uint8), 300], axis=None, out=np.zeros(n + 4)),
]


@pytest.mark.parametrize("function", WRITES)
def test_outputs_that_nearly_fit_are_taken_or_refused_as_in_numpy(function):
    check_every_odd_argument(function, [1])


def test_a_transform_over_no_axes_gives_an_array():
    assert isinstance(fx.futurize(lambda x: np.fft.fftn(x[0, 0]))(X).result(), np.ndarray)


def reshaped_after_a_write(x, n):
    x += 0
    return x.reshape(-n).T


METHODS = [
    reshaped_after_a_write,
    lambda x, n: x.astype(np.float32)[:, ::n].view(None),
    lambda x, n: x.view(dtype=None) + n,
    lambda x, n: (x > n).choose(x, x, "clip"),
    lambda x, n: (x > n).choose(x, -x),
    lambda x, n: x.trace(np.int64(n), dtype=np.int8),
    lambda x, n: np.fft.ifftshift(x, np.array(n)),
    lambda x, n: np.split([x[0], x[n]], 2),
    lambda x, n: np.array_split([x, x], [n], axis=1),
    lambda x, n: (np.stack((1.0, 2), dtype=object).tolist(), n),
    lambda x, n: np.broadcast_arrays(x, x[n])[0] is x,
    lambda x, n: np.broadcast_to(x[None], x.shape) + n,
    lambda x, n: x.sum().argmax(out=np.zeros((), int)) + n,
    lambda x, n: type(x[n, 0].round(1, out=np.zeros(()))),
    lambda x, n: np.isfortran((1.0, n)),
    lambda x, n: np.can_cast(x.dtype, x[n]),
    lambda x, n: np.triu_indices_from([x[0], x[n]]),
    lambda x, n: x.astype(int, copy=x > n),
]


@pytest.mark.parametrize("function", METHODS)
def test_methods_take_what_numpys_own_take(function):
    check_every_odd_argument(function, [1, np.int64(1)])
    futurized = fx.futurize(function)
    for n in (0, 1, 2, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert said(futurized, (X.copy(), n)) == said(function, (X.copy(), n))


def test_an_argument_of_no_elements_is_reshaped_by_a_number_that_the_run_knows():
    futurized = fx.futurize(reshaped_after_a_write)
    for _ in range(3):
        assert plain(futurized(np.zeros((0, 4)), np.int64(1))).shape == (0,)


def test_a_sum_of_one_element_in_a_shape_that_the_run_knows_is_no_view_of_the_argument():
    for kind in (np.int64, np.float64):
        x, futurized = np.array([3], kind), fx.futurize(lambda x, n: x.sum().reshape((n,)))
        for _ in range(3):
            assert not np.shares_memory(plain(futurized(x, np.int64(1))), x)


def test_an_element_of_an_array_without_dimensions_is_not_at_a_boolean():
    check_every_odd_argument(lambda x, n: np.array(x[0, 0]).item(n), [True, False, 0, -1, np.True_, None, (0,), ()])


class Tensor:
    """An array of another library."""

    def __array__(self, dtype=None, copy=None):
        return np.ones(3, dtype)

    def __mul__(self, other):
        return np.asarray(self) * other


@pytest.mark.parametrize("call", [lambda w, batch: (batch["x"] * w).sum(), lambda w, batch: np.dot(batch["x"], w)])
def test_an_array_of_another_library_is_named(call):
    assert fx.futurize(call)(np.ones(3), {"x": Tensor()}) == 3
    said = f"batch/x, a Tensor of {__name__.partition('.')[0]}, is not staged: give np.asarray of it"
    for slope in (fx.grad(call), lambda *args: fx.lower(call, *args)):
        with pytest.raises(fx.StagingError) as caught:
            slope(np.ones(3), {"x": Tensor()})
        assert said in str(caught.value)
    np.testing.assert_array_equal(fx.grad(call)(np.ones(3), {"x": np.asarray(Tensor())}), np.ones(3))
