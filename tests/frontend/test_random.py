"""Random numbers in staged code are NumPy's own: every sample bit for bit, and the generator's state afterwards."""

import copy
import itertools
import threading

import numpy as np
import pytest
from compare import bits, plain

import futurex as fx
from futurex.ops.draws import METHODS
from futurex.ops.streams import state_of

P = np.array([0.1, 0.2, 0.3, 0.4])
POSITIVE = np.array([[0.5, 1.5, 2.0]])
COVARIANCE = np.array([[2.0, 0.3], [0.3, 1.0]])
MATRIX = np.arange(12.0).reshape(3, 4)

# Methods of both kinds of generators: positional arguments of calls.
DISTRIBUTIONS = {
    "beta": [(0.5, 1.5), (POSITIVE, 2.0)],
    "chisquare": [(3,), (POSITIVE,)],
    "exponential": [(), (2.0,), (POSITIVE,)],
    "f": [(3.0, 4.0), (POSITIVE, 4.0)],
    "gamma": [(2.0,), (POSITIVE, 3.0)],
    "gumbel": [(), (1.0, POSITIVE)],
    "laplace": [(), (1.0, POSITIVE)],
    "logistic": [(), (1.0, POSITIVE)],
    "lognormal": [(), (1.0, POSITIVE)],
    "noncentral_chisquare": [(3.0, 1.0), (POSITIVE, 1.0)],
    "noncentral_f": [(3.0, 4.0, 1.0), (POSITIVE, 4.0, 1.0)],
    "normal": [(), (3,), (np.float32(3), 2.0), (np.ones((2, 1)), POSITIVE)],
    "pareto": [(3.0,), (POSITIVE,)],
    "power": [(3.0,), (POSITIVE,)],
    "rayleigh": [(), (POSITIVE,)],
    "standard_cauchy": [()],
    "standard_t": [(3,), (POSITIVE,)],
    "triangular": [(0.0, 0.5, 1.0), (0.0, POSITIVE, 3.0)],
    "uniform": [(), (-1.0, 2.0), (-1, POSITIVE)],
    "vonmises": [(0.0, 1.0), (POSITIVE, 1.0)],
    "wald": [(1.0, 2.0), (POSITIVE, 2.0)],
    "weibull": [(2.0,), (POSITIVE,)],
    "binomial": [(5, 0.3), (np.array([5, 9]), 0.3)],
    "geometric": [(0.3,), (P,)],
    "hypergeometric": [(5, 4, 3), (np.array([5, 9]), 4, 3)],
    "logseries": [(0.3,), (P,)],
    "negative_binomial": [(5, 0.3), (5, P)],
    "poisson": [(), (3.0,), (POSITIVE,)],
    "zipf": [(2.0,), (POSITIVE + 1,)],
    "standard_gamma": [(2.0,), (POSITIVE,)],
    "standard_normal": [()],
    "standard_exponential": [()],
    "random": [()],
}
SIZES = [{}, {"size": 3}, {"size": (2, 3)}, {"size": ()}, {"size": (0, 3)}, {"size": [2, 3]}, {"size": None}]


