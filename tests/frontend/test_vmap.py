"""``vmap`` means a loop over the examples: through control flow, writes and derivatives, in any order."""

import numpy as np
import pytest
from derivative_cases import X, cases

import futurex as fx

XS = np.stack([X * (1 + 0.15 * k) for k in range(4)])


def looped(function, xs):
    return np.stack([np.asarray(function(x)) for x in xs])


def hessian_vector(function):
    return lambda x: fx.jvp(fx.grad(function), (x,), (np.cos(x),))[1]


@pytest.mark.parametrize("made", [lambda f: f, fx.grad, hessian_vector], ids=["value", "gradient", "hessian"])
@pytest.mark.parametrize("function", cases)
def test_vmap_is_a_loop(function, made):
    mapped = fx.vmap(made(function))
    np.testing.assert_allclose(np.asarray(mapped(XS)), looped(made(function), XS), rtol=1e-8, atol=1e-8)
    assert "plain NumPy" not in mapped.explain()


@pytest.mark.parametrize("function", cases)
def test_the_gradient_of_a_vmap_is_the_vmap_of_the_gradient(function):
    gradient = fx.grad(lambda xs: fx.vmap(function)(xs).sum())(XS)
    np.testing.assert_allclose(np.asarray(gradient), looped(fx.grad(function), XS), rtol=1e-8, atol=1e-8)


def affine(w, x, b):
    return {"y": w @ x + b["shift"], "w": w}


def test_axes_of_arguments_and_results():
    rng = np.random.default_rng(0)
    w, xs, shift = rng.normal(size=(3, 2)), rng.normal(size=(2, 5)), rng.normal(size=5)
    result = fx.vmap(affine, in_axes=(None, 1, {"shift": 0}), out_axes={"y": -1, "w": None})(w, xs, {"shift": shift})
    np.testing.assert_allclose(np.asarray(result["y"]), w @ xs + shift)
    np.testing.assert_array_equal(np.asarray(result["w"]), w)
    of_numpy = fx.vmap(np.dot, in_axes=(None, np.int64(1)), out_axes=np.int64(-1))
    np.testing.assert_allclose(np.asarray(of_numpy(w, xs)), w @ xs)


@pytest.mark.parametrize("axes", [(-2, -1), (-1, 0), (0, -1)])
def test_diagonals_of_axes_counted_from_behind(axes):
    matrices = np.random.default_rng(0).normal(size=(4, 4, 4))  # an axis that is mistaken for another one fits, too

    def diagonal(a):
        return np.diagonal(a, 1, *axes) * np.trace(a, 0, *axes)

    np.testing.assert_allclose(np.asarray(fx.vmap(diagonal)(matrices)), looped(diagonal, matrices))


def test_maps_inside_maps():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    pairs = fx.vmap(fx.vmap(np.dot, in_axes=(None, 0)), in_axes=(0, None))
    np.testing.assert_allclose(np.asarray(pairs(a, b)), a @ b.T)


