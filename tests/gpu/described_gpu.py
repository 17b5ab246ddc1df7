"""Plans of cuDNN for a GPU that is described, not there: every graph that kernels ask for, as a process of its own.

cuDNN plans for a device by its description ("Deviceless ahead-of-time compilation" in its documentation), but its
libraries want the driver's and the runtime's functions to exist: their stand-ins answer for the one device, and launch
nothing. Prints one line of JSON for each graph: its name, and cuDNN's error or null.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ops"))

DRIVER = """\
cuCtxGetCurrent cuCtxGetLimit cuCtxPopCurrent cuCtxPushCurrent cuDeviceGet cuDeviceGetCount cuDriverGetVersion
cuGetErrorName cuGetErrorString cuGetProcAddress cuGetProcAddress_v2 cuKernelGetAttribute cuKernelGetFunction
cuKernelSetAttribute cuLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx cuLibraryGetKernel cuLibraryLoadData
cuLibraryLoadFromFile cuLibraryUnload cuLinkAddData cuLinkComplete cuLinkCreate cuLinkDestroy cuModuleGetFunction
cuModuleLoadData cuModuleUnload cuOccupancyMaxPotentialClusterSize cuStreamGetCtx cuTensorMapEncodeIm2col
cuTensorMapEncodeTiled"""
FOUND = {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuModuleLoadData", "cuModuleGetFunction",
         "cuCtxGetCurrent"}  # fmt: skip
QUIET = {"cuKernelSetAttribute", "cuLibraryUnload", "cuModuleUnload", "cuCtxPushCurrent", "cuCtxPopCurrent"}
"""What is looked up is found, at an address that nobody may read; what sets something succeeds; the rest fails."""

RUNTIME = """
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaDeviceGetAttribute(int *value, int name, int device) {
    *value = name == 75 ? MAJOR : name == 76 ? 0 : name == 16 ? PROCESSORS : name == 97 ? SHARED : 0;
    return 0;
}
int cudaRuntimeGetVersion(int *value) { *value = 12090; return 0; }
const char *cudaGetErrorString(int error) { return "there is no device"; }
"""

H200 = {
    "deviceName": "NVIDIA H200", "deviceVer": 900, "multiProcessorCount": 132, "warpSize": 32, "cudaDeviceId": 0,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536, "regsPerBlock": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "totalGlobalMem": 141 * 10**9, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "memoryBusWidth": 6144, "l2CacheSize": 62914560, "maxBlockSize": [1024, 1024, 64],
    "maxGridSize": [2**31 - 1, 65535, 65535], "supportCoopLaunch": 1, "pciDeviceId": 0, "isTccDriver": 0,
    "driverVer": 12090,
}  # fmt: skip
"""By the keys that cuDNN asks for; those of XLA's ``cudnn_device_props.cc`` and the width of the bus."""


def driver_text():
    """C for the driver's functions."""
    lines = [
        f"int {name}(void **place) {{ *place = (void *)4096; return 0; }}"
        if name in FOUND
        else f"int {name}(void) {{ return {0 if name in QUIET else 999}; }}"
        for name in DRIVER.split()
    ]
    return "\n".join(lines)


def runtime_text():
    """C for those of the runtime."""
    sizes = {"MAJOR": 9, "PROCESSORS": H200["multiProcessorCount"], "SHARED": H200["maxSharedMemoryPerBlockOptin"]}
    return "\n".join(f"#define {name} {value}" for name, value in sizes.items()) + RUNTIME


NETWORK = {
    "stem": ((32, 224, 224, 3), (7, 7, 3, 64), 2, (3, 3)), "3 x 3": ((32, 56, 56, 64), (3, 3, 64, 64), 1, (1, 1)),
    "1 x 1": ((32, 56, 56, 64), (1, 1, 64, 256), 1, (0, 0)),
    "strided": ((32, 56, 56, 128), (3, 3, 128, 128), 2, (0, 1)),
}  # fmt: skip
HEADS = {
    "heads": ((8, 8, 512, 64),) * 3, "wide heads": ((2, 4, 128, 128),) * 3, "three axes": ((4, 33, 8),) * 3,
    "other keys": ((2, 3, 100, 40), (2, 3, 77, 40), (2, 3, 77, 40)),
    "other values": ((2, 2, 64, 64), (2, 2, 64, 64), (2, 2, 64, 32)),
}  # fmt: skip


def tasks():
    """Names, and what kernels ask cuDNN for: samples of the ops, and layers as networks have them."""
    import numpy as np
    from op_cases import cases

    from futurex.kernels import attention, cudnn
    from futurex.ops.convolution import conv_shape

    kinds = "float32", "tfloat32", "bfloat16", "float16"
    for case in cases():
        if case.name in cudnn.OPS:
            shapes = [np.shape(value) for value in case.inputs]
            for kind in kinds:
                yield f"{case} {kind}", cudnn.task_of(case.name, shapes, kind, case.sample.attrs)
    for name, (x, w, stride, pad) in NETWORK.items():
        attrs = {"stride": (stride,) * 2, "padding": (pad,) * 2, "dilation": (1, 1), "groups": 1}
        y = conv_shape(x, w, **attrs)
        for kind in kinds:
            yield f"conv {name} {kind}", cudnn.task_of("conv", (x, w), kind, attrs)
            to_input, to_weights = {**attrs, "input_shape": x}, {**attrs, "kernel_shape": w[:2]}
            yield f"conv_input_grad {name} {kind}", cudnn.task_of("conv_input_grad", (y, w), kind, to_input)
            yield f"conv_weight_grad {name} {kind}", cudnn.task_of("conv_weight_grad", (x, y), kind, to_weights)
    for name, shapes in HEADS.items():
        for to in ("bfloat16", "float16"):
            for causal in (False, True):
                for grad in (False, True):
                    title = f"attention{'_grad' * grad} {name} {to}{' causal' * causal}"
                    yield title, attention.Task(grad, *shapes, to, 0.125, causal)


def main():
    import cudnn as frontend

    from futurex.kernels import attention, cudnn
    from futurex.kernels.cupy_.devices import Device
    from futurex.kernels.cupy_.emulated import NAMESPACE

    described = frontend.create_device_properties(json.dumps(H200))
    asked = SimpleNamespace(
        data_type=frontend.data_type, heur_mode=frontend.heur_mode, numerical_note=frontend.numerical_note,
        create_handle=lambda: "described", set_stream=lambda handle, stream: None,
        pygraph=lambda handle, **options: frontend.pygraph(device_property=described, **options),
    )  # fmt: skip
    cudnn.library = lambda device: asked
    for name, task in tasks():
        error = None
        try:
            make = (cudnn.Convolution if isinstance(task, cudnn.Task) else attention.Attention)(
                Device(NAMESPACE, "emulated"), task
            )
            make._run.plan()
        except Exception as found:
            error = f"{type(found).__name__}: {found}"[:300]
        print(json.dumps([name, error]), flush=True)


if __name__ == "__main__":
    import futurex.kernels.cupy_  # noqa: F401  (first: it imports the modules of the libraries)

    main()
