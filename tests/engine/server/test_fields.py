"""What a field may say, and the error that names one which says something else."""

import json

import pytest

from engine.errors import TemplateError
from engine.gguf.chat_template import ChatTemplate
from tests.engine.server.byte_text import ByteText
from tests.engine.server.harness import Running, error_of, running

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server():
    with running({"context": 200}) as run:
        yield run


def tool(**more) -> dict:
    return {"type": "function", "function": {"name": "f"} | more}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("temperature", 2.5),
        ("top_p", 1.5),
        ("top_k", "many"),
        ("top_k", 1.5),
        ("top_k", 2**31),
        ("penalty_last_n", 2**31),
        ("min_p", -0.1),
        ("presence_penalty", 3),
        ("frequency_penalty", [1]),
        ("seed", "x"),
        ("seed", -2),
        ("seed", 2**63 - 1),
        ("seed", 2**64),
        ("seed", 2**70),
        ("stop", ""),
        ("max_tokens", -2),
        ("max_tokens", 0),
        ("max_completion_tokens", 0),
        ("max_tokens", "all"),
        ("max_completion_tokens", 1.5),
        ("n", 0),
        ("n", 65),
        ("stop", 5),
        ("stop", ["a", ""]),
        ("stop", ["a"] * 5),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("logit_bias", {"257": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5": "much"}),
        ("logit_bias", {"x": 1}),
        ("logit_bias", [5]),
        ("top_logprobs", 2),
        ("messages", []),
        ("messages", "hi"),
        ("messages", [{"role": "assistant", "content": "x"}]),
        ("messages[0].role", None),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "assistant", "content": None}, USER[0]]),
        ("messages", [{"role": "tool", "tool_call_id": "1"}, USER[0]]),
        ("tools", [{"type": "function"}]),
        ("tools[0].function.parameters", [tool(parameters=5)]),
        ("tools[0].function.parameters", [tool(parameters=[])]),
        ("tools[1].function.name", [tool(), tool()]),
        ("tools", [tool(name=f"f{n}", strict=True) for n in range(513)]),
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("web_search_options", {}),
        ("store", True),
        ("verbosity", "low"),
        ("guided_json", {"type": "object"}),
        ("structured_outputs", {"regex": "a"}),
        ("reasoning", {"max_tokens": 5}),
        ("chat_template_kwargs", {"refuse": "it is only a test"}),
        ("messages[0].content", [{"role": "user", "content": []}]),
        ("messages[0].content[0].text", [{"role": "user", "content": [{"type": "text"}]}]),
        (
            "messages[0].function_call",
            [{"role": "assistant", "content": "x", "function_call": {"name": "f"}}, USER[0]],
        ),
        ("tool_choice", "required"),
        ("tool_choice", "sometimes"),
        ("response_format", {}),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}}),
        ("response_format", {"type": "json_object"}),  # this engine cannot
        ("reasoning_effort", "extreme"),
    ],
)
def test_a_bad_value_names_its_field(server: Running, field: str, value: object) -> None:
    body: dict = {"messages": USER, field.partition("[")[0]: value}
    if field == "messages[0].role":
        body = {"messages": [{"role": "robot", "content": ""}]}
    error = error_of(server.http.post("/v1/chat/completions", json=body), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(field)
    assert error["message"].startswith(field)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"hello", "not JSON"),
        (b"nope", "not JSON"),
        (b'"x', "not JSON"),
        (b"[1,2", "not JSON"),
        (b'{"messages": 5, "model": x}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 4000, "not JSON"),
        (b"[1,2]", "the body: Expected `object`, got `array`"),
        (b'"x"', "the body: Expected `object`, got `str`"),
    ],
)
def test_a_body_that_is_no_object(server: Running, body: bytes, what: str) -> None:
    headers = {"content-type": "application/json"}
    response = server.http.post("/v1/chat/completions", content=body, headers=headers)
    assert what in error_of(response, 400)["message"]


@pytest.mark.parametrize(
    "more",
    [
        {"modalities": ["text"]},
        {"store": False},
        {"functions": []},
        {"function_call": "none"},
        {"verbosity": "medium"},
        {"web_search_options": None, "audio": None, "grammar": ""},
        {"max_tokens": -1},
        {"max_completion_tokens": -1},
        {"user": "u", "metadata": {"a": "b"}, "prompt_cache_key": "k", "service_tier": "auto"},
        {"a_field_of_tomorrow": {"x": 1}},
    ],
)
def test_what_changes_nothing_is_taken(server: Running, more: dict) -> None:
    alone, line = (
        server.order_of(lambda fields=fields: server.chat("x", **fields)) for fields in ({}, more)
    )
    assert line.split()[3:] == alone.split()[3:]


def test_a_prompt_that_is_too_long_is_named_by_its_field(server: Running) -> None:
    for path, body, field in (
        ("/v1/completions", {"prompt": "x" * 300}, "prompt"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x" * 300}]},
            "messages",
        ),
        ("/v1/responses", {"input": "x" * 300}, "input"),
    ):
        error = error_of(server.http.post(path, json=body), 400)
        assert (error["param"], error["code"]) == (field, "context_length_exceeded")


def test_a_missing_field_is_named(server: Running) -> None:
    assert error_of(server.http.post("/v1/chat/completions", json={}), 400)["param"] == "messages"
    assert error_of(server.http.post("/v1/completions", json={}), 400)["param"] == "prompt"
    assert error_of(server.http.post("/detokenize", json={}), 400)["param"] == "tokens"


def test_a_picture_is_refused_by_name(server: Running) -> None:
    parts = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    body = {"messages": [{"role": "user", "content": parts}]}
    error = error_of(server.http.post("/v1/chat/completions", json=body), 400)
    assert error["param"] == "messages[0].content[1]"


class StubbornText(ByteText):
    """Its template refuses everything, and takes its time."""

    def __init__(self) -> None:
        self.asked = 0

    def render(self, messages, tools, settings) -> str:
        self.asked += 1
        raise TemplateError("no")


def test_a_template_that_fails_is_asked_again_only_without_what_may_be_at_fault() -> None:
    text = StubbornText()
    with running(text=text) as run:
        for more, times in (({}, 1), ({"tools": [tool()]}, 2), ({"chat_template_kwargs": {}}, 1)):
            before = text.asked
            assert error_of(run.chat("x", **more), 400)["param"] == "messages"
            assert text.asked - before == times


class TemplateText(ByteText):
    """Prompts are made by the template of a model file."""

    def render(self, messages, tools, settings) -> str:
        template = ChatTemplate("{{ messages | tojson }}{{ tools | tojson }}")
        return template.render(messages, tools=tools, **settings)


@pytest.fixture(scope="module")
def templates():
    with running({"context": 50_000}, text=TemplateText()) as run:
        yield run


@pytest.mark.parametrize("depth", [90, 700, 980, 5000])
def test_what_is_nested_deep_is_no_bug(templates: Running, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    call = {"function": {"name": "f", "arguments": "@"}}
    for more in (
        {"chat_template_kwargs": "@"},
        {"tools": [{"function": {"name": "f", "parameters": "@"}}], "tool_choice": "required"},
        {"messages": [{"role": "assistant", "tool_calls": [call]}, *USER]},
        {"response_format": "@"},
        {"unknown": "@"},
    ):
        body = json.dumps({"messages": USER, **more}).replace('"@"', deep)
        answer = templates.http.post("/v1/chat/completions", content=body)
        assert answer.status_code in (200, 400), answer.text
