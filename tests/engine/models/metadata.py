"""The metadata of the fixtures, to be changed by tests of what is read from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from engine.gguf.reader import GGUF, open_gguf
from engine.models.config import ModelConfig

FIXTURES = Path(__file__).parents[2] / "fixtures"
FAMILIES = {"qwen4exp": "q4exp-a-f16.gguf", "qwen35moe": "q35moe-a-f16.gguf"}


def _read(family: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    with open_gguf(FIXTURES / FAMILIES[family]) as gguf:
        kept = {k: v for k, v in gguf.metadata.items() if not k.startswith("tokenizer.ggml.m")}
        return kept, dict(gguf.tensors)


FILES = {family: _read(family) for family in FAMILIES}


def config_with(family: str, **changes: Any) -> ModelConfig:
    """The fixture's metadata with keys replaced (dots are written __), or removed by None."""
    metadata = dict(FILES[family][0])
    for key, value in changes.items():
        name = f"{family}.{key.replace('__', '.')}"
        metadata.pop(name, None)
        if value is not None:
            metadata[name] = value
    return parse(family, metadata)


def parse(family: str, metadata: dict[str, Any]) -> ModelConfig:
    tensors = FILES[family][1]

    def tensor(name: str) -> Any:
        return tensors[name]

    file = SimpleNamespace(
        metadata=metadata, tensors=tensors, path=Path("some.gguf"), tensor=tensor
    )
    return ModelConfig.from_gguf(cast(GGUF, file))
