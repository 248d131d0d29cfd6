"""Calls that a request asks for, by the clients' own libraries and with a real engine."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic

from engine.server.chat_prompt import THINK
from tests.engine.server.harness import HANG_GUARD_S, Running, error_of, running
from tests.engine.server.test_with_engine import JsonText, toy
from tests.engine.toy_words import EOS

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["rome", "oslo"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "rain": {"type": "boolean"},
    },
    "required": ["city", "days"],
}
OTHER = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}
NAMED = {"weather": SCHEMA, "light": OTHER}
THOUGHT = 59


class ThinkingText(JsonText):
    """A prompt ends inside reasoning, which one token ends."""

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        return [THOUGHT] if text == "</think>" else super().encode(text)

    def render(self, messages: Any, tools: object, settings: object) -> str:
        return f"{super().render(messages, tools, settings)}{THINK}"

    def stream(self) -> Any:
        return ThinkingDecoder()


class ThinkingDecoder:
    def push(self, id: int) -> str:
        words = {THOUGHT: "</think>", EOS: ""}
        return words.get(id) or (JsonText.texts[id] if id < len(JsonText.texts) else "")

    def finish(self) -> str:
        return ""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(**{**toy("ends", "words"), "text": JsonText()}) as run:
        yield run


def functions(**more: Any) -> list[Any]:
    return [
        {"type": "function", "function": {"name": name, "parameters": schema, **more}}
        for name, schema in NAMED.items()
    ]


def check_call(name: str, arguments: str | dict[str, Any]) -> None:
    """One that fits its schema."""
    said = json.loads(arguments) if isinstance(arguments, str) else arguments
    if name == "light":
        assert list(said) == ["on"]
        assert isinstance(said["on"], bool)
        return
    assert name == "weather"
    assert set(said) - {"rain"} == {"city", "days"}
    assert said["city"] in ("rome", "oslo")
    assert said["days"] in range(1, 10)
    assert isinstance(said.get("rain", True), bool)


CHOICES: list[tuple[Any, set[str]]] = [
    ("required", {"weather", "light"}),
    ({"type": "function", "function": {"name": "weather"}}, {"weather"}),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "light"}}],
            },
        },
        {"light"},
    ),
]


@pytest.mark.parametrize(("choice", "names"), CHOICES)
def test_chat(server: Running, choice: Any, names: set[str]) -> None:
    seen = set()
    for seed in range(6):
        messages: Any = [{"role": "user", "content": f"city {seed}"}]
        asked: Any = {"messages": messages, "tools": functions(), "tool_choice": choice}
        asked |= {"model": "m", "temperature": 1.3, "seed": seed, "parallel_tool_calls": False}
        create = server.client().chat.completions.create
        (whole,) = create(**asked).choices
        assert whole.finish_reason == "tool_calls"
        assert whole.message.content is None
        assert whole.message.tool_calls is not None
        (call,) = whole.message.tool_calls
        assert call.type == "function"
        check_call(call.function.name, call.function.arguments)
        seen.add(call.function.name)
        chunks = [chunk.choices[0] for chunk in create(**asked, stream=True)]
        pieces = [piece.function for one in chunks for piece in one.delta.tool_calls or ()]
        assert pieces[0] is not None
        assert pieces[0].name == call.function.name
        assert "".join(piece.arguments or "" for piece in pieces if piece) == (
            call.function.arguments
        )
        assert not any(one.delta.content for one in chunks)
        assert chunks[-1].finish_reason == "tool_calls"
    assert seen == names


def test_several_calls(server: Running) -> None:
    counts = set()
    for seed in range(8):
        more = {"temperature": 1.3, "seed": seed, "tools": functions(), "tool_choice": "required"}
        (choice,) = server.chat(f"city {seed}", **more).json()["choices"]
        calls = choice["message"]["tool_calls"] or []
        for call in calls:
            check_call(call["function"]["name"], call["function"]["arguments"])
        assert choice["finish_reason"] == "tool_calls" or len(calls) > 2
        counts.add(len(calls))
    assert len(counts) > 1


def test_messages(server: Running) -> None:
    client = Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=HANG_GUARD_S)
    tools: Any = [{"name": name, "input_schema": schema} for name, schema in NAMED.items()]
    for seed in range(3):
        for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
            asked: Any = {
                "messages": [{"role": "user", "content": f"city {seed}"}],
                "tools": tools,
                "tool_choice": {**choice, "disable_parallel_tool_use": True},
                "max_tokens": 300,
                "model": "m",
                "extra_body": {"seed": seed, "temperature": 1.0},
            }
            with client.messages.stream(**asked) as events:
                streamed = events.get_final_message()
            for answer in (client.messages.create(**asked), streamed):
                assert answer.stop_reason == "tool_use"
                (block,) = answer.content
                assert block.type == "tool_use"
                check_call(block.name, dict(block.input))  # type: ignore[call-overload]


def test_responses(server: Running) -> None:
    tools: Any = [
        {"type": "function", "name": name, "parameters": schema, "strict": False}
        for name, schema in NAMED.items()
    ]
    allowed = {"mode": "required", "tools": [{"type": "function", "name": "light"}]}
    choices: list[Any] = ["required", {"type": "function", "name": "weather"}]
    for choice in [*choices, {"type": "allowed_tools", **allowed}]:
        asked: Any = {"model": "m", "input": "city", "tools": tools, "tool_choice": choice}
        asked |= {"parallel_tool_calls": False, "temperature": 1.0, "extra_body": {"seed": 4}}
        create = server.client().responses.create
        *_, last = create(**asked, stream=True)
        for answer in (create(**asked), last.response):  # type: ignore[union-attr]
            (item,) = answer.output
            assert item.type == "function_call"
            check_call(item.name, item.arguments)
            assert not answer.parallel_tool_calls


@pytest.mark.parametrize(
    ("tools", "choice", "held"),
    [
        ({}, "auto", False),
        ({"strict": False}, None, False),
        ({"strict": True}, "auto", True),
        ({"strict": True}, "none", False),
        ({}, "required", True),
    ],
)
def test_which_answers_are_held(tools: dict[str, Any], choice: str | None, held: bool) -> None:
    with running({"facts": {"grammars": 1}}) as run:
        more = {"tools": functions(**tools), "tool_choice": choice}
        keys = run.order_of(lambda: run.chat("x", **more)).split()[4]
        assert ("grammar=" in keys) == held


def test_thoughts_come_first_and_are_free() -> None:
    with running(**{**toy("ends", "words"), "text": ThinkingText()}) as run:
        thoughts = set()
        for seed in range(4):
            more = {"temperature": 1.5, "seed": seed, "reasoning_budget_tokens": 12}
            more |= {"tools": functions(), "parallel_tool_calls": False}
            answer = run.chat(f"city {seed}", tool_choice="required", **more)
            (choice,) = answer.json()["choices"]
            assert choice["finish_reason"] == "tool_calls"
            (call,) = choice["message"]["tool_calls"]
            check_call(call["function"]["name"], call["function"]["arguments"])
            thoughts.add(choice["message"].get("reasoning_content"))
        assert len(thoughts) > 1


@pytest.mark.parametrize(
    ("parameters", "more", "field"),
    [
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, {}, "parameters"),
        ({"type": "object", "properties": {"a": {"uniqueItems": True}}}, {"strict": True},
         "parameters"),
        (5, {}, "parameters"),
        ({"type": "object"}, {"strict": "yes"}, "strict"),
        ({"type": "object"}, {"description": 5}, "description"),
    ],
)  # fmt: skip
def test_a_tool_that_cannot_be_held_is_named(
    server: Running, parameters: Any, more: dict[str, Any], field: str
) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters, **more}}]
        error = error_of(server.chat("x", tools=tools, tool_choice=choice), 400)
        assert error["param"] == f"tools[0].function.{field}"
        assert error["message"].startswith(error["param"])
    flat = [{"type": "function", "name": "f", "parameters": parameters, **more}]
    body = {"input": "x", "tools": flat, "tool_choice": "required"}
    error = error_of(server.http.post("/v1/responses", json=body), 400)
    assert error["param"] == f"tools[0].{field}"


def test_a_single_call_ends_an_answer_that_may_also_be_text() -> None:
    on = "<parameter=on>\ntrue\n</parameter>"
    call = f"<tool_call>\n<function=light>\n{on}\n</function>\n</tool_call>"
    with running() as run:
        say = json.dumps({"say": f"Well.{call}\n{call} more"})
        for stream in (False, True):
            for several in (True, False):
                answer = run.client().chat.completions.create(
                    model="m", messages=[{"role": "user", "content": say}], tools=functions(),
                    parallel_tool_calls=several, stream=stream,
                )  # fmt: skip
                if stream:
                    chunks = [chunk.choices[0] for chunk in answer]
                    count = len([p for c in chunks for p in c.delta.tool_calls or () if p.id])
                    text = "".join(c.delta.content or "" for c in chunks)
                else:
                    (choice,) = answer.choices
                    count, text = len(choice.message.tool_calls), choice.message.content
                assert (count, text) == ((2, "Well.more") if several else (1, "Well."))
