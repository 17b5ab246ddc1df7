"""What is left of a kernel when it has been compiled: its code."""

import ctypes

import pytest

from futurex.kernels.numba_ import compiler

TEXT = """
define void @region(ptr %block, i64 %begin, i64 %end) {{
entry:
  %x = load double, ptr %block
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %head ]
  %sum = phi double [ %x, %entry ], [ %more, %head ]
  %more = fadd double %sum, {number}.0
  %next = add i64 %k, 1
  %again = icmp slt i64 %next, %end
  br i1 %again, label %head, label %done
done:
  store double %more, ptr %block
  ret void
}}
"""


class Memory(ctypes.Structure):
    """``struct mallinfo2`` of the C library."""

    _fields_ = [(f"before_{k}", ctypes.c_size_t) for k in range(7)] + [("uordblks", ctypes.c_size_t)] + [
        (f"after_{k}", ctypes.c_size_t) for k in range(2)
    ]  # fmt: skip


def used():
    """Bytes that the C library has given away."""
    try:
        information = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        pytest.skip("another C library")
    information.restype = Memory
    return information().uordblks


def test_compiling_leaves_nothing_else(monkeypatch):
    monkeypatch.setattr(compiler.store, "read", lambda key: None)
    monkeypatch.setattr(compiler.store, "write", lambda key, code: None)
    entries = [compiler.compiled(TEXT.format(number=number)) for number in range(1000, 1005)]
    before = used()
    entries += [compiler.compiled(TEXT.format(number=number)) for number in range(1005, 1045)]
    assert (used() - before) / 40 < 20_000  # of passes that nobody frees there are 80 KB and more
    assert all(entry.ready and not entry._text for entry in entries)
    block = (ctypes.c_double * 1)(1.0)
    entries[7]._function(ctypes.cast(block, ctypes.c_char_p), 0, 3)
    assert block[0] == 1.0 + 3 * 1007
