"""/v1/messages through Anthropic's own client."""

import json
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError

from tests.engine.server.harness import HANG_GUARD_S, Running, running, script

TOOL: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ADAPTIVE = {"type": "adaptive"}
CALL = (
    "I look.<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
    "</function>\n</tool_call>"
)


@pytest.fixture(scope="module")
def server():
    with running() as run:
        yield run


def client(server: Running) -> Anthropic:
    return Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANG_GUARD_S)


def ask(server: Running, content: Any, **more: Any) -> Any:
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    more = {"model": "claude", "max_tokens": 200, **more}
    return client(server).messages.create(messages=messages, **more)


def stream(server: Running, content: str, **more: Any) -> tuple[Any, list[str]]:
    more = {"model": "claude", "max_tokens": 200, **more}
    with client(server).messages.stream(
        messages=[{"role": "user", "content": content}], **more
    ) as events:
        kinds = [event.type for event in events]
        return events.get_final_message(), kinds


def test_a_whole_answer(server: Running) -> None:
    answer = ask(server, script(say="Hello, wörld", reuse=10), system="Be brief.")
    assert (answer.role, answer.model, answer.stop_reason) == ("assistant", "claude", "end_turn")
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].text == "Hello, wörld"
    assert answer.usage.cache_read_input_tokens == 10
    assert answer.usage.output_tokens == len("Hello, wörld".encode()) + 1
    counted = client(server).messages.count_tokens(
        model="claude",
        system="Be brief.",
        messages=[{"role": "user", "content": script(say="Hello, wörld", reuse=10)}],
    )
    assert counted.input_tokens == answer.usage.input_tokens + 10


def test_a_streamed_answer(server: Running) -> None:
    answer, kinds = stream(server, script(say="Héllo", reuse=3))
    assert answer.content[0].text == "Héllo"
    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens == 7
    assert answer.usage.cache_read_input_tokens == 3
    assert [kinds[0], kinds[-1]] == ["message_start", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 1


def test_thinking_is_a_block_of_its_own(server: Running) -> None:
    more: Any = {"thinking": {"type": "adaptive"}}
    say = script(say="so</think>42")
    for answer in (ask(server, say, **more), stream(server, say, **more)[0]):
        thinking, text = answer.content
        assert (thinking.type, thinking.thinking) == ("thinking", "so")
        assert (text.type, text.text) == ("text", "42")
    assert [block.type for block in ask(server, script(say="42")).content] == ["text"]
    server.control.wait_for("[enable_thinking=False]")


def test_thinking_as_the_model_has_it() -> None:
    with running(anthropic_thinking="model") as run:
        ask(run, script(say="42"))
        assert not run.control.starting("[enable_thinking")
        ask(run, script(say="42"), thinking={"type": "disabled"})
        run.control.wait_for("[enable_thinking=False]")


def test_a_call_and_what_the_tool_gave(server: Running) -> None:
    for answer in (
        ask(server, script(say=CALL), tools=[TOOL]),
        stream(server, script(say=CALL), tools=[TOOL])[0],
    ):
        text, call = answer.content
        assert (text.text, answer.stop_reason) == ("I look.", "tool_use")
        assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Rome"})
    turns = [
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "content": answer.content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    ask(server, turns, tools=[TOOL])
    server.control.wait_for("assistant: I look.")
    server.control.wait_for("tool: sunny")
    server.control.wait_for("user: And now?")


def test_an_answer_that_has_begun(server: Running) -> None:
    """Only what is new comes back, with its white space."""
    turns = [
        {"role": "user", "content": script(say=" is Rome.")},
        {"role": "assistant", "content": [{"type": "text", "text": "The city"}]},
    ]
    assert ask(server, turns).content[0].text == " is Rome."
    assert ask(server, turns, tools=[TOOL]).content[0].text == " is Rome."
    assert server.control.starting("[enable_thinking=False]The city")


def test_ends(server: Running) -> None:
    answer = ask(server, script(say="one two three"), stop_sequences=[" tw", "xyz"])
    assert (answer.content[0].text, answer.stop_reason) == ("one", "stop_sequence")
    assert answer.stop_sequence == " tw"
    assert ask(server, script(say="a" * 50), max_tokens=5).stop_reason == "max_tokens"
    cut = ask(server, script(say=CALL), tools=[TOOL], max_tokens=60)
    assert [block.type for block in cut.content] == ["text"]
    assert cut.stop_reason == "max_tokens"


def test_sampling_reaches_the_engine(server: Running) -> None:
    keys = {"temperature": 0.5, "top_k": 7, "top_p": 0.25}
    line = server.order_of(lambda: ask(server, "hi", extra_body=keys))
    assert "temperature=0.5,top_p=0.25,top_k=7" in line


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": ""}]}, "messages: the last turn"),
        ({"messages": [{"role": "assistant", "content": "I"}]}, "messages: nothing stands before"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": "I"}], "thinking": ADAPTIVE}, "thinking: "),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "content[0]"),
        ({"tools": [{"type": "web_search", "name": "web"}]}, "tools[0]"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type: 'some'"),
        ({"tool_choice": {"type": "any"}}, "tool_choice: "),
        ({"tool_choice": {"type": "tool", "name": "x"}, "tools": [TOOL]}, "tool_choice.name: 'x'"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format: "),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"$ref": "#"}}}},
            "output_config.format.schema: ",
        ),
        ({"output_config": {"effort": "x"}, "thinking": ADAPTIVE}, "output_config.effort: 'x'"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens: 5 leaves"),
        ({"thinking": {"type": "foo"}}, "thinking.type: 'foo'"),
        ({"container": "c"}, "container: "),
        ({"mcp_servers": [{"name": "m"}]}, "mcp_servers: "),
        ({"output_format": {"type": "json_schema"}}, "output_format: "),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_1"}]}}, "context_management:"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "content[0].text: is"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id: is"),
        ({"system": [{"type": "text"}]}, "system[0].text: is missing"),
        ({"tools": [{"name": "f", "input_schema": 5}]}, "tools[0]"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name: "),
        (
            {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": 5}},
            "tool_choice.disable_parallel_tool_use: ",
        ),
        ({"thinking": {}}, "thinking.type: None"),
        ({"output_config": {"effort": 3}, "thinking": ADAPTIVE}, "output_config.effort"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens: is missing"),
        ({"thinking": {"type": "enabled", "budget_tokens": -5}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens"),
    ],
)
def test_bad_requests(server: Running, more: dict[str, Any], named: str) -> None:
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], **more}
    answer = server.http.post("/v1/messages?beta=true", json=body)
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert named in error["message"]


def test_errors_in_anthropic_s_shape() -> None:
    with running(api_keys=("k",), engine={"slots": 1}) as run:
        with pytest.raises(APIStatusError) as refused:
            ask(run, "x")
        assert refused.value.status_code == 401
        body: Any = refused.value.body
        assert body["error"]["type"] == "authentication_error"
        body = {
            "max_tokens": 20,
            "messages": [{"role": "user", "content": script(say="abcd", fail=2)}],
            "stream": True,
        }
        text = run.http.post("/v1/messages", json=body, headers={"x-api-key": "k"}).text
        name, data = text.strip().split("\n\n")[-1].split("\n")
        assert name == "event: error"
        assert json.loads(data.removeprefix("data: "))["error"]["message"] == "the window failed"
