"""Human activity recognition: seven shoulder exercises seen by a smartwatch, split by person."""

import contextlib
import zipfile
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from futurex.data.dataset import Dataset, floating
from futurex.errors import require, whole_number
from futurex.files import cache_folder, write_aside

FORMAT = 1  # part of the cache's file name: raise it when the meaning of the stored arrays changes
FIELDS = ("x_train", "y_train", "x_test", "y_test", "classes")


def load_har(
    window: int = 80, step: int = 20, test_subjects: Sequence[int] = (9, 10), dtype: npt.DTypeLike = np.float32
) -> Dataset:
    """Return windows of six-channel wrist motion at 50 Hz, `(examples, window, 6)`, and the exercise done in each.

    The 140 recordings of 10 people come with the package seglearn (arXiv 1802.01489). A window lies inside one
    recording and starts `step` samples after the one before. `test_subjects` are held out as the test part. Both parts
    are standardised per channel with the mean and the deviation of the training windows. The result is kept in the
    user's cache folder, `$FUTUREX_CACHE` or `~/.cache/futurex`.

    Raises `MissingExtra` without the extra `har`, `ValueError` for a window that fits no recording or a split that
    leaves a part empty.

    >>> import futurex as fx
    >>> fx.data.load_har().x_train.shape
    (9212, 80, 6)
    """
    window, step = whole_number("window", window, 1), whole_number("step", step, 1)
    held_out = tuple(sorted({whole_number("a subject", subject) for subject in test_subjects}))
    type_ = floating(dtype)
    people = "-".join(map(str, held_out))
    cached = cache_folder() / f"har-v{FORMAT}-window{window}-step{step}-test{people}-{type_}.npz"
    try:
        with np.load(cached, allow_pickle=False) as stored:
            arrays = {field: stored[field] for field in FIELDS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # absent or damaged: made again
        arrays = _build(window, step, held_out, type_)
        with contextlib.suppress(OSError):  # a folder that cannot be written: the next program makes them again, too
            write_aside(cached, lambda file: np.savez(file, allow_pickle=False, **arrays))
    x_train, y_train, x_test, y_test, classes = (arrays[field] for field in FIELDS)
    return Dataset("har", x_train, y_train, x_test, y_test, tuple(map(str, classes)))


def windows(recording: npt.NDArray, window: int, step: int) -> npt.NDArray:
    """Return the whole windows of a `(time, channels)` recording as a `(count, window, channels)` view.

    >>> windows(np.zeros((100, 6)), window=80, step=20).shape
    (2, 80, 6)
    """
    if len(recording) < window:
        return np.empty((0, window, *recording.shape[1:]), recording.dtype)
    view = np.lib.stride_tricks.sliding_window_view(recording, window, axis=0)[::step]
    return np.moveaxis(view, -1, 1)


def _build(window: int, step: int, held_out: tuple[int, ...], dtype: np.dtype) -> dict[str, npt.NDArray]:
    recordings = require("seglearn.datasets", "har").load_watch()
    subjects = sorted({int(subject) for subject in recordings["subject"]})
    unknown = [subject for subject in held_out if subject not in subjects]
    if unknown:
        raise ValueError(f"test_subjects {unknown} are not among the subjects {subjects}")
    cut = [windows(np.asarray(recording), window, step) for recording in recordings["X"]]
    labels = [np.full(len(part), label, np.int64) for part, label in zip(cut, recordings["y"], strict=True)]
    test = [int(subject) in held_out for subject in recordings["subject"]]

    def gather(parts: Iterable[npt.NDArray], wanted: bool) -> npt.NDArray:
        chosen = [part for part, is_test in zip(parts, test, strict=True) if is_test is wanted and len(part)]
        if not chosen:
            part_name = "test" if wanted else "training"
            raise ValueError(f"no {part_name} windows: window={window}, test_subjects={held_out} of {subjects}")
        return np.concatenate(chosen)

    x_train, x_test = gather(cut, False), gather(cut, True)
    mean, deviation = x_train.mean(axis=(0, 1)), x_train.std(axis=(0, 1))
    return {
        "x_train": ((x_train - mean) / deviation).astype(dtype),
        "y_train": gather(labels, False),
        "x_test": ((x_test - mean) / deviation).astype(dtype),
        "y_test": gather(labels, True),
        "classes": np.array(recordings["y_labels"], dtype=str),
    }
