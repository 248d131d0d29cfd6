"""Whatever a body says, it is answered, or refused by the name of a field that it has."""

import json
import re
from functools import reduce
from operator import or_
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.server.anthropic_body import MessagesBody
from engine.server.bodies import ChatBody, CompletionBody
from engine.server.responses_body import ResponsesBody
from tests.engine.server.harness import Running, running

BODIES = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/messages": MessagesBody,
    "/v1/responses": ResponsesBody,
}
# Names and words that mean something somewhere, and some that do not.
WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        """type text role user assistant system tool content name function json_schema schema format
        input_text tool_use tool_result thinking enabled reasoning function_call call_id arguments
        function_call_output output input object string auto none required any effort high $ref #
        properties parameters description input_schema message output_text summary id {} x""",
    )
)
ATOMS = st.none() | st.booleans() | st.integers(-2, 9) | WORDS | st.sampled_from(["", "é", 0.5])
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)
OBJECTS = st.dictionaries(WORDS, VALUES, max_size=5)
SHAPED = {
    "tools": st.lists(OBJECTS, max_size=2),
    "tool_choice": OBJECTS | WORDS,
    "stop": st.lists(WORDS, max_size=5) | WORDS,
    **dict.fromkeys(
        ("response_format", "reasoning", "thinking", "output_config", "text", "logit_bias"), OBJECTS
    ),
    "chat_template_kwargs": OBJECTS,
    "input": st.lists(OBJECTS, max_size=3),
    "system": st.lists(OBJECTS, max_size=2) | WORDS,
}
SOUND: dict[str, dict[str, Any]] = {
    "messages": {"messages": [{"role": "user", "content": "x"}]},
    "prompt": {"prompt": "x"},
    "input": {"input": "x"},
    "max_tokens": {"max_tokens": 3},
}


@pytest.fixture(scope="module")
def server():
    with running({"slots": 1, "context": 300}) as run:
        yield run


def bodies(path: str) -> st.SearchStrategy[dict[str, Any]]:
    """A sound body with some fields that are anything."""
    names = BODIES[path].__struct_fields__
    sound: dict[str, Any] = {}
    for name, fields in SOUND.items():
        sound |= fields if name in names else {}
    odd = st.dictionaries(st.sampled_from(names), VALUES, max_size=1)
    shaped = st.fixed_dictionaries(
        {}, optional={name: values for name, values in SHAPED.items() if name in names}
    )
    turns = st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
        optional={"content": WORDS | st.lists(OBJECTS, max_size=2), "tool_calls": VALUES},
    )
    lists = st.fixed_dictionaries(
        {}, optional={name: st.lists(turns, max_size=3) for name in ("messages",) if name in names}
    )
    return st.builds(lambda *parts: reduce(or_, parts, sound), lists, shaped, odd)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
@pytest.mark.parametrize("path", list(BODIES))
def test_any_body(server: Running, path: str, data: st.DataObject) -> None:
    body = data.draw(bodies(path))
    answer = server.http.post(path, json=body)
    assert answer.status_code in (200, 400), (body, answer.text)
    if answer.status_code == 400:
        error = json.loads(answer.text)["error"]
        assert error["message"]
        assert len(error["message"]) < 600
        if error.get("param"):
            field = error["param"].partition(".")[0].partition("[")[0]
            assert field in BODIES[path].__struct_fields__
    else:
        assert "error" not in answer.text or "[DONE]" not in answer.text
