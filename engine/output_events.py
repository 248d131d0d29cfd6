"""What the output of a model consists of, as events in the order of writing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """A piece of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentText:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """Call number `index`, from 0, names its function."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of the JSON text of the call's arguments; the pieces joined are one object."""

    index: int
    piece: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """The call is over. Not `complete`: the output ended inside it, its JSON is cut off."""

    index: int
    complete: bool


OutputEvent: TypeAlias = (
    ReasoningText | ContentText | ToolCallStart | ToolCallArguments | ToolCallEnd
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole call; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ParsedOutput:
    """A whole output; calls that were cut off are left out."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]


def collect(events: Iterable[OutputEvent]) -> ParsedOutput:
    """What all the events of an output say together."""
    reasoning: list[str] = []
    content: list[str] = []
    names: list[str] = []
    pieces: list[list[str]] = []
    complete: set[int] = set()
    for event in events:
        match event:
            case ReasoningText(text):
                reasoning.append(text)
            case ContentText(text):
                content.append(text)
            case ToolCallStart(_, name):
                names.append(name)
                pieces.append([])
            case ToolCallArguments(index, piece):
                pieces[index].append(piece)
            case ToolCallEnd(index, done):
                complete |= {index} if done else set()
    calls = (ToolCall(names[i], "".join(pieces[i])) for i in sorted(complete))
    return ParsedOutput("".join(reasoning), "".join(content), tuple(calls))
