"""Operations on transposed arrays are done on the arrays themselves; results lie in memory as NumPy's do."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.orders import keep_orders
from futurex.tree import Aval, Graph, apply, param

RNG = np.random.default_rng(21)
A, B, V = RNG.standard_normal((200, 300)), RNG.standard_normal((200, 300)), RNG.standard_normal((20, 30, 40))
CASES = {
    "a number": lambda a, b, v: a.T * 2,
    "two arrays": lambda a, b, v: a.T + b.T,
    "a vector along rows": lambda a, b, v: (a.T - a[:, 0]).T,
    "a vector along columns": lambda a, b, v: a.T / b[0][:, None],
    "sums of rows": lambda a, b, v: (a.T - a.mean(1)).T,
    "three axes": lambda a, b, v: v.transpose(2, 0, 1) * v[0, 0][:, None, None] + 1,
    "a plane": lambda a, b, v: v.transpose(2, 0, 1) - v[:, :, 0],
    "a choice": lambda a, b, v: np.where(a.T > 0, a.T, b.T).T + a,
    "several": lambda a, b, v: (a.T + 1, (a.T + 1) * 2, ((a.T + 1) * 3).T),
    "another type": lambda a, b, v: a.T.astype(np.float32) * 2,
    "an axis moved": lambda a, b, v: np.moveaxis(v, 0, -1) * 2 + 1,
    "complex": lambda a, b, v: (a.T + 1j * b.T) * 2,
    "blocks": lambda a, b, v: a.reshape(20, 10, 30, 10).swapaxes(1, 2) * 2 + 1,
    "of a part": lambda a, b, v: a[10:, ::2].T * 2 + b[10:, 1::2].T,
    "a part of it": lambda a, b, v: a.T[7:, ::2] * 2,
    "a quarter turn": lambda a, b, v: np.rot90(a) + 1,
    "a part of blocks": lambda a, b, v: v.reshape(10, 2, 30, 40).transpose(1, 3, 0, 2)[:, 5:] - 1,
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_numpys_and_lie_as_numpys(name):
    f = CASES[name]
    expected, found = f(A, B, V), fx.futurize(f)(A, B, V)
    many = isinstance(expected, tuple)
    for result, each in zip(found if many else [found], expected if many else [expected], strict=True):
        result = np.asarray(result)
        assert (result.dtype, result.shape, result.strides) == (each.dtype, each.shape, each.strides)
        assert np.array_equal(result, each)


MIXED = {
    "another order beside it": lambda a, b, v: a.T[:200] + b[:, :200],
    "read as it is, too": lambda a, b, v: (a.T * 2) @ b,
    "summed": lambda a, b, v: np.abs(a.T - b[:, 0]).max(0),
    "a plane turned round": lambda a, b, v: v.transpose(2, 1, 0) - v[:, :, 0].T,
    "there and back": lambda a, b, v: v.transpose(1, 2, 0).transpose(1, 2, 0) * 3,
    "to and fro": lambda a, b, v: (((a * 0.5).T * 0.25).T * 3).T,
    "to and fro with another array": lambda a, b, v: (((a.T * b.T).T * 0.25).T - a[:, 0]).T * 2,
    "three axes round": lambda a, b, v: ((v.transpose(1, 2, 0) * 2).transpose(2, 0, 1) * 3).transpose(1, 2, 0) * 5,
    "three axes on": lambda a, b, v: ((v.transpose(1, 2, 0) * 2).transpose(1, 2, 0) * 3).transpose(1, 2, 0) * 5,
    "little": lambda a, b, v: a[:5, :7].T * 2,
}


@pytest.mark.parametrize("name", MIXED)
def test_the_rest_is_right(name):
    f = MIXED[name]
    np.testing.assert_allclose(fx.futurize(f)(A, B, V), f(A, B, V), rtol=1e-12)


def test_the_view_is_behind_the_operations():
    x = param(Aval((200, 300), np.dtype(float)), "x")
    y = param(Aval((200,), np.dtype(float)), "y")
    turned = apply("transpose", x, axes=(1, 0))
    after = keep_orders(Graph([x, y], [(turned - y) * 2.0], "turned"))
    (out,) = after.outs
    assert out.op == "transpose"
    assert out.inputs[0].op == "multiply"
    assert {node.shape for node in after.nodes if node.op in ("multiply", "subtract")} == {(200, 300)}


def test_what_others_read_in_its_own_order_stays():
    x = param(Aval((200, 300), np.dtype(float)), "x")
    graph = Graph([x], [apply("cumsum", apply("transpose", x, axes=(1, 0)) * 2.0, axis=0, dtype=None)], "read")
    assert keep_orders(graph) is graph


COPIED = {
    "a number": lambda a, b, v: (a * 2).T.copy(),
    "two arrays": lambda a, b, v: np.flip(np.sqrt(a * a) + b, 1).copy(),
    "a vector": lambda a, b, v: (a + b[0]).T.copy(),
    "a choice": lambda a, b, v: np.where(a > 0, a, b).T.astype(np.float32, order="C"),
    "to and fro": lambda a, b, v: (((a * 2).T.copy() * 3).T.copy() * 4).T.copy(),
    "three axes round": lambda a, b, v: ((v.transpose(1, 2, 0) * 2).transpose(1, 2, 0) * 3).transpose(1, 2, 0).copy(),
    "three axes": lambda a, b, v: np.ascontiguousarray(np.moveaxis(np.exp(v) * v, 0, 1)),
    "nothing moved": lambda a, b, v: (np.moveaxis(a.T.astype(np.float32), 0, 0).copy(), a + b),
    "read as it is, too": lambda a, b, v: ((c := a * b).T.copy(), c.sum(0)),
    "given as it is, too": lambda a, b, v: ((c := a * b).T.copy(), c, np.asfortranarray(c)),
}


@pytest.mark.parametrize("name", COPIED)
def test_what_is_copied_into_c_order_is_turned_before_it_is_computed(name):
    f = COPIED[name]
    futurized = fx.futurize(f)
    for _ in range(2):
        expected, found = f(A, B, V), futurized(A, B, V)
        many = isinstance(expected, tuple)
        for result, each in zip(found if many else [found], expected if many else [expected], strict=True):
            result = np.asarray(result)
            assert (result.dtype, result.shape, result.strides) == (each.dtype, each.shape, each.strides)
            np.testing.assert_allclose(result, each, rtol=1e-13)
    if name == "a number":
        ops = [each.node.op for each in futurized._traces()[0]._plan.instructions]
        assert "contiguous" not in ops


def centred(x):
    v = x.T
    v -= v.mean(1)[:, None]
    return x


def scaled_block(x):
    v = x.transpose(1, 2, 0)
    v[...] = v * 2 + x.mean(0)[:, :, None]
    return x


def centred_products(x):
    v = x.T
    v -= v.mean(1)[:, None]
    return v @ v.T


def of_another_order(x):
    x.T[...] = x[::-1].T[:, ::-1] * 2.0
    return x


def through_other_axes(x):
    x.transpose(2, 0, 1)[...] = x.transpose(1, 2, 0) * 2.0
    return x


def of_nothing_like_it(x):
    x.T[...] = np.arange(float(x.size)).reshape(x.T.shape)
    return x


@pytest.mark.parametrize(
    "function, shape, stores",
    [(centred, (300, 60), 0), (centred_products, (400, 50), 0), (scaled_block, (30, 20, 40), 0),
     (of_another_order, (200, 90), None), (through_other_axes, (30, 30, 30), 1),
     (of_nothing_like_it, (200, 90), 1), (centred, (3, 2), 1)],
)  # fmt: skip
def test_what_is_written_through_all_of_a_transposed_view(function, shape, stores):
    """No copy across, where it is made element by element of that view; the array lies as before."""
    x = np.random.default_rng(1).standard_normal(shape)
    step = fx.futurize(lambda x: function(x.copy()))
    expected = function(x.copy())
    for _ in range(3):
        found = np.asarray(step(x))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        assert found.flags.c_contiguous
    found = [node.op for node in step.trace(x).plan.graph.nodes]
    assert stores is None or found.count("store") == stores
    mine, theirs = x.copy(), x.copy()
    fx.futurize(function)(mine)
    function(theirs)
    np.testing.assert_allclose(mine, theirs, rtol=1e-13, atol=1e-13)
