"""Functions with loops on data."""

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
X = np.arange(12.0).reshape(3, 4)
LONG = np.sin(np.arange(40.0))
F4 = LONG.astype(np.float32)


@cases(V)
@cases(-V)
def any_and_all(x):
    return any([x[0] > 0, x[1]]), all([x[0] < 0, True]), any(v > 1.9 for v in x), all([]), any([0.0, x[2]])


@cases(V, 10.0)
@cases(V, -10.0)
def a_while_loop(x, limit):
    s = np.float64(0)
    y = x.copy()
    while s < limit:
        y = y * 1.1 + 0.01
        s += np.abs(y).sum()
    return y, s


@cases(100.0)
@cases(0.5)
def a_while_loop_on_a_python_float(a):
    n = 0
    while a > 1.0:
        a = a / 2
        n += 1
    return a, n


@cases(V, 50)
@cases(V, 0)
@cases(V, 3)
def a_for_loop_over_a_range(x, n):
    y = x.copy()
    for i in range(n):
        y = y * 0.9 + i
    return y


@cases(LONG)
def a_for_loop_with_writes(x):
    y = np.zeros_like(x)
    for i in range(1, len(x)):
        y[i] = y[i - 1] * 0.5 + x[i]
    return y


@cases(LONG)
def a_for_loop_over_an_array(x):
    s = 0.0
    for v in x:
        if v > 0:
            s += v
        else:
            s -= v * 2
    return s


@cases(LONG)
def a_loop_over_rows(x):
    y = x.reshape(20, 2).copy()
    for row in y:
        row[0] += row[1]
    return y


@cases(LONG, np.array([3, 17, 0]))
def bounds_from_data(x, n):
    y = x.copy()
    for i in range(n[0], n[1]):
        y[i] = y[i - 1] + 1
    for _ in range(n[2]):
        y += 1
    return y


@cases(LONG, np.array(30))
@cases(LONG, np.array(0))
def a_loop_variable_after_the_loop(x, n):
    for i in range(n):
        y = x[i] * 2
    return i + y


@cases(LONG)
@cases(-np.ones(40))
def break_and_continue(x):
    s = 0.0
    count = 0
    for i in range(40):
        if x[i] < -0.9:
            continue
        if s > 3:
            break
        s += x[i]
        count += 1
    return s, count, i


@cases(LONG, 0.99)
@cases(LONG, 2.0)
def for_else(x, a):
    for v in x:
        if v > a:
            found = v
            break
    else:
        found = np.float64(-1.0)
    return found


@cases(LONG, 0.99)
@cases(LONG, 2.0)
def a_return_in_a_loop(x, a):
    for i in range(len(x)):
        if x[i] > a:
            return i, x[i] * 2
    return -1, x[0]


@cases(LONG, 3.0)
@cases(LONG, 1e9)
def while_true(x, limit):
    s = np.float64(0)
    i = 0
    while True:
        s = s + x[i] * x[i]
        i += 1
        if s > limit or i >= 40:
            break
    return s, i


@cases(X)
def nested_loops(x):
    y = x.copy()
    for i in range(3):
        for j in range(4):
            if y[i, j] > 5:
                y[i, j] = -y[i, j]
            elif j == 3:
                break
    return y


@cases(np.add.outer(np.arange(20.0), np.arange(20.0) % 7))
def long_nested_loops(x):
    y = x.copy()
    for i in range(1, 19):
        for j in range(1, 19):
            y[i, j] = 0.25 * (y[i - 1, j] + y[i + 1, j] + x[i, j - 1] + y[i, j + 1])
    return y


@cases(LONG)
def a_break_from_nested_loops(x):
    y = x.reshape(8, 5).copy()
    total = np.float64(0)
    for i in range(8):
        for j in range(5):
            if y[i, j] < -0.9:
                break
            total += y[i, j]
        else:
            continue
        if total > 2:
            break
    return total, y


@cases(V)
def enumerate_and_zip(x):
    y = x.copy()
    for k, (a, b) in enumerate(zip(x, x[::-1], strict=True)):
        if a > b:
            y[k] = a - b
    for name, factor in {"a": 1.0, "b": 2.0}.items():
        y = y * factor if name == "b" else y + factor
    for value in [1, 2.0, x[0]]:
        y = y + value
    return y


@cases(LONG)
def python_floats_that_become_scalars(x):
    s = 0.0
    for i in range(40):
        s += x[i]
    return s


@cases(F4)
def loop_carried_promotion(x):
    s = 0.0
    p = 1
    out = np.zeros(40, np.float32)
    for i in range(40):
        out[i] = x[i] * s
        s = s + x[i]
        p = p * x[i]
    return s, p, out


