"""Values that are computed again instead of stored, and reductions that share a trip: same bits, fewer bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import PASSES, optimise
from futurex.passes.recompute import LEAST_BYTES, recompute
from futurex.passes.siblings import join_siblings
from futurex.tree import Aval, Graph, apply, param
from futurex.tree.verify import verify

F4 = np.dtype(np.float32)
ROWS, COLUMNS = 512, 160  # 320 KB
BEFORE = tuple(each for each in PASSES if each not in (recompute, join_siblings))
Make = Callable[..., list[Any]]


def _total(x: Any, axis: int, keepdims: bool = False) -> Any:
    return apply("sum", x, axis=(axis,), keepdims=keepdims, dtype=None)


def _centred_columns(x: Any, g: Any) -> list[Any]:
    """The derivative of batch normalisation, without its scale."""
    apart = x - _total(x, 0) / 512.0
    spread = 1.0 / apply("sqrt", _total(apart * apart, 0) / 512.0 + 1e-5)
    normal = apart * spread
    passed = apply("where", apply("greater", normal, 0.0), g, 0.0)
    return [(passed - (_total(passed, 0) + normal * _total(passed * normal, 0)) / 512.0) * spread]


def _centred_rows(x: Any, g: Any) -> list[Any]:
    """A row's values enter full ones, which are then summed along the other axis."""
    apart = x - _total(x, 1, True) / 160.0
    normal = apart / apply("sqrt", _total(apart * apart, 1, True) / 160.0 + 1e-5)
    return [normal * _total(g, 1, True), _total(g * normal, 0), _total(g, 0)]


def _through_a_reshape(x: Any, g: Any) -> list[Any]:
    mean = apply("reshape", _total(x, 1), shape=(ROWS, 1)) / 160.0
    apart = x - mean
    return [_total(apart * apart, 1), _total(apart * g, 0)]


def _read_twice(x: Any, g: Any) -> list[Any]:
    scaled = x * 2.0 + 1.0
    top = _total(scaled, 0)
    return [_total((scaled - top) * g, 0), _total(apply("maximum", scaled - top, 0.0), 1)]


def _result_too(x: Any, g: Any) -> list[Any]:
    apart = x - _total(x, 0)
    return [apart, _total(apart * apart * g, 0), apart * _total(apart * g, 0)]


def _of_function(x: Any, g: Any) -> list[Any]:
    grown = apply("exp", x)
    return [grown * _total(grown, 0), _total(grown * g, 1)]


def _of_one_function(x: Any, g: Any) -> list[Any]:
    """The derivative of a GELU."""
    t = apply("tanh", x)
    back = apply("cumsum", x * (1.0 + t), axis=0, dtype=None) * g  # in another region
    return [back * (1.0 - t * t) + back * (1.0 + t)]


def _of_a_function_that_is_read(x: Any, g: Any) -> list[Any]:
    t = apply("tanh", x)
    back = apply("cumsum", x * t, axis=0, dtype=None) * g
    return [back * (1.0 - t * t), apply("cumsum", back * t, axis=0, dtype=None)]


def _of_two_functions(x: Any, g: Any) -> list[Any]:
    """One for each result: nothing would be saved."""
    back = apply("cumsum", x, axis=0, dtype=None) * g
    return [back * (1.0 + apply("tanh", x * 2)) + (2.0 + apply("exp", x)) * back]


CASES: list[Make] = [
    _of_one_function, _of_a_function_that_is_read, _of_two_functions, _centred_columns, _centred_rows,
    _through_a_reshape, _read_twice, _result_too, _of_function,
]  # fmt: skip


def _graph(make: Make) -> Graph:
    x, g = (param(Aval((ROWS, COLUMNS), F4), name) for name in "xg")
    return Graph([x, g], make(x, g))


def _regions(graph: Graph) -> list[Any]:
    return [node for node in graph.nodes if node.op in ("fused", "fused_reduction")]


def _stored(graph: Graph) -> int:
    """Large arrays that regions write."""
    outs = (out for node in _regions(graph) for out in node.attrs["graph"].outs)
    return sum(out.aval.nbytes >= LEAST_BYTES for out in outs)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_values_are_those_of_before_to_the_bit(make: Make) -> None:
    graph = _graph(make)
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(ROWS, COLUMNS)).astype(F4) for _ in range(2)]
    after = optimise(graph)
    verify(after)
    for found, expected in zip(after(*given), optimise(graph, passes=BEFORE)(*given), strict=True):
        np.testing.assert_array_equal(found, expected)


def _standardised(x: Any, axis: int) -> Any:
    apart = x - x.mean(axis=axis, keepdims=True)
    return apart / np.sqrt((apart * apart).mean(axis=axis, keepdims=True) + 1e-5)


