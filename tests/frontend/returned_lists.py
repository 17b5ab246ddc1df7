"""Functions that return lists of numbers, whose length data decides or the trace knows, alone and beside others."""

import numpy as np


def picked(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v * 2)
    return out


def comprehended(x):
    return [v * 2 for v in x if v > 0]


def places(x):
    out = []
    for i in range(len(x)):
        if x[i] > 0:
            out.append(i)
    return {"where": out, "how many": len(out), "largest": x.max()}


def floats(x):
    out = []
    for v in x:
        if v > 0 or v != v:
            out.append(float(v))
    return out


def truths(x):
    out = []
    for i in range(len(x)):
        if x[i] > 0:
            out.append(bool(x[i] > 1))
    return out, x + 1


def both_sides(x):
    low, high = [], []
    for v in x:
        if v > 0:
            high.append(v)
        else:
            low.append(-v)
    return low, high


def pairs(x):
    out = []
    for i in range(len(x)):
        if x[i] > 0:
            out.append((i, x[i]))
    return out


def nested(x):
    out = []
    for i in range(len(x)):
        if x[i] > 0:
            out.append(((i, x[i] > 1), float(x[i])))
    return [out, x.sum()]


def summed(x):
    out, total = [], 0.0
    for v in x:
        if v > 0:
            out.append(v)
            total += v
    return out, total


def singles(x):
    out = []
    for v in x.astype(np.float32):
        if v > 0:
            out.append(v)
    return out


def others(x):
    out = []
    for i in range(len(x)):
        if x[i] > 0:
            out.append(np.int64(i))
    return out, x[:2].copy()


def popped(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v)
        elif v < -1:
            out.pop()
    return out


COMPUTE = [
    picked, comprehended, places, floats, truths, both_sides, pairs, nested, summed, singles, others, popped,
]  # fmt: skip


def written(x):
    out = []
    for i in range(len(x)):
        if x[i] > 0:
            out.append(x[i])
            x[i] = -x[i]
    return out


def said(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v)
    print("had", len(out))
    return out


def drawn(x, rng):
    out = []
    for v in x:
        if v > rng.random():
            out.append(v)
    return out


def refused(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v)
    if len(out) > 6:
        raise ValueError("too many of them")
    return out


ACT = [written, said, drawn, refused]


def doubled(x):
    return [v * 2 for v in x]


def as_floats(x):
    return {"all": [float(v) for v in x], "sum": x.sum()}


def numbered(x):
    out = []
    for i in range(len(x)):
        out.append((i, x[i] > 0, (float(x[i]), x[i])))
    return out


def either_sign(x):
    out = []
    for v in x:
        if v > 0:
            out.append(v)
        else:
            out.append(v * -2)
    return out, out[3], np.array(out)


def some_of(x):
    out = []
    for i in range(2, len(x)):
        out.append(x[i] - x[i - 1])
    return out[9:], out[:9]


def running(x):
    total, out = 0.0, [0.0]
    for v in x:
        total += float(v)
        out.append(total)
    return out


def of_singles(x):
    return [v for v in x.astype(np.float32)], [i * 3 for i in range(len(x))]  # noqa: C416


def with_start(x):
    out = [x[0]]
    for i in range(1, len(x)):
        out.append(x[i] * x[0])
    out.append(x[2])
    return out, out[-1]


def two_loops(x):
    out = []
    for v in x:
        out.append(int(v))
    for i in range(len(x)):
        out.append(i)
    return out


KNOWN = [with_start, two_loops, doubled, as_floats, numbered, either_sign, some_of, running, of_singles]


def inverses(x):
    return [1.0 / float(v) for v in x]


def by_number(x):
    return {k: v * 2 for k, v in enumerate(x)}
