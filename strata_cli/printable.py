"""Text that is safe to print, whatever a file, a server or a driver put into it."""

from __future__ import annotations

import json
import re
from typing import Any

_CONTROL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # all of C0 and C1 but the tab
    "\u2028\u2029"  # line ends of Unicode
    "\u202a-\u202e\u2066-\u2069"  # they turn the order of what is read
    "\ud800-\udfff]"  # halves of surrogate pairs, and bytes of a path that are no text
)
_NO_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def line(text: str) -> str:
    """One line: control characters, line ends too, as their escapes."""
    return _CONTROL.sub(_escape, text)


def lines(text: str) -> str:
    """A text that may have several lines, such as an answer."""
    return "\n".join(map(line, text.split("\n")))


def json_text(value: Any, encoding: str = "utf-8") -> str:
    """A JSON document that a stream of this encoding takes."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    text = _NO_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(value, indent=1)
    return text


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] == "\n":
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
