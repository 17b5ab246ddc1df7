"""What ``sum``, ``max``, ``any`` and their like do with many entries, or with as many as only the run knows: loops.

So a result has the type that Python gives it: ``sum`` of an empty list is the int 0, ``max`` of one raises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from futurex.frontend import control
from futurex.frontend.calls import call
from futurex.frontend.control.either import compared
from futurex.frontend.errors import Escape
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer, entered


class Fold:
    """What entries are put together to, one after the other: ``state``. ``left``: is the result known already?"""

    def __init__(self, *state: Any, left: Callable[[], Any] | None = None) -> None:
        self.state, self.left = state, left
        self.names = tuple(f"the result so far ({k})" for k in range(len(state)))

    def get(self) -> tuple[Any, ...]:
        return self.state

    def set(self, state: Any) -> None:
        self.state = tuple(state)

    def add(self, value: Any) -> None:
        raise NotImplementedError

    def take(self, test: Callable[[], Any] | None, entry: Callable[[], Any]) -> None:
        """A round of a comprehension: does it have an entry, and which?"""
        if test is None:
            self.add(entry())
        else:
            control.if_(test(), lambda: self.add(entry()), lambda: None, self.get, self.set, self.names)

    def go_over(
        self, test: Callable[[], Any] | None, values: Callable[[], Any], each: Callable[[Any], Any], count: int
    ) -> None:
        """A round of a comprehension goes over more values."""

        def go() -> None:
            control.for_(control.anew(values()), each(self), self.get, self.set, self.names, self.left)

        if test is None:
            go()
        else:
            control.if_(test(), go, lambda: None, self.get, self.set, self.names)

    def over(self, values: Any, body: Callable[[Any], Any] | None = None) -> Any:
        """The result for these entries, or for those of a comprehension whose loop has this ``body``."""
        control.for_(values, body or self.add, self.get, self.set, self.names, self.left)
        return self.state[0]


class Total(Fold):
    """``sum``."""

    def __init__(self, start: Any = 0) -> None:
        super().__init__(start)

    def add(self, value: Any) -> None:
        from futurex.frontend.hooks import Runtime

        value = entered(value)
        if sys.version_info >= (3, 12) and _is_pythons_float(value):
            raise Escape("sum() of traced Python floats", "Python compensates its rounding", "use np.sum")
        self.state = (Runtime.binary("add", self.state[0], value),)


def _is_pythons_float(value: Any) -> bool:
    if isinstance(value, Tracer):
        return (value.aval.weak or value._loose) and value.dtype.kind in "fc"
    return type(value) in (float, complex)


class Product(Fold):
    """``math.prod``."""

    def add(self, value: Any) -> None:
        from futurex.frontend.hooks import Runtime

        self.state = (Runtime.binary("mul", self.state[0], value),)


class IsAny(Fold):
    """``any``."""

    def __init__(self) -> None:
        super().__init__(False, left=lambda: self.state[0])

    def add(self, value: Any) -> None:
        self.state = (control.truth_of(control.asked(value)),)


class IsAll(Fold):
    """``all``."""

    def __init__(self) -> None:
        super().__init__(True, left=lambda: control.not_(self.state[0]))

    def add(self, value: Any) -> None:
        self.state = (control.truth_of(control.asked(value)),)


class Best(Fold):
    """``max`` or ``min`` of entries of which this is the first, by a key if there is one."""

    def __init__(self, comparison: str, key: Any, first: Any) -> None:
        self.comparison, self.key = comparison, key
        super().__init__(first, *([] if key is None else [call(key, (first,), {})]))

    def add(self, value: Any) -> None:
        from futurex.frontend.hooks import Runtime

        found = (value,) if self.key is None else (value, call(self.key, (value,), {}))
        new, old = found[-1], self.state[-1]
        test = Runtime.compare(self.comparison, compared(new, old), compared(old, new))
        control.if_(test, lambda: self.set(found), lambda: None, self.get, self.set, self.names)


FOLDS: dict[Any, Callable[..., Fold]] = {sum: Total, any: IsAny, all: IsAll}
_COMPARISONS = {max: "gt", min: "lt"}


def extreme(builtin: Any, length: Any, entry: Callable[[Any], Any], key: Any, default: dict[str, Any]) -> Any:
    """``max`` or ``min`` of entries that are known by number."""

    def look() -> Any:
        best = Best(_COMPARISONS[builtin], key, entry(0))
        return best.over(current().remember(control.Rows(length - 1, lambda i: entry(i + 1))))

    has_entries = length > 0
    if default:
        return control.if_expression(has_entries, look, lambda: default["default"])
    try:
        builtin(())
    except ValueError as error:
        control.assert_not(control.not_(has_entries), error)
    return look()
