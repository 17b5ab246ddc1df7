"""Factor rules: the tiling strings of op records, parsed once into immutable recipes.

``"n k, k m -> n m"`` gives each dimension of each array a name. Names of inputs that come back in the output pass
through, others are reduced. ``!x`` must be whole, ``1`` is a broadcast dimension, ``"elementwise"`` aligns all inputs
to the right.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from futurex.partition.mesh import PartitionError
from futurex.tree.aval import Aval
from futurex.tree.node import Node

Names = tuple[str, ...]
_NAME = re.compile(r"!?[A-Za-z_]\w*|1")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A parsed rule: one name per dimension of every input and output; names in ``whole`` cannot be sharded."""

    inputs: tuple[Names, ...]
    outs: tuple[Names, ...]
    whole: frozenset[str]

    def shardable(self, name: str) -> bool:
        """True for a name along which ranks may each compute their own part."""
        return name != "1" and name not in self.whole


@functools.lru_cache(maxsize=4096)
def parse(rule: str) -> Recipe:
    """The recipe of a rule text; raises PartitionError where it is malformed.

    >>> parse("n k, k m -> n m").outs
    (('n', 'm'),)
    """
    sides = rule.split("->")
    if len(sides) != 2:
        raise PartitionError(f"the tiling rule {rule!r} needs one '->' between its inputs and its outputs")
    inputs, outs = (tuple(tuple(term.split()) for term in side.split(",")) for side in sides)
    for name in (name for term in inputs + outs for name in term):
        if not _NAME.fullmatch(name):
            raise PartitionError(f"the tiling rule {rule!r} has {name!r} where a name, '!name' or '1' must stand")
    whole = {name[1:] for term in inputs + outs for name in term if name.startswith("!")}
    bare = tuple(tuple(name.lstrip("!") for name in term) for term in inputs + outs)
    # Both dimensions of a diagonal have one name: no tile of it is a diagonal of tiles.
    whole.update(name for term in bare for name in term if name != "1" and term.count(name) > 1)
    return Recipe(bare[: len(inputs)], bare[len(inputs) :], frozenset(whole))


@functools.lru_cache(maxsize=4096)
def elementwise(shapes: tuple[tuple[int, ...], ...], out: tuple[int, ...], n_outs: int = 1) -> Recipe:
    """The recipe of an elementwise op: dimensions aligned to the right, those that are broadcast named 1."""
    names = tuple(f"d{k}" for k in range(len(out)))
    inputs = tuple(
        tuple(
            name if extent == whole else "1"
            for name, extent, whole in zip(
                names[len(out) - len(shape) :], shape, out[len(out) - len(shape) :], strict=True
            )
        )
        for shape in shapes
    )
    return Recipe(inputs, (names,) * n_outs, frozenset())


def recipe_of(node: Node) -> Recipe | None:
    """The recipe of a node, None for an op without a rule; raises PartitionError where rule and node disagree."""
    factors = node.record.factors
    if factors is None:
        return None
    avals = tuple(source.aval for source in node.inputs)
    outs: tuple[Aval, ...] = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    if factors == "elementwise":
        return elementwise(tuple(aval.shape for aval in avals), outs[0].shape, len(outs))
    rule = factors if isinstance(factors, str) else factors(*avals, **node.attrs)
    recipe = parse(rule)
    if not avals and recipe.inputs == ((),):
        recipe = Recipe((), recipe.outs, recipe.whole)
    _check(node, rule, recipe, avals, outs)
    return recipe


def _check(node: Node, rule: str, recipe: Recipe, avals: tuple[Aval, ...], outs: tuple[Aval, ...]) -> None:
    terms, arrays = recipe.inputs + recipe.outs, avals + outs
    if len(recipe.inputs) != len(avals) or len(recipe.outs) != len(outs):
        raise PartitionError(
            f"the tiling rule {rule!r} of {node.op} names {len(recipe.inputs)} inputs and {len(recipe.outs)} outputs; "
            f"it has {len(avals)} and {len(outs)}{where(node)}"
        )
    extents: dict[str, int] = {}
    for term, aval in zip(terms, arrays, strict=True):
        if len(term) != len(aval.shape):
            raise PartitionError(
                f"the tiling rule {rule!r} of {node.op} names {len(term)} dimensions of {aval!r}{where(node)}"
            )
        for name, extent in zip(term, aval.shape, strict=True):
            if recipe.shardable(name) and extents.setdefault(name, extent) != extent:
                raise PartitionError(
                    f"the tiling rule {rule!r} of {node.op} gives one name, {name!r}, to dimensions of {extents[name]} "
                    f"and {extent}{where(node)}; mark it '!{name}' if it must be whole"
                )


def where(node: Node) -> str:
    """The user's line of a node, as the end of a message."""
    return f" at {node.src}: {node.src.text()}" if node.src and node.src.line else ""
