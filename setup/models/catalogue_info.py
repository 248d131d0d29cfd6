"""From a row of the catalogue to sizes for planning, and from a user's own file to a row."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from engine.model_info import ModelInfo
from setup.models.bundled import model_tag
from setup.models.catalogue import QWEN36_ARCHITECTURE, ModelRow, catalogue, spare_gib
from setup.models.published_header import published_header
from setup.rules.cells import CELL_NUMBERS

HEADER_BYTES = 11_000_000
"""Tokenizer, metadata and tensor table of a published model: 10,946,624 (Unsloth's first shard) to
11,024,160 bytes (Swift)."""
_HEADER_SPREAD_BYTES = 500_000

STATE_CHARGE = 0.17 / 0.118_038_528
"""What the rules charge for a slot's recurrent state, over its bytes: 0.17 GB for the 118 MB of
Qwen3.8-Flash-Next."""


def info_of(row: ModelRow) -> ModelInfo:
    """The sizes of a catalogue model, known before its download.

    Counts are exact. Bytes of the experts are exact where the row names their types, else as
    measured, else the row's rounded size; the rest of the file is what experts, n-gram table and
    draft layer leave.
    """
    with published_header(row) as header:
        info = ModelInfo.from_gguf(header)
    stored = row.file_bytes - HEADER_BYTES if row.file_bytes else round(row.download_gb * 1e9)
    measured = row.expert_bytes or round(row.arena_gb * 1e9)
    experts = info.expert_bytes if row.experts else measured
    return replace(info, stored_bytes=stored, expert_bytes=experts)


def row_of(info: ModelInfo) -> ModelRow:
    """The row of a user's file: the catalogue's when it is one of its files, by name or by size
    and shapes; else one of the family `own`, from the file's shapes."""
    for same in (_same_name, _same_size):
        for row in catalogue():
            if _same_shapes(row, info) and same(row, info):
                return row
    return _own_row(info)


def _same_shapes(row: ModelRow, info: ModelInfo) -> bool:
    return (
        row.architecture == info.architecture
        and row.layers == info.layers
        and row.layers * row.experts_per_layer == info.expert_pairs
    )


def _same_name(row: ModelRow, info: ModelInfo) -> bool:
    return info.path.name in {file.name for file in row.files}


def _same_size(row: ModelRow, info: ModelInfo) -> bool:
    """A renamed file. A draft layer that lies in a second file is not part of the row's size."""
    expected = row.file_bytes - HEADER_BYTES
    return any(
        abs(stored - expected) <= _HEADER_SPREAD_BYTES
        for stored in (info.stored_bytes, info.stored_bytes - info.draft_bytes)
    )


def _own_row(info: ModelInfo) -> ModelRow:
    small = info.architecture == QWEN36_ARCHITECTURE
    experts_gb = info.expert_bytes / 1e9
    return ModelRow(
        key=info.path.name,  # with its suffix, so that it is never a key of the catalogue
        family="own",
        title=info.name,
        tag=model_tag(info.path),
        architecture=info.architecture,
        download_gb=info.stored_bytes / 1e9,
        arena_gb=experts_gb,
        ram_gib=experts_gb + spare_gib(info.stored_bytes / 1e9),
        layers=info.layers,
        experts_per_layer=info.expert_pairs // info.layers,
        attention_layers=_attention_layers(info),
        state_gb=info.state_bytes * STATE_CHARGE / 1e9,
        table_gb=info.table_bytes / 1e9,
        train_context=info.train_context,
        one_card=small,
        nvidia_only=small,
        attends_all=info.index_bytes_per_token == 0,
        source=f"the shapes of {info.path.name}",
        about="your own file",
    )


def _attention_layers(info: ModelInfo) -> int:
    """Layers whose keys and values are as large as the rules' cell, without the draft layer."""
    numbers = sum(length * vectors for length, vectors in info.kv_vectors)
    return max(1, ceil(numbers / CELL_NUMBERS) - info.has_drafts)