def calls_of(legacy):
    """Every method with arguments: ``(method, args, kwargs)``."""
    for method, arguments in DISTRIBUTIONS.items():
        for args, options in itertools.product(arguments, SIZES):
            shape = np.broadcast_shapes(*(np.shape(arg) for arg in args))
            fits = np.empty(shape).ndim == 0 or options.get("size") in (None, (2, 3))
            if fits and (shape in ((), (1, 3)) or options.get("size") is None):
                yield method, args, options
    yield "normal", (), {"scale": 2.0, "loc": POSITIVE}
    yield "choice", (5,), {}
    yield "choice", (5, 3), {}
    yield "choice", (5, (2, 2)), {"replace": False}
    yield "choice", (4, 3), {"p": P}
    yield "choice", (4, 3, False), {"p": list(P)}
    yield "choice", (P,), {}
    yield "choice", (P, ()), {}
    yield "choice", ([1, 2, 3], 2), {}
    yield "choice", (P, (2, 3)), {}
    yield "permutation", (5,), {}
    yield "permutation", (P,), {}
    yield "permutation", ([3, 4, 5],), {}
    yield "permutation", (MATRIX,), {}
    for n, size in itertools.product((5, np.int64(5)), (None, 3, (2, 2))):
        yield "multinomial", (n, P), {"size": size}
    yield "multinomial", (5, [0.5, 0.5]), {}
    yield "dirichlet", (P,), {}
    yield "dirichlet", (P, (2, 2)), {}
    yield "multivariate_normal", (np.zeros(2), COVARIANCE), {}
    yield "multivariate_normal", ([0, 1], COVARIANCE, 3), {"check_valid": "raise"}
    if legacy:
        yield from LEGACY_CALLS
    else:
        yield from GENERATOR_CALLS


GENERATOR_CALLS = [
    ("integers", (5,), {}), ("integers", (2, 5), {}), ("integers", (0, 5, 3), {}), ("integers", (5,), {"size": (2, 3)}),
    ("integers", (5,), {"dtype": np.int8}), ("integers", (5,), {"dtype": int}), ("integers", (2,), {"dtype": bool}),
    ("integers", (0, 2**64, 3), {"dtype": np.uint64}), ("integers", (5, 9), {"endpoint": True, "size": 2}),
    ("integers", (np.array([3, 5]),), {}), ("integers", (0, np.array([[3], [5]])), {"size": (2, 3)}),
    ("random", (), {"dtype": np.float32}), ("random", (4,), {"dtype": np.float32}), ("random", (4,), {"dtype": "f4"}),
    ("standard_normal", (4,), {"dtype": np.float32}), ("standard_exponential", (4,), {"method": "inv"}),
    ("standard_gamma", (2.0, 4), {"dtype": np.float32}),
    ("choice", (MATRIX,), {}), ("choice", (MATRIX, 2), {"axis": 1}), ("choice", (MATRIX, (2, 2)), {}),
    ("choice", (9, 4), {"replace": False, "shuffle": False}),
    ("permutation", (MATRIX,), {"axis": 1}), ("permutation", (MATRIX.astype(np.int8), -1), {}),
    ("permuted", (P,), {}), ("permuted", (MATRIX,), {"axis": 1}), ("permuted", (MATRIX,), {"axis": 0}),
    ("permuted", (MATRIX,), {}), ("multinomial", (np.array([5, 6]), P), {}),
    ("multinomial", (5, np.array([[0.5, 0.5], [0.1, 0.9]])), {}), ("multinomial", (5, [[0.5, 0.5]]), {"size": (3, 1)}),
    ("multivariate_normal", (np.zeros(2), COVARIANCE, 3), {"method": "cholesky"}),
    ("multivariate_hypergeometric", ([3, 4, 5], 6), {}),
    ("multivariate_hypergeometric", ([3, 4, 5], 6, 2), {"method": "count"}),
]  # fmt: skip
LEGACY_CALLS = [
    ("rand", (), {}), ("rand", (2, 3), {}), ("randn", (), {}), ("randn", (4,), {}), ("random_sample", ((2, 3),), {}),
    ("randint", (5,), {}), ("randint", (2, 5), {"size": 3}), ("randint", (5,), {"dtype": np.int8}),
    ("randint", (5,), {"dtype": np.int64}), ("randint", (5, None, (2, 2)), {"dtype": np.uint8}),
    ("randint", (np.array([3, 5]),), {}), ("tomaxint", (), {}), ("tomaxint", (3,), {}),
]  # fmt: skip


def drawing(method, args, kwargs):
    def draw(generator):
        before = generator.normal()
        sample = getattr(generator, method)(*args, **kwargs)
        return before, sample, generator.random()

    return draw


