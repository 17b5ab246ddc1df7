"""Train on a Dask cluster that is already running: python scheduler.py tcp://HOST:8786

Start it with `dask scheduler` on one machine and `dask worker tcp://HOST:8786 --nthreads 1` on each of the others, in
an environment like the driver's. `futurex doctor --scheduler tcp://HOST:8786` says whether all is well. Where the
cluster encrypts (tls://HOST:8786), Dask's configuration names the certificates:
https://distributed.dask.org/en/stable/tls.html
"""

import argparse

from training import train

import futurex as fx


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="of the scheduler")
    options = parser.parse_args()
    with fx.Cluster(options.address) as cluster:
        train(cluster)


if __name__ == "__main__":
    main()
