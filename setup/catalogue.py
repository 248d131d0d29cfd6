"""The models that setup knows by name: sizes, needs and files, from `profiles/models/*.toml`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model in its repository. `size_bytes` 0: not known before it is asked."""

    path: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One size of one family. Sizes are decimal GB, memory is GiB of a machine."""

    key: str
    """The name that `--model` takes, such as `IQ3_S`."""
    family: str
    """The name that `--family` takes: qwen, swift, coder, unsloth, qwen36 or ornith."""
    title: str
    tag: str
    """The model's part of `strata-<model>.json`."""
    architecture: str
    download_gb: float
    arena_gb: float
    """The routed experts."""
    ram_gib: float
    """Memory that a machine should have, without a low-memory mode."""
    layers: int
    experts_per_layer: int
    attention_layers: int
    """Layers with keys and values, without the draft layer."""
    state_gb: float
    """Recurrent state of one slot, as the rules charge it."""
    table_gb: float = 0.0
    """The n-gram table, read from the disk or held in memory."""
    train_context: int = 262_144
    budget: bool = False
    """Runs within a budget of memory for experts; never uses the low-memory modes."""
    experimental: bool = False
    one_card: bool = False
    """Cannot be spread over cards."""
    nvidia_only: bool = False
    attends_all: bool = False
    """Attention reads every cell, so that keys and values are slow to stream."""
    repository: str = ""
    revision: str = "main"
    files: tuple[ModelFile, ...] = ()
    source: str = ""
    """Where its numbers come from."""
