"""Large arguments that lie in another order than C are read, and written, as they lie."""

import warnings

import numpy as np
import pytest
from compare import equal_to_rounding

import futurex as fx

pytestmark = pytest.mark.usefixtures("either_way")

SHAPES = {
    "square": ((150, 150), (1, 0)),
    "Fortran": ((300, 80), (1, 0)), "reversed": ((8, 30, 5, 40), (3, 2, 1, 0)), "one axis": ((20, 30, 64), (0, 2, 1)),
}  # fmt: skip
CASES = {
    "elementwise": lambda x: np.exp(-x) * 2 + x,
    "several": lambda x: (-x, x > 0, x.astype(np.float32)),
    "centred": lambda x: (x - x.mean(0)) / x.std(0),
    "rows": lambda x: x - x.mean(axis=-1, keepdims=True),
    "sums": lambda x: (x.sum(), x.sum(0), x.max(-1), x.argmax(0)),
    "product": lambda x: x @ np.swapaxes(x, -1, -2),
    "elements": lambda x: (x[1], x[:, ::2] * 2, x[::-1] + 1, x.ravel()[5:9], x.reshape(-1) * 2, x.T * 3),
    "copies": lambda x: (x.copy(), np.ascontiguousarray(x), np.asfortranarray(x), x + x.T.T),
    "loop": lambda x: sum(x[k] * k for k in range(4)),
}


def lying(name, seed=0, dtype=float):
    shape, order = SHAPES[name]
    x = np.random.default_rng(seed).normal(size=[shape[axis] for axis in order]).astype(dtype)
    return x.transpose(np.argsort(order))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_values(case, name):
    staged = fx.futurize(CASES[case])
    for seed in range(4):
        x = lying(name, seed)
        equal_to_rounding(staged(x), CASES[case](x))
        np.testing.assert_array_equal(x, lying(name, seed))


@pytest.mark.parametrize("name", SHAPES)
def test_elementwise_results_lie_as_numpys(name):
    staged, x = fx.futurize(CASES["elementwise"]), lying(name)
    assert [np.asarray(staged(x)).strides for _ in range(3)] == [CASES["elementwise"](x).strides] * 3
    plan = staged.trace(x).plan
    assert plan.graph.params[0].shape == x.transpose(SHAPES[name][1]).shape  # it is not copied
    assert [each.node.op for each in plan.instructions] == ["fused"]


COPIES = {
    "ascontiguousarray": lambda x: np.ascontiguousarray(x * 2),
    "copy": lambda x: (x * 2).copy(),
    "array": lambda x: np.array(x * 2, order="C"),
    "astype": lambda x: x.astype("f4", order="C"),
    "ufunc": lambda x: np.add(x, 1, order="C"),
    "copied before": lambda x: x.copy().astype("i4"),
    "asfortranarray": lambda x: np.asfortranarray((x * 2).T),
    "Fortran copy": lambda x: (x * 2).T.copy("F"),
    "asarray": lambda x: np.asarray((x * 2).T, order="F"),
    "kept": lambda x: (x * 2).copy("K"),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("copy", COPIES)
def test_copies_lie_as_the_program_asks(copy, name):
    staged, x = fx.futurize(COPIES[copy]), lying(name)
    for _ in range(3):
        actual, expected = np.asarray(staged(x)), COPIES[copy](x)
        equal_to_rounding(actual, expected)
        assert actual.strides == expected.strides


@pytest.mark.parametrize("name", ["Fortran", "square"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "var", "max"])
@pytest.mark.parametrize("axis", [0, -1, None])
def test_reductions_go_in_the_order_of_memory(reduction, axis, name):
    """Their bits are NumPy's, whose order of summation follows the layout."""
    staged, x = fx.futurize(lambda x: getattr(x * 3 - 1, reduction)(axis=axis)), lying(name)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(staged(x)), getattr(x * 3 - 1, reduction)(axis=axis))
    graph = staged.trace(x).plan.graph
    assert not any(node.op == "transpose" and node.size == x.size for node in graph.nodes)


def test_those_from_outside_too():
    scale = lying("Fortran", 1)
    staged = fx.futurize(lambda x: x * scale)
    for seed in range(3):
        x = lying("Fortran", seed)
        equal_to_rounding(staged(x), x * scale)
    assert np.asarray(staged(x)).flags.f_contiguous


