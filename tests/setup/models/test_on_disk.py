"""Models in folders: what is told about whole, split, cut, damaged and unfinished ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gguf.types import quant_type
from engine.gguf.writer import TensorData, write_gguf, write_shards
from setup.models.catalogue import ModelFile
from setup.models.on_disk import FoundModel, find_models
from tests.machines import SMALL_MODEL
from tests.setup.hub_case import model_row

METADATA = {"general.architecture": "qwen4exp", "general.name": "A Model"}
NAMES = tuple(f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3))


def tensor(name: str = "F32", rows: int = 2) -> TensorData:
    kind = quant_type(name)
    raw = np.zeros(rows * kind.row_bytes(256), np.uint8)
    return kind, (rows, 256), raw


def single(path: Path, metadata: Mapping[str, Any] = METADATA) -> Path:
    """A model of 8,704 tensor bytes: 2 * 1024 of F32, 16 * 144 of Q4_K and 64 * 68 of Q8_0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_gguf(path, metadata, {"a": tensor(), "b": tensor("Q4_K", 16), "c": tensor("Q8_0", 16)})
    return path


def three_shards(folder: Path) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    shards = [{"a": tensor()}, {"b": tensor("Q4_K", 16)}, {"c": tensor("Q8_0", 16)}]
    return write_shards(folder / "m.gguf", METADATA, shards)


def only(folder: Path) -> FoundModel:
    (found,) = find_models([folder])
    return found


def test_a_whole_model(tmp_path: Path) -> None:
    """Of 2,048 + 2,304 + 4,352 = 8,704 bytes of tensors: Q8_0 50%, Q4_K 26.5%, F32 23.5%."""
    path = single(tmp_path / "x.gguf")
    found = only(tmp_path)
    assert found.path == path
    assert (found.name, found.architecture) == ("A Model", "qwen4exp")
    assert found.files == (path,)
    assert found.size_bytes == path.stat().st_size
    assert [(t.name, t.nbytes) for t in found.types] == [
        ("Q8_0", 4_352),
        ("Q4_K", 2_304),
        ("F32", 2_048),
    ]
    assert [round(t.share, 3) for t in found.types] == [0.5, 0.265, 0.235]
    assert found.complete
    assert found.state == "complete"
    assert found.row is None


def test_a_model_of_the_tests(tmp_path: Path) -> None:
    shutil.copy(SMALL_MODEL, tmp_path)
    found = only(tmp_path)
    assert found.architecture == "qwen35moe"
    assert found.types[0].name == "IQ3_S"
    assert sum(t.share for t in found.types) == pytest.approx(1)


def test_shards_are_one_model(tmp_path: Path) -> None:
    paths = three_shards(tmp_path)
    found = only(tmp_path)
    assert found.path == paths[0]
    assert found.files == paths
    assert found.size_bytes == sum(path.stat().st_size for path in paths)
    assert [t.name for t in found.types] == ["Q8_0", "Q4_K", "F32"]
    assert found.complete


@pytest.mark.parametrize("gone", [(1,), (2,), (3,), (1, 3), (1, 2)])
def test_missing_shards_are_named(tmp_path: Path, gone: tuple[int, ...]) -> None:
    paths = three_shards(tmp_path)
    for number in gone:
        paths[number - 1].unlink()
    found = only(tmp_path)
    assert found.missing == tuple(NAMES[number - 1] for number in gone)
    assert found.path == paths[0]
    assert found.state == "missing: " + ", ".join(found.missing)
    assert not found.complete
    # The first shard has the metadata.
    assert (found.name, found.architecture) == (("m", "") if 1 in gone else ("A Model", "qwen4exp"))


def test_many_missing_shards_are_counted(tmp_path: Path) -> None:
    """6 of 7 are missing: 3 named and 3 more."""
    single(tmp_path / "x-00007-of-00007.gguf")
    found = only(tmp_path)
    assert len(found.missing) == 6
    assert found.state.endswith("x-00003-of-00007.gguf and 3 more")


@pytest.mark.parametrize("lost", [1, 100, 4_352])
def test_a_file_that_lost_its_end(tmp_path: Path, lost: int) -> None:
    """The last tensor has 4,352 bytes, a multiple of 32, so that no padding follows."""
    path = single(tmp_path / "x.gguf")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - lost)
    found = only(tmp_path)
    assert f"says {size} bytes, the file has {size - lost}" in found.fault
    assert found.hint
    assert not found.complete
    # What the header tells stays told.
    assert found.architecture == "qwen4exp"
    assert [t.nbytes for t in found.types] == [4_352, 2_304, 2_048]


def test_a_shard_that_lost_its_end_is_named(tmp_path: Path) -> None:
    paths = three_shards(tmp_path)
    os.truncate(paths[1], paths[1].stat().st_size - 1)
    found = only(tmp_path)
    assert NAMES[1] in found.fault
    assert found.state == found.fault


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"GGUF", "ends inside its header"),
        (b"GGUF" + bytes(20), "GGUF version 0"),
        (b"PK\x03\x04" + bytes(50), "not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1", "not a GGUF file"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 64, "ends inside its header"),
    ],
)
def test_damaged_headers(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "bad.gguf").write_bytes(data)
    found = only(tmp_path)
    assert words in found.fault
    assert found.hint
    assert (found.name, found.architecture, found.types) == ("bad", "", ())
    assert found.size_bytes == len(data)


