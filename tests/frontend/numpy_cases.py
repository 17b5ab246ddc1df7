"""Example calls of every array function of NumPy: one line of code each, on the arrays of :func:`arguments`."""

import numpy as np


def arguments():
    """Fresh arrays by name: floats of one to three dimensions, NaNs, integers, booleans, complex numbers, a scalar."""
    rng = np.random.default_rng(7)
    q = rng.normal(size=(4, 5))
    q[1, 2] = q[3, 0] = np.nan
    return {
        "x": rng.normal(size=(4, 5)), "y": rng.normal(size=(4, 5)), "t": rng.normal(size=(2, 3, 4)),
        "m": rng.normal(size=(4, 4)), "v": rng.normal(size=6), "w": np.sort(rng.normal(size=6)), "q": q,
        "n": np.array([2, 0, 3, 1, 1, 4]), "k": rng.integers(0, 4, (3, 4)), "b": np.array([1, 0, 1, 1, 0, 0], bool),
        "u": rng.integers(0, 256, (2, 3), np.uint8), "z": rng.normal(size=6) + 1j * rng.normal(size=6),
        "f": rng.normal(size=(4, 5)).astype(np.float32), "s": np.float64(0.75),
    }  # fmt: skip



#: The same arrays with other contents: what becomes of every array of floats.
VARIANTS = {
    "single": lambda a: a.astype(np.float32),
    "integers": lambda a: (np.nan_to_num(a) * 3).astype(np.int64),
    "complex": lambda a: a + 1j * np.flip(a),
    "columns": np.asfortranarray,
    "empty": lambda a: a[..., :0].copy(),
    "no dimensions": lambda a: np.array(a.flat[0]) if a.ndim == 1 else a,
}


