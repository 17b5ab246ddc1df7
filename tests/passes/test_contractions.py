"""Contractions become products of matrices, whatever the order of their indices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.passes.contractions import LEAST_SPACE
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


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("text", ["ij,ejk->eik", "ji,ejk->eik", "ij,ekj->eik", "ekj,ji->eik", "ij,abjk->abik"])
def test_a_matrix_times_each_of_a_stack_is_not_merged(text, dtype):
    extents = {"e": 70, "a": 8, "b": 9, "i": 5, "j": 6, "k": 4}
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(size=[extents[letter] for letter in names]).astype(dtype)
        for names in text.split("->")[0].split(",")
    ]
    graph = optimise(graph_of(text, arrays))
    assert {node.op for node in graph.nodes} <= {"param", "const", "transpose", "matmul"}
    (found,) = compile_plan(graph, optimised=True).run(arrays)
    wanted = np.einsum(text, *arrays)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if dtype == "f4" else 1e-11, atol=1e-5)


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


SUMS = ["ij,ij->i", "ij,ij->j", "ij,ij->", "ij->i", "ij->j", "ij->", "ij,j->i", "j,ij->i", "ij,i->j", "bij,bij->bi",
        "bij,bj->b", "bij,b->ij", "bij->i"]  # fmt: skip
OF_VECTORS = ("ij,j->i", "j,ij->i", "ij,i->j", "bij,b->ij")


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
@pytest.mark.parametrize("text", SUMS)
def test_large_sums_of_products_are_regions(text, dtype):
    """Where the operands lie in one order; those of integers, and small ones, are NumPy's."""
    extents = {"b": 20, "i": 100, "j": 300}
    rng = np.random.default_rng(0)
    for large in (True, False):
        shapes = [[extents[letter] for letter in names] for names in text.split("->")[0].split(",")]
        arrays = [rng.integers(-9, 10, shape if large or "b" in text else [e // 10 for e in shape]) for shape in shapes]
        arrays = [(each / (1 if dtype == "i8" else 4)).astype(dtype) for each in arrays]  # sums of which are exact
        f = fx.futurize(lambda *each: np.einsum(text, *each))
        wanted = np.einsum(text, *arrays)
        for _ in range(3):
            found = np.asarray(f(*arrays))
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_array_equal(found, wanted)
        inputs = [param(Aval(each.shape, each.dtype)) for each in arrays]
        graph = optimise(Graph(inputs, [apply("einsum", *inputs, subscripts=text, optimize=False)]))
        space = max(each.size for each in arrays)
        region = dtype != "i8" and space >= LEAST_SPACE
        assert any(node.op == "fused_reduction" for node in graph.nodes) == region
        small = dtype != "i8" and text in OF_VECTORS and not region
        assert any(node.op == "matmul" for node in graph.nodes) == small
        assert any(node.op == "einsum" for node in graph.nodes) == (not region and not small)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("hd,htd->ht", ((2, 8), (2, 20, 8))), ("htd,hd->ht", ((2, 20, 8), (2, 8))),
        ("ht,htd->hd", ((2, 20), (2, 20, 8))), ("hd,htd->ht", ((8, 64), (8, 200, 64))),
        ("bhd,bthd->bht", ((2, 3, 8), (2, 5, 3, 8))),
        ("bht,bthd->bhd", ((2, 3, 5), (2, 5, 3, 8))), ("bht,bthd->bhd", ((2, 8, 100), (2, 100, 8, 64))),
        ("td,d->t", ((20, 8), (8,))), ("t,td->d", ((20,), (20, 8))),
    ],
)  # fmt: skip
def test_matrices_and_vectors_are_products(text, shapes, dtype):
    """Stacks too, and those in which the heads stand behind the time; the matrix is read as it lies."""
    rng = np.random.default_rng(6)
    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    inputs = [param(Aval(each.shape, each.dtype)) for each in arrays]
    graph = optimise(Graph(inputs, [apply("einsum", *inputs, subscripts=text, optimize=False)]))
    assert [node.op for node in graph.nodes].count("matmul") == 1
    assert all(node.op not in ("einsum", "fused_reduction") for node in graph.nodes)
    (product,) = (node for node in graph.nodes if node.op == "matmul")
    turned = [each for each in product.inputs if each.op == "transpose" and each.attrs["axes"][-1] != each.ndim - 1]
    assert not turned
    (found,) = compile_plan(graph, optimised=True).run(arrays)
    exact = np.einsum(text, *(each.astype(float) for each in arrays))
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-4 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize("text", ["prqs,rs->pq", "prqs,rs->prq", "rs,prqs->prq", "pqrs,rs->pq", "rqs,rs->rq"])
def test_matrices_that_would_have_to_be_gathered_are_read_as_they_lie(text):
    """``prqs,rs->prq`` has a matrix for each r whose rows lie all over the operand."""
    rng = np.random.default_rng(7)
    side = 45 if text == "rqs,rs->rq" else 20
    arrays = [rng.normal(size=(side,) * len(names)) for names in text.split("->")[0].split(",")]
    inputs = [param(Aval(each.shape, each.dtype)) for each in arrays]
    graph = optimise(Graph(inputs, [apply("einsum", *inputs, subscripts=text, optimize=False)]))
    assert any(node.op == "matmul" for node in graph.nodes) == (text == "rqs,rs->rq")
    (found,) = compile_plan(graph, optimised=True).run(arrays)
    np.testing.assert_allclose(found, np.einsum(text, *arrays), rtol=0, atol=1e-12)


@pytest.mark.parametrize("text", ["dh,tdh->th", "i,jk->ijk", "ijk,kl->i", "iij,j->i"])
def test_other_small_contractions_stay_numpys(text):
    """The axis of a stack is the nearest, nothing is added up, of both operands something is."""
    extents = {letter: 2 + k for k, letter in enumerate("dhtijkl")}
    inputs = [param(Aval(tuple(extents[each] for each in names), np.dtype("f8")))
              for names in text.split("->")[0].split(",")]  # fmt: skip
    graph = optimise(Graph(inputs, [apply("einsum", *inputs, subscripts=text, optimize=False)]))
    assert any(node.op == "einsum" for node in graph.nodes)


def test_turned_operands_of_sums_stay_numpys():
    x, y = param(Aval((300, 400), np.dtype("f4"))), param(Aval((400, 300), np.dtype("f4")))
    turned = apply("transpose", y, axes=(1, 0))
    for inputs, text in (([x, y], "ij,ji->i"), ([x, turned], "ij,ij->i")):
        graph = optimise(Graph([x, y], [apply("einsum", *inputs, subscripts=text, optimize=False)]))
        assert any(node.op == "einsum" for node in graph.nodes)


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


def test_a_bias_goes_with_a_contraction():
    rng = np.random.default_rng(2)
    x, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((8, 64, 64), (64, 96), (96,)))
    graph = fx.lower(lambda x, w, b: np.einsum("bij,jk->bik", x, w) + b, x, w, b).graph
    assert "matmul_epilogue" in [node.op for node in optimise(graph).nodes]


