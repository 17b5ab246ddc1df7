"""The data sets, their cache, and the sampler."""

import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from futurex.data import Sampler, load_digits, load_har
from futurex.data.har import windows
from futurex.errors import MissingExtra
from futurex.training.batches import Batches


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def watch():
    return pytest.importorskip("seglearn.datasets").load_watch()


@given(length=st.integers(0, 60), window=st.integers(1, 20), step=st.integers(1, 9))
def test_windows_are_slices_of_one_recording(length, window, step):
    recording = np.arange(length * 2).reshape(length, 2)
    starts = range(0, length - window + 1, step)
    expected = [recording[start : start + window] for start in starts]
    assert windows(recording, window, step).tolist() == [part.tolist() for part in expected]


def test_har_has_the_known_shape_and_is_standardised_by_the_training_part(cache, watch):
    data = load_har()
    assert len(data.x_train) + len(data.x_test) == 11716
    assert data.x_train.shape[1:] == data.x_test.shape[1:] == (80, 6)
    assert data.x_train.dtype == data.x_test.dtype == np.float32
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    assert data.classes == ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
    assert set(data.y_train) == set(data.y_test) == set(range(7))
    np.testing.assert_allclose(data.x_train.mean(axis=(0, 1), dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(data.x_train.std(axis=(0, 1), dtype=np.float64), 1, atol=1e-5)
    assert np.abs(data.x_test.mean(axis=(0, 1))).max() > 1e-3  # its own statistics were not used


def test_har_holds_out_whole_people(cache, watch):
    data = load_har(test_subjects=(3,), dtype=np.float64)
    raw = np.concatenate([windows(x, 80, 20) for x, who in zip(watch["X"], watch["subject"], strict=True) if who == 3])
    rest = np.concatenate([windows(x, 80, 20) for x, who in zip(watch["X"], watch["subject"], strict=True) if who != 3])
    np.testing.assert_allclose(data.x_test * rest.std(axis=(0, 1)) + rest.mean(axis=(0, 1)), raw, atol=1e-8)
    assert len(data.x_train) == len(rest)


def test_har_needs_no_folder_that_can_be_written(watch, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path / "file"))
    assert load_har(step=80).x_test.shape[1:] == (80, 6)


def test_har_is_read_from_the_cache_and_a_damaged_cache_is_made_again(cache, watch, monkeypatch):
    first = load_har(step=80)
    (stored,) = cache.iterdir()
    monkeypatch.setitem(sys.modules, "seglearn.datasets", None)
    np.testing.assert_array_equal(load_har(step=80).x_test, first.x_test)  # without seglearn: from the cache
    whole = stored.read_bytes()
    stored.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MissingExtra, match=r"futurex\[har\]"):
        load_har(step=80)
    monkeypatch.undo()
    monkeypatch.setenv("FUTUREX_CACHE", str(cache))
    np.testing.assert_array_equal(load_har(step=80).x_train, first.x_train)
    assert [path.name for path in cache.iterdir()] == [stored.name]


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"window": 0}, "at least 1"),
        ({"step": 0}, "at least 1"),
        ({"window": 10_000}, "no training windows"),
        ({"test_subjects": (11,)}, "not among"),
        ({"test_subjects": ()}, "no test windows"),
        ({"test_subjects": range(1, 11)}, "no training windows"),
        ({"dtype": int}, "floating"),
    ],
)
def test_har_refuses_what_cannot_be_meant(cache, watch, bad, message):
    with pytest.raises(ValueError, match=message):
        load_har(**bad)


def test_digits_are_split_by_seed_alone():
    first, again, other = load_digits(seed=1), load_digits(seed=1), load_digits(seed=2)
    assert first.x_train.shape == (1438, 8, 8, 1)
    assert first.x_test.shape == (359, 8, 8, 1)
    assert first.x_train.min() == 0
    assert first.x_train.max() == 1
    np.testing.assert_array_equal(first.x_test, again.x_test)
    assert not np.array_equal(first.x_test, other.x_test)
    everything = np.sort(np.concatenate([first.y_train, first.y_test]))
    np.testing.assert_array_equal(everything, np.sort(np.concatenate([other.y_train, other.y_test])))


