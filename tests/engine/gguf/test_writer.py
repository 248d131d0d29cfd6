"""The writer, read back by our reader and by the `gguf` package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.gguf.reader import open_gguf
from engine.gguf.types import QUANT_TYPES, quant_type
from engine.gguf.writer import TensorData, write_gguf, write_shards
from tests.engine.gguf.blocks import HALVES, random_blocks

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "?")
ARRAYS = st.builds(
    lambda dtype, raw: (
        np.frombuffer(raw, np.uint8).view("?" if dtype == "?" else "u1").astype(dtype)
    ),
    st.sampled_from(DTYPES[:-1]),
    st.binary(max_size=12),
)
VALUES = st.one_of(
    TEXT,
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(width=32),
    st.lists(TEXT, max_size=5),
    ARRAYS,
    st.lists(ARRAYS, min_size=1, max_size=3),
    st.lists(st.lists(TEXT, max_size=3), min_size=1, max_size=3),
)


def plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.tobytes())
    if isinstance(value, list):
        return [plain(element) for element in value]
    return repr(value)


def all_types() -> dict[str, TensorData]:
    random = np.random.default_rng(0)
    tensors: dict[str, TensorData] = {}
    for name in HALVES:
        kind = quant_type(name)
        raw = random_blocks(kind, (2, 3), 1, random)
        tensors[name] = (kind, (2, 3, kind.block_elements), raw)
    for kind in QUANT_TYPES.values():
        if kind.block_elements == 1:
            raw = random.integers(0, 256, 5 * kind.block_bytes, np.uint8)
            tensors[kind.name] = (kind, (5,), raw)
    return tensors


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(metadata=st.dictionaries(TEXT, VALUES, max_size=5))
def test_metadata_comes_back(tmp_path: Path, metadata: dict[str, object]) -> None:
    path = tmp_path / "metadata.gguf"
    metadata.pop("general.alignment", None)
    write_gguf(path, metadata, {})
    with open_gguf(path) as model:
        assert list(model.metadata) == list(metadata)
        for key, value in metadata.items():
            assert plain(model.metadata[key]) == plain(value)


@pytest.mark.parametrize("alignment", [1, 8, 32, 1024])
def test_tensors_of_every_type_come_back(tmp_path: Path, alignment: int) -> None:
    path, tensors = tmp_path / "tensors.gguf", all_types()
    write_gguf(path, {"general.alignment": alignment}, tensors)
    with open_gguf(path) as model:
        assert list(model.tensors) == list(tensors)
        for name, (kind, shape, raw) in tensors.items():
            info = model.tensors[name]
            assert (info.type, info.shape) == (kind, shape)
            assert info.offset % alignment == 0
            assert model.raw(name).tobytes() == raw.tobytes()


def test_the_package_reads_what_we_write(tmp_path: Path) -> None:
    path, tensors = tmp_path / "ours.gguf", all_types()
    del tensors["Q2_0"]
    metadata = {
        "general.architecture": "qwen4exp",
        "count": 3,
        "negative": -3,
        "ratio": 0.5,
        "yes": True,
        "list": [1, 2, 3],
        "strings": ["a", "ž"],
        "big": np.uint64(2**63),
    }
    write_gguf(path, metadata, tensors)
    reader = gguf.GGUFReader(path)
    for key, value in metadata.items():
        assert reader.fields[key].contents() == value
    assert reader.fields["count"].types == [gguf.GGUFValueType.UINT32]
    assert reader.fields["ratio"].types == [gguf.GGUFValueType.FLOAT32]
    assert {tensor.name for tensor in reader.tensors} == set(tensors)
    for tensor in reader.tensors:
        kind, shape, raw = tensors[tensor.name]
        assert tensor.tensor_type.name == kind.name
        assert tuple(int(n) for n in reversed(tensor.shape)) == shape
        assert tensor.data.tobytes() == raw.tobytes()


def test_shards_come_back(tmp_path: Path) -> None:
    tensors = all_types()
    names = list(tensors)
    shards = [{}, {n: tensors[n] for n in names[:9]}, {n: tensors[n] for n in names[9:]}]
    metadata = {"general.alignment": 64, "key": "value"}
    paths = write_shards(tmp_path / "model.gguf", metadata, shards)
    assert [path.name for path in paths] == [f"model-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    with open_gguf(paths[1]) as model:
        assert model.paths == paths
        assert model.metadata["key"] == "value"
        assert list(model.tensors) == names
        for name, (_, _, raw) in tensors.items():
            assert model.raw(name).tobytes() == raw.tobytes()


def test_bytes_must_fit_the_shape(tmp_path: Path) -> None:
    data = (quant_type("Q8_0"), (2, 64), np.zeros(100, np.uint8))
    with pytest.raises(ValueError, match="100 bytes for Q8_0"):
        write_gguf(tmp_path / "bad.gguf", {}, {"t": data})


@pytest.mark.parametrize("value", [None, {}, np.float16(1), 2**64, [1, "a"]])
def test_values_that_do_not_fit_are_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        write_gguf(tmp_path / "bad.gguf", {"key": value}, {})
