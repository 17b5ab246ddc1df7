"""Two or more processes that train together, one processor each, driven from the benchmark's child process."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import cases, networks
from benchmarks.workloads.group import Group

SMALL = {"har": "har-adam", "mlp": "mlp-adam"}
NAMES = (*SMALL, "resnet50")


class Team(Group):
    """``size`` ranks of a training step; a step ends when its slowest rank has ended it."""

    def __init__(self, rank: str, size: int, options: dict[str, Any]) -> None:
        super().__init__(rank, size, 0, options)

    def check(self, steps: int) -> list[float]:
        """Return the first losses of the whole batch: the means over the ranks, without dropout."""
        return np.mean(self._ask(("check", steps)), axis=0).tolist()

    def begin(self) -> None:
        """Begin to measure communication."""
        self._ask(("begin",))

    def exposed(self) -> list[float] | None:
        """Return the shares of the steps since `begin` in which something was in flight, and was waited for.

        The largest of the ranks, and behind them the smallest share of waiting: that of a rank for which the others
        waited, where it is far from the largest.
        """
        shares = self._ask(("shares",))
        return None if shares[0] is None else [*np.max(shares, axis=0).tolist(), min(each[1] for each in shares)]


def pin(rank: int) -> None:
    """Keep this process on one processor of its own, as far as there are enough."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[rank % len(allowed)]})


def title(name: str) -> str:
    """Return what a case is called; its batch is that of one rank."""
    return cases.CASES[SMALL[name]].title if name in SMALL else networks.NETWORKS[name].title


