"""The reader on good files: fixtures, files of the `gguf` package, metadata of every type."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf.reader import open_gguf
from engine.gguf.types import QUANT_TYPES
from engine.gguf.writer import write_gguf
from tests.engine.gguf.blocks import random_blocks

FIXTURES = Path(__file__).parents[2] / "fixtures"
MODELS = sorted(FIXTURES.glob("*.gguf"))


def package_writer(path: Path, **split: int) -> gguf.GGUFWriter:
    return gguf.GGUFWriter(path, "qwen4exp", **split)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_fixtures_open_and_dequantise(path: Path) -> None:
    with open_gguf(path) as model:
        assert model.path == path
        assert model.paths == (path,)
        assert model.metadata["general.architecture"] in ("qwen4exp", "qwen35moe")
        assert len(model.metadata["tokenizer.ggml.tokens"]) > 500
        for name, info in model.tensors.items():
            weights = model.float32(name)
            assert weights.shape == info.shape
            assert np.isfinite(weights).all()


@pytest.mark.parametrize("stem", ["q4exp-a", "q35moe-a"])
def test_fixtures_agree_with_the_package(stem: str) -> None:
    """The package cannot open files with Q2_0; the f16 files it can."""
    path = FIXTURES / f"{stem}-f16.gguf"
    theirs = gguf.GGUFReader(path)
    with open_gguf(path) as model:
        assert set(model.tensors) == {tensor.name for tensor in theirs.tensors}
        for tensor in theirs.tensors:
            info = model.tensors[tensor.name]
            assert info.shape == tuple(int(n) for n in reversed(tensor.shape))
            assert (info.offset, info.nbytes) == (tensor.data_offset, tensor.n_bytes)
            assert model.raw(tensor.name).tobytes() == tensor.data.tobytes()
        for key, field in theirs.fields.items():
            if not key.startswith("GGUF."):
                expected = field.contents()
                value = model.metadata[key]
                same = value.tolist() if isinstance(value, np.ndarray) else value
                assert same == expected, key


def test_the_quantised_fixture_is_near_its_f16_twin() -> None:
    with (
        open_gguf(FIXTURES / "q35moe-a-f16.gguf") as exact,
        open_gguf(FIXTURES / "q35moe-a-iq3s.gguf") as quantised,
    ):
        assert "Q2_0" in {info.type.name for info in quantised.tensors.values()}
        for name, info in quantised.tensors.items():
            a, b = exact.float32(name).ravel(), quantised.float32(name).ravel()
            # The file's Q2_0 scales are the largest magnitude, which two bits serve badly.
            least = 0.75 if info.type.name == "Q2_0" else 0.95
            assert np.array_equal(a, b) or np.corrcoef(a, b)[0, 1] > least, name


def test_raw_is_a_read_only_view_of_the_file() -> None:
    with open_gguf(FIXTURES / "q4exp-a-q4k.gguf") as model:
        name = next(n for n, info in model.tensors.items() if len(info.shape) == 3)
        info, raw = model.tensors[name], model.raw(name)
        assert raw.shape == (*info.shape[:-1], info.type.row_bytes(info.shape[-1]))
        assert not raw.flags.writeable
        assert np.shares_memory(raw, model.raw(name))
        assert raw.tobytes() == model.path.read_bytes()[info.offset :][: info.nbytes]


def test_a_view_outlives_close() -> None:
    model = open_gguf(FIXTURES / "q4exp-a-q4k.gguf")
    name = next(iter(model.tensors))
    raw, copy = model.raw(name), model.raw(name).copy()
    model.close()
    model.close()
    assert np.array_equal(raw, copy)


def test_metadata_of_every_type_from_the_package(tmp_path: Path) -> None:
    path = tmp_path / "all.gguf"
    writer = package_writer(path)
    scalars = {
        "uint8": 255,
        "int8": -128,
        "uint16": 65535,
        "int16": -32768,
        "uint32": 2**32 - 1,
        "int32": -(2**31),
        "uint64": 2**64 - 1,
        "int64": -(2**63),
        "float32": 0.5,
        "float64": 0.1,
        "bool": True,
    }
    for kind, value in scalars.items():
        getattr(writer, f"add_{kind}")(f"a.{kind}", value)
    writer.add_string("a.string", "žluťoučký 馬 \U0001f40e")
    arrays = {
        "ints": [1, -2, 3],
        "floats": [0.5, -1.5],
        "bools": [True, False, True],
        "strings": ["", "a", "ž"],
        "nested": [[1, 2], [3]],
        "deep": [[["x"], ["y", "z"]], [["ž"]]],
    }
    for name, value in arrays.items():
        writer.add_array(f"a.{name}", value)
    writer.add_tensor("t", np.arange(6, dtype=np.float32).reshape(2, 3))
    finish(writer)
    with open_gguf(path) as model:
        for kind, value in scalars.items():
            found = model.metadata[f"a.{kind}"]
            assert found == value
            assert type(found) is type(value)
        assert model.metadata["a.string"] == "žluťoučký 馬 \U0001f40e"
        assert model.metadata["a.strings"] == arrays["strings"]
        assert model.metadata["a.ints"].tolist() == arrays["ints"]
        assert model.metadata["a.floats"].tolist() == arrays["floats"]
        assert model.metadata["a.bools"].tolist() == arrays["bools"]
        assert model.metadata["a.bools"].dtype == np.bool_
        assert [inner.tolist() for inner in model.metadata["a.nested"]] == arrays["nested"]
        assert model.metadata["a.deep"] == arrays["deep"]
        assert model.float32("t").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_quantised_tensors_from_the_package(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "quantised.gguf"
    writer = package_writer(path)
    writer.add_custom_alignment(alignment)
    random = np.random.default_rng(0)
    raws = {}
    for kind in QUANT_TYPES.values():
        if kind.block_elements > 1 and kind.name != "Q2_0":
            raws[kind.name] = random_blocks(kind, (2, 3), 2, random)
            number = gguf.GGMLQuantizationType(kind.id)
            writer.add_tensor(kind.name, raws[kind.name], raw_dtype=number)
    finish(writer)
    with open_gguf(path) as model:
        assert set(model.tensors) == set(raws)
        for name, raw in raws.items():
            info = model.tensors[name]
            assert info.type.name == name
            assert info.shape == (2, 3, 2 * info.type.block_elements)
            assert info.offset % alignment == 0
            assert np.array_equal(model.raw(name), raw)


def test_a_missing_tensor_is_named() -> None:
    with (
        open_gguf(MODELS[0]) as model,
        pytest.raises(ModelFileError, match=r"no tensor 'blk\.99\.attn_q\.weight'") as error,
    ):
        model.raw("blk.99.attn_q.weight")
    assert error.value.hint


def test_a_real_vocabulary_opens_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    tokens = [f"Ġtoken{index}" for index in range(250_000)]
    merges = [f"Ġto ken{index}" for index in range(250_000)]
    write_gguf(path, {"tokens": tokens, "merges": merges, "types": np.ones(250_000, np.int32)}, {})
    start = time.process_time()
    with open_gguf(path) as model:
        seconds = time.process_time() - start
        assert model.metadata["tokens"] == tokens
        assert model.metadata["merges"] == merges
    assert seconds < 1


def test_opening_loads_neither_torch_nor_the_package() -> None:
    code = (
        "import sys; from engine.gguf.reader import open_gguf; "
        f"open_gguf({str(MODELS[0])!r}); print({{'torch', 'gguf'}} & set(sys.modules))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
