"""``futurex.numpy`` conforms to the Python Array API standard, 2024.12; and the standard's own suite, where it is."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compare import agree, bits, plain

import futurex as fx
import futurex.numpy as xp

# The standard's functions, and what each is called with: arguments by position, by name.
X, Y = np.array([[0.5, 2.0, -1.0], [3.0, 1.0, 0.25]]), np.array([1.0, 2.0, 4.0])
N = np.array([[4, 1, 3], [2, 0, 5]])
ONE = (
    "abs acos acosh asin asinh atan atanh ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log log1p log2 "
)
ONE += "log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan tanh trunc"
TWO = "add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and "
TWO += "logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract"
WHOLE = "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor"
OVER = "max min sum prod mean std var all any argmax argmin count_nonzero"
CASES = {
    **{name: [((X,), {})] for name in ONE.split()},
    **{name: [((X, Y), {}), ((X, 2.0), {})] for name in TWO.split()},
    **{name: [((N, N % 3), {}), ((N, 2), {})] for name in WHOLE.split()},
    **{name: [((X,), {}), ((X,), {"axis": 1, "keepdims": True})] for name in OVER.split()},
    "bitwise_invert": [((N,), {})], "clip": [((X, 0.0, 1.0), {}), ((X,), {"max": 1.0})],
    "arange": [((5,), {}), ((1.0, 2.0, 0.25), {"dtype": np.float32})], "empty_like": [], "empty": [],
    "eye": [((3,), {}), ((2, 3), {"k": 1, "dtype": np.int8})], "full": [(((2, 3), 7), {})],
    "full_like": [((X, 2), {"dtype": np.int64})], "linspace": [((0.0, 1.0, 5), {"endpoint": False})],
    "meshgrid": [((Y, Y), {"indexing": "ij"})], "ones": [(((2,),), {})], "ones_like": [((X,), {})],
    "tril": [((X,), {"k": 1})], "triu": [((X,), {})], "zeros": [(((2, 0),), {"dtype": np.bool_})],
    "zeros_like": [((X,), {})], "astype": [((X, np.float32), {}), ((N, np.complex128), {"copy": False})],
    "matmul": [((X, Y), {})], "matrix_transpose": [((X,), {})], "vecdot": [((X, Y), {}), ((X, X), {"axis": 0})],
    "tensordot": [((X, X), {"axes": 2}), ((X, X), {"axes": ((0,), (0,))})],
    "take": [((X, np.array([2, 0])), {"axis": 1})], "take_along_axis": [((X, N % 2), {"axis": 0})],
    "broadcast_arrays": [((X, Y), {})], "broadcast_to": [((Y, (2, 3)), {})],
    "concat": [(((X, X),), {}), (([X, N],), {"axis": None})], "expand_dims": [((X,), {"axis": 1})],
    "flip": [((X,), {}), ((X,), {"axis": 0})], "moveaxis": [((X, 0, 1), {})], "permute_dims": [((X, (1, 0)), {})],
    "repeat": [((X, 2), {"axis": 0}), ((Y, np.array([1, 0, 2])), {})], "reshape": [((X, (3, -1)), {})],
    "roll": [((X, 1), {}), ((X, (1, 1)), {"axis": (0, 1)})], "squeeze": [((X[:1], 0), {})],
    "stack": [(([X, X],), {"axis": -1})], "tile": [((Y, (2, 2)), {})], "unstack": [((X,), {"axis": 1})],
    "nonzero": [((N,), {})], "searchsorted": [((Y, X), {"side": "right"})], "where": [((X > 1, X, 0.0), {})],
    "unique_all": [((N % 3,), {})], "unique_counts": [((N % 3,), {})], "unique_inverse": [((N % 3,), {})],
    "unique_values": [((N % 3,), {})], "sort": [((X,), {}), ((X,), {"axis": 0})], "argsort": [((X,), {"axis": 0})],
    "cumulative_sum": [((X,), {"axis": 1, "include_initial": True}), ((Y,), {})],
    "cumulative_prod": [((X,), {"axis": 0})], "diff": [((X,), {"n": 2}), ((X,), {"axis": 0})],
    "asarray": [(([1, 2.5],), {}), ((X,), {"dtype": np.float32, "copy": True})], "from_dlpack": [((X,), {})],
    "can_cast": [((np.int8, np.int64), {})], "result_type": [((X, np.int64), {})],
    "isdtype": [((X.dtype, "real floating"), {})],
    "broadcast_shapes": [(((2, 1), (3,)), {})],
}  # fmt: skip
SQUARE = X @ X.T + np.eye(2)
LINALG = {
    "cholesky": ((SQUARE,), {"upper": True}), "cross": ((Y, Y + 1), {}), "det": ((SQUARE,), {}),
    "diagonal": ((X,), {"offset": 1}), "eigh": ((SQUARE,), {}), "eigvalsh": ((SQUARE,), {}), "inv": ((SQUARE,), {}),
    "matmul": ((X, Y), {}), "matrix_norm": ((X,), {"keepdims": True}), "matrix_power": ((SQUARE, 3), {}),
    "matrix_rank": ((X,), {}), "matrix_transpose": ((X,), {}), "outer": ((Y, Y), {}), "pinv": ((X,), {}),
    "qr": ((X,), {}), "slogdet": ((SQUARE,), {}), "solve": ((SQUARE, X), {}), "svd": ((X,), {"full_matrices": False}),
    "svdvals": ((X,), {}), "tensordot": ((X, X), {}), "trace": ((X,), {}), "vecdot": ((X, Y), {}),
    "vector_norm": ((X,), {"axis": 1}),
}  # fmt: skip
TRANSFORMS = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftshift ifftshift"
FFT = {
    **{name: ((X,), {}) for name in TRANSFORMS.split()},
    "fftfreq": ((5,), {"d": 0.5}), "rfftfreq": ((6,), {}),
}  # fmt: skip
OTHER = (
    "finfo iinfo __array_namespace_info__ e inf nan newaxis pi bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
)
OTHER += "float32 float64 complex64 complex128 linalg fft __array_api_version__"
EVERY = [
    *((name, xp, np, case) for name, cases in CASES.items() for case in cases),
    *((name, xp.linalg, np.linalg, case) for name, case in LINALG.items()),
    *((name, xp.fft, np.fft, case) for name, case in FFT.items()),
]


def given(value):
    """NumPy's arrays as arrays of the namespace."""
    if isinstance(value, np.ndarray):
        return xp.asarray(value, copy=True)
    return type(value)(map(given, value)) if type(value) in (list, tuple) else value


