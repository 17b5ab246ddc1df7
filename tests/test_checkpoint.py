"""Checkpoints come back bit for bit, or are refused with the reason and the last good one."""

import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from futurex.training.checkpoint import Checkpoint, CheckpointError, latest, load, save
from futurex.training.pack import pack, unpack

Moments = namedtuple("Moments", "first second")
DTYPES = ["?", "i1", "u1", "i2", "<u2", "<i4", ">i4", "<i8", "u8", "f2", "<f4", ">f4", "<f8", "c8", "c16", "M8[s]"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
LEAVES = (
    st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), SHAPES))
    | st.sampled_from(["f4", "i8", "?", "c16"]).flatmap(lambda dtype: hnp.from_dtype(np.dtype(dtype)))
    | st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text(max_size=5)
)  # fmt: skip
KEYS = st.text(max_size=4) | st.sampled_from(["a/b", "~1", "~", "__metadata__", "0"])
TREES = st.recursive(
    LEAVES,
    lambda child: (
        st.lists(child, max_size=3)
        | st.lists(child, max_size=3).map(tuple)
        | st.dictionaries(KEYS, child, max_size=3)
        | st.dictionaries(st.integers(-3, 3), child, max_size=3)
        | st.tuples(child, child).map(Moments._make)
    ),
    max_leaves=8,
)


def same(one, other):
    """Whether two trees agree in every type, dtype, shape and bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return repr(one) == repr(other)  # tells -0.0 from 0.0, and finds NaN equal to NaN


#: Every file is forced to the disk, and a disk that is busy takes its time for 150 checkpoints.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@settings(max_examples=150)
@given(params=TREES, optimizer=TREES, step=st.integers(0, 10**7))
def test_a_checkpoint_comes_back_bit_for_bit(params, optimizer, step):
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        path = save(Path(folder) / "run", Checkpoint(step, params, optimizer, {"loss": 0.5}))
        back = load(path)
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert same(back.params, params)
    assert same(back.optimizer, optimizer)
    assert (back.step, back.metrics) == (step, {"loss": 0.5})


@given(array=hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=3)))
def test_views_are_stored_by_value(array):
    for view in (array.T, array[::-1], array[..., ::2]):
        structure, arrays = pack([view])
        assert same(unpack(structure, arrays)[0], view.copy())


def test_names_follow_the_nesting_and_restored_arrays_can_be_written():
    tree = {"dense": [{"w": np.ones(2), "b": np.ones(1, complex)}], "step": np.int64(3)}
    structure, arrays = pack(tree)
    assert list(arrays) == ["dense/0/w", "dense/0/b", "step"]
    back = unpack(structure, arrays)
    back["dense"][0]["b"][:] = 7
    assert back["dense"][0]["b"] == 7


def test_a_named_tuple_whose_class_is_gone_gets_a_stand_in():
    structure, arrays = pack(Moments(np.zeros(2), 1.0))
    structure["namedtuple"]["module"] = "gone"
    back, again = unpack(structure, arrays), unpack(structure, arrays)
    assert type(back) is type(again)
    assert (type(back).__name__, back._fields, back.second) == ("Moments", ("first", "second"), 1.0)
    structure["namedtuple"].update(module="os", name="system")
    assert type(unpack(structure, arrays)).__name__ == "system"  # not the function: nothing but named tuples is called


@pytest.mark.parametrize(
    "tree, message",
    [
        ({"w": object()}, r"tree\['w'\] is a object"),
        ([{1.5: 0}], r"tree\[0\] has the key 1.5"),
        ({"s": np.array([None])}, r"tree\['s'\] has dtype object"),
        ({0: np.zeros(1), "0": np.zeros(1)}, "both called '0'"),
    ],
)
def test_what_cannot_be_stored_is_named(tmp_path, tree, message):
    with pytest.raises(TypeError, match=message):
        save(tmp_path, Checkpoint(1, tree))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run(tmp_path):
    """A run with sound checkpoints at steps 5, 10 and 1000000."""
    for step in (10, 5, 1_000_000):
        save(
            tmp_path / "run",
            Checkpoint(step, {"w": np.arange(40.0) + step}, Moments(np.zeros(3), step), {"loss": 1 / step}),
        )
    return tmp_path / "run"


def test_latest_goes_by_number_not_by_name(run):
    assert latest(run) == run / "step-1000000"
    assert latest(run / "absent") is None
    assert latest(run / "step-000005" / "manifest.json") is None


@pytest.mark.parametrize("name", ["manifest.json", "params.safetensors", "optimizer.safetensors"])
def test_any_flipped_byte_is_refused_and_the_last_good_is_offered(run, name):
    file = run / "step-1000000" / name
    whole = file.read_bytes()
    for place in np.linspace(0, len(whole) - 1, 60).astype(int):
        damaged = bytearray(whole)
        damaged[place] ^= 0b1000101
        file.write_bytes(damaged)
        with pytest.raises(
            CheckpointError, match=rf"step-1000000 is refused: {name}.*the last good one is .*step-000010"
        ) as caught:
            load(run / "step-1000000")
        assert caught.value.last_good == run / "step-000010"
    file.write_bytes(whole)
    assert load(run / "step-1000000").step == 1_000_000


@pytest.mark.parametrize("name", ["manifest.json", "params.safetensors", "optimizer.safetensors"])
def test_a_torn_or_missing_file_is_refused(run, name):
    file = run / "step-000010" / name
    for size in (file.stat().st_size // 2, 0):
        os.truncate(file, size)
        with pytest.raises(CheckpointError, match=r"last good one is .*step-1000000"):
            load(file.parent)
    file.unlink()
    with pytest.raises(CheckpointError, match=name):
        load(file.parent)


def test_refusal_without_any_good_one_says_so_and_survives_pickling(run):
    for folder in run.iterdir():
        (folder / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"no manifest\.json.*no other good one") as caught:
        load(run / "step-000010")
    back = pickle.loads(pickle.dumps(caught.value))
    assert (str(back), back.path, back.last_good) == (str(caught.value), run / "step-000010", None)


@pytest.mark.parametrize("content", [b"{}", b"[]", b"", b"\xff\xfe", b'{"format": "other"}', b"[" * 100_000])
def test_a_foreign_folder_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        load(tmp_path)
    assert (tmp_path / "manifest.json").read_bytes() == content


def test_a_newer_format_asks_for_an_update(run):
    file = run / "step-000010" / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2}))
    with pytest.raises(CheckpointError, match="update futurex"):
        load(file.parent)


def test_nothing_is_overwritten(run):
    before = {file: file.read_bytes() for file in (run / "step-000010").iterdir()}
    same_values = Checkpoint(10, {"w": np.arange(40.0) + 10}, Moments(np.zeros(3), 10), {"loss": 2.0})
    assert save(run, same_values) == run / "step-000010"
    with pytest.raises(CheckpointError, match="nothing is overwritten"):
        save(run, Checkpoint(10, {"w": np.zeros(40)}, Moments(np.zeros(3), 10)))
    assert {file: file.read_bytes() for file in (run / "step-000010").iterdir()} == before
    assert not list(run.glob(".*"))


def test_a_damaged_one_in_the_way_is_moved_aside(run):
    for number in (1, 2):
        os.truncate(run / "step-000010" / "params.safetensors", 3)
        save(run, Checkpoint(10, {"w": np.ones(2)}))
        assert (run / f"step-000010.damaged-{number}" / "params.safetensors").stat().st_size == 3
    assert same(load(run / "step-000010").params, {"w": np.ones(2)})
    assert latest(run) == run / "step-1000000"


def test_a_writer_killed_in_the_middle_leaves_nothing_that_counts(tmp_path):
    program = f"""
