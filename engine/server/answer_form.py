"""`response_format`, calls that are asked for, and limits of reasoning: from the body to what the
engine holds answers to."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.errors import RequestError
from engine.messages import Keys
from engine.output_parser import THINK_END
from engine.schemas import fault_of, grammar_of
from engine.server.bodies import ChatBody
from engine.server.http_errors import bad_field
from engine.server.text_model import TextModel
from engine.server.tool_choice import ToolChoice
from engine.tool_grammar import tool_grammar

_KINDS = "text, json_object or json_schema"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """A text of `grammar` (None: any) behind at most `think_most` tokens of reasoning (None: any
    number). `field`: what of the request asked for it. `think_end`: the token that ends reasoning;
    None: it is not one token."""

    field: str
    grammar: str | None
    think_end: int | None
    think_most: int | None
    tools: Sequence[Mapping[str, Any]] | None = None
    """The tools as the calls of such an answer are read."""

    def keys(self, keys: Keys, *, thinking: bool) -> Keys:
        """`keys` with this form. Raises `ApiError` 400 when the reasoning before it has no end."""
        if thinking and self.think_end is None:
            raise bad_field(self.field, f"this model's {THINK_END} is not one token")
        word = None
        if self.grammar is not None:
            word = base64.urlsafe_b64encode(self.grammar.encode()).decode()
        end, most = (self.think_end, self.think_most) if thinking else (None, None)
        return msgspec.structs.replace(keys, grammar=word, think_end=end, think_most=most)


def answer_form(
    body: ChatBody, text: TextModel, think_most: int, choice: ToolChoice
) -> AnswerForm | None:
    """What the answer must be; None: anything. `think_most`: where the request says nothing of its
    reasoning; 0: any number. Raises `ApiError` 400 naming the field at fault."""
    schema = None if body.response_format is None else _schema(body.response_format)
    asked = body.reasoning_budget_tokens
    most = (think_most if asked is None else asked) or None
    if schema is not None and choice.tools:
        raise bad_field("response_format", "an answer cannot keep to it and call tools")
    field, grammar, tools = "reasoning_budget_tokens", None, None
    if schema is not None:
        field, grammar = "response_format", grammar_of(schema)
    elif choice.holds:
        field = "tool_choice" if choice.needed else "tools"
        grammar, tools = _calls(choice)
    if grammar is None and most is None:
        return None
    ids = text.encode(THINK_END, parse_special=True)
    end = ids[0] if len(ids) == 1 else None
    if grammar is None and asked is None and end is None:
        return None
    return AnswerForm(field, grammar, end, most, tools)


def _calls(choice: ToolChoice) -> tuple[str, Sequence[Mapping[str, Any]]]:
    try:
        found = tool_grammar(choice.callable, needed=choice.needed)
    except RequestError as error:
        place, _, why = error.message.partition(": ")
        raise bad_field(place, why) from None
    return found.text, found.written


def _schema(asked: Mapping[str, Any]) -> str | None:
    if "type" not in asked:
        raise bad_field("response_format.type", f"is missing, it is {_KINDS}")
    kind = asked["type"]
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
    fault = fault_of(text)
    if fault:
        raise bad_field("response_format.json_schema.schema", fault)
    return text
