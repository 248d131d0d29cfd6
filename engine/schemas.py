"""Which JSON schemas an answer can be held to.

What is large, or becomes large when it is written out, is refused before a grammar is made of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from engine.errors import RequestError
from engine.grammars import TOO_DEEP, try_grammar
from engine.regex_size import regex_size
from engine.schema_values import branching, has_value, least_characters, properties_of, subschemas

MOST_SCHEMA = 1 << 16
"""Characters of a schema, and of the shortest value that fits it."""
LONGEST_TEXT = 4096
"""Characters of a text that is to be written as it stands, or of a pattern's written-out form."""
MOST_OPTIONAL = 400
"""Properties of one object that may be left out: each is a branch at every comma."""
_TRIED = 16
"""Parts of a schema that are tried for themselves: those with the most alternatives."""
LARGEST = 2**63 - 1
"""A limit of a number, or of a length."""
OPTIONS: Any = {"whitespace_pattern": r"( |\n[ \t]{0,16})?"}
"""White space between JSON's tokens: a space, or a line's end with its indent; never more."""
_LENGTHS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_RANGES = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def grammar_of(schema: str) -> str:
    """The grammar of JSON that fits `schema`. Raises `RequestError` for text that is no JSON."""
    from llguidance import LLMatcher

    try:
        return str(LLMatcher.grammar_from_json_schema(schema, overrides=OPTIONS))
    except ValueError as error:
        if "recursion limit" in str(error):
            raise TOO_DEEP from None
        raise RequestError(f"the schema is no JSON object: {error}") from None


@lru_cache(64)
def fault_of(schema: str) -> str:
    """Why no answer can be held to `schema` (JSON text); empty: one can."""
    try:
        check_schema(schema, OPTIONS)
        try_grammar(grammar_of(schema))
    except RecursionError:
        return TOO_DEEP.message
    except RequestError as error:
        return error.message
    return ""


def alone(node: dict[str, Any], root: Any, options: Any) -> dict[str, Any]:
    """The subschema `node` of `root` as a schema of its own; what it refers to comes with it.
    `options`: llguidance's."""
    whole = {**node, "x-guidance": options}
    if '"$ref"' not in json.dumps(node):
        return whole
    return {**_moved(whole), "$defs": {"root": _moved(root)}}


def _moved(schema: Any) -> Any:
    """`schema` where the root that it refers to is the definition `root` of another."""
    if isinstance(schema, list):
        return [_moved(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            value = f"#/$defs/root{value[1:]}"
        elif key not in ("const", "enum", "default", "examples"):
            value = _moved(value)
        moved[key] = value
    return moved


def check_schema(schema: str, options: Any) -> None:
    """Raise `RequestError` where nothing fits `schema` (JSON text), or its grammar would be too
    large anywhere in it. `options`: llguidance's."""
    if len(schema) > MOST_SCHEMA:
        raise _more("it", len(schema), MOST_SCHEMA, "characters")
    try:
        root = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the schema is no JSON object: {error}") from None
    nodes = list(subschemas(root))
    for node in nodes:
        _check_numbers(node)
        _check_costs(node)
    if not has_value(root, nodes):
        raise RequestError("no value fits it: what it requires leads back to itself for ever")
    least = least_characters(root, nodes)
    if least > MOST_SCHEMA:
        raise _more("the shortest value of a part of it", least, MOST_SCHEMA, "characters")
    for node in branching(root, nodes)[:_TRIED]:
        try_grammar(grammar_of(json.dumps(alone(node, root, options))))


def _check_numbers(node: dict[str, Any]) -> None:
    """Raise `RequestError` where a limit is none, or points out of the schema."""
    for key in _LENGTHS:
        value = node.get(key, 0)
        if type(value) is not int or not 0 <= value <= LARGEST:
            raise RequestError(f"{key}: {value!r} is not a whole number from 0 to {LARGEST}")
    for key in _RANGES:
        value = node.get(key, 0)
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise RequestError(f"{key}: {value!r} is more than {LARGEST}; leave it out")
    ref = node.get("$ref")
    if isinstance(ref, str) and not ref.startswith("#"):
        raise RequestError(f"$ref: {ref[:80]!r} is not in the schema, where '#/...' would be")


def _check_costs(node: dict[str, Any]) -> None:
    """Raise `RequestError` where the grammar of `node` alone would be too large."""
    for text in (*_texts(node.get("const")), *_texts(node.get("enum")), *properties_of(node)):
        if len(text) > LONGEST_TEXT:
            raise _more(f"the text {text[:20]!r}...", len(text), LONGEST_TEXT, "characters")
    named = node.get("patternProperties")
    for pattern in (*(named if isinstance(named, dict) else ()), node.get("pattern")):
        size = regex_size(pattern) if isinstance(pattern, str) else 0
        if size > LONGEST_TEXT:
            raise _more(f"the pattern {pattern[:40]!r}", size, LONGEST_TEXT, "parts")
    required = node.get("required")
    optional = properties_of(node) - set(_texts(required if isinstance(required, list) else []))
    if len(optional) > MOST_OPTIONAL:
        raise _more("an object", len(optional), MOST_OPTIONAL, "properties that are not required")


def _texts(value: Any) -> Iterator[str]:
    """The texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        if isinstance(value, dict):
            yield from value
            value = value.values()
        for one in value:
            yield from _texts(one)


def _more(what: str, count: int, most: int, unit: str) -> RequestError:
    return RequestError(f"{what} has {count} {unit}, at most {most} are allowed")
