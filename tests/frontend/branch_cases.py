"""Functions with branches on data."""

import numpy as np
from compare import Cases

cases = Cases()
V = np.linspace(-1.0, 2.0, 7)
X = np.arange(12.0).reshape(3, 4)
LONG = np.sin(np.arange(40.0))
F4 = LONG.astype(np.float32)


@cases(V)
@cases(-V)
def branches(x):
    if x.sum() > 2:
        y = x * 2
    elif x.sum() > 0:
        y = x + 1
    else:
        y = -x
    return y


@cases(V)
@cases(-V)
def a_branch_without_else(x):
    y = x.copy()
    if x[0] < 0:
        y[0] = 5
        z = y.sum()
    else:
        z = x[1]
    if x[1] > 100:
        y *= 0
    return y, z


@cases(V)
@cases(-V)
def early_returns(x):
    if x[0] > 0:
        return x * 2
    if x[1] > 0:
        return x * 3
    y = x + 1
    if y[2] > 0:
        return y
    return y * 4


@cases(V, 3.0)
@cases(V, 1.0)
def nested_branches(x, a):
    y = x.copy()
    if x.max() > a:
        y += 1
        if a > 2:
            y[0] = 9
        elif x.min() < 0:
            y[1] = a
        z = y * 2
    else:
        if x.max() == 2:
            z = y - 1
        else:
            z = y
    return y, z


@cases(V, 1.0, 1.0)
@cases(V, 1.0, -1.0)
@cases(V, -1.0, 1.0)
def written_behind_branches_that_merged_it_twice(x, a, b):
    if a > 0:
        y = x if b > 0 else x + 1
    else:
        y = x * 3
    y[0] = 100
    return x.sum()


@cases(V)
@cases(-V)
def bound_in_one_branch_and_used_there(x):
    if x[0] > 0:
        y = x * 2
    z = 1.0
    if x[0] > 0:
        z = y.sum()
    return x + z


@cases(V)
@cases(-V)
def bound_in_one_branch_only(x):
    if x[0] > 0:
        y = x * 2
    return y + 1


@cases(V)
def never_bound(x):
    if x[0] > 0:
        y = x
    else:
        x = x + 1
    return y


@cases(V)
@cases(-V)
def ternary_and_logic(x):
    a = x[0] if x[0] > 0 else -x[0]
    b = x[1] > 0 and x[2] > 0
    c = x[1] > 0 or x[6] > 100
    d = not (x[0] > 0)
    e = 0 < x[3] < 2
    return a, b, c, d, e, x[0] != x[1] > x[2]


@cases(V)
@cases(-V)
def minus_zero_is_not_zero(x):
    y = 0.0 if x[0] > 0 else -0.0
    return np.copysign(1.0, y)


@cases(X)
def membership(x):
    return 3.0 in x, 100.0 in x, x[0, 1] in (1, 2), x[0, 1] not in [5.0, 6.0], 3 in [1, 2, 3]


@cases(F4, 1.0)
@cases(F4, -1.0)
def a_type_that_depends_on_data(x, a):
    y = 0.1
    if a > 0:
        y = x[3]
    return y


@cases(np.float64(1.0), F4)
@cases(np.float64(-1.0), F4)
def a_promotion_that_depends_on_data(a, x):
    y = 0.1
    if a > 0:
        y = a * 2
    return x * y


@cases(np.float64(1.0), LONG)
@cases(np.float64(-1.0), LONG)
def a_promotion_that_does_not(a, x):
    y = 0.1
    if a > 0:
        y = a * 2
    return x * y, y + 1


@cases(V)
@cases(-V)
def deleting_names(x):
    y = x * 2
    t = y + 1
    del y
    return t if x[0] > 0 else t * 2


@cases(V)
@cases(-V)
def lists_in_branches(x):
    parts = [x, x * 2]
    if x[0] > 0:
        parts = [parts[1], parts[0]]
    a, *rest = parts
    return a, rest


@cases(V)
@cases(-V)
def a_list_grows_in_a_branch(x):
    parts = [x]
    if x[0] > 0:
        parts.append(x * 2)
    return parts


@cases(V)
@cases(-V)
def an_alias_in_one_branch(x):
    a, b = x.copy(), x * 2
    c = a if x[0] > 0 else b
    c[0] = 100.0
    return a, b, c


@cases(V)
@cases(-V)
def an_alias_that_is_only_read(x):
    a, b = x.copy(), x * 2
    c = a if x[0] > 0 else b
    return a, c + 1


@cases(V, 3)
def match_on_python_values(x, n):
    match n:
        case 1 | 2:
            y = x
        case int(k) if k > 2:
            y = x * k
        case _:
            y = -x
    return y


ITERATOR_SOURCE = [1.0, 2.0, 3.0]


@cases(V, staged=False)
@cases(-V, staged=False)
def an_iterator_in_a_branch(x):
    it = iter(ITERATOR_SOURCE)
    first = next(it)
    if x[0] > 0:
        y = next(it)
    else:
        y = next(it) * 2
    return first + y + next(it)