def grown(x, y):
    x += y
    x[3] = 0.5
    return x[:5] * 2


@pytest.mark.parametrize("name", SHAPES)
def test_writes_arrive(name):
    staged = fx.futurize(grown)
    for seed in range(4):
        (mine, plain), y = (lying(name, seed).copy("K") for _ in range(2)), lying(name, 9)
        strides = mine.strides
        equal_to_rounding(staged(mine, y), grown(plain, y))
        np.testing.assert_array_equal(mine, plain)
        assert mine.strides == strides


def test_calls_with_arrays_in_several_orders_take_turns():
    staged = fx.futurize(CASES["centred"])
    for _ in range(3):
        for x in (lying("Fortran"), np.ascontiguousarray(lying("Fortran")), lying("Fortran")[::2], lying("Fortran").T):
            equal_to_rounding(staged(x), CASES["centred"](x))


def test_one_array_in_two_places_and_returned():
    staged, x = fx.futurize(lambda x, y: (x, x + y, y.T)), lying("Fortran")
    for _ in range(3):
        same, total, turned = staged(x, x)
        assert np.asarray(same) is x
        equal_to_rounding(total, x + x)
        equal_to_rounding(turned, x.T)


def test_arguments_may_change_while_a_run_is_under_way():
    def long(x):
        for _ in range(40):
            x = np.tanh(x @ x.T @ x * 1e-4)
        return x

    staged, x = fx.futurize(long), lying("Fortran")
    expected = long(x)
    for _ in range(4):
        mine = x.copy("K")
        result = staged(mine)
        mine[...] = np.nan
        np.testing.assert_allclose(np.asarray(result), expected, atol=1e-12)


def test_given_away_arguments_and_derivatives():
    def loss(w, x):
        return np.tanh(x @ w).sum()

    w, x = lying("Fortran"), np.ones((3, 300))
    expected = np.asarray(fx.grad(loss)(np.ascontiguousarray(w), x))
    np.testing.assert_allclose(np.asarray(fx.futurize(fx.grad(loss))(w, x)), expected)
    step = fx.futurize(lambda w, x: w - 0.1 * fx.grad(loss)(w, x), donate="w")
    start = w - 0.1 * expected
    np.testing.assert_allclose(np.asarray(step(w.copy("K"), x)), start)


def test_results_that_lie_otherwise_are_turned_once_for_other_calls(monkeypatch):
    from futurex.frontend import array

    turned = []
    inner = array.in_c_order
    monkeypatch.setattr(array, "in_c_order", lambda value: turned.append(value.shape) or inner(value))
    first, second = fx.futurize(lambda x: x * 2), fx.futurize(lambda y: y + 1)
    y = first(lying("Fortran"))
    for _ in range(4):
        equal_to_rounding(second(y), lying("Fortran") * 2 + 1)
    assert turned == [(300, 80)]
    held = np.asarray(first(lying("Fortran")))
    assert held.flags.f_contiguous


# -- writes, which go into the argument itself when nothing can fail any more ------------------------------------------


def first_row(x):
    x[0] = 1.0
    return x[1:].copy(), x


def what_was_there(x):
    before = x.copy()
    x += 1
    return before, before[2:], x[3:].copy(), x.sum(0)


def exchanged(x, y):
    x[...], y[...] = y.copy(), x.copy()
    return x - y


def one_by_the_other(x, y):
    x += y
    y[...] = x
    return x * 2


def walls(u):
    for _ in range(5):
        u[1:-1] = (u[2:] + u[:-2]) / 2
        u[0] = u[-1] = 0.0


@pytest.mark.parametrize("name", ["Fortran", "C"])
@pytest.mark.parametrize("case", [first_row, what_was_there, exchanged, one_by_the_other, walls])
def test_runs_write_into_arguments_and_into_nothing_else(case, name):
    def made(seed):
        x = lying("Fortran", seed)
        return x if name == "Fortran" else np.ascontiguousarray(x)

    staged = fx.futurize(case)
    count = case.__code__.co_argcount
    for _ in range(3):
        mine, plain = ([made(seed) for seed in range(count)] for _ in range(2))
        results, expected = staged(*mine), case(*plain)
        if expected is not None:
            results, expected = (each if isinstance(each, tuple) else (each,) for each in (results, expected))
            for result, own in zip(results, expected, strict=True):
                equal_to_rounding(result, own)
                shared = [np.shares_memory(np.asarray(result), x) for x in mine]
                assert shared == [np.shares_memory(own, x) for x in plain]
        for x, own in zip(mine, plain, strict=True):
            np.testing.assert_array_equal(x, own)
    variant = staged.trace(*mine)
    assert set(variant.lying.written.values()) == set(range(count))
    assert variant.plan.delivery.in_place or case not in (first_row, walls)


