"""Contractions become products of matrices, whatever the order of their indices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.passes.pipeline import optimise
from futurex.runtime.plan import compile_plan
from futurex.tree import Aval, Graph, apply, param

EXTENTS = {"a": 2, "b": 3, "i": 4, "j": 5, "k": 6, "l": 7}


def operands_of(text, dtype, rng):
    for names in text.split("->")[0].split(","):
        shape = tuple(EXTENTS[letter] for letter in names)
        value = rng.normal(size=shape)
        yield (value + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else value).astype(dtype)


def graph_of(text, arrays):
    inputs = [param(Aval(array.shape, array.dtype), name) for name, array in zip("xy", arrays, strict=True)]
    return Graph(inputs, [apply("einsum", *inputs, subscripts=text, optimize=True)])


@settings(max_examples=120, deadline=None)
@given(
    st.permutations("abik"), st.permutations("abkj"), st.permutations("abij"), st.integers(0, 2), st.booleans(),
    st.sampled_from(["f4", "f8", "c16"]),
)  # fmt: skip
def test_any_order_of_indices(first, second, out, batches, wide, dtype):
    drop = set("ab"[: 2 - batches])
    first, second, out = ("".join(letter for letter in each if letter not in drop) for each in (first, second, out))
    if wide:
        first, out = first.replace("i", "il"), out.replace("i", "li")
    text = f"{first},{second}->{out}"
    arrays = list(operands_of(text, dtype, np.random.default_rng(0)))
    graph = optimise(graph_of(text, arrays))
    assert [node.op for node in graph.nodes].count("matmul") == 1
    assert all(node.op != "einsum" for node in graph.nodes)
    (found,) = compile_plan(graph, optimised=True).run(arrays)
    wanted = np.einsum(text, *arrays)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if dtype == "f4" else 1e-11, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("ij,jk->ik", "i8"), ("ik,jk->i", "f8"), ("i,j->ij", "f8"), ("ijk,kl->il", "f8"), ("ij,ij->ij", "f8")],
)
def test_what_stays_a_contraction(text, dtype):
    arrays = [(10 * each).astype(dtype) for each in operands_of(text, "f8", np.random.default_rng(0))]
    graph = optimise(graph_of(text, arrays))
    assert any(node.op == "einsum" for node in graph.nodes)
    (found,) = compile_plan(graph, optimised=True).run(arrays)
    np.testing.assert_allclose(found, np.einsum(text, *arrays), rtol=1e-12)


def test_chains_are_contracted_in_the_cheapest_order():
    rng = np.random.default_rng(1)
    shapes = {"i": 300, "j": 2, "k": 300, "l": 2, "m": 300}
    text = "ij,jk,kl,lm->im"
    arrays = [rng.normal(size=tuple(shapes[each] for each in term)) for term in text[:-4].split(",")]
    graph = fx.futurize(lambda *operands: np.einsum(text, *operands)).graph(*arrays)
    inner = [node.attrs["subscripts"] for node in graph.nodes if node.op == "einsum"]
    assert len(inner) == 3
    cost = sum(np.prod([shapes[each] for each in set(each_text) - set(",->")]) for each_text in inner)
    assert cost <= 300 * 2 * 300 + 2 * 2 * 2 * 300  # the middle first: 2 x 2, then a thin product


def test_bias_and_activation_go_with_a_contraction():
    rng = np.random.default_rng(2)
    x, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((8, 64, 64), (64, 96), (96,)))
    graph = fx.lower(lambda x, w, b: np.tanh(np.einsum("bij,jk->bik", x, w) + b), x, w, b).graph
    assert "matmul_epilogue" in [node.op for node in optimise(graph).nodes]
