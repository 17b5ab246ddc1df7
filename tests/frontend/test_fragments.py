"""Calls that cannot be staged: they stay in the tree as calls, and run exactly once per call of the function."""

import ctypes.util
import functools
import os
import pickle
import sys
import tempfile
import time

import numpy as np
import pytest
from compare import bits, outcome, plain

import futurex as fx
from futurex.frontend.fragments import Fragments
from futurex.frontend.staging import Futurized
from futurex.frontend.variants import UNLEARNED

X = np.linspace(-1.0, 2.0, 7)
LOG = os.path.join(tempfile.mkdtemp(), "log")


def called():
    """How often :func:`listed` was called."""
    return os.path.getsize(LOG) if os.path.exists(LOG) else 0


def listed(v):
    """Opaque: it writes to a file and iterates over Python numbers."""
    with open(LOG, "a") as file:
        file.write(".")
    total = 0.0
    for entry in iter(v.tolist()):
        total += entry
    return total


def evens(v):
    return np.array([entry for entry in iter(v.tolist()) if int(entry * 3) % 2 == 0])


def overwrites(v):
    v[: len(eval("v")) // 2] = -1.0


def several(v):
    return {"sum": float(eval("v.sum()")), "parts": (v[:2] * eval("2"), None)}


def refuses(v):
    if eval("v[0] < 0"):
        raise KeyError("negative")
    return v + 1


LIBC = ctypes.CDLL(ctypes.util.find_library("m") or None)
LIBC.cbrt.argtypes, LIBC.cbrt.restype = [ctypes.c_double], ctypes.c_double


def by_c_function(v):
    return np.array([LIBC.cbrt(entry) for entry in v.tolist()])


def counted(x):
    return listed(x * 2) * x


def chosen(x):
    return evens(x).sum() + evens(-x).size


def written(x):
    y = x * 2
    view = y[1:]
    overwrites(y)
    return view, y.sum()


def writes_the_argument(x):
    overwrites(x)
    return x * 2


def nested(x):
    found = several(x + 1)
    return found["sum"] * found["parts"][0], found["parts"][1] is None


def in_one_branch(x):
    y = x * 2
    if y.sum() > 0:
        y = y + listed(y)
    return y


def compiled(x):
    return by_c_function(x * 3) + 1


def after_a_failure(x):
    y = x * 2
    return refuses(y) - 1


def fails_behind_some(x):
    for _ in range(12):
        x = x * 1.1
        if listed(x) > 20:
            1 / (int(x[-1]) - 7)
    return x


def tells_arrays_from_scalars(v):
    return eval("1.0 if isinstance(v, np.ndarray) else 0.0")


def scalars_and_arrays(x):
    return [tells_arrays_from_scalars(v) for v in (x[0], x.sum(), np.array(x.sum()), x[:1].reshape(()), x)]


PROGRAMS = (
    counted, chosen, written, writes_the_argument, nested, in_one_branch, compiled, after_a_failure,
    fails_behind_some, scalars_and_arrays,
)  # fmt: skip


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("inputs", [(X, X + 5, -np.abs(X), X), (np.abs(X) + 1, X[:3], np.zeros(4))], ids=["a", "b"])
def test_a_fragment_means_what_the_call_means(function, inputs):
    futurized = fx.futurize(function)
    for _ in range(2):
        for x in inputs:
            before = called()
            expected = outcome(function, (x,))
            once = called() - before
            assert outcome(futurized, (x,)) == expected
            assert called() == before + 2 * once  # neither twice nor never
    explanation = futurized.explain()
    assert "staged: " in explanation
    assert "fragment: " in explanation
    assert f"{function.__name__}" in explanation or "test_fragments.py" in explanation


def indexed(x):
    return listed(x * 2) + x[np.argsort(x)[int(x[0])]] * 3


def grows(x):
    return repeated(x * 2) * 2 + x.sum()


def repeated(v):
    listed(v)
    return eval("np.tile(v, 500 if v[0] > 20 else 2)")


AROUND = [counted, chosen, written, nested, compiled, after_a_failure, scalars_and_arrays, indexed, grows]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", AROUND, ids=lambda f: f.__name__)
def test_what_stands_around_fragments_is_one_compiled_function(function, at_once):
    """Where that gives up, what it has called is not called again."""
    futurized = fx.futurize(function)
    texts = []
    for x in [X + 1] * 8 + [X + 30, X + 1, -X, X + 40]:
        before = called()
        expected = outcome(function, (x,))
        once = called() - before
        assert outcome(futurized, (x,)) == expected
        assert called() == before + 2 * once
        texts.append(futurized.explain())
    assert any("runs as one compiled function" in text for text in texts), texts[-1]


def test_explanations_name_the_call_the_line_and_the_reason():
    futurized = fx.futurize(counted)
    futurized(X), futurized(X)
    text = futurized.explain()
    assert repr(text) == text  # what a prompt and a notebook show
    assert "test_fragments.listed, called at" in text
    assert "return listed(x * 2) * x" in text
    assert "a call of open: what it does is not known to the tracer" in text


def test_a_call_that_returns_another_type_is_made_once_and_no_longer_a_fragment():
    made = []

    def fickle(v):
        made.append(1)
        return eval("float(v[0])") if v[0] >= 0 else eval("int(v[0])")

    def function(x):
        return fickle(x) * 2 + x

    futurized = fx.futurize(function)
    for number, x in enumerate((X + 2, X + 3, -X - 3, X + 2, -X - 3), 1):
        before = len(made)
        assert bits(plain(futurized(x))) == bits(function(x))
        assert len(made) == before + 2, number


def test_results_that_no_tree_can_hold_run_the_call_as_plain_numpy():
    kept = np.zeros(3)

    def same_object(x):
        return eval("x"), x.sum()

    def text(x):
        return np.char.upper(np.array([str(x.sum())]))[0] + "!"

    def held(x):
        return outside(x) + 1

    def outside(x):
        kept[:] = x[:3]
        return kept

    for function in (same_object, text, held):
        futurized = fx.futurize(function)
        for x in (X, X + 1, X):
            assert bits(plain(futurized(x))) == bits(plain(function(x)))


def one_of(p, q, v):
    if v > 0:
        return p
    return q


def or_new(p, v):
    if v > 0:
        return p
    return [float(str(p[0]))]


def twice(p):
    p = [float(str(each)) for each in p]
    return p, p


def chosen(x):
    a, c = [1.0], [x[2], 2.0]
    for k in range(3):
        c = one_of(c, a, x[k])
    c.append(0.25)
    return len(a), len(c), sum(a), sum(c)


def carried(x):
    a, b, c, k = [1.0], [1.0], [x[2], 2.0], 0
    while len(a) < 12 and k < 18:
        c = one_of(c, a, x[1])
        a, b, c = c, a, b
        k += 1
    a.append(0.25)
    return len(a), len(b), len(c), sum(a), sum(b), sum(c)


def sometimes(x):
    a = [x[0]]
    b = or_new(a, x[1])
    b.append(x[2] * 2)
    return len(a), len(b), a[-1], b[-1]


def both(x):
    a, b = twice([x[0]])
    a.append(x[1] * 2)
    return len(a), len(b), a[-1], b[-1]


@pytest.mark.parametrize("function", [chosen, carried, sometimes, both])
def test_lists_that_a_call_gives_back_stay_the_ones_that_they_are(function):
    f = fx.futurize(function)
    values = [1.0, -2.0, 3.0], [1.0, 2.0, -3.0], [-1.0, 2.0, 3.0], [0.5, -1.0, -1.0]
    for x in map(np.array, [*values[:1], *values]):  # the first call looks, the second is staged
        assert [np.asarray(each).tolist() for each in f(x)] == [np.asarray(each).tolist() for each in function(x)]


def test_policies():
    with pytest.raises(fx.StagingError, match=r"(?s)test_fragments\.py.*open\(LOG"):
        fx.futurize(counted, escape="error")(X)
    eager = fx.futurize(counted, escape="eager")
    assert bits(plain(eager(X))) == bits(counted(X))
    assert "runs as plain NumPy" in eager.explain()
    with pytest.raises(fx.StagingError, match=r"test_fragments\.py"):
        fx.grad(lambda x: counted(x).sum())(X)
    with pytest.raises(fx.StagingError, match=r"test_fragments\.py"):
        fx.lower(counted, X)


def test_the_clock_is_read_at_every_call():
    futurized = fx.futurize(lambda x: x * 0 + time.perf_counter())
    assert len({float(plain(futurized(X))[0]) for _ in range(4)}) == 4
    assert "fragment: time.perf_counter" in futurized.explain()


@pytest.mark.parametrize("way", ["replayed", "compiled"])
def test_a_fragment_sees_the_state_of_the_calling_thread(way, request):
    if way == "compiled":
        request.getfixturevalue("at_once")
    futurized = fx.futurize(lambda x: by_state(x) + 1)
    for mode in ("ignore", "warn", "ignore", "warn", "ignore", "warn"):
        with np.errstate(divide=mode):
            assert bits(plain(futurized(X))) == bits(by_state(X) + 1)

def by_state(v):
    return v + len(eval("np.geterr()['divide']"))


def test_library_calls_that_draw_see_the_stream_where_it_is():
    stats = pytest.importorskip("scipy.stats")

    def function(x):
        first = np.random.rand(2)
        return first, stats.norm.rvs(size=2), np.random.rand(2), x

    results = []
    for run in (function, fx.futurize(function)):
        np.random.seed(3)
        results.append([bits(plain(run(X))) for _ in range(4)])
    assert results[0] == results[1]


def test_a_tree_with_a_fragment_travels():
    futurized = fx.futurize(counted)
    futurized(X)
    graph = futurized.graph(X)
    again = pickle.loads(pickle.dumps(graph))
    assert again.hash == graph.hash
    np.testing.assert_array_equal(again(X, [])[0], counted(X))


interpolate, linalg, signal, special = (
    pytest.importorskip(f"scipy.{name}") for name in ("interpolate", "linalg", "signal", "special")
)


def special_functions(x):
    return special.gammainc(2.0, np.abs(x)) + special.jv(0, x)


def solved(x):
    lower = linalg.cholesky(np.outer(x, x) + np.eye(len(x)), lower=True)
    return linalg.solve_triangular(lower, x, lower=True).sum() * x


def filtered(x):
    return signal.lfilter([1.0, 0.5], [1.0, 0.2], x * 2)[::2]


def splined(x):
    return SPLINE(x * 0.5) + 1


SPLINE = interpolate.CubicSpline(np.arange(8.0), np.arange(8.0) ** 2)


@pytest.mark.parametrize("function", [special_functions, solved, filtered, splined], ids=lambda f: f.__name__)
def test_scipy_inside_a_tree(function):
    futurized = fx.futurize(function)
    for x in (X, X + 1, X):
        np.testing.assert_allclose(plain(futurized(x)), function(x), rtol=1e-12)
    assert "staged: " in futurized.explain()


def test_plain_calls_give_futures_and_what_others_hold_stays_itself():
    kept = np.arange(3.0)

    def function(x, holder):
        made = np.array([float(entry) for entry in eval("str(len(x))")])
        return made, made.sum(), x, x[1:], holder.kept, "text", [made * 2]

    class Holder:
        pass

    holder = Holder()
    holder.kept = kept
    made, total, same, view, held, text, (inner,) = fx.futurize(function, escape="eager")(X, holder)
    assert [type(value) for value in (made, total, inner)] == [fx.Array] * 3
    np.testing.assert_array_equal(made.result(), [7.0])
    assert same is X
    assert type(view) is np.ndarray
    assert np.shares_memory(view, X)
    assert held is kept
    assert text == "text"
    assert isinstance(total.result(), np.float64)


def test_a_call_that_decides_a_choice_is_not_made_for_both_outcomes():
    def function(x):
        y = several(x)["parts"][0]
        listed(x)
        if listed(y) > 0:
            z = None
        else:
            z = y * 2
        return y if z is None else z

    futurized = fx.futurize(function)
    for x in (X, X + 3, X, X + 3, -X):
        before = called()
        expected = bits(function(x))
        once = called() - before
        assert bits(plain(futurized(x))) == expected
        assert called() == before + 2 * once


def test_a_derivative_that_cannot_be_staged_says_why():
    """The call runs as plain NumPy to see what opaque functions return; a derivative in it is no NumPy function."""

    def loss(w, x):
        return fx.nn.relu((w * x, w)).sum()

    @fx.futurize
    def step(w, x):
        return w - fx.grad(loss)(w, x)

    with pytest.raises(fx.StagingError, match=r"NumPy asks for it to make one array of a list or tuple") as caught:
        step(np.ones(3), np.ones(3))
    assert "return fx.nn.relu((w * x, w)).sum()" in str(caught.value)


def test_a_first_call_says_why_there_is_no_trace_yet():
    f = fx.futurize(lambda x: by_c_function(x) * 2)
    assert f.explain() == f"{f.__qualname__}: 0 trace(s)"
    f(X)
    assert "the next call is traced" in f.explain()
    assert f"{__file__}:{by_c_function.__code__.co_firstlineno + 1}: " in f.explain()
    f(X)
    assert "fragment: " in f.explain()
    assert "the next call" not in f.explain()


def test_traces_given_up_for_the_same_reason_are_one_paragraph():
    @fx.futurize
    def texts(x, n):
        return np.array([f"{x[0]:.1f}"] * n)

    for n in range(2, 9):
        texts(X, n)
    text = texts.explain()
    assert text.startswith(f"{texts.__qualname__}: 7 trace(s)")
    assert text.count("runs as plain NumPy") == 1
    assert text.splitlines()[1:5] == [f"- float64[{len(X)}], {n}" for n in (2, 3, 4)] + [
        "- and 4 more kinds of arguments (7 traces)"
    ]


def test_a_dict_that_is_the_callers_in_some_runs_says_that_a_copy_is_staged():
    @fx.futurize
    def step(params, x):
        if x.sum() > 0:
            params = {name: value - 1 for name, value in params.items()}
        return params

    @fx.futurize
    def of_a_copy(params, x):
        return step.plain(dict(params), x)

    for x in (X, -X):
        for f in (step, of_a_copy):
            np.testing.assert_array_equal(f({"w": X}, x)["w"], step.plain({"w": X}, x)["w"])
    assert "a copy before the branch or loop (`p = dict(p)`, `x = list(x)`) is nobody else's" in step.explain()
    assert "plain" not in of_a_copy.explain()


class Results:
    def __init__(self, **given):
        self.__dict__.update(given)


def all_that_it_knows(x):
    total = listed(x)

    def inner():
        return total, sorted(locals())

    return Results(**locals()), sorted(vars()), dir(), inner(), sys._getframe().f_code.co_name


def test_a_first_call_has_no_other_names_than_the_function():
    f = fx.futurize(all_that_it_knows)
    for k in range(3):
        results, *names = f(X + k)
        expected, *those = all_that_it_knows(X + k)
        assert sorted(vars(results)) == sorted(vars(expected)) == ["inner", "total", "x"]
        assert plain(names) == those


def test_calls_that_teach_nothing_are_looked_at_no_longer(monkeypatch):
    """As where the call is made inside a library, which nobody observes."""
    monkeypatch.setattr(Fragments, "learn", lambda *given: None)
    seen = []
    monkeypatch.setattr(Futurized, "_observe", lambda *given, look=Futurized._observe: seen.append(1) or look(*given))
    f = fx.futurize(counted)
    for _ in range(UNLEARNED + 5):
        assert bits(plain(f(X))) == bits(counted(X))
    assert len(seen) == UNLEARNED
    assert "runs as plain NumPy" in str(f.explain())


def test_a_print_beside_a_fragment_comes_once_in_a_call_that_is_made_again(capsys):
    """Ints that outgrow 64 bits, roots that are complex, and what fails in a compiled loop behind a call."""

    def prints(x, n):
        print("begin", x[0])
        total, k = listed(x), int(x[1])
        for _ in range(n):
            k = k * k
        print("squared", k)
        return total, k, float(x[0]) ** 0.5

    futurized = fx.futurize(prints)
    for x in ([1.0, 2.0], [2.0, 3.0], [2.0, 11.0], [-4.0, 2.0], [2.0, 3.0]):
        expected, text = prints(np.array(x), 6), capsys.readouterr().out
        before = called()
        assert tuple(map(plain, futurized(np.array(x), 6))) == expected
        assert capsys.readouterr().out == text
        assert called() == before + 1
    assert "staged" in futurized.explain()


class Counter:
    """Its methods cannot be staged: what ``id`` does is not known."""

    def __init__(self):
        self.count = 0
        self.partial = functools.partial(multiplied, self)

    @fx.futurize
    def method(self, x):
        return id(self) and x * self.count


class Under(Counter):
    def method(self, x):
        self.count += 1
        return super().method(x)


def multiplied(counter, x):
    return id(counter) and x * counter.count


def counts_and_calls(counter, x, name):
    counter.count += 1
    return getattr(counter, name)(x)


@pytest.mark.parametrize(
    "kind, function, more",
    [(Counter, counts_and_calls, ("method",)), (Counter, counts_and_calls, ("partial",)), (Under, Under.method, ())],
    ids=["futurized method", "partial call", "futurized method of the base class"],
)
def test_a_call_that_holds_an_object_is_no_fragment_that_would_see_what_it_held_before(kind, function, more):
    """Changes to the caller's objects happen when a run has succeeded, which is too late for a call in the run."""
    one, other, futurized = kind(), kind(), fx.futurize(function)
    with fx.disable():
        expected = [np.asarray(function(one, X + k, *more)) for k in range(4)]
    for k in range(4):
        np.testing.assert_array_equal(futurized(other, X + k, *more), expected[k])
    assert other.count == one.count == 4


@pytest.mark.parametrize("given", [None, 3, {"b": 2}])
def test_pythons_error_about_keywords_names_the_function_that_is_called(given):
    def called(a, b=1):
        return a * b

    def program(x, given):
        return called(listed(x), b=2, **given)

    def text(function):
        with pytest.raises(TypeError) as raised:
            function(X, given)
        return str(raised.value)

    staged = fx.futurize(program)
    for _ in range(3):
        assert text(staged) == text(program)
