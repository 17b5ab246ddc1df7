"""Gradients through linear algebra, Fourier transforms and complex arithmetic, against central differences.

The gradient of a real function of complex numbers is ``dL/d(real part) - 1j * dL/d(imaginary part)``.
"""

import numpy as np
import pytest

import futurex as fx

L, F = np.linalg, np.fft


def written_parts(x):
    y = np.zeros(3, complex)
    y[1:].imag = x.real[:2]
    y.real = x.imag
    y.imag *= 2
    return np.abs(y * x).sum() + (y * (2 - 1j)).imag.sum()


def of_parts(x):
    y = x.copy()
    y.imag = np.sin(x.real) * x.imag
    y.real *= 2
    return (y * y * (1 + 2j)).real.sum()


VECTOR = {
    "imaginary part": lambda x: (x.imag**2).sum(),
    "real part": lambda x: (x.real**3).sum(),
    "both": lambda x: (x.real + 1j * x.imag**2).imag.sum() + np.real(x)[0] * np.imag(x)[1],
    "absolute": lambda x: np.abs(x * x).sum() + abs(x[1]) ** 3,
    "angle": lambda x: np.angle(x).sum(),
    "direction": lambda x: (x / abs(x)).imag.sum() + np.sign(x * x).real.sum(),
    "parts written": written_parts,
    "parts of a copy": of_parts,
    "products": lambda x: np.prod(x).imag + np.cumprod(x).imag.sum(),
    "cumulative": lambda x: np.cumsum(x * x).imag.sum() * 2,
    "moments": lambda x: abs(x.mean()) + x.var() + np.std(x),
    "cast": lambda x: (x.real.astype(complex) * x).imag.sum(),
    "conjugate": lambda x: (x.conj() * x * x).imag.sum(),
    "order": lambda x: (np.maximum(x, x[::-1]) ** 2).imag.sum(),
    "choice": lambda x: np.where(x.real > 0, x, x.conj()).imag.sum() ** 2,
    "powers": lambda x: (x**2.5).imag.sum() + (x**3).real.sum() + np.sqrt(x).imag.sum() + (x[0] ** 2).imag,
    "dot": lambda x: abs(np.dot(x, x)) + abs(np.vdot(x, x * x)) + np.vecdot(x, x * 1j * x).imag,
    "outer": lambda x: np.trace(np.outer(x, x)).imag + np.kron(x, x.conj()).imag[1] ** 2 + np.inner(x, x * x).imag,
    "einsum": lambda x: np.einsum("i,j,k->", x, x.conj(), x).imag + np.einsum("i,i->i", x, x).imag[0],
    "number": lambda x: complex(x[0] * x[1]).imag,
    "norms": lambda x: L.norm(x) + L.norm(x, 3) + L.norm(x, 1) + L.norm(x, np.inf) + L.vector_norm(x),
    "fft": lambda x: (np.abs(F.fft(x)) ** 3).sum() + np.abs(F.ifft(x, 5, norm="ortho")[1]) + F.fftshift(x)[0].imag,
    "irfft": lambda x: (F.irfft(x) ** 3).sum() + (F.irfft(x, 5) ** 3).sum() + (F.hfft(x, 2) ** 3).sum(),
    "rfft": lambda x: (np.abs(F.rfft(x.real, 5)) ** 3).sum() + np.abs(F.ihfft(x.imag)).sum(),
    "fft2": lambda x: (
        (np.abs(F.fft2(np.outer(x, x))) ** 2).sum() + np.abs(F.irfftn(np.outer(x, x), (2, 3), (0, 1))).sum()
    ),
}

