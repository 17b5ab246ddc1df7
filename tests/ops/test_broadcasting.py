"""Elementwise ops on any shapes and dtypes: the type is known beforehand and the value is NumPy's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from op_cases import same_bits

from futurex import ops
from futurex.kernels.numpy_ import NumpyBackend
from futurex.tree import Graph, const, param, records
from futurex.tree.aval import aval_of
from futurex.tree.node import Node, apply

UFUNCS = sorted(rec.name for rec in records() if rec.elementwise and isinstance(rec.kernel, np.ufunc))
DTYPES = ["?", "i1", "i4", "i8", "u1", "u8", "f2", "f4", "f8", "c8", "c16"]
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 7])

scalars = st.one_of(
    st.booleans(),
    st.integers(-3, 300),
    st.floats(-4, 4, width=16),
    st.complex_numbers(max_magnitude=4, allow_nan=False).map(complex),
)


def leaf(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """An array of the shape with small numbers, a NumPy scalar or a Python scalar."""
    dtypes = st.sampled_from([np.dtype(text) for text in DTYPES])
    arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, shape, elements=NUMBERS.map(dtype.type)))
    generic = dtypes.flatmap(lambda dtype: NUMBERS.map(dtype.type))
    return st.one_of(arrays, arrays, generic, scalars)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """An elementwise op with inputs whose shapes broadcast."""
    name = draw(st.sampled_from(UFUNCS))
    count = getattr(ops, name).kernel.nin
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=count, max_dims=3, max_side=3, min_side=0)).input_shapes
    return name, [draw(leaf(shape)) for shape in shapes]


def attempt(function: Any, *args: Any) -> tuple[Any, type[Exception] | None]:
    try:
        with np.errstate(all="ignore"):
            return function(*args), None
    except Exception as error:
        return None, type(error)


@given(calls())
def test_value_and_type_are_numpys(call: tuple[str, list[Any]]) -> None:
    name, inputs = call
    expected, error = attempt(getattr(np, name), *inputs)
    # Arrays are inputs; Python integers stand in the program, because NumPy looks at their value.
    nodes = [const(value) if type(value) is int else param(aval_of(value)) for value in inputs]
    node, refused = attempt(lambda: apply(name, *nodes))
    if error is not None:
        assert refused is error
        return
    assert refused is None
    params = [source for source in nodes if source.op == "param"]
    arrays = [value for value, source in zip(inputs, nodes, strict=True) if source.op == "param"]
    (result,), failed = attempt(lambda: Graph(params, [node])(*arrays))
    assert failed is None
    assert aval_of(result) == node.aval
    assert same_bits(result, expected)
    check_buffer(node, inputs, expected)


def check_buffer(node: Node, inputs: list[Any], expected: Any) -> None:
    """The NumPy backend gives the same into a buffer of the type that was predicted."""
    kernel = NumpyBackend().claim(node, 1)
    assert kernel is not None
    if kernel.into:
        out = np.empty(node.shape, node.dtype)
        with np.errstate(all="ignore"):
            kernel.call(out, *inputs)
        np.testing.assert_allclose(out, expected, rtol=1e-6 if np.iscomplexobj(out) else 0, equal_nan=True)


three_shapes = hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=3)


@given(three_shapes, st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_where_is_numpys(shapes: Any, first: str, second: str) -> None:
    rng = np.random.default_rng(0)
    c, x, y = (np.asarray(rng.integers(0, 2, shape)) for shape in shapes.input_shapes)
    inputs = c.astype(bool), x.astype(first), y.astype(second)
    nodes = [param(aval_of(value)) for value in inputs]
    graph = Graph(nodes, [apply("where", *nodes)])
    (result,) = graph(*inputs)
    assert aval_of(result) == graph.outs[0].aval
    assert same_bits(result, np.where(*inputs))


@pytest.mark.parametrize("shapes", [((2, 3), (2,)), ((2,), (3,)), ((1, 2, 3), (3, 3))])
def test_shapes_that_do_not_broadcast_raise_what_numpy_raises(shapes: tuple[tuple[int, ...], ...]) -> None:
    nodes = [param(aval_of(np.zeros(shape))) for shape in shapes]
    with pytest.raises(ValueError, match=r"mismatch|broadcast"):
        apply("add", *nodes)
