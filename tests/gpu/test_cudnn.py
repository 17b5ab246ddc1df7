"""Convolutions handed to cuDNN: layouts and options by a reading of its graph in NumPy, and by cuDNN's own check."""

import ctypes
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ops"))

from op_cases import cases

from futurex.kernels import cudnn as cudnn_kernels
from futurex.kernels.cudnn import OPS, graph_of, node_task, task_of
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.emulated import NAMESPACE
from futurex.ops.precision import STORAGE
from futurex.tree import Aval, apply, param

CASES = [case for case in cases() if case.name in OPS]


class Tensor(SimpleNamespace):
    """A tensor of a graph; the setters return it, as cuDNN's do."""

    __hash__ = object.__hash__

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda value: (setattr(self, name.removeprefix("set_"), value), self)[1]


class Reading:
    """What a graph of one convolution means, by the definition in cuDNN's documentation: the sum over k and r of
    ``x[n, c, stride * p + dilation * r - pad] * w[k, c, r]``, and the two derivatives of it."""

    data_type = SimpleNamespace(FLOAT="float", HALF="half", BFLOAT16="bfloat16")

    def __init__(self):
        self.work = None

    def pygraph(self, **_):
        return self

    def tensor(self, **fields):
        return Tensor(**fields)

    def conv_fprop(self, image, weight, **options):
        return self._made("y", {"x": image, "w": weight}, options)

    def conv_dgrad(self, loss, filter, **options):
        return self._made("x", {"y": loss, "w": filter}, options)

    def conv_wgrad(self, image, loss, **options):
        return self._made("w", {"x": image, "y": loss}, options)

    def _made(self, result, tensors, options):
        tensors[result] = Tensor()
        self.work = result, tensors, options
        return tensors[result]

    def run(self, data):
        """Fill the result's buffer; ``data`` maps each tensor to a flat array in its memory's order."""
        result, tensors, options = self.work
        views = {}
        for name, tensor in tensors.items():
            flat = data[id(tensor)]
            views[name] = as_strided(flat, tensor.dim, [step * flat.itemsize for step in tensor.stride])
        x, w, y = views["x"], views["w"], views["y"]
        sizes, groups = x.shape[2:], x.shape[1] // w.shape[1]
        share = w.shape[0] // groups
        for n, k in itertools.product(range(y.shape[0]), range(y.shape[1])):
            channels = slice(k // share * w.shape[1], (k // share + 1) * w.shape[1])
            for p, r in itertools.product(np.ndindex(*y.shape[2:]), np.ndindex(*w.shape[2:])):
                zipped = zip(p, r, options["stride"], options["dilation"], options["pre_padding"], strict=True)
                at = tuple(step * a + spread * b - pad for a, b, step, spread, pad in zipped)
                if not all(0 <= a < size for a, size in zip(at, sizes, strict=True)):
                    continue
                if result == "y":
                    y[(n, k, *p)] += (x[(n, channels, *at)] * w[(k, slice(None), *r)]).sum()
                elif result == "x":
                    x[(n, channels, *at)] += y[(n, k, *p)] * w[(k, slice(None), *r)]
                else:
                    w[(k, slice(None), *r)] += y[(n, k, *p)] * x[(n, channels, *at)]


def single(case):
    return [np.asarray(value).astype(np.float32) for value in case.inputs]


def task_for(case, kind="float32"):
    return task_of(case.name, [np.shape(value) for value in case.inputs], kind, case.sample.attrs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_graph_computes_the_op(case):
    task = task_for(case)
    cudnn = Reading()
    graph, tensors = graph_of(cudnn, None, task.widened)
    inputs = single(case)
    if case.name != "conv_weight_grad":
        inputs[1] = np.moveaxis(inputs[1], -1, 0)
    shape = {"conv": task.y, "conv_input_grad": task.x, "conv_weight_grad": (task.w[-1], *task.w[:-1])}[case.name]
    out = np.zeros(shape, np.float32)
    buffers = [*map(np.ascontiguousarray, inputs), out]
    graph.run({id(tensor): each.reshape(-1) for tensor, each in zip(tensors, buffers, strict=True)})
    result = np.moveaxis(out, 0, -1) if case.name == "conv_weight_grad" else out
    np.testing.assert_allclose(result, case.results[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cudnn_finds_the_graph_valid(case):
    cudnn = pytest.importorskip("cudnn", reason="cuDNN's frontend is not installed", exc_type=ImportError)
    if not hasattr(cudnn, "Handle"):
        pytest.skip("this version of cuDNN's frontend checks graphs on a GPU only")
    try:
        cudnn.backend_version()
    except (OSError, RuntimeError) as error:
        pytest.skip(f"cuDNN itself is not to be had: {error}")
    task = task_for(case).widened
    graph, (_, _, made) = graph_of(cudnn, cudnn.Handle(1, 0, 0), task)
    graph.validate()
    wanted = {"conv": task.y, "conv_input_grad": task.x, "conv_weight_grad": (task.w[-1], *task.w[:-1])}[case.name]
    assert list(made.get_dim()) == [wanted[0], wanted[-1], *wanted[1:-1]]


@pytest.mark.parametrize("to", STORAGE)
@pytest.mark.parametrize("name", sorted(OPS))
def test_products_in_narrow_formats_are_cudnns(name, to):
    case = next(case for case in CASES if case.name == name)
    inputs = [param(Aval(np.shape(value), STORAGE[to])) for value in case.inputs]
    task = node_task(apply("narrow_product", *inputs, product=name, to=to, **case.sample.attrs))
    assert task == task_for(case, to)
    assert task.dtype == STORAGE[to]
    _, tensors = graph_of(Reading(), None, task.widened)
    kind = {"float16": "half", "bfloat16": "bfloat16", "tfloat32": "float"}[to]
    assert {tensor.data_type for tensor in tensors} == {kind}


class Execution:
    """cuDNN's frontend as a kernel calls it, the graph's meaning being that of :class:`Reading`."""

    heur_mode = SimpleNamespace(A=1, FALLBACK=2)
    numerical_note = SimpleNamespace(TENSOR_CORE=1, DOWN_CONVERT_INPUTS=2, NONDETERMINISTIC=3)
    data_type = Reading.data_type

    def __init__(self):
        self.handles, self.deselected = 0, []

    def create_handle(self):
        self.handles += 1
        return SimpleNamespace(stream=None)

    def set_stream(self, handle, stream):
        handle.stream = stream

    def pygraph(self, **options):
        graph = Reading()
        graph.validate = graph.build_operation_graph = graph.check_support = graph.build_plans = lambda: None
        graph.create_execution_plans = lambda modes: None
        graph.deselect_numeric_notes = self.deselected.append
        graph.get_workspace_size = lambda: 64

        def execute(places, workspace, handle):
            assert isinstance(workspace, int)
            assert handle.stream is not None
            result, tensors, _ = graph.work
            buffers = {}
            for tensor in tensors.values():
                assert not places[_key(places, tensor)] % 16  # the alignment that the frontend tells cuDNN
                size = 1 + sum((n - 1) * step for n, step in zip(tensor.dim, tensor.stride, strict=True))
                memory = (ctypes.c_float * size).from_address(places[_key(places, tensor)])
                buffers[id(tensor)] = np.frombuffer(memory, np.float32)
            buffers[id(tensors[result])][...] = 0
            graph.run(buffers)

        graph.execute = execute
        return graph


def _key(places, tensor):
    return next(each for each in places if each is tensor)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_hands_addresses_to_cudnn(case, monkeypatch):
    library = Execution()
    monkeypatch.setattr(cudnn_kernels, "library", lambda device: library)
    monkeypatch.setattr(cudnn_kernels._shared, "handle", None)
    there = Device(NAMESPACE, "emulated")
    kernel = cudnn_kernels.Convolution(there, task_for(case))
    for _ in range(2):
        (result,) = kernel(*map(there.to_device, single(case)))
        np.testing.assert_allclose(there.to_host(result), case.results[0], rtol=1e-4, atol=1e-4)
    assert library.handles == 1
    assert library.deselected == [[3, 1, 2]]  # the same bits every time, and of singles


def test_operands_that_begin_anywhere_are_copied_for_cudnn(monkeypatch):
    library = Execution()
    monkeypatch.setattr(cudnn_kernels, "library", lambda device: library)
    monkeypatch.setattr(cudnn_kernels._shared, "handle", None)
    there = Device(NAMESPACE, "emulated")
    case = next(case for case in CASES if case.name == "conv")
    x, w = single(case)
    longer = there.to_device(np.concatenate([np.zeros(1, np.float32), x.ravel()]))
    moved = longer[1:].reshape(x.shape)
    assert moved.data.ptr % 16
    (result,) = cudnn_kernels.Convolution(there, task_for(case))(moved, there.to_device(w))
    np.testing.assert_allclose(there.to_host(result), case.results[0], rtol=1e-4, atol=1e-4)


def test_threads_share_what_cudnn_planned(monkeypatch):
    library = Execution()
    monkeypatch.setattr(cudnn_kernels, "library", lambda device: library)
    monkeypatch.setattr(cudnn_kernels._shared, "handle", None)
    there = Device(NAMESPACE, "emulated")
    kernel = cudnn_kernels.Convolution(there, task_for(CASES[0]))
    inputs = [*map(there.to_device, single(CASES[0]))]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: there.to_host(kernel(*inputs)[0]), range(8)))
    for result in results:
        np.testing.assert_allclose(result, CASES[0].results[0], rtol=1e-4, atol=1e-4)
    assert (library.handles, len(library.deselected)) == (1, 1)


def test_double_precision_is_not_for_cudnn():
    for case in CASES:
        assert (node_task(case.node) is None) is (case.node.dtype == np.float64)
