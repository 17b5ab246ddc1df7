# ruff: noqa: B007, B905, C408, C417, C420, E741, RUF005, SIM905, UP028, UP031
"""Python's loops, iterators and comprehensions in staged functions."""

import itertools
import sys
from functools import partial

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
W = np.abs(V) + 0.5
X = np.arange(12.0).reshape(3, 4)
LONG = np.sin(np.arange(40.0))
both = partial(cases.signs, V)
COMPENSATES = sys.version_info >= (3, 12)  # sum() of Python floats keeps track of what rounding loses


@cases(LONG)
def best_none_loop(x):
    best = None
    for v in x:
        if best is None or v > best:
            best = v
    return best


@cases(LONG)
def prev_none_loop(x):
    prev = None
    total = 0.0
    for v in x:
        if prev is not None:
            total += v * prev
        prev = v
    return total


@cases(LONG)
def argmax_loop(x):
    best, where = -np.inf, -1
    for i, v in enumerate(x):
        if v > best:
            best, where = v, i
    return best, where


@cases(LONG)
def zip_loop(x):
    s = 0.0
    for a, b in zip(x, x[::-1]):
        s += a * b
    return s


@cases(LONG)
def enumerate_start(x):
    s = 0.0
    for i, a in enumerate(x, 1):
        s += a * i
    return s


@cases(LONG)
def reversed_loop(x):
    s = 0.0
    for a in reversed(x):
        s = s * 0.5 + a
    return s


@cases(LONG)
def reversed_range(x):
    s = 0.0
    for i in reversed(range(len(x))):
        s = s * 0.5 + x[i]
    return s


@cases(LONG, np.array(25))
def reversed_traced_range(x, n):
    s = 0.0
    for i in reversed(range(n)):
        s = s * 0.5 + x[i]
    return s