@cases(F4, 0.1)
def a_first_round_with_its_own_types(x, a):
    out = np.zeros(40)
    for i in range(40):
        out[i] = (x * a).sum() * 0.5
        a = np.float64(a) * 1.01
    return out


@cases(LONG)
def swapping_names_in_a_loop(x):
    u, v = x, x * 2
    for _ in range(30):
        u, v = v, u + v * 0.1
    return u, v


@cases(LONG.copy())
def swapping_buffers_in_a_loop(x):
    u, v = x.copy(), np.empty_like(x)
    for _ in range(20):
        v[1:-1] = (u[2:] + u[:-2]) * 0.5
        v[0] = v[-1] = 1.0
        u, v = v, u
    return u


@cases(LONG.copy())
def writes_to_an_argument_in_a_loop(x):
    for i in range(1, 40):
        x[i] += x[i - 1]


@cases(V)
def comprehensions(x):
    k = 2.0
    squares = [v * v for v in x]
    table = {i: x[i] + k for i in range(3) if i != 1}
    nested = [[a * b for b in x[:2]] for a in x[:3]]
    return squares, table, nested, sum(v for v in x), np.array([k * v for v in x])


@cases(V)
@cases(-V)
def a_named_expression(x):
    if (s := x.sum()) > 0:
        y = x * s
    else:
        y = x - s
    n = 3
    while (n := n - 1) > 0:
        y = y + n
    return y, n


@cases(LONG)
def a_list_grows_in_a_loop(x):
    parts = []
    for i in range(30):
        parts.append(x[i] * 2)
    return np.array(parts), len(parts)


@cases(np.arange(40), np.array(7))
def integers_and_booleans(n, k):
    count = 0
    flag = False
    for i in range(40):
        if n[i] % k == 0:
            count += 1
            flag = not flag
    return count, flag, n[count] // 2


BOARD = np.zeros(3)


@cases(V)
@cases(-V)
def a_global_array_is_written_in_a_branch(x):
    before = BOARD[0] * 0
    if x[0] > 0:
        BOARD[0] = x[0]
    else:
        BOARD[1] = x[0]
    for i in range(20):
        BOARD[2] = i
    return before, BOARD * 1


@cases(V)
@cases(-V)
def another_type_that_nobody_reads(x):
    total = x * 0
    for i in range(30):
        kind = "up" if x[i % 7] > 0 else 1
        if i > 100:
            kind = None
        total = total + i
    del kind
    return total


@cases(LONG)
def a_list_changed_in_a_loop(x):
    sums, table = [0.0, 0.0], {"last": x[0], "n": 0}
    for i in range(40):
        sums[0] += x[i]
        sums[1] = sums[1] + x[i] ** 2
        table["last"] = x[i]
        table["n"] += 1
    return sums, table


@cases(LONG)
def a_nested_list_in_a_loop(x):
    rows = [[0.0, 1.0], [2.0, 3.0]]
    first = rows[0]
    for i in range(30):
        rows[0][1] = rows[0][1] * 0.5 + x[i]
        rows[1] = [rows[0][1], x[i]]
    return rows, first, rows[0] is first


@cases(LONG)
def none_before_a_while_loop(x):
    best = None
    i = 0
    while i < 40 and x[i] > -0.95:
        if best is None or x[i] > best:
            best = x[i]
        i += 1
    return 0.0 if best is None else best * 1.0


def take_one(x):
    x[0] += 1.0
    return x[0] < 5.0


@cases(np.zeros(3))
def while_test_that_writes(x):
    rounds = 0
    while take_one(x):
        rounds += 1
    return x, rounds


@cases(np.zeros(3))
def while_test_that_writes_and_a_break(x):
    rounds = 0
    while take_one(x):
        rounds += 1
        if x[0] > 3.0:
            break
    return x, rounds


@cases(V)
@cases(-V)
def names_in_tests(x):
    if (s := x.sum()) > 0 and (t := s * 2) > 1:
        return t
    while (s := s * 0.5) < -0.1:
        s = s + 0.01
    return s


@cases(V)
@cases(-V)
def generators(x):
    def rows(n):
        for k in range(n):
            if k == 3:
                return
            got = yield x * k
            if got is not None:
                yield got
        yield from [x, x]

    it = rows(5)
    first = next(it)
    return first, it.send(x), sum(it), [r + 1 for r in rows(2)]


@cases(LONG, staged=False)
def a_view_of_itself_in_every_round(x):
    for _ in range(20):
        x = x[::-1]
    x[0] = 7.0


