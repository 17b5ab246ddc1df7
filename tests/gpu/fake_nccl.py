"""A stand-in for ``cupy.cuda.nccl`` among the threads of a process, for arrays of the emulated device.

It keeps NCCL's rules: what a rank starts is done in order, by itself, once every rank has started the same; calls of
one group go together; an abort ends what is under way with memory as it is; whoever starts something else than the
others gets an error of its own, later.
"""

import ctypes
import itertools
import threading
from collections import Counter
from concurrent.futures import Future

import numpy as np

from futurex.kernels.cupy_.emulated_streams import stream_at

available = True
_CODES = ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
NAMES = ("INT8", "UINT8", "INT32", "UINT32", "INT64", "UINT64", "FLOAT16", "FLOAT32", "FLOAT64")
globals().update({f"NCCL_{name}": number for number, name in enumerate(NAMES)})
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
_REDUCE = (np.add, np.multiply, np.maximum, np.minimum)
_worlds = {}
_ids = itertools.count()
_lock = threading.Lock()


class NcclError(RuntimeError):
    """What NCCL raises."""


def get_unique_id():
    return next(_ids).to_bytes(128, "little")


class _World:
    """What the ranks of one communicator have started and not finished."""

    def __init__(self, size):
        self.size, self.changed, self.joined = size, threading.Condition(), 0
        self.calls, self.left, self.aborted = {}, Counter(), set()  # by number: {rank: group}, how many are through

    def meet(self, number, rank, group):
        """Wait for the others' group of this number; None after an abort."""
        with self.changed:
            self.calls.setdefault(number, {})[rank] = group
            self.changed.notify_all()
            self.changed.wait_for(lambda: rank in self.aborted or len(self.calls[number]) == self.size)
            return None if rank in self.aborted else self.calls[number]


class _Groups(threading.local):
    depth = 0
    calls = ()


_groups = _Groups()


def groupStart():
    if not _groups.depth:
        _groups.calls = []
    _groups.depth += 1


def groupEnd():
    _groups.depth -= 1
    if not _groups.depth:
        calls, _groups.calls = _groups.calls, []
        for comm, stream in {id(comm): (comm, stream) for comm, _, stream in calls}.values():
            comm._enqueue([call for each, call, _ in calls if each is comm], stream)


class NcclCommunicator:
    """One rank's communicator: a thread does its work in order."""

    def __init__(self, ndev, commId, rank):
        if not isinstance(commId, bytes):
            raise TypeError("expected bytes")
        with _lock:
            self._world = _worlds.setdefault(commId, _World(ndev))
        with self._world.changed:
            self._world.joined += 1
            self._world.changed.notify_all()
            if not self._world.changed.wait_for(lambda: self._world.joined == ndev, timeout=60):
                raise NcclError("not all ranks came")
        self._rank, self._number, self._error, self._last = rank, 0, None, None

    def _enqueue(self, calls, stream):
        number, self._number = self._number, self._number + 1
        future, before = Future(), self._last
        self._last = future
        stream_at(stream).coming.append(future)

        def work():
            if before is not None:
                before.exception()
            met = self._world.meet(number, self._rank, calls)
            try:
                if met is not None:
                    for call in calls:
                        self._do(call, met)
                    self._world_left(number)
            except Exception as error:
                self._error = error
            future.set_result(None)

        threading.Thread(target=work, daemon=True).start()

    def _world_left(self, number):
        """No rank goes on before all have read the others' memory."""
        with self._world.changed:
            self._world.left[number] += 1
            self._world.changed.notify_all()
            self._world.changed.wait_for(
                lambda: self._rank in self._world.aborted or self._world.left[number] == self._world.size
            )

    def _do(self, call, met):
        kind, _, recv, count, dtype, extra = call
        if kind == "recv":
            sent = [each for each in met[extra] if each[0] == "send" and each[5] == self._rank]
            mine = [each for each in met[self._rank] if each[0] == "recv" and each[5] == extra]
            other = sent[mine.index(call)]
            if other[3:5] != (count, dtype):
                raise NcclError("a receipt of another size")
            _memory(recv, count, dtype)[...] = _memory(other[1], count, dtype)
            return
        if kind == "send":
            return
        place = met[self._rank].index(call)
        theirs = [met[rank][place] for rank in range(self._world.size)]
        if any(each[0] != kind or each[3:] != call[3:] for each in theirs):
            raise NcclError("the ranks started different collectives")
        out = _memory(recv, count, dtype)
        if kind == "broadcast":
            out[...] = _memory(theirs[extra][1], count, dtype)
            return
        total = count if kind == "allReduce" else count * self._world.size
        values = [_memory(each[1], total, dtype) for each in theirs]
        result = values[0].copy()
        for value in values[1:]:
            result = _REDUCE[extra](result, value)
        mine = result if kind == "allReduce" else result.reshape(self._world.size, count)[self._rank]
        out[...] = mine

    def _call(self, kind, send, recv, count, dtype, extra, stream):
        assert count > 0
        groupStart()
        _groups.calls.append((self, (kind, send, recv, count, dtype, extra), stream))
        groupEnd()

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        self._call("allReduce", sendbuf, recvbuf, count, datatype, op, stream)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        self._call("reduceScatter", sendbuf, recvbuf, recvcount, datatype, op, stream)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        self._call("broadcast", sendbuff, recvbuff, count, datatype, root, stream)

    def send(self, sendbuf, count, datatype, peer, stream):
        self._call("send", sendbuf, 0, count, datatype, peer, stream)

    def recv(self, recvbuf, count, datatype, peer, stream):
        self._call("recv", 0, recvbuf, count, datatype, peer, stream)

    def check_async_error(self):
        if self._error is not None:
            raise NcclError(str(self._error))

    def abort(self):
        with self._world.changed:
            self._world.aborted.add(self._rank)  # the others are left waiting
            self._world.changed.notify_all()

    def destroy(self):
        self.abort()


def _memory(address, count, dtype):
    kind = np.dtype(_CODES[dtype])
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)
