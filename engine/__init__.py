"""Everything between a GGUF file and a token.

Axis letters in shapes: R rows, T tokens, D model width, H heads, K key dim (or the inner dim of a
matrix product), N outputs of a matrix product, V value dim, E experts, A experts a token, S slots,
G groups of 32 along K, C hyper-connection streams.

`engine.load(path, ...)` loads a model into this process; see `engine/api.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.api import Model, load

__all__ = ["Model", "load"]


def __getattr__(name: str) -> Any:
    # Lazily: the command line and the server must not import torch.
    if name in __all__:
        from engine import api

        return getattr(api, name)
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
