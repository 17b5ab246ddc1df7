"""``np.choose`` and rounding to decimals."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.memory import laid_out
from futurex.frontend.numpy_api.registry import METHODS, handles
from futurex.frontend.numpy_api.ufuncs import exactly_into
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, fresh, node_of, strong


@handles(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    number = array_node(a)
    if number.dtype.kind not in "biu" or mode not in ("raise", "wrap", "clip"):
        raise Escape("numpy.choose with such numbers or options", "NumPy refuses them, or they are not traced")
    nodes = [node_of(choice) for choice in choices]
    dtype = np.result_type(*(node.dtype.type(0).item() if node.aval.weak else node.dtype for node in nodes))
    cast = [emit("cast", strong(node), dtype=dtype) if node.aval.weak else node for node in nodes]  # fitting or not
    result = fresh(emit("choose", number, *cast, mode=mode))
    return result if out is None else exactly_into(out, result, "numpy.choose")


@handles(np.round, np.around)
def round_(a: Any, decimals: Any = 0, out: Any = None) -> Any:
    x = as_tracer(a) if not isinstance(a, Tracer) or a.aval.weak else a
    decimals = operator.index(decimals)
    result = fresh(emit("round", array_node(x), decimals=decimals))
    if not result.is_scalar:
        scaled = decimals and x.dtype.kind != "c" and not (x.dtype.kind in "iu" and decimals > 0)
        laid_out(result, x, "A" if scaled else "K")
    if out is not None:
        return exactly_into(out, result, "numpy.round")
    return result


METHODS.update(choose=choose)
