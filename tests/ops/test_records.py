"""Generated from the op records: what every record promises, checked on every sample of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from op_cases import WITHOUT_SAMPLES, Case, cases, copies, generator, graph_of, same_bits

from futurex import ops
from futurex.autodiff import pullback
from futurex.kernels.numpy_ import NumpyBackend
from futurex.kernels.registry import Kernel
from futurex.ops.comm import REDUCTIONS
from futurex.ops.random import COUNTER_OPS
from futurex.partition.factors import Recipe, recipe_of
from futurex.tree import Graph, Node, param, records
from futurex.tree.aval import aval_of
from futurex.tree.dims import fits
from futurex.tree.graph import substitute
from futurex.tree.node import apply
from futurex.tree.printer import compile_printed
from futurex.tree.record import Op
from futurex.tree.verify import verify

CASES = cases()


def claimed(case: Case) -> Kernel | None:
    """The NumPy backend's kernel for the case."""
    return NumpyBackend().claim(case.node, 1)


def reusable(case: Case) -> list[int]:
    """Inputs whose buffer the kernel may overwrite with a result of the same shape and dtype."""
    kernel = claimed(case)
    return [k for k in kernel.inplace if case.node.inputs[k].aval == case.node.aval] if kernel else []


def only(condition: Callable[[Case], Any]) -> Any:
    """Parametrise over the cases for which the condition holds."""
    return pytest.mark.parametrize("case", [case for case in CASES if condition(case)], ids=str)


every_case = only(lambda case: True)

# Floating-point ops on which no derivative is defined, and why.
WITHOUT_DERIVATIVE = {
    **dict.fromkeys(("floor_divide", "round", "floor", "ceil", "trunc", "rint"), "piecewise constant"),
    **dict.fromkeys(("argmax", "argmin", "any", "all", "check", "one_hot"), "no floating-point result or input"),
    **dict.fromkeys(("nonzero", "arange", "unique"), "positions and distinct values: no derivative is defined"),
    **dict.fromkeys(("iota", "random_bits", "random_uniform", "random_normal"), "no floating-point input"),
    "stop_gradient": "constant by definition",
    "local_batch_norm_grad": "in terms of whole batches it would be that of another function on several localities",
    **dict.fromkeys(("narrow", "widen", "narrow_product", "attention", "attention_grad"), "made after differentiation"),
    **dict.fromkeys(("max_pool_places", "max_pool_spread", "room"), "made after differentiation"),
    **dict.fromkeys(("lu_solve", "lu_inv", "lu_slogdet"), "made after differentiation"),
    **dict.fromkeys(("nextafter", "spacing"), "about the grid of floating-point numbers"),
}

# Ops that extend to complex numbers analytically: the complex step (Squire & Trapp 1998) gives their exact derivative.
ANALYTIC = {
    "add", "subtract", "multiply", "divide", "negative", "positive", "exp", "exp2", "expm1", "log", "log2", "log10",
    "log1p", "sqrt", "square", "reciprocal", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh",
    "tanh", "arcsinh", "arccosh", "arctanh", "sum", "prod", "cumsum", "matmul", "einsum", "reshape", "transpose",
    "broadcast_to", "concatenate", "flip", "load", "store", "gather", "take_along_axis", "add_along_axis", "conv",
    "conv_input_grad", "conv_weight_grad", "avg_pool", "avg_pool_grad", "batch_norm", "batch_norm_grad",
    "local_batch_norm",
    "layer_norm", "layer_norm_grad", "softmax", "log_softmax", "softmax_grad", "log_softmax_grad",
    "softmax_cross_entropy", "softmax_cross_entropy_grad",
}  # fmt: skip


@every_case
def test_abstract_value_is_the_actual_one(case: Case) -> None:
    results = case.graph(*copies(case.inputs))
    for node, result, reference in zip(case.graph.outs, results, case.results, strict=True):
        if node.dtype == object:
            continue
        if node.aval.static:
            assert aval_of(result) == node.aval
        else:
            assert (result.dtype, True) == (node.dtype, fits(result.shape, node.shape))
        np.testing.assert_array_equal(result, reference)


@every_case
def test_reference_kernel_leaves_its_inputs_alone(case: Case) -> None:
    inputs = copies(case.inputs)
    case.record.kernel(*inputs, **case.sample.attrs)
    assert all(same_bits(now, before) for now, before in zip(inputs, case.inputs, strict=True))


