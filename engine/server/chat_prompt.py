"""From the body of a chat request to the prompt that the model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.errors import TemplateError
from engine.output_parser import CALL, FUNCTION, THINK, THINK_END
from engine.server.answer_form import AnswerForm, answer_form
from engine.server.bodies import ChatBody, ChatMessage
from engine.server.http_errors import bad_field
from engine.server.text_model import TextModel

_EFFORTS = {
    **dict.fromkeys(("none", "off", "minimal", "disabled"), "none"),
    "low": "low",
    "medium": "medium",
    **dict.fromkeys(("high", "xhigh", "max"), "xhigh"),
}


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered chat. `thinking`: the prompt ends inside the model's reasoning; `opening`: the
    beginning of the answer that the prompt holds already."""

    ids: tuple[int, ...]
    thinking: bool
    tools: Sequence[Mapping[str, Any]] | None
    opening: str = ""
    form: AnswerForm | None = None
    """What the answer must be."""


def chat_prompt(body: ChatBody, text: TextModel, think_most: int = 0) -> ChatPrompt:
    """Render and encode. `think_most`: see `answer_form`. Raises `ApiError` 400 naming the field at
    fault."""
    tools = _tools(body)
    opening = _opening(body)
    if opening and body.continue_final_message:
        raise bad_field("tool_choice", "asks for a call, but the answer has begun as text")
    settings = _settings(body)
    form = answer_form(body, text, think_most)
    messages = _messages(body.messages)
    begun = opening or _begun(body, messages)
    if begun or (form and form.schema and form.think_end is None):
        # An answer that has begun leaves no room to think first.
        settings["enable_thinking"] = False
    try:
        prompt = text.render(messages, tools, settings)
    except TemplateError as error:
        raise bad_field("messages", error.message) from None
    thinking = prompt.rstrip().endswith(THINK)
    if begun and thinking:  # the template has no other way
        prompt += f"\n{THINK_END}\n\n"
    ids = tuple(text.encode(prompt + begun, parse_special=True))
    return ChatPrompt(ids, thinking and not begun, tools, opening, form)


def _tools(body: ChatBody) -> list[dict[str, Any]] | None:
    for number, tool in enumerate(body.tools or ()):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if tool.get("type", "function") != "function" or not isinstance(name, str) or not name:
            raise bad_field(f"tools[{number}]", "is not a function with a name")
    return None if body.tool_choice == "none" else body.tools or None


def _opening(body: ChatBody) -> str:
    """How the answer must begin, by `tool_choice`: a call, or a call of one function."""
    choice = body.tool_choice
    if choice in (None, "auto", "none"):
        return ""
    names = [tool["function"]["name"] for tool in body.tools or ()]
    if not names:
        raise bad_field("tool_choice", "asks for a call, but there are no tools")
    if choice == "required":
        return f"{CALL}\n{FUNCTION}"
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if name not in names:
        raise bad_field("tool_choice", f"is not auto, none, required or one of {', '.join(names)}")
    return f"{CALL}\n{FUNCTION}{name}>\n"


def _begun(body: ChatBody, messages: list[dict[str, Any]]) -> str:
    """The text of a last turn that the answer continues, which is taken out of `messages`."""
    if not body.continue_final_message:
        return ""
    last = messages.pop()
    if last["role"] != "assistant" or last.get("tool_calls") or not last["content"]:
        raise bad_field("messages", "the last turn is no assistant's text that can be continued")
    if not messages:
        raise bad_field("messages", "nothing stands before the turn that is to be continued")
    if body.response_format and body.response_format.get("type") != "text":
        raise bad_field("response_format", "is for whole answers, and this one has begun")
    return str(last["content"])


def _settings(body: ChatBody) -> dict[str, Any]:
    """The template's settings; what is said nearest to the model's own names wins."""
    asked = body.reasoning_effort
    if asked is None and body.reasoning is not None:
        asked = body.reasoning.get("effort")
    settings: dict[str, Any] = {}
    if asked is not None:
        effort = _EFFORTS.get(str(asked).lower())
        if effort is None:
            raise bad_field("reasoning_effort", f"{asked!r} is not one of {', '.join(_EFFORTS)}")
        settings["enable_thinking"] = effort != "none"
        if effort != "none":
            settings["reasoning_effort"] = effort
    if body.enable_thinking is not None:
        settings["enable_thinking"] = body.enable_thinking
    settings.update(body.chat_template_kwargs or {})
    for name in ("messages", "tools", "add_generation_prompt"):
        settings.pop(name, None)
    return settings


def _messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The turns as templates expect them: text contents, `developer` is `system`.

    Templates of this family take a system turn at the start only; a later one is read as a user's.
    """
    turns = []
    for number, message in enumerate(messages):
        turn = {k: v for k, v in msgspec.to_builtins(message).items() if v is not None}
        if message.role == "developer":
            turn["role"] = "system"
        if turn["role"] == "system" and number > 0:
            turn["role"] = "user"
        if message.role == "function":
            turn["role"] = "tool"
        turn["content"] = _content(message, number)
        if message.tool_calls:
            turn["tool_calls"] = [_call(call) for call in turn["tool_calls"]]
        turns.append(turn)
    return turns


def _content(message: ChatMessage, number: int) -> str:
    if message.content is None and not (message.role == "assistant" and message.tool_calls):
        raise bad_field(f"messages[{number}].content", "is missing")
    if isinstance(message.content, str):
        return message.content
    for at, part in enumerate(message.content or ()):
        if part.type not in ("text", "input_text", "output_text"):
            raise bad_field(
                f"messages[{number}].content[{at}]", f"{part.type!r} is not supported, only text"
            )
    return "".join(part.text for part in message.content or ())


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a mapping; text that is not JSON is shown to the model as it is."""
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        try:
            function["arguments"] = msgspec.json.decode(function["arguments"] or "{}", type=dict)
        except msgspec.MsgspecError:
            function["arguments"] = {"arguments": function["arguments"]}
    return {**call, "function": function}
