"""Results are futures and arrays; runs see their arguments as they were; effects happen in order."""

import asyncio
import concurrent.futures
import copy
import pickle
import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from compare import is_staged, outcome
from function_cases import require_positive

import futurex as fx
from futurex.runtime.habit import EVERY
from futurex.runtime.local import executor

BIG = 1 << 19  # elements: more work than a call does by itself


@fx.futurize
def heavy(x):
    for _ in range(6):
        x = np.tanh(x @ (x.T @ x) * 1e-4 + x)
    return x


@fx.futurize
def add(x, y):
    return x + y


@fx.futurize
def element(x, i):
    return x[i] * 2


class Gate:
    """A future argument that a test completes when it likes."""

    def __init__(self, value):
        self.value = value
        self.future = executor_future()
        self.array = fx.Array(self.future, aval_of(value))

    def open(self):
        self.future.set_result(self.value)


def executor_future():
    from futurex.runtime.futures import Future

    return Future()


def aval_of(value):
    from futurex.tree.aval import aval_of as of

    return of(value)


def test_calls_chain_without_waiting():
    gate = Gate(np.ones(3))
    first = add(gate.array, 1.0)
    second = add(first, first)
    third = np.sqrt(second) + second[1] - second.sum() * 0
    assert not second.done()
    assert (third.shape, third.dtype) == ((3,), np.float64)
    assert "pending" in repr(third)
    gate.open()
    assert third.result(timeout=60).tolist() == [6.0, 6.0, 6.0]
    assert third.done()
    assert repr(second) == "fx.array([4., 4., 4.])"


def test_a_wait_has_a_deadline():
    gate = Gate(np.ones(3))
    pending = add(gate.array, 1.0)
    with pytest.raises(TimeoutError):
        pending.result(timeout=0.01)
    gate.open()
    assert pending.result(timeout=60).tolist() == [2, 2, 2]


def test_awaiting():
    async def main():
        gate = Gate(np.ones(2))
        pending = add(gate.array, 2.0)
        asyncio.get_running_loop().call_soon(gate.open)
        return await pending, await add(np.ones(1), 1.0)

    first, second = asyncio.run(main())
    assert first.tolist() == [3, 3]
    assert second.tolist() == [2]


def test_callbacks_and_as_completed():
    gate, seen = Gate(np.ones(2)), []
    results = [add(gate.array, float(k)) for k in range(3)]
    arrived = threading.Event()
    results[0].add_done_callback(lambda array: (seen.append(array), arrived.set()))
    gate.open()
    futures = [result.as_future() for result in results]
    done = {id(future) for future in concurrent.futures.as_completed(futures, timeout=60)}
    assert done == set(map(id, futures))
    assert arrived.wait(60)
    assert seen == [results[0]] or seen[0] is results[0]


def test_cancelling_what_has_not_begun():
    gate = Gate(np.ones(2))
    pending = add(gate.array, 1.0)
    after = add(pending, 1.0)
    assert pending.cancel()
    assert pending.cancelled()
    gate.open()
    with pytest.raises(concurrent.futures.CancelledError):
        after.result(timeout=60)


def test_shape_errors_are_raised_at_the_call():
    with pytest.raises(ValueError, match="broadcast"):
        add(np.ones(3), np.ones(4))


def test_run_time_errors_are_those_of_numpy_with_the_users_line():
    result = element(np.ones(3), np.array(7))
    with pytest.raises(IndexError, match="out of bounds") as caught:
        result.result(timeout=60)
    assert any("test_futures.py" in note and "x[i] * 2" in note for note in caught.value.__notes__)
    assert isinstance(result.exception(), IndexError)
    with pytest.raises(IndexError):
        add(result, 1.0).result(timeout=60)


