"""What a request says of its answer's form, before any engine sees it."""

import base64
import json
from typing import Any

import pytest

from engine.messages import Keys
from engine.server.answer_form import MOST_SCHEMA, answer_form
from engine.server.bodies import ChatBody, ChatMessage
from engine.server.http_errors import ApiError
from tests.engine.server.byte_text import ByteText


class OneTokenText(ByteText):
    """`</think>` is a token."""

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        return [256] if text == "</think>" and parse_special else super().encode(text)


def asked(form: dict[str, Any], **more: Any) -> ChatBody:
    messages = [ChatMessage(role="user", content="x")]
    return ChatBody(messages=messages, response_format=form, **more)


def of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def test_the_form_reaches_the_keys() -> None:
    schema = {"type": "integer"}
    assert answer_form(asked({"type": "text"}), ByteText()) is None
    form = answer_form(asked(of(schema)), OneTokenText())
    assert form is not None
    for thinking, after in ((False, None), (True, 256)):
        keys = form.keys(Keys(seed=4), thinking=thinking)
        assert (keys.seed, keys.schema_after) == (4, after)
        assert json.loads(base64.urlsafe_b64decode(keys.schema or "")) == schema


def test_thinking_without_an_end_is_refused() -> None:
    form = answer_form(asked({"type": "json_object"}), ByteText())
    assert form is not None
    with pytest.raises(ApiError, match="not one token"):
        form.keys(Keys(), thinking=True)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (asked(of({"description": "x" * MOST_SCHEMA})), "characters"),
        (asked(of({"type": "objekt"})), "objekt"),
        (asked({"type": "json_schema", "json_schema": {}}), "not an object"),
        (asked({"type": "xml"}), "'xml' is not text"),
        (asked(of({}), tools=[{"function": {"name": "f"}}]), "call tools"),
    ],
)
def test_what_cannot_be_held(body: ChatBody, what: str) -> None:
    with pytest.raises(ApiError, match=what) as error:
        answer_form(body, ByteText())
    assert error.value.status == 400


def test_hidden_tools_do_no_harm() -> None:
    body = asked(of({}), tools=[{"function": {"name": "f"}}], tool_choice="none")
    assert answer_form(body, ByteText()) is not None
