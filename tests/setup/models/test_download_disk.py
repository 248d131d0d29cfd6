"""What stands on the disk before, during and after a download."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ConfigError
from setup.models.download import plan_download
from setup.models.hub.lock import lock_path, locked
from setup.models.hub.marks import mark_path
from setup.models.hub.part_file import notes_path, part_path
from tests.setup.hub_case import FIRST, SECOND, Case, content, model_row, running
from tests.setup.hub_server import Fault, sha256


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with running(tmp_path / "mödels of mine") as made:
        yield made


def _put(case: Case, name: str, data: bytes) -> Path:
    path = case.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _cut(case: Case, at: int) -> Path:
    """A `.part` of the first shard with so many bytes."""
    limits, case.limits = case.limits, replace(case.limits, attempts=1)
    case.hub.faults = [Fault(cut=at)]
    case.refused("the connection failed")
    case.limits = limits
    case.hub.asked.clear()
    case.notes.clear()
    return part_path(case.folder / FIRST)


def test_too_little_room_is_told_before_a_byte(case: Case) -> None:
    """301,000 to get and 1 GB to stay free; one byte less than that."""
    case.free = 1_000_300_999
    error = case.refused("301.0 kB", "1.0 GB stay free", "the disk has 1.0 GB")
    assert "free 1 bytes" in error.hint
    assert case.hub.bytes_asked(FIRST) == []
    case.free = 1_000_301_000
    case.run()


def test_what_is_there_needs_no_room(case: Case) -> None:
    """1,000 bytes of the second shard and 100,000 of the first: 200,000 are left."""
    _put(case, SECOND, case.hub.files[SECOND])
    _cut(case, 100_000)
    assert plan_download(case.row, case.folder) == 200_000
    case.free = 1_000_199_999
    case.refused("200.0 kB are still")
    case.free = 1_000_200_000
    case.run()
    case.assert_whole()


def test_a_whole_model_needs_no_room(case: Case) -> None:
    for name in (FIRST, SECOND):
        _put(case, name, case.hub.files[name])
    case.free = 0
    assert plan_download(case.row, case.folder) == 0
    case.run()
    case.assert_whole()
    assert len(case.notes) == 2
    assert "its SHA-256 is checked" in case.notes[0]
    assert case.hub.bytes_asked(FIRST) == []


def test_shards_beside_each_other_are_completed_there(case: Case) -> None:
    """The repository has them in a folder of its own; the user's copy has not."""
    first = _put(case, Path(FIRST).name, case.hub.files[FIRST])
    assert plan_download(case.row, case.folder) == 1_000
    assert case.run() == first
    assert (case.folder / Path(SECOND).name).read_bytes() == case.hub.files[SECOND]
    assert not (case.folder / "IQ3_S").exists()
    assert case.hub.bytes_asked(FIRST) == []


def test_files_of_one_name_stay_in_their_folders(case: Case) -> None:
    case.hub.files = {f"{folder}/m.gguf": content(3, 100) for folder in "ab"}
    case.row = model_row(case.hub.files)
    _put(case, "m.gguf", b"another model")
    case.run()
    assert (case.folder / "b/m.gguf").read_bytes() == content(3, 100)


def test_the_plan_of_an_empty_folder_is_everything(case: Case) -> None:
    assert plan_download(case.row, case.folder) == 301_000


@pytest.mark.parametrize("data", [content(8, 300_000), b"", content(1, 300_001)])
def test_a_file_of_the_users_is_not_overwritten(case: Case, data: bytes) -> None:
    path = _put(case, FIRST, data)
    error = case.refused(str(path))
    assert "move it away" in error.hint
    assert path.read_bytes() == data


def test_a_folder_in_the_way_is_an_error(case: Case) -> None:
    (case.folder / FIRST).mkdir(parents=True)
    case.refused("stands where the model file belongs")


@pytest.mark.parametrize("now", [content(8, 300_000), content(8, 5)])
def test_our_file_of_another_version_is_replaced(case: Case, now: bytes) -> None:
    """The mark tells that a download made it: by another SHA-256, or by a lost end."""
    path = _put(case, FIRST, now)
    mark_path(path).write_text(f"{sha256(content(8, 300_000))}  {path.name}\n")
    case.run()
    case.assert_whole()
    assert "another version or damaged" in case.notes[0]
    assert len(case.notes) == 1


def test_our_file_that_lost_its_end_is_replaced(case: Case) -> None:
    case.run()
    with (case.folder / FIRST).open("r+b") as file:
        file.truncate(10)
    case.run()
    case.assert_whole()


@pytest.mark.parametrize("mark", ["", "abc", "\0" * 70, "0" * 64 + "x"])
def test_a_broken_mark_is_none(case: Case, mark: str) -> None:
    path = _put(case, FIRST, case.hub.files[FIRST])
    mark_path(path).write_text(mark)
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == []


