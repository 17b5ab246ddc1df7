"""One trace for each kind of arguments; errors and explanations say what, where, why and what to do."""

import collections
import gc
import os
import subprocess
import sys
import warnings
import weakref

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import staging
from futurex.frontend.hooks import Runtime
from futurex.frontend.outside import fingerprint
from futurex.frontend.trace import Trace, start


def variants(f):
    return sum(map(len, f._variants.values()))


def test_traces_differ_by_shape_dtype_and_static_values():
    f = fx.futurize(lambda x, n, name="a": x * n)
    calls = [
        (np.ones(3), 2),
        (np.ones(3), 2),
        (np.zeros(3), 2),
        (np.ones(4), 2),
        (np.ones(3, np.float32), 2),
        (np.ones(3), 3),
        (np.ones(3), 3.0),
        (np.ones(3), 4.0),
        (np.float64(1), 2),
        (1.0, 2),
        (True, 2),
        (1, 2),
    ]
    counts = []
    for call in calls:
        f(*call)
        counts.append(variants(f))
    assert counts == [1, 1, 1, 2, 3, 3, 4, 4, 5, 6, 7, 8]  # the sixth call is the third of its kind: sizes are symbols
    f(np.ones(3), 2, name="b")
    assert variants(f) == 9


def test_equal_numbers_of_other_types_do_not_share_a_trace():
    f = fx.futurize(lambda n: (n, np.ones(1) * n))
    assert [type(f(n)[0]) for n in (1, True, 1)] == [int, bool, int]


def test_an_array_of_one_number_is_told_from_one_that_is_given_twice():
    f = fx.futurize(lambda x, y, z: (x - y) * z)
    x, one = np.arange(6.0).reshape(2, 3), np.broadcast_to(5.0, (2, 3))
    for args in ((x, x, 2.0), (x, one, 2.0), (2.0, x, x), (2.0, x, one), (x, 2.0, x), (x, 2.0, one)) * 4:
        np.testing.assert_array_equal(f(*args), f.plain(*args))


def test_too_many_traces_name_the_argument_that_changes():
    f = fx.futurize(lambda x, n: x * len(n))
    for n in range(staging.VARIANTS):
        f(np.ones(2), str(n))
    with pytest.warns(UserWarning, match=r"what changes: .*\bn\b|what changes: 1"):
        f(np.ones(2), "another")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(np.ones(2), "one more")
    assert variants(f) <= staging.VARIANTS


def test_disabling():
    f = fx.futurize(lambda x: x + 1)
    with fx.disable():
        assert type(f(np.ones(1))) is np.ndarray
    assert type(f(np.ones(1))) is fx.Array


def test_the_environment_variable():
    program = "import numpy as np, futurex as fx; print(type(fx.futurize(lambda x: x + 1)(np.ones(1))).__name__)"
    environment = {**os.environ, "FUTUREX": "off"}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, env=environment)
    assert run.stdout.strip() == "ndarray", run.stderr


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"escap": "error"}, TypeError, "did you mean 'escape'"),
        ({"jit": True}, TypeError, "no option 'jit'"),
        ({"escape": "never"}, ValueError, "'eager', 'error'"),
    ],
)
def test_unknown_options(options, error, text):
    with pytest.raises(error, match=text):
        fx.futurize(**options)(lambda x: x)


def test_what_cannot_be_futurized():
    async def coroutine():
        pass

    with pytest.raises(TypeError, match="not int"):
        fx.futurize(3)
    with pytest.raises(TypeError, match="coroutine"):
        fx.futurize(coroutine)
    f = fx.futurize(lambda x: x)
    assert fx.futurize(f) is f


def text_of(x):
    y = x * 2
    return np.array_str(y)


def test_an_escape_says_what_where_why():
    f = fx.futurize(text_of, escape="error")
    with pytest.raises(fx.StagingError) as caught:
        f(np.ones(3))
    text = str(caught.value)
    line = text_of.__code__.co_firstlineno + 2
    assert f"test_cache.py:{line}" in text
    assert "return np.array_str(y)" in text
    assert "numpy.array_str" in text
    assert "why:" in text
    assert fx.futurize(text_of)(np.ones(3)) == "[2. 2. 2.]"


def written_out(x):
    return x * len(str(x.sum()))


def test_an_escape_says_what_and_why():
    with pytest.raises(fx.StagingError, match=r"(?s)the text of a value.*str\(x\.sum\(\)\).*why:"):
        fx.futurize(written_out, escape="error")(np.ones(3))


def unrolled(x):
    found = {}
    for i in range(30):
        found[f"x{i}"] = x[i % 3] * i
    return found["x29"]