def test_what_may_fail_writes_when_it_has_succeeded():
    def f(x, k):
        x[0] = 5.0
        return x[1] * np.array([1.0, 2.0])[k]

    x = np.ones((300, 80))
    staged = fx.futurize(lambda x, k: f(x, k).sum())
    staged(x.copy(), np.int64(1))
    plan = staged.trace(x, np.int64(1)).plan
    assert plan.delivery.in_place
    assert [each.node.op for each in map(plan.instructions.__getitem__, plan.order)].index("store") > 0
    for function in (f, staged):
        mine = x.copy()
        with pytest.raises(IndexError):
            np.asarray(function(mine, np.int64(7)))
        assert mine[0, 0] == 5.0


def picked(x, i, k, v):
    x[k] = v[0]


def added(x, i, k, v):
    np.add.at(x, k, v[0])


def one(x, i, k, v):
    x[k[0]] += v[0]
    return x[k[0]] * 2


def corner(x, i, k, v):
    x[0] = 1.0
    x[:, 0] = 2.0


def changed_places(x, i, k, v):
    x[k[0]], x[k[1]] = x[k[1]].copy(), x[k[0]].copy()


def chosen(x, i, k, v):
    x[x.argmax(0)[0]] = v[0]
    return k.sum()


def from_another(x, i, k, v):
    x += v[k[0]]


def by_ranks(x, i, k, v):
    x[k % 5] = v[np.argsort(k)]


def two_that_may_fail(x, i, k, v):
    x[k] = v[0]
    x[i] = v[1]


def added_before(x, i, k, v):
    x[k] += 1
    x[i] = v[1]


def fails_later(x, i, k, v):
    x[k] = v[0]
    return v[i].sum()


WRITES = [
    picked, added, one, corner, changed_places, chosen, from_another, by_ranks, two_that_may_fail, added_before,
    fails_later,
]  # fmt: skip


COPIED = (changed_places, from_another, two_that_may_fail, added_before)
"""What reads rows that are written meanwhile, makes a whole array first, or may fail between two writes."""