@pytest.mark.parametrize("shape", [(4,), (256, 256), (600, 300)])
def test_arguments_may_be_changed_after_the_call(shape):
    x = np.random.default_rng(0).normal(size=shape)
    if len(shape) == 1:
        expected, result = x + x, add(x, x)
    else:
        expected, result = heavy.plain(x), heavy(x)
    x[...] = np.nan
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-9)


def test_views_of_arguments_may_be_changed_after_the_call():
    base = np.random.default_rng(0).normal(size=(600, 300))
    part = base[:300]
    expected, result = heavy.plain(part), heavy(part)
    base[:] = np.nan
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-9)


def test_a_run_of_a_tenth_of_a_second_is_handed_over_whoever_waits(monkeypatch):
    plan = fx.futurize(lambda x: np.tanh(x)).trace(np.zeros(BIG)).plan
    plan.habit.waits = True
    for seconds, here in ((0.09, True), (0.11, False)):
        monkeypatch.setattr(plan, "grain", SimpleNamespace(seconds=seconds))
        assert plan.waited_for is here


def test_who_awaits_results_does_not_run_the_plan():
    """Though he has waited for every result before: an event loop would stand still meanwhile."""
    work = fx.futurize(lambda x: np.tanh(x @ (x.T @ x) * 1e-4 + x))
    x = np.random.default_rng(0).standard_normal((400, 400))
    plan = work.trace(x).plan
    expected = work.plain(x)

    async def once():
        return await work(x)

    for _ in range(2000):
        work(x).result()
        if plan.habit.waits:
            break
    assert plan.habit.waits
    for _ in range(2 * EVERY):
        np.testing.assert_allclose(asyncio.run(once()), expected, rtol=1e-9)
        if not plan.habit.waits:
            break
    assert not plan.habit.waits
    for _ in range(2 * EVERY):
        asyncio.run(once())
        assert not plan.habit.waits


def test_big_cheap_calls_leave_arguments_writeable():
    x = np.zeros(BIG)
    for _ in range(5):
        y = add(x, 1.0)
        x[...] = np.asarray(y)
    assert x[0] == 5.0
    assert x.flags.writeable


def test_who_waits_for_every_result_runs_the_plan_and_who_does_not_does_not():
    """Whatever the machine does meanwhile: some eight calls in a row are waited for at once, and then it is seen. Who
    does not wait any more is found out by two of the calls that are looked at."""
    rng = np.random.default_rng(0)
    work = fx.futurize(lambda x: np.tanh(x @ (x.T @ x) * 1e-4 + x))
    x = rng.standard_normal((400, 400))
    plan = work.trace(x).plan
    expected = work.plain(x)
    for _ in range(2000):
        result = work(x)
        here = plan.habit.waits
        np.testing.assert_allclose(result.result(), expected, rtol=1e-9)
        if here:
            break
    assert here
    for _ in range(2 * EVERY):
        last = work(x)
    assert not plan.habit.waits
    np.testing.assert_allclose(last.result(), expected, rtol=1e-9)


def test_results_are_arrays():
    a = add(np.arange(6.0).reshape(2, 3), 1.0)
    assert (a.shape, a.ndim, a.size, a.nbytes, len(a)) == ((2, 3), 2, 6, 48, 2)
    assert np.concatenate([a, a]).shape == (4, 3)
    assert (a @ a.T).tolist() == (np.asarray(a) @ np.asarray(a).T).tolist()
    assert [row.tolist() for row in a] == [[1, 2, 3], [4, 5, 6]]
    assert float(a[0, 1]) == 2.0
    assert int(a.argmax()) == 5
    assert bool((a > 0).all())
    assert 3.0 in a
    assert np.from_dlpack(a).tolist() == a.tolist()
    assert a.mean(axis=0).tolist() == [2.5, 3.5, 4.5]
    assert (2.0 ** a[0]).tolist() == [2, 4, 8]
    assert f"{a[0, 0]:.1f}" == "1.0"
    with pytest.raises(TypeError, match="read-only"):
        a[0] = 1.0
    own = np.array(a)
    own[0] = 9
    assert a[0].tolist() == [1, 2, 3]


