"""A model as it was named: a file, or random weights in place of one."""

from __future__ import annotations

from pathlib import Path

from engine.gguf.reader import GGUF, open_gguf


def open_model(path: str | Path, synthetic: str | None = None) -> GGUF:
    """The open model: what `--synthetic` names where that is said, else the file at `path`.

    Raises `ConfigError` for random weights that cannot be made, and what `open_gguf` raises.
    """
    if synthetic is None:
        return open_gguf(path)
    from engine.synthetic import open_synthetic

    return open_synthetic(synthetic)
