"""Schemas that have no answer, or cost too much, are refused before an engine works on them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schema_values import has_value, subschemas
from engine.schemas import LONGEST_TEXT, MOST_OPTIONAL, MOST_SCHEMA, fault_of

ITSELF = {"$ref": "#"}
TEXT = {"type": "string"}
HUGE = {"type": "array", "minItems": 4, "items": {"type": "string", "minLength": 20_000}}


def object_of(required: bool, **properties: Any) -> dict[str, Any]:
    more = {"required": list(properties)} if required else {}
    return {"type": "object", "properties": properties, **more}


def behind_a_text(schema: Any) -> dict[str, Any]:
    """No answer meets `schema` before it has written a text."""
    return {**object_of(True, a=TEXT, b=object_of(False, c=schema)), "$defs": {"many": MANY}}


def texts(count: int) -> dict[str, Any]:
    return {f"p{number}": TEXT for number in range(count)}


MANY = {"anyOf": [object_of(False, **texts(300))] * 3}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (ITSELF, "no value fits"),
        (object_of(True, a=ITSELF), "no value fits"),
        (object_of(True, a={"anyOf": [ITSELF, {"allOf": [ITSELF]}]}), "no value fits"),
        ({"type": "array", "items": ITSELF, "minItems": 1}, "no value fits"),
        ({"type": "array", "prefixItems": [TEXT, ITSELF], "minItems": 2}, "no value fits"),
        ({"$anchor": "here", "$ref": "#here"}, "lets nothing follow"),
        (
            object_of(False, **texts(520)),
            f"520 properties that are not required, at most {MOST_OPTIONAL}",
        ),
        (MANY, "too complex"),
        ({"pattern": "^a{400000}$"}, f"400000 parts, at most {LONGEST_TEXT}"),
        (object_of(False, a={"pattern": "((a{50}){50}){50}"}), "125000 parts"),
        ({"type": "object", "patternProperties": {"a{5000}": TEXT}}, "5000 parts"),
        ({"const": "ab" * 100_000}, f"200013 characters, at most {MOST_SCHEMA}"),
        ({"enum": [["x", {"y": "z" * 5000}]]}, f"5000 characters, at most {LONGEST_TEXT}"),
        (object_of(False, **{"n" * 5000: TEXT}), "5000 characters"),
        ({"type": "objekt"}, "objekt"),
        (behind_a_text(MANY), "too complex"),
        (behind_a_text({"type": "array", "items": {"$ref": "#/$defs/many"}}), "too complex"),
        (
            behind_a_text({"anyOf": [{"type": "string", "maxLength": n} for n in range(1, 201)]}),
            "too complex",
        ),
        ({"$ref": "#/x"}, "/x"),
        ({"$ref": "http://x/y"}, "'http://x/y' is not in the schema"),
        ({"type": "string", "minLength": 10**9}, "1000000002 characters, at most"),
        ({"type": "array", "minItems": 10**9}, "characters, at most"),
        (object_of(False, a={"type": "array", "minItems": 10**9}), "characters, at most"),
        (
            {"type": "array", "minItems": 999, "items": {"type": "array", "minItems": 99}},
            "shortest value",
        ),
        ({"anyOf": [TEXT, {"$ref": "#/$defs/x"}], "$defs": {"x": HUGE}}, "shortest value"),
        ({"type": "string", "maxLength": 10**30}, "maxLength: 10000"),
        ({"type": "array", "minItems": -1}, "minItems: -1 is not a whole number"),
        ({"type": "string", "minLength": "a"}, "minLength: 'a' is not a whole number"),
        ({"type": "integer", "minimum": 10**30}, "minimum: 1000"),
        ({"pattern": "("}, "pattern '(' cannot be held: unclosed group"),
        ({"pattern": "^(?=a)b"}, "look-ahead and look-behind, is not supported"),
        ({"anyOf": [{"pattern": "a{3,1}"}]}, "invalid repetition count"),
        ({"oneOf": [object_of(False, a=TEXT), object_of(False, b=TEXT)]}, "use anyOf"),
        ({"type": "string", "pattern": "^a$", "format": "date"}, "no text fits all"),
        ({"patternProperties": 5}, "Expected object for 'patternProperties'"),
        ({"type": "array", "uniqueItems": True}, 'cannot be held to keys ["uniqueItems"]'),
        ({"type": "string", "format": "of-mine"}, "cannot be held to the format of-mine"),
    ],
)
def test_what_is_refused(schema: Any, why: str) -> None:
    fault = fault_of(json.dumps(schema))
    assert why in fault
    assert len(fault) < 400, "no inner state of the grammar"


@pytest.mark.parametrize("text", ["[1", "[" * 50_000, "[1]", ""])
def test_what_is_no_schema(text: str) -> None:
    assert fault_of(text)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        TEXT,
        object_of(False, a=ITSELF),
        object_of(True, a={"anyOf": [ITSELF, {"type": "null"}]}),
        object_of(True, a={"type": ["object", "null"], "required": ["b"]}),
        {"type": "array", "items": ITSELF},
        {"type": "array", "prefixItems": [TEXT, ITSELF], "minItems": 1},
        object_of(False, **texts(MOST_OPTIONAL)),
        object_of(True, **texts(600)),
        {"type": "string", "pattern": "^a{4096}$"},
        {"type": "string", "maxLength": 1_000_000},
        {"description": "d" * 5000, "type": "integer"},
        object_of(False, const={"description": "d" * 5000}, pattern=TEXT),
        {"enum": [f"value {number}" for number in range(3000)]},
        {"type": "string", "format": "date-time"},
        {"type": "string", "minLength": 50_000},
        {"type": "array", "minItems": 5000, "items": {"type": "integer"}},
        {"oneOf": [TEXT, {"type": "integer"}]},
    ],
)
def test_what_is_taken(schema: Any) -> None:
    assert fault_of(json.dumps(schema)) == ""


NAMES = ("a", "b", "c")
leaves = st.sampled_from([True, TEXT, {"const": 3}]) | st.sampled_from(
    [{"$ref": f"#/$defs/{name}"} for name in NAMES]
)
schemas: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda x, y: object_of(True, x=x, y=y), inner, inner),
        st.builds(lambda x: object_of(False, x=x), inner),
        st.builds(lambda x, n: {"type": "array", "items": x, "minItems": n}, inner, st.just(1)),
        st.builds(lambda x, y: {"anyOf": [x, y]}, inner, inner),
        st.builds(lambda x: {"allOf": [x]}, inner),
    ),
    max_leaves=4,
)


def written(schema: Any, defs: dict[str, Any], depth: int) -> bool:
    """Whether a value of at most `depth` levels can be written, by trying."""
    if schema is True:
        return True
    if depth == 0:
        return False
    if "$ref" in schema:
        return written(defs[schema["$ref"][-1]], defs, depth - 1)
    if "anyOf" in schema:
        return any(written(one, defs, depth - 1) for one in schema["anyOf"])
    if "allOf" in schema:
        return all(written(one, defs, depth - 1) for one in schema["allOf"])
    if schema.get("type") == "object":
        needed = [schema["properties"][name] for name in schema.get("required", ())]
        return all(written(one, defs, depth - 1) for one in needed)
    if schema.get("type") == "array":
        return written(schema["items"], defs, depth - 1)
    return True


@given(schemas, st.fixed_dictionaries(dict.fromkeys(NAMES, schemas)))
def test_a_value_is_found_wherever_one_can_be_written(root: Any, defs: dict[str, Any]) -> None:
    document = {"$defs": defs, "allOf": [root]}
    found = has_value(document, list(subschemas(document)))
    # A value that needs no schema twice on a way down has at most as many levels as schemas.
    assert found == written(root, defs, 1 + sum(1 for _ in subschemas(document)))


def test_long_chains_take_no_time() -> None:
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(1500)}
    for order in (1, -1):
        defs = {"a1500": TEXT, **dict(list(chain.items())[::order])}
        assert fault_of(json.dumps({"$defs": defs, "$ref": "#/$defs/a0"})) == ""
