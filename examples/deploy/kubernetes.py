"""Train on pods of a Kubernetes cluster: python kubernetes.py --image REGISTRY/futurex:TAG (needs dask-kubernetes)

The image holds futurex in the driver's version. The operator must run in the cluster:
helm install --repo https://helm.dask.org --create-namespace -n dask-operator --generate-name dask-kubernetes-operator
`--dry-run` prints the resource that would be created. https://kubernetes.dask.org/en/latest/operator_kubecluster.html
"""

import argparse
import json

from dask_kubernetes.operator import KubeCluster, make_cluster_spec
from training import train

import futurex as fx


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", required=True)
    parser.add_argument("--name", default="futurex")
    parser.add_argument("--namespace")
    parser.add_argument("--localities", type=int, default=2, help="worker pods")
    parser.add_argument("--cores", type=int, default=4, help="of a pod")
    parser.add_argument("--memory", default="8Gi", help="of a pod")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    share = {"cpu": str(options.cores), "memory": options.memory}
    threads = {name: str(options.cores) for name in ("FUTUREX_THREADS", "OMP_NUM_THREADS")}
    specification = make_cluster_spec(
        name=options.name, image=options.image, n_workers=options.localities,
        resources={"requests": share, "limits": share}, env=threads,
    )  # fmt: skip
    if options.dry_run:
        print(json.dumps(specification, indent=2))
        return
    with KubeCluster(custom_cluster_spec=specification, namespace=options.namespace) as pods:
        pods.wait_for_workers(options.localities)
        with fx.Cluster(pods, timeout=300) as cluster:
            train(cluster)


if __name__ == "__main__":
    main()
