"""Files that are there whole or not at all."""

import os
from pathlib import Path

import pytest

from futurex.files import cache_folder, write_aside
from futurex.kernels import store


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "file"
    for content in (b"first", b"second, longer", b""):
        write_aside(path, lambda file, content=content: file.write(content))
        assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_aside(path, fail)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("FUTUREX_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
    monkeypatch.delenv("FUTUREX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/futurex")
    for nowhere in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", nowhere)
        assert cache_folder() == Path.home() / ".cache" / "futurex"


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for name in ("FUTUREX_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(OSError, match="Not a directory"):
        (cache_folder() / "file").read_bytes()
    store.write("0" * 64, b"code")
    assert store.read("0" * 64) is None
    assert store.usage().files == 0


def test_code_that_does_not_fit_on_the_disk_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    store.write("0" * 64, b"code")
    assert store.usage().files == 0


def test_who_begins_to_write_looks_at_all_of_the_store_only_if_nobody_did_lately(monkeypatch, tmp_path):
    monkeypatch.setenv("FUTUREX_CACHE", str(tmp_path))
    monkeypatch.setenv("FUTUREX_CACHE_MB", "1")

    def written_by_a_new_process(key, size):
        store._written.cache_clear()
        store.write(key * 64, bytes(size))
        return store.usage().files

    assert written_by_a_new_process("0", 10) == 1
    for path in store.folder().iterdir():
        path.write_bytes(bytes(2_000_000))
    assert written_by_a_new_process("1", 10) == 2
    mark = store._mark(store.folder())
    os.utime(mark, (0, 0))
    assert written_by_a_new_process("2", 10) == 2  # the large one is gone
    mark.unlink()
    assert written_by_a_new_process("3", 1_100_000) == 0
    assert mark.exists()
