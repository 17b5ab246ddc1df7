"""CuPy itself on a GPU that is described, not there: what its functions ask of CUDA, as a process of its own.

CuPy's extension modules hold CUDA's runtime. Its functions are replaced in memory by stand-ins of C: device memory is
the host's, kernels are neither compiled nor run, and the rules of a capture are kept ("CUDA Graphs" in the CUDA C++
Programming Guide: a stream that is captured is neither waited for nor asked how far it is). Prints one line of JSON for
each sample of each op: its name, why it does not run on the device, and why it cannot be part of a graph.
"""

import ctypes
import importlib.util
import json
import mmap
import os
import subprocess
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ops"))

RUNTIME = r"""
#include <stdlib.h>
#include <string.h>
#define F(name) int fake_cuda##name
struct Stream { int captured; };
struct Event { struct Stream *in; int captured; };
static struct Stream legacy;
static struct Stream *at(void *s) { return (size_t)s <= 2 ? &legacy : (struct Stream *)s; }
static int busy(void *s) { return at(s)->captured ? 900 : 0; }
F(GetDevice)(int *d) { *d = 0; return 0; }
F(SetDevice)(int d) { return 0; }
F(GetDeviceCount)(int *n) { *n = 1; return 0; }
F(DriverGetVersion)(int *v) { *v = VERSION; return 0; }
F(RuntimeGetVersion)(int *v) { *v = VERSION; return 0; }
F(DeviceGetAttribute)(int *v, int name, int d) {  /* blocks, grids, shared memory, warps, registers, processors */
    *v = name == 75 ? 9 : name == 16 ? 132 : name == 10 ? 32 : name == 8 ? 49152 : name == 97 ? 232448
        : name == 39 ? 2048 : name == 5 ? 2147483647 : name >= 6 && name <= 7 ? 65535 : name >= 1 && name <= 4 ? 1024
        : name == 12 ? 65536 : 0;
    return 0; }
F(GetDeviceProperties_v2)(char *all, int d) { *(int *)(all + 308) = 32; return 0; }  /* of a warp */
F(DeviceSynchronize)(void) { return 0; }
F(Malloc)(void **p, size_t n) { if (posix_memalign(p, 512, n + 1)) return 2; memset(*p, 0, n); return 0; }
F(Free)(void *p) { free(p); return 0; }
F(HostAlloc)(void **p, size_t n, unsigned f) { return posix_memalign(p, 512, n + 1) ? 2 : 0; }
F(FreeHost)(void *p) { free(p); return 0; }
F(PointerGetAttributes)(void *a, void *p) { memset(a, 0, 24); return 0; }
F(MemGetInfo)(size_t *a, size_t *b) { *a = *b = (size_t)1 << 36; return 0; }
F(MemcpyAsync)(void *d, void *s, size_t n, int kind, void *stream) { memmove(d, s, n); return 0; }
F(Memcpy)(void *d, void *s, size_t n, int kind) { memmove(d, s, n); return 0; }
F(MemsetAsync)(void *d, int v, size_t n, void *stream) { memset(d, v, n); return 0; }
F(StreamCreateWithPriority)(void **s, unsigned f, int p) { *s = calloc(1, sizeof(struct Stream)); return 0; }
F(StreamDestroy)(void *s) { return 0; }
F(StreamSynchronize)(void *s) { return busy(s); }
F(StreamQuery)(void *s) { return busy(s); }
F(StreamIsCapturing)(void *s, int *status) { *status = at(s)->captured != 0; return 0; }
F(StreamGetCaptureInfo_v2)(void *s, int *status) { *status = at(s)->captured != 0; return 0; }
F(StreamBeginCapture)(void *s, int mode) { at(s)->captured = 1; return 0; }
F(StreamEndCapture)(void *s, void **g) { at(s)->captured = 0; *g = malloc(1); return 0; }
F(StreamWaitEvent)(void *s, void *e, unsigned f) {
    return at(s)->captured != ((struct Event *)e)->captured ? 905 : 0; }
F(EventCreateWithFlags)(void **e, unsigned f) { *e = calloc(1, sizeof(struct Event)); return 0; }
F(EventDestroy)(void *e) { free(e); return 0; }
F(EventRecord)(void *e, void *s) { ((struct Event *)e)->captured = at(s)->captured; return 0; }
F(EventQuery)(void *e) { return ((struct Event *)e)->captured ? 907 : 0; }
F(EventSynchronize)(void *e) { return ((struct Event *)e)->captured ? 907 : 0; }
F(GraphInstantiate)(void **x, void *g, unsigned long long f) { *x = g; return 0; }
F(GraphLaunch)(void *x, void *s) { return 0; }
F(GraphDestroy)(void *g) { return 0; }
F(GraphExecDestroy)(void *g) { return 0; }
const char *fake_cudaGetErrorName(int e) { return e == 999 ? "not described" : "cudaError"; }
const char *fake_cudaGetErrorString(int e) { return e >= 900 && e < 910 ? "not while capturing" : "of no device"; }
F(GetLastError)(void) { return 0; }
F(PeekAtLastError)(void) { return 0; }
F(LaunchKernel)(void) { return 0; }
F(LaunchKernelExC)(void) { return 0; }
F(FuncSetAttribute)(void) { return 0; }
F(FuncGetAttributes)(int *a, void *f) { memset(a, 0, 40); a[6] = 1024; a[7] = 32; a[8] = a[9] = 90; return 0; }
F(OccupancyMaxActiveBlocksPerMultiprocessor)(int *n) { *n = 4; return 0; }
F(OccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int *n) { *n = 4; return 0; }
int undescribed(void) { return 999; }
int cuInit(unsigned f) { return 100; }
int cuGetErrorName(int e, const char **s) { *s = "CUDA_ERROR"; return 0; }
int cuGetErrorString(int e, const char **s) { *s = "of no device"; return 0; }
int cuCtxGetCurrent(void **c) { *c = (void *)64; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuModuleLoadData(void **m, void *image) { *m = malloc(1); return 0; }
int cuModuleUnload(void *m) { return 0; }
int cuModuleGetFunction(void **f, void *m, char *name) { *f = malloc(1); return 0; }
int cuLaunchKernel(
    void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned room) {
    return gy > 65535 || gz > 65535 || bx * by * bz > 1024 || room > 49152 ? 1 : 0; }
int cuFuncGetAttribute(int *v, int name, void *f) { *v = name ? 32 : 1024; return 0; }
"""

