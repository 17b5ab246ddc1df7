"""Complex numbers in compiled loops: NumPy's scalars and Python's numbers, each with its own last bits."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops, outcome

import futurex as fx
from futurex.kernels.numba_ import complexes
from futurex.passes.fuse import fuse_small

RNG = np.random.default_rng(0)
Z = RNG.normal(size=24) + 1j * RNG.normal(size=24)
ODD = np.array([complex(a, b) for a in (0.0, -0.0, 1.5, np.inf, np.nan) for b in (0.0, -0.0, -2.5, -np.inf, np.nan)])
GRID = np.linspace(-2, 1, 9)[:, None] + 1j * np.linspace(-1, 1, 8)


def escapes(c, most):
    out = np.zeros(c.shape, dtype=int)
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            z = 0j
            for k in range(most):
                z = z * z + c[i, j]
                if abs(z) > 2:
                    out[i, j] = k
                    break
    return out


def escapes_of_parts(re, im, most):
    out = np.zeros((len(re), len(im)))
    for i in range(len(re)):
        for j in range(len(im)):
            c, z, n = complex(re[i], im[j]), complex(0, 0), 0
            while n < most and z.real * z.real + z.imag * z.imag < 4:
                z = z * z + c
                n += 1
            out[i, j] = n + z.real
    return out


def horner(v, z):
    value = 0j
    for c in v:
        value = value * z + c
    return value


def transform(v):
    out = np.zeros(len(v), dtype=complex)
    for k in range(len(v)):
        total = 0j
        for t in range(len(v)):
            total += v[t] * np.exp(-2j * np.pi * k * t / len(v))
        out[k] = total
    return out


def of_python(v, z):
    total, other = z, z
    for k in range(len(v)):
        w = complex(v[k])
        if w != 0:
            total = total / w - w.conjugate() * 2 + k
            other = -other if other.real > 0 else (w + 1.5) / (w + 2j)
    return total, other, total == other, abs(total), total.imag


def of_scalars(v):
    total = v[0]
    smallest = v[0]
    for k in range(1, len(v)):
        total = total * v[k] + v[k - 1] / v[k] - 2.5 * v[k]
        if abs(v[k]) < abs(smallest):
            smallest = v[k]
    return total, smallest, abs(total), total.real, np.conj(total), total != smallest


def sums(v):
    total = v[:3].sum() * 0
    rows = np.zeros((len(v), 3), v.dtype)
    for k in range(len(v) - 3):
        total = total + v[k : k + 3].sum() * v[k : k + 2].prod()
        rows[k] = v[k]
        rows[k, 1] = k
        rows[k, 2] = 1j * k
    return total, rows


def roots(z):
    for _ in range(20):
        z = z - (z**3 - 1) / (3 * z**2)
    return z


def too_large(v):
    total, size = 1.0 + 0j, 0.0
    for k in range(len(v)):
        total = total * 1e200
        size = size + abs(complex(1e308, 1e308 * k))
    return total, size


CASES = [
    (escapes, GRID, 25), (escapes, GRID.astype(np.complex64), 25),
    (escapes_of_parts, np.linspace(-2, 1, 9), np.linspace(-1, 1, 8), 25),
    (horner, Z, 0.3 - 0.4j), (horner, Z.real, 0.3 - 0.4j), (horner, ODD, 1j), (transform, Z.real), (transform, Z),
    (of_python, Z, 1 - 2j), (of_python, ODD, 1j), (of_python, Z.astype(np.complex64), 0.5j),
    (of_scalars, Z), (of_scalars, Z.astype(np.complex64)), (of_scalars, ODD), (sums, Z), (sums, Z.astype(np.complex64)),
    (sums, np.full(9, -0.0 - 0.0j)), (roots, 1 + 1j), (roots, 0j), (too_large, Z.real),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{getattr(case[1], 'dtype', '')}")
def test_the_bits_are_numpys_and_pythons(case, at_once):
    function, *args = case
    futurized = fx.futurize(function)
    for _ in range(4):
        assert outcome(futurized, args) == outcome(function, args), futurized.explain()


@pytest.mark.skipif(not complexes.known(), reason="NumPy's products of complex numbers are its own here")
@pytest.mark.parametrize("function, args", [
    (escapes_of_parts, (np.linspace(-2, 1, 9), np.linspace(-1, 1, 8), 25)), (horner, (Z, 0.3j)), (of_scalars, (Z,)),
    (of_python, (Z, 1j)), (transform, (Z,)), (sums, (Z,)),
], ids=lambda case: getattr(case, "__name__", ""))  # fmt: skip
def test_nothing_is_called_in_python(function, args):
    futurized = fx.futurize(function)
    assert calls_of_loops(futurized, args) == [], futurized.explain()


@pytest.mark.parametrize("x", [Z[3], np.complex64(Z[3]), complex(Z[3])], ids=["complex128", "complex64", "python"])
@pytest.mark.parametrize("y", [Z[5], np.complex64(Z[5]), complex(Z[5]), 2.5, 3, np.float32(0.7), np.int64(3)], ids=str)
def test_products_of_scalars_are_not_fused(x, y):
    """Those of arrays are, on processors that have such an instruction."""

    def function(x, y):
        return x * y, y * x, x / 3, x + y

    futurized = fx.futurize(function)
    for scale in (1, 1.25, -3.5, 0.3):
        assert outcome(futurized, (x * scale, y)) == outcome(function, (x * scale, y))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_places_of_extremes_are_numpys(dtype, at_once):
    """Whose order of complex numbers no code has."""

    def function(z):
        return z.argmax(), z.reshape(4, 6).argmin(axis=0), (z * 2).real

    futurized = fx.futurize(function)
    for _ in range(4):
        assert outcome(futurized, (Z.astype(dtype),)) == outcome(function, (Z.astype(dtype),))


def test_settled_calls_with_numbers_of_their_own(at_once):
    """Where nobody looks any more what kind of thing an argument is."""

    def function(x, y):
        return x * y + x, (x - y) * (y + 2)

    futurized = fx.futurize(function)
    for k in range(12):
        args = complex(Z[k]), Z[k + 1]
        assert outcome(futurized, args) == outcome(function, args)
    assert "runs as one compiled function" in futurized.explain()


def test_derivatives_go_through_products_of_scalars():
    def function(x, y):
        z = complex(x, y)
        for _ in range(3):
            z = z * z / (1 + z) + 0.5j
        return z.real * z.imag

    x, y, h = 0.3, -0.4, 1e-6
    along_x, along_y = function(x + h, y) - function(x - h, y), function(x, y + h) - function(x, y - h)
    expected = [along_x / (2 * h), along_y / (2 * h)]
    np.testing.assert_allclose(fx.grad(function, argnums=(0, 1))(x, y), expected, rtol=1e-7)


def squared(z, c, rounds):
    for _ in range(rounds):
        z = z * z * 0.5 + c
    return z


def divided(z, c, rounds):
    for _ in range(rounds):
        z = (z - c) / (z + 2.0) + np.conj(c) * 0.3 - z
    return z


def chosen(z, c, rounds):
    count = np.zeros(z.shape, int)
    for k in range(rounds):
        inside = np.less(abs(z), 2.0)
        count[inside] = k
        z[inside] = z[inside] ** 2 + c[inside]
    return z, count


def of_parts(z, c, rounds):
    for _ in range(rounds):
        z = np.where(z.real > c.imag, z.real * c + 1j * z.imag, np.square(z) * c.real - c)
    return z, abs(z) * z.real


def through_views(z, c, rounds):
    for _ in range(rounds):
        z[1:, ::2] = z[1:, ::2] * c[:-1, 1::2] + abs(c[1:, ::2]) * 0.5
        z[:, 1] = z[:, 0] * 0.25 - c[:, 3] * z[:, 1]
    return z


def compared(z, c, rounds):
    same = np.zeros(z.shape, bool)
    for _ in range(rounds):
        same = (z == c) | ((z * 0.5 != c) & np.isfinite(z + c))
        z = np.reciprocal(z + 0.5) + np.where(same, c, -z)
    return z, same


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("extents", [(6, 8), (60, 60)])
@pytest.mark.parametrize("program", [squared, divided, chosen, of_parts, through_views, compared])
@pytest.mark.filterwarnings("error:a kernel was not compiled")
def test_operations_on_complex_arrays_in_rounds_are_numpys_to_the_last_bit(program, extents, dtype, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    staged = fx.futurize(lambda z, c, rounds: program(z.copy(), c, rounds), escape="error")
    odd = np.resize(ODD, extents)
    for kind in ("plain", "plain", "odd"):
        z, c = (RNG.normal(size=extents) + 1j * RNG.normal(size=extents) for _ in range(2))
        z, c = z.astype(dtype), c.astype(dtype)
        if kind == "odd":
            z = odd.astype(dtype)
        with np.errstate(all="ignore"):
            expected = program(z.copy(), c, 5)
        found = staged(z, c, 5)
        several = isinstance(expected, tuple)
        for mine, theirs in zip(found if several else [found], expected if several else [expected], strict=True):
            assert np.asarray(mine).dtype == theirs.dtype
            np.testing.assert_array_equal(np.asarray(mine), theirs)  # NaN equal NaN


def test_operations_on_complex_arrays_are_one_loop():
    if not complexes.known():
        pytest.skip("NumPy makes products of its own here")
    staged = fx.lower(fx.futurize(lambda z, c: squared(z.copy(), c, 5)), GRID, GRID).graph
    body = next(node for node in staged.nodes if node.op == "loop").attrs["body"]
    assert [node.op for node in fuse_small(body, of_complex=True).nodes].count("fused") == 1
    assert [node.op for node in fuse_small(body).nodes].count("fused") == 0
