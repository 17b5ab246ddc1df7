"""Every network against the same one in NumPy, its gradient along a direction, its size, training and evaluation."""

import functools

import model_references as reference
import numpy as np
import pytest

import futurex as fx
from futurex.models import count, resnet
from futurex.tree.pytree import flatten, unflatten

pytestmark = pytest.mark.onednn

PUBLISHED = {
    "alexnet": 61_100_840, "vgg16": 138_357_544, "googlenet": 6_624_904, "resnet18": 11_689_512,
    "resnet50": 25_557_032, "resnet101": 44_549_160, "resnet152": 60_192_808, "transformer": 3_152_384,
}  # fmt: skip
"""PyTorch's torchvision and, for the block, ``torch.nn.TransformerEncoderLayer(512, 8)``."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_have_the_published_number_of_parameters(name):
    assert count(getattr(fx.models, name).init(np.random.default_rng(0))) == PUBLISHED[name]


def test_parts_have_the_published_number_of_parameters():
    """The auxiliary classifiers of torchvision's GoogLeNet, Keras's LSTM, and ResNet-34."""
    rng = np.random.default_rng(0)
    assert count(fx.models.googlenet.init(rng, auxiliary=True)) == 13_004_888
    assert count(fx.models.lstm.init(rng, channels=256)["layers"]) == 2 * 525_312
    assert count(resnet.init(rng, depth=34)) == 21_797_672


def doubled(params, rng):
    """The parameters in float64; biases, scales and shifts are noise instead of zeros and ones."""
    leaves, structure = flatten(params)
    noisy = [leaf + 0.1 * rng.normal(size=leaf.shape) * (leaf.ndim == 1) for leaf in leaves]
    return unflatten(structure, [leaf.astype(np.float64) for leaf in noisy])


def narrow(params):
    """Hidden layers of 16 units, so that the double precision of a test fits into memory."""
    for name, rows, columns in (("dense1", None, 16), ("dense2", 16, 16), ("dense3", 16, None)):
        layer = params[name]
        params[name] = {"w": layer["w"][:rows, :columns], "b": layer["b"][:columns]}
    return params


def alexnet(rng):
    return narrow(fx.models.alexnet.init(rng, classes=5, size=63)), (2, 63, 63, 3)


def vgg16(rng):
    return narrow(fx.models.vgg16.init(rng, classes=5, size=32)), (2, 32, 32, 3)


def sequence(rng):
    return fx.models.lstm.init(rng, channels=3, classes=4, widths=(5, 6)), (3, 7, 3)


def block(rng):
    return fx.models.transformer.init(rng, width=12, heads=3, hidden=20), (2, 6, 12)


def images(name):
    return lambda rng: (getattr(fx.models, name).init(rng, classes=5), (2, 40, 40, 3))


def by_batch(network, eps):
    return lambda params, x: network(params, x, reference.Norm(eps))


CASES = {
    "alexnet": (alexnet, fx.models.alexnet.apply, reference.alexnet),
    "vgg16": (vgg16, fx.models.vgg16.apply, reference.vgg16),
    "googlenet": (images("googlenet"), fx.models.googlenet.apply, by_batch(reference.googlenet, 1e-3)),
    "resnet18": (images("resnet18"), fx.models.resnet18.apply, by_batch(reference.resnet, 1e-5)),
    "resnet50": (images("resnet50"), fx.models.resnet50.apply, by_batch(reference.resnet, 1e-5)),
    "lstm": (sequence, fx.models.lstm.apply, reference.lstm),
    "transformer": (block, fx.models.transformer.apply, functools.partial(reference.transformer, causal=False)),
    "causal transformer": (
        block, lambda p, x: fx.models.transformer.apply(p, x, causal=True),
        functools.partial(reference.transformer, causal=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_network_is_its_reference_and_its_gradient_the_slope_of_it(name):
    make, apply, expected = CASES[name]
    rng = np.random.default_rng(1)
    params, shape = make(rng)
    params, x = doubled(params, rng), rng.normal(size=shape)
    there = np.asarray(apply(params, x))
    assert there.dtype == np.float64
    np.testing.assert_allclose(there, expected(params, x), rtol=1e-9, atol=1e-9)

    weights = rng.normal(size=there.shape)
    gradient = flatten(fx.grad(lambda params: (apply(params, x) * weights).sum())(params))[0]
    leaves, structure = flatten(params)
    direction = [rng.normal(size=leaf.shape) * leaf.std() for leaf in leaves]

    def beside(step):
        moved = [leaf + step * each for leaf, each in zip(leaves, direction, strict=True)]
        return float((np.asarray(apply(unflatten(structure, moved), x)) * weights).sum())

    slope = (beside(1e-9) - beside(-1e-9)) / 2e-9  # few kinks of ReLU lie so near
    along = sum(float((np.asarray(g) * d).sum()) for g, d in zip(gradient, direction, strict=True))
    np.testing.assert_allclose(along, slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name, eps", [("resnet18", 1e-5), ("googlenet", 1e-3)])
def test_training_moves_the_running_statistics_and_evaluation_normalises_by_them(name, eps):
    network, rng = getattr(fx.models, name), np.random.default_rng(2)
    params = doubled(network.init(rng, classes=5), rng)
    x, state = rng.normal(size=(2, 40, 40, 3)), network.init_state(params)
    norm = reference.Norm(eps)
    expected = getattr(reference, name.rstrip("18"))(params, x, norm)
    out, after = network.train(params, x, state, momentum=0.25)
    np.testing.assert_allclose(out[0] if isinstance(out, tuple) else out, expected, rtol=1e-9, atol=1e-9)

    def gathered(params, state):
        """(scale, mean, variance) of every normalised layer, by walking the two structures together."""
        if isinstance(params, dict) and "scale" in params:
            return [(params["scale"], state["mean"], state["var"])]
        parts = params if isinstance(params, list) else params.values()
        inner = state if isinstance(state, list) else [state.get(key) for key in params]
        return [each for part, own in zip(parts, inner, strict=True) if own is not None for each in gathered(part, own)]

    found = {id(scale): (np.asarray(mean), np.asarray(var)) for scale, mean, var in gathered(params, after)}
    assert len(found) == len(norm.seen)
    moments = sorted((0.25 * mean).sum() for mean, _ in norm.seen)
    np.testing.assert_allclose(sorted(mean.sum() for mean, _ in found.values()), moments, rtol=1e-9, atol=1e-12)
    spread = sorted((0.75 + 0.25 * var).sum() for _, var in norm.seen)
    np.testing.assert_allclose(sorted(var.sum() for _, var in found.values()), spread, rtol=1e-9)

    kept = reference.Norm(eps, given=lambda layer: found[id(layer["scale"])])
    expected = getattr(reference, name.rstrip("18"))(params, x, kept)
    np.testing.assert_allclose(network.apply(params, x, after), expected, rtol=1e-9, atol=1e-9)


def test_statistics_of_shares_are_those_of_the_batch_where_there_is_one_share():
    network, rng = fx.models.resnet18, np.random.default_rng(3)
    params = doubled(network.init(rng, classes=5), rng)
    x, state = rng.normal(size=(2, 32, 32, 3)), network.init_state(params)
    whole, shares = (flatten(network.train(params, x, state, local=local))[0] for local in (False, True))
    for one, other in zip(whole, shares, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_auxiliary_classifiers_of_googlenet_are_outputs_of_training():
    googlenet, rng = fx.models.googlenet, np.random.default_rng(3)
    params = googlenet.init(rng, classes=3, auxiliary=True)
    x = rng.normal(size=(1, 224, 224, 3)).astype(np.float32)
    outputs, state = googlenet.train(params, x, googlenet.init_state(params))
    assert [np.asarray(out).shape for out in outputs] == [(1, 3)] * 3
    assert set(state) >= {"auxiliary4a", "auxiliary4d"}
    without = {name: part for name, part in params.items() if not name.startswith("auxiliary")}
    np.testing.assert_array_equal(googlenet.apply(params, x), googlenet.apply(without, x))


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "googlenet", "lstm", "transformer"])
def test_dropout_needs_a_key(name):
    params, shape = CASES[name][0](np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    apply, key = getattr(fx.models, name).apply, fx.random.key(0)
    plain, dropped = (np.asarray(apply(params, x, key=each)) for each in (None, key))
    assert plain.dtype == dropped.dtype == np.float32
    assert (plain != dropped).any()
    np.testing.assert_array_equal(apply(params, x, key=key, rate=0.0), plain)


def test_no_position_sees_a_later_one_in_causal_attention():
    params, x = block(np.random.default_rng(0))[0], np.random.default_rng(1).normal(size=(1, 6, 12))
    later = x.copy()
    later[:, 4:] += 1
    before, after = (np.asarray(fx.models.transformer.apply(params, each, causal=True)) for each in (x, later))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).all()


@pytest.mark.parametrize("name", ["alexnet", "googlenet", "resnet18", "resnet152", "lstm"])
def test_a_training_step_is_one_tree(name):
    """Gradients, momentum and statistics of a step are one graph, and a deep network's is made in moments."""
    network, rng = getattr(fx.models, name), np.random.default_rng(0)
    params = narrow(network.init(rng, 5, size=63)) if name == "alexnet" else network.init(rng, classes=5)
    shape = (2, 63, 63, 3) if name != "lstm" else (2, 10, 6)
    x, y = rng.normal(size=shape).astype(np.float32), np.array([0, 1])
    optimizer, stateful = fx.optim.sgd(0.1, 0.9), hasattr(network, "init_state")

    def loss(params, state, x, y):
        out, state = network.train(params, x, state) if stateful else (network.apply(params, x), ())
        return fx.nn.softmax_cross_entropy(out[0] if isinstance(out, tuple) else out, y).mean(), state

    def step(params, state, moments, x, y):
        (value, state), grads = fx.value_and_grad(loss, has_aux=True)(params, state, x, y)
        params, moments = optimizer.update(params, grads, moments)
        return params, state, moments, value

    state = network.init_state(params) if stateful else ()
    graph = fx.lower(step, params, state, optimizer.init(params), x, y).graph
    assert sum(node.op == "conv_weight_grad" for node in graph.nodes) == sum(
        leaf.ndim == 4 for leaf in flatten(params)[0]
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda rng: fx.models.alexnet.init(rng, size=62),
        lambda rng: fx.models.vgg16.init(rng, size=31),
        lambda rng: resnet.init(rng, depth=20),
        lambda rng: fx.models.lstm.init(rng, widths=()),
        lambda rng: fx.models.transformer.init(rng, width=10, heads=3),
    ],
)
def test_impossible_sizes_are_refused(call):
    with pytest.raises(ValueError):
        call(np.random.default_rng(0))


