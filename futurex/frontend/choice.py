"""Staged or plain: a short call that is faster as plain NumPy goes on as that.

What a function costs staged is known only when its plan has settled, and what it costs plain only when it has run so.
Therefore calls of one kind go both ways a few times, each call one way, and the faster way stays; they are compared
again from time to time. Only calls that compute and do nothing else have the choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.inflight import is_short
from futurex.frontend.ownership import call_and_look
from futurex.frontend.plain import as_futures, is_apart
from futurex.frontend.variants import Output, Variant
from futurex.runtime.plan import Plan
from futurex.tree.aval import PYTHON_SCALARS

WORTH, FEWEST = 40e-3, 50
"""Seconds and calls after which both ways are compared."""
TRIALS, AGAIN = 8, 4096
"""Calls of each way that are compared, and calls until they are compared again."""
_BETTER = 1.0  # of the staged time: plain calls that take less are taken


class Misfit(Exception):
    """A plain call returned something else than the trace says; ``result`` is what the caller gets."""

    def __init__(self, result: Any) -> None:
        super().__init__("a result of another kind")
        self.result = result


class Choice:
    """How calls of one trace go. Threads may call at once: a measurement that is lost does no harm."""

    __slots__ = ("_calls", "_plain", "_spent", "_staged", "open", "pack", "plain", "seconds", "variant")

    def __init__(self, variant: Variant, pack: Callable[[list[Any]], Any]) -> None:
        """``variant``: one that only :func:`computes`; ``pack`` puts its results into the nest that calls return."""
        self.variant, self.pack = variant, pack
        self.open = True
        self.plain = False  # do calls go as plain NumPy?
        self.seconds = (0.0, 0.0)  # of a call, staged and plain, as last compared
        self._calls, self._spent = 0, 0.0
        self._staged: list[float] = []
        self._plain: list[float] = []

    @property
    def next_is_plain(self) -> bool:
        """Shall the next call be plain?"""
        return self.plain or len(self._plain) < len(self._staged)

    def was_staged(self, began: float) -> None:
        """A staged call, begun at ``began``, has returned."""
        took = time.perf_counter() - began
        if self._settled():
            self._staged.append(took)
        else:
            self._calls += 1
            self._spent += took

    def _settled(self) -> bool:
        """Has the plan come to the form in which it stays? A long run, which has a thread of its own, has no choice; it
        may have been long because the machine was busy."""
        if self._spent < WORTH or self._calls < FEWEST:
            return False
        plan = self.variant.plan
        if not is_short(plan):
            self._calls, self._spent, self._staged, self._plain = 0, 0.0, [], []
            return False
        return isinstance(plan, Plan) and (plan.whole is None or plan.whole.settled)

    def was_plain(self, began: float) -> None:
        """A plain call, begun at ``began``, is over."""
        if self.plain:
            self._calls += 1
            if not self._calls % AGAIN:
                self.plain, self._staged, self._plain = False, [], []
            return
        self._plain.append(time.perf_counter() - began)
        if len(self._plain) < TRIALS:
            return
        self.seconds = min(self._staged), min(self._plain)
        self.plain = self.seconds[1] < _BETTER * self.seconds[0]
        self.open, self._calls = self.plain, 0

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Any]
    ) -> Any:
        """What the call would return staged, of a plain call with the leaves ``given``: arrays that nobody else holds.

        Raises Misfit for a result of another kind, and what the function raises.
        """
        looked = call_and_look(lambda: function(*args, **kwargs))
        outputs = self.variant.outputs
        if looked.structure != self.variant.structure or not all(map(_fits, looked.leaves, outputs)):
            raise Misfit(as_futures(looked, args, kwargs))
        found: list[Any] = [None] * len(outputs)
        for leaf, own, output in zip(looked.leaves, looked.alone, outputs, strict=True):
            mine = not isinstance(leaf, np.ndarray) or (own and is_apart(leaf, given))
            found[output.index] = leaf if mine else leaf.copy()
        return self.pack(found)

    def text(self) -> str | None:
        """What there is to say of the choice."""
        staged, plain = (f"{seconds * 1e6:.3g} µs" for seconds in self.seconds)
        return f"calls run as plain NumPy, which is faster: {plain} instead of {staged}" if self.plain else None


def computes(variant: Variant) -> bool:
    """Does a call return new arrays and do nothing else?"""
    return (
        not (variant.written or variant.changes or variant.generators or variant.prints or variant.opened)
        and not (variant.gives or (variant.waits and not variant.has_log))
        and not any(key[0] is Array for key in variant.leaves)
        and all(output.kind == "out" and not output.chain for output in variant.outputs)
        and max((output.index for output in variant.outputs), default=0) < len(variant.outputs)
    )


def _fits(leaf: Any, output: Output) -> bool:
    """Is it what the trace says?"""
    aval = output.aval
    assert aval is not None
    if aval.weak:
        return type(leaf) in PYTHON_SCALARS and np.asarray(leaf).dtype == aval.dtype
    if type(leaf) is not np.ndarray and not isinstance(leaf, np.generic):
        return False
    if leaf.dtype != aval.dtype or leaf.ndim != len(aval.shape) or isinstance(leaf, np.ndarray) is not output.is_array:
        return False
    return not aval.static or leaf.shape == aval.shape
