"""Layers with windows and normalisations against loops in float64, in one, two and three dimensions."""

import itertools
import re

import numpy as np
import pytest

import futurex as fx


def positions(sizes):
    return itertools.product(*map(range, sizes))


def transposed_by_loops(x, w, stride, pads, dilation, groups, out):
    """Every element of ``x`` puts the kernel, times itself, into the result."""
    y = np.zeros((x.shape[0], *out, w.shape[-2] * groups))
    inputs, outputs = x.shape[-1] // groups, w.shape[-2]
    for at, tap, group in itertools.product(positions(x.shape[1:-1]), positions(w.shape[:-2]), range(groups)):
        to = tuple(p * s + t * d - low for p, s, t, d, (low, _) in zip(at, stride, tap, dilation, pads, strict=True))
        if all(0 <= place < size for place, size in zip(to, out, strict=True)):
            channels = slice(group * inputs, (group + 1) * inputs)
            part = x[(slice(None), *at, channels)] @ w[(*tap, slice(None), channels)].T
            y[(slice(None), *to, slice(group * outputs, (group + 1) * outputs))] += part
    return y


TRANSPOSED = [
    ((2, 5, 4), (3, 3, 4), {"stride": 2}, ((0, 0),), (11,)),
    ((2, 5, 4), (3, 3, 4), {"stride": 2, "padding": "same"}, ((0, 1),), (10,)),
    ((2, 4, 4), (2, 3, 4), {"stride": 3, "padding": "same"}, ((0, 0),), (12,)),
    ((1, 4, 3, 4), (3, 2, 1, 4), {"stride": (2, 1), "padding": [(1, 0), 0], "groups": 2}, ((1, 0), (0, 0)), (8, 4)),
    ((1, 3, 3, 2), (2, 2, 3, 2), {"stride": 2, "dilation": 2, "output_padding": (1, 0)}, ((0, 0),) * 2, (8, 7)),
    ((1, 2, 3, 2, 2), (2, 2, 2, 3, 2), {"padding": 1}, ((1, 1),) * 3, (1, 2, 1)),
]


@pytest.mark.parametrize(("x", "w", "how", "pads", "out"), TRANSPOSED)
def test_transposed_convolution(x, w, how, pads, out):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=x), rng.normal(size=w)
    rank = len(out)
    stride, dilation = (
        tuple(np.broadcast_to(how.get(name, 1), rank).tolist()) for name in ("stride", "dilation")
    )  # fmt: skip
    expected = transposed_by_loops(a, b, stride, pads, dilation, how.get("groups", 1), out)
    np.testing.assert_allclose(fx.nn.conv_transpose(a, b, **how), expected, rtol=1e-12, atol=1e-12)
    got32 = np.asarray(fx.nn.conv_transpose(a.astype("f4"), b.astype("f4"), **how))
    assert got32.dtype == np.float32
    np.testing.assert_allclose(got32, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("x", "w", "how", "pads", "out"), TRANSPOSED[:2])
