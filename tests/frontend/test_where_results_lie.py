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


VIEWS = {
    "itself": lambda y: y,
    "transposed": lambda y: y.T,
    "moved": lambda y: np.moveaxis(y, 0, 1),
    "backwards": lambda y: y[::-1],
    "rows backwards": lambda y: y[:, ::-1],
    "every other": lambda y: y[::2],
    "broadcast": lambda y: np.broadcast_to(y[:1], y.shape),
    "diagonal": lambda y: np.diagonal(y),
    "a part, transposed": lambda y: y.T[1:],
}
COPIES = {
    **{f"copy {o}": lambda v, o=o: v.copy(o) for o in "CFAK"},
    **{f"array {o}": lambda v, o=o: np.array(v, order=o) for o in "CFAK"},
    **{f"astype {o}": lambda v, o=o: v.astype(np.float32, order=o) for o in "CFAK"},
    **{f"astype of the same {o}": lambda v, o=o: v.astype(float, order=o) for o in "CFAK"},
    **{f"ravel {o}": lambda v, o=o: v.ravel(o) for o in "CFAK"},
    **{f"flatten {o}": lambda v, o=o: v.flatten(o) for o in "CFAK"},
    "np.copy": lambda v: np.copy(v),
    "ascontiguousarray": lambda v: np.ascontiguousarray(v),
    "asfortranarray": lambda v: np.asfortranarray(v),
    "require": lambda v: np.require(v, requirements="C"),
    "zeros_like": lambda v: np.zeros_like(v),
    "ufunc C": lambda v: np.add(v, 1, order="C"),
    "ufunc F": lambda v: np.add(v, 1, order="F"),
}


def several_rounds(x):
    while x.sum() < 100:
        x = x[::-1].T.T + 1
    return x


MADE_OF = {"an argument": lambda x: x, "elements": lambda x: x * 2, "a product": lambda x: x @ np.swapaxes(x, -1, -2),
           "a loop": several_rounds}  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 5, 6), (160, 140)])
@pytest.mark.parametrize("made", MADE_OF)
@pytest.mark.parametrize("view", VIEWS)
def test_copies_have_numpys_strides(view, made, shape):
    """Also where the copy is elided, which nobody sees but a caller who looks at memory."""
    x = np.random.default_rng(1).random(shape)
    for name, copy in COPIES.items():

        def program(x, copy=copy):
            return copy(VIEWS[view](MADE_OF[made](x)))

        futurized = fx.futurize(program)
        expected = program(x)
        if np.shares_memory(expected, x):
            continue
        for _ in range(2):
            found = np.asarray(futurized(x))
            assert found.strides == expected.strides or (made == "a loop" and name[-1] in "AK"), name
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def views_and_copies(x):
    y = x * 2
    return y, y.T, y.T.copy(), np.asfortranarray(y), y[::-1].copy(), y.copy()


def rounds(x):
    y = x * 1.0
    while y.sum() > 1:
        y = (y * 0.5)[::-1].T.copy()
    return y, [(y * 3).T.copy(), y]


def branches(x):
    y = (x * 2)[::-1].copy() if x.sum() > 0 else x[::-1].T.copy()
    return {"y": y, "z": (x * 1j).T.copy(), "v": (x[0] * 2)[::-1].copy(), "w": x[x > 0.5][::-1].copy()}


@pytest.mark.parametrize("size", [5, 200])
@pytest.mark.parametrize("program", [views_and_copies, rounds, branches])
def test_several_results_have_numpys_strides(program, size):
    x = np.random.default_rng(2).random((size, size))
    futurized = fx.futurize(program)
    fx.precompile(futurized, x)
    for _ in range(12):
        assert [np.asarray(each).strides for each in leaves(futurized(x))] == [y.strides for y in leaves(program(x))]


def leaves(nest):
    if isinstance(nest, dict | list | tuple):
        return [each for part in (nest.values() if isinstance(nest, dict) else nest) for each in leaves(part)]
    return [nest]


def test_a_copy_that_the_program_alone_reads_is_none():
    f = fx.futurize(lambda x: (x * 2).T.copy().sum(0) + 1)
    f(np.ones((200, 300)))
    assert {node.op for node in f.graph(np.ones((200, 300))).nodes}.isdisjoint({"contiguous"})
