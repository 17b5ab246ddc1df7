"""``vmap``: a function of one example as a function of many."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.autodiff.batch import vmap as batch
from futurex.frontend.errors import Escape
from futurex.frontend.keys import argument_paths
from futurex.frontend.lists import need_entries
from futurex.frontend.staging import Futurized
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer, entered, node_of
from futurex.frontend.transforms.inner import VALUE, StandIn, Transform, is_value, made, trace_inner
from futurex.ops.batching import NotBatchable, from_front, spread, to_front
from futurex.tree.aval import Aval
from futurex.tree.dims import is_static
from futurex.tree.node import Node
from futurex.tree.pytree import Structure, flatten, leaf_paths, unflatten

Axes = Any  # an int, None, or a nest of them that is a prefix of the arguments


def vmap(function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Futurized[Any, Any]:
    """``function``, written for one example, for many at once: what a loop over the examples with ``np.stack`` gives.

    ``in_axes`` says along which axis the examples of each argument lie, and None for what all of them share: one entry
    for every argument, or one tuple entry an argument; an entry may be a nest like its argument. ``out_axes`` says the
    same of the result. Keyword arguments are mapped along axis 0.

    Nothing of it is a loop: operations take the examples as one more axis. Branches that differ from example to
    example run both ways, loops run until the last example is done. An operation that has no form for many examples
    runs example by example inside the tree; ``explain()`` names it. Where the function cannot be staged, it is called
    in a Python loop. Errors are those of some example.

    Raises ValueError where sizes differ or an axis does not exist.

    >>> import numpy as np, futurex as fx
    >>> fx.vmap(np.dot, in_axes=(0, None))(np.arange(6.0).reshape(3, 2), np.array([1.0, 10.0])).result()
    array([10., 32., 54.])
    """
    return made(_Mapped, function, in_axes, out_axes, how=Futurized)


class _Mapped(Transform):
    kind = "vmap"

    def __init__(self, function: Callable[..., Any], in_axes: Axes, out_axes: Axes) -> None:
        super().__init__(function)
        self.in_axes, self.out_axes = in_axes, out_axes

    def _axes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
        """The axis of every leaf of ``(args, kwargs)``."""
        axes = list(self.in_axes) if isinstance(self.in_axes, list) else self.in_axes
        if isinstance(axes, tuple | list) and len(axes) != len(args):
            raise ValueError(f"in_axes has {len(axes)} entries for {len(args)} positional arguments")
        entries = axes if isinstance(axes, tuple | list) else [axes] * len(args)
        found: list[int | None] = []
        for number, (entry, arg) in enumerate(zip(entries, args, strict=True)):
            found += spread_axes(entry, flatten(arg)[1], f"in_axes[{number}]")
        return [*found, *(0 for _ in flatten(kwargs)[0])]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The same in plain NumPy, example by example."""
        leaves, structure = flatten((args, kwargs))
        axes = self._axes(args, kwargs)
        size = _size(leaves, axes, argument_paths(self.function, structure))
        if size == 0:
            raise ValueError("vmap of a function that cannot be staged needs at least one example")
        results = []
        leaves = [leaf if axis is None else np.array(leaf) for leaf, axis in zip(leaves, axes, strict=True)]
        for k in range(size):
            own = [_of_example(leaf, axis, k) for leaf, axis in zip(leaves, axes, strict=True)]
            example, keywords = unflatten(structure, own)
            results.append(flatten(self.function(*example, **keywords)))
        nest = results[0][1]
        for parts, other in results:
            if other != nest:
                counts = f"{len(results[0][0])} and {len(parts)} of them"
                raise ValueError(f"vmap needs results of one structure for all examples, not {counts}")
        out_axes = spread_axes(self.out_axes, nest, "out_axes")
        columns = zip(*(parts for parts, _ in results), strict=True)
        return unflatten(nest, [_joined(column, axis) for column, axis in zip(columns, out_axes, strict=True)])

    def __fx_stage__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, structure = flatten((args, kwargs))
        axes = self._axes(args, kwargs)
        need_entries((leaf for leaf, axis in zip(leaves, axes, strict=True) if axis is not None), "vmap")
        size = _size(leaves, axes, argument_paths(self.function, structure))
        outer: list[Node] = []
        stand_ins: list[StandIn | None] = []
        for leaf, axis in zip(leaves, axes, strict=True):
            if axis is None:
                stand_ins.append(None)
                continue
            axis %= leaf.ndim
            outer.append(to_front(node_of(leaf), axis))
            strides = entered(leaf).strides_in_memory
            shape, strides = (each and (*each[:axis], *each[axis + 1 :]) for each in (leaf.shape, strides))
            stand_ins.append(StandIn(Aval(shape, leaf.dtype), len(shape) > 0, strides))
        inner = trace_inner(self.function, args, kwargs, stand_ins, of_one_type=False)
        if inner.changes.draws:
            raise Escape("a random generator in a function that is mapped", "each example draws after the one before")
        notes: list[str] = []
        flags = [*(True for _ in outer), *(False for _ in inner.free)]
        try:
            graph, found = batch(inner.graph, size, flags, notes=notes)
        except NotBatchable as error:
            raise Escape(str(error), "examples run at once") from error
        current().notes.extend(dict.fromkeys(notes))
        nodes = graph.inline([*outer, *inner.free])
        out_axes = spread_axes(self.out_axes, inner.structure, "out_axes")
        own_axes = [axis for axis, leaf in zip(out_axes, inner.leaves, strict=True) if leaf is VALUE]
        for k, (axis, batched) in enumerate(zip(own_axes, found, strict=False)):
            nodes[k] = _placed(nodes[k], size, axis, batched)
        return inner.value(nodes)


