"""Arguments given away: what becomes of memory, of futures that are read too late, and of whoever holds an array."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.errors import Donated
from futurex.frontend import inflight
from futurex.frontend.array import Array
from futurex.kernels import recycling
from futurex.runtime.counters import HOT
from futurex.runtime.futures import Future
from futurex.tree import Aval

SIZE = 60_000


def descend(params: Any, state: Any, x: Any) -> Any:
    gradient = params["w"] * x.mean() + 1.0
    moment = 0.9 * state["m"] + gradient
    return {"w": params["w"] - 0.1 * moment}, {"m": moment}, (gradient * gradient).sum()


def start() -> tuple[Any, Any, Any]:
    return {"w": np.linspace(-1.0, 1.0, SIZE)}, {"m": np.zeros(SIZE)}, np.linspace(0.0, 2.0, SIZE)


def address(array: Any) -> int:
    return int(np.asarray(array).ctypes.data)


@pytest.mark.parametrize("handed_over", [0, 4, 6], ids=["by workers", "by workers later", "here"])
def test_a_loop_of_steps_stays_in_its_memory_and_gives_numpys_values(
    monkeypatch: pytest.MonkeyPatch, handed_over: int
) -> None:
    monkeypatch.setattr(inflight, "WORTH", 0.0)
    step = fx.futurize(descend, donate=("params", "state"))
    params, state, x = start()
    wanted, moment, _ = start()
    seen = set()
    for k in range(6):
        monkeypatch.setattr(inflight, "SHORT", 0.0 if k >= handed_over else 1.0)
        params, state, loss = step(params, state, x)
        wanted, moment, loss_wanted = descend(wanted, moment, x)
        np.testing.assert_array_equal(np.asarray(params["w"]), wanted["w"])
        assert float(loss) == pytest.approx(float(loss_wanted), rel=1e-12)
        if k:
            seen.add((address(params["w"]), address(state["m"])))
    assert len(seen) == 1


def test_steps_under_way_are_chained_without_waiting() -> None:
    step = fx.futurize(descend, donate=("params", "state"))
    params, state, x = start()
    wanted, moment, _ = start()
    for _ in range(20):
        params, state, _ = step(params, state, x)
        wanted, moment, _ = descend(wanted, moment, x)
    np.testing.assert_array_equal(np.asarray(params["w"]), wanted["w"])
    np.testing.assert_array_equal(np.asarray(state["m"]), moment["m"])


def shift(w: Any, m: Any, x: Any) -> Any:
    return w * 0.5 + m + x.mean(), m + w


@pytest.mark.parametrize("size", [300, 400_000])
@pytest.mark.parametrize("held", ["nothing", "an array", "a view", "one future twice", "an ndarray", "a frozen array"])
def test_a_call_unlike_the_ones_before(held: str, size: int) -> None:
    """Many steps that were waited for, and then one whose arguments are not the caller's alone."""
    step = fx.futurize(shift, donate=("w", "m"))
    w, m, x = np.linspace(-1.0, 1.0, size), np.zeros(size), np.linspace(0.0, 2.0, 50)
    wide_w, wide_m = w, m
    for _ in range(HOT + 8):
        w, m = step(w, m, x)
        wide_w, wide_m = shift(wide_w, wide_m, x)
        w.result(), m.result()
    kept = np.asarray(w) if held == "an array" else None
    before = kept.copy() if kept is not None else None
    if held == "a view":
        w, wide_w = w[::-1], wide_w[::-1]
    if held == "one future twice":
        m, wide_m = w, wide_w
    if held == "an ndarray":
        w = np.array(w)
    if held == "a frozen array":
        np.asarray(m).setflags(write=False)
    for _ in range(3):
        w, m = step(w, m, x)
        wide_w, wide_m = shift(wide_w, wide_m, x)
        np.testing.assert_array_equal(np.asarray(w), wide_w)
        np.testing.assert_array_equal(np.asarray(m), wide_m)
    if kept is not None:
        np.testing.assert_array_equal(kept, before)


def test_what_a_short_call_gave_away_says_so_even_where_it_failed() -> None:
    def root(w: Any, k: Any) -> Any:
        return np.linalg.cholesky(w) * k, k

    step = fx.futurize(root, donate="w")
    w = np.eye(40)
    for _ in range(8):
        old = w
        w, _ = step(old, 1.0)
        np.testing.assert_array_equal(np.asarray(w), np.eye(40))
    with pytest.raises(fx.Donated, match="w was given away"):
        np.asarray(old)
    w = fx.futurize(lambda x: x - 2.0)(w)
    failed, _ = step(w, 1.0)
    with pytest.raises(np.linalg.LinAlgError):
        failed.result()
    with pytest.raises(fx.Donated, match="w was given away"):
        np.asarray(w)


