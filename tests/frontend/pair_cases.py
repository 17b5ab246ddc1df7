"""Functions with lists of tuples, and with comprehensions over what only the run can count."""

import numpy as np
from compare import Cases
from list_cases import LONG

cases = Cases()
IMAGE = np.random.default_rng(5).random((9, 11)) < 0.7


@cases(IMAGE, 4, 5)
@cases(IMAGE, 0, 0)
@cases(~IMAGE, 8, 10)
def flood_fill(image, y, x):
    seen = np.zeros(image.shape, bool)
    stack = [(y, x)]
    while stack:
        i, j = stack.pop()
        inside = 0 <= i < image.shape[0] and 0 <= j < image.shape[1]
        if not inside or seen[i, j] or not image[i, j]:
            continue
        seen[i, j] = True
        for di, dj in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            stack.append((i + di, j + dj))
    return seen, seen.sum()


@cases(IMAGE)
@cases(~IMAGE)
def steps_from_a_corner(image):
    far = np.full(image.shape, -1)
    far[0, 0] = 0
    queue = [(0, 0, 0)]
    while queue:
        i, j, steps = queue.pop(0)
        for di, dj in ((1, 0), (0, 1)):
            y, x = i + di, j + dj
            if y < image.shape[0] and x < image.shape[1] and image[y, x] and far[y, x] < 0:
                far[y, x] = steps + 1
                queue.append((y, x, steps + 1))
    return far


@cases(LONG)
@cases(-np.abs(LONG))
def pairs_of_numbers_and_arrays(v):
    found = []
    for k in range(1, len(v)):
        if v[k] > v[k - 1]:
            found.append((k, (v[k], v[k - 1 : k + 1])))
    total = 0.0
    for k, (x, pair) in found:
        total += k * x + pair.sum()
    return total, len(found)


@cases(LONG)
@cases(-LONG)
def pairs_put_and_taken_in_the_middle(v):
    found, total = [(0, v[0]), (1, v[1])], 0.0
    for k in range(2, len(v)):
        if v[k] > 0:
            found.insert(k % len(found), (k, v[k]))
        elif len(found) > 2:
            i, x = found.pop(k % len(found))
            total = total * 0.5 + i * x
    return total, len(found), found[0][1]


@cases(LONG)
@cases(-LONG)
def what_lists_of_pairs_can(v):
    found, other = [(v[0], v[1])], [(v[2], v[2])]
    for x in v:
        if x > 0.2:
            found.append((x, x * 2))
        elif x < -0.5 and len(found) > 2:
            found.pop()
            other += [(x, x), (v[3], -x)]
    found[0] = other[-1]
    found.extend(other[1:])
    both = found + other
    both.reverse()
    last = both[-1]
    copied = both.copy()
    both.clear()
    return np.array(copied), len(both), last, copied[2][1], copied[len(copied) // 2]


@cases(LONG)
def pairs_of_other_types(v):
    found = []
    for k in range(len(v)):
        if v[k] > 0:
            found.append((k, k) if k % 2 else (k, v[k]))
    return len(found), found[1][0]


@cases(LONG)
def no_pairs(v):
    found = []
    for x in v:
        if x > 9:
            found.append((x, x))
    return np.array(found)


@cases(LONG)
def pairs_are_returned(v):
    found = []
    for x in v:
        if x > 0:
            found.append((x, 1))
    return found


MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]


@cases(np.array([0, 3, 1, 1, 2, 0, 0, 1]))
@cases(np.array([0, 4]))
def a_walk(directions):
    i, j = 0, 0
    for d in directions:
        di, dj = MOVES[d]
        i, j = i + di, j + dj
    return i, j


@cases(IMAGE)
@cases(IMAGE & False)
def places_of_a_mask(image):
    total, count = 0.0, 0
    for i, j in zip(*np.nonzero(image)):  # noqa: B905
        total += i * 1.5 + j
    stack = [(i, j) for i, j in zip(*np.nonzero(image))]  # noqa: B905
    while stack:
        i, j = stack.pop()
        count += i * j
    return total, count


@cases(LONG)
@cases(np.abs(LONG) + 0.1)
def comprehensions_over_what_data_selects(v):
    scale = 2.0
    twice = [x * scale for x in v[v > 0.5]]
    squares = [k * k for k in range(int(v[3] * 10) + 2)]
    rows = [np.array([x, y]) for x, y in zip(v[v > 0.2], v, strict=False)]
    pairs = sum(x * y for x, y in zip(v[:4], v[4:8], strict=True))
    return np.array(twice), len(squares), squares[-1], len(rows), rows[0].sum(), pairs


@cases(LONG)
def one_within_the_other(v):
    n = int(v[1] * 4)
    rows = [np.array([k + i for i in range(3)]) for k in range(n)]
    return np.array(rows), n


@cases(LONG)
@cases(-np.abs(LONG))
def comprehensions_that_raise_or_are_empty(v):
    found = [v[int(x * 60)] for x in v[v > 0.5]]
    return len(found)


@cases(LONG)
@cases(-np.abs(LONG))
def a_comprehension_in_a_branch(v):
    found = [v[0]]
    if v.sum() > 0:
        found = [x + 1 for x in v[v > 0]]
    return len(found)


@cases(LONG)
@cases(-np.abs(LONG))
def numbered_entries(v):
    found, runs = [], []
    for k in range(len(v)):
        if v[k] > 0.3:
            found.append(v[k])
            runs.append((k, v[k] * 2))
    total, last = 0.0, 0
    for n, x in enumerate(found):
        total += n * x
    for n, (k, twice) in enumerate(runs, 1):
        last = n * k
        found[n - 1] = twice
    for x, (_, twice) in zip(found, runs):  # noqa: B905
        total += x - twice
    return total, last


@cases(LONG, staged=False)
def numbered_entries_that_grow_meanwhile(v):
    found = []
    for x in v:
        if x > 0.9:
            found.append(x)
    for n, x in enumerate(found):
        if n < 12:
            found.append(x / 2)
    return len(found), found[-1]


@cases(LONG)
@cases(LONG.astype("f4"))
@cases(LONG * 0)
def rows_of_several_types(v):
    rules = []
    for i in range(len(v)):
        for j in range(i + 1, len(v)):
            if v[i] * v[j] > 0.9:
                rules.append((i, j, v[i] * v[j], v[i] > v[j]))
    return np.array(rules), len(rules)


@cases(LONG.astype("f4"), np.arange(len(LONG), dtype="i2"))
def rows_of_narrow_types(v, n):
    whole, mixed = [], []
    for i in range(len(v)):
        if v[i] > 0.3:
            whole.append((n[i], v[i] > 0.9))
            mixed.append((v[i], n[i], 1))
    return np.array(whole), np.array(mixed)
