"""Names of Python's objects that in some runs mean the same object: what one changes, the others see."""

import collections
import dataclasses

import numpy as np
from compare import Cases

cases = Cases()
X = np.concatenate([np.random.default_rng(2).uniform(-0.3, 1, 8), np.random.default_rng(3).uniform(-1, 1, 22), [-1.0]])


@dataclasses.dataclass
class Cell:
    value: float


class Holder:
    def __init__(self, value):
        self.value = value


@cases.signs(X)
def changed_in_a_branch(x):
    a, c = [x[0]], [x[1]]
    if x[2] > 0:
        a = c
        a[0] = a[0] + 1
    return a[0], c[0]


@cases.signs(X)
def changed_behind_a_branch(x):
    a, c = [x[0]], [x[1]]
    if x[2] > 0:
        a = c
    a[0] = a[0] + 1
    return a[0], c[0]


@cases.signs(X)
def an_expression_chooses(x):
    a, c = [x[0]], [x[1]]
    chosen = a if x[2] > 0 else c
    chosen[0] = 4.0
    return a[0], c[0]


@cases.signs(X)
def a_helper_chooses(x):
    def pick(p, q):
        if x[2] > 0:
            return p
        return q

    a, c = {"u": x[0]}, {"u": x[1]}
    pick(a, c)["u"] = 3.0
    return a["u"], c["u"]


@cases.signs(X)
def inside_a_tuple(x):
    a, c = [x[0]], [x[1]]
    t = (a, 1)
    if x[2] > 0:
        t = (c, 1)
    t[0][0] = 3.0
    return a[0], c[0]


@cases.signs(X)
def inside_another_list(x):
    rows = [[x[0]], [x[1]]]
    first = rows[0]
    if x[2] > 0:
        rows = [[x[3]], [x[4]]]
    rows[0][0] = 2.0
    return first[0], rows[0][0], rows[1][0]


@cases.signs(X)
def a_dataclass(x):
    a = Cell(x[0])
    b = a
    if x[2] > 0:
        a = Cell(x[1])
    a.value = 5.0
    return b.value, a.value


@cases.signs(X, staged=False)
def the_same_set_or_another(x):
    a = {1, 2}
    b = a
    if x[2] > 0:
        a = {1, 2}
    a.add(3)
    return len(a) + 10 * len(b) + x[0]


@cases.signs(X)
def is_it_the_same(x):
    a, c = [x[0]], [x[1]]
    if x[2] > 0:
        a = c
    return (1.0 if a is c else 2.0) + x[0]


@cases.signs(X)
def made_for_one_name(x):
    a = [x[0], x[1]] if x[2] > 0 else [x[3], x[4]]
    a[0] = a[0] * 2
    return a[0], a[1]


@cases(X, staged=False)
def changed_in_a_loop(x):
    a, c = [x[0]], [x[1]]
    k = 0
    while x[k] > 0:
        a = c
        a[0] = a[0] + 1
        k += 1
    a[0] = a[0] * 100
    return c[0], a[0]


@cases.signs(X, staged=False)
def a_loop_that_need_not_run(x):
    a = [x[0], x[1]]
    b = a
    k = 0
    while x[k] > 0:
        a = [a[1], a[0]]
        k += 1
    a[0] = 7.0
    return b[0], b[1], a[0], a[1]


@cases.signs(X, staged=False)
def equal_to_what_was_there(x):
    a = [1.0, 2.0]
    b = a
    k = 0
    while x[k] > 0:
        a = [1.0, 2.0]
        k += 1
    a[0] = 7.0
    return b[0], a[0]


@cases(X, staged=False)
def two_rows_that_change_places(x):
    a, b = [x[0], x[1]], [x[2], x[3]]
    c, k = a, 0
    while x[k] > -0.5:
        a[0] = b[1] + x[k]
        a, b = b, a
        k += 1
    return a[0], a[1], b[0], b[1], c[0]


@cases(X, staged=False)
def kept_in_a_dict(x):
    row = [0.0, 1.0]
    rows = {"last": row}
    for k in range(30):
        new = [row[0] + x[k], row[1] * x[k]]
        if x[k] > 0:
            row = new
        rows["last"] = row
    row[0] = 9.0
    return row[0], rows["last"][0]


@cases(X)
def made_anew_in_every_round(x):
    state = [0.0, 1.0]
    for k in range(30):
        state = [state[0] + x[k], state[1] * 0.5]
    state[0] = state[0] * 2
    return state[0], state[1]


@cases(X)
def a_test_that_takes_from_a_list(x):
    found = [0.0]
    for k in range(len(x)):
        if x[k] > 0:
            found.append(x[k])
    n = 0
    while found.pop() > 0.5:
        n += 1
    return n, len(found)


@cases(X)
def a_test_that_changes_an_entry(x):
    def goes_on(state):
        state[0] += 1
        return x[state[0]] > 0

    state, rounds = [0], 0
    while goes_on(state):
        rounds += 1
    return state[0], rounds


@cases(X, staged=False)
def a_list_of_the_last_round(x):
    for k in range(30):
        last = []
        if x[k] > 0:
            last.append(x[k])
    return len(last) + x[0]


@cases(X, staged=False)
def an_object_of_the_last_round(x):
    for k in range(30):
        last = Holder(x[k])
    return last.value + x[0]


@cases(X, staged=False)
def a_masked_array_of_the_last_round(x):
    for k in range(30):
        last = np.ma.masked_less(x, x[k])
    return last.filled(0.0) + x[0]


@cases(X, staged=False)
def a_queue_of_the_last_round(x):
    for k in range(30):
        last = collections.deque([x[k], 1.0])
    return last[0] + x[0]
