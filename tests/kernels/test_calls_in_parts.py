"""Long calls of NumPy functions are cut along axes on which nothing meets: the same bits, on several threads."""

import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import helpers, parts
from futurex.kernels.contest import TRIALS, Contest
from futurex.kernels.numpy_ import NumpyBackend
from futurex.runtime.config import threads as budget
from futurex.runtime.plan import compile_plan
from futurex.tree import Graph, apply, param
from futurex.tree.aval import aval_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 33))
F = RNG.normal(size=(5, 6, 33)).astype("f4")
Z = X + 1j * RNG.normal(size=X.shape)
S = RNG.normal(size=(9, 4, 4))
P = S @ S.transpose(0, 2, 1) + 4 * np.eye(4)
CASES = [
    *[(name, (x,), {"n": 33, "axis": 1, "norm": None}) for name in ("fft", "ifft", "rfft") for x in (X, F)],
    ("ifft", (Z,), {"n": 7, "axis": 0, "norm": "ortho"}), ("irfft", (Z,), {"n": 64, "axis": 1, "norm": None}),
    *[(name, (x,), {"axis": axis, "kind": kind}) for name in ("sort", "argsort") for x, axis in ((X, 1), (F, 0), (Z, 1))
      for kind in (None, "stable")],
    ("partition", (X,), {"axis": 1, "kth": 5}),
    ("interp", (X, np.arange(5.0), RNG.normal(size=5)), {}),
    *[(name, (S,), {}) for name in ("inv", "det", "slogdet")], ("solve", (P, S), {}),
    ("quantile", (X,), {"function": "median", "q": None, "axis": (1,), "keepdims": False, "method": "linear"}),
    ("quantile", (F,), {"function": "quantile", "q": (0.2, 0.7), "axis": (2,), "keepdims": True, "method": "nearest"}),
    ("svdvals", (S,), {"hermitian": False}), ("cholesky", (P,), {"upper": False}),
    ("eigh", (P,), {"UPLO": "L"}), ("eigvalsh", (P,), {"UPLO": "U"}),
    ("svd", (S,), {"full_matrices": False, "hermitian": False}), ("qr", (S,), {"mode": "reduced"}),
    *[(name, (Z,), {}) for name in ("exp", "log", "sqrt", "sin", "cos", "tanh")], ("power", (Z, Z[:1]), {}),
    *[(name, (X, X[:1]), {}) for name in ("remainder", "floor_divide", "fmod")], ("remainder", (X, 0.3), {}),
]  # fmt: skip


@pytest.fixture
def short(monkeypatch):
    """Short calls are cut, too, whatever is measured."""
    monkeypatch.setattr(parts, "POSSIBLE", 1e-12)
    monkeypatch.setattr(parts, "LEAST", 1e-12)
    monkeypatch.setattr(Contest, "next", lambda contest: 1)


def node_of(name, operands, attrs):
    return apply(name, *(param(aval_of(each)) for each in operands), **attrs)


def bits(value):
    several = value if isinstance(value, tuple) else (value,)
    return [(each.dtype, each.shape, each.tobytes()) for each in map(np.asarray, several)]


def run(kernel, node, operands):
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    out = [np.full(aval.shape, 77, aval.dtype) for aval in avals] if kernel.into else [None]
    return kernel.call(tuple(out) if isinstance(node.aval, tuple) else out[0], *operands)


