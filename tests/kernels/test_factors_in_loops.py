"""Eigenvalues, QR, least squares, polynomials and pseudoinverses in compiled loops: NumPy's bits and errors, no call of
Python."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(5)
ROUNDS = 24
L = np.linalg


def eigenvalues(a, _):
    found = np.zeros((ROUNDS, 9))
    for k in range(ROUNDS):
        w, v = L.eigh(a[k] @ a[k].T)
        x, y = L.eigh(a[k, :3, :3], UPLO="U")
        stack, turned = L.eigh(np.stack([a[k, :3, :3], a[k, 1:4, :3]]))
        found[k, :4] = w + v[1] + L.eigvalsh(a[k].T @ a[k])[0]
        found[k, 4:7] = x * y[:, 1] + stack[1] - turned[0, 2] + L.eigvalsh(a[k, :3, :3], UPLO="U")
        found[k, 7] = L.svd(a[k], compute_uv=False)[1] + L.svd(a[k, :, :2], compute_uv=False)[1]
        found[k, 8] = L.matrix_rank(a[k]) + L.cond(a[k]) - L.cond(a[k, :2], -2)
    return found


def triangles(a, _):
    found = np.zeros((ROUNDS, 4))
    for k in range(ROUNDS):
        q, r = L.qr(a[k])
        tall, wide = L.qr(a[k, :, :2]), L.qr(a[k, :2])
        whole, upper = L.qr(a[k, :, :3], mode="complete")
        found[k] = q[0] + r[:, 1] + tall[0][:, 1] + wide[1][1] + L.qr(a[k].T, mode="r")[1] + whole[3]
        found[k, :2] += tall[1][0] - wide[0][1] + upper[1, :2]
    return found


def solutions(a, b):
    found = np.zeros((ROUNDS, 4))
    for k in range(ROUNDS):
        x, rest, rank, s = L.lstsq(a[k], b[k], rcond=None)
        tall, over, full, _ = L.lstsq(a[k, :, :2], b[k], rcond=0.01)
        many = L.lstsq(a[k, :, 1:3], a[k, ::-1], rcond=None)
        found[k] = x + s * rank + rest.sum()
        found[k, :2] += tall * full + over.sum() - L.lstsq(a[k, :3, :2], b[k, :3], rcond=None)[0]
        found[k, 2:] += many[0][:, 3] + many[1].sum() + L.lstsq(a[k, :2], b[k, :2], rcond=None)[0][:2]
    return found


def pseudoinverses(a, _):
    found = np.zeros((ROUNDS, 4))
    for k in range(ROUNDS):
        found[k] = L.pinv(a[k])[0] + L.pinv(a[k, :, :2])[1] + L.pinv(a[k, :2], rcond=0.1)[:, 1]
    return found


def polynomials(a, b):
    found, places, weights = np.zeros((ROUNDS, 4)), np.arange(7), np.linspace(0.5, 2.0, 7)
    for k in range(ROUNDS):
        x, y = np.sort(a[k, :2].ravel()), a[k, 2:].ravel()
        found[k] = np.polyfit(x, y, 3) + np.polyfit(y, x, 0)[0]
        found[k, 1:] += np.polyfit(places, y[:7], 2) - np.polyfit(x[:7] + k, y[:7], 2, w=weights)
        found[k, :2] += np.polyfit(x, a[k].reshape(8, 2), 1)[1] + np.polyfit(places, a[k].ravel()[:14:2], 1)
        found[k, 2:] -= np.polyfit(x[:7], a[k].ravel()[:14].reshape(7, 2), 1, w=weights)[0]
    return found


def matrices(dtype):
    a = RNG.normal(size=(ROUNDS, 4, 4))
    a[::5, 3] = a[::5, 2]
    a[7, :, 1] = 0.0
    return a.astype(dtype), RNG.normal(size=(ROUNDS, 4)).astype(dtype)


@pytest.mark.parametrize("function, dtype", [
    (eigenvalues, "f8"), (eigenvalues, "f4"), (triangles, "f8"), (triangles, "f4"), (solutions, "f8"),
    (solutions, "f4"), (pseudoinverses, "f8"), (polynomials, "f8"),
])  # fmt: skip
def test_bits(function, dtype, at_once):
    f, operands = fx.futurize(function), matrices(dtype)
    assert calls_of_loops(f, list(operands)) == []
    for given in (operands, matrices(dtype)):
        actual, expected = np.asarray(f(*given)), function(*given)
        if function is pseudoinverses:  # whose product may be another kernel's
            np.testing.assert_allclose(actual, expected, rtol=1e-9)
        else:
            np.testing.assert_array_equal(actual, expected)


FACTORS = {
    "eigh": lambda a: L.eigh(a)[0],
    "eigvalsh": L.eigvalsh,
    "svdvals": lambda a: L.svd(a, compute_uv=False),
    "cond": L.cond,
    "qr": lambda a: L.qr(a)[1],
    "lstsq": lambda a: L.lstsq(a, a[0], rcond=None)[0],
    "pinv": L.pinv,
    "polyfit": lambda a: np.polyfit(a[0], a[1], 2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_what_has_no_factors(name, value, at_once):
    factor = FACTORS[name]

    def sums(a):
        total = 0.0
        for k in range(ROUNDS):
            total = total + np.sum(factor(a[k]))
        return total

    a, _ = matrices("f8")
    a[17] = value
    outcomes = []
    for each in (fx.futurize(sums), sums):
        try:
            outcomes.append(repr(float(each(a))))
        except L.LinAlgError as error:
            outcomes.append(repr(error))
    assert outcomes[0] == outcomes[1]
