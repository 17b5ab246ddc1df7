"""Functions with lists that grow and shrink as data says."""

import sys

import numpy as np
from compare import Cases

cases = Cases()
V = np.array([3.0, -1.0, 2.0, 5.0, 4.0, -2.0, 7.0, 6.0, 1.0, 0.5])
S = V[:3]
N = np.array([3, 1, 2, 5, 4, 0, 7, 6])
P = np.random.default_rng(1).normal(size=(14, 2))
GRAPH = np.random.default_rng(2).random((12, 12)) < 0.25


@cases(V)
@cases(V[::-1].copy())
@cases(V[:0])
def a_monotone_stack(v):
    stack = []
    taken = np.zeros(len(v))
    for k in range(len(v)):
        while stack and v[stack[-1]] < v[k]:
            taken[stack.pop()] = v[k]
        stack.append(k)
    return taken, len(stack), stack[-1] / 2 if stack else -1.5


@cases(GRAPH, 0)
@cases(GRAPH, 5)
def depth_first(graph, start):
    seen = np.zeros(len(graph), bool)
    stack = [start]
    order = np.full(len(graph), -1)
    count = 0
    while stack:
        j = stack.pop()
        if seen[j]:
            continue
        seen[j] = True
        order[count] = j
        count += 1
        for m in np.flatnonzero(graph[j] & ~seen):
            stack.append(m)
    return seen, order, count


@cases(GRAPH)
def breadth_first(graph):
    far = np.full(len(graph), -1)
    far[0] = 0
    queue = [0]
    while len(queue) > 0:
        j = queue.pop(0)
        for m in np.flatnonzero(graph[j]):
            if far[m] < 0:
                far[m] = far[j] + 1
                queue.append(m)
    return far


@cases(GRAPH)
def a_queue_that_grows_while_it_is_read(graph):
    seen = np.zeros(len(graph), bool)
    seen[0] = True
    queue = [0]
    for j in queue:
        for m in np.flatnonzero(graph[j]):
            if not seen[m]:
                seen[m] = True
                queue.append(m)
    return np.array(queue), len(queue)


@cases(P)
def chains_of_points(points):
    chain = []
    for p in points[np.lexsort((points[:, 1], points[:, 0]))]:
        while len(chain) >= 2 and np.dot(chain[-1] - chain[-2], p - chain[-1]) < 0:
            chain.pop()
        chain.append(p)
    return np.array(chain[:-1] + chain[::-1]), chain[0] + chain[-1], np.sum(chain, axis=0)


@cases(V)
@cases(-V)
def positive_ones(v):
    found = []
    for x in v:
        if x > 0:
            found.append(x)
    return np.array(found), np.asarray(found, dtype=np.float32), len(found)


@cases(N)
@cases(-N)
def whole_numbers_of_which_there_may_be_none(n):
    found = []
    for x in n:
        if x > 2:
            found.append(x)
    return np.array(found)


@cases(N)
def an_empty_list_is_popped(n):
    stack = []
    for x in n:
        if x > 2:
            stack.append(x)
        else:
            stack.pop()
    return len(stack)


@cases(N, 3)
@cases(N, 30)
@cases(N, -1)
def positions(n, k):
    found = [0, 0]
    for x in n:
        if x > 1:
            found.append(x)
            found[0] = x
    return found[k], found[1] + 0.5


@cases(N)
def several_lists(n):
    low, high = [], []
    for x in n:
        if x > 3:
            high.append(int(x))
        else:
            low.append(int(x))
            low.reverse()
    low.extend(high)
    low += [1, 2]
    while len(high) > 1:
        high.pop(0)
    both = low + high
    return both[0] // 2, both[-1] / 4, np.array(both) * 2, np.array(low[1::2])


@cases(N)
def cleared(n):
    run, longest = [], 0
    for x in n:
        if x % 2:
            run.append(x > 3)
        else:
            run.clear()
        longest = max(longest, len(run))
    return longest, isinstance(run, list), type(run) is list


@cases(V)
def kept_for_the_next_round(v):
    held = []
    total = 0.0
    for k in range(len(v)):
        if v[k] > 1:
            held.append(v[k])
        for h in held:
            total += h * k
    return total


