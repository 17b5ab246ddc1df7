"""Train on the nodes of a SLURM cluster: python slurm.py --jobs 4 --queue compute (needs dask-jobqueue)

The scheduler runs in this process, on a node that the jobs can reach; every job is a Dask worker process, or several,
and each of those a locality. `--dry-run` prints the script of a job and submits nothing.
https://jobqueue.dask.org/en/latest/generated/dask_jobqueue.SLURMCluster.html
"""

import argparse

from dask_jobqueue import SLURMCluster
from training import train

import futurex as fx


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--localities", type=int, default=1, help="of a job")
    parser.add_argument("--cores", type=int, default=8, help="of a job")
    parser.add_argument("--memory", default="16GB", help="of a job")
    parser.add_argument("--walltime", default="01:00:00")
    parser.add_argument("--queue", help="the partition")
    parser.add_argument("--account")
    parser.add_argument("--interface", help="the network between the nodes, such as ib0")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    threads = max(1, options.cores // options.localities)
    jobs = SLURMCluster(
        queue=options.queue, account=options.account, cores=options.cores, processes=options.localities,
        memory=options.memory, walltime=options.walltime, interface=options.interface,
        # Dask's own threads do nothing here: a locality's kernels have threads of their own, so many each.
        job_script_prologue=[f"export {name}={threads}" for name in ("FUTUREX_THREADS", "OMP_NUM_THREADS")],
        scheduler_options={"dashboard_address": ":0"},
    )  # fmt: skip
    with jobs:
        if options.dry_run:
            print(jobs.job_script())
            return
        jobs.scale(jobs=options.jobs)
        jobs.wait_for_workers(options.jobs * options.localities)
        with fx.Cluster(jobs, timeout=300) as cluster:
            train(cluster)


if __name__ == "__main__":
    main()
