"""What public functions say of arguments that make no sense: the argument's name, what it was, what to write."""

import re

import numpy as np
import pytest

import futurex as fx
from futurex.runtime.cluster.tiles import cut

A = np.ones(3)
SGD = fx.optim.sgd(0.1)


def total(x):
    return (x * x).sum()


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: fx.autocast(None), "autocast takes a function, not NoneType"),
        (lambda: fx.lower(None), "lower takes a function, not NoneType"),
        (lambda: fx.futurize(np.matrix), "futurize takes a function, not the class matrix: its methods"),
        (lambda: fx.grad(total)(3), "it is an int (3); only arrays of floats have gradients. Pass a float, or"),
        (lambda: fx.lower(total, A).flatten([A]), "for other arguments: ((*,), {}), not (([*],), {})"),
        (lambda: fx.futurize(total, memory_limit=1.5), "not 1.5"),
        (lambda: fx.data.Sampler(10, 2.5, 0), "batch_size must be a whole number, not 2.5"),
        (lambda: fx.data.Sampler(10, 2, None), "seed must be a whole number, not None"),
        (lambda: fx.models.mlp.init(0), "rng must be a generator, not 0; np.random.default_rng(0) makes one"),
        (lambda: fx.models.he_normal(None, (2, 2)), "rng must be a generator, not None"),
        (lambda: fx.strategy.local_sgd(1.5), "every must be a whole number, not 1.5"),
        (lambda: fx.strategy.parameter_server(0.5), "staleness (None for no bound) must be a whole number, not 0.5"),
        (lambda: fx.Cluster(2, threads=1.5), "threads must be a whole number, not 1.5"),
        (lambda: fx.fit(total, A, (A,), optimizer=fx.optim.Adam), "Adam'> is a class: use one of fx.optim"),
    ],
)
def test_type_errors_name_the_argument(call, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        call()


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: SGD.update({"w": A}, {"v": A}, SGD.init({"w": A})), "structure: {'w': *} and {'v': *}"),
        (lambda: fx.optim.sgd(np.ones(2)), "lr must be a positive number, not array([1., 1.])"),
        (lambda: fx.optim.adamw(weight_decay="a"), "weight_decay must be a number of at least 0, not 'a'"),
        (lambda: fx.data.Sampler(0, 2, 0), "n_samples must be at least 1, not 0"),
        (lambda: fx.data.load_digits(dtype=int), "floating dtype, not int64"),
        (lambda: fx.Cluster(2, threads=0), "threads must be at least 1, not 0"),
        (lambda: fx.Cluster(np.int64(0)), "the number of localities must be at least 1, not 0"),
        (lambda: fx.Cluster(2, timeout=-1), "timeout is a number of seconds, more than 0, not -1"),
        (lambda: fx.Cluster(2, timeout="1 min"), "more than 0, not '1 min'"),
    ],
)
def test_value_errors_name_the_argument(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


@pytest.mark.parametrize(
    "array, axis, said",
    [
        (A, "rows", "axis must be a whole number, not 'rows'"),
        (A, 0.0, "axis must be a whole number, not 0.0"),
        (np.array([None, 1]), 0, "tile takes an array of numbers, not object of shape (2,)"),
        (np.asarray("rows"), 0, "tile takes an array of numbers, not <U4 of shape ()"),
    ],
)
def test_what_cannot_be_cut_is_said(array, axis, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        cut(array, axis, 2)


def test_a_limit_may_be_written_as_a_float():
    assert fx.futurize(total, memory_limit=1e9).options()["limit"] == 10**9


def test_a_program_shows_its_name_and_arguments():
    assert re.fullmatch(r"<Program total\(x\): \d+ nodes>", repr(fx.lower(total, A)))
