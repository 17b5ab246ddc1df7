"""In which order NumPy lays results out: it decides what ``reshape`` shares, and what orders A and K mean."""

import numpy as np
import pytest

import futurex as fx

LAYOUTS = {
    "C": lambda: np.arange(1.0, 7).reshape(2, 3) / 7,
    "Fortran": lambda: np.asfortranarray(np.arange(1.0, 7).reshape(2, 3) / 7),
    "rows apart": lambda: (np.arange(24.0).reshape(4, 6) / 24)[::2, ::2],
    "columns apart": lambda: (np.arange(24.0).reshape(6, 4) / 24)[::2, ::2].T,
}

MADE = [
    *(lambda x, like=like, o=o: like(x, order=o) for like in (np.zeros_like, np.ones_like) for o in "CFAK"),
    *(lambda x, o=o: np.full_like(x, 3.0, order=o) for o in "CFAK"),
    *(lambda x, o=o: np.full_like(x, x + 1, int, order=o) for o in "CFAK"),
    *(lambda x, o=o: np.empty_like(x, order=o) * 0 for o in "CFAK"),
    *(lambda x, o=o: np.array(x, order=o) for o in "CFAK"),
    *(lambda x, o=o: np.array(x, complex, order=o) for o in "CFAK"),
    *(lambda x, o=o: np.asarray(x, order=o) for o in "CFAK"),
    *(lambda x, o=o: np.asarray(x, np.float32, order=o) for o in "CFAK"),
    *(lambda x, o=o: x.copy(o) for o in "CFAK"),
    *(lambda x, o=o: x.astype(int, o) for o in "CFAK"),
    *(lambda x, o=o: x.astype(float, o, copy=False) for o in "CFAK"),
    *(lambda x, o=o: np.zeros(x.shape, order=o) for o in "CF"),
    *(lambda x, o=o: np.ones(x.shape, np.int8, order=o) for o in "CF"),
    *(lambda x, o=o: np.full(x.shape, x, order=o) for o in "CF"),
    *(lambda x, o=o: np.array([x[0], x[1]], order=o) for o in "CFAK"),
    lambda x: np.asfortranarray(x),
    lambda x: np.asfortranarray(x, np.float32),
    lambda x: np.ascontiguousarray(x),
    lambda x: np.ascontiguousarray(x, np.float32),
    lambda x: np.sort(x, 0),
    lambda x: np.argsort(x, 0),
    lambda x: x.argsort(),
    lambda x: np.linalg.qr(x)[1],
    lambda x: np.random.default_rng(0).permuted(x, axis=0),
    lambda x: np.pad(x, 1),
    lambda x: np.pad(x, 1, mode="edge"),
    lambda x: np.pad(x, 0, mode="edge"),
    lambda x: np.round(x, 1),
    lambda x: x.round(),
    lambda x: np.round(x.astype(int), -1),
]
SOMETIMES = [
    lambda x: np.zeros_like(x, shape=(3, 4)),
    lambda x: np.zeros_like(x, shape=(3, 4), order="A"),
    *(lambda x, o=o: np.add(x, 1, order=o) for o in "CFAK"),
    *(lambda x, o=o: x.ravel(o).reshape(2, 3) for o in "CFAK"),
    *(lambda x, o=o: np.pad(x + np.ones((2, 3)), 1).copy(o) for o in "CFAK"),
    lambda x: np.array(x + np.ones((2, 3)), order="A"),
]


def described(y):
    return y.ravel("A") * 1, y.flags.f_contiguous, y.flags.c_contiguous


def written(y):
    rows, columns = y.reshape(-1), y.ravel("F")
    rows[0] = 9
    columns[-1] = 8
    return y * 1


@pytest.mark.parametrize("then", [described, written])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", [*MADE, *SOMETIMES])
def test_results_lie_where_numpy_lays_them(make, layout, then):
    def program(x):
        return then(make(x))

    futurized = fx.futurize(program)
    expected, found = program(LAYOUTS[layout]()), futurized(LAYOUTS[layout]())
    if then is described:
        assert [bool(flag) for flag in found[1:]] == [*expected[1:]]
        expected, found = expected[0], found[0]
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
    if make in MADE and then is described:
        assert "plain NumPy" not in futurized.explain()