def batch(name: str, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what one rank sees at every step."""
    return cases.batch(name, rank + 1) if name in SMALL else networks.batch(name, rank + 1)


def write_weights(name: str, folder: Path) -> str:
    """Save initial weights for every rank of every stack and return the path of the file."""
    path = folder / f"{name}.pickle"
    if name in SMALL:
        with path.open("wb") as file:
            pickle.dump(cases.weights(name), file, protocol=5)
    else:
        networks.write_weights(name, path)
    return str(path)


class FuturexTrainer:
    """The step as a program with global shapes, partitioned over the ranks: what ``fx.fit`` does on a cluster."""

    def __init__(self, rank: int, size: int, _: int, gather: Callable[[bytes], list[bytes]], name: str, weights: str,
                 kind: str = "auto", compression: str = "", local: bool = False) -> None:  # fmt: skip
        import secrets

        from futurex.runtime.collectives import Communicator
        from futurex.runtime.group import Locality
        from futurex.runtime.transport import open_endpoint

        pin(rank)
        self._name, self._weights, self._compression, self._local = name, weights, compression or None, local
        self._endpoint = open_endpoint(kind, rank, size, gather(secrets.token_bytes(32))[0])
        self._communicator = Communicator(self._endpoint)
        self._endpoint.connect(gather(self._endpoint.address), 60.0)
        self._communicator.calibrate()
        self._locality = Locality(rank, size, 1, lambda event: None, self._communicator)
        self._step = self._build(cases.DROPOUT[name] if name in SMALL else 0.0)
        self._before = (0.0, 0.0)
        self._seconds = 0.0

    def check(self, steps: int) -> list[float]:
        """Return the first losses without dropout."""
        step = self._build(0.0)
        return [step() for _ in range(steps)]

    def time(self, repetitions: int) -> list[float]:
        """Return the seconds of each of ``repetitions`` steps."""
        found = timed(self._step, repetitions)
        self._seconds += sum(found)
        return found

    def begin(self) -> None:
        """Begin to measure communication."""
        self._before, self._seconds = self._communicator.times(), 0.0

    def shares(self) -> list[float]:
        """Return the shares of the time in which something was in flight, and was waited for."""
        now = self._communicator.times()
        return [(after - before) / self._seconds for after, before in zip(now, self._before, strict=True)]

    def close(self) -> None:
        """Leave the group."""
        self._communicator.barrier(60.0)
        self._endpoint.close()

    def _build(self, dropout: float) -> Callable[[], float]:
        import futurex as fx
        from benchmarks.workloads import futurex_side, networks_futurex
        from futurex.partition import Replicate, Shard
        from futurex.tree.pytree import flatten

        rank, size = self._locality.rank, self._locality.size
        with Path(self._weights).open("rb") as file:
            params = pickle.load(file)
        if self._name in SMALL:
            case = cases.CASES[SMALL[self._name]]
            optimizer = futurex_side.optimizer_for(case.optimizer, case.rate)
            of_case = fx.value_and_grad(futurex_side.loss_of(case.model, dropout))

            def step(params: Any, moments: Any, x: Any, y: Any, key: Any) -> Any:
                loss, gradient = of_case(params, x, y, key)
                params, moments = optimizer.update(params, gradient, moments)
                return params, moments, loss

            held = [params, optimizer.init(params)]
        else:
            step, optimizer = networks_futurex.training_step(self._name, dropout, self._local)
            held = networks_futurex.initial(self._name, self._weights, optimizer)
        parts = [batch(self._name, other) for other in range(size)]
        whole = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        program = fx.lower(step, *held, *whole, np.uint64(1))
        kept = len(flatten(held)[0])
        placements = [*(Replicate(),) * kept, Shard(0), Shard(0), Replicate()]
        donate = {k: k for k in range(kept) if not program.graph.params[k].aval.weak}
        compiled = self._locality.compile(program.graph, placements, donate, self._compression)
        values = program.flatten(*held, *parts[rank], np.uint64(1))
        count = 0

        def run() -> float:
            nonlocal count
            count += 1
            values[-1] = np.uint64(count)
            results = compiled(list(values))  # checks stand behind the loss
            values[:kept] = results[:kept]
            return float(results[kept])

        return run


class TorchTrainer:
    """The step in PyTorch eager under DistributedDataParallel over gloo, channels last where that is faster."""

    def __init__(self, rank: int, size: int, _: int, gather: Callable[[bytes], list[bytes]], name: str, weights: str
                 ) -> None:  # fmt: skip
        import datetime

        import torch
        from torch import distributed

        pin(rank)
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        self._rank, self._name, self._weights = rank, name, weights
        self._meeting = Path(tempfile.mkdtemp(prefix="gloo-")) / "store"
        store = gather(str(self._meeting).encode())[0].decode()
        distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=120)
        )
        self._step = self._build(cases.DROPOUT[name] if name in SMALL else 0.0)

    def check(self, steps: int) -> list[float]:
        """Return the first losses of this rank's part, without dropout."""
        step = self._build(0.0)
        return [step() for _ in range(steps)]

    def time(self, repetitions: int) -> list[float]:
        """Return the seconds of each of ``repetitions`` steps."""
        return timed(self._step, repetitions)

    def begin(self) -> None:
        """PyTorch does not say what it waits for."""

    def shares(self) -> None:
        """PyTorch does not say what it waits for."""

    def close(self) -> None:
        """Leave the group and remove its meeting place."""
        from torch import distributed

        distributed.barrier()
        distributed.destroy_process_group()
        self._meeting.unlink(missing_ok=True)
        self._meeting.parent.rmdir()

    def _build(self, dropout: float) -> Callable[[], float]:
        import torch
        from torch.nn import functional
        from torch.nn.parallel import DistributedDataParallel

        from benchmarks.workloads import networks_torch, torch_side

        with Path(self._weights).open("rb") as file:
            params = pickle.load(file)
        inputs, labels = batch(self._name, self._rank)
        optimizer: torch.optim.Optimizer
        if self._name in SMALL:
            case = cases.CASES[SMALL[self._name]]
            model: Any = torch_side.network(self._name, dropout, channels_last=True)
            model.load(params)
            x = model.arrange(inputs)
            model = DistributedDataParallel(model)
            optimizer = torch_side.optimizer_for(model, case.optimizer, case.rate)
        else:
            network = networks.NETWORKS[self._name]
            model = networks_torch._MAKE[self._name](params, dropout).to(memory_format=torch.channels_last)
            x = torch.from_numpy(inputs).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
            model = DistributedDataParallel(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=network.rate, momentum=networks.MOMENTUM, fused=True)
        y = torch.from_numpy(labels.astype(np.int64))

        def step() -> float:
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step


def timed(step: Callable[[], object], repetitions: int) -> list[float]:
    """Return the seconds of each step."""
    import time

    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds
