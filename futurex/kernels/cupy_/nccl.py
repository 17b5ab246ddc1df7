"""NCCL through CuPy's wrapper: collectives of arrays that lie on one GPU a rank.

Calls put work on a stream of their own and return; nothing here waits for another rank but the making of a
:class:`Ring`. What a rank starts, the others must start in the same order. Arrays made on the way come from CuPy's pool
for that stream, which gives memory away in the stream's order.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import EMULATED, Device

TYPES = {
    np.dtype(code): f"NCCL_{name}"
    for code, name in (
        ("i1", "INT8"), ("u1", "UINT8"), ("i4", "INT32"), ("u4", "UINT32"), ("i8", "INT64"), ("u8", "UINT64"),
        ("f2", "FLOAT16"), ("f4", "FLOAT32"), ("f8", "FLOAT64"),
    )
}  # fmt: skip
Attrs = Mapping[str, Any]
Arrays = Sequence[Any]
IDENTITY = 128
"""Bytes of the identity that the first rank makes and all others need."""


def library(device: Device) -> Any:
    """CuPy's module ``nccl``, or None where it is missing or the device is emulated."""
    if device.kind == EMULATED:
        return None
    try:
        found = importlib.import_module("cupy.cuda.nccl")
    except ImportError:
        return None
    return found if getattr(found, "available", False) else None


class Ring:
    """One rank's part of an NCCL communicator, and the stream that its work is done on.

    ``identity`` are the first rank's :data:`IDENTITY` bytes. Making one waits for all ranks. Raises what NCCL raises.
    """

    def __init__(self, device: Device, nccl: Any, size: int, rank: int, identity: bytes) -> None:
        self.device, self.size, self.rank, self._nccl = device, size, rank, nccl
        self.stream = device.xp.cuda.Stream(non_blocking=True)
        try:
            self._comm = nccl.NcclCommunicator(size, identity, rank)
        except TypeError:  # CuPy before 14 has it as numbers
            self._comm = nccl.NcclCommunicator(size, tuple(np.frombuffer(identity, np.int8).tolist()), rank)

    @staticmethod
    def identity(nccl: Any) -> bytes:
        """A new identity."""
        made = nccl.get_unique_id()
        return made if isinstance(made, bytes) else np.array(made, np.int8).tobytes()

    def start(self, op: str, attrs: Attrs, arrays: Arrays, outs: Arrays) -> tuple[Any, list[Any]]:
        """Begin a communication node of :mod:`futurex.ops.comm`: the event says when ``outs`` are there.

        Until then arrays and results must live, and what is returned with the event.
        """
        self.stream.wait_event(self.device.xp.cuda.get_current_stream().record())
        with self.stream:
            laid = [self.device.xp.ascontiguousarray(array) for array in arrays]
            made = _STARTS[op](self, attrs, laid, outs)
            return self.stream.record(), [*laid, *(made or ())]

    def error(self) -> Exception | None:
        """What went wrong on the device or on the way to another, as far as NCCL has noticed."""
        try:
            self._comm.check_async_error()
        except self._nccl.NcclError as error:
            return error
        return None

    def abort(self) -> None:
        """End what is under way; the ring is of no use any more."""
        self._comm.abort()

    def destroy(self) -> None:
        """Give back what NCCL holds."""
        self._comm.destroy()

    @contextlib.contextmanager
    def _group(self) -> Iterator[None]:
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._nccl.groupEnd()

    def _type(self, array: Any) -> int:
        return int(getattr(self._nccl, TYPES[array.dtype]))

    def _reduction(self, attrs: Attrs) -> int:
        return int(getattr(self._nccl, f"NCCL_{attrs['reduce'].upper()}"))

    def _all_reduce(self, attrs: Attrs, arrays: Arrays, outs: Arrays) -> None:
        with self._group():
            for array, out in zip(arrays, outs, strict=True):
                self._comm.allReduce(
                    array.data.ptr, out.data.ptr, array.size, self._type(array), self._reduction(attrs), self.stream.ptr
                )

    def _reduce_scatter(self, attrs: Attrs, arrays: Arrays, outs: Arrays) -> list[Any]:
        """Parts that are alike lie one after the other for NCCL; others are cut out of the whole sum."""
        xp, made = self.device.xp, []
        for array, out, axis, sizes in zip(arrays, outs, attrs["axes"], attrs["sizes"], strict=True):
            if len(set(sizes)) == 1:
                parts = xp.stack(xp.split(array, self.size, axis))
                made.append(parts)
                self._comm.reduceScatter(
                    parts.data.ptr, out.data.ptr, out.size, self._type(array), self._reduction(attrs), self.stream.ptr
                )
                continue
            whole = xp.empty(array.shape, array.dtype)
            self._all_reduce(attrs, [array], [whole])
            first = sum(sizes[: self.rank])
            out[...] = whole[(slice(None),) * axis + (slice(first, first + sizes[self.rank]),)]
        return made

    def _all_gather(self, attrs: Attrs, arrays: Arrays, outs: Arrays) -> None:
        xp = self.device.xp
        for array, out, axis, sizes in zip(arrays, outs, attrs["axes"], attrs["sizes"], strict=True):
            shapes = [(*array.shape[:axis], size, *array.shape[axis + 1 :]) for size in sizes]
            parts = [xp.empty(shape, array.dtype) for shape in shapes]
            self._between([array] * self.size, parts)
            out[...] = xp.concatenate(parts, axis)

    def _broadcast(self, attrs: Attrs, arrays: Arrays, outs: Arrays) -> None:
        [array], [out] = arrays, outs
        self._comm.broadcast(
            array.data.ptr, out.data.ptr, array.size, self._type(array), attrs["root"], self.stream.ptr
        )

    def _all_to_all(self, attrs: Attrs, arrays: Arrays, outs: Arrays) -> None:
        blocks = [array.reshape(self.size, -1) for array in (*arrays, *outs)]
        self._between(*([block[k] for k in range(self.size)] for block in blocks))

    def _permute(self, attrs: Attrs, arrays: Arrays, outs: Arrays) -> None:
        [array], [out] = arrays, outs
        targets = dict(attrs["pairs"])
        sources = {target: source for source, target in targets.items()}
        out[...] = 0  # where nobody sends
        sends: list[Any] = [None] * self.size
        receipts: list[Any] = [None] * self.size
        if self.rank in targets:
            sends[targets[self.rank]] = array
        if self.rank in sources:
            receipts[sources[self.rank]] = out
        self._between(sends, receipts)

    def _between(self, sends: Arrays, receipts: Arrays) -> None:
        """Send to each rank its array, and receive from each what it sends; None where there is nothing."""
        with self._group():
            for peer, (send, receipt) in enumerate(zip(sends, receipts, strict=True)):
                if send is not None and send.size:
                    self._comm.send(send.data.ptr, send.size, self._type(send), peer, self.stream.ptr)
                if receipt is not None and receipt.size:
                    self._comm.recv(receipt.data.ptr, receipt.size, self._type(receipt), peer, self.stream.ptr)


_STARTS: dict[str, Callable[[Ring, Attrs, Arrays, Arrays], list[Any] | None]] = {
    "all_reduce": Ring._all_reduce, "reduce_scatter": Ring._reduce_scatter, "all_gather": Ring._all_gather,
    "broadcast": Ring._broadcast, "all_to_all": Ring._all_to_all, "permute": Ring._permute,
}  # fmt: skip


def carries(op: str, arrays: Arrays) -> bool:
    """Does NCCL know these arrays' type?"""
    return op in _STARTS and all(array.dtype in TYPES and math.prod(array.shape) for array in arrays)
