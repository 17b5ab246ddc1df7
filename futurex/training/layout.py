"""A tree of operations as a layered drawing: layers by longest path, order by barycentres, one SVG."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from html import escape

MAX_NODES = 150
GAP, LAYER_HEIGHT, BOX_HEIGHT, MARGIN, LETTER = 14, 58, 28, 12, 7.2  # pixels
SWEEPS = 6
MAX_LABEL = 26


@dataclass(frozen=True)
class TreeNode:
    """One node to draw: `inputs` are the ids of the nodes it reads, `title` is shown under the pointer."""

    id: Hashable
    label: str
    inputs: tuple[Hashable, ...] = ()
    title: str = ""


def draw_tree(nodes: Sequence[TreeNode]) -> str:
    """Return an SVG of `nodes`, inputs above the nodes that read them; more than `MAX_NODES` are drawn in groups.

    Raises `ValueError` for an id that is there twice or unknown, or for a cycle.

    >>> draw_tree([TreeNode(0, "x"), TreeNode(1, "exp", (0,))]).count('class="node"')
    2
    """
    drawn = collapse(nodes, MAX_NODES)
    layers, parents = _with_waypoints(drawn)
    by_id = {node.id: node for node in drawn}
    widths = {
        key: LETTER * len(_short(by_id[key].label)) + 16 if key in by_id else 2.0 for row in layers for key in row
    }
    _untangle(layers, parents)
    x = _place(layers, parents, widths)
    y = {key: MARGIN + depth * LAYER_HEIGHT for depth, row in enumerate(layers) for key in row}
    width = max(x[key] + widths[key] / 2 for key in x) + MARGIN if x else 2 * MARGIN
    height = MARGIN * 2 + BOX_HEIGHT + LAYER_HEIGHT * max(len(layers) - 1, 0)
    edges = "".join(
        _edge(x[parent], y[parent] + (BOX_HEIGHT if parent in by_id else 0), x[key], y[key])
        for key, above in parents.items()
        for parent in above
    )
    boxes = "".join(_box(node, x[node.id], y[node.id], widths[node.id]) for node in drawn)
    shown = f"{len(nodes)} nodes" if len(drawn) == len(nodes) else f"{len(nodes)} nodes in {len(drawn)} groups"
    return (
        f'<svg class="tree" role="img" aria-label="Tree of operations, {shown}" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}"><g class="edges">{edges}</g>{boxes}</svg>'
    )


def collapse(nodes: Sequence[TreeNode], max_nodes: int) -> list[TreeNode]:
    """Return `nodes`, or if there are more than `max_nodes` groups of them: chains, then equals, then layers.

    >>> [node.label for node in collapse([TreeNode(i, "add", (i - 1,) if i else ()) for i in range(9)], 4)]
    ['add … add (9)']
    """
    drawn = list(nodes)
    _check(drawn)
    for group_of in (_chains, _twins, lambda nodes: _bands(nodes, max_nodes)):
        if len(drawn) > max_nodes:
            drawn = _merge(drawn, group_of)
    return drawn


def _check(nodes: Sequence[TreeNode]) -> None:
    known = {node.id for node in nodes}
    if len(known) < len(nodes):
        raise ValueError("two nodes of the tree have the same id")
    for node in nodes:
        for parent in node.inputs:
            if parent not in known:
                raise ValueError(f"node {node.id!r} ({node.label}) reads {parent!r}, which is not in the tree")
    _depths(nodes)


def _depths(nodes: Sequence[TreeNode]) -> dict[Hashable, int]:
    inputs = {node.id: node.inputs for node in nodes}
    depths: dict[Hashable, int] = {}
    try:
        for key in TopologicalSorter(inputs).static_order():
            depths[key] = 1 + max((depths[parent] for parent in inputs[key]), default=-1)
    except CycleError as error:
        raise ValueError(f"the nodes {error.args[1]} read each other in a circle") from error
    return depths


def _merge(nodes: list[TreeNode], group_of: Callable[[list[TreeNode]], dict[Hashable, Hashable]]) -> list[TreeNode]:
    group = group_of(nodes)
    members: dict[Hashable, list[TreeNode]] = {}
    for node in nodes:
        members.setdefault(group[node.id], []).append(node)
    merged = []
    for key, inside in members.items():
        inputs = dict.fromkeys(group[parent] for node in inside for parent in node.inputs if group[parent] != key)
        first, last = inside[0].label, inside[-1].label
        label = first if len(inside) == 1 else f"{first} … {last} ({len(inside)})"
        title = "\n".join(node.title or node.label for node in inside)
        merged.append(replace(inside[0], id=key, label=label, inputs=tuple(inputs), title=title))
    return merged


def _chains(nodes: list[TreeNode]) -> dict[Hashable, Hashable]:
    readers: dict[Hashable, int] = {}
    for node in nodes:
        for parent in set(node.inputs):
            readers[parent] = readers.get(parent, 0) + 1
    inputs, depths = {node.id: node.inputs for node in nodes}, _depths(nodes)
    group: dict[Hashable, Hashable] = {}
    for key in sorted(depths, key=depths.__getitem__):
        above = set(inputs[key])
        only = next(iter(above)) if len(above) == 1 else None
        group[key] = group[only] if len(above) == 1 and readers[only] == 1 else key
    return group


def _twins(nodes: list[TreeNode]) -> dict[Hashable, Hashable]:
    depths = _depths(nodes)
    return {node.id: (depths[node.id], node.label) for node in nodes}


def _bands(nodes: list[TreeNode], bands: int) -> dict[Hashable, Hashable]:
    depths = _depths(nodes)
    layers = max(depths.values()) + 1
    return {key: ("band", depth * min(bands, layers) // layers) for key, depth in depths.items()}


def _with_waypoints(nodes: Sequence[TreeNode]) -> tuple[list[list[Hashable]], dict[Hashable, list[Hashable]]]:
    depths = _depths(nodes)
    layers: list[list[Hashable]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    parents: dict[Hashable, list[Hashable]] = {}
    for node in nodes:
        layers[depths[node.id]].append(node.id)
    for node in nodes:
        parents[node.id] = []
        for parent in dict.fromkeys(node.inputs):
            below = parent
            for depth in range(depths[parent] + 1, depths[node.id]):  # a long edge bends around what lies between
                waypoint = ("waypoint", parent, node.id, depth)
                layers[depth].append(waypoint)
                parents[waypoint] = [below]
                below = waypoint
            parents[node.id].append(below)
    return layers, parents


def _children(parents: dict[Hashable, list[Hashable]]) -> dict[Hashable, list[Hashable]]:
    children: dict[Hashable, list[Hashable]] = {key: [] for key in parents}
    for key, above in parents.items():
        for parent in above:
            children[parent].append(key)
    return children


def _untangle(layers: list[list[Hashable]], parents: dict[Hashable, list[Hashable]]) -> None:
    children = _children(parents)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = parents if down else children
        rank: dict[Hashable, float] = {}
        for row in layers if down else reversed(layers):
            for place, key in enumerate(row):
                near = [rank[other] for other in neighbours[key]]
                rank[key] = sum(near) / len(near) if near else place
            row.sort(key=rank.__getitem__)
            rank.update({key: place for place, key in enumerate(row)})


def _place(
    layers: list[list[Hashable]], parents: dict[Hashable, list[Hashable]], widths: dict[Hashable, float]
) -> dict[Hashable, float]:
    children = _children(parents)
    x = {key: 0.0 for row in layers for key in row}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in layers if down else reversed(layers):
            wanted = []
            for key in row:
                near = [
                    x[other] for other in ((parents if down else children)[key] or (children if down else parents)[key])
                ]
                wanted.append(sum(near) / len(near) if near else x[key])
            right = float("-inf")
            for key, wish in zip(row, wanted, strict=True):
                x[key] = max(wish, right + widths[key] / 2)
                right = x[key] + widths[key] / 2 + GAP
            shift = sum(wish - x[key] for key, wish in zip(row, wanted, strict=True)) / len(row)
            for key in row:
                x[key] += shift
    left = min((x[key] - widths[key] / 2 for key in x), default=0.0)
    return {key: place - left + MARGIN for key, place in x.items()}


def _short(label: str) -> str:
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"


def _edge(x0: float, y0: float, x1: float, y1: float) -> str:
    middle = (y0 + y1) / 2
    return f'<path d="M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"/>'


def _box(node: TreeNode, x: float, y: float, width: float) -> str:
    return (
        f'<g class="node"><title>{escape(node.title or node.label)}</title>'
        f'<rect x="{x - width / 2:.1f}" y="{y}" width="{width:.1f}" height="{BOX_HEIGHT}" rx="5"/>'
        f'<text x="{x:.1f}" y="{y + BOX_HEIGHT / 2 + 4:.1f}">{escape(_short(node.label))}</text></g>'
    )