def test_futures_are_arguments_globals_and_elements_of_containers():
    a = add(np.ones(2), 1.0)
    nested = fx.futurize(lambda tree: tree["a"][0] * 2 + a)
    assert nested({"a": [a]}).tolist() == [6, 6]
    assert is_staged(nested, ({"a": [np.ones(2)]},))


def noisy(x):
    print("one", x.sum())
    if x[0] > 0:
        print("two", x[0], sep="=")
    y = x * 2
    print("three", y, end="!\n")
    return y


def test_prints_come_in_program_order_before_the_call_returns(capsys):
    f = fx.futurize(noisy)
    for x in (np.ones(2), -np.ones(2)):
        noisy(x)
        expected = capsys.readouterr().out
        f(x)
        print("after")
        assert capsys.readouterr().out == expected + "after\n"
    assert is_staged(f, (np.ones(2),))


def test_prints_of_rounds_come_before_those_of_their_branches(capsys):
    def rounds(x):
        for k in range(6):
            print("round", k)
            if x[k] > 2:
                print("large", x[k])

    f, x = fx.futurize(rounds), np.array([1.0, 3.0, 1.0, 3.0, 1.0, 3.0])
    rounds(x)
    expected = capsys.readouterr().out
    f(x)
    assert capsys.readouterr().out == expected
    assert is_staged(f, (x,))


def test_prints_behind_branches_with_checks_come_in_program_order(capsys):
    def lines(x):
        for k in range(6):
            print("round", k)
        if x[0] > 0:
            assert x[1] != 9
        print("end", x[0])

    f, x = fx.futurize(lines), np.ones(6)
    lines(x)
    expected = capsys.readouterr().out
    f(x)
    assert capsys.readouterr().out == expected
    assert is_staged(f, (x,))


def write_and_print(x, w):
    w[0] = 5.0
    print("written", x[0])
    w[1] = w[int(x[0])]
    return w.sum()


def test_a_call_that_prints_and_fails_leaves_its_writes(capsys):
    f = fx.futurize(write_and_print)
    for value in (1.0, 9.0, 9.0, 9.0, 1.0, 9.0):
        args = np.full(2, value), np.arange(3.0)
        assert outcome(f, args) == outcome(write_and_print, args)
    printed = capsys.readouterr().out.splitlines()
    assert printed[::2] == printed[1::2]


def test_a_failing_check_is_not_lost_where_nothing_is_returned():
    f = fx.futurize(require_positive)
    assert f(np.ones(2)) is None
    with pytest.raises(AssertionError, match="positive numbers"):
        f(-np.ones(2))
    assert is_staged(f, (np.ones(2),))


def test_threads_may_call_one_function():
    f = fx.futurize(lambda x, n: x * n)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: f(np.ones(3), n % 5).tolist(), range(40)))
    assert results == [[n % 5] * 3 for n in range(40)]


def test_the_executor_is_one():
    assert executor() is executor()


def test_gathering_and_waiting_in_asyncio():
    async def main():
        gates = [Gate(np.full(2, float(k))) for k in range(3)]
        loop = asyncio.get_running_loop()
        for delay, gate in enumerate(reversed(gates)):
            loop.call_later(0.01 * delay, gate.open)
        together = await asyncio.gather(*(add(gate.array, 1.0) for gate in gates), add(np.ones(1), 1.0))
        late = Gate(np.ones(2))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(add(late.array, 1.0), 0.01)
        return together, [await each for each in asyncio.as_completed([add(np.ones(1), float(k)) for k in range(2)])]

    together, completed = asyncio.run(main())
    assert [value.tolist() for value in together] == [[1, 1], [2, 2], [3, 3], [2]]
    assert sorted(value.tolist() for value in completed) == [[1], [2]]


