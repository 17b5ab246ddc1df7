"""Source rewriting: what Python cannot intercept becomes a call on the runtime object ``__fx__``.

Calls, subscripts, writes, ``if``/``while``/``for``, conditional expressions, ``and``/``or``/``not``, comparisons that
chain, ``in``, ``assert`` and ``raise`` are rewritten; everything else stays as it is. Line numbers and the file name
are kept, so tracebacks and debuggers show the user's own lines. The functional form of control flow follows AutoGraph
(Moldovan et al., SysML 2019): the names a statement assigns are its state, read and written by generated closures.
"""

from futurex.frontend.rewrite.function import is_rewritten, rewrite
from futurex.frontend.rewrite.source import NoSource

__all__ = ["NoSource", "is_rewritten", "rewrite"]
