"""What a user wants to be called for while a run goes on, and the callback that ends a run which learns no more."""

from __future__ import annotations

import contextlib
import inspect
import math
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from futurex.errors import whole_number

if TYPE_CHECKING:
    from futurex.training.run import Run

Record = Mapping[str, Any]
MODES = "min", "max"
HOOKS = {
    "on_train_begin": "on_train_begin(run)", "on_epoch_end": "on_epoch_end(run, record)",
    "on_train_end": "on_train_end(run)",
}  # fmt: skip
KNOWN = ", ".join(HOOKS.values())


@dataclass(frozen=True)
class Watch:
    """A figure of the history, and when a value of it is better than the best one so far."""

    monitor: str
    min_delta: float = 0.0
    mode: str = "min"

    def better(self, value: float, best: float) -> bool:
        """Is it? ``best`` is NaN where there is none.

        >>> Watch("loss", min_delta=0.5).better(1.0, 2.0), Watch("loss").better(math.nan, math.nan)
        (True, False)
        """
        sign = 1.0 if self.mode == "min" else -1.0
        return sign * value < (math.inf if math.isnan(best) else sign * best) - self.min_delta


@dataclass
class EarlyStopping:
    """A callback that calls ``run.stop()`` when a figure has not become better for ``patience`` epochs in a row.

    monitor: the name of a figure in the history: ``"loss"``, ``"val_loss"``, or one of the loss or of ``metrics``.
    min_delta: by how much a value must be better than the best one so far to count. ``mode``: whether less is better,
    ``"min"``, or more, ``"max"``. What is no number is never better.

    The run does not wait for its callbacks: it goes on while a record is on its way, so steps are made behind the epoch
    that was to be the last, of short epochs whole ones. ``best`` and ``best_epoch`` say which epoch was the best of
    all. ``run.result()`` gives the parameters of the step after which all localities stopped, and with
    ``restore_best_weights=True`` those at the end of the best epoch, also where the run was not stopped; the
    optimizer's ``run.state``, ``run.step`` and the checkpoint are those of the last step, from which a run goes on.
    Each locality keeps a copy of the best parameters for that. Where no epoch was better than none, as all figures were
    NaN, the last parameters come. Every run begins anew, a resumed one, too; runs side by side need an object each.

    >>> import numpy as np, futurex as fx
    >>> x = np.random.default_rng(0).normal(size=(64, 3))
    >>> loss = lambda w, x, y: ((x @ w - y) ** 2).mean()
    >>> early = fx.EarlyStopping("loss", patience=2)
    >>> options = {"optimizer": fx.optim.sgd(0.1), "epochs": 10**6, "progress": False}
    >>> run = fx.fit(loss, np.zeros(3), (x, x @ np.ones(3)), callbacks=[early], **options)
    >>> run.result(timeout=60).round(2), run.status, early.best < 1e-9
    (array([1., 1., 1.]), 'stopped', True)
    >>> kept = fx.EarlyStopping("loss", patience=2, restore_best_weights=True)
    >>> run = fx.fit(loss, np.zeros(3), (x, x @ np.ones(3)), callbacks=[kept], **options)
    >>> run.result(timeout=60).round(2), kept.best == run.history[kept.best_epoch - 1]["loss"]
    (array([1., 1., 1.]), True)
    """

    monitor: str = "val_loss"
    patience: int = 3
    min_delta: float = 0.0
    mode: str = "min"
    restore_best_weights: bool = False
    best: float = field(default=math.nan, init=False)
    best_epoch: int = field(default=0, init=False)
    _others: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        whole_number("patience", self.patience, 1)
        if not self.min_delta >= 0:
            raise ValueError(f"min_delta must be at least 0, not {self.min_delta!r}")
        if self.mode not in MODES:
            raise ValueError(f"mode={self.mode!r} is not one of {', '.join(map(repr, MODES))}")

    @property
    def watch(self) -> Watch:
        """What is watched."""
        return Watch(self.monitor, self.min_delta, self.mode)

    def check(self, figures: Sequence[str], validated: bool) -> None:
        """Raises ValueError if records will not have what is watched, naming the ``figures`` they have."""
        if self.monitor in figures:
            return
        said = f"EarlyStopping watches {self.monitor!r}, which this run does not measure; it has {', '.join(figures)}"
        raise ValueError(said if validated else f"{said}, and more with validation=(x, y)")

    def on_train_begin(self, run: Run) -> None:
        """Forget what another run had."""
        self.best, self.best_epoch, self._others = math.nan, 0, 0

    def on_epoch_end(self, run: Run, record: Record) -> None:
        """Stop the run if this was an epoch too many."""
        value = record[self.monitor]
        if self.watch.better(value, self.best):
            self.best, self.best_epoch, self._others = value, record["epoch"], 0
            return
        self._others += 1
        if self._others == self.patience:
            run.stop()