def varied(change):
    """:func:`arguments` with every array of floats changed."""

    def make():
        found = arguments()
        floats = {name: a for name, a in found.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
        return found | {name: change(a) for name, a in floats.items()}

    return make


def every(names, value):
    """The same entry for several names."""
    return dict.fromkeys(names.split(), value)


#: Functions that take no arrays or do more than compute, and why they are not judged.
EXCLUDED = {
    **every(
        "save savez savez_compressed savetxt load loadtxt genfromtxt fromfile fromregex memmap",
        "reads or writes files",
    ),
    **every(
        "set_printoptions get_printoptions printoptions info show_config show_runtime get_include test "
        "seterr geterr setbufsize getbufsize seterrcall geterrcall errstate",
        "reads or changes settings of the process",
    ),
    **every(
        "busday_count busday_offset is_busday datetime_as_string datetime_data busdaycalendar isnat", "works on dates",
    ),
    **every(
        "asmatrix bmat matrix recarray record", "makes instances of subclasses of ndarray"),
    **every(
        "from_dlpack frombuffer fromstring", "reads memory that is not a NumPy array"),
    **every(
        "nditer nested_iters flatiter", "is an iterator over memory, not a function of arrays"),
    **every(
        "array_repr array_str array2string base_repr binary_repr format_float_positional "
        "format_float_scientific typename", "makes text",
    ),
    **every(
        "ndarray ufunc dtype", "is a type; its methods are judged on their own"),
    **every(
        "fromiter broadcast_shapes iinfo finfo ndindex isdtype issubdtype promote_types mintypecode "
        "__array_namespace_info__", "takes no arrays",
    ),
}

CASES = {
    "all": ["np.all(x)", "np.all(b, axis=0)", "np.all(x > 0, axis=1, keepdims=True)"],
    "allclose": ["np.allclose(x, y)", "np.allclose(x, x)", "np.allclose(q, q, equal_nan=True)"],
    "amax": ["np.amax(x)", "np.amax(x, axis=0)"],
    "amin": ["np.amin(x)", "np.amin(x, axis=1)"],
    "angle": ["np.angle(z)", "np.angle(v)", "np.angle(z, deg=True)"],
    "any": ["np.any(x)", "np.any(b, axis=0)", "np.any(x > 1, axis=(0, 1))"],
    "append": ["np.append(x, y)", "np.append(x, y, axis=0)", "np.append(v, 3.0)"],
    "apply_along_axis": [
        "np.apply_along_axis(np.sort, 0, x)", "np.apply_along_axis(lambda r: r.sum(), 1, x)",
        "np.apply_along_axis(lambda r: r[::-1] * 2, 1, x)",
    ],
    "apply_over_axes": ["np.apply_over_axes(np.sum, t, [0, 2])"],
    "arange": ["np.arange(6)", "np.arange(2.0, 5.0, 0.5)", "np.arange(len(v))", "np.arange(3, dtype=np.float32)"],
    "argmax": ["np.argmax(x)", "np.argmax(x, axis=1)", "np.argmax(x, axis=0, keepdims=True)"],
    "argmin": ["np.argmin(x)", "np.argmin(x, axis=1)", "np.argmin(x, keepdims=True)"],
    "argpartition": ["np.sort(np.argpartition(v, 2)[:2])", "np.argpartition(x, 1, axis=0)"],
    "argsort": ["np.argsort(x)", "np.argsort(v, kind='stable')", "np.argsort(x, axis=0)", "np.argsort(x, axis=None)"],
    "argwhere": ["np.argwhere(x > 0)", "np.argwhere(n)"],
    "around": ["np.around(x)", "np.around(x, 2)", "np.around(n)"],
    "array": ["np.array(x)", "np.array([v, w])", "np.array([1, 2, 3])", "np.array(v, ndmin=2)", "np.array(s)",
              "np.array(300, u.dtype)", "np.array([-1, n[0]], np.uint8)"],
    "array_equal": ["np.array_equal(x, y)", "np.array_equal(x, x)", "np.array_equal(x, v)"],
    "array_equiv": ["np.array_equiv(x, y)", "np.array_equiv(x, x[:1])"],
    "array_split": ["np.array_split(v, 4)", "np.array_split(x, [1, 3], axis=1)"],
    "asanyarray": ["np.asanyarray(x)", "np.asanyarray([v, w])"],
    "asarray": ["np.asarray(x)", "np.asarray(n, float)", "np.asarray([1.5, 2.5])"],
    "asarray_chkfinite": ["np.asarray_chkfinite(x)"],
    "ascontiguousarray": ["np.ascontiguousarray(x)", "np.ascontiguousarray(x.T)"],
    "asfortranarray": ["np.asfortranarray(x)", "np.asfortranarray(v)"],
    "astype": ["np.astype(x, np.float32)", "np.astype(n, float)", "np.astype(x, x.dtype, copy=False)"],
    "atleast_1d": ["np.atleast_1d(s)", "np.atleast_1d(v, s)"],
    "atleast_2d": ["np.atleast_2d(v)", "np.atleast_2d(x, s)"],
    "atleast_3d": ["np.atleast_3d(v)", "np.atleast_3d(x)", "np.atleast_3d(t, s)"],
    "average": [
        "np.average(x)", "np.average(x, axis=1)", "np.average(x, axis=0, weights=np.array([1.0, 2.0, 3.0, 4.0]))",
        "np.average(v, weights=w, returned=True)", "np.average(x, weights=abs(y), axis=1, keepdims=True)",
    ],
    "bartlett": ["np.bartlett(5)", "np.bartlett(len(v)) * v"],
    "bincount": ["np.bincount(n)", "np.bincount(n, weights=v)", "np.bincount(n, minlength=9)",
                 "np.bincount(n.astype(np.uint8), minlength=300)"],
    "blackman": ["np.blackman(5)", "np.blackman(len(v)) * v"],
    "block": ["np.block([[x, y], [y, x]])", "np.block([v, w])", "np.block([v, 1.0])"],
    "broadcast": ["np.broadcast(x, v[:5]).shape"],
    "broadcast_arrays": ["np.broadcast_arrays(x, v[:5])", "np.broadcast_arrays(v, s)"],
    "broadcast_to": ["np.broadcast_to(v, (3, 6))", "np.broadcast_to(s, (2, 2))"],
    "can_cast": ["np.can_cast(x.dtype, np.float32)", "np.can_cast(np.int64, float)"],
    "choose": ["np.choose(n % 2, [v, w])", "np.choose(n, [v, w], mode='wrap')", "np.choose(n[:3] % 2, x[:2, :3])",
               "np.choose(u % 2, [u, 300])"],
    "clip": ["np.clip(x, -0.5, 0.5)", "np.clip(n, 1, None)", "np.clip(x, y, 1.0)", "np.clip(x, min=0.0)"],
    "column_stack": ["np.column_stack([v, w])", "np.column_stack([x, y])"],
    "common_type": ["np.common_type(x, n)", "np.common_type(f, z)"],
    "compress": ["np.compress([True, False, True], x, axis=0)", "np.compress(b, v)", "np.compress(v > 0, v)"],
    "concat": ["np.concat([x, y])"],
    "concatenate": ["np.concatenate([x, y])", "np.concatenate([x, y], axis=1)", "np.concatenate([v, n], axis=None)",
                    "np.concatenate([v.astype('f4'), 2.5], axis=None)",
                    "np.concatenate([n.astype('u1'), 300], axis=None)"],
    "convolve": ["np.convolve(v, w)", "np.convolve(v, w[:3], 'same')", "np.convolve(v, w[:3], 'valid')"],
    "copy": ["np.copy(x)", "np.copy(x.T)"],
    "copyto": ["u.__setitem__(u > 9, 300)", "u.__setitem__(0, -1.0)",
               "np.copyto(x, y)", "np.copyto(x, 0.0, where=y > 0)", "np.copyto(v, n)"],
    "corrcoef": ["np.corrcoef(x)", "np.corrcoef(v, w)", "np.corrcoef(x, rowvar=False)"],
    "correlate": ["np.correlate(v, w)", "np.correlate(v, w[:3], 'same')", "np.correlate(v, w[:2], 'full')"],
    "count_nonzero": ["np.count_nonzero(n)", "np.count_nonzero(k, axis=0)", "np.count_nonzero(x > 0, keepdims=True)"],
    "cov": ["np.cov(x)", "np.cov(v, w)", "np.cov(x, rowvar=False, bias=True)", "np.cov(x, aweights=abs(y[0]))"],
    "cross": ["np.cross(v[:3], w[:3])", "np.cross(x[:, :3], y[:, :3])"],
    "cumprod": ["np.cumprod(v)", "np.cumprod(x, axis=0)", "np.cumprod(n)"],
    "cumsum": ["np.cumsum(v)", "np.cumsum(x, axis=1)", "np.cumsum(b)", "np.cumsum(v, dtype=np.float32)"],
    "cumulative_prod": ["np.cumulative_prod(v)", "np.cumulative_prod(x, axis=1, include_initial=True)"],
    "cumulative_sum": ["np.cumulative_sum(v)", "np.cumulative_sum(x, axis=1, include_initial=True)"],
    "delete": ["np.delete(v, 2)", "np.delete(x, [0, 2], axis=1)", "np.delete(x, slice(1, 3), axis=0)"],
    "diag": ["np.diag(v)", "np.diag(x)", "np.diag(m, 1)", "np.diag(v, -2)"],
    "diag_indices": ["np.diag_indices(3)", "m[np.diag_indices(4)]"],
    "diag_indices_from": ["np.diag_indices_from(m)", "m[np.diag_indices_from(m)]"],
    "diagflat": ["np.diagflat(x)", "np.diagflat(v, 1)"],
    "diagonal": ["np.diagonal(x)", "np.diagonal(t, 1, 0, 2)"],
    "diff": ["np.diff(v)", "np.diff(x, n=2, axis=0)", "np.diff(v, prepend=0.0)", "np.diff(v, append=w[:2])",
             "np.diff(b)"],
    "digitize": ["np.digitize(v, w)", "np.digitize(x, np.array([-1.0, 0.0, 1.0]), right=True)"],
    "dot": ["np.dot(x, y.T)", "np.dot(v, w)", "np.dot(x, v[:5])", "np.dot(s, v)", "np.dot(t, m)"],
    "dsplit": ["np.dsplit(t, 2)"],
    "dstack": ["np.dstack([x, y])", "np.dstack([v, w])"],
    "ediff1d": ["np.ediff1d(v)", "np.ediff1d(x, to_begin=0.0, to_end=[1.0, 2.0])"],
    "einsum": ["np.einsum('ij,kj->ik', x, y)", "np.einsum('ii', m)", "np.einsum('...j,j', x, v[:5])"],
    "einsum_path": ["np.einsum_path('ij,jk', m, m)[1]"],
    "empty": ["np.empty((2, 3)).shape", "np.empty(len(v), int).dtype"],
    "empty_like": ["np.empty_like(x).shape", "np.empty_like(x, dtype=int).dtype"],
    "expand_dims": ["np.expand_dims(x, 1)", "np.expand_dims(v, (0, 2))"],
    "extract": ["np.extract(b, v)", "np.extract(x > 0, x)"],
    "eye": ["np.eye(3)", "np.eye(2, 4, 1)", "np.eye(len(m)) + m", "np.eye((v > 0).sum())"],
    "fill_diagonal": [
        "np.fill_diagonal(m, 2.0)",
        "np.fill_diagonal(x, v[:3], wrap=False)",
        "np.fill_diagonal(m, v[:4])",
    ],
    "fix": ["np.fix(x)", "np.fix(n)"],
    "flatnonzero": ["np.flatnonzero(n)", "np.flatnonzero(x > 0)"],
    "flip": ["np.flip(x)", "np.flip(t, (0, 2))"],
    "fliplr": ["np.fliplr(x)"],
    "flipud": ["np.flipud(x)"],
    "fromfunction": ["np.fromfunction(lambda i, j: i + 2 * j, (3, 4))", "np.fromfunction(lambda i: i * s, (3,))"],
    "frompyfunc": ["np.frompyfunc(lambda a: a * 2, 1, 1)(v)"],
    "full": ["np.full((2, 3), 1.5)", "np.full(3, s)", "np.full((2, 2), 7, dtype=np.int8)"],
    "full_like": ["np.full_like(x, 2.0)", "np.full_like(n, 3.7)", "np.full_like(x, s, dtype=np.float32)",
                  "np.full_like(u, 300)"],
    "geomspace": ["np.geomspace(1.0, 100.0, 5)", "np.geomspace(1.0, 2.0 + s, 4)"],
    "gradient": [
        "np.gradient(v)",
        "np.gradient(x)",
        "np.gradient(x, axis=1)",
        "np.gradient(v, w)",
        "np.gradient(v, 2.0)",
    ],
    "hamming": ["np.hamming(6) * v"],
    "hanning": ["np.hanning(6) * v"],
    "histogram": [
        "np.histogram(v, bins=4)",
        "np.histogram(v, w)",
        "np.histogram(x, 3, range=(-1.0, 1.0), density=True)",
        "np.histogram(v, weights=w, bins=2)",
        "np.histogram(v, bins='auto')",
    ],
    "histogram2d": ["np.histogram2d(v, w, bins=3)"],
    "histogram_bin_edges": ["np.histogram_bin_edges(v, 4)", "np.histogram_bin_edges(v, 'auto')"],
    "histogramdd": ["np.histogramdd(x[:, :2], bins=3)"],
    "hsplit": ["np.hsplit(m, 2)", "np.hsplit(v, 3)"],
    "hstack": ["np.hstack([x, y])", "np.hstack([v, s])"],
    "i0": ["np.i0(v)"],
    "identity": ["np.identity(3)", "np.identity(4) @ m", "np.identity((v > 0).sum())"],
    "imag": ["np.imag(z)", "np.imag(v)"],
    "indices": ["np.indices((2, 3))", "np.indices((2, 3), sparse=True)"],
    "inner": ["np.inner(x, y)", "np.inner(v, w)", "np.inner(x, v[:5])"],
    "insert": ["np.insert(v, 2, 9.0)", "np.insert(x, 1, v[:4], axis=1)", "np.insert(v, [1, 3], [7.0, 8.0])",
               "np.insert(u, 0, 300)"],
    "interp": ["np.interp(v, w, n)", "np.interp(s, w, v)", "np.interp(x, w, v, left=0.0, right=1.0)",
               "np.interp(v, w, v, period=2.0)"],
    "intersect1d": ["np.intersect1d(n, k)"],
    "iscomplex": ["np.iscomplex(z)", "np.iscomplex(v)"],
    "iscomplexobj": ["np.iscomplexobj(z)", "np.iscomplexobj(v)"],
    "isclose": ["np.isclose(x, y)", "np.isclose(q, q, equal_nan=True)", "np.isclose(s, 0.75)"],
    "isfortran": ["np.isfortran(x)", "np.isfortran(x.T)"],
    "isin": ["np.isin(n, [1, 2])", "np.isin(k, n)", "np.isin(n, [1, 2], invert=True)"],
    "isneginf": ["np.isneginf(x)", "np.isneginf(np.log(abs(n) * 0.0))"],
    "isposinf": ["np.isposinf(x)"],
    "isreal": ["np.isreal(z)", "np.isreal(v)"],
    "isrealobj": ["np.isrealobj(z)", "np.isrealobj(v)"],
    "isscalar": ["np.isscalar(s)", "np.isscalar(x)", "np.isscalar(3.0)"],
    "iterable": ["np.iterable(x)", "np.iterable(s)"],
    "ix_": ["np.ix_([0, 2], [1, 3])", "x[np.ix_([0, 2], [1, 3])]", "np.ix_(n, n)"],
    "kaiser": ["np.kaiser(6, 14.0) * v"],
    "kron": ["np.kron(x, m)", "np.kron(v, w)"],
    "lexsort": ["np.lexsort((v, n))", "np.lexsort(x)"],
    "linspace": ["np.linspace(0.0, 1.0, 5)", "np.linspace(s, 2.0, 4)", "np.linspace(v, w, 3)",
                 "np.linspace(0, 1, 5, endpoint=False, retstep=True)"],
    "logspace": ["np.logspace(0.0, 2.0, 4)", "np.logspace(0.0, s, 4, base=2.0)"],
    "mask_indices": ["np.mask_indices(3, np.triu)"],
    "matrix_transpose": ["np.matrix_transpose(x)", "np.matrix_transpose(t)"],
    "max": [
        "np.max(x)",
        "np.max(x, axis=1, keepdims=True)",
        "np.max(v, initial=10.0)",
        "np.max(x, where=y > 0, initial=-9)",
    ],
    "may_share_memory": ["np.may_share_memory(x, x[1:])", "np.may_share_memory(x, y)"],
    "mean": [
        "np.mean(x)",
        "np.mean(f, axis=0)",
        "np.mean(n)",
        "np.mean(x, where=y > 0)",
        "np.mean(x, out=v[:5], axis=0)",
    ],
    "median": ["np.median(x)", "np.median(x, axis=0)", "np.median(v, keepdims=True)", "np.median(x, axis=(0, 1))",
               "np.median(f, axis=1)"],
    "meshgrid": ["np.meshgrid(v, w)", "np.meshgrid(v, n, indexing='ij')", "np.meshgrid(v, w, sparse=True)"],
    "min": ["np.min(x)", "np.min(x, axis=(0, 1))", "np.min(v, initial=-10.0)"],
    "min_scalar_type": ["np.min_scalar_type(3)", "np.min_scalar_type(x)"],
    "moveaxis": ["np.moveaxis(t, 0, -1)", "np.moveaxis(t, [0, 1], [-1, -2])"],
    "nan_to_num": ["np.nan_to_num(q)", "np.nan_to_num(q, nan=2.0)", "np.nan_to_num(q, copy=False)", "np.nan_to_num(n)"],
    "nanargmax": ["np.nanargmax(q)", "np.nanargmax(q, axis=0)"],
    "nanargmin": ["np.nanargmin(q)", "np.nanargmin(q, axis=1)"],
    "nancumprod": ["np.nancumprod(q)", "np.nancumprod(q, axis=0)"],
    "nancumsum": ["np.nancumsum(q)", "np.nancumsum(q, axis=1)"],
    "nanmax": ["np.nanmax(q)", "np.nanmax(q, axis=0)"],
    "nanmean": ["np.nanmean(q)", "np.nanmean(q, axis=1)", "np.nanmean(n)"],
    "nanmedian": ["np.nanmedian(q)", "np.nanmedian(q, axis=0)"],
    "nanmin": ["np.nanmin(q)", "np.nanmin(q, axis=0)"],
    "nanpercentile": ["np.nanpercentile(q, 30)", "np.nanpercentile(q, [20, 50], axis=1)"],
    "nanprod": ["np.nanprod(q)", "np.nanprod(q, axis=0)"],
    "nanquantile": ["np.nanquantile(q, 0.3)", "np.nanquantile(q, 0.5, axis=0)"],
    "nanstd": ["np.nanstd(q)", "np.nanstd(q, axis=0, ddof=1)"],
    "nansum": ["np.nansum(q)", "np.nansum(q, axis=0)"],
    "nanvar": ["np.nanvar(q)", "np.nanvar(q, axis=1)"],
    "ndenumerate": ["[p for p in np.ndenumerate(v)]"],
    "ndim": ["np.ndim(x)", "np.ndim(s)"],
    "nonzero": ["np.nonzero(n)", "np.nonzero(x > 0)"],
    "ones": ["np.ones((2, 3))", "np.ones(2, int)"],
    "ones_like": ["np.ones_like(x)", "np.ones_like(n, dtype=float)"],
    "outer": ["np.outer(v, w)", "np.outer(x, n)"],
    "packbits": ["np.packbits(b)", "np.packbits(u, axis=1)"],
    "pad": [
        "np.pad(v, 2)", "np.pad(x, ((1, 2), (0, 1)), constant_values=3.0)", "np.pad(v, 2, mode='edge')",
        "np.pad(x, 1, mode='reflect')", "np.pad(x, 1, mode='symmetric')", "np.pad(v, 2, mode='wrap')",
        "np.pad(v, 2, mode='linear_ramp', end_values=1.0)", "np.pad(x, 1, mode='mean')", "np.pad(v, 2, mode='maximum')",
        "np.pad(x, 1, mode='minimum')", "np.pad(v, 1, mode='median')", "np.pad(x, 1, constant_values=(1.0, 2.0))",
        "np.pad(v, 9, mode='reflect', reflect_type='odd')", "np.pad(x, {0: (1, 0)})", "np.pad(n, 1)",
    ],
    "partition": ["np.partition(v, 2)[2]", "np.partition(x, 1, axis=0)"],
    "percentile": [
        "np.percentile(x, 30)",
        "np.percentile(x, [10, 50], axis=0)",
        "np.percentile(v, 40, method='nearest')",
        "np.percentile(f, 25, axis=1, keepdims=True)",
        "np.percentile(v, 50.0 * s)",
    ],
    "permute_dims": ["np.permute_dims(t, (2, 0, 1))"],
    "piecewise": ["np.piecewise(v, [v < 0, v >= 0], [-1.0, 1.0])",
                  "np.piecewise(v, [v < 0, v >= 0], [lambda r: -r, lambda r: r * 2])"],
    "place": ["np.place(v, v > 0, [9.0])", "np.place(v, b, w)",
              "np.place(n, n > 1, [2.7])", "np.place(u, u > 9, [300])"],
    "poly": ["np.poly(v)", "np.poly(m)"],
    "poly1d": ["np.poly1d([1.0, 2.0])(v)"],
    "polyadd": ["np.polyadd(v, w[:3])"],
    "polyder": ["np.polyder(v)", "np.polyder(v, 2)"],
    "polydiv": ["np.polydiv(v, w[:3])"],
    "polyfit": ["np.polyfit(v, w, 2)", "np.polyfit(w, x[:3].T.ravel()[:6], 1)"],
    "polyint": ["np.polyint(v)", "np.polyint(v, 2)"],
    "polymul": ["np.polymul(v, w[:3])"],
    "polysub": ["np.polysub(v, w[:3])"],
    "polyval": ["np.polyval(v, x)", "np.polyval([1.0, 2.0, 3.0], v)", "np.polyval(v, s)"],
    "prod": ["np.prod(x)", "np.prod(x, axis=0)", "np.prod(n, dtype=float)", "np.prod(v, initial=2.0)"],
    "ptp": ["np.ptp(x)", "np.ptp(x, axis=0)", "np.ptp(n)"],
    "put": ["np.put(v, [0, 2], [9.0, 8.0])", "np.put(x, [-1, 22], 3.0, mode='wrap')", "np.put(v, n[:3], w)",
            "np.put(n, [0], 2.7)", "np.put(u, [0], 300)"],
    "put_along_axis": ["np.put_along_axis(x, np.argmax(x, axis=1, keepdims=True), 9.0, axis=1)"],
    "putmask": ["np.putmask(v, v > 0, 9.0)", "np.putmask(v, b, w)", "np.putmask(x, x > 1, [1.0, 2.0])",
                "np.putmask(u, u > 9, 300)"],
    "quantile": ["np.quantile(x, 0.3)", "np.quantile(x, [0.1, 0.5], axis=0)", "np.quantile(v, 0.4, method='lower')",
                 "np.quantile(v, 0.5, weights=abs(w), method='inverted_cdf')"],
    "ravel": ["np.ravel(x)", "np.ravel(x.T)", "np.ravel(s)"],
    "ravel_multi_index": ["np.ravel_multi_index((n % 3, n % 2), (3, 2))"],
    "real": ["np.real(z)", "np.real(v)"],
    "real_if_close": ["np.real_if_close(v)", "np.real_if_close(z)", "np.real_if_close(z.real + 0j)"],
    "repeat": ["np.repeat(v, 2)", "np.repeat(x, [1, 2, 0, 1], axis=0)", "np.repeat(v, n)"],
    "require": ["np.require(x, requirements='C')", "np.require(n, float)"],
    "reshape": ["np.reshape(x, (5, 4))", "np.reshape(v, (-1, 2))", "np.reshape(x, (2, 10), order='F')"],
    "resize": ["np.resize(v, (3, 4))", "np.resize(x, 7)"],
    "result_type": ["np.result_type(x, f)", "np.result_type(f, 1.0)", "np.result_type(n, np.float32)"],
    "roll": ["np.roll(v, 2)", "np.roll(x, (1, -1), (0, 1))", "np.roll(x, 3)", "np.roll(x, n[0], 1)",
             "np.roll(x, -7 * n[5])", "np.roll(w[w > 0], 1)", "np.roll(n[n > 9], 1)", "np.roll(x, (n[2], -1), (1, 0))",
             "np.roll(x, u[0, 0], 1)"],
    "rollaxis": ["np.rollaxis(t, 2)", "np.rollaxis(t, 0, 2)"],
    "roots": ["np.roots(v)", "np.roots([1.0, -3.0, 2.0])"],
    "rot90": ["np.rot90(x)", "np.rot90(t, 2, (1, 2))"],
    "round": ["np.round(x, 1)", "np.round(n)", "np.round(s)"],
    "row_stack": ["np.row_stack([v, w])"],
    "searchsorted": ["np.searchsorted(w, v)", "np.searchsorted(w, s)", "np.searchsorted(w, x, side='right')"],
    "select": ["np.select([x > 1, x < 0], [x, y], 0.0)", "np.select([b, ~b], [v, w])"],
    "setdiff1d": ["np.setdiff1d(n, [1, 2])"],
    "setxor1d": ["np.setxor1d(n, [1, 7])"],
    "shape": ["np.shape(x)", "np.shape([v, w])"],
    "shares_memory": ["np.shares_memory(x, x[1:])", "np.shares_memory(x, x.copy())"],
    "sinc": ["np.sinc(v)", "np.sinc(x)"],
    "size": ["np.size(x)", "np.size(x, 1)"],
    "sort": ["np.sort(x)", "np.sort(x, axis=0)", "np.sort(x, axis=None)", "np.sort(q)", "np.sort(n)", "np.sort(z)"],
    "sort_complex": ["np.sort_complex(z)", "np.sort_complex(v)"],
    "split": ["np.split(v, 3)", "np.split(x, [1, 2], axis=1)"],
    "squeeze": ["np.squeeze(x[:, :1])", "np.squeeze(x[None], axis=0)"],
    "stack": ["np.stack([x, y])", "np.stack([v, w], axis=1)"],
    "std": ["np.std(x)", "np.std(x, axis=0, ddof=1)", "np.std(f)", "np.std(x, axis=1, correction=1)", "np.std(z)"],
    "sum": ["np.sum(x)", "np.sum(x, axis=0)", "np.sum(x, where=y > 0)", "np.sum(v, initial=2.0)", "np.sum(u)"],
    "swapaxes": ["np.swapaxes(t, 0, 2)"],
    "take": [
        "np.take(v, n)",
        "np.take(x, [0, 2], axis=1)",
        "np.take(v, [7, -8], mode='wrap')",
        "np.take(v, [9], mode='clip')",
    ],
    "take_along_axis": ["np.take_along_axis(x, np.argsort(x, axis=1), axis=1)", "np.take_along_axis(v, n, axis=None)"],
    "tensordot": ["np.tensordot(x, y, 2)", "np.tensordot(x, y, axes=([1], [1]))"],
    "tile": ["np.tile(v, 2)", "np.tile(x, (2, 1, 3))"],
    "trace": ["np.trace(m)", "np.trace(t, 1, 0, 2)"],
    "transpose": ["np.transpose(x)", "np.transpose(t, (1, 2, 0))"],
    "trapezoid": ["np.trapezoid(v)", "np.trapezoid(x, dx=0.5)", "np.trapezoid(v, w)", "np.trapezoid(x, axis=0)"],
    "tri": ["np.tri(3)", "np.tri(4, 4, -1) * m"],
    "tril": ["np.tril(m)", "np.tril(x, 1)"],
    "tril_indices": ["np.tril_indices(3)", "m[np.tril_indices(4)]"],
    "tril_indices_from": ["np.tril_indices_from(m)", "m[np.tril_indices_from(m, -1)]"],
    "trim_zeros": ["np.trim_zeros(n)", "np.trim_zeros(v)"],
    "triu": ["np.triu(m)", "np.triu(x, -1)"],
    "triu_indices": ["np.triu_indices(3)", "m[np.triu_indices(4, 1)]"],
    "triu_indices_from": ["np.triu_indices_from(m)", "m[np.triu_indices_from(m)]"],
    "union1d": ["np.union1d(n, [1, 9])"],
    "unique": ["np.unique(n)", "np.unique(n, return_counts=True)"],
    "unique_all": ["np.unique_all(n)"],
    "unique_counts": ["np.unique_counts(n)"],
    "unique_inverse": ["np.unique_inverse(n)"],
    "unique_values": ["np.unique_values(n)"],
    "unpackbits": ["np.unpackbits(u, axis=0)", "np.unpackbits(u, count=5)"],
    "unravel_index": ["np.unravel_index(n, (3, 2))", "np.unravel_index(np.argmax(x), x.shape)"],
    "unstack": ["np.unstack(x)", "np.unstack(x, axis=1)"],
    "unwrap": ["np.unwrap(v * 5)", "np.unwrap(x, axis=0)"],
    "vander": ["np.vander(v)", "np.vander(v, 3, increasing=True)"],
    "var": ["np.var(x)", "np.var(x, axis=0, ddof=1)", "np.var(f, axis=1)", "np.var(z)", "np.var(x, mean=np.mean(x))",
            "np.var(x, where=y > 0)"],
    "vdot": ["np.vdot(v, w)", "np.vdot(z, z)", "np.vdot(x, y)"],
    "vectorize": ["np.vectorize(lambda a, c: a * 2 + c)(v, w)"],
    "vsplit": ["np.vsplit(x, 2)"],
    "vstack": ["np.vstack([v, w])", "np.vstack([x, v[:5]])"],
    "where": ["np.where(x > 0, x, y)", "np.where(b, 1.0, v)", "np.where(x > 0)", "np.where(u > 9, u, 300)",
              "np.where(n[0] > 1, 1, 2)"],
    "zeros": ["np.zeros((2, 3))", "np.zeros(len(v), bool)"],
    "zeros_like": ["np.zeros_like(x)", "np.zeros_like(n, dtype=float)"],
    # objects that are indexed instead of called
    "c_": ["np.c_[v, w]", "np.c_[x, v[:4]]"],
    "r_": ["np.r_[v, 0.0, w]", "np.r_[1:4, v]", "np.r_['-1', x, y]"],
    "mgrid": ["np.mgrid[0:2, 0:3]", "np.mgrid[0:1:3j] * s"],
    "ogrid": ["np.ogrid[0:2, 0:3]"],
    "s_": ["x[np.s_[1:, ::2]]"],
    "index_exp": ["x[np.index_exp[1:, ::2]]"],
    "newaxis": ["v[:, np.newaxis] * w"],
    "euler_gamma": ["np.euler_gamma * v"],
    "pi": ["np.pi * f"],
}  # fmt: skip
if not hasattr(np, "row_stack"):  # NumPy 2.5 and later
    del CASES["row_stack"]

#: Arguments of ufuncs whose loops want other types than two arrays of floats.
UFUNC_ARGUMENTS = {
    **every(
        "bitwise_and bitwise_or bitwise_xor left_shift right_shift bitwise_left_shift bitwise_right_shift "
        "gcd lcm", ("n", "n[::-1]")
    ),
    **every(
        "invert bitwise_not bitwise_invert bitwise_count", ("n",)),
    "ldexp": ("v", "n"), "matmul": ("x", "y.T"), "matvec": ("x", "y[0]"), "vecmat": ("y[:, 0]", "x"),
    "float_power": ("abs(x)", "y"), "power": ("abs(x)", "y"), "pow": ("abs(x)", "y"),
}  # fmt: skip

for _name in np.__all__:
    _ufunc = getattr(np, _name)
    if isinstance(_ufunc, np.ufunc) and _name not in EXCLUDED:
        _args = UFUNC_ARGUMENTS.get(_name, ("x", "y")[: _ufunc.nin])
        CASES[_name] = [f"np.{_name}({', '.join(_args)})"]
        if _name not in UFUNC_ARGUMENTS:
            CASES[_name] += [f"np.{_name}({', '.join(('s', 'f')[: _ufunc.nin])})"]

#: Functions whose order of summation is not always NumPy's: compared to rounding.
ROUNDED = {"einsum"}
