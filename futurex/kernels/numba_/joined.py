"""Compiled ``fused_join``: each block is a region's own kernel, whose result is a view of the array that is made; where
the blocks are its columns, they are the results of one region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.registry import Kernel, Late
from futurex.kernels.steps import Bound, Following, Places, Step, Workspace
from futurex.ops.joined import Index, are_columns, block_of
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node, apply


@dataclass(frozen=True)
class Block:
    """One block, or all of them as columns: the region as a node of its own, which ``inputs`` of the join that reads,
    and where its results lie.

    ``target``: an array that lies as the block does where that has gaps between its rows; ``behind``: bytes from the
    first element of the array to that of each result.
    """

    node: Node
    inputs: tuple[int, ...]
    indices: tuple[Index, ...]
    target: np.ndarray[Any, Any] | None
    behind: tuple[int, ...]

    @property
    def columns(self) -> bool:
        """Are they columns of the array?"""
        return len(self.indices) > 1

    def written(self, join: Node) -> tuple[Node, ...]:
        """The array, if its parts are whole pieces of it, each of which may go past the caches."""
        return () if self.columns or self.target is not None else (join,)

    def of(self, array: Any) -> Any:
        """What of the array is written here, as the kernel takes it."""
        found = tuple(block_of(array, index) for index in self.indices)
        return found if self.columns else found[0]


def blocks_of(node: Node) -> list[Block]:
    """The blocks of a ``fused_join``."""
    graph = node.attrs["graph"]
    whole = np.empty(node.shape, node.dtype)  # nobody touches its pages
    outs, indices = graph.outs, node.attrs["blocks"]
    together = are_columns(node.shape, indices)
    groups = [(outs, indices)] if together else [([out], (index,)) for out, index in zip(outs, indices, strict=True)]
    found = []
    for made, places in groups:
        inside = set(topological(made))
        inputs = tuple(k for k, each in enumerate(graph.params) if each in inside)
        region = Graph([graph.params[k] for k in inputs], made, graph.name)
        targets = [block_of(whole, index) for index in places]
        found.append(
            Block(
                apply("fused", *(node.inputs[k] for k in inputs), graph=region),
                inputs,
                places,
                None if together or targets[0].flags.c_contiguous else targets[0],
                tuple(address_of(target) - address_of(whole) for target in targets),
            )
        )
    return found


class Joined:
    """The kernel of one node; ``kernels`` are those of its blocks."""

    def __init__(self, node: Node, blocks: Sequence[Block], kernels: Sequence[Kernel]) -> None:
        self.node, self.kernels = node, kernels
        self.blocks = [replace(each, target=None) for each in blocks]  # an array as large as the result would be kept
        self.parts: list[Late] = [kernel.late for kernel in kernels if kernel.late is not None]
        self.threads = max(getattr(part, "threads", 1) for part in self.parts)

    @property
    def interpreted(self) -> int:
        return max(part.interpreted for part in self.parts)

    @property
    def ready(self) -> bool:
        return all(part.ready for part in self.parts)

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the regions compiled; the array lies apart from all that they read."""
        for block, part in zip(self.blocks, self.parts, strict=True):
            part.prepare([sharing[k] for k in block.inputs], wait=wait)

    @property
    def bind(self) -> Callable[[Workspace], Bound] | None:
        """The kernel as steps, where those of all blocks are some."""
        binds = [kernel.bind for kernel in self.kernels]
        made = [bind for bind in binds if bind is not None]
        return (lambda space: _BoundJoin(self, [bind(space) for bind in made])) if len(made) == len(binds) else None

    def __call__(self, out: Any, *inputs: Any) -> Any:
        for block, kernel in zip(self.blocks, self.kernels, strict=True):
            kernel.call(block.of(out), *(inputs[k] for k in block.inputs))
        return out


class _BoundJoin:
    """The steps of all blocks, one after the other."""

    def __init__(self, join: Joined, bounds: Sequence[Bound]) -> None:
        self.join, self.bounds = join, bounds
        self.found: list[Sequence[Step]] = []
        self.steps: list[Step] = []

    @property
    def places(self) -> tuple[Sequence[Places], Mapping[int, Places]]:
        """Where it stands where blocks of the result lie, and their operands; no place of what some block copies."""
        out: list[tuple[int, int]] = []
        read: dict[int, list[tuple[int, int]]] = {}
        copied: set[int] = set()
        for block, bound in zip(self.join.blocks, self.bounds, strict=True):
            assert isinstance(bound, Following)  # as all regions are
            targets, sources = bound.places
            for target, far in zip(targets, block.behind, strict=True):
                out += [(place, behind + far) for place, behind in target]
            for number, k in enumerate(block.inputs):
                read.setdefault(k, []).extend(sources.get(number, ()))
                if number not in sources:
                    copied.add(k)
        return [out], {k: places for k, places in read.items() if k not in copied}

    def aim(self, out: Any, *inputs: Any) -> Sequence[Step] | None:
        """The steps on these arrays; None where one block has none on them."""
        found = []
        for block, bound in zip(self.join.blocks, self.bounds, strict=True):
            steps = bound.aim(block.of(out), *(inputs[k] for k in block.inputs))
            if steps is None:
                return None
            found.append(steps)
        if len(found) != len(self.found) or any(a is not b for a, b in zip(found, self.found, strict=True)):
            self.found, self.steps = found, [step for steps in found for step in steps]
        return self.steps