@pytest.mark.parametrize(("name", "operands", "attrs"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("threads", [2, 3])
def test_parts_have_the_bits_of_the_whole(short, name, operands, attrs, threads):
    node = node_of(name, operands, attrs)
    whole, cut = (NumpyBackend().claim(node, count) for count in (1, threads))
    assert (whole.parts, cut.parts, cut.threads) == (1, threads, threads)
    before = helpers.asked()
    assert bits(run(cut, node, operands)) == bits(run(whole, node, operands))
    assert helpers.asked() == before + threads - 1


def test_all_that_may_be_cut_is_tested():
    assert set(parts._NANOSECONDS) | set(parts._OF_COMPLEX) | set(parts._OF_FLOATS) == {case[0] for case in CASES}


def test_what_is_short_or_meets_is_not_cut():
    long = param(aval_of(np.zeros((1000, 1000))))
    short = param(aval_of(np.zeros((10, 10))))
    line, matrix = param(aval_of(np.zeros(1 << 20))), param(aval_of(np.zeros((20, 257, 257))))

    def cut(name, x, threads=2, **attrs):
        return NumpyBackend().claim(apply(name, x, **attrs), threads).parts

    assert cut("sort", long, axis=1, kind=None) == 2
    assert cut("sort", long, threads=1, axis=1, kind=None) == 1
    assert cut("sort", short, axis=1, kind=None) == 1
    assert cut("sort", line, axis=0, kind=None) == 1
    assert cut("inv", matrix) == 1  # which BLAS cuts
    assert cut("inv", param(aval_of(np.zeros((20, 256, 256))))) == 2
    assert cut("exp", line) == 1


def test_strided_operands_are_left_whole(short):
    node = node_of("sort", (X,), {"axis": 1, "kind": None})
    before = helpers.asked()
    strided = np.asfortranarray(X)
    assert bits(run(NumpyBackend().claim(node, 2), node, (strided,))) == bits(np.sort(X, 1))
    assert helpers.asked() == before


def test_the_first_part_that_fails_says_so(short):
    node = node_of("inv", (S,), {})
    kernel = NumpyBackend().claim(node, 3)
    broken = S.copy()
    broken[[4, 8]] = 0
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        kernel.call(None, broken)
    assert bits(kernel.call(None, S)) == bits(np.linalg.inv(S))  # and helpers go on


def test_helpers_see_the_callers_error_state(short):
    node = node_of("exp", (Z,), {})
    kernel, large = NumpyBackend().claim(node, 2), Z + 1000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(all="ignore"):
            found = run(kernel, node, (large,))
            assert bits(found) == bits(np.exp(large))
        with np.errstate(over="raise", invalid="raise"), pytest.raises(FloatingPointError):
            run(kernel, node, (large,))


def test_helpers_serve_one_run_at_a_time():
    """Who finds them taken does all the work on its own thread."""
    inside, go, seen = threading.Event(), threading.Event(), []

    def hold():
        inside.set()
        assert go.wait(60)

    other = threading.Thread(target=helpers.together, args=([hold, hold],))
    other.start()
    assert inside.wait(60)
    helpers.together([lambda: seen.append(threading.get_ident())] * 3)
    assert seen == [threading.get_ident()] * 3
    go.set()
    other.join(60)
    assert not other.is_alive()


def test_what_nobody_waited_for_is_not_taken_for_the_next_end():
    """Somebody was interrupted while he waited."""
    helper, begun = helpers._Helper(0), []
    abandoned = helper.begin(lambda: [][0])
    assert helper.begin(lambda: begun.append(1)).get(timeout=60) is None
    assert begun == [1]
    assert isinstance(abandoned.get(timeout=60), IndexError)


def test_a_plan_cuts_and_has_the_whole_budget():
    x = RNG.normal(size=(600, 1000))
    node = apply("sort", param(aval_of(x), "x"), axis=1, kind=None)
    plan = compile_plan(Graph(node.inputs, [node]), threads=2)
    before = helpers.asked()
    (found,) = plan.run([x])
    assert bits(found) == bits(np.sort(x, 1))
    assert helpers.asked() == before + 1
    assert plan.threads == 2
    assert compile_plan(Graph(node.inputs, [node]), threads=1).threads == 1


@pytest.mark.skipif(budget() == 1, reason="one thread")
def test_explain_says_what_is_cut(monkeypatch):
    monkeypatch.setenv("FUTUREX_BACKENDS", "loops,numpy")
    staged = fx.futurize(lambda x: np.fft.ifft(np.fft.fft(x, axis=1) * 2.0, axis=1).real)
    x = RNG.normal(size=(400, 1000))
    assert bits(staged(x)) == bits(np.fft.ifft(np.fft.fft(x, axis=1) * 2.0, axis=1).real)
    assert "fft runs " in staged.explain()
    assert f"in {budget()} parts at once" in staged.explain()
    assert "ifft runs " in staged.explain()


def test_both_ways_are_tried_and_have_the_same_bits():
    x = RNG.normal(size=(600, 1000))
    node = node_of("sort", (x,), {"axis": 1, "kind": None})
    kernel = NumpyBackend().claim(node, 2)
    assert kernel.contest.text("whole", "cut") == "cut, by estimate"
    before = helpers.asked()
    found = {bits(run(kernel, node, (x,)))[0] for _ in range(2 * TRIALS)}
    assert found == set(bits(np.sort(x, 1)))
    assert helpers.asked() == before + TRIALS
    assert not kernel.contest.open
    assert " µs where " in kernel.contest.text("whole", "cut")


@pytest.mark.parametrize("cost, first", [(1.5, 1), (0.5, 0)])
def test_what_may_be_long_enough_begins_as_estimated(monkeypatch, cost, first):
    x = RNG.normal(size=(600, 1000))
    node = node_of("sort", (x,), {"axis": 1, "kind": None})
    monkeypatch.setitem(parts._NANOSECONDS, "sort", 1e9 * cost * parts.LEAST / x.size)
    contest = NumpyBackend().claim(node, 2).contest
    assert (contest.way, contest.next()) == (first, first)
    assert contest.text("whole", "cut") == ("cut, by estimate" if first else "whole, by estimate")


FORKED = """
import os, warnings
import numpy as np
from futurex.kernels import helpers
warnings.simplefilter("ignore")
found = []
helpers.together([lambda: found.append(1)] * 2)
child = os.fork()
if not child:
    helpers.together([lambda: found.append(2)] * 3)
    os._exit(found.count(2) + helpers.asked())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_has_helpers_of_its_own():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
