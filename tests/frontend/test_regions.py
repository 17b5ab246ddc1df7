"""``checkpoint`` changes memory and nothing else; ``custom_vjp`` takes the derivative that it is given, everywhere."""

import tracemalloc

import numpy as np
import pytest
from derivative_cases import X, cases
from effect_cases_of_regions import noisy

import futurex as fx

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.normal(size=(32, 32)) * 0.1 for _ in range(12)]
BATCH = RNG.normal(size=(64, 32))


def block(x, w):
    h = np.tanh(x @ w)
    return np.sin(np.tanh(h * h + x)) * h + x


def network(step):
    def loss(weights, x):
        for w in weights:
            x = step(x, w)
        return (x * x).sum()

    return loss


def same_bits(first, second):
    return np.asarray(first).tobytes() == np.asarray(second).tobytes()


def test_a_checkpoint_needs_less_memory_for_the_same_bits():
    plain, saved = fx.grad(network(block)), fx.grad(network(fx.checkpoint(block)))
    pairs = zip(plain(WEIGHTS, BATCH), saved(WEIGHTS, BATCH), strict=True)
    assert all(same_bits(a, b) for a, b in pairs)
    kept, within = 4 * 12, 16  # values of every block, of one block with its derivative
    assert plain.memory(WEIGHTS, BATCH).arena > kept * BATCH.nbytes
    assert saved.memory(WEIGHTS, BATCH).arena < (12 + within + 1) * BATCH.nbytes


def test_a_checkpoint_saves_memory_at_every_size():
    plain, saved = fx.grad(network(block)), fx.grad(network(fx.checkpoint(block)))
    for rows in range(60, 66):
        x = np.ones((rows, 32))
        np.asarray(plain(WEIGHTS, x)[0])
        np.asarray(saved(WEIGHTS, x)[0])
        assert 0 < saved.memory(WEIGHTS, x).arena < 30 * x.nbytes


@pytest.mark.parametrize("function", cases)
def test_a_checkpoint_changes_no_bit(function):
    saved = fx.checkpoint(function)
    assert saved(X.copy()) == function(X.copy())
    assert same_bits(fx.futurize(lambda x: saved(x * 1.0))(X), fx.futurize(lambda x: function(x * 1.0))(X))
    assert same_bits(fx.grad(saved)(X), fx.grad(function)(X))
    assert same_bits(fx.jvp(saved, (X,), (X,))[1], fx.jvp(function, (X,), (X,))[1])


@pytest.mark.parametrize("function", cases)
def test_checkpoints_under_other_transforms(function):
    saved = fx.checkpoint(function)
    np.testing.assert_allclose(np.asarray(fx.hessian(saved)(X)), np.asarray(fx.hessian(function)(X)), rtol=1e-9)
    xs = np.stack([X, 1.1 * X])
    np.testing.assert_allclose(
        np.asarray(fx.vmap(fx.grad(saved))(xs)), [np.asarray(fx.grad(function)(x)) for x in xs], rtol=1e-8, atol=1e-9
    )


@pytest.mark.parametrize("function", cases)
def test_loops_in_segments_have_the_same_derivatives(function):
    saved = fx.checkpoint(function, every=4)
    assert same_bits(fx.grad(saved, has_aux=False)(X), fx.grad(saved)(X))
    np.testing.assert_allclose(np.asarray(fx.grad(saved)(X)), np.asarray(fx.grad(function)(X)), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.asarray(fx.hessian(saved)(X)), np.asarray(fx.hessian(function)(X)), rtol=1e-9)


def wander(x):
    for _ in range(400):
        x = np.sin(x) * 1.01 + 0.001 * x
    return (x * x).sum()


def peak_of(function, x):
    fx.precompile(function, x)  # which a run would do in between, and whose memory is not the run's
    np.asarray(function(x))
    tracemalloc.start()
    try:
        result = np.asarray(function(x))
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_segments_keep_less_of_a_loop():
    x = RNG.normal(size=20_000)
    (plain, most), (saved, least) = (
        peak_of(fx.grad(f), x) for f in (wander, fx.checkpoint(wander, every=20))
    )
    np.testing.assert_allclose(saved, plain, rtol=1e-12)
    assert most > 400 * x.nbytes
    assert least < 60 * x.nbytes


def rolled(w, x):
    for _ in range(250):
        x = np.tanh(w @ x) + 0.1 * x
    return (x * x).sum()