def test_what_is_computed_again_may_be_made_of_what_was_computed_for_that_alone() -> None:
    """Rows that no region gave before are operands of a value that later regions offer to compute again."""
    rng = np.random.default_rng(0)
    x, weight = (rng.normal(size=shape).astype(F4) for shape in ((8, 200, 64), (64,)))
    loss = fx.grad(lambda x, weight: (_standardised(_standardised(x, 1), -1) * weight).sum())
    graph = loss.graph(x, weight)
    after = optimise(graph)
    verify(after)
    (found,), (expected,) = after(x, weight), optimise(graph, passes=BEFORE)(x, weight)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("make", "before", "after"),
    [
        (_of_one_function, 4, 3), (_of_a_function_that_is_read, 5, 4), (_centred_columns, 4, 1), (_centred_rows, 2, 1),
        (_through_a_reshape, 1, 0), (_result_too, 2, 2),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_fewer_large_arrays_are_written(make: Make, before: int, after: int) -> None:
    graph = _graph(make)
    assert _stored(optimise(graph, passes=BEFORE)) == before
    assert _stored(optimise(graph)) == after


def test_a_function_is_computed_once() -> None:
    after = optimise(_graph(_of_function))
    assert sum(node.op == "exp" for each in _regions(after) for node in each.attrs["graph"].nodes) == 1


def test_a_small_value_is_stored() -> None:
    x = param(Aval((ROWS, 16), F4), "x")
    apart = x - _total(x, 0)
    graph = Graph([x], [_total(apart * apart, 0), _total(apart, 1)])
    assert recompute(optimise(graph, passes=BEFORE)) == optimise(graph, passes=BEFORE)


def test_a_reader_that_is_no_region_gets_the_value() -> None:
    x = param(Aval((ROWS, COLUMNS), F4), "x")
    apart = x - _total(x, 0)
    graph = Graph([x], [apply("cumsum", apart, axis=0, dtype=None), _total(apart * apart, 0)])
    assert _stored(optimise(graph)) == 1


def test_what_a_value_is_made_of_does_not_live_longer_than_the_value_is_worth() -> None:
    """Four arrays that nobody else needs would have to be kept for one."""
    x = param(Aval((ROWS, COLUMNS), F4), "x")
    parts = [apply("cumsum", x * float(k), axis=0, dtype=None) for k in range(2, 6)]
    mixed = parts[0] * parts[1] + parts[2] * parts[3]
    late = apply("cumsum", _total(mixed, 0), axis=0, dtype=None)
    graph = Graph([x], [_total((mixed - late) * mixed, 0)])
    before = optimise(graph, passes=BEFORE)
    assert _stored(optimise(graph)) == _stored(before)


def test_reductions_of_one_array_share_a_region() -> None:
    x = param(Aval((ROWS, COLUMNS), F4), "x")
    graph = Graph([x], [_total(x, 1), apply("max", x, axis=(1,), keepdims=False), _total(x * x, 1), _total(x, 0)])
    after = optimise(graph)
    assert sorted(len(node.attrs["graph"].outs) for node in _regions(after)) == [1, 3]
    given = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(F4)
    for found, expected in zip(after(given), graph(given), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_reductions_that_read_each_other_stay_apart() -> None:
    x = param(Aval((ROWS, COLUMNS), F4), "x")
    shift = apply("cumsum", _total(x, 0), axis=0, dtype=None)
    after = optimise(Graph([x], [_total((x - shift) * x, 0)]))
    assert len(_regions(after)) == 2


@pytest.mark.parametrize(("dtype", "least", "most"), [("f4", 6, 8), ("f8", 1, 4)])
def test_few_quotients_of_doubles_are_computed_again(dtype: str, least: int, most: int) -> None:
    """Their vectors take as long as a trip through memory."""
    x = param(Aval((ROWS, COLUMNS), np.dtype(dtype)), "x")
    value = x
    for turn in range(10):
        value = value / _total(value, 1 - turn % 2, True)
    graph = optimise(Graph([x], [value], "balanced"))
    regions = [node.attrs["graph"] for node in graph.nodes if node.op in ("fused", "fused_reduction")]
    divisions = [sum(node.op == "divide" for node in region.nodes) for region in regions]
    assert least <= max(divisions) <= most


def test_complex_operations_stay_before_a_reduction() -> None:
    """Kernels with reductions know none: the region would be NumPy's."""
    z = param(Aval((ROWS, COLUMNS), np.dtype(np.complex128)), "z")
    graph = optimise(Graph([z], [apply("max", apply("absolute", z), axis=(0,), keepdims=False)]))
    assert [node.op for node in graph.nodes if node.inputs] == ["fused", "fused_reduction"]
    found = fx.runtime.plan.compile_plan(graph)
    assert {each.kernel.backend for each in found.instructions} == {"numba"}