LIBRARIES = {
    "cublas": """
int cublasCreate_v2(void **h) { *h = (void *)64; return 0; }
int cublasGetMathMode(void *h, int *m) { *m = 0; return 0; }
int cublasGetPointerMode_v2(void *h, int *m) { *m = 0; return 0; }
int cublasGemmStridedBatchedEx(void) { return 0; }
int cublasSetWorkspace_v2(void) { return 0; }
""",
    "cusolver": "int cusolverDnCreate(void **h) { *h = (void *)64; return 0; }\n",
    "cufft": "int cufftCreate(int *h) { *h = 1; return 0; }\n",
}
"""What libraries answer; their other functions say that all is well."""

SIZES = {
    "potrf_bufferSize": (6,), "getrf_bufferSize": (6,), "geqrf_bufferSize": (6,), "gqr_bufferSize": (8,),
    "gesvd_bufferSize": (4,), "gesvdj_bufferSize": (13,), "gesvdjBatched_bufferSize": (12,), "evd_bufferSize": (8,),
    "evj_bufferSize": (8,), "evjBatched_bufferSize": (8,), "DnXsyevd_bufferSize": (12, 13), "MakePlan1d": (5,),
    "MakePlanMany": (12,), "getrsBatched": (10,),
}  # fmt: skip
"""By how functions end: which of their arguments take the bytes that they want to work in."""


def answering(name):
    """C of a function that wants no memory to work in, or that does nothing."""
    for end in sorted(SIZES, key=len, reverse=True):
        if name.endswith(end):
            listed = ", ".join(f"long a{k + 1}" for k in range(max(SIZES[end])))
            wide = "long" if "MakePlan" in end or "DnX" in end else "int"
            return f"int {name}({listed}) {{ {' '.join(f'*({wide} *)a{k} = 0;' for k in SIZES[end])} return 0; }}"
    return f"int {name}() {{ return 0; }}"


