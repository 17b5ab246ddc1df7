"""Draws in compiled loops by NumPy's own functions: every sample, the state behind it, and what parameters may be."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx
from futurex.kernels.loops import draws

ROUNDS = 30


def floats(rng, a):
    total, last = np.zeros(3), 0.0
    for k in range(ROUNDS):
        last += rng.random() - rng.standard_normal() + rng.standard_exponential() * rng.normal() + rng.normal(k, 2)
        last += rng.uniform() + rng.uniform(-a) + rng.uniform(k, k + a) + rng.exponential() - rng.exponential(a)
        last += rng.gamma(a) + rng.gamma(0.5, 3) + rng.standard_gamma(a) + rng.beta(a, 0.5) - rng.chisquare(3)
        last += rng.lognormal() - rng.lognormal(0.1, a) + rng.laplace(1, a) + rng.gumbel(0, a) - rng.logistic(a)
        total = 0.5 * total + rng.normal(size=3) + rng.random(3) * rng.uniform(0, a, size=(2, 3)).sum(axis=0)
        total += rng.exponential(a, 3) + rng.standard_normal((3,)) - rng.gamma(a, size=3)
    return last, total


def counts(rng, a):
    total, last = np.zeros(4, int), 0
    for k in range(ROUNDS):
        last += rng.integers(5) - rng.integers(-3, 4) + rng.integers(k + 1) + rng.integers(0, 2**40) % 7
        last += rng.poisson() + rng.poisson(a) - rng.poisson(30.0)
        total += rng.integers(0, 9, size=4) - rng.integers(2**35, size=4) % 5 + rng.poisson(a, size=4)
        total += rng.integers(7, 8, 4)
    return last, total


def older(rng, a):
    """Half of it by methods that only ``RandomState`` has."""
    total, last = np.zeros(3), 0
    for k in range(ROUNDS):
        total = 0.5 * total + rng.rand(3) * rng.normal() + rng.uniform(-a, k, 3) + rng.random_sample() + rng.randn(3)
        last += rng.randint(4) - rng.randint(-2, 3) + int(rng.randint(0, 2**40, size=3)[1] % 5)
    return last, total


KINDS = {
    "PCG64": lambda: np.random.default_rng(3),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(1)),
    "Philox": lambda: np.random.Generator(np.random.Philox(1)),
}  # fmt: skip


def choices(rng, a):
    total, last, p = np.zeros(3, int), 0, np.array([0.1, a / 20.0, 0.0, 0.9 - a / 20.0])
    letters, some, weights = np.array([3, 1, 4, 1, 5]), np.arange(40) * 3, np.float32([0.25, 0.5, 0.25])
    for k in range(ROUNDS):
        last += rng.choice(4, p=p) + 10 * rng.choice(7) - rng.choice(letters) + rng.choice(letters[:4], p=p) + k
        last += rng.choice(3, p=weights) - rng.choice(1)
        total += rng.choice(9, size=3) - rng.choice(4, 3, p=p) + rng.choice(letters, size=(2, 3)).sum(axis=0)
        total += rng.permutation(5)[:3] * 2 - rng.permutation(letters)[2:] + rng.permutation(1)[0]
        total += rng.choice(20, size=3, replace=False) + 3 * rng.choice(3, 3, replace=False)
        total -= rng.choice(some, size=(2, 3), replace=False)[1]
        rng.shuffle(some)
    return total, last, some


def outcome(function, rng, *args):
    """What a call gives or raises, and what the generator draws next."""
    try:
        found = function(rng, *args)
        found = [np.asarray(each).tolist() for each in (found if isinstance(found, tuple) else (found,))]
    except Exception as error:
        found = error
    return repr(found), rng.random(), rng.normal()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", [floats, counts, choices])
def test_samples_and_states_are_numpys(function, kind, at_once):
    f = fx.futurize(function)
    assert calls_of_loops(f, [KINDS[kind](), 1.5]) == []
    for a in (1.5, 0.3, 12.0, 1.5):
        assert outcome(f, KINDS[kind](), a) == outcome(function, KINDS[kind](), a)


def test_the_older_generator(at_once):
    f = fx.futurize(older)
    for seed in range(3):
        assert outcome(f, np.random.RandomState(seed), 1.5) == outcome(older, np.random.RandomState(seed), 1.5)


def test_choices_of_the_older_generator(at_once):
    f = fx.futurize(choices)
    assert calls_of_loops(f, [np.random.RandomState(0), 1.5]) == []
    for seed in range(3):
        assert outcome(f, np.random.RandomState(seed), 1.5) == outcome(choices, np.random.RandomState(seed), 1.5)


def test_as_many_probabilities_as_the_run_knows(at_once):
    def words(rng, corpus):
        p = np.bincount(corpus, minlength=6) ** 0.75
        p, x = p / p.sum(), np.zeros(3, int)
        for _ in range(ROUNDS):
            x = 3 * x % 1000 + rng.choice(6, size=3, p=p)
        return x

    f = fx.futurize(words)
    for corpus in ([0, 5, 2, 2], [1, 1], [0, 6, 2]):
        corpus = np.array(corpus)
        assert outcome(f, KINDS["PCG64"](), corpus) == outcome(words, KINDS["PCG64"](), corpus)
    assert calls_of_loops(f, [KINDS["PCG64"](), np.array([0, 5, 2, 2])]) == []


def probable(rng, p):
    x = 0
    for _ in range(ROUNDS):
        x = 3 * x % 1000 + rng.choice(3, p=p)
    return x


@pytest.mark.parametrize("kind", ["f8", "f4"])
def test_probabilities_that_numpy_refuses_and_those_that_it_takes(kind, at_once):
    f = fx.futurize(probable)
    for p in (
        [0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [0.5, -0.0, 0.5], [0.5, -1e-9, 0.5], [0.2, 0.3, 0.4], [0.2, 0.3, 0.50001],
        [0.2, 0.3, 0.500000013], [0.2, 0.3, 0.50000002], [np.nan, 0.5, 0.5], [np.inf, 0.5, 0.5], [0.5, 0.5, 1e-300],
        [0.2, 0.3, 0.500345], [0.3, 0.3, 0.4],
    ):  # fmt: skip
        p = np.array(p, kind)
        assert outcome(f, KINDS["PCG64"](), p) == outcome(probable, KINDS["PCG64"](), p), p


def uniform(rng, a):
    return sum([rng.uniform(0.0, a) for _ in range(ROUNDS)])


def normal(rng, a):
    x = 0.0
    for _ in range(ROUNDS):
        x += rng.normal(0.0, a)
    return x


def poisson(rng, a):
    x = 0
    for _ in range(ROUNDS):
        x += rng.poisson(a)
    return x


def beta(rng, a):
    x = 0.0
    for _ in range(ROUNDS):
        x += rng.beta(a, 1.0)
    return x


def integers(rng, a):
    x = 0
    for _ in range(ROUNDS):
        x += rng.integers(int(min(max(a, -9.0), 9.0)))
    return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [uniform, normal, poisson, beta, integers])
def test_parameters_that_numpy_refuses_and_those_that_it_takes(function, at_once):
    f = fx.futurize(function)
    for a in (1.5, 0.0, -0.0, -1.0, 1.5, np.inf, 5e-324, np.nan if function is not integers else 3.0, -np.inf, 1e300):
        assert outcome(f, KINDS["PCG64"](), a) == outcome(function, KINDS["PCG64"](), a), a


PARAMETERS = {
    "beta": [lambda rng, a: rng.beta(a, 1.0), lambda rng, a: rng.beta(1.0, a)],
    "chisquare": [lambda rng, a: rng.chisquare(a)],
    "exponential": [lambda rng, a: rng.exponential(a)],
    "gamma": [lambda rng, a: rng.gamma(a), lambda rng, a: rng.gamma(2.0, a)],
    "gumbel": [lambda rng, a: rng.gumbel(a), lambda rng, a: rng.gumbel(0.5, a)],
    "laplace": [lambda rng, a: rng.laplace(a), lambda rng, a: rng.laplace(0.5, a)],
    "logistic": [lambda rng, a: rng.logistic(a), lambda rng, a: rng.logistic(0.5, a)],
    "lognormal": [lambda rng, a: rng.lognormal(a), lambda rng, a: rng.lognormal(0.5, a)],
    "normal": [lambda rng, a: rng.normal(a), lambda rng, a: rng.normal(0.5, a)],
    "poisson": [lambda rng, a: rng.poisson(a)],
    "standard_gamma": [lambda rng, a: rng.standard_gamma(a)],
    "uniform": [lambda rng, a: rng.uniform(a), lambda rng, a: rng.uniform(0.5, a), lambda rng, a: rng.uniform(a, 3)],
    "defaults": [
        lambda rng, a: a + rng.gumbel() - rng.laplace() * rng.logistic() + rng.lognormal() + rng.poisson()
        - rng.normal() + rng.exponential() * rng.uniform()
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", PARAMETERS)
def test_each_parameter_may_be_what_numpy_takes(method, at_once):
    for draw in PARAMETERS[method]:

        def sums(rng, a, draw=draw):
            x = 0.0
            for k in range(ROUNDS):
                x += draw(rng, a + 0 * k)
            return x

        f = fx.futurize(sums)
        assert calls_of_loops(f, [KINDS["PCG64"](), 1.5]) == []
        for a in (1.5, 9.5e18, 0.0, -0.0, -1.0, -5e-324, np.nan, np.inf, 2):
            assert outcome(f, KINDS["PCG64"](), a) == outcome(sums, KINDS["PCG64"](), a), a


@pytest.mark.parametrize("bounds", [(0, 5), (5, 5), (-7, -3), (-3, 4), (0, 0), (3, -2), (-(2**63), 2**63 - 1)])
def test_integers_between_bounds(bounds, at_once):
    def between(rng, low, high):
        x = 0
        for _ in range(ROUNDS):
            x ^= rng.integers(low, high)
        return x

    f = fx.futurize(between)
    assert calls_of_loops(f, [KINDS["PCG64"](), -2, 4]) == []
    assert outcome(f, KINDS["PCG64"](), *bounds) == outcome(between, KINDS["PCG64"](), *bounds)


OTHERS = {
    "dtype": lambda rng, a: rng.random(dtype=np.float32) + rng.integers(200, dtype=np.uint8),
    "method": lambda rng, a: rng.standard_exponential(method="inv"),
    "endpoint": lambda rng, a: rng.integers(0, 3, endpoint=True),
    "order": lambda rng, a: rng.normal(scale=a) + rng.uniform(high=a) + rng.gamma(2.0, scale=a) + rng.beta(b=a, a=2.0),
    "order of integers": lambda rng, a: rng.integers(high=5, low=2),
    "without dimensions": lambda rng, a: rng.normal(size=()) + rng.integers(5, size=()) + rng.random(()),
    "small types": lambda rng, a: rng.normal(np.float32(a)) + rng.poisson(np.float32(a)) + rng.exponential(np.int32(2)),
    "floats": lambda rng, a: rng.integers(3.0) + rng.integers(np.float64(1), 9),
    "truths": lambda rng, a: rng.normal(a > 0) + rng.integers(a > 0),
    "arrays": lambda rng, a: (rng.normal(np.array([a, 2.0])) + rng.poisson([1.0, 3.0]) - rng.integers([2, 9])).sum(),
    "sizes": lambda rng, a: rng.uniform(0.0, a, (2, 0, 3)).sum() + rng.integers(0, 5, 0).sum() + rng.random(5000).sum(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", OTHERS)
def test_draws_of_other_kinds(case, at_once):
    draw = OTHERS[case]

    def sums(rng, a):
        x = 0.0
        for _ in range(ROUNDS):
            x += draw(rng, a) + rng.normal()
        return x

    f = fx.futurize(sums)
    for a in (1.5, 0.3, 1.5):
        assert outcome(f, KINDS["PCG64"](), a) == outcome(sums, KINDS["PCG64"](), a), f.explain()


def test_generators_of_several_kinds_draw_in_one_function(at_once):
    """The code has the address of one generator at a time; calls bring another, and the first one again."""
    f = fx.futurize(normal)
    for kind in ("PCG64", "Philox", "PCG64", "MT19937", "Philox", "PCG64"):
        assert outcome(f, KINDS[kind](), 1.5) == outcome(normal, KINDS[kind](), 1.5)


def test_where_numpy_tells_no_addresses(at_once, monkeypatch):
    monkeypatch.setattr(draws, "_address", lambda name: None)
    for function in (floats, counts):
        assert outcome(fx.futurize(function), KINDS["PCG64"](), 0.7) == outcome(function, KINDS["PCG64"](), 0.7)


def test_a_chain_calls_nothing_of_pythons(at_once):
    """Nothing in it is Python's: two calls a round were more than NumPy takes for all of it."""

    def chain(rng, x):
        for _ in range(2000):
            y = x + rng.normal()
            if rng.random() < np.exp(0.5 * (x * x - y * y)):
                x = y
        return x

    f = fx.futurize(chain)
    assert calls_of_loops(f, [np.random.default_rng(0), 0.5]) == []
    assert outcome(f, np.random.default_rng(4), 0.5) == outcome(chain, np.random.default_rng(4), 0.5)
