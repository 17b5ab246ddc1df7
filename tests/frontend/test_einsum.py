"""Contractions of operands of several types: what NumPy takes at once is computed in a type that holds all of it."""

import numpy as np
import pytest
from compare import outcome
from hypothesis import given, settings
from hypothesis import strategies as st

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


@st.composite
def contractions(draw):
    """Subscripts, shapes, types and ``optimize=``: repeated letters, ellipses, extents of one, broadcasting."""
    extents = {letter: draw(st.integers(1, 4)) for letter in "abcd"}
    hidden = draw(st.lists(st.integers(1, 3), max_size=2))
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 3))):
        term = draw(st.lists(st.sampled_from("abcd"), max_size=3))
        shape = [draw(st.sampled_from([extents[letter]] * 5 + [1])) for letter in term]
        if draw(st.booleans()):
            at, depth = draw(st.integers(0, len(term))), draw(st.integers(0, len(hidden)))
            term[at:at] = ["..."]
            shape[at:at] = [draw(st.sampled_from([extent, extent, 1])) for extent in hidden[depth:]]
        terms.append("".join(term))
        shapes.append(tuple(shape))
    text = ",".join(terms)
    if draw(st.booleans()):
        letters = sorted(set(text) - set(".,"))
        kept = draw(st.permutations(letters))[: draw(st.integers(0, len(letters)))]
        text += "->" + "..." * ("..." in text) + "".join(kept)
    types = draw(st.lists(st.sampled_from("dDfliB?"), min_size=len(terms), max_size=len(terms)))
    return text, shapes, types, draw(st.sampled_from([False, True, "optimal"]))


@settings(max_examples=150)
@given(contractions())
def test_any_contraction_means_what_numpy_means(case):
    subscripts, shapes, types, optimize = case
    rng = np.random.default_rng(0)
    operands = [rng.integers(0, 5, shape).astype(code) for shape, code in zip(shapes, types, strict=True)]

    def contracted(*operands):
        result = np.einsum(subscripts, *operands, optimize=optimize)
        return isinstance(result, np.ndarray), result

    found, expected = (outcome(function, operands) for function in (fx.futurize(contracted), contracted))
    assert found == expected  # sums of whole numbers are exact
