"""Every function of ``numpy.linalg`` and ``numpy.fft``, and the products, with their options."""

import numpy as np

L, F = np.linalg, np.fft

# Functions of a stack of square matrices ``x``, of right-hand sides ``b`` and of a vector ``v``.
SQUARE = {
    "inv": lambda x, b, v: L.inv(x),
    "solve": lambda x, b, v: (L.solve(x, b), L.solve(x, v), L.solve(x, x)),
    "det": lambda x, b, v: (L.det(x), L.slogdet(x)),
    "slogdet parts": lambda x, b, v: (L.slogdet(x).sign, L.slogdet(x)[1] + 1, *L.slogdet(x)),
    "cholesky": lambda x, b, v: (L.cholesky(x), L.cholesky(x, upper=True)),
    "eigh": lambda x, b, v: (L.eigh(x), L.eigh(x, "U"), L.eigh(x, UPLO="l").eigenvectors @ b),
    "eigvalsh": lambda x, b, v: (L.eigvalsh(x), L.eigvalsh(x, "U")),
    "svd hermitian": lambda x, b, v: (L.svd(x, hermitian=True), L.svd(x, compute_uv=False, hermitian=True)),
    "pinv hermitian": lambda x, b, v: (L.pinv(x, hermitian=True), L.pinv(x, 0.5), L.pinv(x, rtol=None)),
    "matrix_power": lambda x, b, v: [L.matrix_power(x, n) for n in (-3, -1, 0, 1, 2, 3, 5)],
    "cond": lambda x, b, v: [L.cond(x, p) for p in (None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc")],
    "matrix_rank": lambda x, b, v: (L.matrix_rank(x), L.matrix_rank(x, 1.5), L.matrix_rank(x, rtol=0.3),
                                    L.matrix_rank(x, hermitian=True), L.matrix_rank(v), L.matrix_rank(v * 0)),
    "views": lambda x, b, v: (L.trace(x), L.trace(x, offset=1), L.diagonal(x), L.diagonal(x, offset=-1),
                              L.matrix_transpose(x), L.matrix_transpose(x)[..., 0]),
}  # fmt: skip

# Functions of a stack of matrices ``x`` of any shape.
MATRIX = {
    "qr": lambda x: [L.qr(x), *[L.qr(x, mode) for mode in ("reduced", "complete", "r", "raw")]],
    "qr parts": lambda x: (L.qr(x).Q @ L.qr(x).R, L.qr(x)[0].sum()),
    "svd": lambda x: (L.svd(x), L.svd(x, full_matrices=False), L.svd(x, False).S * 2),
    "svdvals": lambda x: (L.svdvals(x), L.svd(x, compute_uv=False)),
    "pinv": lambda x: (L.pinv(x), L.pinv(x, 1e-3), L.pinv(x, rtol=0.6), L.pinv(x, rcond=np.float64(0.1))),
    "lstsq": lambda x: (L.lstsq(x, x[..., 0]), L.lstsq(x, x, 0.5), L.lstsq(x, x[:, :0], rcond=-1)),
    "lstsq parts": lambda x: [part * 2 for part in L.lstsq(x[x.real[:, 0] > -9], x[x.real[:, 0] > -9][:, :2])],
    "matrix_rank": lambda x: (L.matrix_rank(x), L.matrix_rank(x, rtol=0.5)),
    "cond": lambda x: (L.cond(x), L.cond(x, -2)),
    "matrix_norm": lambda x: [L.matrix_norm(x, ord=o) for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)],
    "matrix_norm keepdims": lambda x: [L.matrix_norm(x, ord=o, keepdims=True) for o in ("fro", "nuc", 1, 2, -np.inf)],
    "norm of an axis": lambda x: [L.norm(x, o, axis=-1) for o in (None, 0, 1, 2, 3, -1, 0.5, np.inf, -np.inf)],
    "norm keepdims": lambda x: [L.norm(x, o, 0, keepdims=True) for o in (None, 0, 1, 2, np.inf)],
    "norm of two axes": lambda x: [L.norm(x, o, axis=(-1, -2)) for o in (None, "fro", "nuc", 1, -1, 2, -2, np.inf)],
    "norm of all": lambda x: (L.norm(x), L.norm(x, keepdims=True), L.norm(x[0]), L.norm(x[0], None)),
    "vector_norm": lambda x: [L.vector_norm(x, axis=a, keepdims=k, ord=o)
                              for a in (None, 0, -1, (0, 1)) for k in (False, True) for o in (2, 1, np.inf, 3)],
    "fft": lambda x: [f(x, n, axis, norm) for f in (F.fft, F.ifft) for n in (None, 1, 4, 7) for axis in (0, -1)
                      for norm in (None, "ortho", "forward", "backward")],
    "inverse of real": lambda x: [f(x, n, axis, norm) for f in (F.irfft, F.hfft) for n in (4, 7) for axis in (0, -1)
                                  for norm in (None, "ortho", "forward")],
    "fft of several": lambda x: (F.fftn(x), F.ifftn(x), F.fft2(x), F.ifft2(x), F.fftn(x, (2, 5), (0, -1), "ortho"),
                                 F.ifftn(x, axes=(0,)), F.fft2(x, s=(3, -1)), F.irfftn(x, (3, 4), (0, 1)),
                                 F.irfft2(x, (4, 5), norm="forward"), F.fftn(x, axes=()), F.irfftn(x, axes=(-1,))),
    "shift": lambda x: (F.fftshift(x), F.ifftshift(x), F.fftshift(x, 0), F.ifftshift(x, (0, 1)), F.fftshift(x, [-1])),
}  # fmt: skip

REAL = {
    "rfft": lambda x: [f(x, n, axis, norm) for f in (F.rfft, F.ihfft) for n in (None, 1, 4, 7) for axis in (0, -1)
                       for norm in (None, "ortho", "forward")],
    "rfft of several": lambda x: (F.rfftn(x), F.rfft2(x), F.rfftn(x, (2, 5), (0, -1), "ortho"), F.rfft2(x, (4, 2))),
    "frequencies": lambda x: (F.fftfreq(5), F.fftfreq(4, 0.1), F.rfftfreq(5), F.rfftfreq(6, 2) * x[0, 0],
                              F.fftfreq(x.shape[0], 0.5) + 1),
}  # fmt: skip

# Functions of a matrix ``x`` (3, 4), a matrix ``y`` (4, 3), a stack ``s`` (2, 3, 4) and vectors ``v`` (4), ``w`` (3).
PRODUCTS = {
    "dot": lambda x, y, s, v, w: (np.dot(x, y), np.dot(x, v), np.dot(v, y), np.dot(v, v), np.dot(2, x), np.dot(s, y)),
    "dot of stacks": lambda x, y, s, v, w: (np.dot(s, s.transpose(0, 2, 1)), np.dot(x, s.mT), np.dot(s, v)),
    "dot out": lambda x, y, s, v, w: (o := np.zeros((3, 3), np.dot(x, y).dtype), np.dot(x, y, out=o), np.dot(x, y, o)),
    "matmul": lambda x, y, s, v, w: (x @ y, s @ y, s @ v, w @ s, L.matmul(x, y), np.matmul(s, s.mT), v @ v),
    "matmul axes": lambda x, y, s, v, w: (
        np.matmul(s, s, axes=[(-2, -1), (-1, -2), (-2, -1)]), np.matmul(s, y, axes=[(1, 2), (0, 1), (0, 1)]),
        np.matmul(x, y, axes=[(0, 1), (0, 1), (1, 0)]), np.matmul(x, y, dtype=np.result_type(x, np.complex128)),
    ),
    "matmul out": lambda x, y, s, v, w: (
        np.matmul(x, y, out=np.zeros((3, 3), x.dtype)), np.matmul(x, y, np.zeros((3, 3), complex)),
    ),
    "vecdot": lambda x, y, s, v, w: (
        np.vecdot(x, v), np.vecdot(s, x), L.vecdot(x, s), np.vecdot(y, w), np.vecdot(x, x, axis=0), np.vecdot(v, v),
        np.vecdot(s, x, axis=-2), np.vecdot(s, s, keepdims=True, axis=1),
    ),
    "matvec": lambda x, y, s, v, w: (np.matvec(x, v), np.matvec(s, v), np.matvec(s, s[:, 0]), np.vecmat(w, x),
                                     np.vecmat(w, s), np.vecmat(y, s[:, None])),
    "inner": lambda x, y, s, v, w: (np.inner(x, x), np.inner(s, x), np.inner(v, s), np.inner(v, 3), np.inner(v, v)),
    "vdot": lambda x, y, s, v, w: (np.vdot(v, v), np.vdot(x, y), np.vdot(s, s), np.vdot(v, v * 1j), np.vdot(2, v[0])),
    "outer": lambda x, y, s, v, w: (np.outer(v, w), np.outer(x, v), L.outer(v, w), np.outer(2, v)),
    "tensordot": lambda x, y, s, v, w: (
        np.tensordot(x, y, 1), np.tensordot(s, x, 2), np.tensordot(s, x, ((1, 2), (0, 1))), np.tensordot(x, w, (0, 0)),
        np.tensordot(s, y, axes=([1, 2], [1, 0])), L.tensordot(x, y, axes=1), np.tensordot(v, w, 0),
        np.tensordot(s, s, ((-1, -2), (-1, -2))),
    ),
    "kron": lambda x, y, s, v, w: (np.kron(v, w), np.kron(x, y), np.kron(s, v), np.kron(v, s), np.kron(2, x)),
    "cross": lambda x, y, s, v, w: (
        np.cross(w, w * 2), np.cross(y, w), np.cross(x, y, 0, 1, 0), np.cross(x, x * x, axis=0),
        L.cross(y, w), L.cross(x, x, axis=0), np.cross(s, x, axisa=1, axisb=0), np.cross(w, [1, 2, 3]),
    ),
    "multi_dot": lambda x, y, s, v, w: (
        L.multi_dot([x, y]), L.multi_dot([x, y, x]), L.multi_dot([w, x, y, x, v]), L.multi_dot([y, x, y, w]),
        L.multi_dot([w, x, y]), L.multi_dot([x, y, x, y, x]),
    ),
    "tensorsolve": lambda x, y, s, v, w: (
        L.tensorsolve(np.eye(12).reshape(3, 4, 2, 6) * 2, x),
        L.tensorinv(np.eye(12).reshape(4, 3, 12) + s[0, 0, 0] * 0),
        L.tensorinv(np.eye(4) * 3 + x[0, 0] * 0, ind=1), L.tensorsolve(np.eye(12).reshape(2, 3, 4, 6), x, axes=(0,)),
    ),
}  # fmt: skip

# Subscripts by the names of their operands.
EINSUM = [
    ("ij,jk", "xy"), ("ij,jk->ik", "xy"), ("ij,jk->ki", "xy"), ("ij,j", "xv"), ("i,i", "vv"), ("i,j->ij", "vw"),
    ("ij->", "x"), ("ij->j", "x"), ("kij->ik", "s"), ("ij,ij->", "xx"), ("ij,ij->ij", "xx"), ("ij,kj->ikj", "xx"),
    ("ijk,kl,lm", "syx"), ("i,ij,j", "wxv"), ("i,ij,j->j", "wxv"), ("ij,jk,kl,l->i", "xyxv"), ("i,j,k->kji", "vwv"),
    ("...j,j", "xv"), ("...ij,...jk", "sy"), ("i...->...", "s"), ("...->...", "s"), ("...ij->...ji", "s"),
    ("k...,...k->...", "xx"), ("...,...", "sx"), (",...", "ax"), (",ij,", "axa"), ("", "a"), ("->", "a"),
    ("ii", "q"), ("ii->i", "q"), ("ii,i->i", "qw"), ("iij->j", "c"), ("iii->i", "c"), ("iji,j", "cw"),
    ("ii,jj->ij", "qq"),
    ("ij,jk", "oy"), ("ij,jk->ik", "xo"), ("ij,ij->i", "xo"), ("...ij,jk->...ik", "oy"), ("zA,Az", "xy"), ("ba", "x"),
    (" i j , j -> i ", "xv"), ("ij, jk, kl -> il", "xyx"),
]  # fmt: skip
BAD_EINSUM = [
    ("ij,jk", "xx"), ("ij", "v"), ("i", "x"), ("i->j", "v"), ("i->ii", "v"), ("ij,j", "x"), ("i", "vv"), ("ii", "x"),
    ("i?", "x"), ("...i->i", "x"), ("i.j", "x"), ("ij-k", "x"), ("i->", "xx"), ("...i.->i", "x"),
]  # fmt: skip

# Functions of a square matrix ``x``, a complex one ``z`` and a vector ``v`` that write into results and arguments.
WRITES = {
    "diagonal of einsum": lambda x, z, v: (np.einsum("ii->i", x).fill(7), x),
    "transpose of einsum": lambda x, z, v: (np.copyto(np.einsum("ij->ji", x)[0], v), x),
    "all of einsum": lambda x, z, v: (np.einsum("...->...", x, optimize=True).fill(2), x),
    "einsum of all": lambda x, z, v: (y := np.einsum("ij->i", x), y.fill(0), x, y),
    "einsum out": lambda x, z, v: (np.einsum("ij,j->i", x, v, out=v), v, np.einsum("ij->ji", x, out=z.real), z),
    "first power": lambda x, z, v: (L.matrix_power(x, 1).fill(1), x),
    "other powers": lambda x, z, v: (L.matrix_power(x, 0).fill(1), L.matrix_power(x, 2).fill(1), x),
    "matrix transpose": lambda x, z, v: (np.copyto(L.matrix_transpose(x)[0], v), x),
    "read-only diagonal": lambda x, z, v: L.diagonal(x).fill(1),
    "transform of no axis": lambda x, z, v: (F.fftn(z, axes=()).fill(1), z),
    "fft out": lambda x, z, v: (F.fft(z, out=z), F.fft2(z, out=z), F.fftn(z, axes=(0,), out=z), z),
    "out that NumPy forgets": lambda x, z, v: (F.ifft2(z, out=z), F.irfft2(z, out=x), F.hfft(v, out=v), x, z, v),
    "rfft out": lambda x, z, v: (F.rfft(x, out=z[:, :2]), F.irfft(z, 3, out=x), F.ihfft(v, out=z[0, :2]), z, x),
    "fft out of another shape": lambda x, z, v: F.fft(z, 2, out=z),
    "matmul out": lambda x, z, v: (np.matmul(x, x, out=x), np.matmul(x, v, out=v), np.matmul(z, x, out=z), x, v, z),
    "dot out": lambda x, z, v: (np.dot(x, x.copy(), out=x), x),
    "dot out of another type": lambda x, z, v: np.dot(x, x, out=z),
    "dot out in Fortran order": lambda x, z, v: np.dot(x, x, out=np.zeros(x.shape, order="F")),
    "dot out with strides": lambda x, z, v: np.dot(x, v, out=z.real[0]),
    "chain out in Fortran order": lambda x, z, v: L.multi_dot([x, x, x], out=x.T),
    "outer out": lambda x, z, v: (np.outer(v, v, out=x), np.outer(v, v, z), x, z),
    "factors": lambda x, z, v: (lambda u, s, vh: (s.fill(1), (u * s) @ vh, s))(*L.svd(x)),
    "result": lambda x, z, v: (y := L.inv(x), np.copyto(y[0], v), y.T[1].fill(0), y.reshape(-1)[::2].fill(3), y, x),
    "chain": lambda x, z, v: (L.multi_dot([x, x, x.T, x], out=x), x),
    "in place": lambda x, z, v: (x.__imatmul__(x), z.__imatmul__(z.conj().T), x, z),
}  # fmt: skip

# Functions of rows that a mask selects: how many there are only the run knows.
SELECTED = {
    "fft": lambda x, v: (F.fft(v[v > 0]), F.rfft(v[v > 0]), F.irfft(v[v > 0] + 0j), F.fft2(x[v > 0])),
    "norm": lambda x, v: (L.norm(v[v > 0]), L.norm(x[v > 0], axis=1), L.norm(x[v > 0], 1), L.vector_norm(x[v > 0])),
    "singular norms": lambda x, v: (L.norm(x[v > 0], 2), L.norm(x[v > 0], "nuc")),
    "square": lambda x, v: (lambda a: (L.inv(a), L.det(a), L.slogdet(a), L.matrix_power(a, 3)))(x[v > 0][:, v > 0]),
    "factors": lambda x, v: (L.svd(x[v > 0]), L.svd(x[v > 0], full_matrices=False), L.qr(x[v > 0]), L.pinv(x[v > 0])),
    "symmetric": lambda x, v: (lambda a: (L.cholesky(a), L.eigh(a)))((x @ x.T)[v > 0][:, v > 0]),
    "equations": lambda x, v: (L.solve(x[v > 0][:, v > 0], v[v > 0]), L.lstsq(x[v > 0], v[v > 0]), L.cond(x[v > 0])),
    "products": lambda x, v: (np.outer(v[v > 0], v), np.kron(v[v > 0], v), np.tensordot(x[v > 0], x, 1), x[v > 0] @ v),
    "einsum": lambda x, v: (np.einsum("ij,j->i", x[v > 0], v), np.einsum("ij,i->j", x[v > 0], v[v > 0]),
                            np.einsum("ij,jk,k", x[v > 0], x, v), np.einsum("ii->i", x[v > 0][:, v > 0])),
}  # fmt: skip
