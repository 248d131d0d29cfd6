"""The tokens that may be drafted: fewer rows of the output matrix for each draft.

A model's own row judges every draft, so this decides how many are accepted and never which tokens
come out. The named vocabularies are made of the model's own tokens: byte-pair encoding numbers
tokens by how often they are met, so the lowest ids of a script are its most frequent ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.gguf.tokenizer import Tokenizer

ASCII_TOKENS = 40_525
"""Most tokens of ASCII text in each named vocabulary."""
OWN_TOKENS = {"en": 0, "fr": 5_686, "cyrillic": 18_438, "cjk": 65_774}
"""Most tokens beside them, by the name of a vocabulary. Source of both: the sizes of the published
vocabularies."""
_ID_BYTES = 4
_SCRIPTS: dict[str, tuple[tuple[int, int], ...]] = {
    "en": (),
    "fr": ((0xA0, 0x24F), (0x2000, 0x20CF)),
    "cyrillic": ((0xA0, 0xBF), (0x400, 0x52F), (0x2000, 0x206F)),
    "cjk": ((0x2000, 0x206F), (0x2E80, 0xD7FF), (0xF900, 0xFAFF), (0xFE30, 0xFFEF)),
}
"""The characters of the other tokens, beside ASCII: first and last of each range."""


def most_ids(asked: str, vocab_size: int) -> int:
    """How many tokens `asked` may have at most, for the sums of memory.

    Raises `ConfigError` for a file that cannot be read.
    """
    if asked in OWN_TOKENS:
        return min(vocab_size, ASCII_TOKENS + OWN_TOKENS[asked])
    try:
        return min(vocab_size, Path(asked).stat().st_size // _ID_BYTES)
    except OSError as error:
        raise _unreadable(asked, error.strerror or str(error)) from None


def draft_ids(asked: str, tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    """The ids that `asked` stands for, ascending: the name of a vocabulary, or a file of int32.

    Raises `ConfigError` for a file that is not such a list.
    """
    if asked in OWN_TOKENS:
        return _named(asked, tokenizer)
    try:
        raw = Path(asked).read_bytes()
    except OSError as error:
        raise _unreadable(asked, error.strerror or str(error)) from None
    if not raw or len(raw) % _ID_BYTES:
        raise _unreadable(asked, f"{len(raw)} bytes are no list of ids of 4 bytes")
    import numpy as np  # Here: the command line's flags need the names alone.

    ids = np.unique(np.frombuffer(raw, "<i4"))
    if ids[0] < 0 or ids[-1] >= vocab_size:
        outside = ids[0] if ids[0] < 0 else ids[-1]
        raise _unreadable(asked, f"token {outside} is not one of the model's {vocab_size}")
    return tuple(ids.tolist())


def _named(name: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    special = set(tokenizer.special.values())
    ascii_ids: list[int] = []
    own_ids: list[int] = []
    for token in range(tokenizer.vocab_size):
        if token in special:
            continue
        text = tokenizer.token_bytes(token)
        if text.isascii():
            ascii_ids.append(token)
        elif _SCRIPTS[name] and _is_of(text, _SCRIPTS[name]):
            own_ids.append(token)
    kept = (*ascii_ids[: ASCII_TOKENS - len(special)], *own_ids[: OWN_TOKENS[name]])
    return tuple(sorted({*special, *kept}))


def _is_of(text: bytes, ranges: Iterable[tuple[int, int]]) -> bool:
    """Whether all characters are ASCII or of these ranges; parts of a character always are."""
    try:
        characters = text.decode()
    except UnicodeDecodeError:
        return True
    return all(
        char.isascii() or any(first <= ord(char) <= last for first, last in ranges)
        for char in characters
    )


def _unreadable(asked: str, why: str) -> ConfigError:
    names = ", ".join(OWN_TOKENS)
    return ConfigError(
        f"--mtp-draft-vocab {asked}: {why}", f"name one of {names}, or a file of int32 token ids"
    )
