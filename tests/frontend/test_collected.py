"""Lists that a loop of known length only appends to are rows of an array until it is over: NumPy's results, whoever
looks at the list, its entries or what they are made of."""

import ast

import numpy as np
import pytest
from compare import same, settled

import futurex as fx
from futurex.frontend.rewrite import collecting

X = np.random.default_rng(0).standard_normal(5)


def recurrent(x):
    h, outs = x * 0, []
    for t in range(40):
        h = np.tanh(h + x * t)
        outs.append(h)
    return np.stack(outs), h


def numbers(x):
    a, b = [], [1.0]
    b.append(2.0)
    s = 0.0
    for v in x.repeat(8):
        s = s * 0.5 + v
        a.append(s)
        b.append(v * 2)
        a.append(v)
    return np.array(a), np.array(b), len(a), sum(b)


def python_numbers(x):
    out, w = [], 1.0
    for _ in range(50):
        w = w - 0.1 * (w - 0.3)
        out.append(w)
    return np.array(out), out[3], np.mean(out)


def inside_another(x):
    rows = []
    for i in range(20):
        row = []
        for j in range(30):
            row.append(x[i % 5] * j)
        rows.append(np.array(row))
    return np.array(rows)


def other_axes(x):
    outs: list = []
    h = x * 0
    for k in range(5, 80, 3):
        h = h * 0.9 + x * k
        outs.append(h.copy())
    return np.stack(outs, axis=1), np.stack(outs, -1), np.concatenate(outs), np.vstack(outs), np.stack(outs[3:9])


def by_steps(x):
    up, down, high = [], [], []
    for k in range(0, 60, 3):
        up.append(x[k % 5] * k)
    for k in range(30, -10, -2):
        down.append(x[k % 5] + k)
    for k in range(70, 99):
        high.append(x * k)
    return np.array(up), np.array(down), np.array(high)


def with_others_between(x):
    outs = [x]
    for k in range(20):
        outs.append(x * k)
    outs.append(x + 1)
    return np.stack(outs), np.array([outs[3], outs[4], outs[2]])


def types_that_change(x):
    w, outs = np.float32(1), []
    for k in range(30):
        w = w * 0.5 + k
        outs.append(w)
    return np.array(outs)


def truth(x):
    outs = []
    for k in range(30):
        outs.append(x[k % 5] > 0)
    return np.array(outs), sum(outs)


WHOLE = [
    recurrent, numbers, python_numbers, inside_another, other_axes, by_steps, with_others_between, types_that_change,
    truth,
]  # fmt: skip


def one_array(x):
    outs, y = [], x.copy()
    for _ in range(30):
        outs.append(y)
        y += 1.0
    return np.stack(outs)


def written_behind(x):
    outs, h = [], x * 0
    for _ in range(30):
        h = np.tanh(h + x)
        outs.append(h)
    h += 1.0
    return np.stack(outs)


def written_before(x):
    outs, h = [], x * 0
    for _ in range(30):
        h *= 0.9
        h = h + x
        outs.append(h)
    return np.stack(outs)


def entries_written(x):
    outs = []
    for k in range(40):
        outs.append(x * k)
    outs[2][0] = 99.0
    return np.stack(outs), outs[2] * 1


def of_two_lists(x):
    a, b = [], []
    for k in range(30):
        h = x * k
        a.append(h)
        b.append(h)
    a[3][0] = 9.0
    return np.stack(a), np.stack(b)


def rows_of_a_matrix(x):
    m, outs = np.zeros((30, 5)), []
    for k in range(30):
        m[k] = x * k
        outs.append(m[k])
    m[3] = 7.0
    return np.stack(outs), m


def read_meanwhile(x):
    trajectory = [x]
    for _ in range(40):
        trajectory.append(trajectory[-1] * 0.9 + 1)
    return np.array(trajectory)


def now_and_then(x):
    outs = []
    for k in range(40):
        if x[k % 5] > 0:
            outs.append(x[k % 5])
    return np.array(outs)


def left_early(x):
    outs = []
    for k in range(40):
        outs.append(x * k)
        if x[0] * k > 3:
            break
    return np.array(outs)


