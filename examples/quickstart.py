"""Write NumPy; get futures, gradients and a training run. Runs in a few seconds: python examples/quickstart.py"""

import asyncio

import numpy as np

import futurex as fx

rng = np.random.default_rng(0)
x = rng.standard_normal((512, 6)).astype(np.float32)
y = (x[:, :3] + 0.1 * rng.standard_normal((512, 3))).argmax(axis=1)
params = {
    "w1": (rng.standard_normal((6, 32)) / 3).astype(np.float32),
    "b1": np.zeros(32, np.float32),
    "w2": (rng.standard_normal((32, 3)) / 6).astype(np.float32),
    "b2": np.zeros(3, np.float32),
}


@fx.futurize  # plain NumPy below: no new array API to learn
def predict(params, x):
    h = np.maximum(x @ params["w1"] + params["b1"], 0)
    return h @ params["w2"] + params["b2"]


@fx.futurize
def loss(params, x, y):
    return fx.nn.softmax_cross_entropy(predict(params, x), y).mean()


def accuracy(params, x, y):
    return (predict(params, x).argmax(axis=1) == y).mean()


async def later(value):
    return await value


def main():
    f = loss(params, x, y)  # a future that is also an array: shape and dtype known at once
    g = fx.grad(loss)(params, x, y)  # starts without waiting for f
    print(f"loss {float(f):.3f}, awaited {asyncio.run(later(f)):.3f}, gradient {g['w1'].shape} {g['w1'].dtype}")

    graph = loss.graph(params, x, y)  # the tree of the call; print(graph) is executable Python
    print(f"the loss is a tree of {len(graph.nodes)} operations: {', '.join(dict.fromkeys(n.op for n in graph.nodes))}")

    train, test = (x[:400], y[:400]), (x[400:], y[400:])
    run = fx.fit(
        loss, params, train, optimizer=fx.optim.adam(1e-2), epochs=10, validation=test, metrics={"accuracy": accuracy}
    )
    print("fit returned at once:", run)
    trained = run.result(timeout=120)
    print(run)
    print(f"accuracy on unseen examples {run.history[-1]['accuracy']:.1%}, loss {float(loss(trained, *test)):.3f}")


if __name__ == "__main__":
    main()