def test_waiting_as_futures_of_the_standard_library():
    gate = Gate(np.ones(2))
    results = [add(gate.array, 1.0), add(np.ones(1), 1.0), fx.futurize(lambda x: x[::-1][:1])(gate.array)]
    futures = [result.as_future() for result in results]
    done, pending = concurrent.futures.wait(futures, timeout=0.01)
    assert (done, pending) == ({futures[1]}, {futures[0], futures[2]})
    gate.open()
    assert concurrent.futures.wait(futures, timeout=60).not_done == set()
    assert [future.result().tolist() for future in futures] == [[2, 2], [2], [1]]


def test_arrays_hash_by_identity():
    first, second = add(np.ones(2), 1.0), add(np.ones(2), 1.0)
    assert len({first, second, first}) == 2
    assert {first: "a", second: "b"}[second] == "b"


@pytest.mark.parametrize("value", [np.arange(3.0), np.float32(2), 1.5, np.array(2.0), np.zeros((0, 2), np.int8)])
def test_pickles_and_copies(value):
    array = fx.futurize(lambda x: x * 1)(value)
    for again in (pickle.loads(pickle.dumps(array)), copy.copy(array), copy.deepcopy([array])[0]):
        assert isinstance(again, fx.Array)
        assert (type(again.result()), again.dtype, again.shape) == (type(array.result()), array.dtype, array.shape)
        assert np.array_equal(again, array)


def test_undecorated_numpy_code_stays_a_future():
    gate = Gate(np.arange(4.0))
    pending = add(gate.array, 1.0)

    def plain_numpy(x):
        y = np.concatenate([x, x[::-1]]) * 2
        return np.where(y > y.mean(), np.add.reduce(y), y), np.maximum.accumulate(y), divmod(x, 2)[1], x == x, x @ x

    results = plain_numpy(pending)
    assert all(isinstance(result, fx.Array) and not result.done() for result in results)
    gate.open()
    for result, expected in zip(results, plain_numpy(np.arange(4.0) + 1.0), strict=True):
        assert np.array_equal(result.result(timeout=60), expected)
    assert np.array_equal(pending == None, np.full(4, False))  # noqa: E711


def test_arrays_of_so_many_dimensions_are_numpys():
    pending = fx.futurize(np.sqrt)(np.ones(3))
    for function in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
        assert type(function(pending)) is np.ndarray
        assert [type(each) for each in function(pending, 2.0)] == [np.ndarray, np.ndarray]


@pytest.mark.parametrize("method", ["L-BFGS-B", "SLSQP", "TNC", "BFGS"])
def test_gradients_go_into_compiled_minimizers(method):
    optimize = pytest.importorskip("scipy.optimize")

    def energy(x):
        return ((x - 1.0) ** 2).sum() + (x[1:] * x[:-1]).sum()

    found = optimize.minimize(fx.futurize(energy), np.zeros(4), jac=fx.grad(energy), method=method)
    expected = optimize.minimize(energy, np.zeros(4), method=method)
    np.testing.assert_allclose(found.x, expected.x, atol=1e-3)


def test_shapes_of_futures_are_numbers():
    f = fx.futurize(lambda x: x + 1)
    for columns in range(3, 9):  # the third kind of size and those behind it have one trace for all
        future = f(np.ones((2, columns)))
        found = *np.shape(future), np.size(future), np.size(future, axis=1), np.size(a=future, axis=0), np.ndim(future)
        assert found == (2, columns, 2 * columns, columns, 2, 2)
        assert set(map(type, found)) == {int}
    unknown = fx.futurize(lambda x: x[x > 1])(np.arange(4.0))
    assert (np.shape(unknown), np.size(unknown)) == ((2,), 2)


