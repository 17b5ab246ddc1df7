"""Lists that loops of known length append to, of numbers that are Python's in some rounds and NumPy's in others."""

import numpy as np
import pytest

import futurex as fx


def largest_so_far(x):
    found, best = [], 0.0
    for value in x:
        best = max(best, value)
        found.append(best)
    return found


def largest_beside_each(x):
    found, best = [], 0.0
    for value in x:
        best = max(best, value)
        found.append((best, value))
    return found, best


def of_the_last_one(x):
    found = [0.0]
    for value in x:
        found.append(max(found[-1], value))
    return found


def of_an_earlier_one(x):
    found = [0.0]
    for k, value in enumerate(x):
        found.append(max(found[k // 2], value))
    return found


def of_two_places(x):
    found, best = [1.0, x[0]], 0.0
    for value in x:
        best = min(best, value)
        found.append(best)
        found.append(value)
    return found


def of_loops_in_rounds(x):
    found, best = [], 0.0
    for value in x:
        for other in x[:6]:
            best = max(best, other + value)
            found.append(best)
    return found


def asked_afterwards(x):
    found, best = [], 0.0
    for value in x:
        best = max(best, value)
        found.append(best)
    return isinstance(found[0], float), np.float32(1) * found[1], found[-1] / 3, [each * 2 for each in found]


def whole_numbers(x):
    found, best = [], 0
    for value in (x * 10).astype(int):
        best = max(best, value)
        found.append(best)
    return found


def one_of_two_by_another_list(x):
    found, known, best = [], [], 0.0
    for value in x:
        best = max(best, value)
        found.append(best)
        known.append(value > 0)
    return [0.5 if known[k] else found[k] for k in range(8)], found


def values_alone(x):
    found, best = [], 0.0
    for value in x:
        best = max(best, value)
        found.append(best)
    return np.array(found), sum(found), len(found)


PROGRAMS = [
    largest_so_far, largest_beside_each, of_the_last_one, of_an_earlier_one, of_two_places, of_loops_in_rounds,
    asked_afterwards, whole_numbers, one_of_two_by_another_list, values_alone,
]  # fmt: skip


def exact(value):
    """Values and types of all numbers."""
    if isinstance(value, fx.Array):
        value = value.result()
    if isinstance(value, list | tuple):
        return type(value)(map(exact, value))
    return type(value), value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("length", [8, 100])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_same_as_plain(program, length):
    futurized = fx.futurize(program)
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=length)
        x = -np.abs(x) if seed == 1 else x
        x[:5] = -1.0 if seed == 2 else x[:5]
        assert exact(futurized(x)) == exact(program(x))
    assert "staged: " in futurized.explain()


def test_the_loop_is_one_of_the_tree():
    long = np.random.default_rng(0).normal(size=1000)
    futurized = fx.futurize(largest_so_far)
    assert exact(futurized(long)) == exact(largest_so_far(long))
    assert any(node.op == "loop" for node in futurized.trace(long).graph.nodes)
