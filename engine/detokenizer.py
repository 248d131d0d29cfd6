"""Token ids to text, one at a time, in whole characters."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Joins the bytes of tokens and gives out text as soon as its characters are complete.

    The texts of all `push` calls and of `finish`, joined, are the decoded bytes of all tokens with
    U+FFFD for what is not UTF-8, wherever the borders of the tokens lie. At most three bytes are
    held back, so a token costs its own length only.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        """The characters that token `id` completes. Raises what `token_bytes` raises."""
        return self._decoder.decode(self._token_bytes(id))

    def finish(self) -> str:
        """U+FFFD for a character that was begun and not completed; the decoder is new again."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
