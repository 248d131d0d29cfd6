"""Where models are looked for, and what is told about places that cannot be searched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from setup.models.gguf_facts import read_facts
from setup.models.gguf_folders import MOST_DEPTH, gguf_files
from setup.models.on_disk import find_models


def _make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")


def _found(folder: Path, notes: list[str] | None = None) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in gguf_files([folder], (notes if notes is not None else []).append)
    ]


def test_files_come_in_the_order_of_names(tmp_path: Path) -> None:
    _make(tmp_path, "b.gguf", "a.gguf", "c/d.gguf", "B/e.GGUF", "x.gguf.part", "x.bin", "y.part")
    assert _found(tmp_path) == ["a.gguf", "b.gguf", "x.gguf.part", "B/e.GGUF", "c/d.gguf"]


def test_hidden_folders_are_left_out_unless_named(tmp_path: Path) -> None:
    _make(tmp_path, ".cache/a.gguf", ".git/b.gguf")
    assert _found(tmp_path) == []
    assert _found(tmp_path / ".cache") == ["a.gguf"]


def test_the_depth_is_bounded_and_said(tmp_path: Path) -> None:
    """A hub's cache is five deep: hub/models--o--m/snapshots/REVISION/FOLDER/FILE."""
    deep = "/".join("123456")
    assert MOST_DEPTH == 6
    _make(tmp_path, f"{deep}/a.gguf", f"{deep}/7/b.gguf")
    notes: list[str] = []
    assert _found(tmp_path, notes) == [f"{deep}/a.gguf"]
    assert len(notes) == 1
    assert "6 deep is the limit" in notes[0]


def test_links_in_a_ring_end(tmp_path: Path) -> None:
    _make(tmp_path, "a/b/m.gguf")
    (tmp_path / "a/b/up").symlink_to(tmp_path)
    (tmp_path / "a/self").symlink_to("self")
    assert _found(tmp_path) == ["a/b/m.gguf"]


def test_a_folder_named_twice_is_searched_once(tmp_path: Path) -> None:
    _make(tmp_path, "a/m.gguf")
    (tmp_path / "link").symlink_to("a")
    folders = [tmp_path / "a", tmp_path, tmp_path / "link", tmp_path / "a"]
    assert list(gguf_files(folders, print)) == [tmp_path / "a/m.gguf"]


def test_a_model_that_links_reach_twice_is_there_once(tmp_path: Path) -> None:
    """As in a hub's cache, where two revisions have the same file."""
    _make(tmp_path, "blobs/123")
    for revision in ("r1", "r2"):
        (tmp_path / revision).mkdir()
        (tmp_path / revision / "m.gguf").symlink_to("../blobs/123")
    (found,) = find_models([tmp_path])
    assert found.path == tmp_path / "r1/m.gguf"


def test_broken_links_pipes_and_folders_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "gone.gguf").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    _make(tmp_path, "folder.gguf/m.gguf")
    assert _found(tmp_path) == ["folder.gguf/m.gguf"]


def test_a_file_may_be_named(tmp_path: Path) -> None:
    _make(tmp_path, "m.gguf")
    assert list(gguf_files([tmp_path / "m.gguf"], print)) == [tmp_path / "m.gguf"]


@pytest.mark.parametrize(("name", "words"), [("no", "does not exist"), ("text", "is no folder")])
def test_places_of_no_use_are_said(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "text").write_text("x")
    notes: list[str] = []
    assert _found(tmp_path / name, notes) == []
    assert notes == [f"{tmp_path / name}: {words}"]


@pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to root")
def test_a_closed_folder_is_said(tmp_path: Path) -> None:
    _make(tmp_path, "closed/m.gguf", "open/n.gguf")
    (tmp_path / "closed").chmod(0)
    notes: list[str] = []
    try:
        assert _found(tmp_path, notes) == ["open/n.gguf"]
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert notes == [f"{tmp_path / 'closed'}: cannot be read: Permission denied"]


def test_a_file_that_went_away_is_a_fault(tmp_path: Path) -> None:
    facts = read_facts(tmp_path / "gone.gguf", 0)
    assert "cannot be read: No such file" in facts.fault
    assert facts.hint
    assert read_facts(tmp_path, 0).fault.endswith("cannot be read: Is a directory")


def test_a_folder_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a network disk does that went away, and as a closed folder does for everybody but root."""
    _make(tmp_path, "a/m.gguf", "b/n.gguf")
    real = os.scandir

    def failing(folder: Path) -> object:
        if folder.name == "a":
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(os, "scandir", failing)
    notes: list[str] = []
    assert _found(tmp_path, notes) == ["b/n.gguf"]
    assert notes == [f"{tmp_path / 'a'}: cannot be read: Permission denied"]
