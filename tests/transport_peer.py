"""A process that plays one rank for the tests; `transport_mesh.processes` starts it. It ends when its input does."""

import sys
from contextlib import suppress

import numpy as np
from transport_mesh import PATIENCE, SECRET

from futurex.runtime.collectives import Collective, CollectiveError, MessageCollectives
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


class Ring:
    """The ring all-reduce of one endpoint."""

    def __init__(self, endpoint: Endpoint, **options: int) -> None:
        self.collectives = MessageCollectives(endpoint, **options)

    def start(
        self, buffer: np.ndarray, *, generation: int, step: int, tag: int = 0, timeout: float = 60.0
    ) -> Collective:
        """Begin to sum `buffer` in place."""
        key = generation, step, tag
        return self.collectives.all_reduce([buffer], [buffer], "sum", key, timeout, "ring")


class Reducer:
    """All-reduces of one size, one step after the other."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.ring = Ring(endpoint)

    def heads(self, total: np.ndarray, step: int) -> list[bytes]:
        """Return the first bytes of every rank's result."""
        mine = np.frombuffer(total.tobytes()[:4096], np.uint8)
        outs = [np.empty_like(mine) for _ in range(self.endpoint.size)]
        self.ring.collectives.all_gather(mine, outs, (0, step, 1), PATIENCE).wait(PATIENCE)
        return [out.tobytes() for out in outs]

    def run(self, steps: int, count: int) -> np.ndarray:
        """Return the last sum; every step is a fresh random vector."""
        for step in range(steps):
            total = operand(self.endpoint.rank, step, count)
            self.ring.start(total, generation=0, step=step, timeout=PATIENCE).wait(PATIENCE)
        return total


def main() -> None:
    """Play the role that the arguments name."""
    kind, rank, size, role = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    endpoint = open_endpoint(kind, rank, size, SECRET)
    reducer = Reducer(endpoint)
    echo(endpoint)
    print(endpoint.address.hex(), flush=True)
    endpoint.connect([bytes.fromhex(address) for address in sys.stdin.readline().split()], PATIENCE)
    print("connected", flush=True)
    if role.startswith("reduce"):
        _, steps, count = role.split(":")
        with suppress(CollectiveError):  # another rank is lost: this one stays, so that it is not taken for that one
            total = reducer.run(int(steps), int(count))
            reducer.heads(total, int(steps))
    sys.stdin.read()
    endpoint.close()


if __name__ == "__main__":
    main()
