"""What a model writes, taken apart while it comes: reasoning, content and tool calls.

The form is that of the Qwen 3.5 family and later:

    thoughts</think>answer<tool_call><function=NAME><parameter=P>
    VALUE
    </parameter></function></tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.output_events import (
    ContentText,
    OutputEvent,
    ReasoningText,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from engine.tool_arguments import ObjectWriter, ParameterTypes

THINK, THINK_END = "<think>", "</think>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
_FUNCTION_NAME = re.compile(FUNCTION + r"([^<>\n]*)(>?)")
_PARAMETER_NAME = re.compile(PARAMETER + r"([^>\n]*)([>\n]?)")
# Longest name with its tag, and most white space before a tag of the form. More is not a tag.
_LONGEST_NAME = 256
_MOST_SPACE = 256


class OutputParser:
    """Turns pieces of text into events; how the text is cut does not change what they say.

    `thinking`: the prompt ends inside `<think>`, so the output begins with reasoning. Otherwise
    reasoning is only what an output that begins with `<think>` says before `</think>`.
    `tools`: definitions in the shape of the OpenAI API; without any, calls are ordinary text.
    White space at the borders of reasoning, and between content and calls, belongs to the form
    and is left out. Text that the prompt already holds, such as the opening of a forced call, is
    given to `push` first. At most a tag's length is held back, so the cost of a piece is its own
    length.
    """

    def __init__(
        self, *, thinking: bool = False, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        self._types = ParameterTypes(tools or ())
        self._has_tools = bool(tools)
        self._buffer = ""
        self._events: list[OutputEvent] = []
        self._space: list[str] = []
        self._trim_start = thinking
        self._calls = 0
        self._name = ""
        self._opening_tag = CALL
        self._writer = ObjectWriter()
        self._state: Callable[[], bool] = self._reasoning if thinking else self._start
        self._may_reopen = thinking

    def push(self, text: str) -> list[OutputEvent]:
        """The events that `text` makes certain."""
        self._buffer += text
        while self._buffer and self._state():
            pass
        events, self._events = self._events, []
        return events

    def finish(self) -> list[OutputEvent]:
        """The events of what was held back. A call that is not over ends incomplete, an opening
        that names no function yet is dropped."""
        state, rest = self._state, self._buffer
        self._buffer = ""
        if state == self._reasoning:
            self._emit_reasoning(rest)
        elif state in (self._start, self._content):
            self._emit_content(rest)
            if (space := "".join(self._space)) and not (self._calls and self._trim_start):
                self._events.append(ContentText(space))
        elif state in (self._in_call, self._value):
            self._events.append(ToolCallEnd(self._calls - 1, complete=False))
        events, self._events = self._events, []
        return events

    # A state takes what it can from the buffer and says whether the next may go on.

    def _start(self) -> bool:
        """Nothing but white space so far: the output may still open with `<think>`."""
        bare, near = self._next()
        if near and bare.startswith(THINK):
            self._buffer, self._trim_start = bare[len(THINK) :], True
            return self._enter(self._reasoning)
        if near and THINK.startswith(bare):
            return False
        return self._enter(self._content)

    def _reasoning(self) -> bool:
        if self._may_reopen:
            # Some models repeat the tag that the prompt ends with.
            bare, near = self._next()
            if near and THINK.startswith(bare) and bare != THINK:
                return False
            self._may_reopen = False
            if near:
                self._buffer = bare.removeprefix(THINK)
        text, found = self._until(THINK_END)
        self._emit_reasoning(text)
        if not found:
            return False
        self._space, self._trim_start = [], True
        return self._enter(self._content)

    def _content(self) -> bool:
        if not self._has_tools:
            text, self._buffer = self._buffer, ""
            self._emit_content(text)
            return False
        text, found = self._until(CALL)
        self._emit_content(text)
        self._opening_tag = CALL
        return self._enter(self._opening) if found else False

    def _opening(self) -> bool:
        """After `<tool_call>`: a function's name, or this is content after all."""
        bare, near = self._next()
        name = _FUNCTION_NAME.match(bare)
        if near and name is not None and name.end() <= _LONGEST_NAME:
            if name[2] and name[1].strip():
                self._buffer = bare[name.end() :]
                return self._begin_call(name[1].strip())
            if name.end() == len(bare) and not name[2]:
                return False
        elif near and name is None and FUNCTION.startswith(bare):
            return False
        self._emit_content(self._opening_tag)
        return self._enter(self._content)

    def _begin_call(self, name: str) -> bool:
        self._space, self._trim_start = [], True
        self._name, self._writer = name, ObjectWriter()
        self._events.append(ToolCallStart(self._calls, name))
        self._calls += 1
        return self._enter(self._in_call)

    def _in_call(self) -> bool:
        """Between parameters. What is neither a parameter nor the end is not part of the form
        and is dropped."""
        at = self._buffer.find("<")
        self._buffer = self._buffer[at:] if at >= 0 else ""
        if self._buffer.startswith(FUNCTION_END):
            self._buffer = self._buffer[len(FUNCTION_END) :]
            self._emit_arguments(self._writer.close())
            self._events.append(ToolCallEnd(self._calls - 1, complete=True))
            return self._enter(self._after_call)
        name = _PARAMETER_NAME.match(self._buffer)
        short = name is not None and name.end() <= _LONGEST_NAME
        if name is not None and short and name[2]:
            self._buffer = self._buffer[name.end() - (name[2] == "\n") :]
            types = self._types.of(self._name, name[1].strip())
            self._emit_arguments(self._writer.begin(name[1].strip(), types))
            return self._enter(self._value)
        if short or FUNCTION_END.startswith(self._buffer) or PARAMETER.startswith(self._buffer):
            return False
        self._buffer = self._buffer[1:]
        return True

    def _value(self) -> bool:
        """A value ends only where the next parameter or the end of the function follows its
        closing tag, so it may hold that tag itself."""
        text, found = self._until(PARAMETER_END)
        self._emit_arguments(self._writer.add(text))
        if not found:
            return False
        bare, near = self._next()
        if near and bare.startswith((PARAMETER, FUNCTION_END)):
            self._emit_arguments(self._writer.end())
            return self._enter(self._in_call)
        if near and (PARAMETER.startswith(bare) or FUNCTION_END.startswith(bare)):
            self._buffer = PARAMETER_END + self._buffer
            return False
        self._emit_arguments(self._writer.add(PARAMETER_END))
        return True

    def _after_call(self) -> bool:
        """After `</function>`: the end of the call, another function in it, or content."""
        bare = self._buffer.lstrip()
        if bare.startswith(CALL_END):
            self._buffer = bare[len(CALL_END) :]
            return self._enter(self._content)
        if bare.startswith(FUNCTION):
            self._buffer, self._opening_tag = bare, ""
            return self._enter(self._opening)
        if CALL_END.startswith(bare) or FUNCTION.startswith(bare):
            self._buffer = bare
            return False
        return self._enter(self._content)

    def _next(self) -> tuple[str, bool]:
        """The buffer without white space in front, and whether that is little enough for a tag
        of the form to follow."""
        bare = self._buffer.lstrip()
        return bare, len(self._buffer) - len(bare) <= _MOST_SPACE

    def _enter(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _until(self, tag: str) -> tuple[str, bool]:
        """Takes the text before `tag`, and the tag, from the buffer. Where it is not found, what
        may be its beginning stays."""
        at = self._buffer.find(tag)
        if at >= 0:
            text, self._buffer = self._buffer[:at], self._buffer[at + len(tag) :]
            return text, True
        keep = next(n for n in range(len(tag) - 1, -1, -1) if self._buffer.endswith(tag[:n]))
        at = len(self._buffer) - keep
        text, self._buffer = self._buffer[:at], self._buffer[at:]
        return text, False

    def _emit_reasoning(self, text: str) -> None:
        if text := self._without_border_space(text):
            self._events.append(ReasoningText(text))

    def _emit_content(self, text: str) -> None:
        if self._has_tools:
            text = self._without_border_space(text)
        elif self._trim_start:
            text = text.lstrip()
            self._trim_start = not text
        if text:
            self._events.append(ContentText(text))

    def _emit_arguments(self, piece: str) -> None:
        if piece:
            self._events.append(ToolCallArguments(self._calls - 1, piece))

    def _without_border_space(self, text: str) -> str:
        """`text` without white space at the start of a section; white space at its end waits for
        what follows."""
        if self._trim_start:
            text = text.lstrip()
            self._trim_start = not text
        bare = text.rstrip()
        if not bare:
            self._space.append(text)
            return ""
        space, self._space = self._space, [text[len(bare) :]]
        return "".join(space) + bare