def _joined(column: Sequence[Any], axis: int | None) -> Any:
    """The results of all examples as one. Raises ValueError where they are things of several kinds."""
    first = column[0]
    for each in column:
        if is_value(each) is not is_value(first) or not (is_value(first) or each is first or each == first):
            kinds = " and ".join(type(one).__name__ if is_value(one) else repr(one) for one in (first, each))
            raise ValueError(f"vmap needs results of one kind for all examples, not {kinds}")
    if not is_value(first):
        return first
    if axis is not None:
        return np.stack(column, axis)
    if any(not np.array_equal(value, column[0], equal_nan=True) for value in column):
        raise ValueError(DIFFERS)
    return column[0]


DIFFERS = "out_axes is None for a result that differs from example to example"


def _placed(node: Node, size: int, axis: int | None, batched: bool) -> Node:
    """A result with the examples along ``axis``."""
    if axis is None:
        if batched:
            raise ValueError(DIFFERS)
        return node
    whole = node if batched else spread(size, node)
    if not -whole.ndim <= axis < whole.ndim:
        raise ValueError(f"vmap: a result of {whole.ndim} axes with that of the examples has no axis {axis}: out_axes")
    return from_front(whole, axis % whole.ndim)


def spread_axes(entry: Axes, structure: Structure, name: str) -> list[int | None]:
    """One axis for every leaf from an entry that is a prefix of a nest. Raises ValueError where it is none."""
    if entry is None or isinstance(entry, int | np.integer):
        return [None if entry is None else operator.index(entry)] * structure.n_leaves
    children, keys = structure.children, structure.keys
    if isinstance(entry, dict):
        entry = [entry.get(key, _MISSING) for key in keys] if set(entry) == set(keys) else []
    if structure.kind is None or not isinstance(entry, Sequence) or len(entry) != len(children):
        raise ValueError(f"{name} is not a prefix of {', '.join(leaf_paths(structure))}")
    return [axis for part, child in zip(entry, children, strict=True) for axis in spread_axes(part, child, name)]


_MISSING = object()


def _of_example(leaf: Any, axis: int | None, k: int) -> Any:
    """What an example may write into: neither the caller's arrays nor other examples see it, as in a tree."""
    if axis is not None:
        return leaf[(slice(None),) * (axis % leaf.ndim) + (k,)]
    return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf


def _size(leaves: Sequence[Any], axes: Sequence[int | None], paths: Sequence[str]) -> int:
    """The number of examples. Raises ValueError naming leaves that disagree."""
    sizes: dict[str, int] = {}
    shown: list[str] = []
    for leaf, axis, path in zip(leaves, axes, paths, strict=True):
        if axis is None:
            continue
        shape = leaf.shape if isinstance(leaf, Tracer) else np.shape(leaf) if is_value(leaf) else ()
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"vmap: argument {path} of shape {shape} has no axis {axis}; None in in_axes shares it")
        sizes[path] = shape[axis]
        shown.append(f"{path} of shape {shape} has {shape[axis]} along axis {axis}")
    if not is_static(tuple(sizes.values())):
        raise Escape("vmap over examples whose number is not known before the run", "it is an extent of the tree")
    if not sizes:
        raise ValueError("vmap needs an argument with examples: every entry of in_axes is None")
    if len(set(sizes.values())) > 1:
        raise ValueError(f"vmap: the numbers of examples differ: {', '.join(shown)}; None in in_axes shares one")
    return next(iter(sizes.values()))


