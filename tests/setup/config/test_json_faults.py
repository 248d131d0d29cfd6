"""What is not JSON is told in people's words, and exactly what the json module refuses is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from setup.config.json_faults import DEEPEST, find_fault


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        ("", 1, 1, "the file is empty", '"model"'),
        (" \n ", 1, 1, "the file is empty", '"model"'),
        ('{"a": 1,}', 1, 8, "a comma stands before the closing }", "remove the comma"),
        ('{\n "a": [1, 2,\n ]}', 2, 12, "a comma stands before the closing ]", "remove the comma"),
        ('{"a": 1 // one\n}', 1, 9, "a comment (//)", "remove the comment"),
        ('{\n # one\n "a": 1}', 2, 2, "a comment (#)", "remove the comment"),
        ('{"a": /* one */ 1}', 1, 7, "a comment (/*)", "remove the comment"),
        ("{'a': 1}", 1, 2, "a text in single quotes", "double quotes"),
        ("{\"a\": 'x'}", 1, 7, "a text in single quotes", "double quotes"),
        # The place of the comma is told, and the line of what follows it.
        ('{"a": 1\n "b": 2}', 1, 8, 'a comma is missing here, before "b" in line 2', "comma"),
        ("[1 2]", 1, 3, "a comma is missing here, before 2 in line 1", "comma"),
        ('{\n "port": 1,\n "x" 2}', 3, 6, 'a colon is missing after the key "x"', '"x":'),
        ('{"a" = 1}', 1, 6, "= stands where a colon belongs", '"a":'),
        ('{"a": {"b": 1}', 1, 1, "the { that opens here is never closed", "write }"),
        ('{"a": [1, 2', 1, 7, "the [ that opens here is never closed", "write ]"),
        ('{"a": [1, 2}', 1, 12, "} closes nothing: the [ of line 1 is open", "write ]"),
        ('{"a": 1}}', 1, 9, "} stands after the end", "remove"),
        (
            '{"a": 1,\n "b": 2,\n "a": 3}',
            3,
            2,
            '"a" stands here again; it is already in line 1',
            "",
        ),
        ('{"a": {"b": 1, "\\u0062": 2}}', 1, 16, "stands here again", "keep one"),
        ('{"a": NaN}', 1, 7, "NaN is not a number", ""),
        ('{"a": -Infinity}', 1, 7, "-Infinity is not a number", ""),
        ('{"a": 1e999}', 1, 7, "1e999 is too large", "smaller"),
        ('{"a": ' + "1" * 5000 + "}", 1, 7, "a number of 5000 digits", "shorter"),
        ('{"a": True}', 1, 7, "True is not JSON", "write true"),
        ('{"a": None}', 1, 7, "None is not JSON", "write null"),
        ('{"a": TRUE}', 1, 7, "TRUE is not JSON", "write true"),
        ("{a: 1}", 1, 2, "the key a has no quotes", '"a"'),
        ('{"a": int8}', 1, 7, "int8 has no quotes", '"int8"'),
        ('{"a": 08}', 1, 7, "08 is not written as JSON", "zeros"),
        ('{"a": +1}', 1, 7, "+1 is not written as JSON", "+"),
        ('{"a": 0x10}', 1, 7, "0x10 is not written as JSON", "digits"),
        ('{"a": 1.}', 1, 7, "1. is not written as JSON", "digits"),
        ('{"p": "C:\\models"}', 1, 10, "\\m is not an escape", "\\\\"),
        ('{"p": "abc\n}', 1, 7, "no closing quote in its line", '"'),
        ('{"p": "abc', 1, 7, "never closed", '"'),
        ('{"p": "a\tb"}', 1, 9, "a tab stands inside a text", "\\t"),
        ('{"p": "a\x01b"}', 1, 9, "U+0001 stands inside a text", "\\u0001"),
        ('{"a": }', 1, 7, "} stands where a value belongs after :", "value"),
        ("[1,, 2]", 1, 4, "two commas", "remove one"),
        ("[, 1]", 1, 2, ", stands where a value belongs", "remove"),
        ("{, }", 1, 2, ", stands where a key belongs", "double quotes"),
        ("{\u201ca\u201d: 1}", 1, 2, "the quotation mark \u201c", "straight"),
        ('{"a":\u00a01}', 1, 6, "U+00A0, no-break space", "remove"),
        ('{"a": 1};', 1, 9, "the character ;", "remove"),
        ("[" * (DEEPEST + 1), 1, DEEPEST + 1, "nested too deep", "flatten"),
        ('{"a": =}', 1, 7, "the character =", "remove"),
    ],
)
def test_a_fault_has_a_place_words_and_a_hint(
    text: str, line: int, column: int, message: str, hint: str
) -> None:
    fault = find_fault(text)
    assert fault is not None
    assert (fault.line, fault.column) == (line, column)
    assert message in fault.message
    assert hint in fault.hint
    assert fault.hint


class _RefusedError(ValueError):
    pass


def _refuse(_: object) -> Any:
    raise _RefusedError


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RefusedError
    return found


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _accepted(text: str) -> bool:
    """By the json module, without keys that stand twice, NaN and infinity."""
    try:
        json.loads(text, object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return False
    return True


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
_MARKS = "{}[],:\"\\/#*'=+-.0129eEux \t\n\r"
_WORDS = (
    '"a"',
    '"b":',
    "true",
    "null",
    "NaN",
    "True",
    "1e9",
    "// x\n",
    "/* x */",
    "\\n",
    "\\u0041",
)
_ODD = ("\ud800", "\u00a0", "\ufeff", "\x0b", "\x85", "\u0663")
_PIECES = st.sampled_from([*_MARKS, *_WORDS, *_ODD])


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """Sound JSON with one to three pieces put in, taken out or replaced."""
    text = json.dumps(draw(_VALUES), indent=draw(st.sampled_from([None, 1])))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(_PIECES | st.just("")) + text[at + draw(st.integers(0, 2)) :]
    return text


@settings(max_examples=800, deadline=None)
@given(_damaged() | st.lists(_PIECES, max_size=12).map("".join) | st.text(max_size=20))
@example('{"a": "\ud800"}')
@example("-0")
@example("1E+2")
@example("-01")
@example('"\\ud834\\udd1e"')
@example("[1]\x0b")
@example("\ufeff{}")
def test_faults_are_what_the_json_module_refuses(text: str) -> None:
    fault = find_fault(text)
    assert (fault is None) == _accepted(text), fault
    if fault is not None:
        assert 1 <= fault.line <= text.count("\n") + 1
        assert 1 <= fault.column <= len(text) + 1


@settings(max_examples=200, deadline=None)
@given(_VALUES, st.booleans())
def test_what_json_writes_is_sound(value: object, ascii_only: bool) -> None:
    assert find_fault(json.dumps(value, ensure_ascii=ascii_only)) is None


def _long() -> Iterator[str]:
    """Texts of 100 KB that a careless reader would take quadratic time for."""
    for piece in ('"', "'", "\\", '"a', "/*", "[", "1e", "a", "1", ",", '"\\'):
        yield piece * (100_000 // len(piece))
        yield '"' + piece * (100_000 // len(piece))


@pytest.mark.parametrize("text", list(_long()), ids=range(22))
def test_long_nonsense_is_refused_at_once(text: str) -> None:
    """Linear: the whole file takes a second or two, quadratic reading would take an hour."""
    assert find_fault(text) is not None
