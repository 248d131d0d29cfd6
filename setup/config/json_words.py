"""Sentences about single faults of JSON text: (message, hint)."""

from __future__ import annotations

import re
import unicodedata

_LONGEST = 40
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_LITERALS = ("true", "false", "null")
_UNKNOWN = ("nan", "infinity", "inf", "undefined")
_ESCAPES = 'the escapes are \\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u with four hex digits'


def quoted(text: str) -> str:
    """`text`, cut when it is long; a character that cannot be seen by its code."""
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return short if short.isprintable() and short.strip() else ascii(short)[1:-1]


def bare_word(word: str) -> tuple[str, str]:
    """What a word without quotes, or a number of another language, should have been."""
    shown = quoted(word)
    if word in _PYTHON:
        return f"{word} is not JSON", f"write {_PYTHON[word]}"
    if word.lower() in _LITERALS:
        return f"{shown} is not JSON", f"write {word.lower()}"
    if word.lstrip("+-").lower() in _UNKNOWN:
        return f"{shown} is not a number that JSON has", "write a number, or remove the key"
    if re.match(r"[+-]?\.?[0-9]", word):
        return f"{shown} is not written as JSON writes numbers", _number_hint(word)
    return f"{shown} has no quotes", f'write "{shown}" if it is a text'


def _number_hint(word: str) -> str:
    if re.fullmatch(r"-?0[0-9]+", word):
        return "write it without zeros in front"
    if word.startswith("+"):
        return "write it without the +"
    return "write digits, as in 1024 or 0.5, or a text in double quotes"


def stray(character: str) -> tuple[str, str]:
    """A character that has no place outside of texts."""
    name = unicodedata.name(character, "").lower()
    shown = character if character.isprintable() and character.strip() else ""
    code = f"U+{ord(character):04X}" + (f", {name}" if name else "")
    return f"the character {shown or code} has no place here", f"remove it ({code})"


def open_text(text: str, at: int) -> tuple[int, str, str]:
    """Why the text whose first quote stands at `at` is not sound: place, message, hint."""
    place = at + 1
    while place < len(text):
        character = text[place]
        if character == '"':
            break
        if character == "\n" or text[place : place + 2] == "\r\n":
            return at, "a text that starts here has no closing quote in its line", 'write the "'
        if character < " ":
            what = "a tab" if character == "\t" else f"the character U+{ord(character):04X}"
            escape = "\\t" if character == "\t" else f"\\u{ord(character):04x}"
            return place, f"{what} stands inside a text", f"write {escape}"
        if character == "\\":
            length = _escape_length(text, place)
            if not length:
                return place, *_bad_escape(text[place : place + 2])
            place += length
        else:
            place += 1
    return at, "a text that starts here is never closed", 'write the closing "'


def _escape_length(text: str, at: int) -> int:
    found = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})').match(text, at)
    return len(found[0]) if found else 0


def _bad_escape(start: str) -> tuple[str, str]:
    hint = f"write \\\\ for a backslash, or / in a path; {_ESCAPES}"
    return f"{quoted(start)} is not an escape of JSON", hint
