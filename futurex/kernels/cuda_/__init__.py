"""CUDA C++ for fused regions and their reductions, as text, which needs neither a GPU nor CUDA to be made."""

from futurex.kernels.cuda_.reduction import COLUMNS, REDUCTIONS, columns_source, reduction_source
from futurex.kernels.cuda_.source import OPTIONS, Operand, numbered, region_source

__all__ = [
    "COLUMNS", "OPTIONS", "REDUCTIONS", "Operand", "columns_source", "numbered", "reduction_source", "region_source",
]  # fmt: skip