# Functions of a square matrix that do not depend on what is LAPACK's choice: the phases of vectors.
MATRIX = {
    "eigh": lambda a: (lambda h: spectral(h, *L.eigh(h)))(a @ a.conj().T),
    "eigh of a triangle": lambda a: (lambda w, v: (np.abs(v[0]) * w).sum())(*L.eigh(a, "U")),
    "eig": lambda a: (lambda w, v: (np.abs(v[0]) * np.abs(w)).sum())(*L.eig(a + 1j * a.T)),
    "eigvals": lambda a: (np.abs(L.eigvals(a * 1j)) ** 3).sum(),
    "svd": lambda a: (lambda u, s, vh: np.abs((u * s**2) @ vh).sum())(*L.svd(a)),
    "svd of a wide one": lambda a: (lambda u, s, vh: np.abs((u / s) @ vh).sum())(*L.svd(a[:2], full_matrices=False)),
    "svd of a tall one": lambda a: (lambda u, s, vh: np.abs((u / s) @ vh).sum())(*L.svd(a[:, :2], full_matrices=False)),
    "singular values": lambda a: (L.svd(a)[1] ** 3).sum() + L.svdvals(a[:2])[0] + L.norm(a, 2) + L.norm(a, "nuc"),
    "qr": lambda a: (lambda q, r: np.abs(q[:, 0]).sum() + np.abs(r).sum())(*L.qr(a)),
    "qr of a wide one": lambda a: (lambda q, r: np.abs(q[:, 0]).sum() + np.abs(r).sum())(*L.qr(a[:2])),
    "qr's R": lambda a: np.abs(L.qr(a, mode="r") ** 3).sum(),
    "cholesky": lambda a: (
        np.abs(L.cholesky(a @ a.conj().T)).sum() + np.abs(L.cholesky(a @ a.conj().T, upper=True)[0]).sum()
    ),
    "inverse": lambda a: np.abs(L.inv(a)).sum() + np.abs(L.matrix_power(a, -2)).sum() + L.cond(a, 1),
    "solve": lambda a: np.abs(L.solve(a, a[0])).sum() + np.abs(L.solve(a, a @ a)).sum(),
    "determinants": lambda a: np.abs(L.det(a)) + L.slogdet(a)[1] + L.slogdet(a).sign.real * L.slogdet(a).sign.imag,
    "pinv": lambda a: np.abs(L.pinv(a[:, :2])).sum() + np.abs(L.pinv(a @ a.conj().T, hermitian=True)).sum(),
    "lstsq": lambda a: np.abs(L.lstsq(a, a[1])[0]).sum() + L.lstsq(a[:2], a[:2, 0])[3].sum(),
    "norms": lambda a: L.norm(a) + L.norm(a, 1) + L.norm(a, -np.inf) + L.matrix_norm(a) + L.cond(a),
    "products": lambda a: (
        np.abs(L.multi_dot([a, a, a[0]])).sum() + np.abs(np.tensordot(a, a, 2)) + np.abs(L.cross(a, a[0])).sum()
    ),
    "tensors": lambda a: np.abs(L.tensorsolve(a, a[0])).sum() + np.abs(L.tensorinv(a, ind=1)).sum(),
}


def spectral(h, w, v):
    return np.abs((v * np.sin(w)) @ v.conj().T @ h).sum()


def differences(function, x):
    parts = []
    for direction in (1e-6, 1e-6j) if np.iscomplexobj(x) else (1e-6,):
        steps = direction * np.eye(x.size).reshape(-1, *x.shape)
        parts.append(np.array([(function(x + step) - function(x - step)) / 2e-6 for step in steps]).reshape(x.shape))
    return parts[0] if len(parts) == 1 else parts[0] - 1j * parts[1]


def draw(rng, shape, kind):
    return rng.normal(size=shape) + (1j * rng.normal(size=shape) if kind == "complex" else 0)


