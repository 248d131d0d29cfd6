"""Which tools of a request may be called, and whether one must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.server.bodies import ChatBody
from engine.server.http_errors import bad_field

Tool = Mapping[str, Any]
MOST_HELD = 512


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What `tools`, `tool_choice` and `parallel_tool_calls` of a request say together."""

    tools: Sequence[Tool] = ()
    """What the model is told of."""
    callable: Sequence[Tool] = ()
    needed: bool = False
    """The answer is calls."""
    single: bool = False
    """The answer ends with its first call."""

    @property
    def holds(self) -> bool:
        """Whether calls are held to what the tools' schemas say."""
        fewer = len(self.callable) < len(self.tools)
        return self.needed or fewer or any(tool["function"].get("strict") for tool in self.callable)


def tool_choice(body: ChatBody) -> ToolChoice:
    """Raises `ApiError` 400 naming the field at fault."""
    tools = body.tools or []
    names = [_name(tool, f"tools[{number}]") for number, tool in enumerate(tools)]
    places = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))
    for number, name in enumerate(names):
        if places[name] != number:
            raise bad_field(f"tools[{number}].function.name", f"{name!r} is there twice")
    mode, allowed = _asked(body.tool_choice, names)
    if mode == "none" or (not tools and mode == "auto"):
        return ToolChoice()
    if not tools:
        raise bad_field("tool_choice", "asks for a call, but there are no tools")
    chosen = [tool for tool, name in zip(tools, names, strict=True) if name in allowed]
    single = mode == "named" or body.parallel_tool_calls is False
    found = ToolChoice(tools, chosen, mode in ("required", "named"), single)
    if found.holds and len(chosen) > MOST_HELD:
        what = f"{len(chosen)} tools, calls can be held to at most {MOST_HELD}"
        raise bad_field("tools", what)
    return found


def _name(tool: Tool, where: str) -> str:
    """The tool's name, after a look at the rest of it."""
    if tool.get("type", "function") != "function" or not isinstance(tool.get("function"), dict):
        raise bad_field(where, "is not a function with a name")
    function = tool["function"]
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise bad_field(f"{where}.function.name", "is not a name")
    for key, kind, words in _KINDS:
        if not isinstance(function.get(key), kind):
            raise bad_field(f"{where}.function.{key}", f"{function[key]!r} is not {words}"[:200])
    return name


_KINDS: Sequence[tuple[str, Any, str]] = (
    ("description", str | None, "a text"),
    ("parameters", dict | None, "an object, the schema of the arguments"),
    ("strict", bool | None, "true or false"),
)


def _asked(choice: str | Mapping[str, Any] | None, names: Sequence[str]) -> tuple[str, set[str]]:
    """auto, none, required or named, and the names of the tools that may be called."""
    if choice is None or choice in ("auto", "none", "required"):
        return str(choice or "auto"), set(names)
    kinds = "is not auto, none, required, a function or allowed_tools"
    if isinstance(choice, str) or choice.get("type") not in ("function", "allowed_tools"):
        raise bad_field("tool_choice", kinds)
    if choice["type"] == "function":
        return "named", {*_named([choice], names)}
    allowed = choice.get("allowed_tools")
    allowed = allowed if isinstance(allowed, dict) else {}
    tools = allowed.get("tools")
    if not isinstance(tools, list) or not tools:
        raise bad_field("tool_choice", "allowed_tools has no list of tools")
    if allowed.get("mode") not in ("auto", "required"):
        raise bad_field("tool_choice", "the mode of allowed_tools is not auto or required")
    return str(allowed["mode"]), {*_named(tools, names)}


def _named(tools: Sequence[Any], names: Sequence[str]) -> Iterator[str]:
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if name not in names:
            raise bad_field(
                "tool_choice", f"{name!r} is none of the tools {', '.join(names)}"[:300]
            )
        yield str(name)
