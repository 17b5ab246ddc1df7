"""Which ops give the same bits however their operands lie in memory.

NumPy chooses among loops by stride and length; for roots, sums and the like all of them round the same way, for
transcendental functions they need not.
"""

from __future__ import annotations

from futurex.ops.fusion import CORRECTLY_ROUNDED
from futurex.tree.aval import Aval
from futurex.tree.node import Node

EXACT = CORRECTLY_ROUNDED - {"maximum", "minimum", "fmax", "fmin"}
"""Names of the ops whose result is one correctly rounded (or exact) function of the operands' bits.

``maximum`` and its kin are not among them: which zero NumPy returns for zeros of both signs depends on the loop.
"""


def exact(node: Node) -> bool:
    """True if the op on these operands gives the same bits in every loop; complex arithmetic is left out."""
    return node.op in EXACT and all(_real(each) for each in (node, *node.inputs))


def _real(node: Node) -> bool:
    return isinstance(node.aval, Aval) and node.aval.dtype.kind in "biuf"
