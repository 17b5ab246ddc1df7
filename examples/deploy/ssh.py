"""Train on machines that you reach by SSH: python ssh.py HOST1 HOST2 HOST3 (needs asyncssh)

The scheduler runs on the first host, and localities on all of them. Keys must let you in without a password, and every
host needs the driver's Python environment at the same place, or at `--python`.
https://docs.dask.org/en/stable/deploying-ssh.html
"""

import argparse

from distributed import SSHCluster
from training import train

import futurex as fx


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", nargs="+")
    parser.add_argument("--localities", type=int, default=1, help="of a host")
    parser.add_argument("--python", help="path of Python on the hosts")
    parser.add_argument("--port", type=int, default=22, help="of the SSH servers")
    parser.add_argument("--user")
    parser.add_argument("--key", help="file of the private key")
    parser.add_argument("--known-hosts", help="file of the hosts' keys, if not ~/.ssh/known_hosts")
    options = parser.parse_args()
    login = {"username": options.user, "client_keys": options.key, "known_hosts": options.known_hosts}
    machines = SSHCluster(
        [options.hosts[0], *options.hosts],
        connect_options={"port": options.port, **{name: value for name, value in login.items() if value}},
        worker_options={"nthreads": 1, "n_workers": options.localities},
        scheduler_options={"port": 0, "dashboard_address": ":0"},
        remote_python=options.python,
    )
    with machines:
        machines.wait_for_workers(len(options.hosts) * options.localities)
        with fx.Cluster(machines) as cluster:
            train(cluster)


if __name__ == "__main__":
    main()