@pytest.mark.parametrize(
    "read",
    [
        np.asarray, lambda a: a.result(), lambda a: a + 1, lambda a: a[0], float, list, np.sum,
        lambda a: a.as_future().result(), lambda a: fx.futurize(np.exp)(a).result(), lambda a: a.writable() + 1,
    ],
)  # fmt: skip
def test_what_was_given_away_says_so(read: Any) -> None:
    step = fx.futurize(lambda w: w * 2.0, donate="w")
    old = fx.futurize(np.cos)(np.ones(300))
    step(old).result()
    with pytest.raises(fx.Donated, match="w was given away"):
        np.asarray(read(old))
    assert isinstance(old.exception(), fx.Donated)
    assert old.shape == (300,)
    assert "given away" in repr(old)


@pytest.mark.parametrize(
    "hold",
    [
        np.asarray, lambda a: np.asarray(a)[10:], lambda a: memoryview(np.asarray(a)),
        lambda a: np.asarray(a).reshape(-1, 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [200, SIZE])
def test_memory_that_somebody_sees_is_copied(hold: Any, size: int) -> None:
    step = fx.futurize(lambda w: np.sqrt(w) - w, donate="w")
    first = fx.futurize(np.square)(np.full(size, 3.0))
    held = hold(first)
    before = np.array(held)
    expected = np.full(size, 3.0) - np.full(size, 9.0)
    np.testing.assert_array_equal(np.asarray(step(first)), expected)
    np.testing.assert_array_equal(np.array(held), before)


def test_arrays_of_the_caller_are_never_given_away() -> None:
    step = fx.futurize(lambda w: w + 1.0, donate="w")
    w = np.zeros(SIZE)
    assert [np.asarray(step(w))[0] for _ in range(2)] == [1.0, 1.0]
    assert not w.any()


def test_a_future_in_two_places_and_a_view_of_it() -> None:
    step = fx.futurize(lambda w, x: (w + x[::-1], x.sum()), donate="w")
    make = fx.futurize(lambda x: (y := np.square(x), y[: x.size]))
    for first, second in ((0, 0), (0, 1), (1, 0)):
        both = make(np.linspace(0, 1, SIZE))
        value = np.square(np.linspace(0, 1, SIZE))
        total, checksum = step(both[first], both[second])
        np.testing.assert_array_equal(np.asarray(total), value + value[::-1])
        assert float(checksum) == pytest.approx(value.sum())


def test_readers_under_way_keep_what_they_were_given() -> None:
    slow = fx.futurize(lambda x: [np.sin(x * k).sum() for k in range(40)])
    step = fx.futurize(lambda w: w * 0.0, donate="w")
    slow(np.ones(SIZE))
    first = fx.futurize(np.square)(np.linspace(0, 1, SIZE))
    sums = slow(first)
    step(first).result()
    value = np.square(np.linspace(0, 1, SIZE))
    assert [float(each) for each in sums] == pytest.approx([float(np.sin(value * k).sum()) for k in range(40)])


def test_what_comes_back_unchanged_or_as_a_view_is_right() -> None:
    function = fx.futurize(lambda w, v: (w, w[::2], v * 2.0, v), donate=("w", "v"))
    arrays = [fx.futurize(np.square)(np.full(SIZE, value)) for value in (1.0, 3.0)]
    same, half, twice, v = function(*arrays)
    assert np.asarray(same).tolist() == [1.0] * SIZE
    assert np.asarray(half).tolist() == [1.0] * (SIZE // 2)
    np.testing.assert_array_equal(np.asarray(twice), 2.0 * np.full(SIZE, 9.0))
    np.testing.assert_array_equal(np.asarray(v), np.full(SIZE, 9.0))


def test_a_call_that_waits_for_its_effects_gives_nothing_away() -> None:
    def write(w: Any, seen: Any) -> Any:
        seen[0] = w[0]
        return w + 1.0

    old = fx.futurize(np.exp)(np.zeros(300))
    seen = np.zeros(1)
    assert np.asarray(fx.futurize(write, donate="w")(old, seen))[0] == 2.0
    assert (seen[0], np.asarray(old)[0]) == (1.0, 1.0)
    with fx.disable():
        assert fx.futurize(lambda w: w + 1.0, donate="w")(old)[0] == 2.0
    assert np.asarray(old)[0] == 1.0


def test_a_result_that_arrives_while_it_is_given_away_reaches_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run gives out its results one after the other: who waited for the last one calls while others are to come."""
    future: Future[Any] = Future()
    w, plain = Array(future, Aval((SIZE,), np.dtype(float)), None, True), inflight.give_away

    def meanwhile(*args: Any) -> None:
        future.set_result(np.linspace(0.0, 1.0, SIZE))
        plain(*args)

    monkeypatch.setattr(inflight, "give_away", meanwhile)
    result = fx.futurize(lambda w: w * 0.5 + 1.0, donate="w")(w)
    np.testing.assert_array_equal(np.asarray(result), np.linspace(0.0, 1.0, SIZE) * 0.5 + 1.0)
    with pytest.raises(Donated, match="given away"):
        np.asarray(w)


def test_a_failed_run_raises_what_failed() -> None:
    def pick(w: Any, k: Any) -> Any:
        return w + w[k]

    step = fx.futurize(pick, donate="w")
    with pytest.raises(IndexError):
        np.asarray(step(fx.futurize(np.exp)(np.zeros(300)), np.int64(400)))
    assert np.asarray(step(fx.futurize(np.exp)(np.zeros(300)), np.int64(4)))[0] == 2.0


def test_arguments_by_keyword_and_of_many_sizes() -> None:
    step = fx.futurize(lambda w, scale: w * scale, donate="w")
    for size in range(300, 320):
        w = fx.futurize(np.exp)(np.zeros(size))
        assert np.asarray(step(scale=2.0, w=w)).tolist() == [2.0] * size


@pytest.mark.parametrize(
    ("donate", "kind", "text"),
    [
        ("v", ValueError, "no such parameter; it has: w, x"), (3, TypeError, "names of parameters, not 3"),
        ((1,), TypeError, "names of parameters"),
    ],
)
def test_names_that_do_not_fit_are_refused(donate: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        fx.futurize(lambda w, x: w, donate=donate)


def test_no_page_is_touched_for_the_first_time_in_steady_state() -> None:
    step = fx.futurize(descend, donate=("params", "state"))
    params, state, x = start()
    for _ in range(10):
        params, state, loss = step(params, state, x)
        loss.result()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        params, state, loss = step(params, state, x)
        loss.result()
        time.sleep(0)
    pages = 2 * SIZE * 8 // 4096  # of one step's results
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 50 * pages / 4


@pytest.mark.parametrize("comes", [True, False])
def test_what_is_given_away_goes_to_better_memory_as_soon_as_there_is_some(
    monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    """Code is not there at the first calls, that of the memory's functions neither."""
    from numpy._core.multiarray import get_handler_name

    if not recycling.prepare():
        pytest.skip("NumPy has no handlers of memory here")
    monkeypatch.setattr(recycling, "_made", [])
    monkeypatch.setattr(recycling, "_handler", lambda: None)
    step = fx.futurize(descend, donate=("params", "state"))
    params, state, x = {"w": np.ones(1 << 17)}, {"m": np.zeros(1 << 17)}, np.linspace(0.0, 2.0, 1 << 17)
    for _ in range(6):
        params, state, loss = step(params, state, x)
        loss.result()
    if comes:
        monkeypatch.undo()
    for _ in range(4):
        params, state, loss = step(params, state, x)
        loss.result()
    for each in (params["w"], state["m"]):
        assert get_handler_name(np.asarray(each)) == ("futurex" if comes else "default_allocator")


ACTIONS = ("step", "hold", "view", "drop", "share", "wait")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), max_size=14), st.sampled_from([64, 5000]), st.booleans(), st.booleans())
def test_whatever_the_caller_holds_keeps_its_elements(actions: list[str], size: int, wait: bool, hot: bool) -> None:
    """The judge is NumPy, and copies of everything that was in the caller's hands."""

    def function(w: Any, x: Any) -> Any:
        return w * 0.5 + x, (w - x).sum()

    step = fx.futurize(function, donate="w")
    twice = fx.futurize(lambda w: w * 2.0)
    x = np.linspace(-1.0, 1.0, size)
    w: Any = np.arange(float(size))
    value = w.copy()
    held: list[tuple[Any, Any]] = []
    for _ in range((HOT + 2) * hot):
        w, _ = step(w, x)
        value = value * 0.5 + x
    for action in actions:
        if action == "step":
            w, _ = step(w, x)
            value = value * 0.5 + x
        elif action == "hold":
            held.append((np.asarray(w), value))
        elif action == "view":
            held.append((np.asarray(w)[::2], value[::2]))
        elif action == "drop" and held:
            held.pop()
        elif action == "share":
            held.append((twice(w), value * 2.0))
        elif action == "wait" or wait:
            np.asarray(w)
        for array, elements in held:
            if not wait and isinstance(array, fx.Array):
                continue
            np.testing.assert_array_equal(np.asarray(array), elements)
    for array, elements in [*held, (w, value)]:
        np.testing.assert_array_equal(np.asarray(array), elements)
