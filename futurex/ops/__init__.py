"""The op records, one module per family. ``ops.<name>`` is the record, which builds nodes or computes arrays.

No module may have the name of an op: it would hide the record.
"""

from __future__ import annotations

from typing import Any

from futurex.ops import (  # noqa: F401  (registers the records)
    attempts,
    choosing,
    comm,
    contract,
    control,
    convolution,
    draws,
    dynamic,
    elementwise,
    epilogue,
    factor_grad,
    factorizations,
    fourier,
    framing,
    fusion,
    heads,
    index,
    joined,
    library,
    linalg,
    logits,
    loops,
    mathematics,
    meanings,
    normalize,
    norms,
    opaque,
    polynomials,
    pool,
    precision,
    products,
    python,
    quantiles,
    random,
    recursion,
    reduce,
    regions,
    scipy_linear,
    shape,
    shared_factors,
    signals,
    sorting,
    special,
    special_slopes,
    spectra,
    streams,
    sweeps,
    tapes,
    tiles,
    triangular,
    ufunc_methods,
    ufunc_parts,
    views,
    written,
)
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply
from futurex.tree.record import Op, record


def build(like: Any, name: str, *inputs: Any, **attrs: Any) -> Any:
    """The op ``name`` of constants as ``like`` is: a node where it is a node, otherwise computed.

    Printed text needs it: nothing else says whether a function without array inputs builds or runs.
    """
    return apply(name, *inputs, **attrs) if isinstance(like, Node) else record(name).compute(*inputs, **attrs)


def subgraph(function: Any, params: list[Node], name: str) -> Graph:
    """A graph from a printed function and fresh inputs (what printed text uses for attributes that are graphs)."""
    return Graph(params, function(*params), name)


def __getattr__(name: str) -> Op:
    try:
        return record(name)
    except KeyError:
        raise AttributeError(f"no op is named {name!r}") from None


__all__ = ["build", "subgraph"]
