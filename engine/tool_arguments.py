"""Values of tool parameters, written by a model as plain text, as pieces of a JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_STRING = "string"
_JSON_NAMES = {str: _STRING, bool: "boolean", type(None): "null", dict: "object", list: "array"}
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_REFERENCE_DEPTH = 8


class ParameterTypes:
    """The JSON types that the parameters of the tools may have, by their schemas."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """`tools` in the shape of the OpenAI API, `{"function": {...}}` or only what is inside."""
        functions = [tool.get("function", tool) for tool in tools if isinstance(tool, Mapping)]
        self._schemas = {
            str(function.get("name", "")): function.get("parameters") or {}
            for function in functions
            if isinstance(function, Mapping)
        }

    def of(self, function: str, parameter: str) -> frozenset[str]:
        """Names of JSON types; empty where the schema leaves them open or is not known."""
        root = self._schemas.get(function)
        properties = root.get("properties") if isinstance(root, Mapping) else None
        schema = properties.get(parameter) if isinstance(properties, Mapping) else None
        return _types(schema, root, _REFERENCE_DEPTH)


class ObjectWriter:
    """Writes the arguments of one call as JSON text, in pieces, as the values come in.

    A string is passed on while it grows; a value of another type only when it is complete.
    """

    def __init__(self) -> None:
        self._count = 0
        self._types: frozenset[str] = frozenset()
        self._pieces: list[str] = []
        self._line_end = ""
        self._at_start = True

    def begin(self, name: str, types: frozenset[str]) -> str:
        """Opens parameter `name`."""
        start = ("{" if self._count == 0 else ", ") + _quote(name) + ": "
        self._count += 1
        self._types, self._pieces, self._line_end, self._at_start = types, [], "", True
        return start + ('"' if self._is_text else "")

    def add(self, text: str) -> str:
        """More of the open parameter's value. One line break at its start and one at its end
        belong to the tags around it."""
        if self._at_start and text:
            text, self._at_start = text.removeprefix("\n"), False
        if not text:
            return ""
        text = self._line_end + text
        self._line_end = "\n" if text.endswith("\n") else ""
        text = text.removesuffix("\n")
        if self._is_text:
            return _quote(text)[1:-1]
        self._pieces.append(text)
        return ""

    def end(self) -> str:
        """Closes the open parameter."""
        return '"' if self._is_text else json_value("".join(self._pieces), self._types)

    def close(self) -> str:
        """Closes the object."""
        return "}" if self._count else "{}"

    @property
    def _is_text(self) -> bool:
        return self._types == {_STRING}


def json_value(text: str, types: frozenset[str]) -> str:
    """`text` as JSON: itself where it is JSON of an allowed type, otherwise a JSON string.

    Empty `types` allow all. Where a string is not allowed, any JSON is better than a string. JSON
    is passed on as it was written, so that no digit of a number changes.
    """
    bare = text.strip()
    if not types or types & {"boolean", "null"}:
        bare = _PYTHON_WORDS.get(bare, bare)
    try:
        value = json.loads(bare, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return _quote(text)
    kind = _JSON_NAMES.get(type(value)) or ("integer" if isinstance(value, int) else "number")
    allowed = not types or kind in types or (kind == "integer" and "number" in types)
    # A JSON string in quotes, for a value that may be text, is taken as its content.
    return bare if allowed or _STRING not in types else _quote(text)


def _types(schema: Any, root: Any, depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or depth == 0:
        return frozenset()
    if isinstance(schema.get("$ref"), str):
        return _types(_referenced(schema["$ref"], root), root, depth - 1)
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, Sequence):
        return frozenset(name for name in kind if isinstance(name, str))
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), Sequence):
            parts = [_types(part, root, depth - 1) for part in schema[word]]
            return frozenset().union(*parts) if all(parts) else frozenset()
    values = schema.get("enum", [schema["const"]] if "const" in schema else ())
    if isinstance(values, Sequence) and values and all(isinstance(v, str) for v in values):
        return frozenset({_STRING})
    return frozenset()


def _referenced(reference: str, root: Any) -> Any:
    """What a reference inside the same schema points to, None where it points nowhere."""
    at = root
    for part in reference.removeprefix("#").split("/")[1:]:
        at = at.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(at, Mapping) else None
    return at if reference.startswith("#") else None


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