def test_segments_of_known_length_are_compiled_and_counted():
    """Their loops had a test that read the state, of which nobody knew how long it holds: each went round by round."""
    w, x = RNG.normal(size=(60, 60)) * 0.1, RNG.normal(size=60)
    want, peaks = fx.grad(rolled)(w, x), {}
    for every in (0, 1, 16, 40, 249, 250, 300):
        f = fx.futurize(lambda w, x, k=every: fx.grad(fx.checkpoint(rolled, every=k) if k else rolled)(w, x))
        fx.precompile(f, w, x)
        np.testing.assert_allclose(np.asarray(f(w, x)), want, rtol=1e-11, atol=1e-13)
        peaks[every] = f.memory(w, x).peak
        if every > 1:
            np.asarray(f(w, x))
            assert "round by round" not in f.explain(), f.explain()
    assert max(peaks[16], peaks[40]) < 0.6 * peaks[0]


def test_effects_of_a_checkpoint_run_once(capsys):
    np.testing.assert_allclose(np.asarray(fx.grad(lambda x: fx.checkpoint(noisy)(x) * 2)(X)), 4 * X)
    assert capsys.readouterr().out == "inside 6\n"


def overwrite(x):
    x[0] = 7.0
    return x.sum()


def written_argument(x):
    x = x + 0
    s = fx.checkpoint(overwrite)(x)
    return x.sum() + s


def returned_view(x):
    x = x + 0
    tail = fx.checkpoint(lambda x: x[1:])(x)
    tail[0] = 9.0
    return x.sum()


def results_of_one_storage(x):
    whole, tail = fx.checkpoint(lambda x: (lambda y: (y, y[1:]))(x * 2))(x)
    tail[0] = 5.0
    return whole.sum()


def numbers_of_python(x):
    half, count, y = fx.checkpoint(lambda x: (0.5, 3, x * 1))(x)
    for _ in range(count):
        y = y * half
    return y.sum()


def returned_argument(x):
    x = x + 0
    y = same(x)
    y[0] = 5.0
    return x.sum()


@fx.custom_vjp
def same(x):
    return x


same.defvjp(lambda x: (x, None), lambda _, g: (g,))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "function", [written_argument, returned_view, results_of_one_storage, numbers_of_python, returned_argument]
)
def test_regions_are_their_functions_aliases_and_numbers_too(function, dtype):
    x = np.arange(1, 5).astype(dtype)
    assert same_bits(fx.futurize(function)(x), function(x.copy()))


@fx.custom_vjp
def root(x):
    return np.sqrt(x)


def root_forward(x):
    y = root(x)
    return y, y


def root_backward(y, g):
    return (np.where(y > 0, g * 0.5 / np.where(y > 0, y, 1.0), 0.0),)


root.defvjp(root_forward, root_backward)
V = np.array([0.0, 4.0, 9.0])
SLOPE = np.array([0.0, 0.25, 1 / 6])


def test_a_derivative_of_ones_own():
    assert same_bits(root(V), np.sqrt(V))
    assert same_bits(fx.futurize(root)(V), np.sqrt(V))
    np.testing.assert_allclose(np.asarray(fx.grad(lambda x: root(x).sum())(V)), SLOPE)
    np.testing.assert_allclose(np.asarray(fx.jvp(root, (V,), (2 * np.ones(3),))[1]), 2 * SLOPE)
    np.testing.assert_allclose(np.asarray(fx.vmap(fx.grad(root))(V)), SLOPE)
    np.testing.assert_allclose(np.asarray(fx.jacobian(root)(V)), np.diag(SLOPE))
    second = fx.grad(lambda x: fx.grad(lambda x: root(x).sum())(x).sum())(V)
    np.testing.assert_allclose(np.asarray(second), [0.0, -0.25 * 4**-1.5, -0.25 * 9**-1.5])


def test_what_all_examples_share_gets_the_sum_of_their_cotangents():
    shared = fx.grad(lambda a: fx.vmap(lambda x: root(x * a))(V).sum())(2.0)
    np.testing.assert_allclose(float(shared), np.sqrt(V).sum() * 0.5 / np.sqrt(2))


@fx.custom_vjp
def scaled(params, x, n, how):
    return {"y": params["a"] * x**n, "how": how}


