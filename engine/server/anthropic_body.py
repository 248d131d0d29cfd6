"""The body of Anthropic's /v1/messages, and the chat that it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from engine.server.bodies import ChatBody, ChatMessage, FunctionCall, ToolCall
from engine.server.http_errors import bad_field
from engine.server.sampling import SamplingFields
from engine.server.unsupported import MESSAGES, check_supported

_THINKING = ("enabled", "adaptive", "disabled")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class Block(Struct, frozen=True):
    """A part of a message: text, thinking, a call of a tool, or what a tool gave."""

    type: str
    text: str | None = None
    thinking: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None


class Turn(Struct, frozen=True):
    """One turn of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class CountBody(SamplingFields, frozen=True, kw_only=True):
    """The body of /v1/messages/count_tokens."""

    messages: Annotated[list[Turn], Meta(min_length=1)]
    system: str | list[Block] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None


class MessagesBody(CountBody, frozen=True, kw_only=True):
    """The body of /v1/messages. The model's name is free: there is one model."""

    max_tokens: Annotated[int, Meta(ge=1)]
    model: str | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    # Refused where they say something: see `unsupported.py`.
    container: Any = None
    context_management: Any = None
    mcp_servers: Any = None
    output_format: Any = None


def chat_of(body: CountBody, unasked: bool | None) -> ChatBody:
    """The same as a chat request. `unasked`: whether a request thinks that says nothing of it;
    None: as the model's template has it. Raises `ApiError` 400 naming the field at fault."""
    messages = [ChatMessage(role="system", content=_text(body.system, "system"))]
    for number, turn in enumerate(body.messages):
        messages += _turn(turn, f"messages[{number}]")
    config = body.output_config or {}
    thinks = unasked if body.thinking is None else _thinks(body.thinking)
    begun = body.messages[-1].role == "assistant"
    if begun and body.thinking and thinks:
        raise bad_field("thinking", "has no place before a last turn that is the assistant's")
    said: dict[str, Any] = {}
    if isinstance(body, MessagesBody):
        check_supported(body, MESSAGES)
        fields = SamplingFields.__struct_fields__
        said = {name: getattr(body, name) for name in (*fields, "max_tokens", "stream")}
        said["stop_sequences"] = body.stop_sequences
    return ChatBody(
        messages=messages if body.system else messages[1:],
        tools=_tools(body),
        tool_choice=_choice(body),
        parallel_tool_calls=_parallel(body.tool_choice or {}),
        continue_final_message=begun,
        enable_thinking=thinks,
        reasoning_budget_tokens=_budget(body),
        reasoning_effort=_effort(config) if thinks else None,
        response_format=_format(config),
        **said,
    )


def _thinks(thinking: dict[str, Any]) -> bool:
    kind = thinking.get("type")
    if kind not in _THINKING:
        raise bad_field("thinking.type", f"{kind!r} is not one of {', '.join(_THINKING)}")
    return bool(kind != "disabled")


def _budget(body: CountBody) -> int | None:
    """Tokens of thinking, if the request limits them."""
    thinking = body.thinking or {}
    budget = thinking.get("budget_tokens")
    if budget is None and thinking.get("type") == "enabled":
        raise bad_field("thinking.budget_tokens", "is missing")
    if budget is None:
        return None
    if type(budget) is not int or budget < 0:
        raise bad_field("thinking.budget_tokens", f"{budget!r} is not a whole number from 0")
    if isinstance(body, MessagesBody) and budget >= body.max_tokens:
        what = f"{budget} leaves nothing of max_tokens {body.max_tokens} for the answer"
        raise bad_field("thinking.budget_tokens", what)
    return budget


def _effort(config: dict[str, Any]) -> str | None:
    effort = config.get("effort")
    if effort is None or isinstance(effort, str):
        return effort
    raise bad_field("output_config.effort", f"{effort!r} is not a text")


def _turn(turn: Turn, where: str) -> Iterator[ChatMessage]:
    """A turn as chat messages: what tools gave are messages of their own."""
    if isinstance(turn.content, str):
        yield ChatMessage(role=turn.role, content=turn.content)
        return
    if not turn.content:
        raise bad_field(f"{where}.content", "is empty")
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for number, block in enumerate(turn.content):
        at = f"{where}.content[{number}]"
        match block.type:
            case "text":
                texts.append(_said(block, "text", at))
            case "thinking":
                thoughts.append(_said(block, "thinking", at))
            case "redacted_thinking":
                pass  # nobody here can read it
            case "tool_use":
                name, id = _said(block, "name", at), _said(block, "id", at)
                if block.input is None:
                    raise bad_field(f"{at}.input", "is missing")
                calls.append(ToolCall(FunctionCall(name, block.input), id))
            case "tool_result":
                id = _said(block, "tool_use_id", at)
                yield ChatMessage(role="tool", content=_result(block, at), tool_call_id=id)
            case _:
                raise bad_field(at, f"{block.type!r} is not supported")
    if texts or thoughts or calls:
        yield ChatMessage(
            role=turn.role,
            content="".join(texts),
            reasoning_content="".join(thoughts) or None,
            tool_calls=calls or None,
        )


def _text(content: str | list[Block] | None, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for number, block in enumerate(content):
        if block.type != "text":
            raise bad_field(f"{where}[{number}]", f"{block.type!r} is not supported, only text")
    return "\n".join(_said(block, "text", f"{where}[{n}]") for n, block in enumerate(content))


def _said(block: Block, field: str, where: str) -> str:
    """A text that such a block must have."""
    value = getattr(block, field)
    if value is None:
        raise bad_field(f"{where}.{field}", "is missing")
    return str(value)


def _result(block: Block, where: str) -> str:
    content = _text(block.content, f"{where}.content")
    return f"Error: {content}" if block.is_error else content


def _tools(body: CountBody) -> list[dict[str, Any]] | None:
    tools = []
    for number, tool in enumerate(body.tools or ()):
        if not isinstance(tool.get("input_schema"), dict):
            what = f"{tool.get('type', 'a tool without input_schema')!r} cannot be run here"
            raise bad_field(f"tools[{number}]", what)
        function = {
            "name": tool.get("name"),
            "description": tool.get("description", ""),
            "parameters": tool["input_schema"],
        }
        if "strict" in tool:
            function["strict"] = tool["strict"]
        tools.append({"type": "function", "function": function})
    return tools or None


def _choice(body: CountBody) -> str | dict[str, Any] | None:
    if body.tool_choice is None:
        return None
    kind = body.tool_choice.get("type")
    if kind == "tool":
        name = body.tool_choice.get("name")
        names = [tool.get("name") for tool in body.tools or ()]
        if name not in names:
            raise bad_field("tool_choice.name", f"{name!r} is none of the tools {names}")
        return {"type": "function", "function": {"name": name}}
    if kind not in _CHOICES:
        raise bad_field("tool_choice.type", f"{kind!r} is not auto, any, tool or none")
    return _CHOICES[kind]


def _parallel(choice: Mapping[str, Any]) -> bool | None:
    disabled = choice.get("disable_parallel_tool_use")
    if not isinstance(disabled, bool | None):
        raise bad_field("tool_choice.disable_parallel_tool_use", "is not true or false")
    return None if disabled is None else not disabled


def _format(config: Mapping[str, Any]) -> dict[str, Any] | None:
    asked = config.get("format")
    if asked is None:
        return None
    if not isinstance(asked, dict) or asked.get("type") != "json_schema":
        raise bad_field("output_config.format", "is not of type json_schema")
    return {"type": "json_schema", "json_schema": {"schema": asked.get("schema")}}
