"""A process that plays one rank for the tests; `transport_mesh.processes` starts it. It ends when its input does."""

import sys

import numpy as np
from transport_mesh import SECRET

from futurex.runtime.collectives import RingAllReduce, SmallCollectives
from futurex.runtime.transport import Endpoint, open_endpoint

ECHO, REPLY = 1, 2


def echo(endpoint: Endpoint) -> None:
    """Send every payload for `ECHO` back to the `REPLY` of its sender."""
    endpoint.register(
        ECHO,
        lambda header, payload: endpoint.send(
            header.source, REPLY, payload, generation=header.generation, step=header.step, tag=header.tag
        ),
    )


def operand(rank: int, step: int, count: int) -> np.ndarray:
    """Return what `rank` contributes to the all-reduce of `step`."""
    return np.random.default_rng((rank, step)).standard_normal(count).astype(np.float32)


class Reducer:
    """All-reduces of one size, one step after the other."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.ring = RingAllReduce(endpoint)
        self.group = SmallCollectives(endpoint)

    def run(self, steps: int, count: int) -> np.ndarray:
        """Return the last sum; every step is a fresh random vector."""
        for step in range(steps):
            total = operand(self.endpoint.rank, step, count)
            self.ring.start(total, generation=0, step=step, timeout=20.0).wait(20.0)
        return total


def main() -> None:
    """Play the role that the arguments name."""
    kind, rank, size, role = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    endpoint = open_endpoint(kind, rank, size, SECRET)
    reducer = Reducer(endpoint)
    echo(endpoint)
    print(endpoint.address.hex(), flush=True)
    endpoint.connect([bytes.fromhex(address) for address in sys.stdin.readline().split()], 20.0)
    print("connected", flush=True)
    if role.startswith("reduce"):
        _, steps, count = role.split(":")
        total = reducer.run(int(steps), int(count))
        digests = reducer.group.all_gather(total.tobytes()[:4096], generation=0, step=int(steps))
        digests.wait(20.0)
    sys.stdin.read()
    endpoint.close()


if __name__ == "__main__":
    main()