@cases(V)
def an_iterator(x):
    it = iter([1.0, 2.0, 3.0])
    y = x * next(it)
    return y + next(it)


@cases(V)
@cases(-V)
def none_in_one_branch(x):
    y = None
    if x[0] > 0:
        y = x * 2
    if y is None:
        y = x - 1
    return y


@cases(V)
@cases(-V)
def text_in_a_branch(x):
    mode = "double"
    if x[0] > 0:
        mode = "triple"
    return x * 2 if mode == "double" else x * 3


@cases(V)
@cases(-V)
def another_dtype_in_a_branch(x):
    y = x.astype(np.float32)
    if x[0] > 0:
        y = x
    return float(y.sum())


@cases(V)
@cases(-V)
def another_rank_in_a_branch(x):
    y = x
    if x[0] > 0:
        y = x.reshape(1, -1) * 2
    return y.sum(), (y + 1).max()


@cases(V)
@cases(-V)
def a_list_that_grew_in_a_branch(x):
    parts = [x]
    if x[0] > 0:
        parts.append(x * 2)
    if x[1] > 0:
        parts.insert(0, x * 3)
    return sum(parts), len(parts)


@cases(V)
@cases(-V)
def a_list_changed_in_a_branch(x):
    parts, table = [x, x * 2], {"a": x}
    if x[0] > 0:
        parts[0] = x * 3
    else:
        table["a"] = parts.pop()
        parts.append(table["a"] * 2)
    return parts, table


@cases(V)
@cases(-V)
def an_identity_after_branches(x):
    y = None
    if x[0] > 0:
        y = x
    flag = 1 if y is None else 2
    return x * flag


@cases(V, 3)
@cases(-V, 1)
def patterns(x, n):
    match int(x[0]), n, {"kind": "a", "x": x}:
        case 1, int(k), {"x": y} if k > 1:
            y = y * 2
        case (1 | -1) as sign, k, {"kind": "a", **rest}:
            y = rest["x"] * sign + k
        case _:
            y = x
    match [x, x * 2, x * 3]:
        case [first, *_, last]:
            y = y + first * last
    return y


@cases(V)
@cases(-V)
def patterns_of_traced_values(x):
    match int(x[0]):
        case 1:
            return x * 2
        case -1 | 5:
            y = x * 3
        case k if k > 3:
            y = x
        case _:
            y = -x
    return y + 1


class Base:
    factor = 2.0

    def apply(self, x):
        return x * self.factor

    @property
    def twice(self):
        return self.factor * 2


class Derived(Base):
    def __init__(self, bias):
        super().__init__()
        self.bias = bias

    def apply(self, x):
        return super().apply(x) + self.bias * super().twice


@cases(V)
def methods_of_a_base(x):
    return Derived(x[0]).apply(x)


@cases(V)
@cases(-V)
def chains_with_in_and_is(x):
    n = 3
    return 0 < n in (1, 3), n is not None is not True, 0 < x[0] < 2 != x[1], x[0] in (1.0, 2.0)


@cases(V)
def deleted_attributes(x):
    d = Derived(x)
    had = hasattr(d, "bias")
    del d.bias
    import math

    return had, hasattr(d, "bias"), x * math.pi


@cases(X)
def a_variable_named_values(x):
    values = x * 2
    if x.sum() > 0:
        values = values + 1
    return values


@cases(V, staged=False)
@cases(-V, staged=False)
def the_same_array_in_one_branch(x):
    y = x + 1
    z = y
    if x[0] < 0:
        z = y * 2
    return z is y, z is not y


@cases(V)
@cases(-V)
def another_array_in_both_branches(x):
    y = x + 1
    z = y * 2
    if x[0] < 0:
        z[0] = 3
    return z is y, z is z, x is not None


@cases(X)
@cases(-X)
@cases(X - 5)
def views_of_a_round_that_may_end_before(x):
    table = x.copy()
    for _ in range(30):
        j = int(np.argmin(table[-1]))
        if table[-1, j] >= 0.2:
            break
        column = table[:, j]
        i = int(np.argmin(column))
        table[i] += np.abs(table[i, j]) + 1
    return table


@cases(X)
@cases(-X)
def views_that_a_branch_looks_at(x):
    table, total, row = x.copy(), 0.0, x[2]
    total += row.sum()
    while total < 40 and table[0, 0] > -50:
        if table.sum() > 0:
            row = table[1]
            row *= 0.5
            total += row.sum()
        else:
            column = table[:, 0]
            column -= 1
            if column[1] < -9:
                continue
            last = column[2]
            total += last * last
        table[0] -= 0.5
    return table, total


@cases(X)
@cases(-X)
def a_view_that_is_read_behind_its_branch(x):
    table, row = x.copy(), x[2]
    for k in range(8):
        if table[0, 1] > k:
            row = table[1] + 0
            half = row / 2
            table[0] += half.sum()
        table[1] -= row
    return table, row