@pytest.mark.parametrize("name", VECTOR)
def test_gradients_of_complex_vectors(name):
    x = draw(np.random.default_rng(7), 3, "complex")
    np.testing.assert_allclose(fx.grad(VECTOR[name])(x), differences(VECTOR[name], x), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", MATRIX)
def test_gradients_of_matrices(name, kind):
    a = draw(np.random.default_rng(8), (3, 3), kind)
    np.testing.assert_allclose(fx.grad(MATRIX[name])(a), differences(MATRIX[name], a), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["eigh", "svd of a tall one", "qr", "cholesky", "determinants", "pinv", "lstsq"])
def test_second_derivatives_of_complex_matrices(name):
    a, direction = (draw(np.random.default_rng(seed), (3, 3), "complex") for seed in (9, 10))

    def slope(a):
        return (fx.grad(MATRIX[name])(a) * direction).real.sum()

    expected = differences(lambda a: float(slope(a)), a)
    np.testing.assert_allclose(fx.grad(slope)(a), expected, rtol=5e-5, atol=5e-5)


def test_gradients_where_a_formula_would_divide_by_zero():
    singular = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 7.0], [0.0, 1.0, 5.0]])
    singular[0] = singular[1] - 2 * singular[2]
    np.testing.assert_allclose(fx.grad(L.det)(singular), differences(L.det, singular), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(fx.grad(L.norm)(np.zeros(3)), np.zeros(3))
    np.testing.assert_array_equal(fx.grad(lambda x: L.norm(x, axis=0).sum())(np.eye(3)[:, :2]), np.eye(3)[:, :2])
    twice = np.diag([2.0, 2.0, 5.0])
    np.testing.assert_allclose(fx.grad(lambda a: L.eigvalsh(a).sum())(twice), np.eye(3), atol=1e-15)
    np.testing.assert_allclose(fx.grad(lambda a: L.svdvals(a).sum())(twice), np.eye(3), atol=1e-15)


def test_only_the_triangle_that_is_read_has_a_gradient():
    a = np.array([[4.0, 1.0], [0.5, 3.0]])
    for function in (lambda a: L.cholesky(a)[1, 0], lambda a: L.eigvalsh(a)[0]):
        np.testing.assert_allclose(fx.grad(function)(a), differences(function, a), rtol=1e-6, atol=1e-9)
        assert fx.grad(function)(a)[0, 1] == 0


@pytest.mark.parametrize("function", [
    lambda a: L.svd(a)[0].sum(), lambda a: L.qr(a, "complete")[0].sum(), lambda a: L.qr(a, "raw")[0].sum(),
])  # fmt: skip
def test_what_has_no_derivative_says_so(function):
    with pytest.raises(TypeError, match=r"ha(s|ve) no derivative.*at test_matrix_derivatives\.py:\d+: "):
        fx.grad(function)(np.arange(6.0).reshape(3, 2))


def evidence(theta, x, y):
    """Minus the logarithm of the likelihood of a Gaussian process."""
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)
    covariance = np.exp(theta[0] - distance / np.exp(theta[1])) + np.exp(theta[2]) * np.eye(len(x))
    factor = L.cholesky(covariance)
    weights = L.solve(factor.T, L.solve(factor, y))
    return 0.5 * y @ weights + np.log(np.diag(factor)).sum()


def filtered(a, c, observed):
    """The same of a linear system that is observed through noise: Kalman's filter."""
    x, p, total = np.zeros(len(a)), np.eye(len(a)), 0.0
    for t in range(observed.shape[0]):
        x, p = a @ x, a @ p @ a.T + 0.1 * np.eye(len(a))
        spread = c @ p @ c.T + 0.2 * np.eye(len(c))
        gain, rest = L.solve(spread, c @ p).T, observed[t] - c @ x
        x, p = x + gain @ rest, p - gain @ c @ p
        total = total + 0.5 * (rest @ L.solve(spread, rest) + L.slogdet(spread)[1])
    return total


@pytest.mark.parametrize("function, shapes", [(evidence, ((3,), (9, 2), (9,))), (filtered, ((3, 3), (2, 3), (20, 2)))])
def test_values_and_gradients_of_programs(function, shapes):
    rng = np.random.default_rng(11)
    first, *others = (0.5 * rng.normal(size=shape) for shape in shapes)
    value, gradient = fx.value_and_grad(function)(first, *others)
    assert float(value) == function(first, *others)
    expected = differences(lambda x: function(x, *others), first)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("extent", [1, 2, 3, 4, 5, 7])
def test_the_derivative_of_det_however_close_to_singular(extent, kind):
    rng = np.random.default_rng(12)
    a = draw(rng, (5, extent, extent), kind)
    a[1, -1], a[2], a[3] = a[1, 0], 0.0, a[3] * 1e-30
    a[4, :, 0] *= 1e-9
    a[4, :, 0] += a[4, :, -1] * (extent > 1)
    found = fx.grad(lambda a: np.linalg.det(a).sum().real)(a)
    expected = np.stack([[
        [(-1.0) ** (i + j) * L.det(np.delete(np.delete(each, i, 0), j, 1)) for j in range(extent)]
        for i in range(extent)
    ] for each in a])  # fmt: skip
    scale = abs(expected).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(found / np.where(scale, scale, 1), expected / np.where(scale, scale, 1), atol=2e-9)
