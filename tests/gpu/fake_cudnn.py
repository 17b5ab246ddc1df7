"""cuDNN's Python frontend as kernels of attention call it, by its documentation and NumPy.

Arguments have the frontend's names; extents, strides and types are held against what its ``sdpa`` asks for; an
execution reads and writes memory by address. What it computes is written down apart from the project's own reference
kernel: in double precision, one query after the other. ``test_planned.py`` asks the real frontend the same.
"""

import ctypes
from types import SimpleNamespace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from futurex.kernels.cupy_.emulated_streams import noted

HALF, BFLOAT16, FLOAT = "half", "bfloat16", "float"
SIZES = {HALF: np.float16, BFLOAT16: np.uint16, FLOAT: np.float32}


class NotSupported(RuntimeError):
    """As the frontend's ``cudnnGraphNotSupportedError``."""


class Tensor:
    def __init__(self, name="", dim=None, stride=None, data_type=None):
        self.name, self.dim, self.stride, self.data_type, self.output = name, dim, stride, data_type, False

    def set_output(self, value):
        self.output = value
        return self

    def set_dim(self, value):
        self.dim = value
        return self

    def set_stride(self, value):
        self.stride = value
        return self

    def set_data_type(self, value):
        self.data_type = value
        return self

    def view(self, address):
        """The memory at an address as an array of these extents and strides."""
        dtype = np.dtype(SIZES[self.data_type])
        size = 1 + sum((n - 1) * step for n, step in zip(self.dim, self.stride, strict=True))
        memory = np.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(address), dtype)
        return as_strided(memory, self.dim, [step * dtype.itemsize for step in self.stride])

    def read(self, address):
        found = self.view(address)
        if self.data_type == BFLOAT16:
            found = (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float64)

    def write(self, address, value):
        value = value.astype(np.float32)
        if self.data_type == BFLOAT16:
            bits = value.view(np.uint32)
            value = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        self.view(address)[...] = value


class Graph:
    def __init__(self, handle, io_data_type, intermediate_data_type, compute_data_type):
        assert handle is not None
        assert (intermediate_data_type, compute_data_type) == (FLOAT, FLOAT)
        self.kind, self.inputs, self.results, self.work, self.steps = io_data_type, {}, [], None, []

    def tensor(self, *, name, dim, stride, data_type):
        return Tensor(name, dim, stride, data_type)

    def sdpa(self, *, q, k, v, is_inference, attn_scale, use_causal_mask):
        assert is_inference is False
        self.inputs, self.results = {"q": q, "k": k, "v": v}, [Tensor(), Tensor()]
        self.work = lambda q, k, v: attention(q, k, v, attn_scale, use_causal_mask)
        return self.results

    def sdpa_backward(self, *, q, k, v, o, dO, stats, attn_scale, use_causal_mask, use_deterministic_algorithm):
        assert use_deterministic_algorithm is True
        self.inputs = {"q": q, "k": k, "v": v, "o": o, "dO": dO, "stats": stats}
        self.results = [Tensor(), Tensor(), Tensor()]
        self.work = lambda q, k, v, o, dO, stats: slopes(q, k, v, o, dO, stats, attn_scale, use_causal_mask)
        return self.results

    def validate(self):
        """The rules of the frontend's documentation on attention."""
        q, k, v = (self.inputs[name] for name in "qkv")
        (n, heads, queries, size), (keys, values) = q.dim, (k.dim[2], v.dim[3])
        assert k.dim == [n, heads, keys, size]
        assert v.dim == [n, heads, keys, values]
        made, row = [n, heads, queries, values], [n, heads, queries, 1]
        wanted = {"o": made, "dO": made, "stats": row}
        assert all(self.inputs[name].dim == dim for name, dim in wanted.items() if name in self.inputs)
        backward = len(self.results) == 3
        assert [each.dim for each in self.results] == ([q.dim, k.dim, v.dim] if backward else [made, row])
        for tensor in (*self.inputs.values(), *self.results):
            assert len(tensor.dim) == len(tensor.stride) == 4
            assert tensor.stride[3] == 1
            single = tensor is self.inputs.get("stats") or (not backward and tensor is self.results[1])
            assert tensor.data_type == (FLOAT if single else self.kind)
        assert all(each.output for each in self.results)
        if size % 8 or values % 8:
            raise NotSupported("hidden_dim should be multiple of 8")
        if max(size, values) > 128:
            raise NotSupported("head dim")
        if backward and queries == keys == 1:
            raise NotSupported("s_q = s_kv = 1 is not supported.")
        self.steps.append("validate")

    def build_operation_graph(self):
        self.steps.append("build_operation_graph")

    def create_execution_plans(self, modes):
        assert modes == ["A", "FALLBACK"]
        self.steps.append("create_execution_plans")

    def deselect_numeric_notes(self, notes):
        assert notes == ["NONDETERMINISTIC"]

    def check_support(self):
        self.steps.append("check_support")

    def build_plans(self):
        self.steps.append("build_plans")

    def get_workspace_size(self):
        return 256

    def execute(self, places, workspace, handle):
        assert self.steps == [
            "validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans",
        ]  # fmt: skip
        assert type(workspace) is int
        assert handle.stream is not None
        assert all(type(place) is int for place in places.values())
        assert set(places) == {*self.inputs.values(), *self.results}

        def work():
            made = self.work(**{name: each.read(places[each]) for name, each in self.inputs.items()})
            for tensor, value in zip(self.results, made, strict=True):
                tensor.write(places[tensor], value)

        work()
        noted(work)


class Frontend:
    """The module ``cudnn``."""

    data_type = SimpleNamespace(FLOAT=FLOAT, HALF=HALF, BFLOAT16=BFLOAT16)
    heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
    numerical_note = SimpleNamespace(NONDETERMINISTIC="NONDETERMINISTIC")
    pygraph = Graph

    def create_handle(self):
        return SimpleNamespace(stream=None)

    def set_stream(self, *, handle, stream):
        handle.stream = stream


def weights(q, k, row, scale, causal):
    """Of one query: the exponentials of its scores less the largest, their sum, and the largest."""
    scores = (k @ q) * scale
    if causal:
        scores[row + 1 :] = -np.inf
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max())
    return e, e.sum(), scores.max()


def attention(q, k, v, scale, causal):
    out, logs = np.empty((*q.shape[:3], v.shape[3])), np.empty((*q.shape[:3], 1))
    for n, h, row in np.ndindex(q.shape[:3]):
        e, total, top = weights(q[n, h, row], k[n, h], row, scale, causal)
        out[n, h, row], logs[n, h, row] = e @ v[n, h] / total, top + np.log(total)
    return out, logs


def slopes(q, k, v, o, g, logs, scale, causal):
    dq, dk, dv = (np.zeros(each.shape) for each in (q, k, v))
    for n, h, row in np.ndindex(q.shape[:3]):
        e, total, top = weights(q[n, h, row], k[n, h], row, scale, causal)
        np.testing.assert_allclose(top + np.log(total), logs[n, h, row, 0], rtol=1e-4, atol=1e-4)
        p, slope = e / total, v[n, h] @ g[n, h, row]
        moved = p * (slope - o[n, h, row] @ g[n, h, row]) * scale
        dq[n, h, row] = moved @ k[n, h]
        dk[n, h] += np.outer(moved, q[n, h, row])
        dv[n, h] += np.outer(p, g[n, h, row])
    return dq, dk, dv