def arrays_in(value):
    return [leaf for entry in value for leaf in arrays_in(entry)] if isinstance(value, tuple | list) else [value]


def test_every_name_of_the_standard_is_there():
    assert [name for name in [*CASES, *OTHER.split()] if not hasattr(xp, name)] == []
    assert [name for name in LINALG if not hasattr(xp.linalg, name)] == []
    assert [name for name in FFT if not hasattr(xp.fft, name)] == []
    with pytest.raises(AttributeError, match="array standard"):
        xp.asfortranarray


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, mine, numpys, case", EVERY, ids=lambda value: value if isinstance(value, str) else "")
def test_functions_are_numpys(name, mine, numpys, case):
    args, kwargs = case
    got = getattr(mine, name)(*map(given, args), **kwargs)
    expected = getattr(numpys, name)(*args, **kwargs)
    if (isinstance(expected, np.ndarray | np.generic) and not isinstance(expected, np.bool_)) or name in ("eigh", "qr"):
        assert all(isinstance(leaf, fx.Array) for leaf in arrays_in(got))
    listed = list(expected) if isinstance(got, list) else expected
    flat = [bits(np.asarray(plain(leaf))) if isinstance(leaf, fx.Array) else leaf for leaf in arrays_in(got)]
    wanted = [
        bits(np.asarray(leaf)) if isinstance(leaf, np.ndarray | np.generic) else leaf for leaf in arrays_in(listed)
    ]
    assert agree(flat, wanted), (name, flat, wanted)
    inspect.signature(getattr(mine, name)).bind(*args, **kwargs)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.float32, np.complex64, np.bool_], ids=lambda t: t.__name__)
