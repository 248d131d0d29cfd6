"""Text to token ids and back, by the vocabulary of a GGUF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine.detokenizer import StreamDecoder
from engine.errors import ModelFileError, RequestError
from engine.gguf.vocabulary import TokenType, Vocabulary

if TYPE_CHECKING:
    import tokenizers

# Longer than the longest context of the family needs. The pattern matcher of `tokenizers` aborts
# on a run of ten million spaces, so a limit has to stand somewhere.
MAX_CHARACTERS = 8_000_000
# Tags the output parser reads. They are text even where special tokens are left out, because
# some converters call them control tokens.
OUTPUT_TAGS = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>"})


class Tokenizer:
    """Byte-level BPE. Immutable and safe to use from several threads.

    `vocab_size` counts all ids, unused ones too; `eos_ids` end a turn; `special` maps control,
    unknown and user-defined tokens to ids.

    Texts are not normalised. The tokenizer that Qwen publishes applies NFC; the GGUF does not say
    so, llama.cpp does not do so on the same file, and it would make `decode(encode(x)) == x` false:
    a model asked to repeat a file name in decomposed form could not. For text that is NFC already,
    nearly all there is, the ids are those of the published tokenizer.

    No begin-of-sequence token is ever added: this family has none.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
        self.vocab_size = len(vocabulary.tokens)
        self.eos_ids = vocabulary.eos_ids
        self.special: Mapping[str, int] = MappingProxyType({t: vocabulary.ids[t] for t in special})
        self._vocabulary = vocabulary
        self._hidden = frozenset(
            vocabulary.ids[token]
            for token in vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN)
            if token not in OUTPUT_TAGS
        )
        self._plain, self._parsing = _encoders(vocabulary, special)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Builds it from the `tokenizer.ggml.*` keys of a GGUF.

        Raises UnsupportedModelError for another kind of tokenizer, ModelFileError for keys that
        are missing or contradict each other.
        """
        return cls(Vocabulary.from_metadata(metadata))

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The ids of `text`. Names of control tokens in it become these tokens only with
        `parse_special`, user-defined tokens always do.

        Raises RequestError for half a surrogate pair and for more than MAX_CHARACTERS.
        """
        if len(text) > MAX_CHARACTERS:
            raise RequestError(
                f"the text has {len(text)} characters; the limit is {MAX_CHARACTERS}",
                hint="No model's context is that long: shorten the text.",
            )
        encoder = self._parsing if parse_special else self._plain
        try:
            # The batch call is the one that can leave out character offsets: twice as fast.
            return encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except (TypeError, UnicodeEncodeError):
            raise _not_text(text) from None

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD.

        `skip_special` leaves out control tokens, except the tags that the output parser reads.
        Raises RequestError for an id outside the vocabulary.
        """
        return b"".join(self._shown(id, skip_special) for id in ids).decode(errors="replace")

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token, which need not be whole characters.

        Raises RequestError for an id outside the vocabulary.
        """
        if not 0 <= id < self.vocab_size:
            raise RequestError(
                f"token id {id} is not in the vocabulary of {self.vocab_size} tokens",
                hint=f"Use ids from 0 to {self.vocab_size - 1}.",
            )
        return self._vocabulary.token_bytes(id)

    def stream(self, *, skip_special: bool = True) -> StreamDecoder:
        """A decoder for ids that come one at a time."""
        return StreamDecoder(lambda id: self._shown(id, skip_special))

    def is_text(self, id: int) -> bool:
        """False for tokens that are never shown."""
        return id not in self._hidden

    def _shown(self, id: int, skip_special: bool) -> bytes:
        return b"" if skip_special and id in self._hidden else self.token_bytes(id)


def _encoders(
    vocabulary: Vocabulary, special: Sequence[str]
) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """Two views of one model: without and with control tokens in the text."""
    from tokenizers import AddedToken, Regex, models, pre_tokenizers
    from tokenizers import Tokenizer as Encoder

    try:
        model = models.BPE(dict(vocabulary.ids), list(vocabulary.merges))
    except Exception as error:  # The library raises no narrower type.
        raise ModelFileError(
            f"the tokenizer of the model file cannot be used: {error}",
            hint="Download or convert the file again.",
        ) from error
    pieces = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(vocabulary.pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    plain, parsing = Encoder(model), Encoder(model)
    plain.pre_tokenizer = parsing.pre_tokenizer = pieces
    always = vocabulary.of_type(TokenType.USER_DEFINED)
    plain.add_tokens([AddedToken(token, normalized=False) for token in always])
    parsing.add_tokens([AddedToken(token, normalized=False) for token in special])
    return plain, parsing


def _not_text(text: str) -> RequestError:
    position = next((i for i, char in enumerate(text) if "\ud800" <= char <= "\udfff"), 0)
    return RequestError(
        f"the text is not valid Unicode: half a surrogate pair at character {position}",
        hint="The text was cut inside a character, often an emoji: send whole characters.",
    )