import os, numpy as np
from futurex.training import checkpoint
written = []
def die(path, content, real=checkpoint._write_durably):
    real(path, content[: len(content) // 2] if written else content)
    written.append(path)
    if len(written) == 2:
        os._exit(9)
checkpoint._write_durably = die
checkpoint.save({str(tmp_path)!r}, checkpoint.Checkpoint(7, {{"w": np.zeros(9)}}, [np.zeros(4)]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=100).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    assert latest(tmp_path) is None
    save(tmp_path, Checkpoint(8, {"w": np.zeros(9)}))
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-000008"]  # what the dead one left is cleared


def test_a_disk_that_takes_no_more_is_named(tmp_path):
    script = """
import resource, sys, numpy as np
from futurex.training.checkpoint import Checkpoint, save
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    save(sys.argv[1], Checkpoint(3, {"w": np.zeros(1 << 16)}))
except OSError as error:
    print(error.filename, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    folder = tmp_path / "step-000003"
    assert done.stdout.strip() == f"{folder} [Errno 27] File too large: '{folder}'"
    assert list(tmp_path.iterdir()) == []


def test_metrics_are_plain_json(tmp_path):
    metrics = {"loss": np.float32(0.5), "curve": np.arange(3), 2: (1, math.inf)}
    assert load(save(tmp_path, Checkpoint(0, None, metrics=metrics))).metrics == {
        "loss": 0.5, "curve": [0, 1, 2], "2": [1, math.inf],
    }  # fmt: skip
    with pytest.raises(TypeError, match="metrics hold a object"):
        save(tmp_path, Checkpoint(1, None, metrics={"loss": object()}))


def test_a_negative_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="-1"):
        save(tmp_path, Checkpoint(-1, None))
