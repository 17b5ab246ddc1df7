"""First calls do not wait for the compiler: NumPy computes what is not compiled yet, with the same results."""

import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Future

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import compiling, steps, store
from futurex.kernels.numba_ import compiler, panels, products, tickets
from futurex.kernels.numba_.code import WRITTEN_OUT
from futurex.runtime import config, whole
from futurex.tree.graph import evaluate

pytestmark = pytest.mark.usefixtures("nothing_is_compiled")


@pytest.fixture
def compiler_at_work():
    """LLVM is busy: what is compiled behind a call stays behind until the test releases it."""
    compiling.working.acquire()
    held = True

    def release():
        nonlocal held
        if held:
            held = False
            compiling.working.release()

    yield release
    release()


def region(x, y):
    return np.where(x > y, x * 2 - y, y / 3) + 1


def scalars(x):
    total, k = 0.0, 0
    while total < x:
        total = total * 0.5 + k * x
        k += 1
    return total, k


def in_place(x):
    for k in range(3):
        x = (x + k) * 0.5 - x
    return x, x * 2


ARRAYS = np.linspace(-2, 2, 5000), np.linspace(1, -1, 5000)
CASES = {"region": (region, ARRAYS), "loop": (scalars, (1e6,)), "in place": (in_place, ARRAYS[:1])}


def values(result):
    return [np.asarray(each).tobytes() for each in (result if isinstance(result, tuple) else (result,))]


def settled(function, seconds=60.0):
    """Wait until every kernel of a function is compiled."""
    end = time.monotonic() + seconds
    while not all(variant.plan.ready for variant in function._traces()):
        assert time.monotonic() < end, "the compiler did not finish"
        time.sleep(0.005)


def interpreted(function):
    return sum(row.interpreted for row in function.profile())


def under_way(function, *args, seconds=60.0):
    """A call in a thread of its own, once NumPy computes some of it."""
    call = Future()

    def run():
        try:
            call.set_result(np.asarray(function(*args)))
        except BaseException as error:
            call.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    end = time.monotonic() + seconds
    while True:
        done = call.done()  # asked first: what it computed is counted by then
        if function.profile() and interpreted(function):
            return call
        assert not done, f"NumPy computed nothing of {call.result()}\n{function.explain()}"
        assert time.monotonic() < end, "the call does not begin"
        time.sleep(0.005)


@pytest.mark.parametrize("name", CASES)
def test_calls_before_and_after_the_compiler_are_numpy_s(name, compiler_at_work):
    function, args = CASES[name]
    f = fx.futurize(function, escape="error")
    expected = values(function(*args))
    assert values(f(*args)) == expected
    before = interpreted(f)
    assert before > 0
    assert "not compiled" in f.explain()
    compiler_at_work()
    settled(f)
    assert values(f(*args)) == expected
    assert interpreted(f) == before
    assert "not compiled" not in f.explain()
    assert compiler.Counts.compiled > 0


def test_a_region_is_taken_over_between_two_operations(compiler_at_work, monkeypatch):
    """What NumPy computed of it is forgotten."""
    operations, under_way, result = [], threading.Event(), []

    def evaluated(node, inputs):
        operations.append(node.op)
        if len(operations) == 2:
            under_way.set()
            settled(f)
        return evaluate(node, inputs)

    monkeypatch.setattr("futurex.tree.graph.evaluate", evaluated)
    f = fx.futurize(region, escape="error")
    runner = threading.Thread(target=lambda: result.append(values(f(*ARRAYS))))
    runner.start()
    assert under_way.wait(60)
    compiler_at_work()
    runner.join(60)
    assert result == [values(region(*ARRAYS))]
    assert len(operations) == 2
    assert interpreted(f) == 0


def test_a_loop_is_taken_over_between_two_rounds(compiler_at_work):
    """It would take minutes round by round."""

    def count(n):
        k = 0.0
        while k < n:
            k = k + 1.0
        return k

    f = fx.futurize(count, escape="error")
    call = under_way(f, 5e7)
    compiler_at_work()
    assert call.result(120) == 5e7


def test_a_loop_that_grows_an_array_is_not_taken_over(compiler_at_work, monkeypatch):
    """Its code is made for the array that it begins with."""
    monkeypatch.setattr("futurex.runtime.structured.PATIENCE", 0.0)

    def squares(x):
        found = []
        for value in x:
            found.append(value * value)
        return np.array(found)

    f, x = fx.futurize(squares, escape="error"), np.arange(2000.0)
    call = under_way(f, x)
    compiler_at_work()
    assert np.array_equal(call.result(120), x * x)
    settled(f)
    assert np.array_equal(f(x), x * x)


def test_precompile_waits_and_runs_nothing():
    def write(x, y):
        x[:] = region(x, y)

    f, x = fx.futurize(write), ARRAYS[0].copy()
    fx.precompile(f, x, ARRAYS[1])
    assert all(variant.plan.ready for variant in f._traces())
    assert np.array_equal(x, ARRAYS[0])
    f(x, ARRAYS[1])
    assert np.array_equal(x, region(*ARRAYS))
    assert interpreted(f) == 0


