"""A text model without a vocabulary: a token is a byte."""

import codecs
from collections.abc import Mapping, Sequence

from engine.errors import TemplateError

EOS = 256


class ByteDecoder:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        return self._decoder.decode(bytes([id]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteText:
    vocab_size = 257
    eos_ids = frozenset([EOS])
    chat_template = "{{ messages }}"

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode("utf-8", "replace")

    def token_bytes(self, id: int) -> bytes:
        return bytes([id]) if id < 256 else b"<eos>"

    def stream(self) -> ByteDecoder:
        return ByteDecoder()

    def render(
        self,
        messages: Sequence[Mapping],
        tools: Sequence[Mapping] | None,
        settings: Mapping,
    ) -> str:
        if "refuse" in settings:
            raise TemplateError(settings["refuse"])
        if messages[-1]["role"] == "assistant":
            raise TemplateError("no user query found")
        turns = "".join(f"{turn['role']}: {turn['content']}\n" for turn in messages)
        shown = "".join(f"[{name}={value}]" for name, value in sorted(settings.items()))
        return turns + shown + ("<think>\n" if settings.get("enable_thinking") else "")
