"""Memory of large results is used again; the arrays are NumPy's in every other way."""

import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import recycling

N = recycling.LEAST_BYTES // 4 + 1000
F4 = np.dtype("f4")


@pytest.fixture(autouse=True)
def compiled():
    if not recycling.prepare():
        pytest.skip("NumPy has no handlers of memory here")
    gc.collect()  # arrays that others have left in cycles would give their memory back in the middle of a test


def handler_of(*arrays):
    from numpy._core.multiarray import get_handler_name

    return get_handler_name(*arrays)


def test_an_array_has_the_memory_of_one_that_is_gone():
    kept = [recycling.empty((N,), F4) for _ in range(recycling.KEPT)]  # what earlier arrays have left
    first = recycling.empty((N,), F4)
    assert (handler_of(first), handler_of()) == ("futurex", "default_allocator")
    address = first.ctypes.data
    assert address % 64 == 0
    del first
    assert recycling.empty((N,), F4).ctypes.data == address
    assert address not in {each.ctypes.data for each in kept}


def test_arrays_that_live_at_once_have_memory_of_their_own():
    arrays = [recycling.empty((N,), F4) for _ in range(recycling.KEPT + 3)]
    for k, each in enumerate(arrays):
        each[:] = k
    assert [(each.min(), each.max()) for each in arrays] == [(k, k) for k in range(len(arrays))]
    addresses = {each.ctypes.data for each in arrays}
    assert len(addresses) == len(arrays)
    each = None
    arrays.clear()
    again = [recycling.empty((N,), F4) for _ in range(recycling.KEPT)]
    assert {each.ctypes.data for each in again} <= addresses


def test_a_view_keeps_the_memory():
    first = recycling.empty((N,), F4)
    first[:] = 1
    part = first[10:20]
    del first
    other = recycling.empty((N,), F4)
    other[:] = 2
    assert (part == 1).all()


def test_arrays_own_their_data():
    array = recycling.empty((N,), F4)
    array[:] = np.arange(N)
    assert array.flags.owndata
    assert array.base is None
    array.resize((2 * N,), refcheck=False)
    np.testing.assert_array_equal(array[:N], np.arange(N, dtype=F4))
    assert not array[N:].any()
    array.resize((10,), refcheck=False)
    np.testing.assert_array_equal(array, np.arange(10, dtype=F4))
    assert (pickle.loads(pickle.dumps(array)) == array).all()
    del array
    other = recycling.empty((N,), F4)
    other[:] = 3
    assert (other == 3).all()


def test_arrays_may_die_in_another_thread():
    held = [recycling.empty((N,), F4) for _ in range(recycling.KEPT)]  # what earlier arrays have left
    arrays = [recycling.empty((N,), F4) for _ in range(3)]
    addresses = {each.ctypes.data for each in arrays}
    each = None
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()
    assert recycling.empty((N,), F4).ctypes.data in addresses
    assert each is None
    assert len(held) == recycling.KEPT


def test_results_of_a_function_are_such_arrays():
    f = fx.futurize(lambda x: x * 2 + 1)
    x = np.arange(N, dtype=F4)
    for _ in range(3):
        result = f(x).result()
        assert handler_of(result) == "futurex"
        assert (result[-1], result[1]) == (x[-1] * 2 + 1, 3)
    assert handler_of(f(x[:1000]).result()) == "default_allocator"


def test_a_process_ends_while_such_arrays_live():
    """Some die while modules are emptied, others in the last collection, when no object of any module is left."""
    text = f"""
import os
import numpy as np
from futurex.kernels import recycling
recycling.prepare()
kept = [recycling.empty(({N},), np.dtype("f4")) for _ in range(3)]
class Late:
    def __del__(self, kept=kept):
        kept.clear()
np.late = Late()
last = [recycling.empty(({N},), np.dtype("f4")) for _ in range(3)]
last.append(last)
os.register_at_fork(after_in_child=lambda last=last: None)
# NumPy compares the name first, and where that was overwritten too it frees nothing and says nothing.
import ctypes
name = ctypes.create_string_buffer(b"mem_handler")
ctypes.pythonapi.Py_IncRef(ctypes.py_object(name))
ctypes.pythonapi.PyCapsule_SetName.argtypes = ctypes.py_object, ctypes.c_void_p
ctypes.pythonapi.PyCapsule_SetName(recycling._made[0][1], ctypes.addressof(name))
print("done")
"""
    # Python overwrites what it has freed.
    environment = {**os.environ, "PYTHONMALLOC": "debug"}
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=100, check=True, env=environment
    )
    assert ended.stdout == "done\n"


HAMMER = f"""
define i64 @region(ptr %state, i64 %mine) {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %head ]
  %wrong = phi i64 [ 0, %entry ], [ %count, %head ]
  %block = call ptr @ask(ptr %state, i64 {recycling.LEAST_BYTES})
  store volatile i64 %mine, ptr %block
  %now = load volatile i64, ptr %block
  %later = load volatile i64, ptr %block
  %one = icmp ne i64 %now, %mine
  %two = icmp ne i64 %later, %mine
  %other = or i1 %one, %two
  %more = zext i1 %other to i64
  %count = add i64 %wrong, %more
  store volatile i64 0, ptr %block
  call void @give(ptr %state, ptr %block, i64 {recycling.LEAST_BYTES})
  %next = add i64 %k, 1
  %go = icmp slt i64 %next, 50000
  br i1 %go, label %head, label %end
end:
  ret i64 %count
}}
"""


