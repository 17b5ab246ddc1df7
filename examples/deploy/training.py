"""What the scripts beside this one run: a network trained on all localities of a cluster."""

import numpy as np

import futurex as fx


def loss(params, x, y):
    hidden = np.tanh(x @ params["w1"] + params["b1"])
    return fx.nn.softmax_cross_entropy(hidden @ params["w2"] + params["b2"], y).mean()


def accuracy(params, x, y):
    hidden = np.tanh(x @ params["w1"] + params["b1"])
    return ((hidden @ params["w2"] + params["b2"]).argmax(axis=1) == y).mean()


def rings(rng, n):
    """Points of two classes: in a disc, and in the ring around it."""
    y = rng.integers(0, 2, n)
    radius, angle = rng.uniform(0.0, 1.0, n) + y, rng.uniform(0.0, 2 * np.pi, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32), y


def train(cluster, epochs=20):
    """Train on the cluster; print what it is, how far it got, and what its localities exchanged."""
    print(cluster, "dashboard:", cluster.dashboard, flush=True)
    rng = np.random.default_rng(0)
    params = {
        "w1": rng.normal(size=(2, 32)).astype(np.float32), "b1": np.zeros(32, np.float32),
        "w2": rng.normal(size=(32, 2)).astype(np.float32) * 0.2, "b2": np.zeros(2, np.float32),
    }  # fmt: skip
    run = fx.fit(
        loss, params, rings(rng, 4096), optimizer=fx.optim.adam(1e-2), epochs=epochs, batch_size=256, on=cluster,
        validation=rings(rng, 1024), metrics={"accuracy": accuracy},
    )  # fmt: skip
    run.result(timeout=600)
    print(f"accuracy {run.history[-1]['accuracy']:.1%}")
    for rank, counters in enumerate(run.counters):
        print(f"locality {rank}: {counters}")
    return run
