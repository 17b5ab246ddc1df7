"""Graphs as text: executable Python, Graphviz, Newick, CSV and JSON (the field names that Traveler reads)."""

from __future__ import annotations

import io
import json
import keyword
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from futurex.tree.aval import Aval, Literal
from futurex.tree.dims import Dim, Symbol
from futurex.tree.graph import Graph, symbol_names
from futurex.tree.node import Node


def python(graph: Graph) -> str:
    """Executable Python: run it on arrays to compute, on nodes to build the same graph again.

    >>> import futurex as fx, numpy as np
    >>> g = fx.futurize(lambda x: np.exp(x) * 2).graph(np.ones(3))
    >>> scope = {}
    >>> exec(str(g), scope)
    >>> scope[g.name.replace("<lambda>", "lambda_")](np.zeros(3))
    (array([2., 2., 2.]),)
    """
    functions: dict[str, str] = {}
    name = _function(graph, functions)
    head = "import numpy as np\nfrom futurex import ops\nfrom futurex.tree import Aval, Graph, dimension, param\n\n"
    return (
        head
        + "\n\n".join(functions.values())
        + ("" if name == _identifier(graph.name) else f"\n\n{_identifier(graph.name)} = {name}")
        + "\n"
    )


def compile_printed(text: str, name: str) -> Any:
    """The function ``name`` of a printed graph."""
    scope: dict[str, Any] = {}
    exec(compile(text, "<printed graph>", "exec"), scope)
    return scope[_identifier(name)]


def _function(graph: Graph, functions: dict[str, str]) -> str:
    name = _identifier(graph.name)
    if name in functions:
        name = f"{name}_{graph.hash[:8]}"
    if name in functions:
        return name
    functions[name] = ""  # reserve the name before sub-graphs take theirs
    names: dict[Node, str] = {}
    symbols = symbol_names(graph)
    taken: set[str] = set()
    for node in graph.params:
        names[node] = _fresh(node.attrs["name"] or f"a{len(names)}", taken)
    like = names[graph.params[0]] if graph.params else "None"
    lines = [f"def {name}({', '.join(names[node] for node in graph.params)}):"]
    if graph.params:
        lines.append("    # " + ", ".join(f"{names[node]}: {node.aval.text(symbols)}" for node in graph.params))
    for node in graph.nodes:
        if node in names:
            continue
        if node.op == "const" and node.aval.weak:
            names[node] = _value(node.attrs["value"], functions)
            continue
        if node.op == "const":
            names[node] = _fresh(f"v{len(names)}", taken)
            lines.append(f"    {names[node]} = {_value(node.attrs['value'], functions)}  # {node.aval!r}")
            continue
        names[node] = _fresh(f"v{len(names)}", taken)
        line = f"    {names[node]} = {_call(node, names, functions, like, symbols)}"
        comment = f"  # {node.aval.text(symbols)}" if isinstance(node.aval, Aval) else ""
        if node.src is not None and node.src.line:
            comment += f"{'' if comment else '  #'} {node.src}: {node.src.text()}"
        lines.append(line + comment)
    outs = "".join(f"{names[node]}, " for node in graph.outs)
    lines.append(f"    return ({outs.rstrip()})")
    del functions[name]  # again, behind the sub-graphs it uses
    functions[name] = "\n".join(lines)
    return name


def _call(
    node: Node, names: Mapping[Node, str], functions: dict[str, str], like: str, symbols: dict[Symbol, str]
) -> str:
    inputs = [names[source] for source in node.inputs]
    attrs = [f"{name}={_value(value, functions, symbols)}" for name, value in node.attrs.items()]
    if not inputs or all(source.op == "const" for source in node.inputs):
        return f"ops.build({', '.join([like, repr(node.op), *inputs, *attrs])})"
    return f"ops.{node.op}({', '.join(inputs + attrs)})"


def _value(value: Any, functions: dict[str, str], symbols: dict[Symbol, str] | None = None) -> str:
    if isinstance(value, Dim):
        return f"dimension({value.text(symbols or {})!r})"
    if isinstance(value, Graph):
        name = _function(value, functions)
        inner = symbol_names(value)
        params = ", ".join(f"param({_aval(node.aval, inner)}, {node.attrs['name']!r})" for node in value.params)
        return f"ops.subgraph({name}, [{params}], {value.name!r})"
    if isinstance(value, Literal):
        return literal(value.value)
    if isinstance(value, tuple):
        return f"({''.join(_value(entry, functions, symbols) + ', ' for entry in value)})"
    if isinstance(value, np.dtype):
        return f"np.dtype({value.str!r})" if value.names is None else f"np.dtype({value.descr!r})"
    if isinstance(value, Aval):
        return _aval(value, symbols or {})
    if isinstance(value, float | complex):
        return literal(value)
    return repr(value)


