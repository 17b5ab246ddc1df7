"""Names that only some runs bind: Python looks where they are read, whatever is done with them."""

# ruff: noqa: F821, F841

import numpy as np
import pytest

import futurex as fx


def another_name(x):
    if x[0] > 0:
        found = x[1]
    y = found
    return x[0]


def in_a_list(x):
    if x[0] > 0:
        found = x[1]
    y = [found]
    return x[0]


def an_argument(x):
    if x[0] > 0:
        found = x[1]
    def g(v):
        return 3.0
    return g(found)


def found_in_a_loop(x):
    for v in x:
        if v > 2:
            found = v
    try:
        return found
    except NameError:
        return -1.0


def tried(x):
    if x[0] > 0:
        found = x[1]
    try:
        y = found
    except NameError:
        y = -1.0
    return y


def tried_in_a_tuple(x):
    if x[0] > 0:
        found = x[1]
    try:
        return (found, 1)
    except NameError:
        return -1.0, 0


def a_tuple(x):
    if x[0] > 0:
        found = x[1], x[0]
    y = found
    return x[2]


def in_rounds(x):
    for v in x:
        if v > 2:
            found = v
        if v > 1.5:
            y = found
    return x[2]


def bound_by_the_round_before(x):
    n = 0
    for v in x:
        if n > 0:
            d = last
            n = n + 1
        last = v
        n += 1
    return n, last


def bound_where_it_goes_on(x):
    t = 0.0
    for m in range(3):
        if x[m] > 0:
            w = x[m] * 2
        else:
            continue
        t = t + w
        u = w
    return t


def in_a_while_loop(x):
    if x[0] > 0:
        found = x[1]
    s = 0
    while s < 3:
        s += 1
        z = found
    return s


def one_of_two(x):
    if x[0] > 0:
        found = x[1]
    return x[0] if x[2] > 0 else found


def a_statement(x):
    if x[0] > 0:
        found = x[1]
    found
    return 2.0


def in_a_comprehension(x):
    if x[0] > 0:
        found = x[1]
    return [found for _ in range(2)] and 3.0


def its_shape(x):
    if x[0] > 0:
        found = x[1:]
    return found.shape[0]


def deleted(x):
    found = x[1]
    if x[0] > 0:
        found = x[2]
    del found
    if x[1] > 2:
        found = x[0]
    y = found
    return x[2]


def handled(x):
    try:
        if x[0] > 0:
            raise ValueError("positive")
        found = x[1]
    except ValueError:
        y = 1.0
    z = found
    return x[2]


def matched(x):
    match int(x[1]):
        case 1:
            found = x[0]
        case 3:
            found = x[2]
    y = found
    return x[1]


PROGRAMS = [
    another_name, in_a_list, an_argument, found_in_a_loop, tried,
    tried_in_a_tuple, a_tuple, in_rounds, bound_by_the_round_before, bound_where_it_goes_on,
    in_a_while_loop, one_of_two, a_statement, in_a_comprehension,
    its_shape, deleted, handled, matched,
]


def said(program, x):
    try:
        found = program(np.array(x))
        leaves = found if isinstance(found, tuple) else (found,)
        return [each.item() if hasattr(each, "item") else each for each in leaves]
    except NameError as error:
        return type(error), str(error).split("\n")[0]


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_that_some_runs_bind(program):
    f = fx.futurize(program)
    for x in ([3.0, 1, 2], [-1.0, 1, 2], [-1.0, 3, -2], [1.0, 1, -1], [3.0, 1, 2]) * 2:
        assert said(f, x) == said(program, x), f.explain()
    if not program.__name__.startswith(("tried", "found", "handled")):
        assert "plain NumPy" not in f.explain(), f.explain()
