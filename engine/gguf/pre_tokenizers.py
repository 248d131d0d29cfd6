"""How a text is cut into pieces before byte pairs are merged, by the GGUF's name for the rule."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.errors import UnsupportedModelError

# Name in `tokenizer.ggml.pre` -> pattern whose matches are the pieces. The qwen35 pattern is the
# one of the Qwen 3.5 tokenizer: marks (\p{M}) stay with letters, digits stand alone.
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "qwen35": (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
            r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
            r"|\p{N}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+"
            r"|\s+(?!\S)"
            r"|\s+"
        ),
    }
)


def split_pattern(name: str) -> str:
    """The pattern of pre-tokenizer `name`. Raises UnsupportedModelError for an unknown name."""
    if name not in PATTERNS:
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre is {name!r}; known is {', '.join(sorted(PATTERNS))}",
            hint="Use a GGUF of one of the supported models, or a newer version.",
        )
    return PATTERNS[name]