def test_it_is_the_transpose_of_the_convolution(x, w, how, pads, out):
    """<conv(y), x> = <y, conv_transpose(x)>."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=x), rng.normal(size=w)
    y = rng.normal(size=(x[0], *out, w[-2]))
    left = (np.asarray(fx.nn.conv(y, b, how["stride"], list(pads))) * a).sum()
    assert np.isclose(left, (y * np.asarray(fx.nn.conv_transpose(a, b, **how))).sum())


def windows_by_loops(x, window, stride, pads, ceil, reduce):
    """``reduce(inside, in the padding as well)`` of every window; as PyTorch, none begins behind the array."""
    spans = []
    for size, extent, step, (low, high) in zip(x.shape[1:-1], window, stride, pads, strict=True):
        room = size + low + high - extent
        count = (-(-room // step) if ceil else room // step) + 1
        starts = [k * step - low for k in range(count) if not ceil or k * step - low < size]
        spans.append([(max(s, 0), min(s + extent, size), min(s + extent, size + high) - s) for s in starts])
    out = np.empty((x.shape[0], *map(len, spans), x.shape[-1]))
    for at in positions(map(len, spans)):
        chosen = [span[k] for span, k in zip(spans, at, strict=True)]
        part = x[(slice(None), *(slice(a, b) for a, b, _ in chosen))]
        out[(slice(None), *at)] = reduce(part, np.prod([n for _, _, n in chosen]))
    return out


POOLS = [
    ((2, 7, 3), (3,), (2,), ((1, 1),)),
    ((2, 8, 3), (3,), (3,), ((0, 0),)),
    ((1, 6, 5, 2), (3, 2), (2, 2), ((1, 0), (0, 1))),
    ((1, 5, 4, 3, 2), (2, 2, 2), (2, 1, 2), ((0, 1), (0, 0), (1, 0))),
    ((1, 5, 1), (2,), (3,), ((0, 0),)),
]


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("shape", "window", "stride", "pads"), POOLS)
def test_pooling(shape, window, stride, pads, ceil):
    axes = tuple(range(1, len(shape) - 1))
    for dtype in ("f8", "f4"):
        x = np.random.default_rng(2).normal(size=shape).astype(dtype)
        highest = windows_by_loops(x, window, stride, pads, ceil, lambda part, count: part.max(axes))
        np.testing.assert_array_equal(fx.nn.max_pool(x, window, stride, pads, ceil=ceil), highest)
        for counted in (True, False):
            mean = windows_by_loops(
                x, window, stride, pads, ceil,
                lambda part, count, counted=counted: part.sum(axes) / (count if counted else np.prod(part.shape[1:-1])),
            )  # fmt: skip
            got = fx.nn.avg_pool(x, window, stride, pads, ceil=ceil, count_padding=counted)
            np.testing.assert_allclose(got, mean, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-6)


@pytest.mark.parametrize(("shape", "sizes"), [((2, 7, 3), 3), ((1, 6, 8, 2), (3, 4)), ((1, 5, 7, 2), (3, 1))])
def test_adaptive_and_global_pooling(shape, sizes):
    x = np.random.default_rng(3).normal(size=shape)
    counts = np.broadcast_to(sizes, len(shape) - 2).tolist()
    axes = tuple(range(1, len(shape) - 1))
    spans = [
        [slice(int(np.floor(i * n / c)), int(np.ceil((i + 1) * n / c))) for i in range(c)]
        for n, c in zip(shape[1:-1], counts, strict=True)
    ]
    for pool, reduce in ((fx.nn.adaptive_avg_pool, np.mean), (fx.nn.adaptive_max_pool, np.max)):
        got = np.asarray(pool(x, sizes))
        assert got.shape == (shape[0], *counts, shape[-1])
        for at in positions(counts):
            part = x[(slice(None), *(span[k] for span, k in zip(spans, at, strict=True)))]
            np.testing.assert_allclose(got[(slice(None), *at)], reduce(part, axes), rtol=1e-12)
    np.testing.assert_array_equal(fx.nn.global_max_pool(x), x.max(axes))


@pytest.mark.parametrize("shape", [(2, 6), (2, 4, 6), (1, 3, 2, 6)])
def test_group_and_instance_norm(shape):
    rng = np.random.default_rng(4)
    x, scale, shift = rng.normal(size=shape) * 3 + 1, rng.normal(size=6), rng.normal(size=6)

    def expected(groups):
        y = np.empty(shape)
        for n, part in itertools.product(range(shape[0]), np.split(np.arange(6), groups)):
            seen = x[n][..., part]
            y[n][..., part] = (seen - seen.mean()) / np.sqrt(seen.var() + 1e-5) * scale[part] + shift[part]
        return y

    for groups in (1, 2, 3):
        np.testing.assert_allclose(fx.nn.group_norm(x, groups, scale, shift), expected(groups), rtol=1e-10)
    if len(shape) > 2:
        np.testing.assert_allclose(fx.nn.instance_norm(x, scale, shift), expected(6), rtol=1e-10)


def test_what_group_norm_adds_up_is_compiled():
    """Over positions first, then over the few channels of a group: NumPy takes 10 ns an element for both at once."""

    def loss(x, scale, shift):
        return (fx.nn.group_norm(x, 8, scale, shift) ** 2).sum()

    x, ones = np.ones((8, 32, 32, 32), np.float32), np.ones(32, np.float32)
    plan = fx.futurize(fx.grad(loss, argnums=(0, 1, 2))).trace(x, ones, ones).plan
    large = [each for each in plan.instructions if any(source.size == x.size for source in each.node.inputs)]
    assert {each.kernel.backend for each in large} == {"numba"}


def test_running_statistics_follow_the_batches_and_normalise_afterwards():
    rng = np.random.default_rng(5)
    scale, shift = np.array([2.0, 0.5]), np.array([1.0, -1.0])
    mean, variance = np.zeros(2), np.ones(2)
    for _ in range(200):
        x = rng.normal([3.0, -2.0], [1.0, 4.0], (50, 2))
        y, batch_mean, batch_variance = fx.nn.batch_norm(x, scale, shift)
        np.testing.assert_allclose(np.asarray(y).mean(0), shift, atol=1e-9)
        mean, variance = fx.nn.running_statistics(mean, variance, batch_mean, batch_variance, 50)
    np.testing.assert_allclose(mean, [3.0, -2.0], atol=0.3)
    np.testing.assert_allclose(variance, [1.0, 16.0], rtol=0.3)
    expected = (x - np.asarray(mean)) / np.sqrt(np.asarray(variance) + 1e-5) * scale + shift
    np.testing.assert_allclose(fx.nn.batch_norm_inference(x, scale, shift, mean, variance), expected, rtol=1e-10)


ONES = np.ones((1, 4, 4))
SMOOTH = {
    "conv_transpose": (lambda x, w: fx.nn.conv_transpose(x, w, 2, "same"), [(1, 3, 2, 2), (3, 2, 2, 2)]),
    "avg_pool": (lambda x: fx.nn.avg_pool(x, 2, 2, 1, ceil=True, count_padding=False), [(2, 4, 5, 2)]),
    "max_pool": (lambda x: fx.nn.max_pool(x, 3, 2, 1, ceil=True), [(2, 6, 2)]),
    "adaptive_avg_pool": (lambda x: fx.nn.adaptive_avg_pool(x, 3), [(1, 5, 2)]),
    "group_norm": (lambda x, a, b: fx.nn.group_norm(x, 2, a, b), [(2, 3, 4), (4,), (4,)]),
    "layer_norm of one example": (lambda x, a, b: fx.nn.layer_norm(x, a, b), [(4,), (4,), (4,)]),
    "instance_norm": (lambda x, a, b: fx.nn.instance_norm(x, a, b), [(2, 3, 4), (4,), (4,)]),
    "batch_norm_inference": (
        lambda x, a, b, m: fx.nn.batch_norm_inference(x, a, b, m, np.full(4, 2.0)), [(2, 3, 4), (4,), (4,), (4,)],
    ),
    "silu": (fx.nn.silu, [(3, 4)]),
    "leaky_relu": (lambda x: fx.nn.leaky_relu(x, 0.2), [(3, 4)]),
    "elu": (fx.nn.elu, [(3, 4)]),
    "softplus": (fx.nn.softplus, [(3, 4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_and_batching(name):
    layer, shapes = SMOOTH[name]
    rng = np.random.default_rng(6)
    args = [rng.normal(size=shape) for shape in shapes]
    weight = rng.normal(size=np.asarray(layer(*args)).shape)

    def loss(*args):
        return (layer(*args) * weight).sum()

    gradients = fx.grad(loss, argnums=tuple(range(len(args))))(*args)
    for k, gradient in enumerate(gradients):
        way = rng.normal(size=shapes[k])
        ends = [loss(*args[:k], args[k] + step * way, *args[k + 1 :]) for step in (1e-6, -1e-6)]
        assert np.isclose((np.asarray(gradient) * way).sum(), (float(ends[0]) - float(ends[1])) / 2e-6, rtol=1e-5)
    many = [np.stack([arg, arg + 0.5]) for arg in args[:1]]
    batched = fx.vmap(layer, in_axes=(0, *[None] * (len(args) - 1)))(*many, *args[1:])
    for got, first in zip(np.asarray(batched), many[0], strict=True):
        np.testing.assert_allclose(got, layer(first, *args[1:]), rtol=1e-10, atol=1e-12)


def test_the_slope_of_elu_at_zero_is_that_of_its_left_side():
    x = np.array([-0.0, 0.0, 1.0, np.inf, -np.inf])
    for alpha in (1.0, 0.5):
        slope = fx.grad(lambda x, alpha=alpha: fx.nn.elu(x, alpha).sum())(x)
        np.testing.assert_array_equal(slope, [alpha, alpha, 1, 1, 0])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fx.nn.conv_transpose(ONES, np.ones((3, 4, 5))), "x (1, 4, 4) and w (3, 4, 5)"),
        (lambda: fx.nn.conv_transpose(ONES, np.ones((3, 4, 4)), 2, output_padding=2), "output_padding=2"),
        (lambda: fx.nn.group_norm(ONES, 3, np.ones(4), np.ones(4)), "x (1, 4, 4) do not make 3 groups"),
        (lambda: fx.nn.instance_norm(ONES[0], np.ones(4), np.ones(4)), "instance_norm needs x"),
        (lambda: fx.nn.adaptive_avg_pool(ONES[0], 2), "adaptive_avg_pool needs x"),
        (lambda: fx.nn.adaptive_max_pool(ONES[:, :0], 2), "no elements"),
        (lambda: fx.nn.running_statistics(0.0, 1.0, 0.0, 1.0, 0), "count=0"),
        (lambda: fx.nn.batch_norm_inference(ONES, np.ones(3), np.ones(4), 0, 1), "scale (3,)"),
    ],
)
def test_what_does_not_fit_is_named(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()
