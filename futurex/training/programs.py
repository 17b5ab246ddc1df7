"""The programs of a training run: one step and one evaluation, traced once and described for every locality."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend import futurize, lower, value_and_grad
from futurex.optim import Optimizer
from futurex.partition import Placement, Replicate, Shard
from futurex.tree.graph import Graph
from futurex.tree.pytree import flatten, leaf_paths

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Layout:
    """How a program's inputs lie on localities, and which outputs overwrite which inputs."""

    placements: tuple[Placement, ...]
    donate: tuple[tuple[int, int], ...] = ()


class Model:
    """The loss as a run uses it: staged, with a key or without, its value and its further figures told apart."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        """Raises TypeError for something that cannot be called."""
        if not callable(loss):
            raise TypeError(f"fit takes a loss function, loss(params, *batch), not a {type(loss).__name__}")
        self.name = getattr(loss, "__name__", "loss")
        self._staged = futurize(loss)
        parameter = _parameters(self._staged.plain).get("key")
        self.takes_key = parameter is not None
        self.needs_key = parameter is not None and parameter.default is inspect.Parameter.empty
        self.aux_names: tuple[str, ...] = ()

    def __call__(self, params: Any, batch: Sequence[Any], key: Any = None) -> tuple[Any, dict[str, Any]]:
        """The loss of a batch and the figures beside it; while tracing."""
        options = {"key": key} if self.takes_key and key is not None else {}
        result = self._staged(params, *batch, **options)
        value, aux = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
        self._check(value, aux)
        self.aux_names = tuple(aux)
        return value, aux

    def _check(self, value: Any, aux: Any) -> None:
        shape = getattr(value, "shape", None)
        if shape != ():
            found = f"an array of shape {shape}" if shape is not None else f"a {type(value).__name__}"
            raise ValueError(
                f"{self.name} must return the mean loss of a batch, a scalar, or (scalar, figures); it returns {found}"
                + ("; take its .mean()" if shape else "")
            )
        if not isinstance(aux, dict) or any(getattr(each, "shape", ()) != () for each in aux.values()):
            raise TypeError(
                f"{self.name} returns (scalar, figures): figures must be a dict of scalars by name, means of the batch"
            )


def step_program(
    model: Model, optimizer: Optimizer, params: Any, state: Any, batch: Arrays, rows: int, size: int
) -> tuple[Graph, Layout]:
    """One step on ``rows`` examples by ``size`` localities, as a graph with global shapes.

    Inputs: parameters, state, key, the votes to stop (one per locality), the batch. Outputs: loss, sum of the votes,
    the figures, parameters, state. Raises TypeError where the optimizer changes a shape or dtype.
    """
    gradient = value_and_grad(lambda params, batch, key: model(params, batch, key), has_aux=True)
    update = futurize(optimizer.update)

    def step(params: Any, state: Any, key: Any, votes: Any, batch: Any) -> Any:
        (value, aux), grads = gradient(params, batch, key)
        params, state = update(params, grads, state)
        return value, votes.sum(), tuple(aux.values()), params, state

    step.__name__ = f"step_of_{model.name}"
    votes = np.zeros(size, np.float32)
    program = lower(step, params=params, state=state, key=np.uint64(0), votes=votes, batch=_stand_ins(batch, rows))
    first_out = 2 + len(model.aux_names)
    kept = len(flatten((params, state))[0])
    _check_update(program.graph, first_out, leaf_paths(flatten({"params": params, "state": state})[1]))
    placements: tuple[Placement, ...] = (*(Replicate(),) * (kept + 1), Shard(0), *(Shard(0),) * len(batch))
    donate = tuple((first_out + k, k) for k in range(kept) if not program.graph.params[k].aval.weak)
    return program.graph, Layout(placements, donate)


def evaluation_program(
    model: Model, metrics: Mapping[str, Callable[..., Any]], params: Any, batch: Arrays, rows: int
) -> tuple[Graph, Layout]:
    """Loss and metrics of ``rows`` examples. Inputs: parameters, the batch; outputs: scalars."""
    staged = {name: futurize(metric) for name, metric in metrics.items()}

    def evaluate(params: Any, *batch: Any) -> Any:
        value, _ = model(params, batch)
        return value, *(_scalar(name, metric(params, *batch)) for name, metric in staged.items())

    evaluate.__name__ = f"evaluation_of_{model.name}"
    program = lower(evaluate, params, *_stand_ins(batch, rows))
    replicated = len(program.graph.params) - len(batch)
    placements: tuple[Placement, ...] = (*(Replicate(),) * replicated, *(Shard(0),) * len(batch))
    return program.graph, Layout(placements)


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature takes what it is given
        return {}


def _stand_ins(batch: Arrays, rows: int) -> list[np.ndarray]:
    return [np.empty((rows, *array.shape[1:]), array.dtype) for array in batch]


def _scalar(name: str, value: Any) -> Any:
    if getattr(value, "shape", ()) != ():
        raise ValueError(f"the metric {name!r} must return a scalar, the mean over the batch, not shape {value.shape}")
    return value


def _check_update(graph: Graph, first_out: int, paths: Sequence[str]) -> None:
    for path, out, given in zip(paths, graph.outs[first_out:], graph.params, strict=False):
        if out.aval != given.aval:
            raise TypeError(
                f"the optimizer turns {path} from {given.aval!r} into {out.aval!r}; parameters and state keep shape "
                "and dtype. Python floats do not change the dtype of arrays, NumPy scalars do"
            )
