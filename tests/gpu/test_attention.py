"""Attention without its scores: which trees become it, what that computes, and how cuDNN is asked for it."""

import math

import numpy as np
import pytest
from fake_cudnn import Frontend

import futurex as fx
from futurex.kernels import attention, cudnn
from futurex.kernels.cupy_.devices import EMULATED, Device
from futurex.kernels.cupy_.emulated import NAMESPACE
from futurex.models import transformer
from futurex.passes.attention import join_attention
from futurex.tree import Aval, apply, param
from futurex.tree import record as tree_record
from futurex.tree.verify import verify

DEVICE = Device(NAMESPACE, "emulated")
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def heads(q, k, v, mask=None):
    scores = q @ k.transpose(0, 1, 3, 2) * (1.0 / math.sqrt(8))
    return fx.nn.softmax(scores if mask is None else np.where(mask, scores, np.float32(-np.inf))) @ v


def causal(q, k, v):
    return heads(q, k, v, np.tri(q.shape[2], k.shape[2], dtype=bool))


def seen_last(q, k, v):
    later = ~np.tri(q.shape[2], k.shape[2], dtype=bool)
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(8)
    return fx.nn.softmax(np.where(later, np.float32(-np.inf), scores)) @ v


def added(q, k, v):
    mask = np.triu(np.full((q.shape[2], k.shape[2]), -np.inf, np.float32), 1)
    return fx.nn.softmax(q @ k.transpose(0, 1, 3, 2) * np.float32(0.3) + mask) @ v


def scaled_before(q, k, v):
    return fx.nn.softmax((q * np.float32(0.35)) @ k.transpose(0, 1, 3, 2), axis=-1) @ v


def by_einsum(q, k, v):
    q, k, v = (each.transpose(0, 2, 1, 3) for each in (q, k, v))
    weights = fx.nn.softmax(np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(8))
    return np.einsum("bhqk,bkhd->bqhd", weights, v).transpose(0, 2, 1, 3)


def of_one_head(q, k, v):
    return fx.nn.softmax(q[0, 0] @ k[0, 0].T * 0.3) @ v[0, 0]


def of_keys_that_are_products(q, k, v):
    turn = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    return heads(q @ turn, k @ turn, v @ turn)


FORMS = [heads, causal, seen_last, added, scaled_before, by_einsum, of_one_head, of_keys_that_are_products]


def arguments(lengths=(6, 6), size=8, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(2, 3, length, size) for length in (lengths[0], lengths[1], lengths[1])]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def names(graph):
    return [node.op for node in graph.nodes]


def joined(function, args, to="bfloat16"):
    """The graph that autocast makes, and it with attention in one node."""
    graph = fx.autocast(fx.futurize(function), to).graph(*args)
    found = join_attention(graph, lambda node: True)
    verify(found)
    return graph, found


def assert_near(results, expected, to):
    for result, wanted in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, atol=8 * ROUNDING[to] * np.abs(wanted).max())


@pytest.mark.parametrize("to", ROUNDING)
@pytest.mark.parametrize("form", FORMS)
def test_it_is_found_as_it_is_written(form, to):
    args = arguments()
    graph, found = joined(form, args, to)
    assert names(found).count("attention") == 1
    assert not {"softmax", "exp"} & set(names(found))
    assert_near(found(*args), graph(*args), to)