def kinds(value):
    """The types of results, Python's and NumPy's numbers apart."""
    return tuple(map(kinds, value)) if isinstance(value, tuple) else type(value)


@pytest.mark.parametrize("legacy", [False, True], ids=["Generator", "RandomState"])
def test_every_method_draws_what_numpy_draws(legacy):
    make = np.random.RandomState if legacy else np.random.default_rng
    seen, wrong = set(), []
    for method, args, kwargs in calls_of(legacy):
        seen.add(method)
        draw = drawing(method, args, kwargs)
        futurized = fx.futurize(draw, escape="error")
        ours, theirs = make(5), make(5)
        for _ in range(2):
            expected, actual = draw(theirs), plain(futurized(ours))
            same = bits(actual) == bits(expected) and state_of(ours) == state_of(theirs)
            if not same or (kinds(actual) != kinds(expected) and kwargs.get("size", None) != ()):
                wrong.append((method, args, kwargs, actual, expected))
                break
    assert not wrong, wrong
    assert seen >= set(METHODS[legacy]) - {"random_integers"}


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_every_bit_generator(name):
    def draw(generator):
        return generator.normal(size=3), generator.integers(9, size=3, dtype=np.uint8)

    def made(seed):
        return draw(np.random.Generator(getattr(np.random, name)(seed)))

    ours, theirs = (np.random.Generator(getattr(np.random, name)(3)) for _ in range(2))
    futurized = fx.futurize(draw, escape="error")
    for _ in range(3):
        assert bits(plain(futurized(ours))) == bits(draw(theirs))
        assert state_of(ours) == state_of(theirs)
    seeded = fx.futurize(made, escape="error")
    for seed in (0, 2**70, [1, 2], np.arange(3)):
        assert bits(plain(seeded(seed))) == bits(made(seed))


# -- programs ----------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(1)


def from_a_global(rng, x):
    return RNG.normal(size=3) + x


def seeded_inside(rng, x):
    inner = np.random.default_rng(12)
    return inner.normal(size=3) * x, inner.integers(5)


def seeded_by_data(rng, x):
    return np.random.default_rng(np.int64(x * 10)).random(2)


def in_branches(rng, x):
    if x > 0:
        y = rng.normal(size=2)
    else:
        rng.random()
        y = rng.exponential(size=2)
    return y + rng.random()


def in_one_branch(rng, x):
    if x > 0:
        x = x + rng.normal()
    return x, rng.random(2)


def in_a_range(rng, x):
    total = 0.0
    for _ in range(40):
        total = total + rng.normal() * x
    return total


def in_a_while_loop(rng, x):
    n = 0
    while rng.random() < 0.9:
        n += 1
    return n + x, rng.random()


def nested(rng, x):
    out = np.zeros(3)
    for i in range(50):
        if rng.random() < 0.5:
            for j in range(3):
                out[j] = out[j] + rng.normal()
        else:
            out[i % 3] -= x
    return out


def helper(rng, n):
    return rng.normal(size=n)


def through_calls(rng, x):
    return helper(rng, 2) + helper(rng, 2) * x


def shuffled(rng, x):
    a = np.arange(10.0) * x
    b = np.arange(12).reshape(4, 3)
    rng.shuffle(a)
    rng.shuffle(b)
    rng.shuffle(b, axis=1)
    rng.shuffle(a[::2])
    return a, b


def filled(rng, x):
    a = np.zeros((2, 3))
    rng.random(out=a)
    b = np.empty(4, np.float32)
    rng.standard_normal(out=b, dtype=np.float32)
    c = np.zeros(4)
    rng.standard_gamma(2.0, out=c)
    rng.permuted(a, axis=1, out=a)
    return a, b, c, x


def spawned(rng, x):
    first, second = rng.spawn(2)
    (third,) = rng.spawn(1)
    (grandchild,) = first.spawn(1)
    return [each.normal() for each in (rng, first, second, third, grandchild)], x


