"""Answers that the request has begun."""

from functools import partial

import pytest

from tests.engine.server.harness import Running, error_of, running, script
from tests.engine.server.test_chat import TOOLS, text_of


@pytest.fixture(scope="module")
def server():
    with running() as run:
        yield run


def test_a_last_turn_is_continued(server: Running) -> None:
    turns = [
        {"role": "user", "content": script(say=", two")},
        {"role": "assistant", "content": "one", "reasoning_content": "not shown again"},
    ]
    go_on = {"continue_final_message": True, "add_generation_prompt": False}
    create = partial(server.client().chat.completions.create, model="m", messages=turns)
    for stream in (False, True):
        answer = create(stream=stream, reasoning_effort="high", extra_body=go_on)
        assert text_of(answer, stream) == (", two", "stop")
    assert server.control.starting("[enable_thinking=False][reasoning_effort=xhigh]one")


@pytest.mark.parametrize(
    ("last", "more", "field"),
    [
        ({"role": "user", "content": "x"}, {}, "messages"),
        ({"role": "assistant", "content": ""}, {}, "messages"),
        ({"role": "assistant", "content": "x"}, {"tool_choice": "required"}, "tool_choice"),
        (
            {"role": "assistant", "content": "{"},
            {"response_format": {"type": "json_object"}},
            "response_format",
        ),
    ],
)
def test_what_cannot_be_continued(server: Running, last: dict, more: dict, field: str) -> None:
    turns = [{"role": "user", "content": "x"}, last]
    body = {"messages": turns, "continue_final_message": True, "tools": TOOLS, **more}
    if field == "response_format":
        del body["tools"]
    answer = server.http.post("/v1/chat/completions", json=body)
    assert error_of(answer, 400)["param"] == field
