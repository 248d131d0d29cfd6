"""From the body of a chat request to the prompt that the model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.errors import TemplateError
from engine.output_parser import THINK, THINK_END
from engine.server.answer_form import AnswerForm, answer_form
from engine.server.bodies import ChatBody, ChatMessage
from engine.server.http_errors import bad_field
from engine.server.text_model import TextModel
from engine.server.tool_choice import Tool, ToolChoice, tool_choice

_EFFORTS = {
    **dict.fromkeys(("none", "off", "minimal", "disabled"), "none"),
    "low": "low",
    "medium": "medium",
    **dict.fromkeys(("high", "xhigh", "max"), "xhigh"),
}


_REASONING = frozenset({"effort", "summary", "generate_summary", "exclude"})


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered chat. `thinking`: the prompt ends inside the model's reasoning."""

    ids: tuple[int, ...]
    thinking: bool
    choice: ToolChoice
    form: AnswerForm | None = None
    """What the answer must be."""


def chat_prompt(body: ChatBody, text: TextModel, think_most: int = 0) -> ChatPrompt:
    """Render and encode. `think_most`: see `answer_form`. Raises `ApiError` 400 naming the field at
    fault."""
    choice = tool_choice(body)
    if choice.needed and body.continue_final_message:
        raise bad_field("tool_choice", "asks for a call, but the answer has begun as text")
    settings = _settings(body)
    form = answer_form(body, text, think_most, choice)
    messages = _messages(body.messages)
    begun = _begun(body, messages)
    if begun or (form and form.grammar and form.think_end is None):
        # An answer that has begun leaves no room to think first.
        settings["enable_thinking"] = False
    prompt = _rendered(text, messages, choice.tools, settings, body.chat_template_kwargs or {})
    thinking = prompt.rstrip().endswith(THINK)
    if begun and thinking:  # the template has no other way
        prompt += f"\n{THINK_END}\n\n"
    ids = tuple(text.encode(prompt + begun, parse_special=True))
    return ChatPrompt(ids, thinking and not begun, choice, form)


def _rendered(
    text: TextModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool],
    settings: Mapping[str, Any],
    kwargs: Mapping[str, Any],
) -> str:
    """The template's text. Where it fails, what it does not fail without is at fault."""
    try:
        return text.render(messages, tools or None, settings)
    except TemplateError as error:
        plain = {name: value for name, value in settings.items() if name not in kwargs}
        if kwargs and _renders(text, messages, tools, plain):
            raise bad_field("chat_template_kwargs", error.message) from None
        if tools and _renders(text, messages, (), settings):
            raise bad_field("tools", error.message) from None
        raise bad_field("messages", error.message) from None


def _renders(
    text: TextModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool],
    settings: Mapping[str, Any],
) -> bool:
    try:
        text.render(messages, tools or None, settings)
    except TemplateError:
        return False
    return True


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
        unknown = body.reasoning.keys() - _REASONING
        if unknown:
            raise bad_field(f"reasoning.{min(unknown)}", "is not supported")
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
        for old in ("function_call", "audio"):
            if turn.pop(old, None):
                raise bad_field(f"messages[{number}].{old}", "is not supported")
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
    if message.content == [] and not message.tool_calls:
        raise bad_field(f"messages[{number}].content", "is empty")
    texts = []
    for at, part in enumerate(message.content or ()):
        where = f"messages[{number}].content[{at}]"
        if part.type not in ("text", "input_text", "output_text"):
            raise bad_field(where, f"{part.type!r} is not supported, only text")
        if part.text is None:
            raise bad_field(f"{where}.text", "is missing")
        texts.append(part.text)
    return "".join(texts)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a mapping; text that is not JSON is shown to the model as it is."""
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        try:
            function["arguments"] = msgspec.json.decode(function["arguments"] or "{}", type=dict)
        except msgspec.MsgspecError:
            function["arguments"] = {"arguments": function["arguments"]}
    return {**call, "function": function}
