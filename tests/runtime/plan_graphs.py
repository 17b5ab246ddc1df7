"""Random graphs over a few operations: elementwise, products, reductions, views, writes, selections, branches."""

import weakref

import numpy as np
from hypothesis import strategies as st

import futurex.ops  # noqa: F401  (registers the records)
from futurex.kernels.registry import Kernel
from futurex.tree import Aval, Graph, apply, item, param

F8 = np.dtype(float)
ROWS = (("index", (("s", 0, 2, None),)),)
FLIP = (("flip", (0,)),)


def matrix(name="", n=3):
    return param(Aval((n, n), F8), name)


def branch(function, count=2):
    params = [matrix(f"p{k}") for k in range(count)]
    return Graph(params, function(*params), "branch")


def _cond(x, y):
    then = branch(lambda a, b: [a @ b, b])
    orelse = branch(lambda a, b: [a - b, apply("transpose", a, axes=(1, 0))])
    total = apply("sum", x, axis=None, keepdims=False, dtype=None)
    return apply("cond", apply("greater", total, 0.0), x, y, then=then, orelse=orelse)


UNARY = {
    "tanh": lambda x: apply("tanh", x),
    "scaled": lambda x: 0.5 * x,
    "transposed": lambda x: apply("transpose", x, axes=(1, 0)),
    "reshaped": lambda x: apply("reshape", apply("reshape", x, shape=(9,)), shape=(3, 3)),
    "flipped": lambda x: apply("load", x, chain=FLIP),
    "broadcast": lambda x: apply("broadcast_to", apply("load", x, chain=(("index", (("i", 1),)),)), shape=(3, 3)),
    "column sums": lambda x: apply("sum", x, axis=(0,), keepdims=True, dtype=None) + x,
}
BINARY = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: apply("tanh", x * y),
    "matmul": lambda x, y: apply("tanh", x @ y),
    "where": lambda x, y: apply("where", apply("less", x, y), x, y),
    "store": lambda x, y: apply("store", x, apply("load", y, chain=ROWS), chain=ROWS, mode="set"),
    "store flipped self": lambda x, y: apply("store", x, apply("load", x, chain=FLIP), chain=FLIP, mode="add"),
    "cond first": lambda x, y: item(_cond(x, y), 0),
    "cond second": lambda x, y: item(_cond(x, y), 1),
}


@st.composite
def graphs(draw, n_params=2, max_nodes=10):
    params = [matrix(f"x{k}") for k in range(n_params)]
    nodes = list(params)
    for _ in range(draw(st.integers(1, max_nodes))):
        if draw(st.booleans()):
            nodes.append(UNARY[draw(st.sampled_from(sorted(UNARY)))](draw(st.sampled_from(nodes))))
        else:
            pair = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
            nodes.append(BINARY[draw(st.sampled_from(sorted(BINARY)))](*pair))
    outs = [nodes[-1], *draw(st.lists(st.sampled_from(nodes), max_size=3))]
    return Graph(params, outs, "random")


def inputs(seed=0, n_params=2, n=3):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, n)) for _ in range(n_params)]


class Tracking:
    """Runs cumulative sums into arrays of its own and counts those that are alive."""

    name = "tracking"

    def __init__(self):
        self.made = []
        self.most = 0

    def claim(self, node, threads):
        return Kernel(self.call, self.name) if node.op == "cumsum" else None

    def call(self, out, x):
        result = np.cumsum(x, axis=0)
        self.made.append(weakref.ref(result))
        self.most = max(self.most, sum(each() is not None for each in self.made))
        return result
