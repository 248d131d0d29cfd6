"""The shortest value of a schema, beside the shortest of all that fit."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.schema_values import least_characters, subschemas

leaves = st.sampled_from([{}, {"const": 7}]) | st.builds(
    lambda n: {"type": "string", "minLength": n}, st.integers(0, 4)
)
schemas: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda x, n: {"type": "array", "items": x, "minItems": n}, inner, st.integers(0, 3)
        ),
        st.builds(
            lambda x, y: {"type": "object", "properties": {"x": x, "y": y}, "required": ["x"]},
            inner,
            inner,
        ),
        st.builds(lambda x, y: {"anyOf": [x, y]}, inner, inner),
    ),
    max_leaves=4,
)


def shortest(schema: Any) -> str:
    """A shortest value, by writing it."""
    if "anyOf" in schema:
        return min(map(shortest, schema["anyOf"]), key=len)
    match schema.get("type"):
        case "string":
            return json.dumps("a" * schema["minLength"])
        case "array":
            return "[" + ",".join([shortest(schema["items"])] * schema["minItems"]) + "]"
        case "object":
            return '{"x":' + shortest(schema["properties"]["x"]) + "}"
    return "7"


@given(schemas)
def test_no_value_is_shorter(schema: Any) -> None:
    nodes = list(subschemas(schema))
    assert least_characters(schema, nodes) <= max(len(shortest(node)) for node in nodes)
    assert least_characters(schema, nodes) >= max(len(shortest(node)) for node in nodes) - 4 * len(
        nodes
    )


def test_what_refers_to_itself_is_followed() -> None:
    node = {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "minItems": 5}
    assert 5 <= least_characters(node, list(subschemas(node))) <= len("[null,null,null,null,null]")
