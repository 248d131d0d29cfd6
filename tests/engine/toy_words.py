"""A tokenizer for the toy model whose tokens are those of JSON and of calls of tools."""

from tests.engine.toy_pipeline import VOCAB

EOS = 58


class ToyWords:
    """The toy model's tokens: characters, some pairs of them, an end."""

    vocab_size = VOCAB
    eos_ids = frozenset({EOS})
    texts = (
        *'{}[]":, \nabcdefghijklmnopqrstuvwxyz0123456789-',
        *('":', '",', '{"', "tr", "ue", "yy"),
        *"<>/=_",
    )

    def encode(self, text: str) -> list[int]:
        return [self.texts.index(char) for char in text]

    def token_bytes(self, id: int) -> bytes:
        return self.texts[id].encode() if id < len(self.texts) else b"<%d>" % id

    def is_text(self, id: int) -> bool:
        return id < len(self.texts)
