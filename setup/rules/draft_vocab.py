"""The vocabulary of drafts: a smaller one leaves more of a card to experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from engine.errors import ConfigError

HEAD_MIB: Mapping[str, int] = MappingProxyType({"cjk": 348, "cyrillic": 193, "fr": 151, "en": 133})
"""Memory of the draft layer's output matrix by the vocabulary it covers."""
DEFAULT: Final = "cjk"
SMALL_CARD_GIB: Final = 14.0


def head_mib(name: str) -> int:
    """MiB of the draft head; `ConfigError` names the vocabularies there are."""
    if name not in HEAD_MIB:
        raise ConfigError(f"draft-vocab is {name!r}, allowed is one of {', '.join(HEAD_MIB)}")
    return HEAD_MIB[name]


def draft_vocab_tip(cards_gib: Sequence[float], chosen: str | None) -> str | None:
    """A tip for small cards when nothing was chosen. `ConfigError` for an unknown vocabulary."""
    if chosen is not None:
        head_mib(chosen)
        return None
    if not cards_gib or min(cards_gib) >= SMALL_CARD_GIB:
        return None
    return (
        f"a card has {min(cards_gib):.1f} GiB (under {SMALL_CARD_GIB:g}): --draft-vocab en takes "
        f"{HEAD_MIB['en']} MiB where {DEFAULT} takes {HEAD_MIB[DEFAULT]}, if you write English"
    )
