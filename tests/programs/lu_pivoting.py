"""LU decomposition with partial pivoting, in place, with row swaps by fancy indexing."""

import numpy as np


def lu_pivoting(a):
    """The factors in one matrix, the permutation, and the determinant."""
    lu = a.copy()
    n = lu.shape[0]
    perm = np.arange(n)
    sign = 1.0
    for k in range(n - 1):
        p = k + np.argmax(np.abs(lu[k:, k]))
        if lu[p, k] == 0:
            raise np.linalg.LinAlgError("singular")
        if p != k:
            lu[[k, p]] = lu[[p, k]]
            perm[k], perm[p] = perm[p], perm[k]
            sign = -sign
        lu[k + 1 :, k] /= lu[k, k]
        lu[k + 1 :, k + 1 :] -= np.outer(lu[k + 1 :, k], lu[k, k + 1 :])
    return lu, perm, sign * np.prod(np.diag(lu))


def example(rng):
    return (rng.normal(size=(24, 24)),)
