"""Bad files: each gives a clear error of ours, quickly and without a large allocation."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf.reader import open_gguf
from engine.gguf.types import quant_type
from engine.gguf.writer import write_gguf

FUZZ = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
HUGE = 2**64 - 1


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", kind) + value


def array(kind: int, count: int, elements: bytes = b"") -> bytes:
    return key("list", 9, struct.pack("<IQ", kind, count) + elements)


def entry(name: str = "t", ne: tuple[int, ...] = (32,), kind: int = 8, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, offset)


def file_of(
    keys: tuple[bytes, ...] = (),
    entries: tuple[bytes, ...] = (),
    data: int = 0,
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A GGUF file by hand: `data` zero bytes follow the padded header."""
    tensors, pairs = counts or (len(entries), len(keys))
    head = struct.pack("<4sIQQ", b"GGUF", version, tensors, pairs)
    head += b"".join(keys) + b"".join(entries)
    return head + bytes(-len(head) % 32 + data)


def small_file(folder: Path) -> bytes:
    path = folder / "valid.gguf"
    metadata = {
        "general.architecture": "qwen4exp",
        "general.alignment": 32,
        "tokens": ["a", "ž", "馬"],
        "types": np.arange(3, dtype=np.int32),
        "flags": [True, False],
        "nested": [["x"], ["y"]],
        "ratio": 0.5,
    }
    tensors = {
        "norm": (quant_type("F32"), (4,), np.ones(4, np.float32).view(np.uint8)),
        "experts": (quant_type("Q8_0"), (2, 3, 32), np.zeros(2 * 3 * 34, np.uint8)),
    }
    write_gguf(path, metadata, tensors)
    return path.read_bytes()


def opened(folder: Path, content: bytes) -> ModelFileError | None:
    """What opening `content` raises; None where it opens. Every tensor of what opens is read."""
    path = folder / "bad.gguf"
    path.write_bytes(content)
    found = None
    try:
        with open_gguf(path) as model:
            for name in model.tensors:
                model.raw(name).sum()
    except ModelFileError as error:
        found = error
    assert found is None or str(path) in found.message
    return found


def refused(folder: Path, content: bytes, *words: str) -> ModelFileError:
    error = opened(folder, content)
    assert error is not None
    assert error.hint
    for word in words:
        assert word in error.message, error.message
    return error


def test_the_hand_made_file_is_valid(tmp_path: Path) -> None:
    content = file_of((key("k", 4, bytes(4)),), (entry(),), data=34)
    assert opened(tmp_path, content) is None


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"hello, this is text", ".gguf"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"PK\x03\x04 and so on", "PyTorch"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"FUGG\x00\x00\x00\x03", "little-endian"),
        (b"GG", ".gguf"),
    ],
)
def test_other_files_are_recognised(tmp_path: Path, content: bytes, hint: str) -> None:
    assert hint in refused(tmp_path, content, "not a GGUF file").hint


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    for name in (
        "absent.gguf",
        "",
        "empty.gguf",
        "loop.gguf",
        "a\0b",
        "x" * 5000,
        f"{'x' * 5000}-00001-of-00002.gguf",
    ):
        with pytest.raises(ModelFileError) as caught:
            open_gguf(f"{tmp_path}/{name}")
        assert str(tmp_path) in caught.value.message
        assert caught.value.hint


@pytest.mark.parametrize("version", [0, 1, 4, 2**31])
def test_unsupported_versions(tmp_path: Path, version: int) -> None:
    error = refused(tmp_path, file_of(version=version), str(version), "2 and 3")
    assert isinstance(error, UnsupportedModelError)


def test_version_2_opens(tmp_path: Path) -> None:
    assert opened(tmp_path, file_of(version=2)) is None


def test_big_endian_files_are_named_so(tmp_path: Path) -> None:
    content = struct.pack(">4sIQQ", b"GGUF", 3, 0, 0)
    assert isinstance(refused(tmp_path, content, "big-endian"), UnsupportedModelError)


