"""Whatever a grammar lets a model write is a call that fits its tool."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.grammars import _byte_tokenizer, matcher_of
from engine.output_events import ParsedOutput, collect
from engine.output_parser import OutputParser
from engine.tool_grammar import ToolGrammar, tool_grammar

TEXT = {"type": "string"}
ITEM = {"type": "object", "properties": {"kids": {"type": "array", "maxItems": 2, "items": {
    "$ref": "#/$defs/item"}}}, "required": ["kids"], "additionalProperties": False}  # fmt: skip
VALUES: list[dict[str, Any]] = [
    TEXT,
    {},
    {"type": ["string", "null"]},
    {"anyOf": [TEXT, {"type": "null"}], "description": "d"},
    {"enum": ["a b", "", "\n", '"x"', "7"]},
    {"type": "string", "enum": ["a</parameter>", "b"]},
    {"const": "null"},
    {"type": "string", "pattern": "^[ab<]{1,3}$"},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "integer", "minimum": -3, "maximum": 12},
    {"type": "boolean"},
    {"enum": [1, "1", None]},
    {"type": ["integer", "string"], "maxLength": 2},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    {"$ref": "#/$defs/item"},
    {"$ref": "#/$defs/word"},
]
DEFS = {"item": ITEM, "word": {"enum": ["w", "v"]}}


def tool(parameters: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def nested(depth: int) -> Any:
    schema: Any = TEXT
    for _ in range(depth):
        schema = {"anyOf": [schema]}
    return schema


def written(text: str, grammar: ToolGrammar) -> ParsedOutput:
    parser = OutputParser(tools=grammar.written)
    return collect([*parser.push(text), *parser.finish()])


def takes(grammar: ToolGrammar, text: str) -> bool:
    matcher = matcher_of(grammar.text, _byte_tokenizer())
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


def fits(value: Any, schema: Any) -> bool:
    """A validator of the little that `VALUES` say."""
    if "$ref" in schema:
        return fits(value, DEFS[schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    for key, allowed in (("enum", schema.get("enum")), ("const", [schema.get("const")])):
        if key in schema:
            return any(type(value) is type(one) and value == one for one in allowed)
    kinds = {str: "string", int: "integer", bool: "boolean", type(None): "null", list: "array"}
    kind = kinds.get(type(value), "object")
    types = schema.get("type", kind)
    if kind not in ([types] if isinstance(types, str) else types):
        return False
    if kind == "string":
        sound = set(value) <= set("ab<") and 0 < len(value) < 4 if "pattern" in schema else True
        return sound and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 999)
    if kind == "integer":
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if kind == "array" and "items" in schema:
        least, most = schema.get("minItems", 0), schema["maxItems"]
        return least <= len(value) <= most and all(fits(one, schema["items"]) for one in value)
    if kind == "object" and "properties" in schema:
        return set(value) == {"kids"} and fits(value["kids"], schema["properties"]["kids"])
    return True


def walked(grammar: ToolGrammar, chance: random.Random) -> str | None:
    """A text that the grammar allows, by chance, and then by what ends it; None: too long."""
    matcher = matcher_of(grammar.text, _byte_tokenizer())
    text = bytearray()
    end = b"\n</parameter>\n</function>\n</tool_call>"
    while len(text) < 1500:
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [byte for byte in range(257) if mask >> byte & 1]
        if 256 in allowed:
            return text.decode()
        begun = next((n for n in range(len(end) - 1, 0, -1) if text.endswith(end[:n])), 0)
        wanted = [byte for byte in b'ab<7" \n]}' if byte in allowed]
        if chance.random() < 0.75 and (begun or chance.random() < 0.3) and end[begun] in allowed:
            byte = end[begun]
        else:
            byte = chance.choice(wanted or allowed)
        if byte > 127:
            continue
        text.append(byte)
        assert matcher.consume_token(byte)
    return None


@settings(max_examples=60, deadline=None)
@given(
    properties=st.dictionaries(
        st.sampled_from(["a", "b c", "é", 'q"\t\x7f', "x-y.z"]), st.sampled_from(VALUES), max_size=4
    ),
    needed=st.data(),
    strict=st.booleans(),
    chance=st.randoms(use_true_random=False),
)
def test_what_may_be_written_fits(
    properties: dict[str, Any], needed: st.DataObject, strict: bool, chance: random.Random
) -> None:
    required = [name for name in properties if needed.draw(st.booleans())]
    schema = {"type": "object", "properties": properties, "required": required, "$defs": DEFS}
    grammar = tool_grammar([tool(schema, strict=strict), tool(None, "none")], needed=True)
    text = walked(grammar, chance)
    if text is None:
        return
    found = written(text, grammar)
    assert not found.content
    assert len(found.tool_calls) == text.count("</tool_call>") > 0
    for call in found.tool_calls:
        arguments = json.loads(call.arguments)
        if call.name == "none":
            assert arguments == {}
            continue
        assert set(required) <= set(arguments) <= set(properties), text
        for name, value in arguments.items():
            assert fits(value, properties[name]), (text, name, value)


CITY = tool(
    {"type": "object", "properties": {"city": TEXT, "days": {"type": "integer"}},
     "required": ["city"]}, "city")  # fmt: skip
CALL = "<tool_call>\n<function=city>\n{}</function>\n</tool_call>"
ROME = "<parameter=city>\nRome\n</parameter>\n"


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (CALL.format(ROME), True),
        ("\n\n" + CALL.format(ROME), True),
        (CALL.format(ROME) + "\n" + CALL.format(ROME), True),
        (CALL.format(ROME + "<parameter=days>\n3\n</parameter>\n"), True),
        (CALL.format("<parameter=city>\na</parameter\n<parameter=x>\n</parameter>\n"), True),
        ("I look. " + CALL.format(ROME), False),
        ("", False),
        (CALL.format(""), False),
        (CALL.format(ROME + "<parameter=days>\nthree\n</parameter>\n"), False),
        (CALL.format(ROME + "<parameter=country>\nI\n</parameter>\n"), False),
        (CALL.format(ROME).replace("=city>", "=town>", 1), False),
    ],
)
def test_calls_that_are_needed(text: str, good: bool) -> None:
    assert takes(tool_grammar([CITY], needed=True), text) == good


def test_a_strict_tool_may_be_left_alone() -> None:
    grammar = tool_grammar([CITY], needed=False)
    for text in ("", "No <tool> is needed.", f"Look.\n\n{CALL.format(ROME)}\nDone."):
        assert takes(grammar, text)
    assert written(f"Look.\n\n{CALL.format(ROME)}", grammar).content == "Look."
    for text in ("<tool_call>", "Look. " + CALL.format("")):
        assert not takes(grammar, text)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"type": "object"}, {"x": "y", "n": 4}),
        ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": {"type": "integer"}},
         {"a": "1", "x": 2}),
        ({"type": "object", "required": ["x"]}, {"x": "y"}),
        (None, {}),
        ({"$ref": "#/$defs/o", "$defs": {"o": {"type": "object", "properties": {"a": TEXT}}}},
         {"a": "b"}),
    ],
)  # fmt: skip
def test_objects_of_any_kind(schema: Any, arguments: Mapping[str, Any]) -> None:
    grammar = tool_grammar([tool(schema, "city", strict=True)], needed=True)
    text = CALL.format(
        "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    )
    assert takes(grammar, text)
    (call,) = written(text, grammar).tool_calls
    assert json.loads(call.arguments) == arguments


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "is not the schema of an object"),
        ({"type": 5}, "is not the schema of an object"),
        ({"properties": {"a": nested(100)}}, "nested too deep"),
        ({"properties": {"a": nested(900)}}, "nested too deep"),
        ({"properties": {"a": 5}}, "5 is no schema"),
        ({"properties": 5}, "properties: 5 is no object"),
        ({"required": "a"}, "required: \"a\" is no list"),
        ({"properties": {"a": {"type": "string", "pattern": "("}}}, "'(' cannot be held: unclosed"),
        ({"properties": {"a": {"type": "string", "minLength": 10**9}}}, "shortest value of a part"),
        ({"properties": {"a\n": TEXT}}, "cannot be written in a call"),
        ({"properties": {"a": False}}, "no value fits 'a'"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "is no schema"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strict", [False, True])
def test_tools_that_cannot_be_called(schema: Any, why: str, strict: bool) -> None:
    with pytest.raises(RequestError) as error:
        tool_grammar([CITY, tool(schema, strict=strict)], needed=True)
    assert error.value.message.startswith("tools[1].function.parameters: ")
    assert why in error.value.message


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"a": {"type": "array", "uniqueItems": True}}},
        {"properties": {"a": {"type": "string", "format": "uri-of-mine"}}},
        {"properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}]},
    ],
)
def test_what_cannot_be_held_is_left_out_where_it_need_not_be(more: dict[str, Any]) -> None:
    schema = {"type": "object", **more}
    assert tool_grammar([tool(schema)], needed=True)
    with pytest.raises(RequestError, match="be held to"):
        tool_grammar([tool(schema, strict=True)], needed=True)


def test_many_tools() -> None:
    schema = {"type": "object", "properties": {f"p{n}": TEXT for n in range(20)}}
    grammar = tool_grammar([tool(schema, f"tool_{n}") for n in range(150)], needed=True)
    assert takes(grammar, "<tool_call>\n<function=tool_99>\n</function>\n</tool_call>")
