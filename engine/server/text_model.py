"""What the server needs of a model: its tokenizer and its chat template, read from the GGUF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from engine.server.turn_cache import TurnCache, splits

TURN = "<|im_start|>"
"""Begins a turn in this family's chats."""


class Decoder(Protocol):
    """Token ids to text in whole characters."""

    def push(self, id: int, /) -> str:
        """The characters that are complete with this token."""
        ...

    def finish(self) -> str:
        """What is left of an incomplete character."""
        ...


class TextModel(Protocol):
    """Text to token ids and back. All methods may be called from any thread."""

    @property
    def vocab_size(self) -> int:
        """Ids are 0 to `vocab_size - 1`."""
        ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer; they are never shown."""
        ...

    @property
    def chat_template(self) -> str:
        """The template's text."""
        ...

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The ids of `text`; with `parse_special` the names of control tokens become tokens."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, control tokens by their names."""
        ...

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token."""
        ...

    def stream(self) -> Decoder:
        """A decoder for one answer, which shows no control tokens."""
        ...

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        settings: Mapping[str, Any],
    ) -> str:
        """The prompt of a chat. Raises `TemplateError` when the template refuses the messages."""
        ...


class GgufText:
    """A `TextModel` of a model file. The file is not kept open."""

    def __init__(self, path: Path, synthetic: str | None = None) -> None:
        # Imported here: tests with another text model need no GGUF reader.
        from engine.gguf.chat_template import ChatTemplate
        from engine.gguf.tokenizer import Tokenizer
        from engine.model_source import open_model

        gguf = open_model(path, synthetic)
        try:
            self._tokenizer = Tokenizer.from_metadata(gguf.metadata)
            self._template = ChatTemplate.from_metadata(gguf.metadata)
        finally:
            gguf.close()
        special = self._tokenizer.special
        turn = TURN if TURN in special and splits(TURN, special) else ""
        self._turns = TurnCache(partial(self._tokenizer.encode, parse_special=True), turn)
        self.vocab_size = self._tokenizer.vocab_size
        self.eos_ids = self._tokenizer.eos_ids
        self.chat_template = self._template.source

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """See `TextModel`."""
        return self._turns.encode(text) if parse_special else self._tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See `TextModel`."""
        return self._tokenizer.decode(ids)

    def token_bytes(self, id: int) -> bytes:
        """See `TextModel`."""
        return self._tokenizer.token_bytes(id)

    def stream(self) -> Decoder:
        """See `TextModel`."""
        return self._tokenizer.stream(skip_special=True)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        settings: Mapping[str, Any],
    ) -> str:
        """See `TextModel`."""
        return self._template.render(messages, tools=tools, **settings)
