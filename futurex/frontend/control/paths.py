"""Choices that cannot be merged where they end: what follows them is traced once for each outcome.

An ``if`` on data is one ``cond`` if its branches leave values of the same types behind. Where they do not (None or an
array, float32 or float64, a list that grew in one of them), or where Python itself must decide (a ``return`` inside
``with``, a pattern of ``match``), the body around it is traced again, once for each outcome, and the merger is tried at
its end: of the loop body first, then of the function, then of its caller, up to the whole call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from futurex.frontend.errors import Escape, Retrace, Signal
from futurex.frontend.trace import current
from futurex.frontend.tracer import Conflict, Tracer, fresh
from futurex.tree.graph import Graph
from futurex.tree.node import Node, made_here, next_id
from futurex.tree.pytree import flatten

FORKS = 32  # choices of one trace, or of a round, that are merged later
FEW = 4  # choices that may be, whatever they cost
NODES = 6_000  # nodes that the traces of a call may make before more of them are refused


@dataclass(eq=False)
class Path:
    """One tracing of a body: the choices that it met, and the outcomes that are given for some of them. ``is_round``:
    of a loop's."""

    scope: Any
    outcomes: dict[int, bool]
    is_round: bool = False
    met: int = field(default=0)
    start: int = field(default_factory=next_id)


@dataclass(eq=False)
class Site:
    """A choice on a path, and its ``test``. ``outcome``: the one to take, if it is given."""

    path: Path
    number: int
    test: Node

    @property
    def outcome(self) -> bool | None:
        return self.path.outcomes.get(self.number)

    @property
    def may_fork(self) -> bool:
        """Can what follows it still be traced for each outcome?"""
        return self.outcome is None and self.path in current().paths

    def fork(self, why: Escape) -> NoReturn:
        """Go back to the beginning of the body and trace it for each outcome. Raises the reason if that is too much."""
        self.count(why)
        raise _Fork(self)

    def count(self, why: Escape) -> None:
        """The body is about to be traced for each outcome: not too often, nor where a call would be made twice."""
        if _needs_effect(self.test, self.path.start):
            raise Escape(why.what, f"{why.why}; a call that must not be made twice decides", why.do)
        _count_again(why)


def _count_again(why: Escape) -> None:
    """A body is about to be traced again: not too often, and not once the trace has grown long.

    A few times show whether lists are to blame that grow by data: then the whole call is, with those as arrays. Where
    rounds of a long loop meet such choices one by one, the others will, too.
    """
    trace = current()
    trace.forks += 1
    trace.all_forks += 1
    if trace.forks > FEW and trace.may_begin_again and trace.has_grown():
        raise Retrace from why
    rounds = max((loop.length for loop in trace.unrolled), default=0)
    too_long = trace.all_forks > FEW and made_here() - trace.begun > NODES
    if trace.forks > (FEW if rounds > FORKS else FORKS) or too_long:
        raise Escape(why.what, f"{why.why}; too many choices of this kind", why.do)


def _needs_effect(test: Node, start: int) -> bool:
    """Does a test depend on something that must run once, and that the body would make again if it is traced again?"""
    stack, seen = [test], {test}
    while stack:
        node = stack.pop()
        if _is_effect(node):
            return True
        later = {source for source in node.inputs if source.id >= start} - seen
        seen |= later
        stack.extend(later)
    return False


def _is_effect(node: Node) -> bool:
    inner = (each for value in node.attrs.values() if isinstance(value, Graph) for each in value.nodes)
    return (node.op != "param" and node.record.effect) or any(map(_is_effect, inner))


class _Fork(Signal):
    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site


def next_site(test: Node) -> Site | None:
    """The place of the next choice on the path being traced; None inside a branch or loop that began since."""
    trace = current()
    scope = trace.scopes[-1] if trace.scopes else None
    if not trace.paths or trace.paths[-1].scope is not scope:
        return None
    path = trace.paths[-1]
    path.met += 1
    return Site(path, path.met, test)


def decided(test: Node, what: str, why: str) -> bool:
    """The outcome of a test that Python itself needs: what follows is traced once for each."""
    site, reason = next_site(test), Escape(what, why)
    if site is None:
        reason.site = IN_BRANCH
        raise reason
    if site.outcome is None:
        site.fork(reason)
    return site.outcome


IN_BRANCH = object()  # the site of an Escape that stands in a branch and would not happen on a path


Merge = Callable[[Tracer, Callable[[], Any], Callable[[], Any]], Any]


def explored(run: Callable[[], Any], merge: Merge, undo: Callable[[], None]) -> Any:
    """Run a body; where a choice in it cannot be merged, ``merge`` two runs of it, one for each outcome.

    ``undo`` takes back what a run that is given up did to names.
    """
    return _explored(run, merge, undo, {}, False)


def explored_round(run: Callable[[], Any], merge: Merge, undo: Callable[[], None]) -> Any:
    """The same of a loop's round, which is traced several times: choices in it are counted for themselves."""
    trace = current()
    before, trace.forks = trace.forks, 0
    try:
        return _explored(run, merge, undo, {}, True)
    finally:
        trace.forks = before


def _explored(
    run: Callable[[], Any], merge: Merge, undo: Callable[[], None], outcomes: dict[int, bool], is_round: bool
) -> Any:
    trace = current()
    path = Path(trace.scopes[-1] if trace.scopes else None, outcomes, is_round)
    trace.paths.append(path)
    try:
        with trace.tentative():
            result = run()
            for leaf in flatten(result)[0]:
                is_one = type(leaf) is Conflict and leaf.alternatives is None
                if is_one and isinstance(leaf.where, Site) and leaf.where.path is path:
                    leaf.used()
            return result
    except _Fork as fork:
        if fork.site.path is not path:
            raise
        number, test = fork.site.number, fork.site.test
    except Escape as escape:
        site = escape.site
        if not isinstance(site, Site) or site.path is not path:
            raise
        number, test = site.number, site.test
        site.count(escape)
    finally:
        trace.paths.remove(path)
    undo()
    # Choices are counted: another outcome of this one gives those behind it other numbers.
    outcomes = {place: value for place, value in outcomes.items() if place < number}

    def outcome(value: bool) -> Callable[[], Any]:
        return lambda: _explored(run, merge, undo, {**outcomes, number: value}, is_round)

    return merge(fresh(test), outcome(True), outcome(False))