def behind_rounds_that_end_early(x):
    outs = []
    for k in range(40):
        if x[k % 5] > 0:  # noqa: SIM102  (two tests on purpose)
            if k > 30:
                continue
        outs.append(x * k)
    return np.array(outs)


def of_two_types(x):
    outs = []
    for k in range(40):
        outs.append(x[0] if k else 1)
    return outs[0], outs[1] * 1


def another_name(x):
    outs = []
    same = outs
    total = 0
    for k in range(40):
        outs.append(x * k)
        total += len(same)
    return np.stack(outs), total


def a_function_that_looks(x):
    outs = []

    def seen():
        return len(outs)

    total = 0
    for k in range(40):
        outs.append(x * k)
        total += seen()
    return np.stack(outs), total


def no_numbers(x):
    words = []
    for k in range(20):
        words.append(f"{k}")
    return x * len(words), words[3]


def pairs(x):
    outs = []
    for k in range(20):
        outs.append((x[0] * k, k))
    return np.array(outs), outs[2][1]


def two_loops(x):
    outs = []
    for k in range(20):
        outs.append(x * k)
    for k in range(20):
        outs.append(x + k)
    return np.stack(outs)


def that_lie_otherwise(x):
    outs, backwards = [], []
    for k in range(30):
        outs.append((x.reshape(5, 1) * np.arange(3.0) * k).T)
        backwards.append((x * k)[::-1])
    return np.stack(outs).ravel("K"), np.stack(outs).flags.c_contiguous, backwards[3].flags.c_contiguous


OTHERS = [
    that_lie_otherwise, one_array, written_behind, written_before, entries_written, of_two_lists,
    rows_of_a_matrix, read_meanwhile, now_and_then, left_early,
    behind_rounds_that_end_early, of_two_types, another_name, a_function_that_looks, no_numbers, pairs, two_loops,
]  # fmt: skip


@pytest.mark.parametrize("f", [*WHOLE, *OTHERS], ids=lambda f: f.__name__)
def test_results_are_numpys(f):
    g = fx.futurize(f)
    for _ in range(2):
        found, expected = g(X.copy()), f(X.copy())
        assert same(found, expected)


@pytest.mark.parametrize("f", WHOLE, ids=lambda f: f.__name__)
def test_the_loop_is_one_of_the_tree(f):
    assert not [note for note in fx.futurize(f).trace(X).notes if "unrolled" in note]


def test_what_follows_rounds_that_end_early_is_staged():
    f = behind_rounds_that_end_early
    assert same(fx.futurize(f, escape="error")(X), f(X))


def test_stack_refuses_what_numpy_refuses():
    def f(x):
        outs = []
        for k in range(30):
            outs.append(x * k)
        return np.stack(outs, out=np.zeros((30, 5)), dtype="f8")

    for refused in (f, lambda x: np.concatenate([x, x], out=np.zeros(10), dtype="f8")):
        with pytest.raises(TypeError, match="only takes `out` or `dtype`"):
            fx.futurize(refused, escape="error")(X).result()


@pytest.mark.parametrize("given", ["all", "one", "in an object"])
def test_arrays_that_a_caller_gets_are_the_very_ones(given):
    class Held:
        history = None

    def f(x, held):
        outs, h = [], x * 0
        for _ in range(30):
            h = h + x
            outs.append(h)
        if given == "in an object":
            held.history = outs
            return h
        return (outs if given == "all" else outs[-1]), h

    held = Held()
    found = fx.futurize(f)(X, held)
    entries, h = (held.history, found) if given == "in an object" else found
    last = settled(entries[-1] if isinstance(entries, list) else entries)
    assert np.shares_memory(last, settled(h))
    np.testing.assert_allclose(last, 30 * X)


def loss(w, x):
    h, outs = np.zeros(4), []
    for t in range(x.shape[0]):
        h = np.tanh(w @ h + x[t])
        outs.append(h)
    total = 0.0
    for out in outs:
        total = total + (out**2).sum()
    return (np.stack(outs) * np.arange(4)).mean() + 0.1 * total