@only(lambda case: not case.record.structured)  # the runtime knows what the results of sub-graphs may be
def test_only_declared_views_share_memory_with_an_input(case: Case) -> None:
    inputs = copies(case.inputs)
    results = case.record.kernel(*inputs, **case.sample.attrs)
    for result in results if isinstance(results, tuple) else (results,):
        arrays = [result] if isinstance(result, np.ndarray) else []  # scalars have memory of their own
        shared = [k for k, value in enumerate(inputs) for array in arrays if np.may_share_memory(array, value)]
        assert shared in ([], [case.record.view])


@only(lambda case: case.record.decompose is not None)
def test_decomposition_means_the_same(case: Case) -> None:
    params = case.graph.params
    parts = case.record.decompose(*params, **case.sample.attrs)
    outs = list(parts) if isinstance(parts, tuple) else [parts]
    assert [node.aval for node in outs] == [node.aval for node in case.graph.outs]
    with np.errstate(divide="ignore"):
        results = Graph(params, outs)(*copies(case.inputs))
    for result, reference in zip(results, case.results, strict=True):
        tolerance = 2e-5 if np.asarray(result).dtype == np.float32 else 1e-12
        np.testing.assert_allclose(result, reference, rtol=tolerance, atol=1e-12)


def pairing(cotangents: Sequence[Any], tangents: Sequence[Any]) -> float:
    """The real bilinear pairing that defines a cotangent: Re(sum(cotangent * tangent))."""
    return sum(
        float(np.real(np.sum(np.asarray(g) * np.asarray(t))))
        for g, t in zip(cotangents, tangents, strict=True)
        if np.asarray(t).dtype.kind in "fc"
    )


def random_like(rng: np.random.Generator, value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return rng.normal(size=array.shape) + 1j * rng.normal(size=array.shape)
    return rng.normal(size=array.shape) if array.dtype.kind == "f" else np.zeros(array.shape)


def moved(values: Sequence[Any], k: int, step: Any) -> list[Any]:
    moved_value = values[k] + step
    if type(values[k]) in (float, complex):
        moved_value = type(values[k])(moved_value)
    return [moved_value if j == k else value for j, value in enumerate(copies(values))]


def check_pullback(graph: Graph, inputs: Sequence[Any], rng: np.random.Generator) -> tuple[Graph, list[Any]]:
    """Compare a graph's pullback with central differences along random directions; returns it and its inputs."""
    wrt = [k for k, node in enumerate(graph.params) if node.aval.inexact]
    back = verify(pullback(graph, wrt))
    seeds = [random_like(rng, value) for value in graph(*inputs)]
    live = [seed for seed, node in zip(seeds, graph.outs, strict=True) if node.aval.inexact]
    cotangents = back(*inputs, *live)
    for k, cotangent in zip(wrt, cotangents, strict=True):
        direction = random_like(rng, inputs[k])
        eps = 1e-6
        ahead, behind = graph(*moved(inputs, k, eps * direction)), graph(*moved(inputs, k, -eps * direction))
        difference = [
            (np.asarray(a) - b) / (2 * eps) if node.aval.inexact else np.zeros(node.shape)
            for a, b, node in zip(ahead, behind, graph.outs, strict=True)
        ]
        expected, actual = pairing(seeds, difference), pairing([cotangent], [direction])
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6, err_msg=f"input {k}")
    return back, [*inputs, *live]


@only(lambda case: case.sample.order)
def test_derivative_is_the_numerical_one_at_every_order(case: Case) -> None:
    graph, inputs, rng = case.graph, list(case.inputs), generator(str(case))
    assert any(node.aval.inexact for node in graph.params), "a sample without floating-point inputs has order 0"
    for _ in range(case.sample.order):
        graph, inputs = check_pullback(graph, inputs, rng)


