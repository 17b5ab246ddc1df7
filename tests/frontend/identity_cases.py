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


@cases.signs(X)
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


@cases(X)
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


# -- lists that grow and change places ---------------------------------------------------------------------------------

GRID = (np.random.default_rng(0).random((12, 15)) < 0.25).astype(int)
GRID[0, 0] = 0
ADJACENT = np.random.default_rng(1).random((25, 25)) < 0.08


@cases(GRID)
@cases(GRID * 0)
@cases(GRID[:1, :1])
def levels_of_a_grid(grid):
    h, w = grid.shape
    distance = np.full((h, w), -1)
    distance[0, 0] = 0
    frontier, d = [(0, 0)], 0
    while frontier:
        d += 1
        new = []
        for i, j in frontier:
            for di, dj in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                a, b = i + di, j + dj
                if 0 <= a < h and 0 <= b < w and grid[a, b] == 0 and distance[a, b] < 0:
                    distance[a, b] = d
                    new.append((a, b))
        frontier = new
    return distance, d


@cases(ADJACENT)
def now_and_later(adjacent):
    seen = np.zeros(len(adjacent), dtype=bool)
    seen[3] = True
    now, later, steps = [3], [], 0
    while now:
        for v in now:
            for u in range(len(adjacent)):
                if adjacent[v, u] and not seen[u]:
                    seen[u] = True
                    later.append(u)
        now, later = later, []
        steps += 1
    return seen, steps


@cases(ADJACENT, staged=False)
def left_by_a_break(adjacent):
    level = np.full(len(adjacent), -1)
    level[3] = 0
    frontier, steps = [3], 0
    while True:
        following = []
        for v in frontier:
            for u in np.nonzero(adjacent[v])[0]:
                if level[u] < 0:
                    level[u] = steps + 1
                    following.append(u)
        if not following:
            break
        frontier = following
        steps += 1
    return level, steps, len(frontier)


@cases.signs(X)
def two_lists_take_turns(x):
    a, b = [0.0], [1.0]
    for k in range(len(x)):
        if x[k] > 0:
            a, b = b, a
        a.append(x[k])
    return len(a), len(b), a[-1], b[-1]


@cases.signs(X)
def the_first_list_keeps_its_name(x):
    now, later = [0], []
    first, n = now, 0
    while now:
        for v in now:
            if v < 20 and x[v] > 0:
                later.append(v + 1)
        now, later = later, []
        n += 1
    return n, len(first), first[0]


@cases.signs(X, staged=False)
def one_list_of_two_names(x):
    a, b = [0.0], [1.0]
    for k in range(len(x)):
        if x[k] > 0:
            a = b
        a.append(x[k])
    return len(a), len(b), a[-1], b[-1]


@cases.signs(X)
def a_list_becomes_an_empty_one(x):
    a, b = [x[0], 2.0], []
    k = 0
    while x[k] > -0.6:
        a = b
        b = []
        k += 1
    return k, len(a), (a[-1] if a else 0.0), len(b)


@cases.signs(X, staged=False)
def the_best_so_far(x):
    best, path = [], []
    for k in range(len(x)):
        if x[k] > 0:
            path.append(x[k])
        if x[k] > 0.5:
            best = path[:]
    path.append(1.0)
    return len(best), len(path)


@cases.signs(X, staged=False)
def the_best_is_the_path_itself(x):
    best, path = [], []
    for k in range(len(x)):
        if x[k] > 0:
            path.append(x[k])
        if x[k] > 0.5:
            best = path
    return len(best), len(path)
