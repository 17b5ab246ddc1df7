"""Kernels written with Numba for CUDA, in its simulator: in a process of its own, because Numba reads the wish once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
import numpy as np
import futurex as fx
from futurex.kernels import numba_cuda

rng = np.random.default_rng(0)
for dtype, rtol in ((np.float64, 1e-12), (np.float32, 2e-6)):
    tensors = [rng.normal(size=shape).astype(dtype) for shape in ((3, 4), (5,), (2, 2, 2))]
    flat = lambda parts: np.concatenate([np.ravel(part) for part in parts])
    for optimizer in (fx.optim.adam(0.01), fx.optim.sgd(0.01, momentum=0.9)):
        params, state = tensors, optimizer.init(tensors)
        p = flat(params)
        held = [np.zeros_like(p) for _ in range(2)]
        for step in (1, 2, 3):
            grads = [rng.normal(size=each.shape).astype(dtype) for each in tensors]
            params, state = optimizer.update(params, grads, state)
            if "m" in state:
                numba_cuda.adam_update(p, flat(grads), *held, lr=0.01, step=step)
            else:
                numba_cuda.momentum_update(p, flat(grads), held[0], lr=0.01, momentum=0.9)
            np.testing.assert_allclose(p, flat(params), rtol=rtol, atol=5e-7)
        np.testing.assert_allclose(held[0], flat(state["m" if "m" in state else "velocity"]), rtol=rtol, atol=5e-7)

cases = [rng.normal(size=200), np.round(rng.normal(size=200), 1), np.ones(50), np.zeros(7), [np.nan, 1, -np.inf, 2, -3]]
for x in cases:
    x = np.asarray(x, np.float32)
    for k in (1, len(x) // 3 or 1, len(x)):
        places, values = (np.asarray(each.copy_to_host()) for each in numba_cuda.top_k(x, k))
        assert len(set(places.tolist())) == k
        np.testing.assert_array_equal(values, x[places])
        key = np.where(np.isnan(x), np.inf, np.abs(x))
        np.testing.assert_array_equal(np.sort(key[places]), np.sort(key)[-k:])

for bad, error in ((lambda: numba_cuda.top_k(np.ones(3, np.float32), 4), ValueError),
                   (lambda: numba_cuda.top_k(np.ones(3), 1), TypeError)):
    try:
        bad()
    except error:
        continue
    raise AssertionError(error)
print("done")
'''


def test_the_kernels_in_numbas_simulator():
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=110, cwd=root
    )
    if "No module named 'numba.cuda'" in done.stderr:
        pytest.skip("this Numba has no CUDA target: it is a package of its own, numba-cuda")
    assert done.stdout.strip() == "done", done.stderr


def test_the_kernels_compile_for_a_gpu():
    """To PTX, which needs NVVM but no device."""
    try:
        from numba import cuda, types
    except ImportError as error:
        pytest.skip(f"Numba has no CUDA target: {error}")
    from futurex.kernels import numba_cuda

    single, word, count, place = types.float32[::1], types.uint32[::1], types.int32[::1], types.int64[::1]
    f4, u4 = types.float32, types.uint32
    signatures = {
        numba_cuda._adam: (single, single, single, single, f4, f4, f4, f4, f4),
        numba_cuda._momentum: (single, single, single, f4, f4),
        numba_cuda._count: (word, u4, u4, u4, count),
        numba_cuda._gather: (single, word, u4, types.int32, count, place, single),
    }
    for kernel, signature in signatures.items():
        try:
            text, result = cuda.compile_ptx(kernel.py_func, signature, cc=(8, 0))
        except Exception as error:  # what is missing of CUDA shows in many ways
            pytest.skip(f"NVVM is not to be had: {error}")
        assert ".entry" in text or ".func" in text
        assert result == types.void