@cases(P[:5].copy())
def an_entry_is_written(points):
    kept = []
    for p in points:
        if p[0] > 0:
            kept.append(p)
            p[1] = 9.0
    return np.array(kept)


@cases(P[:5].copy())
def through_an_entry(points):
    kept = []
    for p in points:
        if p[0] > 0:
            kept.append(p)
    kept[0][1] = 7.0
    return np.array(kept), points


@cases(V[:5])
def of_several_types(v):
    found = [0]
    for x in v:
        if x > 0:
            found.append(x)
    return found[0] / 2, found[-1]


@cases(V[:5])
def returned(v):
    found = []
    for x in v:
        if x > 0:
            found.append(x)
    return found


@cases(V[:5])
def sorted_in_place(v):
    found = []
    for x in v:
        if x > 0:
            found.append(x)
    found.sort()
    return np.array(found)


@cases(V[:5], staged=sys.version_info < (3, 12))  # which compensates sums
def handed_to_python(v):
    found = []
    for x in v:
        if x > 0:
            found.append(float(x))
    return sum(found), max(found), 5.0 in found, [2 * x for x in found]


@cases(V)
def the_same_list_by_another_name(v):
    found = []
    alias = found
    for x in v:
        if x > 0:
            found.append(x)
        else:
            alias.append(-x)
    return np.array(alias), alias is found


LONG = np.sin(np.arange(40.0) ** 1.7)
"""As many rounds as are never written one by one."""


@cases(LONG)
@cases(-LONG)
@cases(LONG.astype(np.float32))
def local_maxima(v):
    peaks = []
    for i in range(1, len(v) - 1):
        if v[i] > v[i - 1] and v[i] > v[i + 1] and v[i] > 0.1:
            peaks.append(i)
    return np.array(peaks, dtype=int), len(peaks)


@cases(LONG)
def lengths_of_runs(v):
    found, start = [], 0
    for i in range(1, len(v)):
        if v[i] < v[i - 1]:
            found.append(i - start)
            start = i
    found.append(len(v) - start)
    return np.array(found)


@cases(LONG)
@cases(np.abs(LONG))
def grows_or_shrinks(v):
    found = []
    for i in range(len(v)):
        if v[i] > 0:
            found.append(v[i])
        elif found:
            found.pop()
    return np.array(found), len(found)


@cases(LONG)
def pops_what_may_not_be_there(v):
    found = []
    for i in range(len(v)):
        if v[i] < 0:
            found.pop()
        else:
            found.append(v[i])
    return np.array(found)


@cases(LONG, 3)
def left_early(v, most):
    found = []
    for i in range(len(v)):
        if v[i] > 0:
            found.append(i)
        if len(found) > most:
            break
    return found[-1], len(found), v[found[0]]


@cases(LONG)
def windows_that_qualify(v):
    rows = []
    for i in range(len(v) - 3):
        if v[i] > 0:
            rows.append(v[i : i + 3])
    return np.array(rows).sum(axis=0), len(rows)


@cases(LONG)
def returned_after_many_rounds(v):
    found = []
    for i in range(len(v)):
        if v[i] > 0:
            found.append(i)
    return found


@cases(LONG, staged=False)
def an_array_that_is_an_entry(v):
    found = []
    for i in range(len(v)):
        if v[i] > 0:
            found.append(v)
    return len(found), found[0] is v


INTS = np.random.default_rng(0).integers(0, 12, 40)


@cases(INTS)
@cases(LONG)
def already_seen(v):
    seen, twice = [], 0
    for x in v:
        if x in seen:
            twice += 1
        else:
            seen.append(x)
    return np.array(seen), twice


@cases(INTS)
@cases(np.zeros(30, int))
def looked_for_and_removed(v):
    found, places = [0], 0
    for i in range(len(v)):
        k = int(v[i])
        if k in found:
            places += found.index(k)
            found.remove(k)
        else:
            found.append(k)
    return len(found), places, k not in found


@cases(INTS)
def removed_where_there_is_none(v):
    found = [0]
    for i in range(len(v)):
        if v[i] > 3:
            found.append(int(v[i]))
        else:
            found.remove(int(v[i]))
    return len(found)


