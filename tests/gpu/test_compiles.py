"""Every kernel that is generated or written for a GPU compiles for the architectures it is meant for."""

import importlib
import re
import shutil
import subprocess

import numpy as np
import pytest
from test_generated_cuda import DTYPES, REDUCIBLE, operations

import futurex as fx
from futurex.kernels.cuda_ import OPTIONS, REDUCTIONS, Operand, emulation, numbered, region_source
from futurex.kernels.cuda_.reduction import columns_source, reduction_source
from futurex.kernels.cuda_.scalar import PRELUDE
from futurex.kernels.cupy_ import draws, formats, largest, moments, regions, sequences
from futurex.ops.fusion import loop_of
from futurex.tree import Aval, Graph, apply, param
from futurex.tree.aval import aval_of

ARCHITECTURES = ("80", "90")
COLUMNS_OF = [np.dtype(code) for code in ("?", "i1", "u8", "f4", "f8")]


def texts():
    for dtype in DTYPES:
        params = [param(Aval((8, 8), dtype)), param(Aval((8, 8), dtype))]
        for form, loops in ((Operand.DENSE, 1), (Operand.STRIDED, 3), (Operand.ELEMENT, 1)):
            nodes = list(operations(dtype, params))
            yield f"{dtype}-{form.value}", region_source(Graph(params, nodes, "all"), [Operand.DENSE, form], loops)
        body = Graph(params, [apply("maximum", *params)], "body")
        reduced = {"sum": np.dtype(float), "prod": np.dtype(float), "any": np.dtype(bool), "all": np.dtype(bool)}
        for reduce in REDUCTIONS if dtype in REDUCIBLE else ():
            made = reduced.get(reduce, dtype)
            yield f"{dtype}-{reduce}", reduction_source(body, [Operand.DENSE] * 2, 1, [(reduce, made)])
            if dtype in COLUMNS_OF:
                yield f"{dtype}-{reduce}-columns", columns_source(body, [Operand.DENSE] * 2, 1, [(reduce, made)])
        yield f"{dtype}-over", region_source(body, [Operand.DENSE] * 2, 1, [(0, 1)])
        casts = [node for to in DTYPES if loop_of(node := apply("cast", params[0], dtype=to)) is not None]
        yield f"{dtype}-casts", region_source(Graph(params[:1], casts, "casts"), [Operand.STRIDED], 2)
    number = param(aval_of(0.5))
    single = param(Aval((8,), np.dtype("float32")))
    scaled = Graph([single, number], [single * number, single - number], "numbers")
    yield "numbers of the device", region_source(scaled, [Operand.DENSE, Operand.ELEMENT], 1)
    yield from ((f"{name}-{to}", formats.source(name, to)) for name, to in formats.CONVERSIONS)
    for name, dtype in draws.FORMS:
        yield f"{name}-{dtype}", draws.source(name, dtype, True, False)
    for dtype in (np.dtype("f4"), np.dtype("f8")):
        yield f"convolution-{dtype}", sequences.source(dtype)
        for first, last in ((True, True), (True, False), (False, True)):
            yield f"moments-{dtype}-{first}-{last}", moments.source(dtype, first, last)
    yield from ((f"largest-{k}", text) for k, text in enumerate(largest.SOURCES))


def attention(params, x):
    h = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + np.float32(1e-5))
    q, k, v = (h @ params[name] for name in "qkv")
    h = x + fx.nn.softmax(q @ k.transpose(0, 2, 1)) @ v
    return (np.tanh(h @ params["out"]) * np.exp(-h)).mean()


def convolution(w, pixels):
    """Convolution, batch normalisation and relu."""
    h = fx.nn.batch_norm(fx.nn.conv(pixels, w), np.ones(20, np.float32), np.zeros(20, np.float32))[0]
    return (np.maximum(h, 0) ** 2).mean()


def network_texts():
    """What a training step's plan asks to be compiled, as it is launched on the emulated device."""
    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=(40, 40)).astype(np.float32) * 0.1 for name in ("q", "k", "v", "out")}
    optimizer = fx.optim.adamw(1e-3)
    slope = fx.value_and_grad(attention)

    @fx.futurize(device="gpu")
    def step(params, state, x):
        loss, grads = slope(params, x)
        return optimizer.update(params, grads, state), loss

    before = set(regions._kernels)
    batch = params, optimizer.init(params), rng.normal(size=(3, 8, 40)).astype(np.float32)
    for run in (step, fx.autocast(step, "bfloat16"), fx.autocast(step, "float16")):
        _, loss = run(*batch)
        assert np.isfinite(float(loss))
    w, pixels = rng.normal(size=(3, 3, 4, 20)).astype(np.float32), rng.normal(size=(4, 5, 5, 4)).astype(np.float32)
    for dtype in ("bfloat16", "float16", "tfloat32"):
        gradient = fx.autocast(fx.futurize(fx.grad(convolution), device="gpu"), dtype)(w, pixels)
        assert np.isfinite(np.asarray(gradient)).all()
    return [text for kind, text in regions._kernels if (kind, text) not in before]


def in_one(texts, elements=2**40):
    """One file of all kernels for arrays of so many elements, each under a name of its own."""
    shared = draws.PHILOX, moments.JOINING
    whole = [numbered(PRELUDE, elements), *shared]
    for number, text in enumerate(texts):
        text = text.removeprefix(numbered("", 1)).removeprefix(PRELUDE)
        for each in shared:
            text = text.removeprefix(each)
        body, count = re.subn(r"void region\(", f"void region_{number}(", text)
        assert count == 1
        whole.append(body)
    return "\n".join(whole)


@pytest.mark.timeout(400)
def test_nvcc_compiles_every_kernel(tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on the path")
    found = [text for _, text in texts()]
    if emulation.compiler() is not None:
        found += network_texts()
    source, made = tmp_path / "kernels.cu", tmp_path / "kernels.fatbin"
    source.write_text(in_one(found))
    kinds = ("compute", "sm")  # the last one's to the end
    targets = [f"-gencode=arch=compute_{a},code={kind}_{a}" for a, kind in zip(ARCHITECTURES, kinds, strict=True)]
    plainly = ["-Xcicc", "-O0", "-Xptxas", "-O0", "--no-compress"]  # optimisation takes most of the time
    command = [nvcc, "--fatbin", "--threads=2", *targets, *OPTIONS, *plainly, "-o", str(made), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    code = made.read_bytes()
    assert all(f"region_{number}".encode() in code for number in (0, len(found) - 1))


@pytest.mark.parametrize("architecture, elements", list(zip(ARCHITECTURES, (2**40, 100), strict=True)))
def test_nvrtc_compiles_every_kernel(architecture, elements):
    """By CUDA's own Python binding (the extra ``nvrtc``), which needs no GPU."""
    try:
        compiler = importlib.import_module("cuda.bindings.nvrtc")
        assert compiler.nvrtcVersion()[0] == 0
    except (ImportError, RuntimeError, AssertionError) as error:
        pytest.skip(f"NVRTC is not to be had: {error}")
    found = [text for _, text in texts()]
    if architecture == ARCHITECTURES[-1] and emulation.compiler() is not None:
        found += network_texts()
    text = in_one(found, elements)
    _, program = compiler.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{architecture}".encode(), *(each.encode() for each in OPTIONS)]
    (status,) = compiler.nvrtcCompileProgram(program, len(options), options)
    _, size = compiler.nvrtcGetProgramLogSize(program)
    log = b" " * size
    compiler.nvrtcGetProgramLog(program, log)
    assert status == 0, log.decode()[-4000:]
