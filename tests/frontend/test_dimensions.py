"""The algebra of extents that only the run knows, loops that end with another shape, and what is written where it lies.
"""

import numpy as np
import pytest
from compare import bits
from hypothesis import given
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import picked
from futurex.tree import Dim, Graph, UnknownDimension, apply, param
from futurex.tree.dims import Symbol, broadcast_shapes, limited, new_symbol, slice_length
from futurex.tree.verify import verify

RNG = np.random.default_rng(7)
X = RNG.normal(size=20)
M = RNG.normal(size=(5, 6))


U, V = Dim.of(Symbol("test_u")), Dim.of(Symbol("test_v"))


def test_dimensions_decide_what_their_structure_tells_and_nothing_else():
    assert (U + V) * 2 - V == U * 2 + V
    assert U - U == 0
    assert U + 1 != U
    assert U >= 0
    assert U + 1 > 0
    assert (U * 6) // 3 == U * 2
    for undecided in (lambda: U == 3, lambda: U == V, lambda: U > 1, lambda: int(U), lambda: bool(U), lambda: U // 2,
                      lambda: range(U), lambda: np.zeros(U)):  # fmt: skip
        with pytest.raises(UnknownDimension):
            undecided()


def test_shapes_broadcast_as_far_as_they_are_known():
    assert broadcast_shapes((U, 1), (1, V)) == (U, V)
    assert broadcast_shapes((U,), (5,)) == (5,)
    assert broadcast_shapes((U,), ()) == (U,)
    with pytest.raises(ValueError, match="shape mismatch"):
        broadcast_shapes((U, 3), (U, 4))


@given(st.integers(0, 12), st.none() | st.integers(-5, 5), st.none() | st.integers(-5, 5))
def test_lengths_of_slices(n, start, stop):
    length = slice_length(U, start, stop, None)
    if isinstance(length, Dim):
        scope = {"test_u": n, "max": max, "min": min}
        length = eval(length.symbol.token, scope)
    if length is not None:
        assert length == len(range(n)[start:stop])


def test_a_graph_used_twice_has_extents_of_its_own_each_time():
    graph = fx.futurize(lambda x: x[x > 0] * 2).graph(X)
    a, b = param(graph.params[0].aval, "a"), param(graph.params[0].aval, "b")
    (first,), (second,) = graph.inline([a]), graph.inline([b])
    with pytest.raises(UnknownDimension):
        assert first.shape == second.shape
    both = verify(Graph([a, b], [first, second, apply("concatenate", first, second, axis=0)]))
    results = both(X, -X)
    np.testing.assert_array_equal(results[2], np.concatenate([X[X > 0] * 2, -X[X < 0] * 2]))
    with pytest.raises(ValueError, match="broadcast"):
        Graph([a, b], [first + second])(X, np.where(np.arange(20) < 3, 1.0, -1.0))


def ends_with_another_shape(x):
    y, left = np.tanh(x) * 2, x[0] + 2.5
    while left > 0:
        y = y.reshape(2, -1)[:, :2].ravel() * left
        left -= 1
    return (y**2).sum()


def would_end_with_another_shape(x):
    y, left = np.tanh(x) * 2, x[0] - 2.5
    while left > 0:
        y = np.repeat(y[:1], 2) * left
        left -= 1
    return (y**2).sum()


@pytest.mark.parametrize("function", [ends_with_another_shape, would_end_with_another_shape])
@pytest.mark.parametrize("start", [-0.7, 0.4, 3.1])
def test_gradients_of_loops_that_end_with_another_shape(function, start):
    x, step = np.array([start, 0.3, -1.1, 0.9, 0.2, 1.4]), 1e-6 * np.eye(6)
    expected = [(function(x + each) - function(x - each)) / 2e-6 for each in step]
    value, gradient = fx.value_and_grad(function)(x)
    assert float(value) == function(x)
    np.testing.assert_allclose(np.asarray(gradient), expected, rtol=1e-6, atol=1e-6)


def shrinks_beside_what_nobody_reads_later(start):
    values = start * np.arange(1.0, 51.0)
    shares = values * 2
    for _ in range(49):
        shares = shares[:-1]
        values = values[:-1] * 0.02 * shares + np.sin(values[1:])
    return values[0]