def scaled_forward(params, x, n, how):
    return scaled(params, x, n, how), (params, {"x": x}, how)


def scaled_backward(residuals, g):
    params, kept, how = residuals
    factor = {"odd": 100}[how]
    return {"a": (g["y"] * kept["x"]).sum() * factor, "b": None}, g["y"] * params["a"], None, None


scaled.defvjp(scaled_forward, scaled_backward)


def test_nests_static_arguments_and_what_has_no_cotangent():
    params, x = {"a": np.float64(2.0), "b": np.ones(2)}, np.array([1.0, 3.0])
    by_params, by_x = fx.grad(lambda p, x: scaled(p, x, 2, "odd")["y"].sum(), argnums=(0, 1))(params, x)
    assert float(by_params["a"]) == 400.0
    np.testing.assert_array_equal(np.asarray(by_params["b"]), np.zeros(2))
    np.testing.assert_array_equal(np.asarray(by_x), [2.0, 2.0])


def captured(x, scale):
    @fx.custom_vjp
    def inner(y):
        return y * scale

    inner.defvjp(lambda y: (y * scale, None), lambda _, g: (g * scale * 10,))
    return inner(x).sum()


def test_values_from_outside_are_constants_or_refused():
    np.testing.assert_array_equal(np.asarray(fx.grad(captured)(X, 3.0)), np.full(6, 30.0))
    with pytest.raises(TypeError, match="reads a value from outside"):
        fx.grad(captured, argnums=1)(X, 3.0)


class Scaled:
    def __init__(self, factor):
        self.factor = factor


class CheckpointedLayer(Scaled):
    @fx.checkpoint
    def __call__(self, x):
        return np.sin(x) * self.factor


class FuturizedLayer(Scaled):
    @fx.futurize
    def __call__(self, x):
        return np.sin(x) * self.factor


class LayerWithARule(Scaled):
    @fx.custom_vjp
    def __call__(self, x):
        return np.sin(x) * self.factor


LayerWithARule.__call__.defvjp(
    lambda self, x: (np.sin(x) * self.factor, (x, self.factor)), lambda kept, g: (None, g * np.cos(kept[0]) * kept[1])
)


@pytest.mark.parametrize("kind", [CheckpointedLayer, FuturizedLayer, LayerWithARule])
def test_objects_are_called_by_methods_that_are_such_functions(kind):
    layer = kind(2.0)
    gradient, value = fx.grad(lambda x: layer(x).sum()), fx.futurize(lambda x: layer(x).sum(), escape="error")
    for factor in (2.0, 3.0, 5.0):
        layer.factor = factor
        np.testing.assert_allclose(np.asarray(gradient(X)), np.cos(X) * factor)
        np.testing.assert_allclose(float(value(X)), np.sin(X).sum() * factor)


@fx.custom_vjp
def sine_and_square(a, b):
    return np.sin(a), b * b


sine_and_square.defvjp(
    lambda a, b: (sine_and_square(a, b), (a, b)), lambda kept, g: (g[0] * np.cos(kept[0]), g[1] * 2 * kept[1])
)


@pytest.mark.parametrize("gate", [0.5, np.float32(0.5), 2, True, np.array([-1, 2])])
def test_of_numbers_and_integers_nothing_is_asked(gate):
    def open_share():
        return np.sum(fx.nn.relu(gate) * fx.nn.sigmoid(gate))

    gradient = fx.grad(lambda x: open_share() * x.sum())(X)
    np.testing.assert_allclose(np.asarray(gradient), np.full(6, open_share()))


@pytest.mark.parametrize("number", [0.5, np.float32(0.5)])
def test_a_part_of_the_result_that_is_known_has_a_cotangent_of_zero(number):
    gradient = fx.grad(lambda x: sine_and_square(number, x)[1].sum() + sine_and_square(x, number)[0].sum())(X)
    np.testing.assert_allclose(np.asarray(gradient), 2 * X + np.cos(X))


def made(forward, backward):
    function = fx.custom_vjp(lambda x: x * 2)
    if forward is not None:
        function.defvjp(forward, backward)
    return fx.grad(lambda x: function(x).sum())