def test_a_shard_of_another_model_is_told(tmp_path: Path) -> None:
    paths = three_shards(tmp_path)
    other = {**METADATA, "general.name": "Other", "split.no": np.uint16(1)}
    other |= {"split.count": np.uint16(3), "split.tensors.count": np.int32(3)}
    write_gguf(paths[1], other, {"b": tensor()})
    assert "belongs to another model" in only(tmp_path).fault


def test_a_renamed_shard_is_told(tmp_path: Path) -> None:
    paths = three_shards(tmp_path)
    paths[0].rename(tmp_path / "whole.gguf")
    for path in paths[1:]:
        path.unlink()
    assert "split.count" in only(tmp_path).fault


@pytest.mark.parametrize("name", ["x-00004-of-00003.gguf", "x-00000-of-00003.gguf"])
def test_a_number_that_is_no_shards(tmp_path: Path, name: str) -> None:
    single(tmp_path / name)
    assert "shards count from 1" in only(tmp_path).fault


def test_unfinished_downloads_are_shown(tmp_path: Path) -> None:
    """The third shard has 4,352 bytes of tensors; its header is there, 1,000 bytes of it all."""
    paths = three_shards(tmp_path)
    whole = paths[2].stat().st_size
    part = paths[2].rename(paths[2].with_name(NAMES[2] + ".part"))
    os.truncate(part, 1_000)
    paths[1].rename(tmp_path / "elsewhere")
    found = only(tmp_path)
    (unfinished,) = found.unfinished
    assert (unfinished.path, unfinished.size_bytes, unfinished.whole_bytes) == (part, 1_000, whole)
    assert found.missing == (NAMES[1],)
    assert found.fault == ""
    assert found.size_bytes == paths[0].stat().st_size + 1_000
    assert found.state == (
        f"{part.name}: unfinished download, 1.0 kB of {whole / 1000:.1f} kB; missing: {NAMES[1]}"
    )
    assert [t.name for t in found.types] == ["Q8_0", "F32"]


def test_a_part_alone_is_a_model_too(tmp_path: Path) -> None:
    (tmp_path / "x.gguf.part").write_bytes(b"GGUF")
    found = only(tmp_path)
    assert found.path == tmp_path / "x.gguf"
    assert found.files == ()
    assert found.state == "x.gguf.part: unfinished download, 4 bytes"


def test_a_part_beside_its_finished_file_is_an_update(tmp_path: Path) -> None:
    path = single(tmp_path / "x.gguf")
    (tmp_path / "x.gguf.part").write_bytes(b"GGUF")
    assert only(tmp_path).complete
    assert only(tmp_path).files == (path,)


def test_the_catalogues_row_is_found_by_names_and_sizes(tmp_path: Path) -> None:
    paths = three_shards(tmp_path)
    sizes = [path.stat().st_size for path in paths]
    files = tuple(
        ModelFile(path=f"Q4_K/{name}", size_bytes=size)
        for name, size in zip(NAMES, sizes, strict=True)
    )
    row, unknown = model_row(files=files), model_row(files=tuple(ModelFile(path=n) for n in NAMES))
    other = model_row(files=(ModelFile(path=NAMES[0]),))
    (found,) = find_models([tmp_path], rows=(other, row))
    assert found.row is row
    (found,) = find_models([tmp_path], rows=(unknown,))
    assert found.row is unknown
    # Another quantisation under the same names.
    larger = model_row(files=(ModelFile(path=NAMES[0], size_bytes=sizes[0] + 1), *files[1:]))
    (found,) = find_models([tmp_path], rows=(larger,))
    assert found.row is None
    # An incomplete one goes by its names.
    paths[2].unlink()
    (found,) = find_models([tmp_path], rows=(larger,))
    assert found.row is larger


def test_the_catalogue_that_comes_with_strata_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "Qwen3.6-35B-A3B-UD-IQ3_S.gguf.part").write_bytes(b"GGUF")
    row = only(tmp_path).row
    assert row is not None
    assert (row.family, row.architecture) == ("qwen36", "qwen35moe")
    assert only(tmp_path).unfinished[0].whole_bytes == row.files[0].size_bytes > 15e9


def test_names_of_strangers_cannot_steer_a_terminal(tmp_path: Path) -> None:
    single(tmp_path / "x.gguf", {**METADATA, "general.name": "\x1b[2Jhi\nthere" + "x" * 500})
    assert only(tmp_path).name.startswith("[2Jhi there")
    assert len(only(tmp_path).name) < 130


@pytest.mark.parametrize("value", [5, ["a"], "", True])
def test_a_name_that_is_no_text(tmp_path: Path, value: object) -> None:
    single(tmp_path / "x.gguf", {"general.name": value})
    assert (only(tmp_path).name, only(tmp_path).architecture) == ("x", "")


def test_a_model_without_tensors_has_no_types(tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", METADATA, {})
    assert only(tmp_path).types == ()


@given(st.binary(max_size=300), st.integers(0, 500))
@settings(max_examples=60, deadline=None)
def test_no_bytes_make_it_fail(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    path = single(folder / "x.gguf")
    data = path.read_bytes()
    path.write_bytes(data[:at] + noise + data[at + len(noise) :])
    found = only(folder)
    assert found.complete or (found.fault and found.hint)
