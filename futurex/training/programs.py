"""The programs of a training run: one step and one evaluation, traced once and described for every locality."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend import futurize, lower, value_and_grad
from futurex.frontend.staging import is_futurized
from futurex.optim import Optimizer
from futurex.partition import Placement, Replicate, Shard
from futurex.partition.mesh import SUM
from futurex.tree.graph import Graph
from futurex.tree.node import apply, param
from futurex.tree.pytree import flatten, leaf_paths, tree_map, unflatten

VOTES = 1024  # shared out among the localities, so that programs do not depend on how many there are
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Layout:
    """How a program's inputs and results lie on localities, and which outputs overwrite which inputs.

    Results are replicated where ``outs`` is None. ``figures`` counts the loss and what stands beside it. ``precision``:
    the format that each locality's products are taken in, as ``fx.autocast`` says.
    """

    placements: tuple[Placement, ...]
    donate: tuple[tuple[int, int], ...] = ()
    outs: tuple[Placement, ...] | None = None
    figures: int = 1
    precision: str = ""


Program = tuple[Graph, Layout]


class Model:
    """The loss as a run uses it: staged, with a key or without, its value and its further figures told apart."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        """Raises TypeError for something that cannot be called."""
        if not callable(loss):
            raise TypeError(f"fit takes a loss function, loss(params, *batch), not a {type(loss).__name__}")
        self.name = getattr(loss, "__name__", "loss")
        self.precision = loss.precision if is_futurized(loss) else ""
        self._staged = futurize(loss).lowered("")
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
            raise ValueError(
                f"{self.name} must return the mean loss of a batch, a scalar, or (scalar, figures); it returns "
                f"{_kind(value)}" + ("; take its .mean()" if shape else "")
            )
        if value.dtype.kind != "f":
            raise TypeError(
                f"{self.name} must return the mean loss of a batch, a real number with a gradient; it returns "
                f"{value.dtype}"
            )
        if not isinstance(aux, dict) or any(getattr(each, "shape", ()) != () for each in aux.values()):
            raise TypeError(
                f"{self.name} returns (scalar, figures): figures must be a dict of scalars by name, means of the batch"
            )


@dataclass(frozen=True)
class Problem:
    """What a run trains, and on how many localities, whatever it may come to; arrays stand for shapes and dtypes."""

    model: Model
    optimizer: Optimizer
    params: Any
    state: Any
    data: Arrays
    sizes: tuple[int, ...] = (1,)

    @property
    def n_params(self) -> int:
        """How many leaves the parameters have."""
        return len(flatten(self.params)[0])

    def kept(self) -> list[Any]:
        """The leaves of parameters and state."""
        return flatten((self.params, self.state))[0]

    def gradient(self, share: float) -> Callable[..., Any]:
        """``(params, batch, key) -> ((loss, figures), gradients)``, all of them times ``share``."""

        def weighted(params: Any, batch: Any, key: Any) -> Any:
            value, aux = self.model(params, batch, key)
            if share == 1.0:
                return value, aux
            return value * share, {name: figure * share for name, figure in aux.items()}

        return value_and_grad(weighted, has_aux=True)

    def update(self) -> Callable[..., tuple[Any, Any]]:
        """The optimizer's ``(params, grads, state) -> (params, state)``, in the structures of what it is given.

        Raises TypeError where it returns anything else.
        """
        staged = futurize(self.optimizer.update)

        def updated(params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
            result = staged(params, grads, state)
            if not isinstance(result, tuple | list) or len(result) != 2:
                what = "the optimizer's update(params, grads, state) returns (params, state)"
                raise TypeError(f"{what}, not {_kind(result)}")
            return _like(params, result[0], "params"), _like(state, result[1], "state")

        return updated


def step_program(
    problem: Problem, rows: int, kept: Sequence[Placement] | None = None, share: float = 1.0,
    part: Program | None = None,
) -> Program:  # fmt: skip
    """One step on ``rows`` examples, as a graph with global shapes.

    Inputs: parameters, state, key, the votes to stop (each locality has a share of them), the batch. Outputs: the sum
    of the votes, loss and figures, parameters, state. ``kept`` says how parameters and state lie. ``part`` is the
    program of the parts that went before in the same batch: its results are inputs behind the votes, and are added to
    what these rows give times their ``share`` in the batch. Raises TypeError where the optimizer changes a shape or
    dtype.
    """
    model = problem.model
    gradient, update = problem.gradient(share), problem.update()

    def step(params: Any, state: Any, key: Any, votes: Any, sums: Any, batch: Any) -> Any:
        (value, aux), grads = gradient(params, batch, key)
        figures = (value, *aux.values())
        if sums:
            before, grads_before = sums
            figures = tuple(a + b for a, b in zip(before, figures, strict=True))
            grads = tree_map(lambda a, b: a + b, grads_before, grads)
        params, state = update(params, grads, state)
        return votes.sum(), figures, params, state

    step.__name__ = f"step_of_{model.name}"
    sums, lie = _results(problem, part) if part else ((), ())
    program = lower(
        step, params=problem.params, state=problem.state, key=np.uint64(0), votes=np.zeros(VOTES, np.float32),
        sums=sums, batch=stand_ins(problem.data, rows),
    )  # fmt: skip
    figures = 1 + len(model.aux_names)
    paths = leaf_paths(flatten({"params": problem.params, "state": problem.state})[1])
    kept = tuple(kept or (Replicate(),) * len(paths))
    check_update(program.graph, 1 + figures, paths)
    return program.graph, Layout(
        (*kept, Replicate(), Shard(0), *lie, *(Shard(0),) * len(problem.data)),
        tuple((1 + figures + k, k) for k in range(len(kept)) if not program.graph.params[k].aval.weak),
        placed(program.graph, (*(Replicate(),) * (1 + figures), *kept)),
        figures,
        model.precision,
    )


def part_program(problem: Problem, rows: int, share: float, grads: Sequence[Placement]) -> Program:
    """The first of several parts of a batch, of ``rows`` examples.

    Inputs: parameters, key, the rows. Outputs: loss and figures, partial sums, and gradients, which lie as ``grads``
    says; all times the part's ``share`` in the batch.
    """
    gradient = problem.gradient(share)

    def part(params: Any, key: Any, batch: Any) -> Any:
        (value, aux), grads = gradient(params, batch, key)
        return (value, *aux.values()), grads

    part.__name__ = f"part_of_{problem.model.name}"
    program = lower(part, params=problem.params, key=np.uint64(0), batch=stand_ins(problem.data, rows))
    figures = 1 + len(problem.model.aux_names)
    placements: tuple[Placement, ...] = (*(Replicate(),) * (len(grads) + 1), *(Shard(0),) * len(problem.data))
    outs = placed(program.graph, (*(SUM,) * figures, *grads))
    return program.graph, Layout(placements, (), outs, figures, problem.model.precision)


def adding_program(problem: Problem, part: Program) -> Program:
    """The same for a further part: what the parts before it gave are the first inputs, and are added."""
    graph, layout = part
    _, lie = _results(problem, part)
    sums = [param(out.aval, f"sum{k}") for k, out in enumerate(graph.outs[: len(lie)])]
    outs = [apply("add", before, out) for before, out in zip(sums, graph.outs, strict=False)]
    added = Graph([*sums, *graph.params], [*outs, *graph.outs[len(lie) :]], graph.name)
    donate = tuple((k, k) for k in range(layout.figures, len(lie)) if sums[k].aval.shape)  # runs give others as numbers
    return added, Layout((*lie, *layout.placements), donate, layout.outs, layout.figures, layout.precision)


def _results(problem: Problem, part: Program) -> tuple[Any, tuple[Placement, ...]]:
    """What a part gives, as ``((loss, *figures), gradients)`` of stand-ins, and how it lies."""
    graph, layout = part
    assert layout.outs is not None
    n = layout.figures + problem.n_params
    likes = [np.empty(out.shape, out.dtype) for out in graph.outs[:n]]
    grads = unflatten(flatten(problem.params)[1], likes[layout.figures :])
    return (tuple(likes[: layout.figures]), grads), layout.outs[:n]


def update_program(problem: Problem, grads: Sequence[Placement]) -> Program:
    """What the optimizer does with gradients that lie so.

    Inputs: parameters, state, gradients. Outputs: parameters and state, in place.
    """

    updated = problem.update()

    def update(params: Any, state: Any, grads: Any) -> Any:
        return updated(params, grads, state)

    graph = lower(update, params=problem.params, state=problem.state, grads=problem.params).graph
    whole: tuple[Placement, ...] = (Replicate(),) * len(problem.kept())
    return graph, Layout((*whole, *grads), in_place(graph, len(whole)), placed(graph, whole))


def evaluation_program(
    model: Model, metrics: Mapping[str, Callable[..., Any]], params: Any, batch: Arrays, rows: int
) -> tuple[Graph, Layout]:
    """Loss and metrics of ``rows`` examples. Inputs: parameters, the batch; outputs: scalars."""
    staged = {name: futurize(metric) for name, metric in metrics.items()}

    def evaluate(params: Any, *batch: Any) -> Any:
        value, _ = model(params, batch)
        return value, *(_scalar(name, metric(params, *batch)) for name, metric in staged.items())

    evaluate.__name__ = f"evaluation_of_{model.name}"
    program = lower(evaluate, params, *stand_ins(batch, rows))
    replicated = len(program.graph.params) - len(batch)
    placements: tuple[Placement, ...] = (*(Replicate(),) * replicated, *(Shard(0),) * len(batch))
    return program.graph, Layout(placements)


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature takes what it is given
        return {}


def placed(graph: Graph, outs: Sequence[Placement]) -> tuple[Placement, ...]:
    """Placements of all results: what is checked stands behind those that are asked for, and is replicated."""
    return (*outs, *(Replicate(),) * (len(graph.outs) - len(outs)))


def in_place(graph: Graph, n: int) -> tuple[tuple[int, int], ...]:
    """The first ``n`` outputs overwrite the inputs that they are new versions of."""
    return tuple((k, k) for k in range(n) if not graph.params[k].aval.weak)


def stand_ins(batch: Arrays, rows: int) -> list[np.ndarray]:
    """A batch of so many rows, for its shapes and dtypes."""
    return [np.empty((rows, *array.shape[1:]), array.dtype) for array in batch]


def _like(given: Any, made: Any, what: str) -> Any:
    """What an optimizer made of ``given``, in the order of ``given``: its dicts may have another one."""
    leaves, structure = flatten(made)
    wanted = flatten(given)[1]
    if structure == wanted:
        return made
    paths = leaf_paths(wanted, what)
    found = dict(zip(leaf_paths(structure, what), leaves, strict=True))
    if len(found) != len(leaves) or set(found) != set(paths):
        lacking = [f"lacks {path}" for path in paths if path not in found]
        more = [f"has {path} besides" for path in found if path not in paths]
        raise TypeError(
            f"the optimizer's update returns (params, state) with the structures of those it is given; its {what} "
            f"{', '.join([*lacking, *more]) or f'is {structure}, not {wanted}'}"
        )
    return unflatten(wanted, [found[path] for path in paths])


def _kind(value: Any) -> str:
    """What a user's function returned, in words."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"an array of shape {shape}"
    kind = f"a {type(value).__name__}"
    return f"{kind} of {len(value)}" if isinstance(value, tuple | list) else kind


def _scalar(name: str, value: Any) -> Any:
    if getattr(value, "shape", ()) != ():
        raise ValueError(f"the metric {name!r} must return a scalar, the mean over the batch, not shape {value.shape}")
    return value


def check_update(graph: Graph, first_out: int, paths: Sequence[str]) -> None:
    """Raise TypeError, naming the leaf, where an update changes a shape or dtype."""
    for path, out, given in zip(paths, graph.outs[first_out:], graph.params, strict=False):
        if out.aval != given.aval:
            raise TypeError(
                f"the optimizer turns {path} from {given.aval!r} into {out.aval!r}; parameters and state keep shape "
                "and dtype. Python floats do not change the dtype of arrays, NumPy scalars do"
            )