def test_precompile_makes_the_function_that_a_plan_becomes():
    def many(x):
        for _ in range(4):
            x = np.cumsum(x) / x.max()
        return x

    f, x = fx.futurize(many), np.arange(1.0, 6.0)
    fx.precompile(f, x)
    program = f.trace(x).plan.whole
    assert not program.settled
    for _ in range(whole.TRIALS):
        np.testing.assert_array_equal(f(x), many(x))
    assert program.settled
    assert all(seconds > 0 for seconds in program.seconds)


def test_calls_behind_precompile_are_not_plain():
    """A loop whose calls go as plain NumPy while its code is made."""

    def smoothed(x):
        out, level, slope = np.zeros_like(x), 0.0, 0.0
        for i in range(1, len(x) - 1):
            before = level
            level = 0.9 * level + 0.1 * (x[i] + x[i - 1] - x[i + 1]) + slope
            slope = 0.5 * slope + 0.25 * (level - before) - 0.01 * level * level
            out[i] = level + slope
            if out[i] > 1e6:
                break
        return out

    f, x = fx.futurize(smoothed), np.linspace(-1, 1, 3000)
    assert f.trace(x).meanwhile is not None
    fx.precompile(f, x)
    assert f.trace(x).meanwhile is None
    assert isinstance(f(x), fx.Array)
    np.testing.assert_array_equal(f(x), smoothed(x))


def test_import_loads_no_compiler_no_event_loop_and_no_training():
    names = ["llvmlite.binding", "numba", "asyncio", "dask", "scipy", "unittest", "futurex.training", "futurex.numpy"]
    code = (
        f"import sys, futurex as fx; print([name for name in {names} if name in sys.modules]);"
        "print(all(hasattr(fx, name) for name in fx.__all__ if name[0] not in 'CLT'), set(fx.__all__) <= set(dir(fx)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\nTrue True\n"


def test_precompile_says_what_it_takes():
    with pytest.raises(TypeError, match=r"fx\.futurize"):
        fx.precompile(region, *ARRAYS)


def test_precompile_finishes_what_was_begun(compiler_at_work):
    f = fx.futurize(in_place)
    f(ARRAYS[0])
    compiler_at_work()
    fx.precompile(f, ARRAYS[0])
    assert all(variant.plan.ready for variant in f._traces())


def test_waiting_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    f = fx.futurize(region)
    f(*ARRAYS).result()
    assert interpreted(f) == 0
    monkeypatch.setenv("FUTUREX_COMPILE", "later")
    with pytest.raises(ValueError, match="background or wait"):
        config.background()


def test_what_the_compiler_refuses_stays_with_numpy(monkeypatch):
    def refuse(text):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(compiler, "_compile", refuse)
    monkeypatch.setattr(compiler, "_RUNNERS", ())
    monkeypatch.setattr(compiler.background, "submit", lambda job: None)  # its thread would warn after the block below
    f = fx.futurize(region)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert values(f(*ARRAYS)) == values(region(*ARRAYS))
        fx.precompile(f, *ARRAYS)
    assert any("no such instruction" in str(each.message) for each in caught)
    assert values(f(*ARRAYS)) == values(region(*ARRAYS))
    assert interpreted(f) >= 2


def test_the_second_process_starts_warm(tmp_path):
    code = (
        "import numpy as np, futurex as fx; from futurex.kernels.compiling import working\n"
        "from futurex.kernels.numba_ import compiler\n"
        "f = fx.futurize(lambda x: np.where(x > 0, x * 2, x / 3) + 1)\n"
        "x = np.linspace(-1, 1, 5000)\n"
        "with working:\n"  # what has to be compiled is not there before the first call ends
        "    assert (f(x).result() == f.plain(x)).all()\n"
        "print(sum(row.interpreted for row in f.profile()), end=' ')\n"
        "fx.precompile(f, x)\n"
        "print(compiler.Counts.compiled > 0, compiler.Counts.loaded > 0)"
    )
    own = tmp_path / "own"  # code of the tests before this one may yet come to the other
    env = {**os.environ, "FUTUREX_CACHE": str(own), "FUTUREX_COMPILE": "background"}
    runs = [
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100, check=True)
        for _ in range(2)
    ]
    assert [run.stdout.split() for run in runs] == [["1", "True", "False"], ["0", "False", "True"]]


def test_a_job_loads_no_compiler_while_the_process_ends(monkeypatch):
    """LLVM is told of the end by its own handler, which would come too late; what it holds then complains."""
    own, seen = compiling.Background(), []
    monkeypatch.setattr(compiler, "background", own)

    def job():
        while not own._closed:
            time.sleep(1e-3)
        seen.append("asks")
        compiler.llvm.__wrapped__()
        seen.append("loaded")

    own.submit(job)
    own.close()
    assert seen == ["asks"]
    assert compiler.llvm.__wrapped__() is compiler.llvm()  # the program's own calls at exit may yet load it


