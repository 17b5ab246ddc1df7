"""Contractions of operands of several types: what NumPy takes at once is computed in a type that holds all of it."""

import numpy as np
import pytest

import futurex as fx

BYTES = np.full(4, 100, np.int8)
OPERANDS = {
    "bytes that wrap around beside doubles": ("a,a,a->a", np.linspace(0.0, 1.0, 4), BYTES, BYTES),
    "outer": ("a,b,c->abc", BYTES, BYTES, np.arange(3.0)),
    "halves beside doubles": ("c,ad,ab->dcba", np.arange(2.0) + 0.1, np.full((2, 5), 1.1, "f2"), np.ones((2, 1), "f2")),
    "a diagonal": ("aa,cda,,bdcb->dc", np.eye(5, dtype="f4") / 3, np.full((2, 3, 5), 0.1, "f2"), np.int32(7),
                   np.ones((2, 3, 2, 2), bool)),
    "bytes alone": ("ab,bc,cd->ad", *(np.full((4, 4), 17, np.int8) for _ in range(3))),
}  # fmt: skip


@pytest.mark.parametrize("optimize", [False, True, "optimal", ["einsum_path", (0, 1), (0, 1)]], ids=str)
@pytest.mark.parametrize("name", OPERANDS)
def test_types_are_widened_where_numpy_widens_them(name, optimize):
    subscripts, *operands = OPERANDS[name]
    if isinstance(optimize, list):
        optimize = ["einsum_path", *[(0, 1)] * (len(operands) - 1)]

    def contracted(*operands):
        return np.einsum(subscripts, *operands, optimize=optimize)

    found, expected = np.asarray(fx.futurize(contracted)(*operands)), contracted(*operands)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind == "i":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("optimize", [False, True, "optimal"])
@pytest.mark.parametrize(
    "subscripts, shapes",
    [("i,i->", [4, 4]), ("i,i->", [1, 1]), ("i,j->", [3, 4]), ("aa,a->", [(3, 3), 3]), ("ab,bc,ca->", [(2, 3), (3, 4),
     (4, 2)]), ("a,a,b->", [3, 3, 1]), (",->", [(), ()]), ("ab,cad->", [(3, 3), (3, 3, 1)])],
)  # fmt: skip
def test_a_number_is_an_array_where_numpys_is(subscripts, shapes, optimize):
    """With ``optimize=`` NumPy gives an array without dimensions for what comes out of a product of matrices."""

    def contracted(*operands):
        result = np.einsum(subscripts, *operands, optimize=optimize)
        return isinstance(result, np.ndarray), result + 1

    operands = [np.arange(1.0, np.prod(shape) + 1).reshape(shape) for shape in shapes]
    is_array, value = fx.futurize(contracted)(*operands)
    assert (bool(is_array), float(value)) == contracted(*operands)


@pytest.mark.parametrize("subscripts", ["ij->ji", "ij->ij", "ii->i"])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
@pytest.mark.parametrize("extent", [0, 3])
def test_an_out_that_dtype_does_not_fit_is_refused_where_there_are_no_elements_too(subscripts, dtype, extent):
    """Without ``out=`` NumPy returns a view of an only operand, whatever its ``dtype=``: with it the type counts."""

    def contracted(x, out):
        return np.einsum(subscripts, x, out=out, dtype=dtype)

    x = np.ones((extent, extent), np.float32)
    for function in (contracted, fx.futurize(contracted)):
        with pytest.raises(TypeError, match="could not be cast"):
            function(x, np.empty_like(np.einsum(subscripts, x)))
