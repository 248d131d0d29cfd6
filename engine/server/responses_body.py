"""The body of OpenAI's /v1/responses, and the chat that it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta, Struct

from engine.server.bodies import ChatBody, ChatMessage, FunctionCall, ToolCall
from engine.server.http_errors import bad_field
from engine.server.sampling import SamplingFields
from engine.server.unsupported import RESPONSES, check_supported

_ROLES = ("user", "assistant", "system", "developer")
_TOOL = ("name", "description", "parameters", "strict")
_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


class Format(Struct, frozen=True):
    """`text.format`: what the answer must be."""

    type: str = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextOptions(Struct, frozen=True):
    """`text` of a request."""

    format: Format | None = None
    verbosity: str | None = None


class Reasoning(Struct, frozen=True):
    """`reasoning` of a request."""

    effort: str | None = None


class ResponsesBody(SamplingFields, frozen=True, kw_only=True):
    """The body of /v1/responses. Nothing is kept here: `input` is the whole conversation."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    model: str | None = None
    stream: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    # Refused where they say something: see `unsupported.py`.
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    include: Any = None
    background: Any = None
    top_logprobs: Any = None
    store: Any = None
    truncation: Any = None
    context_management: Any = None


def chat_of(body: ResponsesBody) -> ChatBody:
    """The same as a chat request. Raises `ApiError` 400 naming the field at fault."""
    check_supported(body, RESPONSES)
    if body.text and body.text.verbosity not in (None, "medium"):
        raise bad_field("text.verbosity", "is not supported")
    messages = _Messages(body.instructions)
    if isinstance(body.input, str):
        messages.text("user", body.input)
    else:
        for number, item in enumerate(body.input):
            messages.item(item, f"input[{number}]")
    said = {name: getattr(body, name) for name in SamplingFields.__struct_fields__}
    return ChatBody(
        messages=messages.whole(),
        tools=_tools(body.tools),
        tool_choice=_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        response_format=_format(body.text.format if body.text else None),
        max_tokens=body.max_output_tokens,
        stream=body.stream,
        **said,
    )


class _Messages:
    """Turns of a chat from the items of a response: what an assistant thought, said and called
    stands in items of their own there, and is one turn here."""

    def __init__(self, instructions: str | None) -> None:
        self._system = [instructions] if instructions else []
        self._turns: list[ChatMessage | _Said] = []

    def text(self, role: str, text: str) -> None:
        """A turn; the system's, before all others, are one."""
        if role in ("system", "developer") and not self._turns:
            self._system.append(text)
        elif role == "assistant":
            self._said().texts.append(text)
        else:
            self._turns.append(ChatMessage(role=role, content=text))  # type: ignore[arg-type]

    def item(self, item: Mapping[str, Any], where: str) -> None:
        """An item of `input`."""
        match item.get("type", "message"):
            case "message":
                role = item.get("role")
                if role not in _ROLES:
                    raise bad_field(f"{where}.role", f"{role!r} is not one of {', '.join(_ROLES)}")
                if item.get("content") == []:
                    raise bad_field(f"{where}.content", "is empty")
                self.text(str(role), _text(item.get("content"), f"{where}.content"))
            case "reasoning":
                key = "content" if item.get("content") else "summary"
                thoughts = _text(item.get(key) or "", f"{where}.{key}")
                self._said(thinks=bool(thoughts)).thoughts.append(thoughts)
            case "function_call":
                name, id = _word(item, "name", where), _word(item, "call_id", where)
                arguments = _word(item, "arguments", where)
                self._said().calls.append(ToolCall(FunctionCall(name, arguments), id))
            case "function_call_output":
                content = _text(item.get("output"), f"{where}.output")
                id = _word(item, "call_id", where)
                self._turns.append(ChatMessage(role="tool", content=content, tool_call_id=id))
            case kind:
                raise bad_field(f"{where}.type", f"{kind!r} is not supported")

    def whole(self) -> list[ChatMessage]:
        """The chat."""
        if not self._turns:
            raise bad_field("input", "is empty")
        turns = [one.turn() if isinstance(one, _Said) else one for one in self._turns]
        if not self._system:
            return turns
        return [ChatMessage(role="system", content="\n\n".join(self._system)), *turns]

    def _said(self, *, thinks: bool = False) -> _Said:
        """The assistant's turn; thoughts after something said or called begin another."""
        last = self._turns[-1] if self._turns else None
        if not isinstance(last, _Said) or (thinks and (any(last.texts) or last.calls)):
            last = _Said()
            self._turns.append(last)
        return last


@dataclass(slots=True)
class _Said:
    """A turn of the assistant."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def turn(self) -> ChatMessage:
        """As a chat has it."""
        return ChatMessage(
            role="assistant",
            content="".join(self.texts),
            reasoning_content="".join(self.thoughts) or None,
            tool_calls=self.calls or None,
        )


def _text(content: Any, where: str) -> str:
    """A text, or a list of parts that are texts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise bad_field(where, "is neither a text nor a list of parts")
    texts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _TEXTS or not isinstance(part.get("text"), str):
            raise bad_field(f"{where}[{number}]", f"{kind!r} is not supported, only text")
        texts.append(part["text"])
    return "".join(texts)


def _word(item: Mapping[str, Any], name: str, where: str) -> str:
    word = item.get(name)
    if not isinstance(word, str):
        raise bad_field(f"{where}.{name}", "is not a text")
    return word


def _tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    found = []
    for number, tool in enumerate(tools or ()):
        if tool.get("type") != "function":
            raise bad_field(f"tools[{number}].type", f"{tool.get('type')!r} cannot be run here")
        named = {key: tool[key] for key in _TOOL if tool.get(key) is not None}
        found.append({"type": "function", "function": named})
    return found or None


def _choice(choice: str | Mapping[str, Any] | None) -> str | dict[str, Any] | None:
    if not isinstance(choice, dict):
        return choice if isinstance(choice, str) else None
    if choice.get("type") != "allowed_tools":
        return _function(choice)
    tools = choice.get("tools")
    named = [_function(tool) for tool in tools] if isinstance(tools, list) else tools
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": named}}


def _function(tool: Any) -> dict[str, Any]:
    tool = tool if isinstance(tool, dict) else {}
    return {"type": tool.get("type"), "function": {"name": tool.get("name")}}


def _format(format: Format | None) -> dict[str, Any] | None:
    if format is None:
        return None
    return {"type": format.type, "json_schema": {"schema": format.schema}}
