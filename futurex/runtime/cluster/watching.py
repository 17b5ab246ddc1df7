"""What the scheduler keeps of training runs, for the dashboard: filled by the events that localities log."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from distributed import Scheduler, SchedulerPlugin

from futurex.runtime.stall import Stall
from futurex.runtime.traffic import FIGURES, Traffic

KEPT_POINTS, KEPT_RUNS = 2000, 20
_PREFIX = "futurex-"


class Watched:
    """One run: what it has said so far, as columns of a table each.

    ``steps`` are its figures over time, ``share`` by locality which part of the latest steps' time it waited for others
    (exposed) and exchanged beside computing (hidden), ``stalls`` the latest reports of who waits for whom.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: deque[dict[str, float]] = deque(maxlen=KEPT_POINTS)
        self.share: dict[int, dict[str, float]] = {}
        self.stalls: deque[str] = deque(maxlen=5)
        self.epochs: list[dict[str, Any]] = []
        self._totals: dict[int, tuple[int, Traffic]] = {}  # by locality: those of the newest generation

    def heard(self, rank: int, event: Mapping[str, Any]) -> None:
        """Take in an event of a locality; those of other kinds are not for the dashboard."""
        match event.get("kind"):
            case "step":
                self._step(event)
            case "epoch":
                self.epochs.append(dict(event))
            case "traffic":
                self._traffic(rank, event["generation"], Traffic(**{name: event[name] for name in FIGURES}))
            case "stall":
                self.stalls.append(str(Stall.heard(event)))

    def _step(self, event: Mapping[str, Any]) -> None:
        now = event["at"]  # by the locality's clock: events may arrive in bursts
        last = self.steps[-1] if self.steps else None
        rate = 0.0
        if last is not None and now > last["time"]:
            rate = (event["step"] - last["step"]) / (now - last["time"])
        self.steps.append({
            "time": now, "step": event["step"], "epoch": event["epoch"], "loss": event["loss"],
            "samples_per_second": event["rate"], "steps_per_second": rate,
        })  # fmt: skip

    def _traffic(self, rank: int, generation: int, total: Traffic) -> None:
        before, counted = self._totals.get(rank, (generation, Traffic()))
        if generation < before:
            return
        latest = total - counted if generation == before else total
        self._totals[rank] = generation, total
        if latest.seconds > 0:
            self.share[rank] = {
                "exposed": min(1.0, latest.exposed / latest.seconds),
                "hidden": min(1.0, latest.hidden / latest.seconds),
                "megabytes_per_second": latest.exchanged_bytes / latest.seconds / 1e6,
                "steps": total.steps,
            }

    @property
    def headline(self) -> str:
        """Where the run is, in one line."""
        if not self.steps:
            return f"{self.name}: no step yet"
        last = self.steps[-1]
        return (
            f"{self.name}: epoch {last['epoch']:.0f}, step {last['step']:,.0f}, loss {last['loss']:.4g}, "
            f"{last['samples_per_second']:,.0f} samples/s, {len(self.share)} localities"
        )


class TrainingPlugin(SchedulerPlugin):
    """Keeps the latest runs by name, and shows them on the dashboard where there is one."""

    name = "futurex-training"
    idempotent = True  # a second driver finds the runs of the first

    def __init__(self) -> None:
        self.runs: dict[str, Watched] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Add the page, if the scheduler has a dashboard that lacks it."""
        from futurex.runtime.cluster import dashboard

        dashboard.add_to(scheduler)

    def log_event(self, topic: str, msg: Any) -> None:
        """An event was logged, of a run or of anything else."""
        if not topic.startswith(_PREFIX) or not isinstance(msg, dict) or not {"run", "rank", "event"} <= msg.keys():
            return
        if not isinstance(msg["event"], dict):
            return
        name = msg["run"]
        if name not in self.runs:
            while len(self.runs) >= KEPT_RUNS:
                del self.runs[next(iter(self.runs))]
            self.runs[name] = Watched(name)
        self.runs[name].heard(int(msg["rank"]), msg["event"])