def test_memory_is_given_to_one_only_without_the_interpreters_lock():
    """Threads of machine code ask for blocks and give them back, as NumPy's sorting by several keys may."""
    ask = recycling._TEXTS[0].replace("define ptr @region(", "define internal ptr @ask(")
    give = recycling._TEXTS[-1].replace("define void @region(", "define internal void @give(")
    lines = dict.fromkeys(line for line in (ask + give).splitlines() if line.startswith("declare"))
    bodies = [line for line in (ask + give).splitlines() if not line.startswith("declare")]
    entry = recycling.compiled("\n".join([*lines, *bodies]) + HAMMER)
    hammer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(entry.address)
    state = ctypes.create_string_buffer(recycling._table(1 << 30))
    wrong = []
    threads = [threading.Thread(target=lambda k=k: wrong.append(hammer(state, k))) for k in range(1, 5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == [0] * 4
    assert warm(state)[0] == sum(warm(state)[1])


def warm(state):
    """The bytes whose pages the system may not take, and those of each block that is kept and marked so."""
    words = np.frombuffer(state, np.int64, 2 * recycling.KEPT + 5)
    return words[2 * recycling.KEPT + 3], [size - 1 for size in words[1 : 2 * recycling.KEPT : 2] if size & 1]


def test_the_system_is_told_of_what_is_kept_beyond_a_few_blocks():
    give, take = recycling.compiled(recycling._TEXTS[-1]), recycling.compiled(recycling._TEXTS[0])
    new = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(take.address)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(give.address)
    state, size = ctypes.create_string_buffer(recycling._table(64 << 20)), 2 << 20
    for count in (3, 6, recycling.KEPT + 4):
        blocks = [new(state, size) for _ in range(count)]
        assert len(set(blocks)) == count
        for block in blocks:
            free(state, block, size)
        assert warm(state)[0] == sum(warm(state)[1])
        assert min(count, 7) * size <= warm(state)[0] <= 16 << 20  # a block that gives way was one of them
    again = [new(state, size) for _ in range(recycling.KEPT)]
    assert set(again) <= set(blocks)
    assert warm(state) == (0, [])


def test_what_was_never_a_block_is_not_kept():
    """NumPy frees buffers, of a size, that it did not need and never asked for."""
    x = np.arange(N, dtype=float)
    for _ in range(3):
        assert recycling.kept(np.argpartition, x, 5)[0] == 0


def test_nothing_is_not_kept():
    give = recycling.compiled(recycling._TEXTS[-1])
    take = recycling.compiled(recycling._TEXTS[0])
    state = ctypes.create_string_buffer(recycling._table(1 << 30))
    size = 2 * recycling.LEAST_BYTES
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(give.address)(state, None, size)
    assert ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(take.address)(state, size) is not None


def test_a_block_is_kept_for_what_it_holds_whatever_size_is_said():
    give, take = recycling.compiled(recycling._TEXTS[-1]), recycling.compiled(recycling._TEXTS[0])
    state = ctypes.create_string_buffer(recycling._table(1 << 30))
    new = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(take.address)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(give.address)
    block = new(state, 2 << 20)
    usable = ctypes.CDLL(None).malloc_usable_size
    usable.restype, usable.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    held = usable(block) & -(2 << 20)  # the C library may have given more
    assert 2 << 20 <= held < 64 << 20
    free(state, block, 64 << 20)
    assert new(state, 64 << 20) != block
    assert new(state, held) == block
    free(state, block, 2 << 20)
    assert new(state, 2 << 20) == block


PLACES = np.random.default_rng(2).integers(0, 600, (2, N))
OF_NUMPY = {
    "elements by two arrays": lambda x: x[PLACES[0], PLACES[1]],
    "order": lambda x: np.argsort(x, axis=1),
    "largest last": lambda x: np.partition(x, 500),
    "an inverse": lambda x: np.linalg.inv(x + 600 * np.eye(600, dtype="f8")),
}


@pytest.mark.parametrize("name", OF_NUMPY)
def test_what_numpys_own_functions_make_is_memory_that_is_used_again(name):
    f = fx.futurize(OF_NUMPY[name])
    x = np.random.default_rng(3).standard_normal((600, 600))
    kept = [f(x).result() for _ in range(3)]
    assert {handler_of(each) for each in kept} == {"futurex"}
    assert len({each.ctypes.data for each in kept}) == 3


@pytest.mark.parametrize("step", [None, 1, 3, -2])
def test_copies_of_operands_are_memory_that_is_used_again(step):
    from futurex.runtime.instance import dense, in_rows

    copy = dense if step is None else partial(in_rows, step=step)
    x = np.arange(360000.0).reshape(600, 600)
    first = copy(x.T)
    assert handler_of(first if first.base is None else first.base) == "futurex"
    assert first.strides == (600 * 8 * abs(step or 1), 8 * (step or 1))
    np.testing.assert_array_equal(first, x.T)
    assert copy(first) is first
