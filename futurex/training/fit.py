"""``fx.fit``: train here or on a cluster; the handle is there at once."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from futurex.errors import require, whole_number
from futurex.frontend.tracebacks import folds
from futurex.optim import Optimizer, adam
from futurex.runtime import floating
from futurex.runtime.collectives.codecs import codec_of
from futurex.runtime.elastic.coordinator import Settings
from futurex.runtime.group import ElasticGroup, Group, Once, SoloGroup, group_of
from futurex.runtime.placement import DEVICES, ask_for
from futurex.runtime.units import size_of
from futurex.training.batches import chunks, kept
from futurex.training.callbacks import Callbacks, EarlyStopping, restored
from futurex.training.checkpoint import CheckpointError, Claim, latest, newest
from futurex.training.loop import Task, train
from futurex.training.programs import Arrays, Model, Problem, evaluation_program
from futurex.training.progress import TAKEN, Progress
from futurex.training.run import Run, under_way
from futurex.training.saving import Saving, looks
from futurex.training.strategy import all_reduce
from futurex.training.strategy.base import Options, Strategy
from futurex.tree.given import plain_array
from futurex.tree.pytree import flatten, leaf_paths, unflatten

Metrics = Mapping[str, Callable[..., Any]]
CALLER = 4  # of fit: behind _begun, fit itself, and what folds its tracebacks
EVALUATION_ROWS = 512  # rows of a validation batch, if the training's are fewer


@folds
def fit(
    loss: Callable[..., Any],
    params: Any,
    data: Any,
    *,
    optimizer: Optimizer | None = None,
    epochs: int = 1,
    batch_size: int = 32,
    on: Group | None = None,
    name: str | None = None,
    seed: int = 0,
    validation: Any = None,
    metrics: Metrics | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Any] = (),
    progress: bool = True,
    trace_steps: int = 0,
    compression: str | None = None,
    accumulate: int = 1,
    strategy: Strategy | None = None,
    memory_limit: int | str | None = None,
    device: str = "cpu",
    commit_every: int | None = None,
    min_workers: int = 1,
    max_workers: int | None = None,
    stall_seconds: float = 30.0,
    wait_seconds: float = 600.0,
    checkpoint_every: int = 0,
    resume: bool = False,
    **unknown: Any,
) -> Run:
    """Train ``params`` in the background and return the run's handle at once.

    The given arrays are not changed, and may be once this has returned: the training goes on with what they held. For
    that ``data`` and ``validation`` are copied in this process, unless they are mapped from files or nobody may write
    into them (``x.flags.writeable = False``).

    loss: ``loss(params, *batch)``, plain NumPy, returns the mean over the batch, a scalar, or ``(scalar, figures)``
        with a dict of further means for the history. If it has a parameter ``key``, it gets a fresh one every step.
    params: a pytree of floating-point arrays.
    data: a tuple of arrays with examples along axis 0; a batch has the same rows of each.
    optimizer: from :mod:`futurex.optim`, ``adam(1e-3)`` if none is given.
    on: an ``fx.Cluster``, or None for this process. Every locality takes its share of each batch; the result is that of
        one locality up to the order of sums.
    validation: arrays like ``data``, for ``val_loss`` after every epoch; ``loss`` is then called without ``key``.
    metrics: functions ``(params, *batch) -> mean`` by name, measured on ``validation``.
    checkpoint: a folder for parameters, optimizer state and the last record, written at the end; with
        ``checkpoint_every`` after that many steps, too, in the background, by a worker, which needs to see that folder.
        ``resume=True`` goes on from the newest sound checkpoint there, bit for bit on as many localities; a damaged one
        is refused with a warning, and where all are damaged the call raises CheckpointError. A folder without any is
        that of a run which begins.
    callbacks: what is called in this process while the run goes on, each a function ``(run, record)``, called at the
        end of every epoch with its record of the history, or an object with some of ``on_train_begin(run)``,
        ``on_epoch_end(run, record)`` (also the function's) and ``on_train_end(run)``, where ``run.params`` are there:
        Keras' names, and Lightning's ``on_train_start``, ``on_train_epoch_end`` and ``on_train_end``; ``run`` is in the
        place of Keras' ``self.model`` and ``record`` of ``logs``, with the epochs counted from 1. One thread calls
        them in order; training does not wait for them, ``run.result()`` does, and raises what one of them raises, which
        stops the run. :class:`futurex.EarlyStopping` is one.
    progress: tell standard error about epochs. ``trace_steps``: how many steps to record for ``run.events``.
    compression: in what form localities send gradients of 1024 elements and more: ``"fp16"``, ``"bf16"``, ``"1bit"``,
        ``"topk:SHARE"`` or ``"powersgd:RANK"``, with error feedback. This is other mathematics than one locality's.
    accumulate: in how many parts a batch is worked on, one after the other, whose gradients are summed up: less memory,
        the same step to rounding. What is random or normalised inside ``loss`` is so for each part on its own.
    strategy: one of ``fx.strategy``: how localities share the work; ``all_reduce()`` if none is given.
    memory_limit: bytes that a step may take on each locality, as in :func:`fx.futurize`: ``"512 MB"``. Values that the
        backward pass reads late are computed again; parameters, state and batches are not counted.
    device: ``"gpu"`` makes every step on each locality's GPU; gradients are exchanged by NCCL where each has one of its
        own. Parameters and state stay there, a step moves its batch, and its loss is known when the next one is under
        way.
    commit_every: on a cluster, go on when workers are lost or come: every so many steps all localities keep a copy of
        parameters and state, and at most as many are done again. Fewer than ``min_workers`` wait ``wait_seconds`` for
        others, then the run raises TooFewWorkers; more than ``max_workers`` stand by (the default is no bound, and as
        many as there are now for ``local_sgd`` and ``parameter_server``, whose programs are made for each number of
        localities). A worker that is silent for ``stall_seconds`` is left out.

    Inside ``with np.errstate(divide="raise", over="raise", invalid="raise")`` every step is computed operation by
    operation, by NumPy, and the first that makes a NaN or an infinity raises FloatingPointError, at the user's line.

    The same seed gives the same batches and keys on any number of localities. A loss that is not finite does not end
    the run; the record says ``finite: False``. Raises TypeError and ValueError for arguments that do not fit, and
    StagingError, at the user's line, for a loss that is no single tree; what fails later is raised by ``run.result()``.

    >>> import numpy as np, futurex as fx
    >>> x = np.random.default_rng(0).normal(size=(64, 3))
    >>> loss = lambda w, x, y: ((x @ w - y) ** 2).mean()
    >>> run = fx.fit(loss, np.zeros(3), (x, x @ np.ones(3)), optimizer=fx.optim.sgd(0.1), epochs=20, progress=False)
    >>> run.result(timeout=60).round(2)
    array([1., 1., 1.])
    """
    _refuse(unknown)
    options = Options(whole_number("accumulate", accumulate, 1), _compression(compression))
    params = _parameters(params)
    task = Task(
        whole_number("epochs", epochs, 1), whole_number("batch_size", batch_size, 1), whole_number("seed", seed, 0),
        len(flatten(params)[0]),
        trace_steps=whole_number("trace_steps", trace_steps, 0), strategy=_strategy(strategy), options=options,
        memory_limit=None if memory_limit is None else size_of(memory_limit), device=_device(device, memory_limit, on),
        errors=_errors(device),
    )  # fmt: skip
    model, metrics = Model(loss), _metrics(metrics)
    arrays = _arrays("data", data)
    held_out = _held_out(model, arrays, validation, metrics)
    state = _state(optimizer := adam() if optimizer is None else _optimizer(optimizer), params)
    group = _here() if on is None else group_of(on)
    called = Callbacks(callbacks)
    task.strategy.check(options)
    folder = _folder(checkpoint, checkpoint_every, resume)
    settings = _settings(group, task.strategy, commit_every, min_workers, max_workers, wait_seconds, stall_seconds)
    n, batch_rows = len(arrays[0]), min(task.batch_size, len(arrays[0]))
    sizes = range(settings.min_workers, settings.max_workers + 1) if settings and settings.max_workers else [group.size]
    problem = Problem(model, optimizer, params, state, arrays, tuple(sizes))
    programs = task.strategy.programs(problem, chunks(n, batch_rows), options)
    evaluations = {}
    if held_out:
        chunk = min(len(held_out[0]), max(batch_rows, EVALUATION_ROWS))
        evaluations = {
            rows: evaluation_program(model, metrics, params, held_out, rows) for rows in chunks(len(held_out[0]), chunk)
        }
    _check_names([*model.aux_names, *metrics])
    measured = ["loss", *model.aux_names, *(("val_loss", *metrics) if held_out else ())]
    for each in callbacks:
        if isinstance(each, EarlyStopping):
            each.check(measured, bool(held_out))
    watch = restored(callbacks)
    (param_leaves, param_structure), (state_leaves, state_structure) = flatten(params), flatten(state)
    structures = param_structure, state_structure
    graph = next(iter(programs.values()))[0]
    placements = task.strategy.placements([*param_leaves, *state_leaves], len(param_leaves))
    batches = -(-n // batch_rows)
    with ExitStack() as undone:
        claim, saving = None, None
        before: list[dict[str, Any]] = []
        if folder is not None:
            claim = Claim(folder)
            undone.callback(claim.release)
        if folder is not None and (checkpoint_every or resume):
            like = tuple(map(looks, [*param_leaves, *state_leaves]))
            every = whole_number("checkpoint_every", checkpoint_every, 0)
            saving, before = _begun(Saving(folder, every, structures, like, task.epochs, batches), resume)
        elif folder is not None:
            _check_end(folder, task.epochs * batches)
        task = replace(
            task, batch_size=batch_rows, aux_names=model.aux_names, metric_names=tuple(metrics), saving=saving,
            watch=watch,
            commit_every=0 if commit_every is None else whole_number("commit_every", commit_every, 1),
        )  # fmt: skip
        display = Progress(task.epochs * batches, task.epochs, note=_beside(name or model.name)) if progress else None
        if on is None:  # a cluster has been sent its own by then; here the caller may go on to change them
            arrays, held_out = tuple(map(kept, arrays)), tuple(map(kept, held_out))
        args = task, programs, evaluations, Once([*param_leaves, *state_leaves]), arrays, held_out
        if settings is None or not isinstance(group, ElasticGroup):
            name = name or model.name
            work = group.spmd(train, *args, name=name)
        else:
            name = name or f"{model.name}-{secrets.token_hex(4)}"
            about = graph, structures, placements, folder
            work = group.elastic(train, *args, settings=settings, name=name, about=about)
        undone.pop_all()
    return Run(name, work, graph, structures, placements, folder, display, before, claim, called)


@folds
def attach(name: str, on: Group | None = None) -> Run:
    """The handle of a run that goes on in this process, or of one on a cluster that another driver started.

    Without ``on`` it is the run of this process that has this name (of several the one that began first), whose handle
    a notebook's cell that was run again, for example, has written over.

    ``on`` a cluster it is an elastic run (``fit(..., commit_every=k, name=name)``).

    Such a run belongs to its cluster, and goes on there when its driver is gone, if the cluster is one that the driver
    did not start. The handle has all that the first one had, its history included; any number of drivers may follow a
    run. Raises LookupError, naming those there are, where none has this name.

    >>> with fx.Cluster("tcp://127.0.0.1:8786") as cluster:  # doctest: +SKIP
    ...     params = fx.attach("har", cluster).result()
    """
    if on is None:
        found = [run for run in under_way() if run.name == name]
        if not found:
            there = ", ".join(dict.fromkeys(repr(run.name) for run in under_way())) or "none"
            raise LookupError(
                f"no run {name!r} goes on in this process; there is {there}. One on a cluster is attached to with "
                "on=fx.Cluster(address)"
            )
        return found[0]
    if not isinstance(on, ElasticGroup):
        raise TypeError(f"a run is attached to on a cluster, on=fx.Cluster(address), not on {on!r}")
    work, about = on.attached(name)
    graph, structures, placements, folder = about
    return Run(name, work, graph, structures, placements, folder, None)


def _beside(name: str) -> str:
    """What a notebook says of another run of this name that goes on: that of a cell that is run again, mostly."""
    if not any(run.name == name for run in under_way()):
        return ""
    return f"beside another run {name!r}, which goes on: fx.attach({name!r}).stop() ends it"


@functools.cache
def _here() -> SoloGroup:
    """This process, with the plans of earlier runs."""
    return SoloGroup()


def _compression(name: str | None) -> str | None:
    if name is not None:
        codec_of(name)
    return name


def _device(device: str, limit: int | str | None, on: Group | None) -> str:
    if device not in DEVICES:
        raise ValueError(f"device={device!r} is not one of {', '.join(map(repr, DEVICES))}")
    if device != "cpu" and limit is not None:
        raise ValueError(f"memory_limit={limit!r} is for device='cpu', not {device!r}")
    if on is None:
        ask_for(device)
    return device


def _errors(device: str) -> dict[str, Any]:
    errors = floating.raising()
    if errors and device != "cpu":
        raise ValueError("np.errstate with 'raise' is for device='cpu': a GPU does not tell of such errors")
    return errors


def _strategy(strategy: Any) -> Strategy:
    if strategy is None:
        return all_reduce()
    if not isinstance(strategy, Strategy):
        raise TypeError(f"strategy={strategy!r} is none of fx.strategy, as fx.strategy.all_reduce()")
    return strategy


def _refuse(unknown: Mapping[str, Any]) -> None:
    if not unknown:
        return
    name = next(iter(unknown))
    options = [each for each, kind in inspect.signature(fit).parameters.items() if kind.kind is kind.KEYWORD_ONLY]
    close = difflib.get_close_matches(name, options, 1)
    raise TypeError(
        f"fit has no option {name!r}; " + (f"did you mean {close[0]!r}?" if close else f"it has {', '.join(options)}")
    )


def _arrays(what: str, data: Any) -> Arrays:
    if isinstance(data, Mapping):
        raise TypeError(f"{what} is a tuple of arrays in the order of the loss's parameters, not a dict")
    parts = tuple(data) if isinstance(data, tuple | list) else (data,)
    if not parts:
        raise ValueError(f"{what} is empty: it needs at least one array, such as (x, y)")
    arrays = tuple(plain_array(part, f"{what}[{number}]") for number, part in enumerate(parts))
    for number, (part, array) in enumerate(zip(parts, arrays, strict=True)):
        if array.ndim == 0 or array.dtype.kind not in "biufc":
            found = f"{array.dtype} of shape {array.shape}"
            if hasattr(part, "__iter__") and array.shape == () and not isinstance(part, str | bytes):
                found = f"a {type(part).__name__}: gather what it yields first, as np.stack(list(...))"
            raise TypeError(f"{what}[{number}] must be an array of numbers with examples along axis 0, not {found}")
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise ValueError(f"the arrays of {what} differ in length: shapes {', '.join(str(a.shape) for a in arrays)}")
    if not len(arrays[0]):
        raise ValueError(f"{what} has no examples: shapes {', '.join(str(a.shape) for a in arrays)}")
    return arrays


def _metrics(metrics: Metrics | None) -> Metrics:
    if metrics is not None and not isinstance(metrics, Mapping):
        raise TypeError(f"metrics is a dict of functions by name, as {{'accuracy': accuracy}}, not {metrics!r}")
    for name, metric in (metrics or {}).items():
        if not callable(metric):
            raise TypeError(f"the metric {name!r} is a function (params, *batch), not {metric!r}")
    return dict(metrics or {})


def _held_out(model: Model, data: Arrays, validation: Any, metrics: Metrics) -> Arrays:
    if validation is None:
        if metrics:
            raise ValueError(f"metrics ({', '.join(metrics)}) are measured on validation data: give validation=(x, y)")
        return ()
    arrays = _arrays("validation", validation)
    expected = [(array.shape[1:], array.dtype) for array in data]
    if [(array.shape[1:], array.dtype) for array in arrays] != expected:
        shown = [", ".join(f"{a.dtype}{list(a.shape)}" for a in each) for each in (arrays, data)]
        raise ValueError(f"validation must be like data in all but its length: {shown[0]} and {shown[1]}")
    if model.needs_key:
        raise TypeError(
            f"validation calls {model.name} without a key: declare `key=None` and leave dropout out when it is None"
        )
    return arrays


def _parameters(params: Any) -> Any:
    leaves, structure = flatten(params)
    paths = leaf_paths(structure, "params")
    if not leaves:
        raise ValueError("params holds no arrays: there is nothing to train")
    # Copies: the caller may change the given ones while the run goes on.
    arrays = [np.array(plain_array(leaf, path)) for path, leaf in zip(paths, leaves, strict=True)]
    for path, array in zip(paths, arrays, strict=True):
        if array.dtype.kind not in "fc":
            raise TypeError(f"{path} is {array.dtype} of shape {array.shape}; only floating-point arrays are trained")
    return unflatten(structure, arrays)


def _optimizer(optimizer: Any) -> Optimizer:
    able = callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))
    if not able or isinstance(optimizer, type):
        what = "is a class" if able else "has no init and update"
        raise TypeError(f"optimizer={optimizer!r} {what}: use one of fx.optim, as fx.optim.adam(1e-3)")
    return optimizer


def _state(optimizer: Optimizer, params: Any) -> Any:
    state = optimizer.init(params)
    leaves, structure = flatten(state)
    for path, leaf in zip(leaf_paths(structure, "state"), leaves, strict=True):
        if not isinstance(leaf, float | np.ndarray | np.generic):
            raise TypeError(f"the optimizer's {path} is a {type(leaf).__name__}: a state is made of arrays and floats")
    return state


def _check_names(names: Sequence[str]) -> None:
    for position, name in enumerate(names):
        if name in TAKEN or name in names[:position]:
            raise ValueError(f"{name!r} is already the name of a figure in the history; choose another")


def _settings(
    group: Group, strategy: Strategy, commit_every: int | None, least: int, most: int | None, wait: float, stall: float
) -> Settings | None:
    """How an elastic run is to behave; None for one that is not."""
    if commit_every is None:
        own = {"min_workers": least, "max_workers": most, "stall_seconds": stall, "wait_seconds": wait}
        for name, value in own.items():  # to run on without them would be found when a worker is lost
            if value != inspect.signature(fit).parameters[name].default:
                raise ValueError(f"{name} is for runs that workers may leave and join: commit_every=10")
        return None
    if not isinstance(group, ElasticGroup):
        raise ValueError("commit_every is for runs on several localities, of which some may be lost: on=fx.Cluster(2)")
    least = whole_number("min_workers", least, 1)
    if most is None and strategy.bounded:
        most = max(least, group.size)
    most = None if most is None else whole_number("max_workers", most, least)
    return Settings(least, most, _seconds(wait), _seconds(stall), pieces=strategy.shards)


def _begun(saving: Saving, resume: bool) -> tuple[Saving, list[dict[str, Any]]]:
    """Where a run begins, with the records of the epochs before; refuses checkpoints that it cannot go on from."""
    found, refusals = newest(saving.folder)
    if not resume and (found or refusals):
        raise ValueError(
            f"{saving.folder} has checkpoints already: go on from them with resume=True, or name another folder"
        )
    if found is None and refusals:  # to begin anew would lose, behind a warning, what somebody wants to go on from
        raise CheckpointError(
            refusals[0].path,
            f"{refusals[0].reason}, and resume=True does not begin anew where it finds damaged ones alone: name "
            "another folder for that",
        )
    for refusal in refusals:
        warnings.warn(f"{refusal.path} is refused: {refusal.reason}", RuntimeWarning, stacklevel=CALLER)
    if found is None:
        return saving, []
    return replace(saving, begins=found.step), list(saving.fitting(found)[1]["history"])


def _check_end(folder: Path, end: int) -> None:
    """Refuse a folder in which the checkpoint that a run writes at its end would not be the newest: now, not then."""
    there = latest(folder)
    if there is not None and int(there.name.partition("-")[2]) >= end:
        raise ValueError(
            f"{folder} has a checkpoint of another run already, {there.name}, and this one ends at step {end}: go on "
            "from it with resume=True, or name another folder"
        )


def _seconds(value: float) -> float:
    if not value > 0:
        raise ValueError(f"wait_seconds and stall_seconds are positive, not {value}")
    return float(value)


def _folder(checkpoint: str | os.PathLike[str] | None, every: int, resume: bool) -> Path | None:
    if checkpoint is None:
        if every or resume:
            raise ValueError("checkpoint_every and resume need a folder: checkpoint='runs/name'")
        return None
    require("safetensors.numpy", "train")  # now, not after hours of training
    folder = Path(checkpoint).absolute()  # workers stand elsewhere, and the program may when the run ends
    Claim(folder).release()  # for the same reason: it is taken when the program has been traced
    return folder