@pytest.mark.parametrize("lengths", [(6, 6), (4, 7), (7, 4)], ids=str)
@pytest.mark.parametrize("wanted", [(0, 1, 2), (0,), (1,), (2,), (0, 2)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_its_derivative_is_found(form, wanted, lengths):
    args = arguments(lengths)
    weight = np.random.default_rng(1).normal(size=np.shape(form(*args))).astype(np.float32)
    slope = fx.value_and_grad(lambda q, k, v, weight: (form(q, k, v) * weight).sum(), argnums=wanted)
    args.append(weight)
    graph, found = joined(slope, args)
    assert [names(found).count(name) for name in ("attention", "attention_grad")] == [1, 1]
    assert not {"softmax", "softmax_grad", "exp"} & set(names(found))
    assert all((*lengths,) != node.shape[-2:] for node in found.nodes if node.op in ("widen", "narrow_product"))
    assert_near(found(*args), graph(*args), "bfloat16")


def with_a_mask_of_the_call(q, k, v, mask):
    return heads(q, k, v, mask)


def with_its_weights(q, k, v, mask):
    weights = fx.nn.softmax(q @ k.transpose(0, 1, 3, 2))
    return weights @ v, weights


def with_dropped_weights(q, k, v, mask):
    return (fx.nn.softmax(q @ k.transpose(0, 1, 3, 2)) * mask) @ v


def with_a_row_that_sees_nothing(q, k, v, mask):
    return heads(q, k, v, np.tri(q.shape[2], k.shape[2], -1, dtype=bool))


def along_the_queries(q, k, v, mask):
    return fx.nn.softmax(q @ k.transpose(0, 1, 3, 2), axis=2) @ v


def with_scores_that_are_read(q, k, v, mask):
    scores = q @ k.transpose(0, 1, 3, 2)
    return fx.nn.softmax(scores) @ v, scores.max()


def of_a_scale_of_the_call(q, k, v, mask):
    return fx.nn.softmax(q @ k.transpose(0, 1, 3, 2) * mask[0, 0]) @ v


def of_shared_keys(q, k, v, mask):
    return fx.nn.softmax(q @ k[:1].transpose(0, 1, 3, 2)) @ v


OTHERS = [with_a_mask_of_the_call, with_its_weights, with_dropped_weights, with_a_row_that_sees_nothing,
          along_the_queries, with_scores_that_are_read, of_a_scale_of_the_call, of_shared_keys]  # fmt: skip


@pytest.mark.parametrize("function", OTHERS)
def test_what_is_something_else_stays(function):
    mask = np.tri(6, dtype=bool) if function is with_a_mask_of_the_call else np.tri(6, dtype=np.float32)
    graph, found = joined(function, [*arguments(), mask])
    assert "attention" not in names(found)
    assert names(found).count("softmax") == names(graph).count("softmax") == 1


def test_single_precision_stays():
    graph = fx.futurize(heads).graph(*arguments())
    assert join_attention(graph, lambda node: True) is graph
    assert "attention" not in names(joined(heads, arguments(), "tfloat32")[1])


def test_scores_stay_where_their_derivative_has_no_kernel():
    slope = fx.grad(lambda *args: heads(*args).sum(), argnums=(0, 1, 2))
    graph = fx.autocast(fx.futurize(slope), "bfloat16").graph(*arguments())
    found = join_attention(graph, lambda node: node.op == "attention")
    assert not {"attention", "attention_grad"} & set(names(found))


@pytest.fixture
def planned(monkeypatch):
    """cuDNN's stand-in, which reads memory of the processor: on the emulated device, also where there is a GPU."""
    frontend = Frontend()
    monkeypatch.setenv("FUTUREX_GPU", EMULATED)
    monkeypatch.setattr(cudnn, "library", lambda device: frontend)
    monkeypatch.setattr(cudnn._shared, "handle", None)
    attention._kernel.cache_clear()
    yield frontend
    attention._kernel.cache_clear()


def node_of(shapes, to="bfloat16", causal=False, name="attention"):
    q, k, v = shapes
    stored = np.dtype(np.float16 if to == "float16" else np.uint16)
    operands = [param(Aval(shape, stored)) for shape in (q, k, v)]
    if name == "attention_grad":
        made = param(Aval((*q[:-1], v[-1]), stored))
        operands = [made, *operands, made, param(Aval(q[:-1], np.dtype(np.float32)))]
    return apply(name, *operands, to=to, scale=0.3, causal=causal)


@pytest.fixture
def real(device):
    """A GPU and cuDNN."""
    if device.kind == EMULATED:
        pytest.skip("there is no GPU")
    pytest.importorskip("cudnn", reason="cuDNN's frontend is not installed", exc_type=ImportError)
    return device


MASKS = pytest.mark.parametrize("mask", [False, True], ids=("whole", "causal"))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("to", ROUNDING)
@MASKS
def test_cudnn_is_asked_for_what_the_op_means(planned, shape, to, mask):
    lengths = (5, 5, 5) if mask else (4, 7, 7)
    check([(*shape, length, size) for length, size in zip(lengths, (8, 8, 16), strict=True)], to, mask, DEVICE)


@pytest.mark.parametrize("shape", [(3, 33, 64), (2, 3, 128, 128), (2, 2, 1000, 40)], ids=str)
@pytest.mark.parametrize("to", ROUNDING)
@MASKS
def test_cudnn_computes_what_the_op_means(real, shape, to, mask):
    check([shape] * 3, to, mask, real)


def check(shapes, to, mask, device):
    """Are the kernels' results, forwards and backwards, those of the reference kernels?"""
    rng = np.random.default_rng(0)
    record = node_of(shapes, to, mask).record
    narrow = tree_record("narrow")
    q, k, v = (narrow(rng.normal(size=shape).astype(np.float32), to=to) for shape in shapes)
    attrs = {"to": to, "scale": 0.3, "causal": mask}
    expected = record(q, k, v, **attrs)
    kernel = attention.kernel_for(device, node_of(shapes, to, mask))
    assert_stored(map(device.to_host, kernel(*map(device.to_device, (q, k, v)))), expected, to)
    g = narrow(rng.normal(size=expected[0].shape).astype(np.float32), to=to)
    back = node_of(shapes, to, mask, "attention_grad")
    inputs = g, q, k, v, *expected
    slopes = attention.kernel_for(device, back)(*map(device.to_device, inputs))
    assert_stored(map(device.to_host, slopes), back.record(*inputs, **attrs), to)


def assert_stored(results, expected, to):
    def wide(x):
        return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x.astype(np.float32)

    pairs = list(zip(results, expected, strict=True))
    assert all((x.dtype, x.shape) == (y.dtype, y.shape) for x, y in pairs)
    assert_near([wide(x) for x, _ in pairs], [wide(y) for _, y in pairs], to)


@pytest.mark.parametrize("shapes", [
    [(2, 4, 12)] * 3, [(2, 4, 512)] * 3, [(2, 2, 2, 4, 8)] * 3, [(2, 0, 8)] * 3, [(1, 2, 1, 8)] * 3,
    [(2, 4, 8), (2, 4, 8), (2, 4, 136)],
], ids=str)  # fmt: skip
def test_what_cudnn_has_no_kernel_for(planned, shapes):
    assert attention.kernel_for(DEVICE, node_of(shapes, name="attention_grad")) is None


def test_without_cudnn_there_is_no_kernel():
    assert attention.kernel_for(DEVICE, node_of([(2, 4, 8)] * 3)) is None


def model(seed=0):
    rng = np.random.default_rng(seed)
    params = transformer.init(rng, width=32, heads=4, hidden=16)
    return params, rng.normal(size=(2, 7, 32)).astype(np.float32)


@MASKS
def test_a_block_of_a_transformer_trains_by_cudnn(planned, mask):
    trains(mask)


@MASKS
def test_a_block_of_a_transformer_trains_on_a_gpu(real, mask):
    trains(mask)


def trains(mask):
    params, x = model()

    def loss(params, x):
        return (transformer.apply(params, x, causal=mask) ** 2).mean()

    step = fx.autocast(fx.futurize(fx.value_and_grad(loss), device="gpu"), "bfloat16")
    found = [step(params, x) for _ in range(8)]  # the last of them as replays
    rows = {row.op: row.backend for row in step.profile()}
    assert rows["attention"] == rows["attention_grad"] == "cudnn"
    expected = fx.value_and_grad(loss)(params, x)
    for value, slopes in found:
        np.testing.assert_allclose(float(value), float(expected[0]), rtol=2e-2)
        for name in ("w", "b"):
            wanted = np.asarray(expected[1]["attention"][name])
            result = np.asarray(slopes["attention"][name])
            np.testing.assert_allclose(result, wanted, atol=4e-2 * np.abs(wanted).max())
            np.testing.assert_array_equal(result, np.asarray(found[0][1]["attention"][name]))


def test_what_fails_at_run_time_is_computed_without_cudnn(planned, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(planned, "pygraph", type("Broken", (Frontend.pygraph,), {"execute": fails}))
    args = arguments()
    f = fx.autocast(fx.futurize(causal, device="gpu"), "float16")
    np.testing.assert_allclose(np.asarray(f(*args)), np.asarray(causal(*args)), atol=1e-2)
    assert {row.backend for row in f.profile() if row.op == "attention"} == {"cupy"}
    slope = fx.grad(lambda *args: (causal(*args) ** 2).sum(), argnums=(0, 1, 2))
    found = fx.autocast(fx.futurize(slope, device="gpu"), "float16")(*args)
    assert_near(map(np.asarray, found), list(map(np.asarray, slope(*args))), "float16")