@pytest.mark.parametrize("name", ["resnet18", "lstm"])
def test_networks_learn_by_fit(name):
    rng = np.random.default_rng(0)
    network = getattr(fx.models, name)
    params = network.init(rng, classes=2) if name == "resnet18" else network.init(rng, 3, 2, widths=(16, 16))
    y = rng.integers(0, 2, 24)
    x = rng.normal(size=(24, 32, 32, 3) if name == "resnet18" else (24, 12, 3)).astype(np.float32)
    x[..., 0] += (2 * y - 1).reshape(-1, *(1,) * (x.ndim - 2)).astype(np.float32)

    def loss(params, x, y):
        return fx.nn.softmax_cross_entropy(network.apply(params, x), y).mean()

    optimizer = fx.optim.adam(1e-3 if name == "resnet18" else 1e-2)
    run = fx.fit(loss, params, (x, y), optimizer=optimizer, epochs=5, batch_size=12, progress=False)
    run.result(timeout=100)
    assert run.history[-1]["loss"] < 0.8 * run.history[0]["loss"]


def test_the_second_derivative_of_the_lstm_is_the_slope_of_its_gradient():
    """Its gradient is written by hand, and differentiated like anything else."""
    rng = np.random.default_rng(4)
    params, shape = sequence(rng)
    params, x = doubled(params, rng), rng.normal(size=shape)
    slope = fx.grad(lambda t: (fx.models.lstm.apply(params, x * t) ** 2).sum())
    expected = (float(slope(0.7 + 1e-5)) - float(slope(0.7 - 1e-5))) / 2e-5
    np.testing.assert_allclose(float(fx.grad(lambda t: slope(t))(0.7)), expected, rtol=1e-6)