@pytest.mark.parametrize("count", [HUGE, 2**63, 2**32, 10_000])
@pytest.mark.parametrize(
    "make",
    [
        lambda count: file_of(counts=(count, 0)),
        lambda count: file_of(counts=(0, count)),
        lambda count: file_of((string("k")[8:].rjust(8, b"\0"),), counts=(0, count)),
        lambda count: file_of((struct.pack("<Q", count),), counts=(0, 1)),
        lambda count: file_of((key("k", 8, struct.pack("<Q", count)),)),
        *(lambda count, kind=kind: file_of((array(kind, count),)) for kind in range(13)),
    ],
)
def test_absurd_counts_allocate_nothing(tmp_path: Path, make: object, count: int) -> None:
    tracemalloc.start()
    start = time.process_time()
    try:
        refused(tmp_path, make(count))  # type: ignore[operator]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    ("entries", "data", "words"),
    [
        ((entry(kind=42, ne=(64,)),), 17, ("'t'", "the file has")),
        ((entry(offset=32),), 34, ("'t'", "the file has")),
        ((entry(offset=2**63),), 34, ("'t'", "the file has")),
        ((entry(ne=(2**62, 2**62)),), 34, ("'t'", "the file has")),
        ((entry(offset=1),), 99, ("misaligned", "1", "32")),
        ((entry(), entry()), 99, ("'t'", "twice")),
        ((entry("a"), entry("b")), 99, ("'b'", "'a'")),
        ((entry(ne=(33,)),), 99, ("'t'", "[33]", "32")),
        ((entry(ne=(32, 0)),), 99, ("'t'", "[0, 32]")),
        ((entry(ne=(32,) * 5),), 99, ("'t'", "5 dimensions")),
    ],
)
def test_tensors_that_do_not_fit(
    tmp_path: Path, entries: tuple[bytes, ...], data: int, words: tuple[str, ...]
) -> None:
    refused(tmp_path, file_of((), entries, data), *words)


@pytest.mark.parametrize("kind", [4, 5, 31, 41, 43, 144, 2**32 - 1])
def test_unknown_tensor_types_are_named(tmp_path: Path, kind: int) -> None:
    error = refused(tmp_path, file_of((), (entry(kind=kind),), 99), "'t'", str(kind))
    assert isinstance(error, UnsupportedModelError)


@pytest.mark.parametrize(
    ("pair", "word"),
    [
        (key("general.alignment", 4, struct.pack("<I", 0)), "general.alignment is 0"),
        (key("general.alignment", 4, struct.pack("<I", 48)), "general.alignment is 48"),
        (key("general.alignment", 4, struct.pack("<I", 1 << 31)), "general.alignment"),
        (key("general.alignment", 8, string("32")), "general.alignment is '32'"),
        (key("general.alignment", 9, struct.pack("<IQ", 4, 2) + bytes(8)), "general.alignment"),
        (key("split.count", 9, struct.pack("<IQ", 4, 2) + bytes(8)), "split.count"),
        (key("split.no", 8, string("x")), "split.no is 'x'"),
        (key("k" * 70_000, 0, b"\0"), "65535"),
        (key("k", 7, b"\x02"), "bool 2"),
        (array(7, 2, b"\x01\x03"), "bool 3"),
        (key("k", 13, bytes(8)), "type 13"),
        (array(13, 1, bytes(8)), "type 13"),
        (key("k", 8, struct.pack("<Q", 2) + b"\xff\xfe"), "UTF-8"),
        (array(8, 1, struct.pack("<Q", 2) + b"\xff\xfe"), "UTF-8"),
        (array(9, 1, struct.pack("<IQ", 9, 1) * 20), "nests arrays"),
    ],
)
def test_metadata_that_makes_no_sense(tmp_path: Path, pair: bytes, word: str) -> None:
    refused(tmp_path, file_of((pair,)), word)


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    refused(tmp_path, file_of((key("k", 0, b"\0"), key("k", 0, b"\0"))), "'k'", "twice")


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    content = small_file(tmp_path)
    # Only the padding after the last tensor may be missing.
    for length in range(len(content) - 20):
        error = opened(tmp_path, content[:length])
        assert error is not None, length
        assert error.hint


@FUZZ
@given(content=st.binary(max_size=300), magic=st.booleans())
def test_random_bytes(tmp_path: Path, content: bytes, magic: bool) -> None:
    head = struct.pack("<4sI", b"GGUF", 3) if magic else b""
    opened(tmp_path, head + content)


@FUZZ
@given(data=st.data())
def test_mutated_files(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(small_file(tmp_path))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 9))
        width = data.draw(st.sampled_from([1, 4, 8]))
        number = data.draw(
            st.sampled_from([0, 1, 0x7F, 0xFF, HUGE, 2**63, 2**31]) | st.integers(0, HUGE)
        )
        content[at : at + width] = (number % 256**width).to_bytes(width, "little")
    tracemalloc.start()
    try:
        opened(tmp_path, bytes(content))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@FUZZ
@given(data=st.data())
def test_files_with_parts_cut_or_doubled(tmp_path: Path, data: st.DataObject) -> None:
    content = small_file(tmp_path)
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    times = data.draw(st.sampled_from([0, 2, 3]))
    opened(tmp_path, content[:start] + content[start:end] * times + content[end:])