@cases(LONG, staged=False)
def names_that_change_places(x):
    a, b, c = x[1:], x[:-1], x * 2
    for _ in range(20):
        a, b, c = b, c, a
    a[0] += 5
    return a, b, c


@cases(LONG)
def names_that_change_places_and_are_read(x):
    a, b = x[1:], x[:-1] * 2
    for _ in range(21):
        a, b = b, a
    return a - b


@cases(LONG, 0.5)
@cases(LONG, -0.5)
def parts_of_one_result_used_in_branches(x, s):
    mantissa, exponent = np.frexp(x)
    y = x
    if s > 0:
        y = mantissa * 2
        for _ in range(20):
            y = y + exponent
    return y


@cases(V + 2)
def an_endless_loop_that_returns(x):
    def grown(y):
        rounds = 0
        while True:
            if y.sum() > 100:
                return y, rounds
            y = y * 1.5
            rounds += 1

    return 1, *grown(x)


@cases(X, np.array([0, 1, 3]))
def a_write_out_of_bounds_that_nobody_reads(x, i):
    for k in range(20):
        x[[0, 1]][i[2]] = k
    x[0] = 1


@cases(V, -1.0, staged=False)
@cases(V, 100.0, staged=False)
def an_argument_that_some_rounds_replace(x, limit):
    y = x
    for _ in range(25):
        if y.sum() > limit:
            y = y * 0.5
    y[0] += 1
    return y


@cases(V, -0.5)
@cases(-V, -0.5)
@cases(V, 0.5)
def a_choice_that_hides_later_ones(x, a):
    w = 1
    for _ in range(2):
        if a < 0:
            break
        w = a
    if w is not None and (x * 2).max() > 1:
        x[0] += 1
    return x * 1.0


@cases(V)
@cases(-V)
def a_break_in_the_else_of_an_inner_loop(x):
    total = 0.0
    for row in x:
        for each in x:
            if each > 1.5:
                break
            total += each
        else:
            total -= row
            if row > -0.5:
                break
            continue
        total += 100
    return total


@cases(V)
@cases(-V)
def a_break_in_the_else_of_an_inner_while(x):
    total, n = 0.0, 0
    while n < 3 and x[0] < 0:
        n += 1
        while total < n * x[-1]:
            total += 1
            if total > 2:
                break
        else:
            if x[1] > 0:
                break
        total += x[n]
    return total, n


@cases(V, 3)
@cases(V, 0)
def what_is_returned_is_written_in_other_rounds(x, n):
    y = x.copy()
    k = 0
    while True:
        y[k % 7] += 1
        if y.sum() > n * x.sum() or k > 40:
            return y, k
        y *= 1.01
        k += 1


@cases(V, 2.0)
@cases(V, 50.0)
def an_argument_is_returned_that_other_rounds_write(x, most):
    while True:
        x[1:] += np.abs(x[:-1]) + 0.1
        total = x.sum()
        if total > most:
            part = x[2:]
            return part, total
        if x[0] > 3:
            x[0] = 0
            continue
        x[0] += 0.25


@cases(V)
@cases(-V)
def what_is_returned_raises(x):
    y = np.zeros(3)
    while True:
        y += x[:3] + 2
        if y.sum() > 9:
            return y[int(y[0]) + 2], y


@cases(V)
@cases(-V)
def a_loop_within_one_that_returns_what_it_writes(x):
    table = np.zeros((3, 4))
    total = 0.0
    while True:
        for i in range(3):
            while table[i].sum() < total:
                table[i] += 0.5
        total += 1.5 + x[0]
        if total > 6:
            if table[0, 0] > 0:
                return table
            total -= 5
            table[0, 0] = 1


@cases(np.arange(60) % 7 % 2, np.array([1, 0, 1]))
@cases(np.zeros(40, int), np.zeros(3, int))
@cases(np.zeros(40, int), np.ones(3, int))
def a_test_with_ints_that_may_outgrow_64_bits(text, pattern):
    found, i = np.zeros(len(text), int), 0
    while i + len(pattern) <= len(text):
        k = 0
        while k < len(pattern) and text[i + k] == pattern[k]:
            k += 1
        found[i] = k
        i += max(k, 1)
    return found, i


@cases(np.ones(30, int))
@cases(np.arange(30) % 9 + 1)
@cases(np.where(np.arange(30) < 20, 1, 0))
def a_test_that_raises_in_the_end(steps):
    i = int(steps[0])
    while steps[i] + i > i:
        i += int(steps[i])
    return i