@cases.signs(LONG)
def kept_in_order(v):
    found = [v[0]]
    for x in v:
        k = 0
        while k < len(found) and found[k] < x:
            k += 1
        if x > 0:
            found.insert(k, x)
    return np.array(found)


@cases(INTS - 6)
def inserted_outside(v):
    found = [100]
    for k in v:
        found.insert(int(k) * 3, int(k))
    return np.array(found)


@cases.signs(LONG)
def popped_and_deleted_in_the_middle(v):
    found, total = [v[0], v[1], v[2]], 0.0
    for i in range(len(v)):
        if v[i] > 0:
            found.append(v[i])
        elif len(found) > 3:
            total = total * 0.5 + found.pop(i % len(found)) - found.pop(-2)
            del found[len(found) // 2]
    return np.array(found), total


@cases(INTS)
def popped_where_there_is_none(v):
    found = [1]
    for x in v:
        if x % 2:
            found.append(int(x))
        else:
            found.pop(int(x))
    return len(found)


@cases(np.array([1.0, np.nan, 2.0, np.nan, -1.0] * 4))
def a_nan_is_found_by_identity(v):
    found, n = [1.0], 0
    for x in v:
        if x > 0 or x != x:
            found.append(x)
        if x in found:
            n += 1
    return n, len(found)


@cases(INTS, staged=False)
def a_number_of_another_type(v):
    found, n = [0], 0
    for x in v:
        if x > 3:
            found.append(int(x))
        n += (x / 2) in found
    return n


# -- entries at a position that the run tells ------------------------------------------------------------------------


@cases(1.5, 2.5, np.int64(1))
@cases(1.5, 2.5, np.int64(-2))
def a_python_number_of_a_list(a, b, i):
    found = [a, b][i]
    return found * np.float32(2), np.ones(2, np.float32) * found


@cases(S.astype(np.float32), np.int64(2))
def a_numpy_number_of_a_tuple(v, i):
    return (v[0], v[1], v[2])[i] * 2.5


@cases(LONG)
def a_constant_of_a_list(v):
    return np.ones(2, np.float32) * [0.5, 1.5, 2.5][int(np.argmax(v)) % 3]


@cases(S, np.int64(1))
@cases(S, np.int64(2))
def a_number_of_some_type(v, i):
    return [v[0], 2.0, 3][i] * np.float32(2)


@cases(1.5, 2.5, np.int64(1), staged=False)
def slices_of_a_list(a, b, i):
    x = [a, b, a]
    return x[:i] + x[i:], x[i:] * 2


@cases(S, np.int64(1))
def an_array_of_a_list(v, i):
    return [v * 2, v + 1][i].sum()


@cases(S, np.int64(1), staged=False)
def writes_into_an_array_of_a_list(v, i):
    rows = [v * 2, v + 1]
    row = rows[i]
    row[0] = 9.0
    return rows[0], rows[1], row


@cases(S, np.int64(0), staged=False)
def writes_into_what_was_picked(v, i):
    rows = [v * 2, v + 1]
    row = rows[i]
    rows[0][0] = 5.0
    return row


@cases(S, np.int64(0), staged=False)
def is_the_array_that_was_picked(v, i):
    rows = [v * 2, v + 1]
    return rows[i] is rows[0], rows[i]


@cases(S, np.float64(1.0), staged=False)
@cases(S, np.True_, staged=False)
def no_position(v, i):
    return [v[0], v[1]][i > 0]


@cases(S, np.int64(1))
@cases(S, np.int64(-1))
@cases(S, np.int64(7))
@cases(S, np.int64(-7))
def written_entries(v, i):
    numbers, floats = [1, 2, 3], [v[0], v[1], v[2]]
    n = int(i)
    numbers[n] = numbers[n] + n
    floats[i] = v[0] + 1
    return numbers, floats, numbers[0] * np.float32(2)


@cases(S, np.int64(1))
def entries_become_another_type(v, i):
    numbers = [1, 2, 3]
    numbers[int(i)] = 0.5
    return numbers


@cases(LONG, np.float32(20))
def a_wheel_of_numbers(v, most):
    wheel = [0.5, 1.5, 2.5]
    k, total = 0, np.float32(0)
    while total < most:
        total = total + wheel[k % 3]
        wheel[k % 3] = wheel[k % 3] + 0.25
        k = k + 1
    return total, wheel, k