def is_double(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in (np.float64, np.complex128)


def in_single_precision(case: Case) -> Graph | None:
    """The case with narrower inputs, if it has a form for them and its results are narrow too."""
    narrow = {"f": np.float32, "c": np.complex64}
    if not case.sample.order or not case.inputs or not all(map(is_double, case.inputs)) or case.name == "quantile":
        return None  # quantiles are interpolated in double precision, as in NumPy
    try:
        graph = graph_of(case.name, [x.astype(narrow[x.dtype.kind]) for x in case.inputs], case.sample.attrs)
    except (TypeError, ValueError):
        return None  # its attributes are for the wider type
    return None if any(is_double(np.empty(0, node.dtype)) for node in graph.outs) else graph


@only(in_single_precision)
def test_derivative_in_single_precision_stays_there(case: Case) -> None:
    graph = in_single_precision(case)
    assert graph is not None
    for node in pullback(graph, range(len(graph.params))).nodes:
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        assert all(aval.weak or aval.dtype not in (np.float64, np.complex128) for aval in avals), repr(node)


@only(lambda case: case.sample.order and case.name in ANALYTIC and not any(map(np.iscomplexobj, case.inputs)))
def test_derivative_is_the_complex_step(case: Case) -> None:
    rng, step = generator(str(case)), 1e-30
    wrt = [k for k, node in enumerate(case.graph.params) if node.aval.inexact]
    seeds = [random_like(rng, value) for value in case.results]
    cotangents = pullback(case.graph, wrt)(*copies(case.inputs), *seeds)
    for k, cotangent in zip(wrt, cotangents, strict=True):
        direction = random_like(rng, case.inputs[k])
        inputs = [
            np.asarray(value) + (1j * step * direction if j == k else 0j) if j in wrt else value
            for j, value in enumerate(copies(case.inputs))
        ]
        result = case.record.kernel(*inputs, **case.sample.attrs)
        tangents = [np.imag(value) / step for value in (result if isinstance(result, tuple) else (result,))]
        np.testing.assert_allclose(pairing([cotangent], [direction]), pairing(seeds, tangents), rtol=1e-9, atol=1e-11)


@every_case
def test_printed_graph_runs_and_builds_the_same_graph(case: Case) -> None:
    function = compile_printed(str(case.graph), case.graph.name)
    results = function(*copies(case.inputs))
    for result, expected in zip(results, case.graph(*copies(case.inputs)), strict=True):
        assert type(result) is type(expected)
        np.testing.assert_array_equal(result, expected)
    params = [param(node.aval, node.attrs["name"]) for node in case.graph.params]
    if params:
        assert Graph(params, function(*params), case.graph.name).hash == case.graph.hash


@every_case
def test_graph_verifies_and_survives_pickling(case: Case) -> None:
    assert verify(case.graph) is case.graph
    again = pickle.loads(pickle.dumps(case.graph))
    assert again.hash == case.graph.hash
    assert [node.aval for node in again.outs] == [node.aval for node in case.graph.outs]


def tilings() -> list[Any]:
    found = []
    for case in CASES:
        recipe = recipe_of(case.node)
        if recipe is None:
            continue
        names = {name for term in recipe.inputs + recipe.outs for name in term if recipe.shardable(name)}
        wide = [name for name in sorted(names) if extent(case, recipe, name) > 1]
        found += [pytest.param(case, recipe, name, id=f"{case}-{name}") for name in wide]
    return found


def extent(case: Case, recipe: Recipe, name: str) -> int:
    shapes = [node.shape for node in (*case.graph.params, *case.graph.outs)]
    terms = zip(recipe.inputs + recipe.outs, shapes, strict=True)
    return next(shape[term.index(name)] for term, shape in terms if name in term)


def retyped(graph: Graph, inputs: Sequence[Any]) -> Graph:
    """A sub-graph for inputs of other shapes."""
    params = [param(aval_of(value)) for value in inputs]

    def rebuild(node: Node, sources: list[Node]) -> Node:
        return apply(node.op, *sources, **node.attrs) if sources else node

    return Graph(params, substitute(graph, dict(zip(graph.params, params, strict=True)), rebuild), graph.name)


def tile(case: Case, recipe: Recipe, name: str, low: int, high: int) -> list[Any]:
    """The results of the op on one tile along ``name``."""

    def part(value: Any, term: tuple[str, ...]) -> Any:
        if name not in term:
            return value
        return np.asarray(value)[tuple(slice(low, high) if n == name else slice(None) for n in term)]

    inputs = [part(value, term) for value, term in zip(copies(case.inputs), recipe.inputs, strict=True)]
    attrs = dict(case.sample.attrs)
    if case.record.shape_attr and name in recipe.outs[0]:
        whole = zip(recipe.outs[0], case.graph.outs[0].shape, strict=True)
        attrs[case.record.shape_attr] = tuple(high - low if n == name else size for n, size in whole)
    if case.name in COUNTER_OPS:
        inputs[-1] = inputs[-1] + low
    attrs |= {key: retyped(value, inputs) for key, value in attrs.items() if isinstance(value, Graph)}
    return graph_of(case.name, inputs, attrs)(*inputs)


@pytest.mark.parametrize("case, recipe, name", tilings())
def test_every_legal_tiling_equals_the_whole(case: Case, recipe: Recipe, name: str) -> None:
    size = extent(case, recipe, name)
    cut = max(1, size // 3)  # uneven wherever that is possible
    first, second = tile(case, recipe, name, 0, cut), tile(case, recipe, name, cut, size)
    for term, left, right, reference in zip(recipe.outs, first, second, case.results, strict=True):
        if name in term:
            result = np.concatenate([left, right], term.index(name))
        else:
            result = REDUCTIONS[case.record.reduce](left, right)
        reference = np.asarray(reference)
        assert result.dtype == reference.dtype
        tolerance = 50 * np.finfo(reference.dtype).eps if reference.dtype.kind in "fc" else 0
        np.testing.assert_allclose(result, reference, rtol=tolerance, atol=tolerance)


def same_result(first: Any, second: Any) -> bool:
    """Bit for bit; complex numbers to two roundings, because NumPy's complex loops depend on overlap and alignment."""
    if np.iscomplexobj(second):
        return bool(np.allclose(first, second, rtol=2 * np.finfo(np.asarray(second).dtype).eps, atol=0))
    return same_bits(first, second)


@only(lambda case: (kernel := claimed(case)) and kernel.into)
def test_kernel_writes_into_a_given_buffer(case: Case) -> None:
    inputs = copies(case.inputs)
    out = np.frombuffer(bytearray(b"\xa5" * max(case.node.aval.nbytes, 1)), np.uint8)[: case.node.aval.nbytes]
    out = out.view(case.node.dtype).reshape(case.node.shape)
    result = claimed(case).call(out, *inputs)
    assert same_result(out, case.results[0])
    assert same_bits(result, out)
    assert all(same_bits(now, before) for now, before in zip(inputs, case.inputs, strict=True))


@only(reusable)
def test_in_place_equals_pure(case: Case) -> None:
    for k in reusable(case):
        inputs = [np.array(value) if np.ndim(value) or j == k else value for j, value in enumerate(case.inputs)]
        claimed(case).call(inputs[k], *inputs)
        assert same_result(inputs[k], case.results[0]), f"written over input {k}"
        others = [(now, before) for j, (now, before) in enumerate(zip(inputs, case.inputs, strict=True)) if j != k]
        assert all(same_bits(now, before) for now, before in others)


def _last_is_reusable(case: Case) -> bool:
    return len(case.inputs) > 1 and bool(np.ndim(case.inputs[-1])) and len(case.inputs) - 1 in reusable(case)


@only(lambda case: case.record.elementwise and _last_is_reusable(case))
def test_elementwise_in_place_with_one_array_as_every_input(case: Case) -> None:
    value = case.inputs[-1]
    p = param(aval_of(value))
    node = apply(case.name, *[p] * len(case.inputs), **case.sample.attrs)
    kernel = NumpyBackend().claim(node, 1)
    assert kernel is not None
    assert kernel.inplace
    expected = case.record.kernel(*[value] * len(case.inputs), **case.sample.attrs)
    buffer = np.array(value)
    kernel.call(buffer, *[buffer] * len(case.inputs))
    assert same_result(buffer, expected)


@every_case
def test_cost_is_a_finite_number_of_python_and_not_negative(case: Case) -> None:
    cost = case.record.work(tuple(node.aval for node in case.graph.params), case.node.aval, case.sample.attrs)
    for value in (cost.flops, cost.bytes):
        assert type(value) in (int, float)  # a comparison with one of NumPy's would be no index
        assert 0 <= value < np.inf


every_record = pytest.mark.parametrize("rec", list(records()), ids=lambda rec: rec.name)


@every_record
def test_record_has_samples(rec: Op) -> None:
    if rec.name in WITHOUT_SAMPLES:
        assert rec.samples is None, f"{rec.name} has samples now: take it off the list"
    else:
        assert rec.samples is not None
        assert list(rec.samples(generator(rec.name)))


@every_record
def test_record_is_reachable_by_its_name(rec: Op) -> None:
    assert getattr(ops, rec.name) is rec


@every_record
def test_floating_op_has_a_derivative(rec: Op) -> None:
    mine = [case for case in CASES if case.name == rec.name]
    takes_floats = [case for case in mine if any(node.aval.inexact for node in case.graph.params)]
    floats = [case for case in takes_floats if case.graph.outs[0].aval.inexact]
    has_rule = rec.vjp is not None or rec.decompose is not None
    if rec.name in WITHOUT_DERIVATIVE:
        assert not has_rule, f"{rec.name} has a derivative now: take it off the list"
    elif floats:
        assert has_rule
        assert any(case.sample.order for case in mine), "no sample of it is differentiated"


@pytest.mark.parametrize("name", sorted(ANALYTIC | WITHOUT_SAMPLES.keys() | WITHOUT_DERIVATIVE.keys()))
def test_lists_name_ops_that_exist(name: str) -> None:
    assert getattr(ops, name).name == name