def test_a_process_ends_while_its_kernels_are_compiled(tmp_path):
    lines = [
        f"fx.futurize(lambda x: np.where(x > {k}, x * 2, x / 3) + x ** 3 - {k} * x)(np.ones(5000)).result()"
        for k in range(12)
    ]
    code = "\n".join(["import numpy as np, futurex as fx", *lines])
    env = {**os.environ, "FUTUREX_CACHE": str(tmp_path), "FUTUREX_COMPILE": "background"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_child_compiles_for_itself(compiler_at_work):
    """A fork waits until the compiler is between two jobs."""
    compiler_at_work()
    f = fx.futurize(region)
    f(*ARRAYS).result()
    child = os.fork()
    if not child:
        ok = False
        try:
            fx.precompile(f, *ARRAYS)
            ok = f._traces()[0].plan.ready
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_store_keeps_to_its_bound(monkeypatch):
    monkeypatch.setenv("FUTUREX_CACHE_MB", "1")
    for k in range(40):
        store.write(f"{k:064x}", bytes([k]) * 50_000)
        os.utime(store.folder() / f"{k:064x}.o", (k, k))
    used = store.usage()
    assert 5 * 50_000 < used.nbytes <= 1_060_000
    assert store.read(f"{39:064x}") == bytes([39]) * 50_000
    assert store.read(f"{0:064x}") is None


def test_the_store_gives_nothing_for_another_key():
    store.write("a" * 64, b"code")
    os.rename(store.folder() / f"{'a' * 64}.o", store.folder() / f"{'b' * 64}.o")
    assert store.read("b" * 64) is None


def test_the_store_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("FUTUREX_CACHE_MB", "0")
    store.write("c" * 64, b"code")
    assert store.usage().files == 0
    monkeypatch.setenv("FUTUREX_CACHE_MB", "much")
    with pytest.raises(ValueError, match="megabytes"):
        store.bound()


def test_who_waits_for_the_compiler_comes_between_two_jobs():
    jobs, done, passed = compiling.Background(), [], []

    def job():  # keeps Python busy, as making a kernel's text does
        with compiling.working:
            end = time.perf_counter() + 0.002
            while time.perf_counter() < end:
                pass
        done.append(None)

    for _ in range(600):
        jobs.submit(job)
    end = time.monotonic() + 60
    while not done:
        assert time.monotonic() < end, "no job is done"
        time.sleep(0.001)
    for _ in range(100):
        before = len(done)
        with compiling.working:
            passed.append(len(done) - before)
        time.sleep(0.002)
    jobs.close()
    assert sum(passed) < 100, passed  # of all: on a busy machine a thread stands still for many jobs now and then


@pytest.mark.parametrize("own, during", [(0.005, compiling.TURN), (0.0001, 0.0001)])
def test_turns_are_short_while_there_are_jobs(own, during):
    before, jobs, seen = sys.getswitchinterval(), compiling.Background(), []
    sys.setswitchinterval(own)
    try:
        for _ in range(3):
            jobs.submit(lambda: seen.append(sys.getswitchinterval()))
        end = time.monotonic() + 60
        while jobs._thread is not None:
            assert time.monotonic() < end, "jobs are not done"
            time.sleep(0.001)
        assert seen == [pytest.approx(during, abs=2e-6)] * 3
        assert sys.getswitchinterval() == pytest.approx(own, abs=2e-6)
    finally:
        sys.setswitchinterval(before)


def test_who_sees_no_thread_any_more_finds_turns_as_before(monkeypatch):
    jobs, seen, over = compiling.Background(), [], threading.Event()
    monkeypatch.setattr(jobs, "_take_turns_as_before", lambda: (seen.append(jobs._thread), over.set()))
    jobs.submit(lambda: None)
    assert over.wait(60)
    assert seen[0] is not None


def test_turns_that_somebody_else_has_chosen_meanwhile_stay():
    before, jobs, chosen = sys.getswitchinterval(), compiling.Background(), threading.Event()
    sys.setswitchinterval(0.005)
    try:
        jobs.submit(lambda: chosen.wait(60))
        sys.setswitchinterval(0.002)
        chosen.set()
        end = time.monotonic() + 60
        while jobs._thread is not None:
            assert time.monotonic() < end, "the job is not done"
            time.sleep(0.001)
        assert sys.getswitchinterval() == pytest.approx(0.002, abs=2e-6)
    finally:
        sys.setswitchinterval(before)


def test_what_runs_kernels_is_compiled_before_them(compiler_at_work, monkeypatch):
    order = []
    monkeypatch.setattr(compiler.background, "submit", order.append)
    text = products.text_of(panels.form_of((1, 64, 64, 64), (False, False), bias=False, shared=False)[0], True)
    kernel = compiler.compiled(text, wait=False)
    runners = [compiler.compiled(each, wait=False) for each in (steps.PLAYER, tickets.RUN, tickets.HELP)]
    assert order == [each.build for each in (*runners, kernel)]


def test_what_is_written_out_is_not_unrolled_again():
    form, _ = panels.form_of((1, 128, 512, 512), (False, False), bias=False, shared=False)
    text = products.text_of(form, True)
    assert text.startswith(WRITTEN_OUT)
    written, unrolled = (compiler._compile(each) for each in (text, text.removeprefix(WRITTEN_OUT)))
    assert len(written) < len(unrolled)