def pointwise(channels, filters, kernel=1, dtype=np.float32, batch=2):
    """The gradient of a convolution's weights over images of 5 x 6."""
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    x = param(Aval((batch, 5, 6, channels), np.dtype(dtype)), "x")
    g = param(Aval((batch, 6 - kernel, 7 - kernel, filters), np.dtype(dtype)), "g")
    return Graph([x, g], [apply("conv_weight_grad", x, g, kernel_shape=(kernel, kernel), **attrs)])


@pytest.mark.parametrize(("channels", "filters"), [(4, 256), (70, 100)], ids=["many filters", "some filters"])
def test_the_gradient_of_pointwise_weights_is_a_product(channels, filters):
    graph = pointwise(channels, filters)
    after = optimise(graph)
    assert {"matmul"} == {node.op for node in after.nodes if node.op in ("matmul", "conv_weight_grad")}
    rng = np.random.default_rng(0)
    args = [rng.normal(size=each.shape).astype(np.float32) for each in graph.params]
    for run in (after, compile_plan(graph).run):
        found = run(*args) if run is after else run(args)
        exact = np.einsum("nhwc,nhwo->co", *(each.astype(float) for each in args))[None, None]
        np.testing.assert_allclose(found[0], exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "other", [{"filters": 64}, {"channels": 300, "filters": 100}, {"kernel": 3}, {"dtype": np.float64}, {"batch": 0}],
    ids=["few filters", "more channels", "windows", "double precision", "nothing"],
)  # fmt: skip
def test_other_gradients_of_weights_stay(other):
    graph = pointwise(**{"channels": 8, "filters": 256, **other})
    assert [node.op for node in optimise(graph).nodes].count("conv_weight_grad") == 1


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("first", "second"),
    [((6, 7, 1), (6, 1, 9)), ((6, 7, 1), (1, 1, 9)), ((2, 1, 7, 1), (3, 1, 9)), ((8, 1), (1, 8)), ((90, 1), (1, 700))],
)
def test_outer_products_are_elementwise(first, second, dtype):
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal(shape).astype(dtype) for shape in (first, second))
    x.flat[0], y.flat[:2], y.flat[2] = -0.0, (np.inf, np.nan), 0.0
    x.flat[1] = -1.0
    inputs = [param(Aval(each.shape, each.dtype)) for each in (x, y)]
    graph = optimise(Graph(inputs, [apply("matmul", *inputs)]))
    assert all(node.op != "matmul" for node in graph.nodes)
    (found,) = compile_plan(graph, optimised=True).run([x, y])
    with np.errstate(invalid="ignore"):
        wanted = x @ y
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize(("first", "second", "dtype"), [
    ((7, 1), (1, 9), "f8"), ((6, 7, 2), (6, 2, 9), "f8"), ((1, 7, 1), (1, 1, 9), "f8"), ((6, 7, 1), (6, 1, 9), "i8"),
])  # fmt: skip
def test_other_products_stay(first, second, dtype):
    inputs = [param(Aval(each, np.dtype(dtype))) for each in (first, second)]
    graph = optimise(Graph(inputs, [apply("matmul", *inputs)]))
    assert any(node.op == "matmul" for node in graph.nodes)
