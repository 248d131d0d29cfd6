"""Reading a JSON file: nothing hangs, nothing is read without end, every refusal has a hint."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from engine.errors import ConfigError
from setup.config.text import LARGEST_BYTES, read_json

VALUES = {"model": "m.gguf", "aliases": ["grüße", "\U0001f642"]}


def _refusal(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_json(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["strata-x.json", "with a blank.json", "größe-模型.json"])
def test_reads_utf8_with_and_without_a_mark(
    tmp_path: Path, mark: bytes, newline: str, name: str
) -> None:
    text = json.dumps(VALUES, indent=1, ensure_ascii=False).replace("\n", newline)
    (tmp_path / name).write_bytes(mark + text.encode())
    assert read_json(tmp_path / name) == VALUES


@pytest.mark.parametrize(
    ("content", "part", "hint"),
    [
        (b'{\n "port": 1,\n "x" 2}', "line 3, column 6: a colon is missing", '"x":'),
        (b'\xef\xbb\xbf{"x": 1,}', "line 1, column 8: a comma stands before", "remove"),
        (b"[1]", "holds [1], not an object", "strata setup"),
        (b'"secret"', 'holds "secret", not an object', "strata setup"),
        (b'{"x": "\xff"}', "line 1, column 8: byte 0xff is not UTF-8", "UTF-8"),
        ('{\n "ü": "é'.encode() + b"\xe9", "line 2, column 9: byte 0xe9", "UTF-8"),
        (b"\xef\xbb\xbf\n\xc3", "line 2, column 1: byte 0xc3", "UTF-8"),
        (b"", "line 1, column 1: the file is empty", "model"),
        (b"\xef\xbb\xbf", "line 1, column 1: the file is empty", "model"),
        (b"[" * 100_000, "column 101: nested too deep", "flatten"),
        ('{"x": 1}'.encode("utf-16"), "is UTF-16 text, not UTF-8", "UTF-8"),
        ('{"x": 1}'.encode("utf-16-le"), "is UTF-16 text, not UTF-8", "UTF-8"),
        ('{"x": 1}'.encode("utf-16-be"), "is UTF-16 text, not UTF-8", "UTF-8"),
        (b"GGUF\x03\0\0\0\xff\xff", "line 1, column 9: byte 0xff is not UTF-8", "UTF-8"),
    ],
)
def test_what_is_not_json_is_located(tmp_path: Path, content: bytes, part: str, hint: str) -> None:
    path = tmp_path / "strata-x.json"
    path.write_bytes(content)
    refusal = _refusal(path)
    assert part in refusal.message
    assert hint in refusal.hint


def test_a_file_may_have_a_mebibyte_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "strata-x.json"
    path.write_text('{"x": "' + "a" * (LARGEST_BYTES - 9) + '"}')
    assert path.stat().st_size == LARGEST_BYTES
    assert len(read_json(path)["x"]) == LARGEST_BYTES - 9
    path.write_text('{"x": "' + "a" * (LARGEST_BYTES - 8) + '"}')
    assert "more than 1048576 bytes" in _refusal(path).message


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe, folder, gone = tmp_path / "pipe", tmp_path / "folder", tmp_path / "gone"
    os.mkfifo(pipe)
    folder.mkdir()
    address = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        assert "is a pipe" in _refusal(pipe).message
        assert "is a folder" in _refusal(folder).message
        assert "is a socket" in _refusal(address).message
    assert "is a device" in _refusal(Path("/dev/zero")).message
    missing = _refusal(gone)
    assert "cannot be read: No such file" in missing.message
    assert "strata setup" in missing.hint


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    loop, broken = tmp_path / "loop", tmp_path / "broken"
    loop.symlink_to(loop)
    broken.symlink_to(tmp_path / "none")
    assert "cannot be read" in _refusal(loop).message
    assert "cannot be read" in _refusal(broken).message
    assert "cannot be read" in _refusal(Path("a\0b")).message
