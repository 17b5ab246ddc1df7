"""Use all GPUs of this machine, one locality each: python gpus.py (needs dask-cuda and the extra `cuda12`)

dask-cuda gives every worker process a GPU of its own. Networks are trained on processors for now; what localities do on
their GPUs are functions of their own, as here the predictions of a trained network, each for its share of the examples.
https://docs.rapids.ai/api/dask-cuda/stable/
"""

import argparse

import numpy as np
from dask_cuda import LocalCUDACluster
from training import rings, train

import futurex as fx


def predict(locality, params, x):
    """This locality's share of the predictions; runs in a worker process that sees one GPU."""
    network = fx.futurize(
        lambda params, x: (np.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]).argmax(axis=1),
        device="gpu",
    )
    return np.asarray(network(params, x))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", help="which, such as 0,1,2,3; all if left out")
    options = parser.parse_args()
    with (
        LocalCUDACluster(CUDA_VISIBLE_DEVICES=options.gpus, threads_per_worker=1, dashboard_address=":0") as workers,
        fx.Cluster(workers) as cluster,
    ):
        params = train(cluster).params
        x, y = rings(np.random.default_rng(1), 100_000)
        found = np.concatenate(cluster.spmd(predict, params, cluster.tile(x)).result(timeout=300))
        print(f"{(found == y).mean():.1%} of {len(y)} predictions on {cluster.size} GPUs are right")


if __name__ == "__main__":
    main()