def test_explanations_list_traces_guards_escapes_and_unrolled_loops():
    f = fx.futurize(unrolled)
    f(np.ones(3))
    line = unrolled.__code__.co_firstlineno + 2
    assert f"the loop at test_cache.py:{line} is unrolled" in f.explain()
    assert "staged: " in f.explain()
    g = fx.futurize(written_out)
    g(np.ones(3))
    assert "runs as plain NumPy" in g.explain()


def test_graphs_are_readable_and_run():
    f = fx.futurize(lambda x: np.where(x > 0, x, 0).sum())
    graph = f.graph(np.ones(3))
    assert float(graph(np.array([1.0, -1.0, 2.0]))[0]) == 3.0
    assert "ops.where" in str(graph)


class Plus:
    def __init__(self, much):
        self.much = much


class Minus(Plus):
    pass


KINDS = [[Plus(1)]]


def test_what_came_to_lie_where_an_object_lay_is_another_object():
    """A trace knows by identity what lies in nests from outside, so it must keep it."""

    def applied(x):
        return x - KINDS[0][0].much if isinstance(KINDS[0][0], Minus) else x + 1

    f, x = fx.futurize(applied, escape="error"), np.ones(3)
    for _ in range(3):
        np.testing.assert_array_equal(f(x), [2, 2, 2])
    lay, others = id(KINDS[0][0]), []
    KINDS[0].clear()
    while len(others) < 1000 and (not others or id(others[-1]) != lay):
        others.append(Minus(1))
    KINDS[0].append(others.pop())
    np.testing.assert_array_equal(f(x), [0, 0, 0])


Pair = collections.namedtuple("Pair", "one other", defaults=(None,))


@pytest.mark.parametrize("nest", [list, lambda each: {"k": [*each]}, set, lambda each: Pair(*each)])
def test_what_a_guard_expects_lives_as_long_as_it(nest):
    value = Plus(2)
    expected, alive = fingerprint((nest([value]),)), weakref.ref(value)
    assert expected == fingerprint((nest([value]),))
    assert expected != fingerprint((nest([Plus(2)]),))
    del value
    gc.collect()
    assert alive() is not None


def test_which_attributes_a_trace_has_set_is_not_told_of_objects_that_are_gone():
    trace = Trace("f")
    with start(trace):
        with trace.scope():
            for _ in range(50):
                Runtime.setattr_(trace.remember(Plus(1)), "much", 2)
        others = [Plus(1) for _ in range(100)]
        assert not any((id(each), "much") in trace.assigned for each in others)


def test_methods_are_futurized():
    class Model:
        def __init__(self, w):
            self.w = w

        @fx.futurize
        def predict(self, x):
            return x @ self.w

    model = Model(np.eye(2))
    assert model.predict(np.ones(2)).tolist() == [1, 1]
    model.w = np.eye(2) * 3
    assert model.predict(np.ones(2)).tolist() == [3, 3]


def test_traces_that_compute_the_same_share_a_plan():
    """A step whose rate is a number at first and a future from then on keeps one plan, and one arena."""

    @fx.futurize
    def step(w, rate):
        return w - rate * np.tanh(w), rate

    w, rate = step(np.ones(5, np.float32), 0.5)
    w, rate = step(w, rate)
    first, second = step._traces()
    assert first.leaves != second.leaves
    assert first.plan is second.plan
    assert len(step.profile()) == len(first.plan.instructions)


def test_a_view_of_weights_is_the_same_of_an_array_and_of_a_future():
    """Of a future nobody knows how it lies in memory, so that its view is made where it is written, not where it is
    read; NumPy's array is both."""

    def step(w, x):
        rows = w.reshape(6, 8)
        y = x @ rows
        return w - 0.1 * (x.T @ y).reshape(6, 2, 4)

    w, x = np.ones((6, 2, 4)), np.arange(30.0).reshape(5, 6)
    futurized = fx.futurize(step, donate=("w",))
    held, expected = w, w
    for _ in range(3):
        held, expected = futurized(held, x), step(expected, x)
    np.testing.assert_allclose(held, expected, rtol=1e-12)
    first, second = futurized._traces()
    assert first.plan is second.plan


def test_traces_of_equal_trees_from_other_lines_keep_their_errors_apart():
    @fx.futurize
    def pick(x, i, upper):
        if upper:
            return x[i]
        return x[i]

    x = np.arange(3.0)
    lines = []
    for upper in (True, False):
        with pytest.raises(IndexError) as caught:
            pick(x, np.asarray(7), upper).result()
        lines.append([entry.lineno for entry in caught.traceback if entry.name == "pick"][-1])
    assert lines[1] == lines[0] + 1