def test_the_gradient_of_a_loop_that_shrinks_an_array_nobody_reads_later():
    found = float(fx.grad(shrinks_beside_what_nobody_reads_later)(0.3))
    f = shrinks_beside_what_nobody_reads_later
    np.testing.assert_allclose(found, (f(0.3 + 1e-6) - f(0.3 - 1e-6)) / 2e-6, rtol=1e-4)


def test_elements_under_a_mask_are_written_where_they_lie():
    """Of a base that nobody else reads there is no copy, however many elements the mask picks."""

    def escaping(z, c):
        count = np.zeros(z.shape, int)
        for _ in range(40):
            inside = np.abs(z) < 2
            z = z * 1.0
            values, counts = z[inside] ** 2 + c[inside], count[inside] + 1
            z[inside] = values
            count[inside] = counts
            c = c + (values.sum() + counts.sum()) * 0.0
        return z, count

    z, c = np.zeros(40000), np.linspace(-2, 1, 40000)
    f = fx.futurize(escaping)
    for found, wanted in zip(f(z, c), escaping(z, c), strict=True):
        assert bits(np.asarray(found)) == bits(wanted)
    (loop,) = [each for each in f.trace(z, c).plan.instructions if each.node.op == "loop"]
    writes = [each for each in loop.kernel.plans[-1].instructions if each.node.op == "masked_store"]
    assert len(writes) == 2
    for each in writes:
        assert each.kernel.into
        base, mask, value = np.arange(4.0), np.array([True, False, True, False]), np.ones(2)
        assert each.kernel.call(base, base, mask, value) is base
        assert base.tolist() == [1, 1, 1, 3]
        out = each.kernel.call(np.empty(4), base, mask, 7 * value)
        assert (out.tolist(), base.tolist()) == ([7, 1, 7, 3], [1, 1, 1, 3])


def test_elements_at_places_that_the_run_finds_are_written_where_they_lie():
    def escaping(z, c):
        for _ in range(40):
            inside = np.nonzero(np.abs(z) < 2)[0]
            z = z * 1.0
            values = z[inside] ** 2 + c[inside]
            z[inside] = values
            np.add.at(z, inside, values * 0.0 + 0.25)
        return z

    z, c = np.zeros(40000), np.linspace(-2, 1, 40000)
    f = fx.futurize(escaping)
    assert bits(np.asarray(f(z, c))) == bits(escaping(z, c))
    (loop,) = [each for each in f.trace(z, c).plan.instructions if each.node.op == "loop"]
    writes = [each for each in loop.kernel.plans[-1].instructions if each.node.op == "scatter"]
    assert [each.node.attrs["mode"] for each in writes] == ["set", "add"]
    for each, wanted in zip(writes, ([0, 5, 6, 3], [0, 6, 8, 3]), strict=True):
        base, places, value = np.arange(4.0), np.array([1, 2]), np.array([5.0, 6.0])
        assert each.kernel.into
        assert each.kernel.call(base, base, value, places) is base
        assert base.tolist() == wanted


def test_memory_of_what_a_mask_picks_is_kept_where_operands_are_large(monkeypatch):
    calls = []
    maker = picked.maker
    monkeypatch.setattr(picked, "maker", lambda size: calls.append(size) or maker(size))
    f = fx.futurize(lambda x: np.sort(x[x > 0.5]))
    for size, kept in ((1000, False), (1 << 18, True)):
        x = np.random.default_rng(0).random(size)
        calls.clear()
        assert bits(np.asarray(f(x))) == bits(np.sort(x[x > 0.5]))
        assert bool(calls) == kept


@given(name=st.sampled_from(["min", "max"]), low=st.integers(0, 4), more=st.integers(-4, 4), limit=st.integers(0, 6))
def test_the_least_of_what_is_limited_is_known(name, low, more, limit):
    found = limited(name, Dim.of(new_symbol(low)) + more, limit)
    least = found if isinstance(found, int) else found.low
    reached = [max(n, 0) if name == "max" else n for n in range(low + more, low + more + 12)]
    values = [min(n, limit) if name == "min" else max(n, limit) for n in reached if n >= 0]
    assert 0 <= least <= min(values)
    if low + more >= 0:
        assert least == min(values)