def two_names(rng, x):
    other = rng
    return other.normal(), rng.normal(), np.random.default_rng(other).normal(), x


def given_back(rng, x):
    return rng, rng.normal(), x


def copied(rng, x):
    again = copy.deepcopy(rng)
    return again.normal(), rng.normal(), again.normal(), x


def sequences(rng, x):
    first, second = np.random.SeedSequence(9).spawn(2)
    return np.random.default_rng(first).normal(), np.random.default_rng(second).normal(), x


def known_kind(rng, x):
    return rng.normal() if isinstance(rng, np.random.Generator) else rng.randn() * x


def raises_at_run_time(rng, x):
    a = rng.normal(size=2)
    return a + rng.normal(scale=-x * x)


def legacy_functions(rng, x):
    np.random.seed(3)
    a = np.random.rand(2, 3) + np.random.randint(5, size=3)
    np.random.shuffle(a)
    return a * x, np.random.normal(), np.random.choice(5, 3, replace=False), np.random.sample()


def unseeded_legacy(rng, x):
    return np.random.standard_normal(3) + x


def sized_by_data(rng, x):
    n, v = int(x * x), np.arange(6.0) * x
    kept = v[v != 0]
    rng.shuffle(kept)
    drawn = rng.normal(size=n), rng.permutation(n), rng.choice(n, 3), rng.choice(kept, 2), rng.permuted(kept)
    return drawn, kept, rng.normal(kept, size=kept.shape), rng.random((2, len(kept))), rng.random()


PROGRAMS = [
    from_a_global, seeded_inside, seeded_by_data, in_branches, in_one_branch, in_a_range, in_a_while_loop, nested,
    through_calls, shuffled, filled, spawned, two_names, given_back, copied, sequences, known_kind, legacy_functions,
    unseeded_legacy, sized_by_data,
]  # fmt: skip


def start():
    """Generators in known states; the global ones too."""
    RNG.bit_generator.state = np.random.PCG64(7).state
    np.random.seed(11)
    return np.random.default_rng(5)


def played(function, x, rng):
    try:
        result = plain(function(rng, x))
    except Exception as error:
        result = type(error)
    if isinstance(result, tuple):
        result = tuple(state_of(each) if isinstance(each, np.random.Generator) else each for each in result)
    after = rng.bit_generator.state, rng.bit_generator.seed_seq.n_children_spawned, RNG.bit_generator.state
    return bits(result), after, state_of(np.random.mtrand._rand)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_programs(function):
    futurized = fx.futurize(function, escape="error")
    for x in (2.0, -1.5):
        expected = [played(function, x, rng) for rng in [start()] for _ in range(2)]
        actual = [played(futurized, x, rng) for rng in [start()] for _ in range(2)]
        assert actual == expected


def test_a_run_that_fails_leaves_the_state_of_the_failure():
    futurized = fx.futurize(raises_at_run_time)
    expected, actual = (played(function, 2.0, start()) for function in (raises_at_run_time, futurized))
    assert actual == expected
    assert actual[0] is ValueError


def test_generators_without_a_seed_are_fresh_at_every_call_and_of_each_other():
    def draw(x):
        first = np.random.default_rng().normal() * x
        return first, np.random.default_rng().normal(), [np.random.default_rng().normal() for _ in range(30)][-1]

    futurized = fx.futurize(draw, escape="error")
    samples = [float(each) for _ in range(3) for each in futurized(1.0)]
    assert len(set(samples)) == len(samples)


def test_generators_made_inside_come_back_as_generators():
    def make(x):
        rng = np.random.default_rng(3)
        return rng.normal() * x, rng

    sample, rng = fx.futurize(make, escape="error")(1.0)
    expected, other = make(1.0)
    assert float(sample) == expected
    assert rng.normal() == other.normal()


