"""From the outputs of a plan to what a call returns, and to what it puts into the caller's objects."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.inflight import Result
from futurex.frontend.kept import found_at
from futurex.frontend.objects import fill
from futurex.frontend.replay import Entry
from futurex.frontend.variants import Output, Variant
from futurex.ops.streams import generator_of
from futurex.ops.views import Chain, view
from futurex.tree.dims import Dim, Symbol, renamed, replaced
from futurex.tree.pytree import unflatten


def _viewed(chain: Chain, value: Any) -> Any:
    return view(value, chain, ())


def change(
    variant: Variant, leaves: list[Any], captured: list[Any], futures: Sequence[Result], arguments: Any
) -> None:
    """Change the caller's objects as the trace did. They are found by what others of them held before."""
    own = functools.partial(_settled, leaves=leaves, captured=captured, futures=futures)
    for target, entries in [each.made(arguments, own) for each in variant.changes]:
        fill(target, entries)


def _settled(entry: Entry, leaves: list[Any], captured: list[Any], futures: Sequence[Result]) -> Any:
    """What a run puts into the caller's object: arrays that the caller may change, not futures."""
    found = _leaves(entry.outputs, leaves, captured, futures, {})
    values = [leaf.result() if isinstance(leaf, Array) else leaf for leaf in found]
    own = [np.array(v) if isinstance(v, np.ndarray) and not v.flags.writeable else v for v in values]
    return unflatten(entry.structure, own)


def returned(
    variant: Variant, leaves: list[Any], captured: list[Any], futures: Sequence[Result], arguments: Any
) -> Any:
    """The result of a call with these ``(args, kwargs)``."""
    sizes = _sizes_of(variant, leaves) if variant.opened else {}
    shared: list[Any] = []
    for outputs, structure in variant.shared:
        shared.append(unflatten(structure, _leaves(outputs, leaves, captured, futures, sizes, arguments, shared)))
    return unflatten(
        variant.structure, _leaves(variant.outputs, leaves, captured, futures, sizes, arguments, shared)
    )


def _leaves(
    outputs: Sequence[Output],
    leaves: list[Any],
    captured: list[Any],
    futures: Sequence[Result],
    sizes: Mapping[Symbol, int],
    arguments: Any = None,
    shared: Sequence[Any] = (),
) -> list[Any]:
    """The leaves of a nest of a call; ``sizes`` says what the symbols of its trace are, ``shared`` are nests made
    before."""
    out = []
    for output in outputs:
        if output.kind == "static":
            out.append(output.value)
        elif output.kind == "given":
            out.append(found_at(arguments, output.value.place))
        elif output.kind == "outside":
            out.append(found_at(output.value.read(), output.value.place))
        elif output.kind == "shared":
            out.append(shared[output.index])
        elif output.kind == "set":
            out.append(set(output.value))
        elif output.kind == "generator":
            out.append(generator_of(futures[output.index].result()))
        elif output.kind == "arg":
            target = leaves[output.index] if output.index >= 0 else captured[~output.index]
            if isinstance(target, Array) and not output.chain:
                out.append(target)
            else:
                out.append(_view_of(np.asarray(target), output, futures) if output.chain else target)
        else:
            assert output.aval is not None
            chain = functools.partial(_viewed, output.chain) if output.chain else None
            aval = output.aval
            if sizes and not aval.static:
                aval = aval.with_extents(lambda extent: renamed(extent, sizes) if isinstance(extent, Dim) else extent)
            out.append(Array(futures[output.index], aval, chain, output.is_array))
    return out


def _view_of(target: Any, output: Output, futures: Sequence[Result]) -> Any:
    """A view of an argument; where it begins and ends the run may have computed."""
    first, count = output.inner
    values = [future.result() for future in futures[first : first + count]]
    split = count - len(output.dims)
    known = dict(zip(output.dims, values[split:], strict=True))
    return view(target, replaced(output.chain, known.__getitem__), values[:split])


def _sizes_of(variant: Variant, leaves: Sequence[Any]) -> dict[Symbol, int]:
    """What the symbols of a trace for many sizes are in a call."""
    known: dict[Symbol, int] = {}
    for place, aval in variant.opened.items():
        pairs = zip(aval.shape, leaves[place].shape if aval.shape else (), strict=True)
        known.update((mine.symbol, extent) for mine, extent in pairs if isinstance(mine, Dim) and mine.symbol)
    return known