def test_dtypes(dtype):
    x = np.array([[1, 0, 1], [0, 1, 1]], dtype)
    mine = xp.asarray(x)
    for function in ("sum", "prod", "max", "add", "equal", "multiply", "matmul"):
        operands = (mine,) if function in ("sum", "prod", "max") else (mine, mine.T if function == "matmul" else mine)
        expected = getattr(np, function)(*map(np.asarray, operands))
        assert bits(np.asarray(getattr(xp, function)(*operands))) == bits(np.asarray(expected))


def test_the_array_object():
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match="2030"):
        x.__array_namespace__(api_version="2030.12")
    assert x.device == "cpu"
    assert x.to_device("cpu") is x
    with pytest.raises(ValueError, match="gpu"):
        x.to_device("gpu")
    assert x.mT.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert x.T.shape == (2, 2)
    assert x.size == 4
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert int(xp.asarray(3)) == 3
    assert range(9)[xp.asarray(3)] == 3
    assert complex(xp.asarray(1j)) == 1j
    assert [row.tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0]]
    assert xp.finfo(x).bits == 64
    assert isinstance(xp.finfo(xp.float32).eps, float)


def test_writing_changes_one_array_object():
    x = xp.asarray([1.0, 2.0, 3.0])
    part, same = x[1:], x
    total = xp.sum(x)
    x[1] = 7.0
    assert (x.tolist(), part.tolist(), same is x, float(total)) == ([1.0, 7.0, 3.0], [2.0, 3.0], True, 6.0)
    x[x > 2] = 0.0
    x[:1] = xp.asarray([5])
    x += 1
    assert x.tolist() == [6.0, 1.0, 1.0]
    with pytest.raises(IndexError):
        x[9] = 1.0
    source = np.zeros(2)
    copied = xp.asarray(source)
    source[0] = 1.0
    assert copied.tolist() == [0.0, 0.0]


def test_what_futurized_functions_return_stays_read_only():
    result = fx.futurize(np.sqrt)(np.array([4.0, 9.0]))
    with pytest.raises(TypeError, match="read-only"):
        result[0] = 1.0
    mine = xp.asarray(result, copy=True)
    mine[0] = 0.0
    assert (mine.tolist(), result.tolist()) == ([0.0, 3.0], [2.0, 3.0])


def standardised(x, y):
    namespace = x.__array_namespace__()
    return namespace.sum(namespace.sort(namespace.clip(x, 0.0, 1.0), descending=True) * namespace.asarray(y), axis=-1)


def test_code_for_the_standard_is_staged_and_differentiated():
    x, y = np.array([0.2, 0.9, 1.7]), np.array([1.0, 2.0, 3.0])
    assert float(standardised(xp.asarray(x), xp.asarray(y))) == pytest.approx(1.0 + 1.8 + 0.6)

    def in_the_namespace(x, y):
        return xp.sum(xp.sin(x) * xp.asarray(y))

    f = fx.futurize(in_the_namespace)
    assert float(f(x, y)) == float((np.sin(x) * y).sum())
    assert "runs as plain NumPy" not in f.explain()
    np.testing.assert_allclose(np.asarray(fx.grad(in_the_namespace)(x, y)), np.cos(x) * y)


def test_descending_sorts_keep_equal_elements_in_order():
    x = np.array([2, 1, 2, 3, 1])
    assert xp.sort(xp.asarray(x), descending=True).tolist() == [3, 2, 2, 1, 1]
    assert xp.argsort(xp.asarray(x), descending=True).tolist() == [3, 0, 2, 1, 4]


@pytest.mark.timeout(3600)
@pytest.mark.skipif("ARRAY_API_TESTS" not in os.environ, reason="ARRAY_API_TESTS names no checkout of array-api-tests")
def test_the_suite_of_the_standard():
    suite = Path(os.environ["ARRAY_API_TESTS"])
    environment = {**os.environ, "ARRAY_API_TESTS_MODULE": "futurex.numpy", "ARRAY_API_TESTS_VERSION": "2024.12"}
    command = [sys.executable, "-m", "pytest", "array_api_tests/", "-q", "--max-examples", "5", "--disable-deadline"]
    command += ["--xfails-file", str(Path(__file__).with_name("array_api_xfails.txt"))]
    run = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, timeout=3600)
    assert run.returncode == 0, run.stdout[-4000:]
