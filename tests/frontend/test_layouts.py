"""What ``explain`` says of the layout of a net: one order of the axes, and where arrays are turned."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import onednn

RNG = np.random.default_rng(0)


def drawn(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def images(w, v, x):
    h = np.maximum(fx.nn.conv(x, w, padding="same"), 0)
    return (fx.nn.max_pool(fx.nn.conv(h, v, stride=2), 2) ** 2).mean()


def series(w, v, x):
    return (np.tanh(fx.nn.conv(np.tanh(fx.nn.conv(x, w)), v)) ** 2).mean()


IMAGES = drawn(3, 3, 3, 16), drawn(3, 3, 16, 16), drawn(2, 17, 17, 3)
SERIES = drawn(10, 6, 100), drawn(10, 100, 100), drawn(128, 80, 6)


def layout(f, args):
    f(*args)
    found = [line.strip() for line in f.explain().splitlines() if line.strip().startswith("layout: ")]
    assert len(found) <= 1
    return found[0] if found else ""


def test_images_are_channels_last_from_end_to_end():
    f = fx.futurize(fx.grad(images, argnums=(0, 1)))
    said = layout(f, IMAGES)
    assert said.startswith("layout: every array of the net lies channels last; 5 convolutions and gradients of them")
    if "onednn" not in said:  # a suite on the fallback
        assert "reorders" not in said
        return
    assert "5 by onednn" in said
    assert said.endswith("and other arrays nowhere, within its calls")
    assert not any(row.op == "transpose" for row in f.profile())


@pytest.mark.skipif(not onednn.available(), reason="the products are chosen beside oneDNN")
def test_the_edges_of_what_runs_positions_first_are_counted():
    f = fx.futurize(fx.grad(series, argnums=(0, 1)))
    said = layout(f, SERIES)
    assert "5 convolutions and gradients of them; 5 became products of matrices" in said
    swaps = [
        step for step in f._traces()[0]._plan.instructions
        if step.node.op == "transpose" and step.node.attrs["axes"] == (1, 0, 2)
    ]  # fmt: skip
    assert 1 <= len(swaps) < 5  # fewer than one for each: the others met and went
    assert ("once" if len(swaps) == 1 else f"{len(swaps)} times") + ", at the edges of those" in said


def test_a_gpu_reads_channels_last_too(monkeypatch):
    monkeypatch.setenv("FUTUREX_GPU", "emulated")
    said = layout(fx.futurize(images, device="gpu"), IMAGES)
    assert said.endswith("channels last; 2 convolutions and gradients of them, 2 by cupy")


def test_a_program_without_convolutions_has_no_layout_to_speak_of():
    assert layout(fx.futurize(lambda x: np.tanh(x).sum()), (drawn(4, 5),)) == ""
