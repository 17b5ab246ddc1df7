"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from futurex.files import cache_folder, write_aside


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