@pytest.fixture
def no_errors():
    """Warnings that are none: runs write apart where they are errors, as they are in these tests."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        yield


@pytest.mark.usefixtures("no_errors")
@pytest.mark.parametrize("case", WRITES)
def test_places_that_data_tell_are_written_in_the_argument(case):
    """Where one is outside, nothing has been written before NumPy does it all again, and says so."""
    x, v, staged = lying("Fortran").copy(order="C"), np.random.default_rng(1).normal(size=(300, 80)), fx.futurize(case)
    good, bad = np.array([3, 7, 299, 3]), np.array([3, 7, 300, -301])
    for round_, (i, k) in enumerate([(np.int64(5), good)] * 3 + [(np.int64(300), good), (np.int64(5), bad)] * 2):
        mine, plain = x.copy(), x.copy()
        found = []
        for function, target in ((staged, mine), (case, plain)):
            try:
                found.append(np.asarray(function(target, i, k, v)))
            except IndexError as error:
                found.append(str(error))
        assert type(found[0]) is type(found[1])
        np.testing.assert_array_equal(*found)
        np.testing.assert_array_equal(mine, plain, err_msg=str(round_))
    memory = staged.trace(x, np.int64(5), good, v).plan.memory
    assert memory.peak < x.nbytes or case in COPIED, memory


def two_change_places(x, i, k):
    x[i, 0], x[k, 1] = x[k, 1], x[i, 0]


def several_in_turn(x, i, k):
    first = x[0, 0]
    x[0, 0] = x[1, 1]
    x[1, 1] = x[2, 2]
    x[2, 2] = first


def filled(x, i, k):
    x.fill(i)


@pytest.mark.usefixtures("no_errors")
@pytest.mark.parametrize("order", ["F", "C"])
@pytest.mark.parametrize("case", [two_change_places, several_in_turn, filled])
def test_elements_are_read_before_they_are_written(case, order):
    staged = fx.futurize(case)
    for k in (3, 299, 5):
        mine, plain = (lying("Fortran").copy(order) for _ in range(2))
        case(plain, np.int64(5), np.int64(k))
        staged(mine, np.int64(5), np.int64(k))
        np.testing.assert_array_equal(mine, plain)
    memory = staged.trace(mine, np.int64(5), np.int64(3)).plan.memory
    assert memory.peak < mine.nbytes or order == "F", memory


@pytest.mark.usefixtures("no_errors")
def test_indices_and_values_that_are_the_argument_are_read_before_it_is_written():
    def f(x):
        x[x[:3] % 5] = x[1:4]
        x[x] = 7

    def g(x):
        x[1:] = x[:-1]
        x[x[2] % 9] = x[x[3] % 9] + x[4]

    for case in (f, g):
        mine, plain, staged = np.arange(20000)[::-1].copy(), np.arange(20000)[::-1].copy(), fx.futurize(case)
        for _ in range(4):
            staged(mine)
            case(plain)
            np.testing.assert_array_equal(mine, plain)


@pytest.mark.filterwarnings("error::RuntimeWarning")  # not of what others left unclosed, which may be collected here
def test_a_warning_that_is_an_error_finds_what_numpy_leaves():
    def f(x, h):
        product = h @ h
        x[0] = 1.0
        return x[:2].copy(), product

    x, h = np.zeros((300, 80)), np.full((150, 150), 300.0, np.float16)
    staged = fx.futurize(f)
    staged(x.copy(), np.ones_like(h))
    assert staged.trace(x, h).lying.written
    for function in (f, staged):
        mine = x.copy()
        with np.errstate(over="warn"), pytest.raises(RuntimeWarning, match="overflow"):
            [np.asarray(each) for each in function(mine, h)]
        np.testing.assert_array_equal(mine, x)
    equal_to_rounding(staged(x, np.ones_like(h))[1], np.ones_like(h) @ np.ones_like(h))
    assert x[0, 0] == 1.0


def test_arguments_that_may_not_be_written_or_share_memory_are_as_with_numpy():
    staged, x = fx.futurize(first_row), np.ones((300, 80))
    staged(x.copy())
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        staged(x)
    pair, (mine, plain) = fx.futurize(one_by_the_other), (np.arange(48000.0).reshape(600, 80) for _ in range(2))
    for _ in range(2):
        equal_to_rounding(pair(mine[:300], mine[100:400]), one_by_the_other(plain[:300], plain[100:400]))
        np.testing.assert_array_equal(mine, plain)
    bytes_ = np.zeros(300 * 80 * 8 + 4, np.uint8)
    apart = bytes_[4:].view(np.float64).reshape(300, 80)
    equal_to_rounding(staged(apart), first_row(np.zeros((300, 80))))
    assert apart[0, 0] == 1.0


def turned_and_in_a_row(x):
    y = x.T.reshape(-1)
    return y, y, y[1:]


def from_a_place_that_data_tells(x):
    return x.T.reshape(-1)[x.argmax() % 3 :]


VIEWS = {
    "in the order of memory": lambda x: x.ravel("K"),
    "in Fortran order": lambda x: x.reshape(-1, order="F")[::2],
    "turned and in a row": turned_and_in_a_row,
    "from a place that data tells": from_a_place_that_data_tells,
    "after a write": lambda x: (x.__iadd__(1), x.T.ravel()),
    "the diagonal of what was turned": lambda x: x.T.reshape(2, 6).diagonal(),
    "the diagonal": lambda x: (np.diag(x), x.diagonal(1)[::2]),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_arguments_are_views_as_numpys_are(name, order):
    program = VIEWS[name]
    f = fx.futurize(program)
    for seed in range(3):
        found = []
        for function in (program, f):
            x = np.array(np.random.default_rng(seed).normal(size=(3, 4)), order=order)
            result = function(x)
            views = [np.asarray(each) for each in (result if isinstance(result, tuple) else (result,))]
            shared = [np.shares_memory(view, x) and ("shared", view.flags.writeable) for view in views]
            x += 1
            found.append((shared, [view.tolist() for view in views], len({id(view) for view in views})))
        assert found[0] == found[1]
