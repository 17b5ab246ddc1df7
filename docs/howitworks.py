"""# How futurex works

A tour in the order of ideas: from a five-line function to its tree, its derivative, its plan, and its run on two
localities. Every line below is executed when the documentation is checked. Read it as a text; run it with
`python docs/howitworks.py`.
"""

import numpy as np

import futurex as fx

show = print if __name__ == "__main__" else lambda *_: None  # worker processes import this file too, silently

# ## 1. A function
#
# Five lines of NumPy. Nothing in it knows of futurex.


def loss(w, x, y):
    error = x @ w - y
    if (error * error).sum() > 1e6:  # a choice that depends on data
        error = error / 1e3
    return (error * error).mean()


rng = np.random.default_rng(0)
x, y, w = rng.normal(size=(9, 3)), rng.normal(size=9), np.zeros(3)
show("plain NumPy:", loss(w, x, y))

# `futurize` makes it return at once. What comes back is a future that is also an array.

staged = fx.futurize(loss)
value = staged(w, x, y)
show("futurized:  ", value, "| shape and dtype were known at once:", value.shape, value.dtype)
assert float(value) == loss(w, x, y)

# ## 2. The tree
#
# The function was not run by Python: its source was rewritten so that calls, writes and choices on data come to
# futurex, and it was run once on *tracers*. A tracer is a storage cell and a chain of views into it. What remains is a
# graph of immutable nodes. It prints as Python that you can execute, with your own lines as comments. The `if` became
# a `cond` with two closed sub-graphs.

graph = staged.graph(w, x, y)
show(graph)
show(graph.hash, "is the same on every machine; it names uploads and keys caches.")

# Mutation never enters the tree. A write is a `store`, and a view reads through a `load`, so aliasing is exact.


def smooth(u):
    inner = u[1:-1]  # a view: no copy in NumPy, none here
    inner += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


show(fx.futurize(smooth).graph(np.arange(6.0) ** 2))
u, expected = np.arange(6.0) ** 2, np.arange(6.0) ** 2
fx.futurize(smooth)(u)
smooth(expected)
assert np.array_equal(u, expected)  # the caller's array was written, as in NumPy

# ## 3. The derivative
#
# A derivative is a graph made from a graph. Every operation stands in one record: its meaning in NumPy, its shape
# rule, its derivative, how it may be tiled. Reverse mode walks the graph backwards and asks each record for its rule.

from futurex.autodiff import value_and_grad  # noqa: E402
from futurex.tree import record  # noqa: E402

derivative = value_and_grad(graph, wrt=[0])
show(
    f"{len(graph.nodes)} nodes became {len(derivative.nodes)};",
    f"tanh's record says it tiles as {record('tanh').factors!r}",
)
_, slope = derivative(w, x, y)
step = 1e-6 * np.eye(3)
numerical = [(loss(w + h, x, y) - loss(w - h, x, y)) / 2e-6 for h in step]
assert np.allclose(slope, numerical, rtol=1e-5)
show("gradient:", fx.grad(staged)(w, x, y), "numerically:", np.array(numerical))

# ## 4. The plan
#
# Passes simplify the graph and fuse elementwise regions, bit for bit equal to NumPy. Backends claim nodes: oneDNN what
# is heavy in float32, generated loops what is fused, NumPy the rest. Then the plan: instructions over slots, buffers
# reused by liveness, weights updated in place. Replaying it is the hot path.

from futurex.runtime.plan import compile_plan  # noqa: E402


def descent(w, x, y):
    value, gradient = fx.value_and_grad(loss)(w, x, y)
    return value, w - 0.1 * gradient


program = fx.lower(descent, w, x, y)
plan = compile_plan(program.graph, donate={1: 0})  # output 1, the new weights, overwrites input 0
weights = w.copy()
for _ in range(50):
    now, same = plan.run([weights, x, y])
assert same is weights  # no new memory in 50 steps
show(f"after 50 steps: loss {float(now):.4f}; scratch memory {plan.memory.arena} bytes")
for row in plan.profile()[:4]:
    show(f"  {row.op:10} by {row.backend:8} {row.count} times")

# ## 5. Two localities
#
# The same program, with the rows of `x` and `y` cut in two. Placements propagate from the inputs through the tiling
# rule of every operation. Where a sum ran over a cut dimension, each rank holds a part of it, and an `all_reduce` node
# completes it. Communication is a node like any other: it starts when its input exists and overlaps with what else is
# ready.

from futurex.partition import Mesh, Replicate, Shard, explain, partition, virtual  # noqa: E402

mesh = Mesh((("data", 2),))
placements = [Replicate(), Shard(0), Shard(0)]
part = partition(program.graph, placements, mesh, rank=0)
show("rank 0 sees", [str(node.aval) for node in part.params], "and sends")
for communication in explain(part):
    show("  ", communication)

# A virtual mesh runs both ranks here, in lock step. The numbers are those of one locality, to rounding: the loss
# divides by the global number of rows, because the program was traced with global shapes.

whole = program.graph(w, x, y)
for rank_results in virtual.run(program.graph, placements, mesh, [w, x, y]):
    for got, want in zip(rank_results, whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)

# On a Dask cluster each worker process is a locality: it gets the graph once, by its hash, compiles its own part, and
# exchanges sums with the others directly, by active messages.


def main() -> None:
    """Workers import this file again, so the cluster starts under a guard, as always with processes."""
    with fx.Cluster(2) as cluster:
        show(cluster)
        on_two = fx.value_and_grad(staged).on(cluster)
        value, gradient = on_two(w, cluster.tile(x, axis=0), cluster.tile(y, axis=0))
        np.testing.assert_allclose(float(value), loss(w, x, y), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(gradient), numerical, rtol=1e-5)
        show("two localities:", float(value), np.asarray(gradient))


if __name__ == "__main__":
    main()