def restored(callbacks: Sequence[Any]) -> Watch | None:
    """By what the best parameters are chosen, if somebody wants them. Raises ValueError where two do."""
    asking = [each for each in callbacks if isinstance(each, EarlyStopping) and each.restore_best_weights]
    if len(asking) > 1:
        named = " and ".join(repr(each.monitor) for each in asking)
        raise ValueError(f"restore_best_weights is given {len(asking)} times, for {named}: a run has one best epoch")
    return asking[0].watch if asking else None


class Callbacks:
    """The callbacks of one run: a thread of their own calls them one after the other, and training waits for none.

    An epoch is told once, also where workers are lost and it is worked on again.
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        """Raises TypeError for what is no callback, and for hooks that nobody calls."""
        if not isinstance(callbacks, list | tuple):
            raise TypeError(f"callbacks is a list of functions or objects with {KNOWN}, not {callbacks!r}")
        self._hooks = [_hooks_of(each) for each in callbacks]
        self._records: queue.SimpleQueue[Record | bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        """What one of them raised, which ended the run."""

    def begin(self, run: Run) -> None:
        """Begin to call them for ``run``, for epochs behind those it has."""
        if self._hooks:
            self._thread = threading.Thread(
                target=self._follow, args=(run, len(run.history)), name=f"callbacks-{run.name}", daemon=True
            )
            self._thread.start()

    def tell(self, record: Record) -> None:
        """An epoch has ended; returns at once."""
        self._records.put(record)

    def end(self, trained: bool) -> None:
        """There will be no more records. If the run has ``trained``, call the last ones, wait for them all and raise
        what one of them has raised.
        """
        self._records.put(trained)
        if trained and self._thread is not None:
            self._thread.join()
            if self.error is not None:
                raise self.error

    @property
    def calling(self) -> bool:
        """Is it they who ask?"""
        return threading.current_thread() is self._thread

    def _follow(self, run: Run, told: int) -> None:
        try:
            self._call("on_train_begin", run)
            while not isinstance(heard := self._records.get(), bool):
                if heard["epoch"] > told:
                    told = heard["epoch"]
                    self._call("on_epoch_end", run, dict(heard))
            if heard:
                self._call("on_train_end", run)
        except BaseException as error:
            self.error = error
            with contextlib.suppress(OSError):  # who is not heard any more has a run that says so
                run.stop()

    def _call(self, name: str, *args: Any) -> None:
        for hooks in self._hooks:
            if name in hooks:
                hooks[name](*args)


def _hooks_of(callback: Any) -> dict[str, Callable[..., Any]]:
    """The functions to call, by name."""
    if isinstance(callback, type):
        raise TypeError(f"callbacks has a class, {callback.__name__}; give an object of it, {callback.__name__}()")
    named = [name for name in dir(callback) if name.startswith("on_") and callable(getattr(callback, name))]
    for name in named:
        if name not in HOOKS:
            raise TypeError(f"{type(callback).__name__} has a hook {name!r}, which fit never calls; it knows {KNOWN}")
    hooks = {name: getattr(callback, name) for name in named}
    if not hooks and callable(callback):
        hooks = {"on_epoch_end": callback}
    if not hooks:
        raise TypeError(f"{callback!r} is no callback: neither a function (run, record) nor an object with {KNOWN}")
    for name, hook in hooks.items():
        _check_arguments(name, hook)
    return hooks


def _check_arguments(name: str, hook: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(hook)
    except ValueError:  # some builtins do not say
        return
    try:
        signature.bind(*range(HOOKS[name].count(",") + 1))
    except TypeError as error:
        raise TypeError(f"a callback is called as {HOOKS[name]}, but takes {signature}: {error}") from None