def _aval(aval: Aval, symbols: dict[Symbol, str]) -> str:
    extents = "".join(
        f"dimension({extent.text(symbols)!r}), " if isinstance(extent, Dim) else f"{extent}, " for extent in aval.shape
    )
    return f"Aval(({extents.rstrip()}), np.dtype({aval.dtype.str!r}), {aval.weak!r})"


def literal(value: Any) -> str:
    """A number or array as Python that gives the same bits again (``np`` stands for NumPy)."""
    if isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if np.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    array = np.asarray(value)
    text = f"np.frombuffer({array.tobytes()!r}, np.dtype({array.dtype.str!r})).reshape({array.shape!r})"
    return text if isinstance(value, np.ndarray) else f"{text}[()]"


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text.replace("<lambda>", "lambda_"))
    return f"{name}_" if keyword.iskeyword(name) else (name if not name[:1].isdigit() else f"_{name}")


def _fresh(name: str, taken: set[str]) -> str:
    name = base = _identifier(name)
    count = 1
    while name in taken or name in ("np", "ops"):
        name, count = f"{base}_{count}", count + 1
    taken.add(name)
    return name


def _instances(graph: Graph) -> list[tuple[Node, str]]:
    return [(node, f"{node.op}${index}") for index, node in enumerate(graph.nodes)]


def _called(node: Node) -> str:
    """An operation's name; that of an argument is what the user calls it."""
    return str(node.attrs["name"] or node.op) if node.op == "param" else node.op


def dot(graph: Graph) -> str:
    """Graphviz source, one box per node, the user's line as tooltip."""
    names = dict(_instances(graph))
    out = io.StringIO()
    out.write(f"digraph {json.dumps(graph.name)} {{\n  node [shape=box];\n")
    for node, name in names.items():
        label = f"{_called(node)}\n{node.aval!r}"
        tip = f"{node.src}: {node.src.text()}" if node.src else ""
        out.write(f'  "{name}" [label={json.dumps(label)}, tooltip={json.dumps(tip)}];\n')
        for source in node.inputs:
            out.write(f'  "{names[source]}" -> "{name}";\n')
    out.write("}\n")
    return out.getvalue()


def newick(graph: Graph) -> str:
    """Newick text of the tree; a node used twice is written at its first use and named again afterwards."""
    names = dict(_instances(graph))
    text: dict[Node, str] = {}
    used: set[Node] = set()

    def child(node: Node) -> str:
        if node in used:
            return names[node]
        used.add(node)
        return text[node]

    for node in graph.nodes:
        inner = ",".join(child(source) for source in node.inputs)
        text[node] = f"({inner}){names[node]}" if inner else names[node]
    return f"({','.join(child(node) for node in graph.outs)}){_identifier(graph.name)};"


def csv(graph: Graph, counters: Mapping[Node, tuple[int, int]]) -> str:
    """One row per node: instance, display name, count, time and direct execution, the columns that Traveler reads."""
    rows = ["primitive_instance,display_name,count,time,eval_direct"]
    for node, name in _instances(graph):
        count, time = counters.get(node, (0, 0))
        display = f"{_called(node)}({node.src})" if node.src and node.src.line else _called(node)
        rows.append(f"{name},{display},{count},{time},1")
    return "\n".join(rows) + "\n"


def to_json(graph: Graph) -> str:
    """Nodes and edges as JSON."""
    names = dict(_instances(graph))
    nodes = [
        {
            "primitive_instance": name,
            "display_name": _called(node),
            "aval": repr(node.aval),
            "inputs": [names[source] for source in node.inputs],
            "line": node.src.line if node.src else None,
            "file": node.src.file.rsplit("/", 1)[-1] if node.src else None,
        }
        for node, name in names.items()
    ]
    return json.dumps({"name": graph.name, "hash": graph.hash, "nodes": nodes, "outs": [names[n] for n in graph.outs]})