@pytest.mark.parametrize(
    "forward, backward, error, text",
    [
        (None, None, TypeError, "has no derivative yet"),
        (lambda x: x * 2, lambda r, g: (g,), TypeError, "forward of"),
        (lambda x: ((x * 2).sum(), None), lambda r, g: (g,), TypeError, "forward of"),
        (lambda x: (x * 2, None), lambda r, g: g, TypeError, "one entry an argument"),
        (lambda x: (x * 2, None), lambda r, g: (g.sum(),), ValueError, r"cotangent of shape \(\)"),
        (lambda x: (x * 2, None), lambda r, g: ({"a": g},), TypeError, "another structure"),
    ],
)
def test_refusals(forward, backward, error, text):
    with pytest.raises(error, match=text):
        made(forward, backward)(X)


def test_a_derivative_that_is_not_linear_has_no_forward_mode():
    identity = fx.custom_vjp(lambda x: x * 1.0)
    identity.defvjp(lambda x: (x * 1.0, None), lambda _, g: (np.clip(g, -1, 1),))
    np.testing.assert_array_equal(np.asarray(fx.grad(lambda x: (identity(x) * 5).sum())(X)), np.ones(6))
    with pytest.raises(TypeError, match="not linear"):
        fx.jvp(identity, (X,), (X,))


def test_a_segment_has_a_round():
    with pytest.raises(ValueError, match="every must be at least 1"):
        fx.checkpoint(wander, every=0)
    with pytest.raises(TypeError, match=r"every must be a whole number, not 2\.5"):
        fx.checkpoint(wander, every=2.5)


def of_rows(w, x):
    rows = []
    h = x[0] * 0.0
    for row in x:
        h = np.tanh(row * w + h)
        rows.append(h)
    return (np.stack(rows) ** 2).sum()


def of_an_array(w, x):
    out, h = np.zeros_like(x), x[0] * 0.0
    for n in range(len(x)):
        h = np.tanh(x[n] * w + h)
        out[n] = h
    return (out**2).sum()


def of_what_is_read_again(w, x):
    out = np.zeros_like(x)
    for n in range(1, len(x)):
        out[n] = np.tanh(x[n] * w + out[n - 1])
    return (out**2).sum()


@pytest.mark.parametrize("function", [of_rows, of_an_array, of_what_is_read_again])
def test_segments_do_not_keep_what_rounds_only_write(function):
    w, x = np.float64(0.7), np.random.default_rng(0).normal(size=(40, 6))
    want = fx.grad(function, argnums=(0, 1))
    for every in (1, 7, 40, 100):
        segments = fx.grad(fx.checkpoint(function, every=every), argnums=(0, 1))
        for found, whole in zip(segments(w, x), want(w, x), strict=True):
            np.testing.assert_allclose(found, whole, rtol=1e-12)
        if function is not of_what_is_read_again:
            assert max(_taped(segments.graph(w, x))) <= x[0].size


@pytest.mark.parametrize("of", ["alone", "beside its value", "in rounds"])
def test_segments_leave_loops_of_derivatives_whole(of):
    """On their tape is every round: a tape of every segment gave second derivatives of other functions."""

    def energy(w):
        x, n = w, 0
        while n < 9 and x < 50.0:
            x, n = np.sin(x * w) + x, n + 1
        return x * x

    def slope(w):
        if of == "in rounds":
            total = w * 0.0
            for n in range(3):
                total = total + fx.grad(energy)(w + n * 0.1)
            return total
        return fx.grad(energy)(w) * (energy(w) if of == "beside its value" else 1.0)

    w = np.float64(0.7)
    for every in (1, 2, 4, 20):
        found = fx.grad(fx.checkpoint(slope, every=every))(w)
        np.testing.assert_allclose(found, fx.grad(slope)(w), rtol=1e-10)
        np.testing.assert_allclose(found, (slope(w + 1e-6) - slope(w - 1e-6)) / 2e-6, rtol=1e-5)


def _taped(graph):
    """How large what loops have on tape is, of one round."""
    for node in graph.nodes:
        if node.op in ("loop", "scan"):
            yield from (node.attrs["body"].params[k].aval.size for k in node.attrs["tape"])
        for part in (value for value in node.attrs.values() if hasattr(value, "nodes")):
            yield from _taped(part)


def test_relu_is_flat_at_zero():
    x = np.array([-1.0, 0.0, 2.0])
    np.testing.assert_array_equal(np.asarray(fx.grad(lambda x: fx.nn.relu(x).sum())(x)), [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(fx.nn.relu(np.array([-1.0, np.nan, 2.0])), [0.0, np.nan, 2.0])
