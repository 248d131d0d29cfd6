"""The vocabulary of drafts."""

from __future__ import annotations

import pytest

from engine.errors import ConfigError
from setup.rules.draft_vocab import DEFAULT, HEAD_MIB, draft_vocab_tip, head_mib


def test_heads() -> None:
    assert dict(HEAD_MIB) == {"cjk": 348, "cyrillic": 193, "fr": 151, "en": 133}
    assert DEFAULT == "cjk"
    assert head_mib("fr") == 151


@pytest.mark.parametrize(
    ("cards", "chosen", "told"),
    [
        ([13.99], None, True),  # under 14
        ([14.0], None, False),
        ([24, 12], None, True),
        ([], None, False),
        ([12], "cjk", False),  # the user has chosen
        ([12], "en", False),
    ],
)
def test_tip(cards: list[float], chosen: str | None, told: bool) -> None:
    tip = draft_vocab_tip(cards, chosen)
    assert (tip is not None) == told
    if tip:
        assert "--draft-vocab en takes 133 MiB where cjk takes 348" in tip


def test_unknown() -> None:
    for cards in ([12.0], [80.0], []):
        with pytest.raises(ConfigError, match="'de', allowed is one of cjk, cyrillic, fr, en"):
            draft_vocab_tip(cards, "de")