NUMBERS = {
    "int": lambda x: int(x.sum()), "float": lambda x: float(x.sum()), "np.int64": lambda x: x.astype(int).sum(),
    "np.float64": lambda x: x.sum(), "np.bool": lambda x: x.any(), "bool": lambda x: bool(x.sum() > 0),
    "0-d": lambda x: np.asarray(x.astype(int).sum()), "array": lambda x: x.astype(int),
}  # fmt: skip
LIST = [1, 2, 3]
WITH_LISTS = {
    "repeated": lambda v: [0, 1, 2] * v, "repeats": lambda v: v * (0, 1, 2), "text": lambda v: len(v * [7, 8, 9]),
    "added": lambda v: v + LIST, "adds": lambda v: LIST + v, "equals": lambda v: v == [1, 2, 3],
    "less": lambda v: v < [4, 5, 6],
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_that_are_futures_meet_lists_as_numbers_do(kind):
    x = np.arange(3.0)
    for name, operate in WITH_LISTS.items():
        found = []
        for value in (NUMBERS[kind](x), fx.futurize(NUMBERS[kind])(x)):
            try:
                result = operate(value)
                found.append((isinstance(result, list | tuple), np.asarray(result).tolist()))
            except TypeError:
                found.append("refused")
        assert found[0] == found[1], name


def test_items_are_numbers_of_python():
    x = np.arange(3.0)
    f, g = fx.futurize(lambda x: x * 2), fx.futurize(lambda x: x.sum())
    for found, wanted in ((f(x).item(1), 2.0), (g(x).item(), 3.0), (f(x).astype(int).item(2), 4)):
        assert type(found) is type(wanted)
        assert found == wanted
    with pytest.raises(ValueError, match="can only convert an array of size 1"):
        f(x).item()


def test_calls_on_a_failure_fail_with_the_same_exception_named_once():
    gate = Gate(np.array(7))
    failing = element(np.ones(3), gate.array)
    chained = add(add(failing, 1.0), failing)
    gate.open()
    with pytest.raises(IndexError) as caught:
        chained.result(timeout=60)
    assert caught.value is failing.exception()
    assert len(caught.value.__notes__) == 1
    assert re.search(r"failed at test_futures\.py:\d+: IndexError", repr(chained))
    with pytest.raises(IndexError):
        pickle.dumps(chained)


@pytest.mark.parametrize(
    "write",
    [
        lambda a: a.sort(), lambda a: a.fill(0), lambda a: np.copyto(a, 0), lambda a: np.add(np.ones(2), 1, out=a),
        lambda a: np.add.at(a, 0, 1), lambda a: np.put(a, 0, 1), lambda a: a.__setitem__(0, 1),
    ],
)  # fmt: skip
def test_results_are_not_written_through(write):
    array = add(np.array([2.0, 1.0]), 1.0)
    with pytest.raises(TypeError, match="read-only"):
        write(array)
    assert array.tolist() == [3, 2]


def test_a_run_under_way_reads_results_as_they_were(monkeypatch):
    first = heavy(np.full((300, 300), 0.5))
    expected = np.tanh(np.array(first)).sum()
    fresh = heavy(np.full((300, 300), 0.5))
    total = fx.futurize(lambda x, gate: np.tanh(x).sum() + gate)
    gate = Gate(np.array(0.0))
    for array in (first, fresh):  # one has been looked at, one has not
        pending = total(array, gate.array)
        array.result()[:] = 9.0
        assert array.result()[0, 0] == 9.0
        gate.open() if not gate.future.done() else None
        assert float(pending.result(timeout=60)) == pytest.approx(expected, rel=1e-9)


def test_slices_are_told_apart_by_the_values_of_their_bounds():
    double = fx.futurize(lambda x: x * 2)
    result = double(np.arange(4.0))
    for bound in (int, np.int32, np.array, fx.futurize(lambda k: np.int64(k) + 0)):
        for k in range(3):
            low, high = bound(k), bound(k + 1)
            assert np.asarray(result[low:high]).tolist() == (np.arange(4.0) * 2)[int(low) : int(high)].tolist()
