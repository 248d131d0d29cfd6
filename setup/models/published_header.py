"""The header of a published model before it is downloaded: its tensors, from row and shapes.

Types stand only for what is known: whether a tensor is quantised, and how experts are stored.
`setup/models/catalogue_info.py` takes sizes from the row instead.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.gguf.reader import GGUF
from engine.models.geometry import GEOMETRIES
from engine.models.published import StoredTypes, published_model
from setup.models.catalogue import ModelRow


def published_header(row: ModelRow) -> GGUF:
    """The model of `row` as an open GGUF without bytes: metadata and tensors, nothing to read."""
    geometry = replace(
        GEOMETRIES[row.architecture],
        layers=row.layers,
        interval=row.layers // row.attention_layers,
        experts=row.experts_per_layer,
        train_context=row.train_context,
    )
    path = Path(row.files[0].name)
    header = published_model(geometry, _types(row), f"{row.title} {row.key}", path)
    return GGUF(path, (header,), ())


def _types(row: ModelRow) -> StoredTypes:
    """Unsloth quantises hyper-connections and n-gram keys. A draft layer of Qwen3.6 is stored in 4
    bits: 478.5 MB more in the file that has it."""
    experts = [(part.gate_up, part.down) for part in row.experts for _ in range(part.layers)]
    return StoredTypes(
        experts=tuple(experts) or (("Q4_0", "Q4_0"),) * row.layers,
        wide="Q8_0" if row.family == "unsloth" else "BF16",
        draft_dense="Q4_0",
    )
