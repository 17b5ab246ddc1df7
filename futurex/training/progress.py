"""Progress of a run: one live line in a terminal or a notebook, one plain line per epoch where nobody watches."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TextIO

from futurex.errors import MissingExtra, require

TAKEN = frozenset({
    "epoch", "step", "loss", "finite", "seconds", "samples_per_second", "val_loss", "comm_seconds",
    "exposed_comm_seconds", "hidden_comm_share",
})  # fmt: skip
"""What records of epochs say of themselves; all other figures are the user's own."""
_P = ParamSpec("_P")


def _where_it_can_be(
    show: Callable[Concatenate["Progress", _P], None],
) -> Callable[Concatenate["Progress", _P], None]:
    """Show nothing where nothing can be written any more (a terminal that hung up, a full disk, a file that was
    closed): that is no reason to end a training.
    """

    @functools.wraps(show)
    def shown(self: "Progress", *args: _P.args, **named: _P.kwargs) -> None:
        with contextlib.suppress(OSError, ValueError):
            show(self, *args, **named)

    return shown


class Progress:
    """Shows how far a run is: live in a terminal with `rich` (extra `train`), and below the cell of a notebook that
    started it; else one line per epoch.

    >>> with Progress(total_steps=200, epochs=2) as progress:
    ...     progress.update(step=1, epoch=1, loss=2.3, samples_per_second=5000.0)
    ...     progress.epoch({"epoch": 1, "loss": 1.1, "samples_per_second": 5100.0})
    """

    def __init__(self, total_steps: int, epochs: int, stream: TextIO | None = None, note: str = "") -> None:
        """`stream` is standard error by default; `note` is shown below a notebook's line. Raises `ValueError` for a run
        without steps or epochs.
        """
        if total_steps < 1 or epochs < 1:
            raise ValueError(f"total_steps and epochs must be at least 1, not {total_steps} and {epochs}")
        self.epochs = epochs
        self._stream: TextIO | None = sys.stderr if stream is None else stream  # None: the process has no such file
        self._steps = total_steps
        self._bar: Any = None
        self._task: Any = None
        self._cell = _Cell(note) if stream is None and _in_a_notebook() else None
        self._begin()

    @_where_it_can_be
    def _begin(self) -> None:
        if self._cell is None and self._stream is not None and self._stream.isatty():
            self._bar, self._task = _live_line(self._stream, self._steps)

    @_where_it_can_be
    def update(self, step: int, epoch: int, loss: float, samples_per_second: float) -> None:
        """Show that `step` steps (of all epochs) are done; `epoch` is counted from 1."""
        rate = f"{samples_per_second:,.0f} samples/s"
        if self._cell is not None:
            self._cell.show(f"epoch {epoch}/{self.epochs}  step {step:,}/{self._steps:,}  loss {loss:.4f}  {rate}")
        if self._bar is not None:
            self._bar.update(self._task, completed=step, epoch=f"{epoch}/{self.epochs}", loss=f"{loss:.4f}", rate=rate)

    @_where_it_can_be
    def epoch(self, record: Mapping[str, Any]) -> None:
        """Print one line about an epoch that has ended: the usual figures that `record` has, and the user's own."""
        figures = [f"{name} {figure(record[name])}" for name in shown(record)]
        line = f"epoch {record['epoch']}/{self.epochs}  " + "  ".join(figures)
        if self._cell is not None:
            self._cell.show(line)
        elif self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False)
        elif self._stream is not None:
            print(line, file=self._stream, flush=True)

    @_where_it_can_be
    def failed(self, error: BaseException) -> None:
        """Say below a notebook's cell that the run has failed. Elsewhere the program itself ends with that error."""
        if self._cell is not None:
            said = str(error).partition("\n")[0]
            self._cell.show(f"failed with {type(error).__name__}{': ' if said else ''}{said}; run.result() raises it")

    @_where_it_can_be
    def close(self) -> None:
        """End the live line; further calls do nothing."""
        if self._cell is not None:
            self._cell.end()
            self._cell = None
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


class _Cell:
    """One line below a notebook's cell. What threads print would land below whichever cell runs at the time."""

    PAUSE = 0.25  # seconds between two messages to the browser

    def __init__(self, note: str) -> None:
        self._line, self._shown, self._note = "", 0.0, note
        self._display: Any = require("IPython.display", "notebook").display(_text(note), raw=True, display_id=True)

    def show(self, line: str) -> None:
        """Show this line, now or with one of the next."""
        self._line = line
        if time.monotonic() - self._shown >= self.PAUSE:
            self.end()

    def end(self) -> None:
        """Show the last line."""
        self._shown = time.monotonic()
        self._display.update(_text("\n".join(filter(None, (self._line, self._note)))), raw=True)


def _text(line: str) -> dict[str, str]:
    return {"text/plain": line}


def _in_a_notebook() -> bool:
    """Whether a Jupyter kernel runs this program; nothing is imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


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


def shown(*records: Mapping[str, Any]) -> list[str]:
    """The names of the figures that are shown of these epochs: the losses, the user's own, and how fast it went.

    >>> shown({"epoch": 1, "loss": 0.5, "samples_per_second": 9e2, "f1": 0.8}, {"epoch": 2, "loss": 0.4, "val_loss": 1})
    ['loss', 'val_loss', 'f1', 'samples_per_second']
    """
    own = dict.fromkeys(name for record in records for name in record if name not in TAKEN)
    names = ("loss", "val_loss", *own, "samples_per_second", "seconds")
    return [name for name in names if any(record.get(name) is not None for record in records)]


def figure(value: Any) -> str:
    """A figure of an epoch, as short as it can be read.

    >>> figure(50712.4), figure(0.123456)
    ('50,712', '0.1235')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
