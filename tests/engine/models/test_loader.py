"""Loading: missing tensors, wrong shapes, draft layers in one file and in two."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
from engine.errors import ConfigError, ModelFileError, StrataError
from engine.gguf.reader import GGUF, TensorInfo, open_gguf
from engine.gguf.types import quant_type
from engine.gguf.writer import write_gguf
from engine.models.config import ModelConfig
from engine.models.loader import load_weights
from engine.models.weights import ModelWeights
from engine.ops import Ops, ops_for

FIXTURES = Path(__file__).parents[2] / "fixtures"
FAMILIES = ("qwen4exp", "qwen35moe")


class _Unpacked:
    """Stands for a packed matrix: loading stays quick, and nothing is computed here."""

    def __init__(self, raw: Any, kind: Any, columns: int = 0, **_: Any) -> None:
        self.rows, self.columns = raw.shape[-2], columns

    def scaled(self, factors: Any) -> "_Unpacked":
        return self


OPS: Ops = replace(ops_for("cpu"), matrix=_Unpacked, table=_Unpacked)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, draft_files: dict[str, Path]) -> Iterator[GGUF]:
    """A file with a trunk and a draft layer."""
    with open_gguf(draft_files[request.param]) as gguf:
        yield gguf


def _load(gguf: GGUF, **options: Any) -> ModelWeights:
    config = ModelConfig.from_gguf(gguf)
    return load_weights(gguf, config, OPS, float_activations=True, **options)


def _altered(gguf: GGUF, tensors: dict[str, TensorInfo]) -> GGUF:
    """The same file with other entries in its list of tensors, all of them zeros."""
    other: Any = copy(gguf)
    other.tensors = MappingProxyType(tensors)

    def raw(name: str) -> np.ndarray:
        info = other.tensor(name)
        return np.broadcast_to(np.uint8(0), (*info.shape[:-1], info.type.row_bytes(info.shape[-1])))

    other.raw = raw
    other.float32 = lambda name: np.broadcast_to(np.float32(0), other.tensor(name).shape)
    return cast(GGUF, other)


OPTIONAL = {"output.weight", "blk.3.nextn.shared_head_norm.weight"}


def test_every_missing_tensor_is_named(model: GGUF) -> None:
    """An output matrix that is missing is the embedding's, a draft norm the trunk's."""
    for name in model.tensors:
        rest = {other: info for other, info in model.tensors.items() if other != name}
        if name in OPTIONAL:
            _load(_altered(model, rest))
            continue
        with pytest.raises(ModelFileError) as caught:
            _load(_altered(model, rest))
        assert name in caught.value.message


FREE = ("_exps.", "_shexp.", "hc_", "ple_", "per_layer_token_embd")


def _wrong_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for axis in range(len(shape)):
        yield (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
    yield (*shape, 2)
    if len(shape) > 1 and shape[0] > 1:
        yield shape[1:]
        if shape[0] != shape[1]:
            yield (shape[1], shape[0], *shape[2:])


def test_every_wrong_shape_is_an_error(model: GGUF) -> None:
    """It names the tensor and both shapes. Where a size is free it may name another of the group,
    and more rows of the n-gram table than its heads own are allowed."""
    kinds = {name.split(".", 2)[-1]: name for name in model.tensors}  # one block of each kind
    for name in kinds.values():
        info = model.tensors[name]
        for shape in _wrong_shapes(info.shape):
            if name == "per_layer_token_embd.weight" and shape[1:] == info.shape[1:]:
                continue
            changed = dict(model.tensors) | {name: replace(info, shape=shape)}
            with pytest.raises(ModelFileError, match="by the metadata it should be") as caught:
                _load(_altered(model, changed))
            message = caught.value.message
            # The vocabulary's size is taken from the embedding.
            if name != "token_embd.weight" and not any(part in name for part in FREE):
                assert f"{name} has the shape {list(shape)}" in message
                assert str(info.shape[0]) in message.split("should be")[1]


def test_an_ngram_table_that_is_too_short(draft_files: dict[str, Path]) -> None:
    with open_gguf(draft_files["qwen4exp"]) as gguf:
        name = "per_layer_token_embd.weight"
        info = gguf.tensors[name]
        short = replace(info, shape=(info.shape[0] // 2, info.shape[1]))
        with pytest.raises(ModelFileError, match="per_layer_token_embd"):
            _load(_altered(gguf, dict(gguf.tensors) | {name: short}))


def test_axes_of_length_one_do_not_count(model: GGUF) -> None:
    """A gate of one output is stored as [1, K], [K] or [K, 1]."""
    name = "blk.0.ffn_gate_inp_shexp.weight"
    info = model.tensors[name]
    width = max(info.shape)
    for shape in ((1, width), (width,)):
        _load(_altered(model, dict(model.tensors) | {name: replace(info, shape=shape)}))


_SIZES = st.integers(0, 300) | st.sampled_from([2**31 - 1, 2**32])


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_sizes_give_no_other_error(model: GGUF, data: st.DataObject) -> None:
    """Any number in the metadata changed: the file loads, or a StrataError says why not."""
    names = sorted(k for k, v in model.metadata.items() if type(v) is int and "tokenizer" not in k)
    other = copy(model)
    changes = data.draw(
        st.dictionaries(st.sampled_from(names), _SIZES, min_size=1, max_size=2), label="changes"
    )
    other.metadata = MappingProxyType(dict(model.metadata) | changes)
    try:
        _load(other)
    except StrataError:
        return
    sizes = ("embedding_length", "expert_count", "ssm.state_size", "attention.key_length")
    for key in changes:
        assert not key.endswith(sizes) or changes[key] == model.metadata[key]


def test_progress_is_told_for_every_block(model: GGUF) -> None:
    heard: list[tuple[int, int]] = []
    _load(model, progress=lambda done, of: heard.append((done, of)))
    total = heard[-1][1]
    assert heard[-1] == (total, total)
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_file_gives_the_same_drafts(family: str, draft_files: dict[str, Path]) -> None:
    ids = list(range(40, 60))
    one = engine.load(draft_files[family], activations="float", slots=1, max_context=64)
    two = engine.load(
        draft_files[f"{family}-trunk"],
        mtp=draft_files[f"{family}-draft"],
        activations="float",
        slots=1,
        max_context=64,
    )
    assert two.pipeline.can_draft
    for a, b in zip(one.draft_logits(ids, 3), two.draft_logits(ids, 3), strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_a_draft_layer(draft_files: dict[str, Path]) -> None:
    model = engine.load(draft_files["qwen4exp-trunk"], slots=1, max_context=64)
    assert not model.pipeline.can_draft
    with pytest.raises(ConfigError, match="without a draft layer"):
        model.draft_logits([1, 2, 3], 2)


def test_drafts_that_nobody_asks_for_are_not_loaded(draft_files: dict[str, Path]) -> None:
    model = engine.load(draft_files["qwen4exp"], slots=1, max_context=64, spec=1)
    assert not model.pipeline.can_draft


def test_a_second_file_without_a_draft_layer(draft_files: dict[str, Path], tmp_path: Path) -> None:
    with open_gguf(draft_files["qwen4exp-trunk"]) as gguf:
        copied = {n: (t.type, t.shape, gguf.raw(n)) for n, t in gguf.tensors.items()}
        write_gguf(tmp_path / "other.gguf", dict(gguf.metadata), copied)
    with pytest.raises(ModelFileError, match="no draft layer") as caught:
        engine.load(draft_files["qwen4exp-trunk"], mtp=tmp_path / "other.gguf")
    assert "--mtp" in caught.value.hint


def test_a_second_file_of_another_model(draft_files: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="architecture is qwen35moe, the model's is qwen4exp"):
        engine.load(draft_files["qwen4exp-trunk"], mtp=draft_files["qwen35moe-draft"])
    with pytest.raises(ConfigError, match="width is 64, the model's is 256"):
        engine.load(FIXTURES / "q4exp-a-f16.gguf", mtp=draft_files["qwen4exp-draft"])


def test_naming_the_model_itself_as_draft_file(draft_files: dict[str, Path]) -> None:
    path = draft_files["qwen35moe"]
    assert engine.load(path, mtp=path, slots=1, max_context=64).pipeline.can_draft


def test_factors_of_a_matrix(draft_files: dict[str, Path], tmp_path: Path) -> None:
    """`NAME.scale` multiplies a matrix, each expert of a stack by its own factor."""
    with open_gguf(draft_files["qwen35moe-trunk"]) as gguf:
        plain = {n: (t.type, t.shape, gguf.raw(n)) for n, t in gguf.tensors.items()}
        metadata, name = dict(gguf.metadata), "blk.0.ffn_up_exps.weight"
        factors = np.array([2, 0.5, 1, 4, 0.25, 8], np.float32)
        values = gguf.float32(name) / factors[:, None, None]
    f32 = quant_type("F32")
    scaled = dict(plain)
    scaled[name] = f32, values.shape, values.view(np.uint8)
    scaled["blk.0.ffn_up_exps.scale"] = f32, (6,), factors.view(np.uint8)
    write_gguf(tmp_path / "scaled.gguf", metadata, scaled)
    ids = list(range(70, 90))
    logits = [
        engine.load(path, slots=1, max_context=64).logits(ids)
        for path in (draft_files["qwen35moe-trunk"], tmp_path / "scaled.gguf")
    ]
    np.testing.assert_array_equal(*logits)