@cases(LONG, np.array(25))
def traced_step(x, n):
    s = 0.0
    for i in range(0, 40, n // 5):
        s = s * 0.5 + x[i]
    return s


@cases(LONG.astype(np.float32), np.int8(5))
def step_of_a_small_integer(x, n):
    s = np.float32(0)
    for i in range(0, 40, n):  # Python's ints, whatever the step is: s stays in single precision
        s = s * 0.5 + x[i] * i
    return s, i


@cases(LONG, np.array(7))
def steps_backwards(x, n):
    out = []
    for i in range(39, n, -n):
        out.append(i / 3 + x[i])
    return np.array(out)


@cases(LONG, np.uint8(5))
def no_round_and_a_name(x, n):
    for i in range(n, 0, -n):  # 251
        k = x[i]
    return k


@cases(LONG, np.array(25))
def enumerate_traced_range(x, n):
    s = 0.0
    for k, i in enumerate(range(5, n)):
        s = s * 0.5 + x[i] * k
    return s


@cases(LONG, np.array(25))
def zip_traced_range(x, n):
    s = 0.0
    for i, v in zip(range(n), x):
        s = s * 0.5 + v * i
    return s


@cases(LONG)
def map_filter(x):
    s = 0.0
    for v in map(lambda t: t * 2, x):
        s += v
    for i in filter(lambda k: k % 2, range(6)):
        s += x[i]
    return s


@cases(V)
def comp_filter_traced(x):
    return [v * 2 for v in x if v > 0]


@cases(V)
def comp_filter_sum(x):
    return sum(v for v in x if v > 0)


@cases(V)
def comp_filter_array(x):
    return np.array([v * 2 for v in x if v > 0])


@cases(V)
def list_of_arrays(x):
    s = 0
    for a in [x, x * 2, x[::-1]]:
        s = s + a
    return s


@cases(X)
def ndindex(x):
    s = 0.0
    for i, j in np.ndindex(*x.shape):
        s += x[i, j] * i
    for idx in np.ndindex(x.shape):
        s += x[idx]
    return s


@cases(X)
def ndenumerate(x):
    s = 0.0
    for (i, j), v in np.ndenumerate(x):
        s += v * i
    return s


@cases(X)
def nditer(x):
    s = 0.0
    for v in np.nditer(x):
        s += v
    return s


@cases(X)
def flat_iter(x):
    s = 0.0
    for v in x.flat:
        s += v
    x.flat[3] = 7
    return s


@both()
def print_in_loop(x):
    s = 0.0
    for i in range(30):
        s += x[i % 7]
        if i % 10 == 0:
            print(i, s)
    return s


@both()
def nonlocal_in_loop(x):
    n = 0.0

    def add(v):
        nonlocal n
        n = n + v

    for i in range(20):
        add(x[i % 7])
    return x + n


@both()
def set_ops(x):
    s = {1, 2} | {3}
    t = {k * 2 for k in s}
    return x * len(t), sorted(t)


@both()
def dict_ops(x):
    d = dict(a=x, b=x * 2)
    e = {**d, "c": x[0]}
    for k, v in e.items():
        d[k] = v * 2
    del d["a"]
    return d, list(d.keys()), d.get("zz"), d.get("b"), d.pop("c")


@both()
def gen_static(x):
    def g(n):
        for i in range(n):
            yield i

    return sum(x * i for i in g(3))


@both()
def gen_next(x):
    def g():
        i = 0
        while True:
            yield i
            i += 1

    it = g()
    return x * next(it) + next(it)


@both()
def walrus_comp(x):
    return [y for v in (1, 2, 3) if (y := v * 2) > 2], y


@both()
def walrus_while(x):
    s = x.sum()
    while (s := s * 0.5) > 0.1:
        pass
    return s


@both()
def walrus_while_with_a_way_out(x):
    total, i = 0.0, len(x)
    while i := i - 1:
        if x[i] < 0:
            continue
        total += x[i]
    else:
        total += 100
    return total, i


@both()
def walrus_whiles_inside_each_other(x):
    s = 0.0
    while (n := s + x[1]) < 2:
        while (m := n + s) < 1:
            s += 0.4
            n += m * 0.1 + 0.2
            if s > 9:
                break
        else:
            s += 0.5
        if s > 20:
            break
    else:
        s -= n
    return s, n, m


@both()
def itert(x):
    s = 0
    for a, b in itertools.product([1, 2], [3, 4]):
        s += a * b
    for a, b in itertools.combinations(x[:3], 2):
        s = s + a * b
    for i in itertools.islice(itertools.count(), 3):
        s = s + i
    for a, b in itertools.pairwise(x):
        s = s + a * b
    acc = list(itertools.accumulate(x))
    return s, acc


@both()
def strings(x):
    s = "a,b".split(",") + ["c".upper()]
    return {k: x for k in s}, "%d" % x.shape[0], "-".join(s), s[0].startswith("a")


@both()
def lambda_default(x):
    fs = [lambda v, k=k: v * k for k in range(3)]
    return [f(x) for f in fs], (lambda *a, **k: a[0] + k["z"])(x, z=1)


@both()
def numbers_list(x):
    ws = [1.0, 2.0, 3.0]
    return x[0] / ws[1], 1.0 / ws[0], sum(ws), [w * 2 for w in ws]


@cases([1.0, 2.0, 3.0], staged=not COMPENSATES)
def list_arg(ws):
    return ws[0] / ws[1], sum(ws), [w * 2 for w in ws], max(ws), np.array(ws), len(ws)


@cases([V.copy(), W.copy()])
def list_arg_inplace(l):
    for a in l:
        a -= 1
    l[0] += 3
    return l[0].sum()


@both()
def append_while(x):
    out = []
    v = x[-1]
    i = 0
    while i < 25:
        v = v * 0.5
        out.append(v)
        i += 1
    return np.array(out)


@both()
def append_traced_while(x):
    out = []
    v = abs(x[-1])
    while v > 0.1:
        v = v * 0.5
        out.append(v)
    return np.array(out)


@both()
def append_cond(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v)
    return out


@cases(np.array(3))
def traced_range_append(n):
    out = []
    for i in range(n):
        out.append(i * 2)
    return out


@both()
def while_else(x):
    i = 0
    while i < 30:
        if x[i % 7] > 0.9:
            r = i
            break
        i += 1
    else:
        r = -1
    return r


@both(staged=not COMPENSATES)
def float_sum_py(x):
    return sum([float(v) for v in x])


@both()
def int_sum_py(x):
    return sum(int(v) for v in x), sum([int(v > 0) for v in x], True)


@both()
def sum_with_floats_before(x):
    return sum([0.1] * 10 + list(x)), sum([x[0]] + [0.1] * 10), sum(x, 0.1)


@both(staged=not COMPENSATES)
def sum_of_ints_and_floats(x):
    return sum([0.1] * 10 + [int(v) for v in x])


@both()
def int_cond_sum(x):
    n = 0
    for v in x:
        if v > 0:
            n += 1
    return n, n / len(x)


@cases(LONG)
def int_float_loop(x):
    s = 0
    for i in range(40):
        s = s + x[i]
    return s


@cases(LONG)
def int_float_loop_py(x):
    s = 0
    for i in range(40):
        s = s + float(x[i])
    return s


@cases(LONG)
def shape_change_loop(x):
    y = x[:2]
    for i in range(20):
        y = np.concatenate([y, x[i : i + 1]])
    return y


@cases({"w": V.copy()})
@cases({"w": -V})
def cond(d):
    if d["w"][0] > 0:
        d["w"] = d["w"] * 2
        d["flag"] = 1
    else:
        d["w"] = d["w"] * 3
        d["flag"] = 0
    for i in range(30):
        d["w"] = d["w"] * 0.99
    return d["w"].sum()


@cases.signs(V)
def endless_loop_that_returns_inside_a_loop(x):
    count = 0
    for k in range(3):
        while True:
            count += 1
            if x.sum() + count > 9:
                return x.sum() * k, count
    return 0.0, count


@cases.signs(V)
def endless_loop_that_returns_inside_a_loop_with_else(x):
    y = x.copy()
    for k in range(3):
        while True:
            y += 0.25
            if y[k] > 1:
                return y[1]
    else:
        y[:] = 0
    return y[0]


@cases.signs(V)
def loop_that_returns_what_its_rounds_write_or_raises(x):
    y = np.zeros_like(x)
    for k in range(20):
        change = 0.0
        for i in range(len(x)):
            new = 0.5 * (y[i] + x[i])
            change = max(change, abs(new - y[i]))
            y[i] = new
        if change < 0.3:
            return y, k
    raise ValueError(f"no end after {k} rounds")


@cases.signs(V)
def loop_with_two_ways_out_that_its_rounds_write(x):
    y = x.copy()
    z = np.zeros_like(x)
    for k in range(30):
        y += 0.25
        z -= 0.5
        if z.sum() < -20:
            return z
        if y[0] > 2:
            y[1] = k
            return y
    return x


@cases.signs(V)
def loop_with_returns_breaks_and_else(x):
    y = x.copy()
    while y.sum() < 20:
        y += 0.5
        if y[0] > 1.2:
            if y[1] > 1.9:
                return y
            y[2] -= 1
            continue
        if y[3] > 2.2:
            break
        if y[5] > 3:
            y[0] = -1
            return y
    else:
        y *= 2
    y[-1] = 0
    return y


@cases.signs(V)
def loop_with_returns_inside_another(x):
    y = x.copy()
    for k in range(4):
        for i in range(3):
            y += 0.25
            if y[i] > 2:
                return y
        else:
            y[3] -= 1
    else:
        y[4] = 0
    return y


@cases.signs(V)
def endless_loop_with_two_ways_out(x):
    y = x.copy()
    count = 0
    while True:
        count += 1
        y += 0.25
        if y[0] > 2:
            return y
        if count > 9:
            y[0] = count
            return y


@cases.signs(V)
def way_out_that_reads_what_a_round_makes(x):
    for k in range(5):
        parts = [x[k] - k, x[k] + k]
        if parts[0] * parts[1] < 3:
            return np.array(parts)
    return np.zeros(2)


@cases.signs(V)
def loop_that_returns_what_its_rounds_write_and_bind(x):
    y = x.copy()
    for k in range(20):
        y *= 0.5
        error = np.abs(y).max()
        if error < 0.1:
            print("after", k)
            return y, error
    return y, np.inf


@cases.signs(V)
def way_out_that_reads_what_a_round_binds(x):
    for k in range(5):
        square = (x[k] - k) ** 2
        if square < 3:
            return square + k
    return 0.0


@cases.signs(V)
def return_two_loops_further_in(x):
    y = np.zeros_like(x)
    for k in range(20):
        for i in range(3):
            y[i] += x[i] * x[i]
            if y[i] > 3:
                return y, k
            if y[i] > 2.5:
                break
        else:
            y[3] += 0.125
    return y, -1
