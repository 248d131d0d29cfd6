"""What a server says, before it is shown to a person or counted with."""

from __future__ import annotations

_MOST_DIGITS = 15


def shown(text: object, most: int = 80) -> str:
    """`text` in one line of at most `most` printable ASCII characters; the rest is escaped or cut.

    A terminal obeys control characters, and a page of HTML is no message.
    """
    plain = "".join(
        char if char.isascii() and char.isprintable() else ascii(char)[1:-1]
        for char in str(text)[:most]
    )
    return plain if len(plain) <= most and len(str(text)) <= most else plain[: most - 3] + "..."


def whole_number(text: str) -> int | None:
    """The number of a header, below 10^15; None for anything else, such as digits of other scripts
    (which `isdigit` takes and `int` may not)."""
    text = text.strip()
    digits = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if digits else None