def collatz(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


def first_above(xs, limit):
    i = 0
    while xs[i] < limit:
        i += 1
    return xs[i] / i


def nested(x):
    total = 0.0
    while x > 1.0:
        y = x
        while y > 0.5:
            y = y * 0.5
            total = total + y
        x = x - 1.0
    return total


EXAMPLES = [
    (collatz, (np.array([1, 6, 27, 2]),)),
    (first_above, (np.tile(np.arange(9.0), (3, 1)) * [[1], [2], [3]], np.array([8.0, 3.5, 11.0]))),
    (nested, (np.array([3.2, 0.4, 7.7, 1.0]),)),
]


@pytest.mark.parametrize("function, args", EXAMPLES)
def test_examples_stop_at_rounds_of_their_own(function, args):
    """Those that are done never run the body again: an index would be out of bounds, a loop inside would not end."""
    mapped = fx.vmap(function)
    result = np.asarray(mapped(*args))
    np.testing.assert_array_equal(result, [function(*row) for row in zip(*args, strict=True)])
    assert "plain NumPy" not in mapped.explain()


def guarded(x, i):
    return x[i] if i < 3 else x[0] * 10


def test_a_branch_that_no_example_takes_cannot_fail():
    x = np.arange(3.0)
    for index in (np.array([0, 5, 2]), np.array([7, 8])):
        result = fx.vmap(guarded, in_axes=(None, 0))(x, index)
        np.testing.assert_array_equal(np.asarray(result), [guarded(x, i) for i in index])


def test_what_runs_example_by_example_is_told():
    mapped = fx.vmap(fx.random.uniform)
    keys = np.array([fx.random.key(k) for k in range(3)])
    np.testing.assert_array_equal(np.asarray(mapped(keys)), [float(fx.random.uniform(key)) for key in keys])
    assert "vmap runs random_uniform example by example" in mapped.explain()


def test_labels_of_examples_are_rows():
    def loss(w, x, label):
        return fx.nn.softmax_cross_entropy(x @ w, label)

    rng = np.random.default_rng(0)
    w, x, labels = rng.normal(size=(3, 4)), rng.normal(size=(5, 3)), rng.integers(0, 4, 5)
    for function in (loss, fx.grad(loss)):
        every = fx.vmap(function, in_axes=(None, 0, 0))
        expected = [np.asarray(function(w, *row)) for row in zip(x, labels, strict=True)]
        np.testing.assert_allclose(every(w, x, labels), expected, rtol=1e-12)
        assert "example by example" not in every.explain()
    np.testing.assert_array_equal(fx.vmap(lambda k: fx.nn.one_hot(k, 4))(labels), np.eye(4)[labels])
    scores = fx.vmap(fx.nn.softmax_cross_entropy, in_axes=(None, 0))  # one example, what each label would cost
    np.testing.assert_allclose(scores(x[0], np.arange(3)), -fx.nn.log_softmax(x[0]).result(), rtol=1e-12)
    assert "example by example" not in scores.explain()


def talking(x):
    print("x is", x)
    return x * 2


def masked(x):
    return x[x > 0].sum() * len(x)


@pytest.mark.parametrize("function", [talking, masked])
def test_what_cannot_be_mapped_runs_in_a_loop(function, capsys):
    mapped = fx.vmap(function)
    xs = np.array([[1.0, -2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(np.asarray(mapped(xs)), [function(x) for x in xs])
    printed = capsys.readouterr().out.splitlines()
    assert printed[: len(printed) // 2] == printed[len(printed) // 2 :]
    assert "plain NumPy" in mapped.explain()


def talking_and_writing(x, shared):
    print("x is", x)
    x[0] = shared[0] = 9
    return x.sum() + shared.sum()


def adding(x, shared):
    shared += 1
    print("x is", x)
    return x.sum() * len(shared) + shared.sum()


def test_what_a_loop_over_the_examples_writes_the_caller_does_not_see():
    xs, shared = np.arange(6.0).reshape(3, 2), np.ones(2)
    mapped = fx.vmap(talking_and_writing, in_axes=(0, None))
    np.testing.assert_array_equal(np.asarray(mapped(xs, shared)), [20, 22, 24])
    np.testing.assert_array_equal(np.asarray(fx.vmap(adding, in_axes=(0, None))(xs, shared)), [6, 14, 22])
    assert "plain NumPy" in mapped.explain()
    np.testing.assert_array_equal(xs, np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(shared, np.ones(2))


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: fx.vmap(np.add)(np.ones(3), np.ones(4)), "differ"),
        (lambda: fx.vmap(np.add)(np.ones(3), 1.0), "None in in_axes shares it"),
        (lambda: fx.vmap(np.add, in_axes=(0, 1))(np.ones(3), np.ones(3)), "no axis 1"),
        (lambda: fx.vmap(np.add, in_axes=None)(np.ones(3), np.ones(3)), "every entry"),
        (lambda: fx.vmap(np.add, in_axes=(0,))(np.ones(3), np.ones(3)), "1 entries for 2"),
        (lambda: fx.vmap(affine, in_axes=(0, {"a": 0}, 0))(XS, XS, XS), "not a prefix"),
        (lambda: fx.vmap(np.sin, out_axes=None)(np.arange(3.0)), "out_axes is None"),
        (lambda: fx.vmap(np.sin, out_axes=1)(np.arange(3.0)), "axis 1 is out of bounds"),
        (lambda: fx.jacobian(fx.vmap(np.sin, out_axes=-3))(np.ones((3, 2))), "has no axis -3: out_axes"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_arguments_that_do_not_fit_are_named():
    def weighted(params, x, *, scale=1.0):
        return (params["w"] * x).sum() * scale

    x, params = np.ones((5, 3)), {"w": np.ones((4, 3))}
    said = r"params/w of shape \(4, 3\) has 4 along axis 0, x of shape \(5, 3\) has 5 along axis 0; None in in_axes"
    with pytest.raises(ValueError, match=said):
        fx.vmap(weighted)(params, x)
    with pytest.raises(ValueError, match=r"argument x of shape \(5, 3\) has no axis 2; None in in_axes shares it"):
        fx.vmap(weighted, in_axes=(None, 2))(params, x)
    with pytest.raises(ValueError, match=r"argument scale of shape \(\) has no axis 0"):
        fx.vmap(weighted, in_axes=(None, 0))(params, x, scale=2.0)


def popped(x):
    stack = [1.5, 2.5]
    if x[0] > 0:
        stack.pop()
    return np.array(stack)


def cut(x):
    y = x
    if x[0] > 0:
        y = x[1:]
    return y * 2


@pytest.mark.parametrize("function", [popped, cut])
@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, -1, -1), (1, -1, 1)])
def test_branches_that_leave_arrays_of_several_sizes(function, signs):
    """One of one element is not repeated for the other branch's size."""
    xs = np.array(signs)[:, None] * np.array([1.0, 2.0])
    if len(set(signs)) == 1:
        np.testing.assert_array_equal(np.asarray(fx.vmap(function)(xs)), looped(function, xs))
    else:
        with pytest.raises(ValueError, match="same shape"):
            fx.vmap(function)(xs)


def picks_by_a_shared_mask(x, w, mask):
    picked = x[mask]
    y = x.copy()
    y[mask] = np.cumsum(picked) - picked.mean() * w[mask]
    z = np.zeros(len(picked)) + picked[::-1]
    return (y * w).sum() + (np.where(z > 0, z, 0.1) ** 2 * w[mask]).sum()


def picks_rows_by_a_shared_mask(x, w, mask):
    rows = x.reshape(-1, 1) * w
    rows[mask] *= 2.0
    rows[~mask, 0] = x[~mask]
    return (rows[mask] ** 2).sum() + rows.sum()


@pytest.mark.parametrize("function", [picks_by_a_shared_mask, picks_rows_by_a_shared_mask])
def test_a_mask_that_all_examples_share_has_derivatives(function):
    mapped = fx.vmap(function, in_axes=(0, None, None))
    rng = np.random.default_rng(0)
    for mask in ([1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]):
        x, w, mask = rng.normal(size=(3, 4)), rng.normal(size=4), np.array(mask, bool)
        np.testing.assert_allclose(np.asarray(mapped(x, w, mask)), [function(each, w, mask) for each in x])
        slopes = fx.grad(lambda x, w, mask: mapped(x, w, mask).sum(), argnums=(0, 1))(x, w, mask)
        each = [fx.grad(function, argnums=(0, 1))(row, w, mask) for row in x]
        np.testing.assert_allclose(np.asarray(slopes[0]), [np.asarray(first) for first, _ in each], atol=1e-12)
        np.testing.assert_allclose(np.asarray(slopes[1]), sum(np.asarray(second) for _, second in each), atol=1e-12)
    assert "staged" in mapped.explain()
    assert "plain NumPy" not in mapped.explain()


def test_results_of_a_size_of_their_own_are_no_matter_where_nobody_asks_for_them():
    """The residuals of a fit are as many as its rank says; the fit alone is part of the tree, with a derivative."""
    def fitted(a):
        return np.linalg.lstsq(a[:, :2], a[:, 2], rcond=None)[0]

    mapped = fx.vmap(fitted)
    for seed in range(3):
        a, direction = np.random.default_rng(seed).normal(size=(2, 3, 4, 3))
        np.testing.assert_allclose(np.asarray(mapped(a)), np.stack(list(map(fitted, a))), rtol=1e-12)
        gradient = np.asarray(fx.grad(lambda a: (fx.vmap(fitted)(a) ** 2).sum())(a))
        ahead, behind = (sum((fitted(x) ** 2).sum() for x in a + h * direction) for h in (1e-6, -1e-6))
        np.testing.assert_allclose((gradient * direction).sum(), (ahead - behind) / 2e-6, rtol=1e-5)
    assert "vmap runs lstsq example by example" in mapped.explain()
    whole = fx.vmap(lambda a: np.linalg.lstsq(a[:, :2], a[:, 2], rcond=None)[1])
    assert np.asarray(whole(a)).shape == (3, 1)
