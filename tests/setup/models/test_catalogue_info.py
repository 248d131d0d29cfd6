"""Sizes of published models before a download, and rows for a user's own files."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model_info import ModelInfo, read_model_info
from setup.models.bundled import bundled_model
from setup.models.catalogue import ModelRow, catalogue, find_row
from setup.models.catalogue_info import info_of, row_of
from setup.models.published_header import published_header
from tests.machines import SMALL_MODEL, flash_next_sizes

ROWS = pytest.mark.parametrize("row", catalogue(), ids=lambda row: row.tag)
FLASH = [row for row in catalogue() if row.architecture == "qwen4exp"]

# Classes of one stored type in the published inventory of Swift's IQ2_XS: how many tensors, their
# bytes, and the bytes of so many weights of that type.
INVENTORY = [
    ("per_layer_token_embd.weight", 1, 28_800_138_240, (32, 18)),
    ("ffn_down_exps.weight", 48, 11_324_620_800, (64, 18)),
    ("output.weight", 1, 337_715_200, (256, 136)),
    ("token_embd.weight", 1, 337_715_200, (256, 136)),
    ("hc_attn_down.weight", 48, 314_572_800, (1, 2)),
    ("hc_attn_up.weight", 48, 314_572_800, (1, 2)),
    ("hc_ffn_down.weight", 48, 314_572_800, (1, 2)),
    ("hc_ffn_up.weight", 48, 314_572_800, (1, 2)),
    ("ffn_gate_inp.weight", 48, 251_658_240, (1, 4)),
    ("ple_key.weight", 1, 52_428_800, (1, 2)),
    ("indexer.q_proj.weight", 12, 31_457_280, (1, 2)),
    ("ple_value.weight", 1, 13_107_200, (1, 2)),
    ("ssm_alpha.weight", 36, 8_847_360, (1, 2)),
    ("ssm_beta.weight", 36, 8_847_360, (1, 2)),
    ("indexer.k_proj.weight", 12, 7_864_320, (1, 2)),
    ("output_hc_down.weight", 1, 6_553_600, (1, 2)),
    ("output_hc_up.weight", 1, 6_553_600, (1, 2)),
    ("ssm_conv1d.weight", 36, 5_898_240, (1, 4)),
    ("hc_attn_inject.weight", 48, 3_932_160, (1, 2)),
    ("hc_ffn_inject.weight", 48, 3_932_160, (1, 2)),
    ("hc_attn_norm.weight", 48, 1_966_080, (1, 4)),
    ("hc_ffn_norm.weight", 48, 1_966_080, (1, 4)),
    ("ffn_gate_inp_shexp.weight", 48, 491_520, (1, 4)),
    ("ple_conv1d.weight", 1, 81_920, (1, 2)),
    ("output_hc_norm.weight", 1, 40_960, (1, 4)),
    ("ple_norm_conv.weight", 1, 40_960, (1, 4)),
    ("ple_norm_key.weight", 1, 40_960, (1, 4)),
    ("ple_norm_query.weight", 1, 40_960, (1, 4)),
    ("ssm_norm.weight", 36, 18_432, (1, 4)),
    ("attn_k_norm.weight", 12, 12_288, (1, 4)),
    ("attn_q_norm.weight", 12, 12_288, (1, 4)),
    ("ssm_a", 36, 6_912, (1, 4)),
    ("ssm_dt.bias", 36, 6_912, (1, 4)),
    ("indexer.k_norm.weight", 12, 6_144, (1, 4)),
    ("indexer.q_norm.weight", 12, 6_144, (1, 4)),
]


def _weights(row: ModelRow, pattern: str = "") -> int:
    """Weights of the tensors whose name fits."""
    with published_header(row) as header:
        found = (t for name, t in header.tensors.items() if re.match(pattern, name))
        return sum(prod(tensor.shape) for tensor in found)


@ROWS
def test_download_and_experts_are_the_table_s(row: ModelRow) -> None:
    info = info_of(row)
    assert info.stored_bytes / 1e9 == pytest.approx(row.download_gb, rel=0.01)
    assert info.expert_pairs == row.layers * row.experts_per_layer
    assert (info.layers, info.train_context) == (row.layers, row.train_context)
    assert info.table_bytes / 1e9 == pytest.approx(row.table_gb, rel=0.001)
    if row.family == "huihui" and row.key != "Q4_K":
        # The rules take the whole file; here it is the share that Q4_K's experts have of theirs:
        # 19,505,610,752 / (21,712,409,824 - 11 MB of header - 477 MB of draft layer) = 0.919.
        rest = info.stored_bytes - info.draft_bytes
        assert info.expert_bytes / rest == pytest.approx(0.919, abs=0.001)
    elif row.family == "coder":
        # The rules' 23.4 is GiB: 23.42 * 1.0737 = 25.147 GB.
        assert info.expert_bytes / (1 << 30) == pytest.approx(row.arena_gb, rel=0.01)
    else:
        assert info.expert_bytes / 1e9 == pytest.approx(row.arena_gb, rel=0.01)
    assert info.dense_bytes > 0


@pytest.mark.parametrize(
    ("key", "family", "experts"),
    [
        # 24,576 * 3 matrices of 2560 * 640 weights / 64 * 18 bytes = 24,576 * 1,382,400
        ("Q2_0", "qwen", 24_576 * 1_382_400),
        ("Q2_0", "swift", 33_973_862_400),
        # the published inventory of Swift's file
        ("IQ2_XS", "swift", 35_454_976_000),
        ("IQ2_XS", "qwen", 35_454_976_000),
        # IQ3_S 704,000 and IQ4_NL 921,600 bytes a matrix, IQ4_XS 870,400, Q8_0 1,740,800:
        # 512 * (47 * 2 * 704,000 + 2 * 870,400 + 43 * 921,600 + 5 * 1,740,800)
        ("UD-IQ4_XS", "unsloth", 59_519_795_200),
        # Q4_K 921,600, Q5_K 1,126,400, Q5_1 1,228,800:
        # 512 * (47 * 2 * 921,600 + 2 * 1,126,400 + 43 * 1,228,800 + 5 * 1,740,800)
        ("UD-Q4_K_XL", "unsloth", 77_017_907_200),
    ],
)
def test_bytes_of_experts_whose_types_are_published(key: str, family: str, experts: int) -> None:
    info = info_of(find_row(key, family))
    assert info.expert_bytes == experts
    if key == "Q2_0":
        assert info.expert_bytes / info.expert_pairs == 1_382_400


@pytest.mark.parametrize("row", FLASH, ids=lambda row: row.tag)
def test_dense_weights_of_flash_next(row: ModelRow) -> None:
    # Everything but experts and table: 3.51 GiB for Swift's Q2_0, 3.62 for its IQ2_XS, 3.95 for its
    # IQ3_XXS by inventory. The original's routers have 2 bytes for 4: 48 * 512 * 2560 * 2 less.
    measured = {
        ("swift", "Q2_0"): 3.51 * 1.0737,
        ("swift", "IQ2_XS"): 3.62 * 1.0737,
        ("swift", "IQ3_XXS"): 3.95 * 1.0737,
        ("qwen", "Q2_0"): 3.51 * 1.0737 - 0.126,
        ("qwen", "IQ2_XS"): 3.62 * 1.0737 - 0.126,
        ("qwen", "IQ3_XXS"): 3.95 * 1.0737 - 0.126,
    }
    dense = info_of(row).dense_bytes / 1e9
    if (row.family, row.key) in measured:
        assert dense == pytest.approx(measured[row.family, row.key], rel=0.01)
    assert 3.5 < dense < 5.6


def test_the_tensors_are_the_published_ones() -> None:
    with published_header(find_row("IQ2_XS", "swift")) as header:
        assert len(header.tensors) == 1224
        classes: Counter[str] = Counter()
        weights: Counter[str] = Counter()
        for name, tensor in header.tensors.items():
            kind = re.sub(r"^blk\.\d+\.", "", name)
            classes[kind] += 1
            weights[kind] += prod(tensor.shape)
    for kind, count, stored, (block, block_bytes) in INVENTORY:
        assert (classes[kind], weights[kind]) == (count, stored // block_bytes * block), kind


def test_weights_of_the_parts_of_flash_next() -> None:
    row = find_row("IQ3_S")
    millions = {
        # block 0 is a recurrent one, block 3 an attention one
        r"blk\.0\.(ssm|attn_qkv|attn_gate)": 57.96,
        r"blk\.3\.(attn|indexer)": 51.45,
        r"blk\.0\.hc_": 13.21,
        r"blk\.0\.ffn_(gate_inp|.*_shexp)": 6.23,
        r"blk\.\d+\.ffn_(gate|up|down)_exps": 120_796,
        r"per_layer_token_embd": 51_200,
    }
    for pattern, expected in millions.items():
        assert _weights(row, pattern) / 1e6 == pytest.approx(expected, rel=0.0003), pattern
    dense = _weights(row) - _weights(row, r".*_exps|per_layer")
    assert dense / 1e9 == pytest.approx(4.948, abs=0.001)


def test_floats_and_quantised_weights() -> None:
    swift = info_of(find_row("IQ2_XS", "swift"))
    stored = sum(b // size * block for _, _, b, (block, size) in INVENTORY if block == 1)
    assert swift.float_weights == stored
    # All weights: 125.74 billion and the table's 51.20.
    # Without the n-gram table (28,800,138,240 / 18 * 32 weights) and the token embedding, of which
    # single rows are read: 176.94e9 - 51.2e9 - 248,320 * 2560.
    loaded = swift.float_weights + swift.quantised_weights
    assert loaded == pytest.approx(176.94e9 - 51.2e9 - 0.6357e9, rel=0.0001)
    # Unsloth quantises the hyper-connections: their 630 million and the n-grams' 33 are missing.
    unsloth = info_of(find_row("UD-IQ4_XS"))
    assert swift.float_weights - unsloth.float_weights == pytest.approx(668.5e6, rel=0.001)


def test_caches_and_states() -> None:
    flash = info_of(find_row("IQ3_S"))
    assert flash.kv_vectors == ((256, 24), (256, 24))  # 12 layers of 2 heads
    assert flash.index_bytes_per_token == 1536  # 12 layers * 128 floats for 4 tokens
    assert flash.state_bytes == 113_246_208 + 4_423_680 + 368_640
    assert not flash.has_drafts
    small = info_of(find_row("Qwen3.6-UD-IQ4_XS"))
    assert small.kv_vectors == ((256, 22), (256, 22))  # 10 layers and the draft layer
    assert small.index_bytes_per_token == 0
    assert small.state_bytes == 62_914_560 + 2_949_120
    # The same file without its draft layer has 17,730,509,792 bytes.
    assert small.draft_bytes == pytest.approx(18_209_036_576 - 17_730_509_792, rel=0.01)


@ROWS
def test_a_published_file_is_recognised(row: ModelRow) -> None:
    info = info_of(row)
    for file in row.files:
        assert row_of(replace(info, path=Path("/models") / file.name)) is row
    assert row_of(replace(info, path=Path("renamed.gguf"))) is row
    if row.architecture == "qwen4exp":
        drafts = 2_786_568_256
        with_drafts = replace(
            info,
            path=Path("renamed.gguf"),
            stored_bytes=info.stored_bytes + drafts,
            draft_bytes=drafts,
            has_drafts=True,
        )
        assert row_of(with_drafts) is row


def test_a_name_alone_is_not_enough() -> None:
    info = read_model_info(SMALL_MODEL)
    named = replace(info, path=Path("Qwen3.6-35B-A3B-UD-IQ4_XS.gguf"))
    assert row_of(named).family == "own"


def test_a_size_alone_is_not_enough() -> None:
    info = replace(info_of(find_row("IQ3_S")), path=Path("mine.gguf"))
    assert row_of(replace(info, stored_bytes=info.stored_bytes + 10**6)).family == "own"
    assert row_of(replace(info, expert_pairs=info.expert_pairs // 2)).family == "own"


def test_an_own_file_of_the_known_shapes_is_charged_alike() -> None:
    row = row_of(
        replace(info_of(find_row("IQ3_S")), path=Path("Mine-Q5.gguf"), stored_bytes=10**11)
    )
    assert (row.family, row.key, row.tag) == ("own", "Mine-Q5.gguf", "mine-q5")
    assert (row.layers, row.experts_per_layer, row.attention_layers) == (48, 512, 12)
    assert row.state_gb == pytest.approx(0.17)
    assert row.arena_gb == pytest.approx(50.3)
    assert row.ram_gib == pytest.approx(60.3)  # experts and 10
    assert (row.one_card, row.attends_all, row.budget) == (False, False, False)
    small = info_of(find_row("Qwen3.6-UD-IQ3_S"))
    other = row_of(replace(small, path=Path("x.gguf"), stored_bytes=2 * 10**10))
    assert (other.attention_layers, other.one_card, other.attends_all) == (10, True, True)
    assert other.state_gb == pytest.approx(0.095, abs=0.001)  # 65.86 MB * 0.17 / 0.118


def test_an_own_file_has_no_key_of_the_catalogue() -> None:
    info = replace(read_model_info(SMALL_MODEL), path=Path("IQ3_S.gguf"))
    keys = {row.key.casefold() for row in catalogue()}
    assert row_of(info).tag == "iq3_s"
    assert row_of(info).key.casefold() not in keys


def test_the_draft_layer_s_cache_is_not_a_layer_of_the_row() -> None:
    assert row_of(flash_next_sizes()).attention_layers == 12  # 26 vectors of 256: 13 - 1


def test_the_bundled_model() -> None:
    info = read_model_info(bundled_model())
    row = row_of(info)
    assert (row.family, row.key, row.tag) == ("own", "strata-tiny.gguf", "tiny")
    assert (row.layers, row.experts_per_layer, row.attention_layers) == (6, 10, 1)
    assert row.arena_gb == info.expert_bytes / 1e9
    # 9.8 MB: a machine needs its 2 GiB for the system, not the 10 that large models leave.
    assert row.ram_gib == pytest.approx(2.0, abs=0.03)
    assert row.source == "the shapes of strata-tiny.gguf"


@given(
    layers=st.integers(1, 100),
    experts=st.integers(1, 1024),
    heads=st.integers(1, 200),
    length=st.sampled_from([32, 64, 128, 256]),
    stored=st.integers(1, 10**12),
    share=st.floats(0.01, 0.99),
    drafts=st.booleans(),
)
def test_any_file_has_a_row(
    layers: int, experts: int, heads: int, length: int, stored: int, share: float, drafts: bool
) -> None:
    info: ModelInfo = replace(
        flash_next_sizes(),
        layers=layers,
        expert_pairs=layers * experts,
        kv_vectors=((length, heads), (length, heads)),
        stored_bytes=stored,
        expert_bytes=int(stored * share),
        table_bytes=0,
        draft_bytes=0,
        has_drafts=drafts,
    )
    row = row_of(info)
    assert row.layers * row.experts_per_layer == layers * experts
    assert row.attention_layers >= 1
    assert row.arena_gb <= row.download_gb
    assert row.arena_gb + 2 <= row.ram_gib <= row.arena_gb + 10