def built(folder, name, text, *more):
    """A library of C functions, loaded."""
    source = folder / f"{name}.c"
    source.write_text(text)
    command = ["cc", "-w", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", *more, "-o", folder / name, source]
    subprocess.run(command, check=True, timeout=60)
    return ctypes.CDLL(str(folder / name))


def symbols(path, *options):
    """Name, kind and place of each symbol of a library; those that it lacks have no place."""
    lines = subprocess.run(["nm", *options, path], capture_output=True, text=True, check=True).stdout.splitlines()
    for fields in map(str.split, lines):
        yield fields[-1].partition("@")[0], fields[-2], int(fields[0], 16) if len(fields) == 3 else None


def replace(path, stand_ins):
    """Have the functions of CUDA's runtime in an extension module jump to their stand-ins."""
    found = [(name, place) for name, kind, place in symbols(path) if kind in "tT" and name.startswith("cuda")]
    if not found:
        return
    try:
        ctypes.CDLL(str(path))
    except OSError:  # of a library that is not installed: nobody calls it
        return
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = min(int(line.partition("-")[0], 16) for line in maps if line.endswith(str(path.resolve())))
    protect = ctypes.CDLL(None).mprotect
    for name, place in found:
        target = getattr(stand_ins, f"fake_{name}", stand_ins.undescribed)
        address = ctypes.cast(target, ctypes.c_void_p).value
        page = (base + place) & -mmap.PAGESIZE
        if protect(ctypes.c_void_p(page), ctypes.c_size_t(2 * mmap.PAGESIZE), 7) != 0:
            raise OSError("code cannot be replaced on this machine")
        ctypes.memmove(base + place, b"\x48\xb8" + address.to_bytes(8, "little") + b"\xff\xe0", 12)  # mov rax; jmp rax


def install(folder):
    """Put the described GPU under CuPy, which must not have been imported."""
    site = Path(importlib.util.find_spec("cupy_backends").origin).parent.parent
    users = {name: next(site.glob(f"cupy*/cuda/**/{name}.*.so")) for name in LIBRARIES}
    needed = {name: next(each for each in dynamic(path) if each.startswith(f"lib{name}."))
              for name, path in users.items()}  # fmt: skip
    major = needed["cublas"].rpartition(".")[2]
    stand_ins = built(folder, "libcuda.so.1", f"#define VERSION {major}000\n{RUNTIME}")
    for name, text in LIBRARIES.items():
        asked = {each for each, kind, _ in symbols(users[name], "-D") if kind == "U" and each.startswith(name)}
        others = (answering(each) for each in sorted(asked) if f" {each}(" not in text)
        versions = folder / f"{name}.versions"
        versions.write_text(f"{needed[name]} {{ global: *; }};")
        built(folder, needed[name], "\n".join([text, *others]), f"-Wl,--version-script={versions}")
    for path in sorted(site.glob("cupy*/**/*.so")):
        replace(path, stand_ins)
    from cupy.cuda import compiler, function

    def uncompiled(*_, name_expressions=None, **__):
        module = function.Module()
        module.load(b"")
        module._set_mapping({name: name for name in name_expressions or ()})
        return module

    compiler._compile_module_with_cache = uncompiled
    compiler.compile_using_nvrtc = lambda *_, **__: (b"no code", None)
    os.environ["FUTUREX_CACHE"] = str(folder)  # which has the code of no other process


def dynamic(path):
    """The libraries that a library needs."""
    text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return [line.rpartition("[")[2].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line]


def judged(device):
    """Of each sample of an op that is said to run on the device: its name, why it does not, why no graph holds it."""
    from op_cases import cases, copies

    from futurex.kernels.cupy_ import CupyBackend
    from futurex.kernels.cupy_.rules import refusal

    backend = CupyBackend(device)
    for case in cases():
        if case.record.structured or refusal(case.node) is not None:
            continue
        stream = device.xp.cuda.Stream(non_blocking=True)
        with stream:
            inputs = [device.to_device(value) for value in copies(case.inputs)]
            if not any(map(device.holds, inputs)):
                continue
            kernel = backend.claim(case.node, 1).call
            kernel(None, *inputs)
            if kernel.reason or getattr(kernel, "trips", 0):
                yield str(case), kernel.reason, None
                continue
            said = None
            with device.captures():
                stream.begin_capture()
                try:
                    kernel(None, *inputs)
                except Exception as error:
                    said = f"{type(error).__name__}: {error}"
                stream.end_capture()
            yield str(case), None, said


def steps():
    """Of a training step of a small network in each precision: its name, what runs otherwise than is meant for it, and
    why it is no graph. What it computes is nothing, so that a replay may well give other values."""
    import numpy as np

    import futurex as fx

    def loss(params, x, labels):
        h = fx.nn.layer_norm(x, params["scale"], params["shift"])
        q, k, v = (h @ params[name] for name in "qkv")
        h = x + fx.nn.softmax(q @ k.transpose(0, 2, 1)) @ v
        pooled = fx.nn.max_pool(h.reshape(64, 8, 4, 10), 2).reshape(64, -1)
        return fx.nn.softmax_cross_entropy(np.tanh(pooled) @ params["out"], labels).mean()

    rng = np.random.default_rng(0)
    shapes = {"scale": (40,), "shift": (40,), "out": (80, 6), **dict.fromkeys("qkv", (40, 40))}
    optimizer, slope = fx.optim.adamw(1e-3), fx.value_and_grad(loss)

    def step(params, state, x, labels):
        loss, grads = slope(params, x, labels)
        return *optimizer.update(params, grads, state), loss

    for precision in ("", "tfloat32", "bfloat16", "float16"):
        run = fx.futurize(step, device="gpu", donate=("params", "state"))
        run = fx.autocast(run, precision) if precision else run
        params = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        batch = rng.normal(size=(64, 8, 40)).astype(np.float32), rng.integers(0, 6, 64)
        state = optimizer.init(params)
        for _ in range(6):
            params, state, value = run(params, state, *batch)
            float(value)
        plan = run.trace(params, state, *batch).plan
        reasons = plan.reasons()
        why = reasons.pop("graph", None)
        assert plan.replays, "no run was tried as a graph"
        yield f"step {precision}", reasons or None, None if why == "a replay gave other values" else why


def main(folder):
    warnings.simplefilter("ignore")
    os.environ.pop("FUTUREX_GPU", None)
    install(Path(folder))

    from futurex.kernels.cupy_ import device

    for name, *said in (*judged(device()), *steps()):
        print(json.dumps([name, *said]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
