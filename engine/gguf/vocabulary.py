"""The vocabulary that a GGUF's metadata describes, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf.pre_tokenizers import split_pattern

_PREFIX = "tokenizer.ggml."
# Control tokens that end a turn in ChatML models whatever `eos_token_id` says: files of this
# family name one of the two, and the models produce both.
_END_TOKENS = ("<|endoftext|>", "<|im_end|>")
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class TokenType(IntEnum):
    """The numbers in `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def _byte_letters() -> str:
    """The letter that stands for each of the 256 bytes in a byte-level vocabulary: the byte's own
    Latin-1 character where that can be printed, the letters from U+0100 on for the others."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_LETTERS = _byte_letters()
_TO_LATIN_1 = {ord(letter): byte for byte, letter in enumerate(BYTE_LETTERS)}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Byte-level BPE: `tokens[id]` and `types[id]`, merges best first, the ids that end a turn.

    Normal tokens are spelled in byte letters, control and user-defined ones as plain text.
    """

    pattern: str
    tokens: tuple[str, ...]
    ids: Mapping[str, int]
    types: tuple[int, ...]
    merges: tuple[tuple[str, str], ...]
    eos_ids: frozenset[int]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Vocabulary:
        """Reads the `tokenizer.ggml.*` keys.

        Raises UnsupportedModelError for another kind of tokenizer, ModelFileError for keys that
        are missing or contradict each other.
        """
        model = _value(metadata, "model", str)
        if model != "gpt2":
            raise UnsupportedModelError(
                f"tokenizer.ggml.model is {model!r}; only 'gpt2' (byte-level BPE) is supported",
                hint="Use a GGUF of one of the supported models.",
            )
        pattern = split_pattern(_value(metadata, "pre", str))
        tokens = _strings(metadata, "tokens")
        types = _types(metadata, tokens)
        ids = _ids(tokens)
        _check_letters(tokens, types)
        merges = _merges(_strings(metadata, "merges"), ids)
        return cls(pattern, tokens, ids, types, merges, _eos_ids(metadata, ids, types))

    def of_type(self, *types: TokenType) -> list[str]:
        """The tokens of these types, by ascending id."""
        return [token for token, type in zip(self.tokens, self.types, strict=True) if type in types]

    def token_bytes(self, id: int) -> bytes:
        """The bytes that token `id` stands for; none for an unused one."""
        token, type = self.tokens[id], self.types[id]
        if type in (TokenType.NORMAL, TokenType.BYTE):
            return token.translate(_TO_LATIN_1).encode("latin-1")
        return b"" if type == TokenType.UNUSED else token.encode()


def _damaged(message: str) -> ModelFileError:
    return ModelFileError(
        f"the tokenizer of the model file is damaged: {message}",
        hint="Download or convert the file again.",
    )


def _value(metadata: Mapping[str, Any], key: str, kind: type) -> Any:
    if _PREFIX + key not in metadata:
        raise _damaged(f"{_PREFIX}{key} is missing")
    value = metadata[_PREFIX + key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _damaged(f"{_PREFIX}{key} is of type {type(value).__name__}, not {kind.__name__}")
    return value


def _strings(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    strings = tuple(_value(metadata, key, list))
    if set(map(type, strings)) - {str}:
        raise _damaged(f"{_PREFIX}{key} holds something else than strings")
    return strings


def _types(metadata: Mapping[str, Any], tokens: Sequence[str]) -> tuple[int, ...]:
    key = _PREFIX + "token_type"
    try:
        types = np.asarray(metadata.get(key, []))
    except ValueError:
        raise _damaged(f"{key} is not a plain array") from None
    if types.shape != (len(tokens),) or not tokens:
        raise _damaged(f"{key} has shape {list(types.shape)} for {len(tokens)} tokens")
    if types.dtype.kind not in "iu":
        raise _damaged(f"{key} holds {types.dtype}, not integers")
    if not 1 <= types.min() <= types.max() <= max(TokenType):
        raise _damaged(f"{key} holds {types.min()} to {types.max()}; types 1 to 6 exist")
    return tuple(types.tolist())


def _ids(tokens: Sequence[str]) -> dict[str, int]:
    ids = {token: id for id, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        id = next(id for id, token in enumerate(tokens) if ids[token] != id)
        raise _damaged(f"tokens {id} and {ids[tokens[id]]} are both {tokens[id]!r}")
    return ids


def _check_letters(tokens: Sequence[str], types: Sequence[int]) -> None:
    """Normal tokens consist of byte letters, or their bytes could not be told."""
    known = (TokenType.NORMAL, TokenType.BYTE)
    spelled = (token for token, type in zip(tokens, types, strict=True) if type in known)
    strange = set("".join(spelled)) - set(BYTE_LETTERS)
    if strange:
        letter = min(strange)
        id = next(id for id, token in enumerate(tokens) if letter in token and types[id] in known)
        raise _damaged(f"token {id}, {tokens[id]!r}, holds {letter!r}, which stands for no byte")


def _merges(lines: Sequence[str], ids: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    merges = []
    for rank, line in enumerate(lines):
        left, _, right = line.partition(" ")
        # A missing space leaves `right` empty; a second one stays in it and is no token.
        if left not in ids or right not in ids or left + right not in ids or not right:
            raise _damaged(f"merge {rank}, {line!r}, is not two tokens that make a third")
        merges.append((left, right))
    return tuple(merges)


def _eos_ids(
    metadata: Mapping[str, Any], ids: Mapping[str, int], types: Sequence[int]
) -> frozenset[int]:
    found = {
        ids[name] for name in _END_TOKENS if name in ids and types[ids[name]] == TokenType.CONTROL
    }
    for key in _END_KEYS:
        if _PREFIX + key not in metadata:
            continue
        id = int(_value(metadata, key, int))
        if not 0 <= id < len(types):
            raise _damaged(f"{_PREFIX}{key} is {id}; the vocabulary has {len(types)} tokens")
        found.add(id)
    return frozenset(found)