def test_digits_refuse_a_share_that_leaves_a_part_empty():
    with pytest.raises(ValueError, match="fraction"):
        load_digits(test_share=1)


def test_head_cuts_both_parts():
    data, whole = load_digits().head(400), load_digits()
    assert (len(data.x_train), len(data.y_train), len(data.x_test), len(data.y_test)) == (400, 400, 359, 359)
    np.testing.assert_array_equal(data.x_train, whole.x_train[:400])
    with pytest.raises(ValueError, match="at least 1"):
        whole.head(0)


@given(
    n=st.integers(1, 300),
    batch=st.integers(1, 64),
    size=st.integers(1, 9),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 5),
)
def test_every_sample_is_dealt_once_per_epoch_for_any_number_of_localities(n, batch, size, seed, epoch):
    sampler = Sampler(n, batch, seed)
    batches = list(sampler.epoch(epoch))
    shares = [[Sampler.share(indices, rank, size) for rank in range(size)] for indices in batches]
    assert len(batches) == len(sampler)
    assert sorted(np.concatenate([np.concatenate(parts) for parts in shares])) == list(range(n))
    for indices, parts in zip(batches, shares, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), indices)  # the global batch does not know `size`
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(n=st.integers(1, 100), batch=st.integers(1, 100))
def test_drop_last_leaves_whole_batches_only(n, batch):
    if batch > n:
        with pytest.raises(ValueError, match="no batch"):
            Sampler(n, batch, 0, drop_last=True)
    else:
        sampler = Sampler(n, batch, 0, drop_last=True)
        assert [len(indices) for indices in sampler.epoch(0)] == [batch] * len(sampler)
        assert len(sampler) == n // batch


def test_order_depends_on_seed_and_epoch_and_is_resumed_in_the_middle():
    sampler = Sampler(64, 8, seed=3)
    order = np.concatenate(list(sampler.epoch(2)))
    assert np.array_equal(order, np.concatenate(list(Sampler(64, 16, seed=3).epoch(2))))
    assert not np.array_equal(order, np.concatenate(list(sampler.epoch(3))))
    assert not np.array_equal(order, np.concatenate(list(Sampler(64, 8, seed=4).epoch(2))))
    assert np.array_equal(order[40:], np.concatenate(list(sampler.epoch(2, start=5))))


def test_an_epoch_begins_at_one_of_its_batches():
    sampler = Sampler(10, 4, seed=0)
    for number, start in ((0, -1), (-1, 0)):  # the former had a batch of nothing before the first
        with pytest.raises(ValueError, match="must be at least 0, not -1"):
            list(sampler.epoch(number, start))
    assert list(sampler.epoch(0, start=3)) == []


@pytest.mark.parametrize("share", [1e-9, 0.9999])
def test_a_part_without_digits_is_refused(share):
    pytest.importorskip("sklearn")
    with pytest.raises(ValueError, match="of 1797 digits leaves a part empty"):
        load_digits(test_share=share)


@pytest.mark.parametrize("options", [{"test_subjects": (1.7,)}, {"window": 40.5}, {"step": 2.5}])
def test_counts_and_numbers_of_people_are_whole(options, watch, cache):
    with pytest.raises(TypeError, match="must be a whole number, not"):
        load_har(**options)


@pytest.mark.parametrize("rank, size", [(-1, 2), (2, 2), (0, 0)])
def test_a_rank_outside_the_cluster_has_no_share(rank, size):
    with pytest.raises(ValueError, match="rank"):
        Sampler.share(np.arange(4), rank, size)


def _unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
    raw[:] = np.frombuffer(array.tobytes(), np.uint8)
    return raw.view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("lying", [np.asarray, np.asfortranarray, _unaligned, lambda x: np.repeat(x, 2, axis=0)[::2]])
def test_a_batch_costs_its_own_rows_however_the_data_lies(lying):
    x = np.random.default_rng(0).normal(size=(2000, 50))
    data, chosen = lying(x), np.array([1999, 3, 3, 0])
    batches = Batches([data])
    tracemalloc.start()
    try:
        [rows] = batches.gather(chosen)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(rows, x[chosen])
    assert peak < data.nbytes / 10
    assert batches.gather(chosen)[0] is rows