@pytest.mark.parametrize("rounds", [3, 40])
def test_derivatives(rounds):
    rng = np.random.default_rng(1)
    w, x, d = 0.3 * rng.standard_normal((4, 4)), rng.standard_normal((rounds, 4)), rng.standard_normal((4, 4))
    value, g = fx.value_and_grad(loss)(w, x)
    np.testing.assert_allclose(float(value), loss(w, x), rtol=1e-13)
    step = 1e-6
    np.testing.assert_allclose(
        (np.asarray(g) * d).sum(), (loss(w + step * d, x) - loss(w - step * d, x)) / (2 * step), rtol=1e-7
    )
    _, along = fx.jvp(lambda w: loss(w, x), (w,), (d,))
    np.testing.assert_allclose(float(along), (np.asarray(g) * d).sum(), rtol=1e-12)
    every = fx.vmap(lambda w: loss(w, x))(np.stack([w, w + d]))
    np.testing.assert_allclose(every, [loss(w, x), loss(w + d, x)], rtol=1e-12)


def found_in(text):
    tree = ast.parse(text).body[0]
    collecting.find(tree)
    return [collecting.collected(node) for node in ast.walk(tree) if isinstance(node, ast.For)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = []\n for x in y:\n  a.append(x)", [("a",)]),
        ("a, b = [], [1]\n for x in y:\n  b.append(x)\n  a.append(x)", [("b", "a")]),
        ("a = []\n a.append(1)\n for x in y:\n  a.append(x)", [("a",)]),
        ("a = []\n for x in y:\n  a.append(a)", [()]),
        ("a = b = []\n for x in y:\n  a.append(x)", [()]),
        ("a = []\n c(a)\n for x in y:\n  a.append(x)", [()]),
        ("a = []\n for x in y:\n  a.append(x)\n  print(a)", [()]),
        ("a = []\n for x in y:\n  if x: a.append(x)", [("a",)]),
        ("a = []\n for x in y:\n  if x: a.append(len(a))", [()]),
        ("a = []\n for x in y:\n  while x: a.append(x)", [()]),
        ("a = []\n for x in y:\n  a.append(x)\n  if x: break", [("a",)]),
        ("a = [y]\n for x in y:\n  if x: continue\n  a.append(a[-1])", [()]),
        ("a = []\n for x in y:\n  a.append(x)\n else:\n  pass", [()]),
        ("a = list(y)\n for x in y:\n  a.append(x)", [()]),
        ("a = []\n try:\n  for x in y:\n   a.append(x)\n finally:\n  pass", [("a",)]),
        ("a = [y]\n for x in y:\n  a.append(a[-1] + len(a))", [("a",)]),
        ("a = [y]\n print(a[0])\n if y:\n  for x in y:\n   a.append(a[-1])", [("a",)]),
        ("a = [y]\n for x in y:\n  a[-1] += 1\n  a.append(a[-1])", [()]),
        ("a = [y]\n for x in y:\n  a.append(a[1:])", [("a",)]),
        ("a = [y]\n for x in y:\n  for z in a:\n   x = z\n  a.append(x)", [("a",), ()]),
        ("a = [y]\n for x in y:\n  x = [z for z in a]\n  a.append(x)", [()]),
        ("a = [y]\n for x in y:\n  b = a\n  for x in y:\n   a.append(x)", [(), ()]),
        ("a = [y]\n for x in y:\n  for x in y:\n   a.append(a[-1])", [("a",), ("a",)]),
        ("a = [y]\n for x in y:\n  if x:\n   for x in y:\n    a.append(1)", [("a",), ("a",)]),
        ("a = [y]\n for x in y:\n  for x in y:\n   a.append(1)\n   break", [("a",), ("a",)]),
        ("a = [y]\n with y as a:\n  for x in y:\n   a.append(x)", [()]),
        ("a = [y]\n for a in y:\n  a.append(x)", [()]),
        ("a = [y]\n import a\n for x in y:\n  a.append(x)", [()]),
        ("a = []\n for x in a:\n  a.append(x)", [()]),
        ("a = []\n b = lambda: a\n for x in y:\n  a.append(x)", [()]),
        ("global a\n a = []\n for x in y:\n  a.append(x)", [()]),
        ("a = []\n for x in y:\n  a.append(x)\n yield a", [()]),
        ("a = []\n for x in y:\n  a.append(x)\n return locals()", [()]),
    ],
)
def test_which_lists_are_only_appended_to(text, expected):
    assert found_in(f"def f(y):\n {text}") == expected