@pytest.mark.parametrize(
    "notes",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"sha256": 5}',
        json.dumps({"sha256": "0" * 64, "size_bytes": 300_000, "validator": ""}),
        json.dumps({"sha256": "", "size_bytes": 300_000, "validator": 5}),
        json.dumps({"sha256": "", "size_bytes": 300_000, "validator": "a\r\nX-Evil: 1"}),
    ],
)
def test_a_part_of_unknown_origin_is_not_continued(case: Case, notes: str) -> None:
    part = _cut(case, 1_000)
    part.write_bytes(b"x" * 1_000)
    notes_path(case.folder / FIRST).write_text(notes)
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None]


def test_a_part_without_notes_is_not_continued(case: Case) -> None:
    _cut(case, 1_000)
    notes_path(case.folder / FIRST).unlink()
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None]


def test_a_part_longer_than_the_file_is_not_continued(case: Case) -> None:
    part = _cut(case, 1_000)
    part.write_bytes(bytes(300_001))
    case.run()
    case.assert_whole()


def test_a_whole_part_needs_no_request(case: Case) -> None:
    """Stopped between the last byte and the new name."""
    part = _cut(case, 1_000)
    part.write_bytes(case.hub.files[FIRST])
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == []


def test_a_part_with_damaged_bytes_is_found_at_the_end(case: Case) -> None:
    part = _cut(case, 1_000)
    part.write_bytes(b"x" * 1_000)
    case.refused("received with the SHA-256", "deleted")
    assert case.there() == {}
    case.run()
    case.assert_whole()


def test_without_an_etag_the_catalogues_hash_decides(case: Case) -> None:
    case.hub.lfs = case.hub.etags = False
    _cut(case, 1_000)
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [1_000]


@pytest.mark.parametrize("head", [b"", b"GGU", b"<htm", b"\x1b[2J"])
def test_what_does_not_begin_as_a_model_is_not_started(case: Case, head: bytes) -> None:
    """A file that was changed after its download has its mark still, and often its size."""
    case.run()
    path = case.folder / SECOND
    path.write_bytes(head + bytes(1_000 - len(head)))
    error = case.refused(str(path), "not a GGUF file")
    assert "m-00002-of-00002.gguf.sha256" in error.hint
    assert "\x1b" not in error.message


def test_two_setups_do_not_write_the_same_file(case: Case) -> None:
    with locked(case.folder / SECOND):
        error = case.refused("m-00002-of-00002.gguf", f"process {os.getpid()}")
        assert "wait" in error.hint
        assert case.hub.bytes_asked(FIRST) == []
        assert not lock_path(case.folder / FIRST).exists()
    case.run()
    case.assert_whole()


def test_the_lock_of_a_dead_setup_holds_nobody_up(case: Case) -> None:
    _put(case, FIRST + ".part.lock", b"4194305")
    case.run()
    case.assert_whole()


def test_a_lock_that_was_deleted_is_no_lock(tmp_path: Path) -> None:
    """A third setup makes a new file at the path: the one who holds the old file goes on alone."""
    target = tmp_path / "m.gguf"
    with locked(target):
        lock_path(target).unlink()
        with locked(target), pytest.raises(ConfigError, match="another setup"), locked(target):
            pass


def test_a_full_disk_in_the_middle_keeps_the_part(case: Case) -> None:
    def full(done: int) -> None:
        if done > 50_000:
            raise OSError(28, "No space left on device", str(case.folder))

    case.on_bytes = full
    error = case.refused(str(case.folder), "No space left")
    assert "free some room" in error.hint
    assert part_path(case.folder / FIRST).stat().st_size > 50_000


def test_a_folder_that_is_a_file_is_told(case: Case) -> None:
    case.folder.write_text("not a folder")
    case.refused("Not a directory")


@pytest.mark.parametrize(
    "name",
    [
        "../m.gguf",
        "a/../../m.gguf",
        "/etc/m.gguf",
        "//host/m.gguf",
        "a//m.gguf",
        "./m.gguf",
        "..",
        "",
        "a/",
        "C:\\m.gguf",
        "C:m.gguf",
        "a\\..\\m.gguf",
        "m\0.gguf",
        "m\n.gguf",
        "m\x1b[2J.gguf",
        "x" * 201,
    ],
)
def test_no_name_leads_out_of_the_folder(case: Case, name: str) -> None:
    file = replace(case.row.files[0], path=name)
    case.row = replace(case.row, files=(file,))
    case.refused("file name", "cannot be stored")
    assert case.hub.asked == []
    assert not case.folder.exists()


@pytest.mark.parametrize("name", ["a model (1) é.gguf", "...gguf", "a/b/c/d.gguf", "q%2e#?.gguf"])
def test_odd_names_are_fine(case: Case, name: str) -> None:
    """The last one is not: a question mark cannot be stored everywhere."""
    case.hub.files[name] = case.hub.files[FIRST]
    case.row = replace(case.row, files=(replace(case.row.files[0], path=name),))
    if "?" in name:
        case.refused("cannot be stored")
        return
    case.run()
    case.assert_whole()
