"""/v1/responses through OpenAI's own client, whose stream puts the events together again."""

import json
import os
import signal
from typing import Any

import pytest
from openai.types.responses import Response

from tests.engine.server.harness import Running, error_of, running, script

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = (
    "I look.<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
    "</function>\n</tool_call>"
)


@pytest.fixture(scope="module")
def server():
    with running() as run:
        yield run


def ask(server: Running, input: Any, **more: Any) -> Response:
    return server.client().responses.create(model="m", input=input, **more)


def streamed(server: Running, input: Any, **more: Any) -> tuple[Response, list[Any]]:
    """The response of the last event, which is the client's own sum of all of them, and these."""
    with server.client().responses.stream(model="m", input=input, **more) as stream:
        events = list(stream)
        last = events[-1].response
        if last.status == "completed":
            assert stream.get_final_response().to_dict() == last.to_dict()
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(pieces) == last.output_text
        return last, events


def both(server: Running, input: Any, **more: Any) -> list[Response]:
    return [ask(server, input, **more), streamed(server, input, **more)[0]]


def test_text(server: Running) -> None:
    said = script(say="Hello, wörld 🌍", reuse=10)
    for answer in both(server, said, instructions="Be brief.", metadata={"a": "b"}):
        assert (answer.status, answer.output_text) == ("completed", "Hello, wörld 🌍")
        (message,) = answer.output
        assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
        assert answer.usage is not None
        assert answer.usage.output_tokens == len("Hello, wörld 🌍".encode()) + 1
        assert answer.usage.input_tokens_details.cached_tokens == 10
        total = answer.usage.input_tokens + answer.usage.output_tokens
        assert answer.usage.total_tokens == total
        assert (answer.instructions, answer.metadata) == ("Be brief.", {"a": "b"})
    assert [line for line in server.control.starting("bgen") if line.endswith(" system: Be brief.")]


def test_events_come_in_the_official_order(server: Running) -> None:
    answer, events = streamed(server, script(say="abc"))
    kinds = [event.type.removeprefix("response.") for event in events]
    while kinds[2] == "in_progress":  # the prompt is read
        del kinds[2]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 3,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].response.output == []
    ids = {event.item_id for event in events if hasattr(event, "item_id")}
    assert ids == {answer.output[0].id}
    raw = server.http.post("/v1/responses", json={"input": script(say="x"), "stream": True})
    assert "[DONE]" not in raw.text
    assert raw.text.startswith("event: response.created\ndata: {")


def test_reasoning_is_an_item_of_its_own(server: Running) -> None:
    said = script(say="so and so</think>\n\n42")
    for answer in both(server, said, reasoning={"effort": "high"}):
        reasoning, message = answer.output
        assert reasoning.type == "reasoning"
        assert reasoning.content is not None
        assert [part.text for part in reasoning.content] == ["so and so"]
        assert answer.output_text == "42"
        assert answer.usage is not None
        assert 9 <= answer.usage.output_tokens_details.reasoning_tokens <= 18
        assert message.type == "message"


def test_a_call_and_what_the_function_gave(server: Running) -> None:
    for answer in both(server, script(say=CALL), tools=[TOOL]):
        message, call = answer.output
        assert message.type == "message"
        assert call.type == "function_call"
        assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Rome"})
        assert call.status == "completed"
        turns = [
            {"role": "user", "content": [{"type": "input_text", "text": "Rome?"}]},
            *[item.to_dict() for item in answer.output],
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
        ]
        line = server.order_of(lambda turns=turns: ask(server, turns, tools=[TOOL]))
        assert line.endswith("user: Rome?")
        server.control.wait_for("assistant: I look.")
        server.control.wait_for("tool: sunny")


def test_an_answer_that_is_cut(server: Running) -> None:
    for answer in both(server, script(say="abcdef"), max_output_tokens=3):
        assert (answer.status, answer.output_text) == ("incomplete", "abc")
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
    for answer in both(server, script(say=CALL), tools=[TOOL], max_output_tokens=60):
        assert [item.type for item in answer.output if item.status == "completed"] == ["message"]


def test_what_was_thought_said_and_called_is_one_turn(server: Running) -> None:
    turns = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "a"},
        {"type": "reasoning", "id": "r", "summary": [], "content": [
            {"type": "reasoning_text", "text": "hm"}
        ]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "one"}]},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [
            {"type": "input_text", "text": "42"}
        ]},
        {"role": "system", "content": "late"},
    ]  # fmt: skip
    server.order_of(lambda: ask(server, turns, instructions="Be brief."))
    first = [i for i, line in enumerate(server.control.lines) if "system: Be brief." in line][-1]
    told = server.control.lines[first : first + 7]
    assert told[0].endswith("system: Be brief.")
    assert told[1:] == ["", "Be kind.", "user: a", "assistant: one", "tool: 42", "user: late"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"input": [{"role": "user", "content": "x"}, {"type": "function_call_output"}]},
         "input[1].output"),
        ({"input": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
         "input"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10**6}, "max_output_tokens"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"store": True}, "store"),
        ({"truncation": "auto"}, "truncation"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
        ({"tools": [{"type": "function", "name": "f", "parameters": 5}]}, "tools[0].parameters"),
        ({"seed": -2}, "seed"),
        ({"reasoning": {"effort": "extreme"}}, "reasoning.effort"),
        ({"temperature": 3}, "temperature"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "schema": {"$ref": "#"}}}},
         "text.format.schema"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),  # this engine cannot
    ],
)  # fmt: skip
def test_bad_requests(server: Running, more: dict[str, Any], field: str) -> None:
    error = error_of(server.http.post("/v1/responses", json={"input": "x", **more}), 400)
    assert error["param"] == field
    assert field in error["message"]


def test_a_response_is_not_kept(server: Running) -> None:
    answer = ask(server, script(say="x"))
    assert not answer.store
    error_of(server.http.get(f"/v1/responses/{answer.id}"), 404)


def test_the_client_is_told_while_the_prompt_is_read() -> None:
    with running(keepalive_s=0.02) as run:
        body = {"input": script(say="late", hold_read=0), "stream": True}
        with run.http.stream("POST", "/v1/responses", json=body) as response:
            lines = response.iter_lines()
            events = [line for line in (next(lines) for _ in range(18)) if line[:5] == "event"]
            assert events == ["event: response.created"] + ["event: response.in_progress"] * 5
            run.control.send("release")
            numbers = [
                json.loads(line[6:])["sequence_number"] for line in lines if line[:5] == "data:"
            ]
            assert numbers == list(range(6, 6 + len(numbers)))


def test_a_response_that_fails() -> None:
    with running({"slots": 1, "facts": {"grammars": 1}}) as run:
        stream = run.client().responses.create(
            model="m",
            input=script(say="abcdef", fail=2, why="grammar: it is only a test"),
            text={"format": {"type": "json_object"}},
            stream=True,
        )
        *_, last = stream
        assert last.type == "response.failed"
        answer = last.response
        assert answer.status == "failed"
        assert answer.error is not None
        assert (answer.error.code, answer.error.message[:12]) == ("invalid_prompt", "text.format:")
        error = error_of(run.http.post("/v1/responses", json={"input": script(fail=1)}), 500)
        assert error["message"] == "the window failed"
        stream = run.client().responses.create(
            model="m", input=script(say="abcdef", hold=2), stream=True
        )
        for event in stream:
            if event.type == "response.output_text.delta":
                os.kill(run.control.pid, signal.SIGKILL)
                break
        *_, last = stream
        assert last.type == "response.failed"
        assert "SIGKILL" in last.response.error.message
