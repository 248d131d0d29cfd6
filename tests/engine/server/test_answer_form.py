"""What a request says of its answer's form, before any engine sees it."""

import base64
import json
from typing import Any

import pytest

from engine.messages import Keys
from engine.schemas import MOST_SCHEMA
from engine.server.answer_form import AnswerForm
from engine.server.answer_form import answer_form as form_of
from engine.server.bodies import ChatBody, ChatMessage
from engine.server.http_errors import ApiError
from engine.server.text_model import TextModel
from engine.server.tool_choice import tool_choice
from tests.engine.server.byte_text import ByteText


class OneTokenText(ByteText):
    """`</think>` is a token."""

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        return [256] if text == "</think>" and parse_special else super().encode(text)


def answer_form(body: ChatBody, text: TextModel, think_most: int) -> AnswerForm | None:
    return form_of(body, text, think_most, tool_choice(body))


def asked(form: dict[str, Any], **more: Any) -> ChatBody:
    messages = [ChatMessage(role="user", content="x")]
    return ChatBody(messages=messages, response_format=form, **more)


def of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def test_the_form_reaches_the_keys() -> None:
    schema = {"type": "integer"}
    assert answer_form(asked({"type": "text"}), ByteText(), 0) is None
    form = answer_form(asked(of(schema)), OneTokenText(), 0)
    assert form is not None
    for thinking, after in ((False, None), (True, 256)):
        keys = form.keys(Keys(seed=4), thinking=thinking)
        assert (keys.seed, keys.think_end) == (4, after)
        grammar = json.loads(base64.urlsafe_b64decode(keys.grammar or ""))
        assert grammar["grammars"][0]["json_schema"]["type"] == "integer"


def test_thinking_without_an_end_is_refused() -> None:
    form = answer_form(asked({"type": "json_object"}), ByteText(), 0)
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
        answer_form(body, ByteText(), 0)
    assert error.value.status == 400


def test_hidden_tools_do_no_harm() -> None:
    body = asked(of({}), tools=[{"function": {"name": "f"}}], tool_choice="none")
    assert answer_form(body, ByteText(), 0) is not None


def test_a_limit_of_reasoning() -> None:
    """The request's, else the server's; only where the model thinks, and can be told to stop."""
    text = {"type": "text"}
    for body, most, expected in (
        (asked(text), 0, None),
        (asked(text), 9, 9),
        (asked(text, reasoning_budget_tokens=4), 9, 4),
        (asked(text, reasoning_budget_tokens=0), 9, None),
    ):
        form = answer_form(body, OneTokenText(), most)
        assert (form.think_most if form else None) == expected
        if form:
            keys = form.keys(Keys(), thinking=True)
            assert (keys.grammar, keys.think_end, keys.think_most) == (None, 256, expected)
            assert form.keys(Keys(), thinking=False) == Keys()
    assert answer_form(asked(text), ByteText(), 9) is None
    form = answer_form(asked(text, reasoning_budget_tokens=4), ByteText(), 0)
    assert form is not None
    with pytest.raises(ApiError, match="reasoning_budget_tokens"):
        form.keys(Keys(), thinking=True)
