"""Networks: published sizes, shapes, initial weights, dropout only in training, and that they learn."""

import numpy as np
import pytest

import futurex as fx
from futurex.models import count, glorot_uniform, har_cnn, he_normal, mlp

pytestmark = pytest.mark.onednn


def test_har_cnn_has_the_published_number_of_parameters():
    """520,486 for windows of 80 x 3 and 6 classes: the summary of the Keras model by Ackermann (2018)."""
    assert count(har_cnn.init(np.random.default_rng(0), channels=3, classes=6)) == 520_486
    assert count(har_cnn.init(np.random.default_rng(0))) == 523_647


def test_mlp_has_one_weight_matrix_and_one_bias_per_layer():
    params = mlp.init(np.random.default_rng(0), (5, 4, 3))
    assert [layer["w"].shape for layer in params] == [(5, 4), (4, 3)]
    assert count(params) == 5 * 4 + 4 + 4 * 3 + 3


@pytest.mark.parametrize("draw, variance", [(glorot_uniform, 2 / (600 + 400)), (he_normal, 2 / 600)])
def test_initial_weights_have_the_variance_of_their_definition(draw, variance):
    weights = draw(np.random.default_rng(0), (10, 60, 40))
    assert weights.dtype == np.float32
    assert abs(weights.mean()) < 5 * np.sqrt(variance / weights.size)
    assert abs(weights.var() / variance - 1) < 0.03
    limit = np.sqrt(3 * variance) if draw is glorot_uniform else 2 * np.sqrt(variance) / 0.8796
    assert np.abs(weights).max() <= limit


def test_har_cnn_is_its_layers_one_after_the_other():
    params = har_cnn.init(np.random.default_rng(0), channels=2, classes=3)
    x = np.random.default_rng(1).normal(size=(4, 80, 2)).astype(np.float32)
    h = x
    for number in (1, 2, 3, 4):
        layer = params[f"conv{number}"]
        windows = np.lib.stride_tricks.sliding_window_view(h, 10, axis=1)
        h = np.maximum(np.einsum("ntck,kcf->ntf", windows, layer["w"]) + layer["b"], 0)
        if number == 2:
            h = h[:, : h.shape[1] // 3 * 3].reshape(4, -1, 3, 100).max(axis=2)
    expected = h.mean(axis=1) @ params["dense"]["w"] + params["dense"]["b"]
    np.testing.assert_allclose(har_cnn.apply(params, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model, params, shape",
    [
        (har_cnn, har_cnn.init(np.random.default_rng(0)), (4, 80, 6)),
        (mlp, mlp.init(np.random.default_rng(0), (64, 32, 10)), (4, 8, 8, 1)),
    ],
)
def test_dropout_needs_a_key(model, params, shape):
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    plain, dropped = (np.asarray(model.apply(params, x, key)) for key in (None, fx.random.key(0)))
    assert plain.dtype == dropped.dtype == np.float32
    assert (plain != dropped).any()
    np.testing.assert_array_equal(model.apply(params, x, fx.random.key(0), rate=0.0), plain)


def test_too_short_windows_are_refused():
    with pytest.raises(ValueError, match="does not fit"):
        har_cnn.apply(har_cnn.init(np.random.default_rng(0)), np.zeros((1, 40, 6), np.float32))


@pytest.mark.parametrize(
    "call",
    [lambda rng: har_cnn.init(rng, channels=0), lambda rng: mlp.init(rng, (3,)), lambda rng: he_normal(rng, (3,))],
)
def test_impossible_sizes_are_refused(call):
    with pytest.raises(ValueError):
        call(np.random.default_rng(0))


def test_all_parameters_of_har_cnn_have_gradients():
    params = har_cnn.init(np.random.default_rng(0))
    x, y = np.random.default_rng(1).normal(size=(3, 80, 6)).astype(np.float32), np.array([0, 1, 2])
    gradient = fx.grad(lambda params: fx.nn.softmax_cross_entropy(har_cnn.apply(params, x), y).mean())(params)
    for name, layer in gradient.items():
        assert np.abs(np.asarray(layer["w"])).max() > 0, name
        assert layer["w"].shape == params[name]["w"].shape
