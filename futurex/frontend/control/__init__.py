"""Control flow on traced values: ``if``, ``while``, ``for`` and the expressions that choose.

A statement's state is the names it assigns (read and written by generated closures) and the cells it writes. Where a
test is known, Python runs as Python. Where staging cannot work it raises Escape; a loop over known values is unrolled
instead.
"""

from futurex.frontend.control.branches import if_
from futurex.frontend.control.choices import and_, assert_, assert_not, body, if_expression, not_, or_
from futurex.frontend.control.collected import Appended
from futurex.frontend.control.loops import anew, filled, for_, while_, while_small
from futurex.frontend.control.paths import IN_BRANCH, decided
from futurex.frontend.control.positions import lose, only_looks
from futurex.frontend.control.rows import Rows, TracedRange
from futurex.frontend.control.values import UNDEF, asked, is_unknown, truth, truth_of

__all__ = [
    "IN_BRANCH",
    "UNDEF",
    "Appended",
    "Rows",
    "TracedRange",
    "and_",
    "anew",
    "asked",
    "assert_",
    "assert_not",
    "body",
    "decided",
    "filled",
    "for_",
    "if_",
    "if_expression",
    "is_unknown",
    "lose",
    "not_",
    "only_looks",
    "or_",
    "truth",
    "truth_of",
    "while_",
    "while_small",
]
