"""``while`` and ``for``: Python where the rounds are known and few, staged where they are many or depend on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from futurex.frontend.control.branches import if_
from futurex.frontend.control.carried import stage_loop
from futurex.frontend.control.choices import and_, not_
from futurex.frontend.control.values import Get, Set, State, TracedRange, is_unknown
from futurex.frontend.errors import Escape
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, fresh, node_of

UNROLL = 16  # ranges up to this length are unrolled
UNROLL_CAP = 20_000  # iterations of a loop that cannot be staged


def while_(test: Callable[[], Any], body: Callable[[], Any], get: Get, set_: Set, names: tuple[str, ...], left: Callable[[], Any] | None) -> None:
    """A ``while`` statement. Runs as Python as long as its test is known; from then on it is staged."""

    def goes_on() -> Any:
        return test() if left is None else and_(not_(left()), test)

    rounds = 0
    while True:
        with current().scope():
            before = get()
            value = goes_on()
            unknown = is_unknown(value)
            set_(before)
        if unknown:
            stage_loop(goes_on, body, get, set_, names)
            return
        if not goes_on():
            return
        body()
        rounds += 1
        if rounds > UNROLL_CAP:
            raise Escape(f"a while loop of more than {UNROLL_CAP} rounds on known values", "unrolling it makes too large a tree")


def for_(iterable: Any, body: Callable[[Any], Any], get: Get, set_: Set, names: tuple[str, ...], left: Callable[[], Any] | None) -> None:
    """A ``for`` statement over a range, an array, or any known iterable."""
    if isinstance(iterable, TracedRange):
        _staged_range(iterable, lambda i: i, body, get, set_, names, left)
        return
    if isinstance(iterable, Tracer):
        if iterable.ndim == 0:
            raise TypeError("'numpy.float64' object is not iterable")
        n = iterable.shape[0]
        if n > UNROLL and _attempt(TracedRange(0, n, 1), lambda i: iterable[i], body, get, set_, names, left):
            return
        iterable = (iterable[k] for k in range(n))
    elif isinstance(iterable, range) and len(iterable) > UNROLL:
        staged = TracedRange(iterable.start, iterable.stop, iterable.step)
        if _attempt(staged, lambda i: i, body, get, set_, names, left):
            return
    _unroll(iterable, body, get, set_, names, left)


def _attempt(bounds: TracedRange, item: Callable[[Tracer], Any], body: Any, get: Get, set_: Set, names: Any, left: Any) -> bool:
    """Stage a loop over known values; on failure leave everything as it was, to unroll it."""
    trace = current()
    before = get()
    n_effects = len(trace.scopes[-1].effects if trace.scopes else trace.effects)
    try:
        _staged_range(bounds, item, body, get, set_, names, left)
    except Escape as escape:
        why = f"{escape.what}: {escape.why}"
    except Exception as error:  # what a traced index cannot do, a known one often can
        why = f"{type(error).__name__}: {error}"
    else:
        return True
    set_(before)
    del (trace.scopes[-1].effects if trace.scopes else trace.effects)[n_effects:]
    trace.notes.append(f"a loop is unrolled ({why})")
    return False


def _unroll(iterable: Any, body: Any, get: Get, set_: Set, names: Any, left: Any) -> None:
    for count, value in enumerate(iterable):
        if count > UNROLL_CAP:
            raise Escape(f"a loop of more than {UNROLL_CAP} rounds that cannot be staged", "unrolling it makes too large a tree")
        if left is None:
            body(value)
            continue
        gone = left()
        if not is_unknown(gone):
            if gone:
                return
            body(value)
        else:
            if_(not_(gone), lambda value=value: body(value), lambda: None, get, set_, names)


def _staged_range(bounds: TracedRange, item: Callable[[Tracer], Any], body: Any, get: Get, set_: Set, names: Any, left: Any) -> None:
    """A range loop is a while loop with a counter."""
    counter = [fresh(emit("python_scalar", node_of(bounds.start), kind="i"))]
    stop = node_of(bounds.stop)

    def test() -> Any:
        inside = fresh(emit("less" if bounds.step > 0 else "greater", counter[0]._node, stop))
        return inside if left is None else and_(inside, lambda: not_(left()))

    def step() -> None:
        body(item(counter[0]))
        counter[0] = fresh(emit("add", counter[0]._node, bounds.step))

    def get_all() -> State:
        return (*get(), counter[0])

    def set_all(state: State) -> None:
        set_(state[:-1])
        counter[0] = state[-1]

    known = isinstance(bounds.start, int) and isinstance(bounds.stop, int)
    runs = known and len(range(bounds.start, bounds.stop, bounds.step)) > 0
    stage_loop(test, step, get_all, set_all, (*names, "the counter"), runs_once=runs)
