"""Models in several files: found from any of them, joined, and refused where they do not fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf.reader import open_gguf
from engine.gguf.types import quant_type
from engine.gguf.writer import TensorData, write_gguf, write_shards

METADATA = {"general.architecture": "qwen4exp", "list": [1, 2, 3], "names": ["a", "b"]}


def tensor(value: float) -> TensorData:
    return quant_type("F32"), (2, 4), np.full(8, value, np.float32).view(np.uint8)


def three_shards(folder: Path, metadata: Mapping[str, Any] = METADATA) -> tuple[Path, ...]:
    shards = [{"a": tensor(1)}, {"b": tensor(2), "c": tensor(3)}, {"d": tensor(4)}]
    folder.mkdir(exist_ok=True)
    return write_shards(folder / "m.gguf", metadata, shards)


def refused(path: Path, *words: str) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    for word in words:
        assert word in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_shard_opens_the_whole_model(tmp_path: Path, number: int) -> None:
    paths = three_shards(tmp_path)
    with open_gguf(paths[number]) as model:
        assert model.path == paths[number]
        assert model.paths == paths
        assert {name: info.shard for name, info in model.tensors.items()} == {
            "a": 0,
            "b": 1,
            "c": 1,
            "d": 2,
        }
        for value, name in enumerate("abcd", 1):
            assert (model.float32(name) == value).all()
        assert model.metadata["general.architecture"] == "qwen4exp"
        assert model.metadata["split.no"] == 0


@pytest.mark.parametrize("metadata_only", [False, True])
def test_shards_of_the_package(tmp_path: Path, metadata_only: bool) -> None:
    writer = gguf.GGUFWriter(
        tmp_path / "p.gguf", "qwen4exp", split_max_tensors=2, small_first_shard=metadata_only
    )
    values = np.random.default_rng(0).standard_normal((5, 3, 32)).astype(np.float32)
    for index, value in enumerate(values):
        writer.add_tensor(f"t{index}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.glob("p-*.gguf"))
    assert len(paths) == (4 if metadata_only else 3)
    with open_gguf(paths[-1]) as model:
        assert model.paths == tuple(paths)
        assert {info.shard for info in model.tensors.values()} == set(
            range(metadata_only, len(paths))
        )
        for index, value in enumerate(values):
            assert np.array_equal(model.float32(f"t{index}"), value)


def test_links_into_a_cache_keep_their_names(tmp_path: Path) -> None:
    paths = three_shards(tmp_path / "real")
    links = tmp_path / "links"
    links.mkdir()
    for index, path in enumerate(paths):
        blob = path.rename(path.with_name(f"blob{index}"))
        (links / path.name).symlink_to(blob)
    with open_gguf(links / paths[2].name) as model:
        assert len(model.tensors) == 4


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_shard_is_named(tmp_path: Path, number: int) -> None:
    paths = three_shards(tmp_path)
    paths[number].unlink()
    for asked in set(paths) - {paths[number]}:
        refused(asked, str(paths[number]), f"shard {number + 1} of 3 is missing")


def test_duplicates_are_refused(tmp_path: Path) -> None:
    paths = write_shards(tmp_path / "m.gguf", {}, [{"a": tensor(1)}, {"a": tensor(1)}])
    refused(paths[0], paths[1].name, "'a'", paths[0].name)


def other_tensors(folder: Path) -> None:
    write_shards(folder / "m.gguf", {}, [{"a": tensor(1)}, {"x": tensor(2)}, {"d": tensor(4)}])


def other_count(folder: Path) -> None:
    three_shards(folder)
    shutil.copy(
        write_shards(folder / "n.gguf", {}, [{}, {"b": tensor(1)}])[1],
        folder / "m-00002-of-00003.gguf",
    )


def other_number(folder: Path) -> None:
    paths = three_shards(folder)
    shutil.copy(paths[2], paths[1])


def other_file(folder: Path) -> None:
    three_shards(folder)
    wrong = {**METADATA, "list": [1, 2, 4], "split.no": 1, "split.count": 3}
    write_gguf(folder / "m-00002-of-00003.gguf", wrong, {"b": tensor(2), "c": tensor(3)})


@pytest.mark.parametrize("make", [other_tensors, other_count, other_number, other_file])
def test_a_shard_of_another_model_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.mkdir()
    make(bad)
    paths = three_shards(good)
    shutil.copy(bad / paths[1].name, paths[1])
    error = refused(paths[0], "m-0000")
    assert "split" in error.message or "another model" in error.message


def test_shards_that_repeat_the_metadata_are_fine(tmp_path: Path) -> None:
    for index in range(2):
        numbers = {"split.no": index, "split.count": 2, "x": float("nan")}
        path = tmp_path / f"m-0000{index + 1}-of-00002.gguf"
        write_gguf(path, {**METADATA, **numbers}, {f"t{index}": tensor(index)})
    with open_gguf(path) as model:
        assert set(model.tensors) == {"t0", "t1"}


def test_a_renamed_shard_is_refused(tmp_path: Path) -> None:
    paths = three_shards(tmp_path)
    renamed = paths[1].rename(tmp_path / "model.gguf")
    refused(renamed, "split.count is 3", "file 0 (from 0) of 1")


@pytest.mark.parametrize("name", ["m-00004-of-00003.gguf", "m-00000-of-00003.gguf"])
def test_impossible_numbers_are_refused(tmp_path: Path, name: str) -> None:
    paths = three_shards(tmp_path)
    refused(paths[0].rename(tmp_path / name), name, "of 3")


def test_a_name_without_split_keys_is_taken_at_its_word(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m-00001-of-00002.gguf", METADATA, {"a": tensor(1)})
    write_gguf(tmp_path / "m-00002-of-00002.gguf", {}, {"b": tensor(2)})
    with open_gguf(tmp_path / "m-00001-of-00002.gguf") as model:
        assert set(model.tensors) == {"a", "b"}
