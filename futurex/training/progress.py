"""Progress of a run in the terminal: one live line, or one plain line per epoch where nobody watches."""

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

from futurex.errors import MissingExtra, require

SHOWN = ("loss", "val_loss", "accuracy", "samples_per_second", "seconds")


class Progress:
    """Shows how far a run is: live in a terminal with `rich` (extra `train`), else one line per epoch.

    >>> with Progress(total_steps=200, epochs=2) as progress:
    ...     progress.update(step=1, epoch=1, loss=2.3, samples_per_second=5000.0)
    ...     progress.epoch({"epoch": 1, "loss": 1.1, "samples_per_second": 5100.0})
    """

    def __init__(self, total_steps: int, epochs: int, stream: TextIO | None = None) -> None:
        """`stream` is standard error by default. Raises `ValueError` for a run without steps or epochs."""
        if total_steps < 1 or epochs < 1:
            raise ValueError(f"total_steps and epochs must be at least 1, not {total_steps} and {epochs}")
        self.epochs = epochs
        self._stream = sys.stderr if stream is None else stream
        self._bar: Any = None
        self._task: Any = None
        if self._stream.isatty():
            self._bar, self._task = _live_line(self._stream, total_steps)

    def update(self, step: int, epoch: int, loss: float, samples_per_second: float) -> None:
        """Show that `step` steps (of all epochs) are done; `epoch` is counted from 1."""
        if self._bar is not None:
            rate = f"{samples_per_second:,.0f} samples/s"
            self._bar.update(self._task, completed=step, epoch=f"{epoch}/{self.epochs}", loss=f"{loss:.4f}", rate=rate)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Print one line about an epoch that has ended: those of the usual figures that `record` has."""
        figures = [f"{name} {_show(record[name])}" for name in SHOWN if record.get(name) is not None]
        line = f"epoch {record['epoch']}/{self.epochs}  " + "  ".join(figures)
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """End the live line; further calls do nothing."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> "Progress":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the live line, whatever happened."""
        self.close()


def _live_line(stream: TextIO, total_steps: int) -> tuple[Any, Any]:
    try:
        columns = require("rich.progress", "train")
        console = require("rich.console", "train").Console(file=stream)
    except MissingExtra:
        return None, None  # plain lines say the same
    bar = columns.Progress(
        columns.TextColumn("epoch {task.fields[epoch]}"),
        columns.BarColumn(bar_width=None),
        columns.MofNCompleteColumn(),
        columns.TextColumn("loss {task.fields[loss]}"),
        columns.TextColumn("{task.fields[rate]}"),
        columns.TimeRemainingColumn(),
        console=console,
        expand=True,
    )
    task = bar.add_task("", total=total_steps, epoch="-", loss="-", rate="")
    bar.start()
    return bar, task


def _show(value: Any) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
