"""`response_format` of a request: from the body to what the engine holds the answer to."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.constraints import fault_of
from engine.messages import Keys
from engine.output_parser import THINK_END
from engine.server.bodies import ChatBody
from engine.server.http_errors import bad_field
from engine.server.text_model import TextModel

MOST_SCHEMA = 1 << 18
"""Characters of a schema."""
_KINDS = "text, json_object or json_schema"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """JSON of `schema` (JSON text). `think_end`: the token that ends reasoning; None: it is not one
    token, and there can be no reasoning before the answer."""

    schema: str
    think_end: int | None

    def keys(self, keys: Keys, *, thinking: bool) -> Keys:
        """`keys` with this form. Raises `ApiError` 400 when the reasoning before it has no end."""
        if thinking and self.think_end is None:
            raise bad_field("response_format", f"this model's {THINK_END} is not one token")
        word = base64.urlsafe_b64encode(self.schema.encode()).decode()
        after = self.think_end if thinking else None
        return msgspec.structs.replace(keys, schema=word, schema_after=after)


def answer_form(body: ChatBody, text: TextModel) -> AnswerForm | None:
    """What the answer must be; None: anything. Raises `ApiError` 400 naming the field at fault."""
    schema = _schema(body.response_format or {})
    if schema is None:
        return None
    if body.tools and body.tool_choice != "none":
        raise bad_field("response_format", "an answer cannot keep to it and call tools")
    end = text.encode(THINK_END, parse_special=True)
    return AnswerForm(schema, end[0] if len(end) == 1 else None)


def _schema(asked: Mapping[str, Any]) -> str | None:
    kind = asked.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return '{"type":"object"}'
    if kind != "json_schema":
        raise bad_field("response_format.type", f"{kind!r} is not {_KINDS}")
    holder = asked.get("json_schema")
    schema = holder.get("schema") if isinstance(holder, dict) else None
    if not isinstance(schema, dict):
        raise bad_field("response_format.json_schema.schema", "is not an object")
    text = msgspec.json.encode(schema).decode()
    if len(text) > MOST_SCHEMA:
        what = f"has {len(text)} characters, at most {MOST_SCHEMA} are allowed"
        raise bad_field("response_format.json_schema.schema", what)
    fault = fault_of(text)
    if fault:
        raise bad_field("response_format.json_schema.schema", fault)
    return text
