"""The form is round-tripped: calls written as the templates write them come back as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.output_events import (
    ContentText,
    OutputEvent,
    ParsedOutput,
    ReasoningText,
    ToolCall,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    collect,
)
from engine.output_parser import OutputParser

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "list": {"type": "array"},
        "object": {"type": "object"},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "choice": {"enum": ["1", "2"]},
        "named": {"$ref": "#/$defs/Name"},
        "open": {},
    },
    "$defs": {"Name": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}},
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def written(name: str, arguments: dict[str, Any]) -> str:
    """A call as the chat templates of the family write it."""
    parts = [f"<tool_call>\n<function={name}>\n"]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"<parameter={key}>\n{text}\n</parameter>\n")
    return "".join(parts) + "</function>\n</tool_call>"


def events_of(pieces: list[str], **options: Any) -> list[OutputEvent]:
    parser = OutputParser(**options)
    events = [event for piece in pieces for event in parser.push(piece)]
    return events + parser.finish()


def parsed(text: str, **options: Any) -> ParsedOutput:
    """The same whether it comes whole or character by character."""
    whole = collect(events_of([text], **options))
    assert collect(events_of(list(text), **options)) == whole
    return whole


def value_of(parameter: str, text: str) -> Any:
    output = f"<tool_call><function=f><parameter={parameter}>\n{text}\n</parameter></function>"
    (call,) = parsed(output, tools=TOOLS).tool_calls
    return json.loads(call.arguments)[parameter]


def test_the_whole_form_as_events() -> None:
    text = "Hm.\n</think>\n\nI look.\n\n" + written("f", {"text": 'a\n"b"', "count": 2})
    assert events_of([text], thinking=True, tools=TOOLS) == [
        ReasoningText("Hm."),
        ContentText("I look."),
        ToolCallStart(0, "f"),
        ToolCallArguments(0, '{"text": "'),
        ToolCallArguments(0, 'a\\n\\"b\\"'),
        ToolCallArguments(0, '"'),
        ToolCallArguments(0, ', "count": '),
        ToolCallArguments(0, "2"),
        ToolCallArguments(0, "}"),
        ToolCallEnd(0, complete=True),
    ]


def test_text_is_not_held_back_longer_than_needed() -> None:
    parser = OutputParser(thinking=True, tools=TOOLS)
    assert parser.push("a b") == [ReasoningText("a b")]
    assert parser.push(" c</thi") == [ReasoningText(" c")]
    assert parser.push("ef") == [ReasoningText("</thief")]
    assert parser.push("</think>\n\nHello <to") == [ContentText("Hello")]
    assert parser.push("p>") == [ContentText(" <top>")]
    assert parser.push("<tool_call>\n<function=f>\n") == [ToolCallStart(0, "f")]
    assert parser.push("<parameter=text>\nab")[-1] == ToolCallArguments(0, "ab")
    assert parser.push("c") == [ToolCallArguments(0, "c")]
    assert parser.push("\n</parameter>\n") == []


VALUE = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["</parameter>", "a\n</parameter>\nb", "<tool_call>", "\n\nx\n\n", "<", "</"]),
)


@settings(max_examples=300, deadline=None)
@given(
    reasoning=st.text(max_size=12).map(str.strip),
    content=st.text(max_size=12).map(str.strip),
    calls=st.lists(
        st.fixed_dictionaries(
            {"text": VALUE},
            optional={
                "count": st.integers(),
                "flag": st.booleans(),
                "list": st.lists(st.integers(), max_size=3),
                "object": st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
                "ratio": st.floats(allow_nan=False, allow_infinity=False),
            },
        ),
        max_size=3,
    ),
    data=st.data(),
)
def test_round_trip_for_every_split(
    reasoning: str, content: str, calls: list[dict[str, Any]], data: st.DataObject
) -> None:
    if "<" in reasoning + content:
        reasoning, content = (x.replace("<", "").strip() for x in (reasoning, content))
    blocks = [content, *(written("f", call) for call in calls)]
    text = f"{reasoning}\n</think>\n\n" + "\n".join(block for block in blocks if block)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    output = collect(events_of(pieces, thinking=True, tools=TOOLS))
    assert (output.reasoning, output.content) == (reasoning.strip(), content.strip())
    assert [json.loads(call.arguments) for call in output.tool_calls] == calls


TAGS = st.sampled_from(
    [
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>"),
        *("<parameter=text>", "<parameter=count>", "</parameter>", "<function=", "<parameter="),
        *(">", "<", "\n", "a", "7", '"', " ", "\n" * 300, "x" * 300),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(TAGS, max_size=25).map("".join), st.booleans(), st.data())
def test_any_order_of_tags_for_every_split(text: str, thinking: bool, data: st.DataObject) -> None:
    whole = events_of([text], thinking=thinking, tools=TOOLS)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    split = events_of(pieces, thinking=thinking, tools=TOOLS)
    assert (
        collect(split)
        == collect(whole)
        == collect(events_of(list(text), thinking=thinking, tools=TOOLS))
    )
    for call in collect(whole).tool_calls:
        assert isinstance(json.loads(call.arguments), dict)
    starts = [event.index for event in whole if isinstance(event, ToolCallStart)]
    ends = [event.index for event in whole if isinstance(event, ToolCallEnd)]
    assert starts == ends == list(range(len(starts)))


@settings(deadline=None)
@given(st.text(max_size=40), st.booleans())
def test_without_tools_text_is_text(text: str, call: bool) -> None:
    text = "-" + text + (written("f", {"text": "x"}) if call else "")
    assert parsed(text) == ParsedOutput("", text, ())


@pytest.mark.parametrize(
    ("text", "thinking", "expected"),
    [
        ("a</think>b", True, ("a", "b")),
        ("a\n\n</think>\n\n\nb\n", True, ("a", "b\n")),
        ("never closed ", True, ("never closed", "")),
        ("<think>\nagain</think>b", True, ("again", "b")),
        ("\n<think>\na\n</think>\n\nb", False, ("a", "b")),
        (" plain  text ", False, ("", " plain  text ")),
        ("a </think> b", False, ("", "a </think> b")),
        ("a <think> b", False, ("", "a <think> b")),
        ("<thi", False, ("", "<thi")),
        ("</think>", True, ("", "")),
        ("a</think>b</think>c", True, ("a", "b</think>c")),
        ("Hi </think>one two ", True, ("Hi", "one two ")),
        ("", True, ("", "")),
    ],
)
def test_reasoning_and_content(text: str, thinking: bool, expected: tuple[str, str]) -> None:
    for tools in (None, TOOLS):
        output = parsed(text, thinking=thinking, tools=tools)
        assert (output.reasoning, output.content) == expected


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", '{"a": 1}', '{"a": 1}'),
        ("text", "", ""),
        ("text", "\n  two\n", "\n  two\n"),
        ("named", "7", "7"),
        ("choice", "1", "1"),
        ("count", "5", 5),
        ("count", " 12345678901234567890123 ", 12345678901234567890123),
        ("count", "five", "five"),
        ("ratio", "1.50", 1.5),
        ("ratio", "2", 2),
        ("ratio", "NaN", "NaN"),
        ("flag", "true", True),
        ("flag", "False", False),
        ("list", '[1, "</parameter> x"]', [1, "</parameter> x"]),
        ("object", '{\n "a": null}', {"a": None}),
        ("object", "{broken", "{broken"),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("maybe", "5", "5"),
        ("either", "5", 5),
        ("either", "5.5", "5.5"),
        ("open", "5", 5),
        ("open", '"quoted"', "quoted"),
        ("open", "word", "word"),
        ("unheard_of", "[1]", [1]),
        ("count", "[" * 100_000, "[" * 100_000),
    ],
)
def test_values_by_schema(parameter: str, text: str, value: Any) -> None:
    result = value_of(parameter, text)
    assert (result, type(result)) == (value, type(value))


def test_numbers_keep_their_digits() -> None:
    text = "<tool_call><function=f><parameter=ratio>1e400</parameter></function></tool_call>"
    assert parsed(text, tools=TOOLS).tool_calls == (ToolCall("f", '{"ratio": 1e400}'),)


def test_a_call_without_parameters_and_two_functions_in_one_call() -> None:
    text = "<tool_call><function=f></function><function=g>\n</function></tool_call>\n"
    assert parsed(text, tools=TOOLS) == ParsedOutput(
        "", "", (ToolCall("f", "{}"), ToolCall("g", "{}"))
    )


def test_a_forced_opening_is_pushed_first() -> None:
    parser = OutputParser(tools=TOOLS)
    assert parser.push("<tool_call>\n<function=f>\n") == [ToolCallStart(0, "f")]
    events = parser.push("<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>")
    assert events[-1] == ToolCallEnd(0, complete=True)


@pytest.mark.parametrize(
    "text",
    [
        "see <tool_call> there",
        'a<tool_call>{"name": "f"}</tool_call>',
        "<tool_call><function=>",
        "<tool_call><function=a\nb>",
        "<tool_call>" + " " * 300 + "<function=f>",
        "<tool_call><function=" + "n" * 300 + ">",
        "ends in <tool_ca",
    ],
)
def test_what_is_no_call_is_content(text: str) -> None:
    assert parsed(text, tools=TOOLS) == ParsedOutput("", text, ())


@pytest.mark.parametrize(
    ("text", "started"),
    [
        ("x <tool_call>\n<func", 0),
        ("x <tool_call>\n<function=f>", 1),
        ("x <tool_call>\n<function=f>\n<parameter=text>\nabc", 1),
        ("x <tool_call>\n<function=f>\n<parameter=text>\nabc\n</parameter>\n", 1),
    ],
)
def test_a_call_that_is_cut_off_is_not_complete(text: str, started: int) -> None:
    events = events_of(list(text), tools=TOOLS)
    assert [e for e in events if isinstance(e, ToolCallEnd)] == [ToolCallEnd(0, False)] * started
    assert collect(events) == ParsedOutput("", "x", ())


def test_content_after_a_call() -> None:
    text = "a\n" + written("f", {"text": "t"}) + "\n\nb " + written("f", {"text": "u"}) + " c "
    output = parsed(text, tools=TOOLS)
    assert output.content == "abc "
    assert len(output.tool_calls) == 2
