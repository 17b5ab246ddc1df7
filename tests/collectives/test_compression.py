"""What is sent in a smaller form: how well each does, that nothing is lost for good, and that all ranks agree."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from transport_mesh import mesh

from futurex.ops.comm import communications
from futurex.partition import Mesh, Replicate, Shard, partition
from futurex.partition.compress import compress
from futurex.runtime.collectives import Communicator
from futurex.runtime.collectives.codecs import BLOCK, Codec, LowRank, codec_of
from futurex.tree import Aval, Graph, apply, param

pytestmark = pytest.mark.timeout(180)

VECTORS = arrays(np.float32, st.integers(1, 300), elements=st.floats(-1e4, 1e4, width=32))


@given(VECTORS, st.sampled_from(["fp16", "bf16", "1bit", "topk:0.3", "topk:1"]))
def test_a_codec_gives_as_many_bytes_as_it_says_and_shrinks_the_error(vector: np.ndarray, name: str) -> None:
    codec = codec_of(name)
    assert isinstance(codec, Codec)
    payload = codec.encode(vector)
    assert payload.dtype == np.uint8
    assert payload.size == codec.nbytes(vector.size)
    decoded = codec.decode(payload, vector.size)
    assert decoded.dtype == np.float32
    error = np.linalg.norm((vector - decoded).astype(np.float64))
    assert error <= np.linalg.norm(vector.astype(np.float64)) * (1 + 1e-6)


@given(VECTORS)
def test_half_precisions_round_as_they_should(vector: np.ndarray) -> None:
    half, brain = codec_of("fp16"), codec_of("bf16")
    assert np.array_equal(half.decode(half.encode(vector), vector.size), vector.astype(np.float16).astype(np.float32))
    near = brain.decode(brain.encode(vector), vector.size)
    assert np.all(np.abs(near - vector) <= np.abs(vector) * 2.0**-8 + 1e-38)
    assert np.array_equal(brain.decode(brain.encode(near), vector.size), near)


def test_vectors_of_several_blocks() -> None:
    vector = np.random.default_rng(3).standard_normal(2 * BLOCK + 13).astype(np.float32)
    found = {}
    for name in ("fp16", "bf16", "1bit", "topk:0.5"):
        codec = codec_of(name)
        assert isinstance(codec, Codec)
        payload = codec.encode(vector)
        assert payload.size == codec.nbytes(vector.size)
        found[name] = codec.decode(payload, vector.size)
    assert np.array_equal(found["fp16"], vector.astype(np.float16).astype(np.float32))
    bits = vector.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1) >> 16 << 16).astype(np.uint32).view(np.float32)
    assert np.array_equal(found["bf16"], rounded)
    positive = vector >= 0
    means = np.where(positive, vector[positive].mean(dtype="f8"), vector[~positive].mean(dtype="f8"))
    np.testing.assert_allclose(found["1bit"], means, rtol=1e-6)
    assert np.array_equal(found["topk:0.5"], np.where(np.abs(vector) >= np.median(np.abs(vector)), vector, 0))


def test_what_is_not_a_number_stays_so() -> None:
    vector = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    for name in ("fp16", "bf16"):
        codec = codec_of(name)
        assert np.array_equal(codec.decode(codec.encode(vector), 4), vector, equal_nan=True)


def test_the_largest_elements_are_sent_exactly() -> None:
    vector = np.array([1.0, -5.0, 0.5, 4.0, -0.25], np.float32)
    codec = codec_of("topk:0.4")
    assert codec.decode(codec.encode(vector), 5).tolist() == [0.0, -5.0, 0.0, 4.0, 0.0]


@pytest.mark.parametrize("name", ["zip", "topk:0", "topk:2", "powersgd:0", "powersgd:x", "fp16:3", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(ValueError, match="compression="):
        codec_of(name)


@pytest.mark.parametrize("kind", ["local", "inproc"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["fp16", "bf16", "1bit", "topk:0.1", "powersgd:2"])
def test_over_time_everything_arrives(kind: str, size: int, name: str) -> None:
    steps, shapes = 60, [(40, 50), (7,), (2000,)]
    rng = np.random.default_rng(5)
    gradients = [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(size)]
    expected = [np.sum(parts, axis=0) for parts in zip(*gradients, strict=True)]
    made: list[Communicator] = []
    totals = [[np.zeros(shape) for shape in shapes] for _ in range(size)]
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        try:
            for step in range(steps):
                outs = [gradient.copy() for gradient in gradients[rank]]
                made[rank].begin_step()
                attrs = {"reduce": "sum", "tag": 0, "codec": f"{name}#here"}
                made[rank].start("all_reduce", attrs, outs, outs).result()
                for total, out in zip(totals[rank], outs, strict=True):
                    total += out
                if step == 0:
                    np.testing.assert_allclose(outs[1], expected[1], rtol=1e-5, atol=1e-6)  # too small to compress
        except BaseException as error:
            errors.append(error)

    with mesh(kind, size, lambda endpoint: made.append(Communicator(endpoint))):
        threads = [threading.Thread(target=body, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors
    for mine in totals[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(mine, totals[0], strict=True))
    for total, whole in zip(totals[0], expected, strict=True):
        assert np.linalg.norm(total / steps - whole) < 0.35 * np.linalg.norm(whole)


def test_small_matrices_are_not_factored() -> None:
    assert not LowRank(4).applies((5, 5))
    assert not LowRank(1).applies((10_000,))
    assert LowRank(4).applies((3, 3, 64, 128))


def test_only_sums_that_no_other_exchange_waits_for_are_compressed() -> None:
    x, w = param(Aval((8, 4), np.dtype("f4")), "x"), param(Aval((4,), np.dtype("f4")), "w")
    mean = apply("sum", x, axis=(0,), keepdims=False, dtype=None)
    centred = (x - mean) * w
    total = apply("sum", centred, axis=(0,), keepdims=False, dtype=None)
    part = partition(Graph([x, w], [total]), [Shard(0), Replicate()], Mesh((("data", 2),)), 0)
    marked = compress(part, "bf16")
    codecs = [node.attrs.get("codec", "") for node in communications(marked)]
    assert len(codecs) == 2
    assert codecs[0] == ""
    assert codecs[1].startswith("bf16#")