def test_two_generators_of_the_same_bits_draw_in_turn():
    def draw(first, second):
        return first.normal(), second.normal(), first.normal()

    def pair(separate):
        shared = np.random.PCG64(3)
        return np.random.Generator(shared), np.random.Generator(np.random.PCG64(4) if separate else shared)

    futurized = fx.futurize(draw)
    for separate in (True, False):
        assert bits(plain(futurized(*pair(separate)))) == bits(draw(*pair(separate)))
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    assert bits(plain(futurized(one, one))) == bits(draw(other, other))


def test_one_generator_passed_twice_is_one():
    def draw(first, second):
        return first.normal(), second.normal(), first is second

    rng = np.random.default_rng(3)
    twice = np.random.default_rng(3)
    assert plain(fx.futurize(draw, escape="error")(rng, rng)) == draw(twice, twice)


def test_other_generators_run_as_plain_numpy():
    class Doubled(np.random.Generator):
        def normal(self, *args, **kwargs):
            return 2 * super().normal(*args, **kwargs)

    def draw(rng):
        return rng.normal()

    futurized = fx.futurize(draw)
    assert plain(futurized(np.random.default_rng(3))) == np.random.default_rng(3).normal()
    assert plain(futurized(Doubled(np.random.PCG64(3)))) == 2 * np.random.default_rng(3).normal()


# -- derivatives -------------------------------------------------------------------------------------------------------


def reparametrised(theta, rng):
    total = rng.normal(theta, theta * theta, size=4).sum()
    for _ in range(30):
        total = total + rng.uniform(theta, 3.0) * rng.gamma(2.0, theta)
    return total * rng.random()


def test_derivatives_with_respect_to_location_and_scale_are_numerical_ones():
    theta, step = 0.7, 1e-6
    rng = np.random.default_rng(3)
    value, slope = fx.value_and_grad(reparametrised)(theta, rng)
    after = np.random.default_rng(3)
    assert float(value) == pytest.approx(reparametrised(theta, after), rel=1e-12)
    assert rng.bit_generator.state == after.bit_generator.state
    ahead, behind = (reparametrised(theta + h, np.random.default_rng(3)) for h in (step, -step))
    assert float(slope) == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


def test_samples_are_constants_to_derivatives():
    slope = fx.grad(lambda x, rng: (x * rng.normal(size=3)).sum())(2.0, np.random.default_rng(3))
    assert float(slope) == pytest.approx(np.random.default_rng(3).normal(size=3).sum())


def test_parameters_without_a_derivative_are_named():
    with pytest.raises(TypeError, match=r"sample of beta has no derivative with respect to a.*test_random"):
        fx.grad(lambda a, rng: rng.beta(a, 2.0))(0.5, np.random.default_rng(3))


def test_threads_that_share_a_generator_share_its_stream():
    futurized, rng, drawn = fx.futurize(lambda rng: rng.normal(), escape="error"), np.random.default_rng(1), []
    threads = [
        threading.Thread(target=lambda: drawn.extend(float(futurized(rng)) for _ in range(40))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = np.random.default_rng(1)
    assert sorted(drawn) == sorted(expected.normal() for _ in range(160))
    assert rng.bit_generator.state == expected.bit_generator.state


@pytest.mark.parametrize("name", ["default_rng", "PCG64", "RandomState"])
def test_arrays_that_seed_do_so_as_they_do_in_numpy(name):
    def draws(seed):
        made = getattr(np.random, name)(seed)
        return (np.random.Generator(made) if name == "PCG64" else made).random(3)

    futurized = fx.futurize(draws)
    for seed in (np.array(5), np.array([5, 2]), np.array([[5, 2]]), np.int64(5), np.array(-1)):
        found = []
        for each in (draws, futurized, futurized):
            try:
                found.append(bits(plain(each(seed))))
            except (TypeError, ValueError) as error:
                found.append((type(error), str(error)))
        assert found[0] == found[1] == found[2]
