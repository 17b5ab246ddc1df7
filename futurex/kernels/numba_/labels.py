"""Compiled ``checked_labels``: labels are copied as 32 bits, and whether all name a class is the status of the step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import IN_ORDER, address_of
from futurex.kernels.numba_.arriving import Arriving
from futurex.kernels.numba_.code import Code
from futurex.kernels.registry import Kernel
from futurex.kernels.steps import Step, Workspace
from futurex.tree.node import Node

MOST_LABELS = 64 * 1024
"""More are NumPy's, which does as well."""


def claim(node: Node, backend: str) -> Kernel | None:
    """The kernel of a ``checked_labels`` node: a call is NumPy's; None for what is no plain row of integers."""
    labels = node.inputs[0]
    if not node.is_static or labels.dtype.kind != "i" or labels.dtype.itemsize < 4 or labels.aval.weak:
        return None
    if not labels.dtype.isnative or not 0 < labels.size <= MOST_LABELS or node.attrs["classes"] >= 2**31:
        return None
    labels_of = Labels(node)
    return Kernel(labels_of, backend, into=True, contiguous=True, late=labels_of, bind=labels_of.bind)


class Labels(Arriving):
    """The kernel of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        super().__init__(_text(node.inputs[0].dtype.itemsize))

    def __call__(self, out: Any, labels: Any) -> Any:
        np.copyto(out, self.node.record.run([labels], self.node.attrs))
        return out

    def bind(self, workspace: Workspace) -> BoundLabels:
        """The kernel as a step that fails where a label names no class."""
        return BoundLabels(self)


class BoundLabels:
    """A kernel at fixed addresses."""

    def __init__(self, kernel: Labels) -> None:
        self.kernel = kernel
        self.words = np.zeros(4, np.int64)
        self.steps: list[Step] = []

    def aim(self, out: Any, labels: Any) -> Sequence[Step] | None:
        """The step on these arrays; None where they lie otherwise, or the code is not there."""
        node, entry = self.kernel.node, self.kernel.entry
        for array, dtype in ((out, node.dtype), (labels, node.inputs[0].dtype)):
            if array.shape != node.shape or array.dtype != dtype or array.flags.num & IN_ORDER != IN_ORDER:
                return None
        if not entry.ready:
            return None
        self.words[:] = labels.size, node.attrs["classes"], address_of(out), address_of(labels)
        if not self.steps:
            self.steps = [(entry.address, address_of(self.words), 0, 0, 0, 1)]
        return self.steps


@functools.cache
def _text(size: int) -> str:
    code, kind = Code(), f"i{8 * size}"
    bound = "%classes" if size == 8 else code.do(f"trunc i64 %classes to {kind}")
    with code.loop("0", "%count", carried=[("i1", "false")]) as (place, held):
        label = code.do(f"load {kind}, ptr {code.at(kind, '%labels', place)}, align {size}")
        held[0] = code.do(f"or i1 {held[0]}, {code.do(f'icmp uge {kind} {label}, {bound}')}")  # or below zero
        short = label if size == 4 else code.do(f"trunc {kind} {label} to i32")
        code.run(f"store i32 {short}, ptr {code.at('i32', '%out', place)}, align 4")
    status = code.do(f"zext i1 {held[0]} to i32")
    names = (("i64", "count"), ("i64", "classes"), ("ptr", "out"), ("ptr", "labels"))
    lines = ["define i32 @region(ptr %block) {", code.lines[0]]
    for slot, (type_, name) in enumerate(names):
        lines.append(f"  %{name}.at = getelementptr i64, ptr %block, i64 {slot}")
        lines.append(f"  %{name} = load {type_}, ptr %{name}.at, align 8")
    return "\n".join([*lines, *code.lines[1:], f"  ret i32 {status}", "}", ""])
